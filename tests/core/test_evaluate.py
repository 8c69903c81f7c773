"""Expressions at many points at once."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Expr, Load, Param, Var
from nautilus.core.types import DType

ROW, COLUMN = Var("i"), Var("j")


def test_points_broadcast() -> None:
    e = calc("add", calc("mul", ROW, integer(10)), calc("mod", COLUMN, integer(3)))
    found = evaluate(e, {"i": np.arange(2)[:, None], "j": np.arange(4)})
    assert found.tolist() == [[0, 1, 2, 0], [10, 11, 12, 10]]


def test_conditions_are_bools() -> None:
    found = evaluate(calc("le", ROW, Param("n", DType.I32)), {"i": np.arange(3), "n": np.asarray(1)})
    assert found.dtype == np.bool_ and found.tolist() == [True, True, False]


def test_what_is_not_known_is_an_error_or_what_the_caller_says() -> None:
    table = Load("table", (ROW,), DType.I32)
    with pytest.raises(KeyError, match="j"):
        evaluate(calc("add", ROW, COLUMN), {"i": np.asarray(1)})
    with pytest.raises(KeyError, match="table"):
        evaluate(table, {"i": np.asarray(1)})
    assert evaluate(calc("add", table, COLUMN), {"j": np.asarray(1)}, lambda e: np.asarray(7)) == 8


def test_operations_that_stand_in_several_others_are_evaluated_once() -> None:
    asked = []

    def read(e: Expr) -> object:
        asked.append(e)
        return np.asarray(2)

    e = calc("add", Load("table", (ROW,), DType.I32), COLUMN)
    for _ in range(40):
        e = calc("min", e, calc("add", e, ROW))
    assert evaluate(e, {"i": np.asarray(1), "j": np.asarray(3)}, read) == 5
    assert len(asked) == 1
