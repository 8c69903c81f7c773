"""Vector widths against brute force: every vector is contiguous, aligned, and its mask uniform."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.nodes import Expr
from nautilus.core.text.expressions import parse_expr
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.access import vector_width
from nautilus.ma_tile.interp.state.values import Scope

CASES = [
    ((8, 64), ("t", "j"), None, 8),
    ((8, 64), ("t", "j + 4"), None, 4),
    ((8, 63), ("t", "j"), None, 1),
    ((8, 60), ("t", "j"), None, 4),
    ((64, 8), ("j", "t"), None, 1),
    ((512,), ("t * 16 + j",), "t * 16 + j < 100", 4),
    ((512,), ("t * 16 + j",), "t * 16 + j <= 99", 4),
    ((512,), ("t * 16 + j",), "t * 16 + j >= 24", 8),
    ((512,), ("t * 16 + j",), "j <= t", 1),
    ((512,), ("t * 16 + j",), "not j < 8 or t < 3", 8),
    ((32, 16), ("(t * 16 + j) // 16", "(t * 16 + j) % 16"), None, 8),
    ((64, 4), ("(t * 16 + j) // 4", "j % 4"), None, 8),
    ((512,), ("t * 16 + 2 * j",), None, 1),
]


@pytest.mark.parametrize(("shape", "index", "mask", "want"), CASES)
def test_vector_width(shape: tuple[int, ...], index: tuple[str, ...], mask: str | None, want: int) -> None:
    buffer = Buffer("X", DType.F16, shape, Space.INPUT)
    exprs = tuple(parse_expr(e) for e in index)
    guard = None if mask is None else parse_expr(mask)
    got = vector_width(buffer, exprs, guard, "j", 8, {})
    assert got == want
    for t in range(8):
        for start in range(0, 16, got):
            at = [place(exprs, shape, t, start + n) for n in range(got)]
            assert at == list(range(at[0], at[0] + got)) and at[0] % got == 0
            if guard is not None:
                assert len({value(guard, t, start + n) for n in range(got)}) == 1


def place(index: tuple[Expr, ...], shape: tuple[int, ...], t: int, j: int) -> int:
    out = 0
    for e, size in zip(index, shape, strict=True):
        out = out * size + value(e, t, j)
    return out


def value(e: Expr, t: int, j: int) -> int:
    return int(Scope({"t": t, "j": j}, {}, {}, lambda name: np.zeros(1)).eval(e))
