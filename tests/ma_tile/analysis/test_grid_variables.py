"""Grid variables that are numbers in every block, and those that only a launch knows."""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Param, Var
from nautilus.core.index.sizes import blocks, extent_expr
from nautilus.core.source import NO_SPAN
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.grid_variables import Monomial, bijective, extents, grid_values
from tests.ma_tile.programs.kernels import product


def test_a_variable_of_a_scalar_has_no_value() -> None:
    (kernel,) = product().kernels
    width = calc("min", Param("w", DType.I32), 5)
    after = calc("add", Var("width"), Var("half"))
    kernel = replace(kernel, decode=(("half", calc("floordiv", Var("block"), 2)), ("width", width), ("after", after)))
    found = grid_values(kernel, 4)
    assert {name: values.tolist() for name, values in found.items()} == {"block": [0, 1, 2, 3], "half": [0, 0, 1, 1]}


def test_a_factor_of_at_most_one_has_no_digit() -> None:
    (kernel,) = product().kernels
    decode = (("i", integer(0)), ("n", Var("block")))
    for most, found in ((4, {"n": Monomial(8)}), (17, {"n": Monomial(8, (extent_expr(blocks(size(17), 16)),))})):
        count = calc("mul", extent_expr(blocks(size(most), 16)), 8)
        assert extents(replace(kernel, blocks=count, decode=decode)) == found


def test_a_variable_that_no_other_one_has_is_left() -> None:
    """Tiles of one kernel are those of another one only where each variable of the other one is a digit of one."""
    ours, theirs = {"i": Monomial(6)}, {"x": Monomial(3), "y": Monomial(2)}
    digits = {"i": calc("add", calc("mul", Var("x"), 2), Var("y"))}
    assert bijective(ours, theirs, digits)
    assert not bijective(ours, {**theirs, "z": Monomial(4)}, digits)


def size(most: int) -> Param:
    return Param("M", DType.I32, NO_SPAN, most)
