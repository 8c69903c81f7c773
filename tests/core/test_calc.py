"""Index arithmetic as expressions: types of the results, numbers as constants."""

from __future__ import annotations

from nautilus.core.expr.build import calc, integer, within
from nautilus.core.expr.nodes import Const, Op, Var, identity
from nautilus.core.types import DType

AT = Var("i")


def test_types_follow_the_operation() -> None:
    assert calc("add", AT, 1) == Op("add", (AT, Const(1, DType.I32)), DType.I32)
    less = calc("lt", 0, AT)
    assert less == Op("lt", (integer(0), AT), DType.BOOL)
    assert calc("not", less).dtype is calc("and", less, less).dtype is DType.BOOL


def test_a_choice_is_of_what_is_chosen() -> None:
    less = calc("lt", AT, 4)
    assert calc("select", less, AT, 0).dtype is DType.I32
    assert calc("select", less, less, less).dtype is DType.BOOL


def test_bounds_are_in_the_type_of_the_position() -> None:
    wide = Var("n", DType.I64)
    low, high = within(wide, 8)
    assert low == Op("ge", (wide, Const(0, DType.I64)), DType.BOOL)
    assert high == Op("lt", (wide, Const(8, DType.I64)), DType.BOOL)
    assert within(AT, wide)[1].args == (AT, wide)


def test_the_identity_of_a_maximum_is_the_least_number_of_its_type() -> None:
    assert [identity("max", t).value for t in (DType.I8, DType.U8, DType.I32)] == [-128, 0, -(1 << 31)]
    assert [identity("min", t).value for t in (DType.I8, DType.U8, DType.I64)] == [127, 255, (1 << 63) - 1]
