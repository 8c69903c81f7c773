"""Conditions as conjunctions: parts that always hold vanish, no part occurs twice, and the order is kept."""

from __future__ import annotations

from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import FALSE, TRUE, conjunction, conjuncts
from nautilus.core.expr.nodes import Var

A, B, C = (calc("lt", Var(n), 4) for n in "abc")


def test_parts_left_to_right() -> None:
    assert conjuncts(calc("and", A, calc("and", B, C))) == (A, B, C)
    assert conjuncts(None) == conjuncts(TRUE) == ()
    chosen = calc("select", A, B, FALSE)  # B may be asked only where A holds
    assert conjuncts(chosen) == (chosen,)


def test_a_conjunction_has_each_part_once() -> None:
    found = conjunction((calc("and", A, B), None, TRUE, calc("and", B, C)))
    assert found == calc("and", calc("and", A, B), C)
    assert conjunction((None, TRUE)) is None
