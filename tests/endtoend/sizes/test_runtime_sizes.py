"""Kernels of sizes that are known only at launch: every level at several sizes, and no spilled registers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from nautilus.check.inputs import generate
from nautilus.check.levels import run
from nautilus.core.errors import ScheduleError
from nautilus.driver import Request, build_cubin
from nautilus.runtime.nvrtc import Compiled, build
from tests.endtoend.support import Compilation, travel


@dataclass(frozen=True)
class Case:
    """``sizes``: values of the runtime dims, in order."""

    text: str
    sizes: tuple[tuple[int, ...], ...]


ONE = ((0,), (1,), (7,), (77,))
TWO = ((0, 0), (1, 1), (7, 77), (77, 7), (3, 0), (0, 3))
CASES = {
    "elementwise": Case("dim N = runtime\ninput X: f32[N]\noutput Y: f32[N]\nY[i] = X[i] * 2 + N\n", ONE),
    "transpose": Case(
        "dim M = runtime, N = runtime\ninput X: f16[M, N]\noutput Y: f16[N, M]\nY[j, i] = X[i, j]\n", TWO
    ),
    "reductions": Case(
        """
        dim M = runtime, N = runtime <= 100000
        input X: f32[M, N]
        output S: f32[M], T: f32[N], A: i32[M]
        S[i] = sum[j](X[i, j])
        T[j] = max[i](X[i, j])
        A[i] = argmax[j](X[i, j])
        """,
        TWO,
    ),
    "norm": Case(
        """
        dim M = runtime <= 1000000, N = 128
        input X: f16[M, N], W: f16[N]
        output Y: f16[M, N]
        Y[i, j] = X[i, j] * rsqrt(sum[k](X[i, k] * X[i, k]) / N + 1e-5) * W[j]
        """,
        ONE,
    ),
    "window": Case(
        """
        dim N = runtime, C = 16
        input X: f32[N, C], W: f32[3, C]
        output Y: f32[N, C]
        Y[i, c] = sum[k: 3](X[i + k - 1, c] * W[k, c] if i + k >= 1 and i + k - 1 < N else 0)
        """,
        ONE,
    ),
    "product": Case(
        """
        dim M = runtime, N = runtime, K = runtime
        input A: f16[M, K], B: f16[K, N]
        output C: f16[M, N]
        C[i, j] = sum[k](A[i, k] * B[k, j])
        """,
        ((0, 5, 7), (5, 6, 0), (1, 1, 1), (77, 130, 33)),
    ),
    "product with facts": Case(
        """
        dim M = runtime, N = runtime, K = runtime
        assume N % 8 == 0 and K % 8 == 0
        input A: f16[M, K], B: f16[K, N]
        output C: f16[M, N]
        C[i, j] = sum[k](A[i, k] * B[k, j])
        """,
        ((0, 8, 8), (5, 8, 0), (1, 8, 8), (77, 136, 40)),
    ),
    "rows with facts": Case(
        """
        dim M = runtime, N = runtime <= 3000
        assume N % 8 == 0 and M % 2 == 0 and N >= 8
        input X: f16[M, N]
        output Y: f16[M, N], S: f32[M]
        Y[i, j] = softmax[j](X[i, j])
        S[i] = max[j | j < N - 3](X[i, j])
        """,
        ((0, 8), (2, 8), (6, 136), (4, 2000)),
    ),
    "sum in chunks": Case("dim N = runtime\ninput X: f32[N]\noutput S: f32\nS = sum[i](X[i])\n", (*ONE, (5000,))),
    "decoding in chunks": Case(
        """
        dim H = 2, N = runtime <= 131072, D = 64
        input Q: f16[H, D], K: f16[H, N, D], V: f16[H, N, D]
        output O: f16[H, D]
        S[h, j] = sum[d](Q[h, d] * K[h, j, d]) / sqrt(D)
        P[h, j] = softmax[j](S[h, j])
        O[h, d] = sum[j](P[h, j] * V[h, j, d])
        """,
        ((0,), (1,), (200,)),
    ),
    "attention": Case(
        """
        dim B = runtime, M = runtime, N = runtime <= 32768, H = 2, D = 16
        input Q: f16[B, H, M, D], K: f16[B, H, N, D], V: f16[B, H, N, D]
        output O: f16[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
        P[b, h, i, j] = softmax[j | j - i <= N - M](S[b, h, i, j])
        O[b, h, i, d] = sum[j](P[b, h, i, j] * V[b, h, j, d])
        """,
        ((0, 3, 3), (1, 5, 0), (1, 1, 1), (2, 40, 20), (1, 10, 40)),
    ),
}


def wrong(made: Compilation, sizes: tuple[int, ...]) -> list[str]:
    """What differs from the Spec at ``sizes`` by more than a few roundings of f16."""
    spec = made.result.modules["spec"]
    given = generate(spec, sizes={d.name: n for d, n in zip(spec.runtime_dims, sizes, strict=True)})
    want, found = run(made.levels[0], given, "real"), []
    for stage in ("scalar", "vr-tile", "ma-tile"):
        for name, got in run(made.last(stage), given, "typed").items():
            if got.shape != want[name].shape or not np.allclose(got, want[name], 2e-3, 2e-3, equal_nan=True):
                found.append(f"{stage}: {name} at {sizes}")
    return found


@pytest.mark.parametrize("name", CASES)
def test_every_level_agrees_at_every_size(name: str) -> None:
    made = travel(CASES[name].text, "sm_80" if name == "product" else "sm_90a")
    parts = any(b.name.endswith("_part") for b in made.last("ma-tile").module.buffers)
    assert parts or not name.endswith("in chunks")
    assert not [line for sizes in CASES[name].sizes for line in wrong(made, sizes)]
    built = _built(made, CASES[name].text)
    assert [r.spill_stores + r.spill_loads for r in built.resources] == [0] * len(built.resources)


def _built(made: Compilation, text: str) -> Compiled:
    """The cubin of ``made``; that of the next plan where ptxas finds that the registers do not suffice."""
    arch = made.result.context.arch
    try:
        return build(made.result.cuda_module, arch)
    except ScheduleError:
        return build_cubin(Request(Path("given.naut"), arch, text=dedent(text).lstrip()))[1]
