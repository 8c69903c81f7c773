"""Vectors that lie between two aligned ones, as those of the neighbours of elements, are loaded as these two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nautilus.core.buffers import Buffer, Space
from nautilus.core.errors import VerifyError
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Expr, Var
from nautilus.core.types import DType
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.analysis.access import shifted_width
from nautilus.ma_tile.ir.ops import GlobalLoad, MemModule, walk_ops
from nautilus.ma_tile.text import format, parse
from nautilus.ma_tile.verify.module import verify

X, Y = Var("x"), Var("y")
NEXT, PREVIOUS = calc("add", X, integer(1)), calc("sub", X, integer(1))


def _within(e: Expr, low: int, high: int) -> Expr:
    found = conjunction((calc("ge", e, integer(low)), calc("lt", e, integer(high))))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("index", "mask", "shape", "found"),
    [
        (NEXT, None, (8, 64), (16, 1)),
        (PREVIOUS, None, (8, 64), (16, 15)),
        (calc("add", X, integer(4)), None, (8, 64), (16, 4)),
        (calc("add", X, integer(16)), None, (8, 64), (1, 0)),
        (NEXT, None, (8, 60), (4, 1)),  # rows are multiples of 4
        (NEXT, None, (3, 7), (1, 0)),
        (calc("mul", NEXT, integer(2)), None, (8, 64), (1, 0)),
        (NEXT, _within(NEXT, 0, 64), (8, 64), (16, 1)),
        (PREVIOUS, _within(PREVIOUS, 0, 64), (8, 64), (16, 15)),
        (NEXT, _within(X, 0, 64), (8, 64), (1, 0)),  # the last element of a row has no neighbour, but is read
        (NEXT, calc("lt", X, integer(31)), (8, 64), (16, 1)),
        (NEXT, calc("lt", X, integer(30)), (8, 64), (1, 0)),
        (NEXT, calc("lt", X, Y), (8, 64), (1, 0)),
    ],
)
def test_widths(index: Expr, mask: Expr | None, shape: tuple[int, int], found: tuple[int, int]) -> None:
    buffer = Buffer("A", DType.U8, shape, Space.INPUT)
    assert shifted_width(buffer, (Y, index), mask, "x", 16, {}) == found


TEXT = """
dim H = 8, W = 512
input X: u8[H, W]
output Y: u8[H, W]
Y[y, x: W] = max(X[y, x - 1] if x > 0 else 0, X[y, x + 1] if x + 1 < W else 0)
"""


def _stencil() -> MemModule:
    made: MemModule = compile_file(Request(Path("s.naut"), "sm_90a", text=TEXT, until="ma-tile")).modules["ma-tile"]
    return made


def _loads(m: MemModule) -> list[GlobalLoad]:
    return [op for k in m.kernels for op in walk_ops(k.body) if isinstance(op, GlobalLoad)]


def test_neighbours_are_loaded_as_two_vectors() -> None:
    m = _stencil()
    assert sorted((op.vec, op.shift) for op in _loads(m)) == [(8, 1), (8, 7)]
    assert not m.kernels[0].smem
    assert parse(format(m)) == m


@pytest.mark.parametrize("changes", [{"shift": 0}, {"shift": 8}, {"repeat": 2}, {"volatile": True}])
def test_faults(changes: dict[str, Any]) -> None:
    m = _stencil()
    k = m.kernels[0]
    body = tuple(replace(op, **changes) if isinstance(op, GlobalLoad) else op for op in k.body)
    with pytest.raises(VerifyError):
        verify(replace(m, kernels=(replace(k, body=body),)))


def test_rows_that_are_no_whole_vectors_are_loaded_otherwise() -> None:
    text = TEXT.replace("H = 8, W = 512", "H = 7, W = 509")
    m = compile_file(Request(Path("s.naut"), "sm_90a", text=text, until="ma-tile")).modules["ma-tile"]
    assert all(op.shift is None for op in _loads(m))
