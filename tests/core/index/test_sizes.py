"""Extents made of sizes that are known only at launch."""

from __future__ import annotations

import pytest

from nautilus.core.buffers import Buffer, Space, extents
from nautilus.core.errors import InternalError
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Param, Var
from nautilus.core.index.simplify import TRUE, bounds, simplify
from nautilus.core.index.sizes import (
    MAX_DIM,
    NOMINAL,
    Extent,
    as_extent,
    at_most,
    before_last,
    blocks,
    extent_expr,
    extent_value,
    nominal,
    rounded_up,
    total,
    volume,
)
from nautilus.core.source import NO_SPAN
from nautilus.core.text.expressions import format_expr
from nautilus.core.types import DType

M = Param("M", DType.I32, NO_SPAN, 1000)
N = Param("N", DType.I32, NO_SPAN, MAX_DIM)


def text(e: Extent) -> str:
    return str(e) if isinstance(e, int) else format_expr(e)


@pytest.mark.parametrize(
    "made, expected",
    [
        (volume(()), "1"),
        (volume((2, 3)), "6"),
        (volume((2, M, 3)), "M * 6"),
        (volume((M, N)), "M * N"),
        (volume((M, 0)), "0"),
        (total(0, M), "M"),
        (total(M, 0), "M"),
        (total(2, 3), "5"),
        (total(M, N), "M + N"),
        (blocks(129, 128), "2"),
        (blocks(M, 128), "(M + 127) // 128"),
        (blocks(M, 4096), "(M + 1023) // 1024"),  # any tile that covers the bound
        (before_last(129, 128), "1"),
        (before_last(M, 128), "M // 128"),
        (rounded_up(129, 128), "256"),
        (rounded_up(M, 128), "(M + 127) // 128 * 128"),
        (as_extent(integer(4)), "4"),
    ],
)
def test_arithmetic(made: Extent, expected: str) -> None:
    assert text(made) == expected


def test_values_are_exact() -> None:
    extent = volume((blocks(N, 128), M, 1 << 20))
    assert extent_value(extent, lambda p: {"M": 1000, "N": MAX_DIM}[p.name]) == at_most(extent)
    assert at_most(extent) == -(-MAX_DIM // 128) * 1000 << 20
    assert nominal(extent) == NOMINAL // 128 * 1000 << 20
    assert at_most(calc("min", N, M)) == 1000
    assert extents((3, M, blocks(M, 2)), {"M": 0}) == (3, 0, 0)
    with pytest.raises(InternalError):
        at_most(Var("i"))


@pytest.mark.parametrize(("op", "value"), [
    ("add", 82), ("sub", 72), ("mul", 385), ("floordiv", 15), ("mod", 2), ("min", 5), ("max", 77),
])  # fmt: skip
def test_every_operation_of_an_extent_has_a_value(op: str, value: int) -> None:
    assert extent_value(calc(op, N, 5), lambda _: 77) == value


def test_a_size_has_its_range_in_every_expression() -> None:
    assert bounds(calc("add", calc("mul", M, 2), 1)) == (1, 2001)
    for certain in (calc("le", M, 1000), calc("ge", M, 0), calc("ge", extent_expr(blocks(M, 8)), 0)):
        assert simplify(certain) == TRUE
    assert bounds(Param("s", DType.I32)) == (None, None)


def test_an_axis_that_a_module_does_not_have_has_stride_0() -> None:
    given = Buffer("X", DType.F32, (4, 8), Space.INPUT, view_of=(4, 1, 8, 1), strides=(32, 2))
    assert given.array_strides == (32, 0, 2, 0)


def test_a_view_of_a_buffer_keeps_its_shape() -> None:
    b = Buffer("X", DType.F16, (M, 4), Space.INPUT).viewed((volume((M, 4)),))
    assert (b.array_shape, text(b.shape[0])) == ((M, 4), "M * 4")


@pytest.mark.parametrize("chunks", [before_last(N, 512), blocks(N, 512)])
def test_positions_before_the_last_chunk_are_inside(chunks: Extent) -> None:
    """Of the chunks that cover ``N``, the first element is."""
    inside = [calc("lt", Var("c"), extent_expr(chunks))]
    first, last = (calc("lt", calc("add", calc("mul", Var("c"), 512), k), N) for k in (0, 511))
    ranges = {"c": (0, MAX_DIM // 512)}
    assert simplify(first, ranges, inside) == TRUE
    assert (simplify(last, ranges, inside) == TRUE) is (chunks == before_last(N, 512))


def test_chunks_of_a_number_that_may_wrap_say_nothing() -> None:
    w = Param("w", DType.I32)
    inside = [calc("lt", Var("c"), calc("floordiv", calc("sub", w, 5), 64))]
    assert simplify(calc("lt", calc("mul", Var("c"), 64), w), {"c": (0, 100)}, inside) != TRUE
