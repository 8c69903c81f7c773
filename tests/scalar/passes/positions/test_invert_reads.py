"""``invert-reads``: which reads have as many places as their reader has elements."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Axis, Expr, Load, Param, Var
from nautilus.core.types import DType
from nautilus.scalar.passes.positions.invert_reads import _fits


@pytest.mark.parametrize(
    ("index", "extents", "fits"),
    [
        (calc("add", calc("mul", Var("i"), integer(4)), Var("j")), (4, 4), True),
        (calc("add", calc("mul", Var("i"), integer(2)), Var("j")), (4, 4), False),
        (Var("i"), (8, 1), True),
        (calc("add", calc("mul", Var("i"), integer(4)), Var("j")), (Param("n", DType.I32), 4), False),
        (calc("mul", Var("i"), Var("i")), (Param("n", DType.I32), 4), False),
    ],
)
def test_places_and_elements(index: Expr, extents: tuple[Any, int], fits: bool) -> None:
    d: Any = SimpleNamespace(par=(Axis("a", 16),))
    r: Any = SimpleNamespace(par=(Axis("i", extents[0]), Axis("j", extents[1])))
    assert _fits(d, r, Load("P", (index,), DType.F32)) == fits
