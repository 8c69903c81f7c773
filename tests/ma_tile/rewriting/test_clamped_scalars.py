"""Scalars of any value in masks: no sum of one with a position overflows."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from nautilus.check.inputs import generate
from nautilus.core.expr.nodes import Const, walk
from nautilus.driver import Request, Result, compile_file
from nautilus.frontend.interp import run_spec
from nautilus.ma_tile.interp.module import run_module
from nautilus.ma_tile.ir.ops import LetOp, walk_ops

TEXT = """dim H = 1, D = 64, M = {size}
input Q: bf16[M, H, D]
input K: bf16[M, D]
input V: bf16[M, D]
scalar window: i32 = 100, first: i32 = 0
output O: bf16[M, H, D]
S[h, i, j] = sum[d](Q[i, h, d] * K[j, d]) / 8
P[h, i, j] = softmax[j | j <= i and (i - j < window or j < 4) and j >= first](S[h, i, j])
O[i, h, d] = sum[j](P[h, i, j] * V[j, d])
"""


#: Each side has a scalar, and so has each end of a range.
SIDES = """dim D = 32, M = 130
input Q: f16[M, D]
input K: f16[M, D]
scalar left: i32, right: i32
output O: f32[M, D]
S[i, j] = sum[d](Q[i, d] * K[j, d]) / 8
P[i, j] = softmax[j | i - j <= left and j - i <= right](S[i, j])
O[i, d] = sum[j](P[i, j] * K[j, d])
"""
ENDS = """dim M = 2, N = 9000
input X: f32[M, N]
scalar left: i32, right: i32
output O: f32[M]
O[i] = sum[j | left <= j + i and j - i < right](X[i, j]) / 64
"""


@cache
def result_of(text: str, arch: str) -> Result:
    return compile_file(Request(Path("window.naut"), arch, text=text, until="ma-tile"))


def compiled(size: str) -> Result:
    return result_of(TEXT.format(size=size), "sm_90a")


FAR = 2**31 - 1
PAIRS = [(FAR, FAR), (FAR, 5), (5, FAR), (-FAR - 1, FAR), (FAR, -FAR - 1), (0, FAR - 1), (3, 4)]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("text", [SIDES, ENDS], ids=["sides", "ends"])
def test_a_scalar_on_each_side(text: str, arch: str) -> None:
    result = result_of(text, arch)
    arrays = generate(result.modules["spec"], "random").arrays
    for left, right in PAIRS:
        scalars = {"left": left, "right": right}
        want = run_spec(result.modules["spec"], arrays, scalars)["O"]
        got = run_module(result.modules["ma-tile"], arrays, scalars)["O"]
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=1e-2)


CASES = [(2**31 - 1, 0), (2**31 - 2, 2**31 - 1), (2**30, -(2**30)), (3, 7), (-5, 1)]


@pytest.mark.parametrize(("window", "first"), CASES)
def test_windows_that_never_end(window: int, first: int) -> None:
    result = compiled("130")
    arrays = generate(result.modules["spec"], "random").arrays
    scalars = {"window": window, "first": first}
    want = run_spec(result.modules["spec"], arrays, scalars)["O"]
    got = run_module(result.modules["ma-tile"], arrays, scalars)["O"]
    np.testing.assert_allclose(got, want, rtol=2e-2, atol=1e-2)


def test_bounds_read_the_clamped_value() -> None:
    """Positions are small, so that the limit leaves room for sums with them."""
    kernel = compiled("130").modules["ma-tile"].kernels[0]
    lets = [*kernel.decode, *((op.var, op.expr) for op in walk_ops(kernel.body) if isinstance(op, LetOp))]
    found = {int(n.value) for name, e in lets if name == "first_clamped" for n in walk(e) if isinstance(n, Const)}
    assert found == {2**29, -(2**29)}
