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


@cache
def compiled(size: str) -> Result:
    return compile_file(Request(Path("window.naut"), "sm_90a", text=TEXT.format(size=size), until="ma-tile"))


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
