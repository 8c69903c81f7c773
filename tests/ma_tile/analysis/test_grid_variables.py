"""Grid variables that are numbers in every block, and those that only a launch knows."""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Param, Var
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.grid_variables import grid_values
from tests.ma_tile.programs.kernels import product


def test_a_variable_of_a_scalar_has_no_value() -> None:
    (kernel,) = product().kernels
    width = calc("min", Param("w", DType.I32), 5)
    after = calc("add", Var("width"), Var("half"))
    kernel = replace(kernel, decode=(("half", calc("floordiv", Var("block"), 2)), ("width", width), ("after", after)))
    found = grid_values(kernel, 4)
    assert {name: values.tolist() for name, values in found.items()} == {"block": [0, 1, 2, 3], "half": [0, 0, 1, 1]}
