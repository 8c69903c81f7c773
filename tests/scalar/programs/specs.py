"""Specs at small, odd sizes with random inputs: the shipped ones and a set that covers the language."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nautilus.core.numerics import Array, round_to
from nautilus.core.records.memo import by_identity
from nautilus.core.types import DType
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_spec
from nautilus.frontend.spec import Spec
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Program

SHIPPED = sorted((Path(__file__).parents[3] / "specs").glob("*/*.naut"))
SMALL = {
    "B": 2, "H": 2, "Hq": 4, "Hkv": 2, "M": 33, "N": 37, "D": 8, "K": 19, "P": 3, "C": 21, "W": 7,
}  # fmt: skip

LANGUAGE = {
    "gather": """
        dim V = 11, T = 7, D = 5
        input E: f16[V, D]
        input token: i32[T]
        output O: f32[T, D]
        O[t, d] = E[token[t], d]""",
    "convolution": """
        dim N = 20, K = 3
        input X: f32[N]
        input W: f32[K]
        output Y: f32[N]
        Y[i] = sum[k](W[k] * (X[i + k - 1] if i + k - 1 >= 0 and i + k - 1 < N else 0))""",
    "inner reduction in a guarded branch": """
        dim N = 9, K = 4
        input X: f32[N, K]
        output Y: f32[N]
        Y[i] = max[k](X[i + 2, k]) * 2 if i + 2 < N else -1""",
    "inner reduction under an outer domain": """
        dim N = 9, K = 4
        input X: f32[N, K]
        output Y: f32[N]
        Y[i] = sum[j: N | i + j < N](exp(sum[k](X[i + j, k] * X[j, k])))""",
    "guard over a variable that the inner reduction lacks": """
        dim N = 6, K = 4
        input X: f32[N, K]
        input lim: i32[N]
        output Y: f32[N, N]
        Y[i, j] = sum[k](X[lim[i], k]) if j > i and lim[i] >= 0 and lim[i] < N else 0.5""",
    "guard over an outer variable only": """
        dim N = 6, K = 4
        input X: f32[N, K]
        output Y: f32[N, N]
        Y[i, j] = sum[k](X[i + 2, k]) if j == i and j < N - 2 else 0.5""",
    "paged, with lengths": """
        dim B = 2, S = 8, P = 4, PAGES = 4, D = 3
        input K: f16[PAGES, P, D]
        input page: i32[B, 2]
        input len: i32[B]
        input q: f16[B, D]
        output O: f32[B, S]
        O[b, j] = softmax[j | j < len[b]](sum[d](q[b, d] * K[page[b, j // P], j % P, d]))""",
    "shared across definitions, other names": """
        dim M = 6, N = 8
        input X: f16[M, N]
        output Y: f16[M, N]
        output Z: f32[M]
        Y[i, j] = softmax[j](X[i, j])
        Z[a] = max[b](X[a, b]) + 1""",
    "transposed sharing": """
        dim M = 6, N = 8, K = 3
        input X: f16[M, K]
        input W: f16[N, K]
        output Y: f32[M, N]
        output Z: f32[N, M]
        Y[i, j] = exp(sum[k](X[i, k] * W[j, k]) / 8)
        Z[b, a] = sum[c](X[a, c] * W[b, c]) + 1""",
    "empty domains": """
        dim M = 6, N = 5
        input X: f16[M, N]
        output Y: f16[M, N]
        output S: f32[M]
        Y[i, j] = softmax[j | j > i](X[i, j])
        S[i] = max[j | j > i](X[i, j])""",
    "logic, integers, products": """
        dim M = 7, N = 10
        input X: f32[M, N]
        input L: i8[M, N]
        output A: i32[M]
        output B: bool[M]
        output C: bool[M]
        output P: f32[M]
        output Q: i32[M]
        output R: u8[N]
        A[i] = argmin[j](X[i, j])
        B[i] = any[j](X[i, j] > 1.5)
        C[i] = all[j | j % 2 == 0](X[i, j] > -1.0 or j > i)
        P[i] = prod[j](1 + X[i, j] / 10)
        Q[i] = sum[j](L[i, j] * L[i, j] // 3)
        R[j] = min[i](i32(L[i, j]) % 5)""",
    "typed intermediate": """
        dim M = 7, N = 10
        input X: f32[M, N]
        output Y: f32[M]
        H: f16[i, j] = X[i, j] * 1.0009765
        S: f16[i] = sum[j](H[i, j])
        Y[i] = S[i] + H[i, 0]""",
    "independent of an axis": """
        dim M = 4, N = 5
        input X: f16[N]
        output Y: f32[M, N]
        Y[i, j] = sum[k: N](X[k])""",
    "output read by another, rounded": """
        dim M = 7, N = 10
        input X: f32[M, N]
        output H: f16[M, N]
        output Y: f32[M]
        H[i, j] = X[i, j] * 3
        Y[i] = sum[j](H[i, j] * H[i, j])""",
    "two axes, windows, distances": """
        dim B = 2, N = 9
        input X: f32[B, N, N]
        input slope: f32[B]
        output Y: f32[B]
        output Z: f32[N, N]
        Y[b] = sum[i, j | abs(i - j) <= 2](X[b, i, j] * exp(-abs(i - j)) + slope[b] * (j - i))
        Z[i, j] = sum[b](X[b, j, i]) if i // 3 == j // 3 else 0""",
    "runtime size": """
        dim N = runtime <= 64
        dim M = 5
        input X: f16[M, N]
        scalar eps: f32 = 1e-5
        output Y: f16[M, N]
        Y[i, j] = rms_norm[j](X[i, j], eps)""",
    "paged": """
        dim S = 12, P = 4, PAGES = 5, D = 3
        input K: f16[PAGES, P, D]
        input page: i32[3]
        input q: f16[D]
        output O: f32[S]
        O[j] = softmax[j](sum[d](q[d] * K[page[j // P], j % P, d]))""",
}


def small(path: Path) -> Spec:
    """A shipped spec at small sizes."""
    spec = load_spec(path)
    dims = {d.name: SMALL[d.name] for d in spec.dims if d.value != 1}
    return load_spec(path, dims=dims)


def language(name: str) -> Spec:
    lines = [line.strip() for line in LANGUAGE[name].strip().splitlines()]
    return load_spec("\n".join(lines) + "\n")


def random_inputs(spec: Spec, seed: int = 0, runtime: int = 9) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    out: dict[str, Any] = {}
    for t in spec.inputs:
        shape = tuple(e if isinstance(e, int) else runtime for e in t.shape)
        if t.dtype in (DType.I32, DType.I64):
            out[t.name] = rng.integers(0, 4, shape)
        elif t.dtype.is_int:
            out[t.name] = rng.integers(-100, 100, shape)
        else:
            out[t.name] = rng.standard_normal(shape)
    return out


@by_identity(16)
def _drawn(spec: Spec) -> dict[str, Any]:
    return random_inputs(spec)


@by_identity(16)
def _exact(spec: Spec, inputs: Mapping[str, Any]) -> Mapping[str, Array]:
    return run_spec(spec, inputs)


def round_outputs(spec: Spec, values: Mapping[str, Array]) -> dict[str, Array]:
    """``values`` rounded to the outputs' declared types (still float64, int64 or bool)."""
    return {t.name: round_to(values[t.name], t.dtype) for t in spec.outputs}


def agree(spec: Spec, program: Program, inputs: Any = None, tolerance: float = 1e-9) -> None:
    """``program`` computes what ``spec`` means, outputs rounded alike; programs of one spec are compared with one run
    of it."""
    inputs = _drawn(spec) if inputs is None else inputs
    exact = _exact(spec, inputs)
    rounded = round_outputs(spec, exact)
    have = run_program(program, inputs)
    for t in spec.outputs:
        narrow = t.dtype.is_float and t.dtype not in (DType.F32, DType.F64)
        loose = 2.0**-(t.dtype.mantissa) if narrow else tolerance
        want = rounded[t.name] if narrow else exact[t.name]  # an f32 is f32 or better
        np.testing.assert_allclose(have[t.name], want, rtol=loose, atol=tolerance, err_msg=t.name)
