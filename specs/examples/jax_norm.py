"""Calls a kernel of nautilusc from JAX, inside of a jit.

    nautilusc specs/rowwise/rms_norm.naut --emit jax -o norm_jax.py --arch sm_90a --dim M=1024,N=4096
    python specs/examples/jax_norm.py

Compares the result with the same in JAX, and prints the largest difference.  Needs JAX for CUDA.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path.cwd()))  # where the command above has written the function

from norm_jax import rms_norm


@jax.jit
def ours(x: jax.Array, w: jax.Array) -> jax.Array:
    return 2 * rms_norm(x, w, 1e-5)


@jax.jit
def theirs(x: jax.Array, w: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(wide * wide, axis=1, keepdims=True) + 1e-5)
    return 2 * (wide * scale * w.astype(jnp.float32)).astype(jnp.float16)


def main() -> None:
    keys = jax.random.split(jax.random.key(0))
    x = jax.random.normal(keys[0], (1024, 4096), jnp.float16)
    w = jax.random.normal(keys[1], (4096,), jnp.float16)
    difference = jnp.abs(ours(x, w).astype(jnp.float32) - theirs(x, w).astype(jnp.float32))
    print(f"largest difference: {difference.max():.3g}")


if __name__ == "__main__":
    main()
