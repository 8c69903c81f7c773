"""Running results, which are reductions over a prefix or a suffix of their axis, on every level."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.check.inputs import generate
from nautilus.check.levels import run
from nautilus.frontend.interp import run_spec
from nautilus.vr_tile.ir import ScanOp, results, walk_ops
from tests.endtoend.support import Compilation, complaints, travel

ROWS = """
    dim M = 3, N = {n}
    input X: {type}[M, N]
    output Y: {out}[M, N]
    Y[i, j] = {body}
"""
#: title -> definition, type of the input and of the output
BODIES = {
    "sum": ("sum[k | k <= j](X[i, k])", "f32", "f32"),
    "exclusive": ("sum[k | k < j](X[i, k])", "f32", "f32"),
    "reverse": ("sum[k | k >= j](X[i, k])", "f32", "f32"),
    "exclusive and reverse": ("sum[k | k > j](X[i, k])", "f32", "f32"),
    "the other way round": ("sum[k | not (j < k)](X[i, k])", "f32", "f32"),
    "product": ("prod[k | k <= j](1 + X[i, k] / 64)", "f32", "f32"),
    "maximum": ("max[k | k <= j](X[i, k])", "bf16", "bf16"),
    "minimum from the end": ("min[k | j <= k](X[i, k])", "f16", "f32"),
    "integers": ("sum[k | k <= j](i32(X[i, k]))", "i8", "i32"),
    "any": ("any[k | k <= j](X[i, k] > 2)", "f32", "bool"),
    "mask": ("sum[k | k <= j](X[i, k] if X[i, k] > 0 else 0)", "f32", "f32"),
    "mask of positions": ("sum[k | k <= j and k % 3 != 1](X[i, k])", "f32", "f32"),
    "logarithm": ("log(sum[k | k <= j](exp(X[i, k])))", "f32", "f32"),
    "elementwise after it": ("sum[k | k <= j](X[i, k] * X[i, k]) / (j + 1) - X[i, j]", "f16", "f16"),
    "several axes": ("sum[k, l: 2 | k <= j](X[i, k] * (l + 1))", "f32", "f32"),
}


def scans(made: Compilation) -> list[ScanOp]:
    return [op for k in made.levels[-1].module.kernels for op in walk_ops(k.body) if isinstance(op, ScanOp)]


def travelled(text: str, arch: str = "sm_90a", into: str = "j") -> Compilation:
    """A compilation with a scan and without a tile over its axis ``k`` and that of its results, ``into``."""
    made = travel(text, arch, until="ma-tile")
    vr = made.last("vr-tile").module
    found = [op for k in vr.kernels for op in walk_ops(k.body)]
    assert any(isinstance(op, ScanOp) for op in found)
    wide = [op for op in found for v in results(op) if {into, "k"} <= set(v.type.names)]
    assert not wide, "no tile holds all pairs of positions"
    return made


@pytest.mark.parametrize("name", BODIES)
def test_rows(name: str) -> None:
    body, type_, out = BODIES[name]
    number = list(BODIES).index(name)
    made = travelled(ROWS.format(body=body, type=type_, out=out, n=(130, 77, 1000, 33)[number % 4]), "sm_80")
    assert not complaints(made)


@pytest.mark.parametrize("n", [2, 3, 32, 4096])
def test_sizes(n: int) -> None:
    body, type_, out = BODIES["reverse" if n % 2 else "exclusive"]
    assert not complaints(travelled(ROWS.format(body=body, type=type_, out=out, n=n).replace("M = 3", "M = 1")))


COLUMNS = """
    dim M = 3, N = 70, D = 40
    input X: f32[M, N, D]
    output Y: f32[M, N, D]
    Y[i, j, d] = sum[k | k <= j](X[i, k, d])
"""
SOFTMAX = """
    dim M = 3, N = 70
    input X: f32[M, N]
    output Y: f32[M, N]
    P[i, j] = softmax[j](X[i, j])
    Y[i, j] = sum[k | k <= j](P[i, k])
"""
TWO = """
    dim M = 3, N = 70
    input X: f32[M, N]
    output Y: f32[M, N]
    A[i, j: N] = sum[k | k <= j](X[i, k])
    Y[i, j] = max[k | k >= j](A[i, k]) - A[i, j]
"""


@pytest.mark.parametrize("text", [COLUMNS, SOFTMAX, TWO], ids=["columns", "softmax", "two"])
def test_kernels(text: str) -> None:
    assert not complaints(travelled(text))


LONG = """
    dim M = 1, N = {n}
    input X: f32[M, N]
    output Y: f32[M, N]
    Y[i, j] = {body}
"""
ACROSS = """
    dim M = {n}, N = 5
    input X: f16[M, N]
    input keep: bool[M]
    output Y: f32[M, N]
    Y[i, j] = {body}
"""
#: title -> text and definition; 140 columns are three chunks
CHUNKS = {
    "row": (LONG.format(n=9001, body="prod[k | k <= j](X[i, k] / 64 + 1)"), 512),
    "column": (ACROSS.format(n=140, body="sum[k | k < i and keep[k]](X[k, j])"), 64),
    "column from the end": (ACROSS.format(n=129, body="prod[k | k >= i](X[k, j] / 64 + 1 if keep[k] else 1)"), 64),
    "column, moved": (ACROSS.format(n=192, body="sum[k | k + 3 <= i](X[k, j] if keep[i] else 0)"), 64),
    "reader": (ACROSS.format(n=193, body="exp(prod[k | k <= i](X[k, j] / 64 + 1)) * X[i, j] if keep[i] else 0"), 64),
}


@pytest.mark.parametrize("name", CHUNKS)
def test_chunks(name: str) -> None:
    text, chunk = CHUNKS[name]
    made = travelled(text, into="j" if chunk > 64 else "i")
    found = [a.size for k in made.last("vr-tile").module.kernels for a in k.axes if a.name == "k"]
    assert chunk in found and not complaints(made, stages=("vr-tile", "ma-tile") if chunk > 64 else ())


@pytest.mark.parametrize("body", ["k <= j and k > j - 5", "k <= 2 * j", "k <= j // 2", "k != j", "k <= N - 1 - j"])
def test_other_domains(body: str) -> None:
    """Windows and other domains are no prefixes."""
    text = ROWS.format(body=f"sum[k | {body}](X[i, k])", type="f32", out="f32", n=70)
    made = travel(text, "sm_80", until="ma-tile")
    assert not scans(made) and not complaints(made)


@pytest.mark.parametrize("name", ["sum", "exclusive", "reverse", "product", "maximum", "minimum from the end", "mask"])
def test_special_values(name: str) -> None:
    """inf and NaN reach the results whose domain has them, and no others."""
    body, _, _ = BODIES[name]
    made = travelled(ROWS.format(body=body, type="f32", out="f32", n=70))
    spec = made.result.modules["spec"]
    given = generate(spec, "random", 0)
    x = given.arrays["X"].copy()
    x[0, 40], x[1, 0], x[1, 69], x[2, 20], x[2, 50] = np.nan, np.inf, -np.inf, np.inf, 0.0
    if name == "product":
        x[2, 50] = -64.0  # inf * 0
    given.arrays["X"][...] = x
    with np.errstate(all="ignore"):
        want = run_spec(spec, given.arrays, given.scalars, given.sizes)["Y"]
    assert not np.isfinite(want).all() and np.isfinite(want).any()
    for stage in ("scalar", "vr-tile", "ma-tile"):
        got = run(made.last(stage), given, "typed")["Y"]
        special = ~np.isfinite(want)
        np.testing.assert_array_equal(got[special], want.astype(got.dtype)[special], err_msg=stage)
        np.testing.assert_allclose(got[~special], want[~special], rtol=1e-4, atol=1e-4, err_msg=stage)
