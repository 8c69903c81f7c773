"""Conditions that bound one variable by another one."""

from __future__ import annotations

import pytest

from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Expr
from nautilus.core.index.prefixes import Prefix, only_prefix, prefix
from nautilus.core.text.expressions import parse_expr


def parsed(text: str) -> Expr:
    return parse_expr(text)


@pytest.mark.parametrize(("text", "shift", "reverse"), [
    ("u <= t", 0, False), ("u < t", -1, False), ("t >= u", 0, False), ("t > u", -1, False), ("u <= t + 3", 3, False),
    ("u - 2 < t", 1, False), ("u - t <= -4", -4, False), ("u >= t", 0, True), ("u > t", -1, True), ("t <= u", 0, True),
    ("t < u", -1, True), ("u + 2 >= t", 2, True), ("t - u < 5", 4, True),
])  # fmt: skip
def test_a_bound_is_a_prefix_or_a_suffix(text: str, shift: int, reverse: bool) -> None:
    found = prefix(parsed(text), "u", "t")
    assert found == Prefix(shift, reverse)
    # u <= t + shift, or u >= t - shift, at all points
    for u in range(-6, 7):
        for t in range(-6, 7):
            want = u >= t - shift if reverse else u <= t + shift
            assert bool(evaluate(parsed(text), {"u": u, "t": t})) == want
    assert found.scans == (shift in (0, -1)) and found.exclusive == (shift == -1)


@pytest.mark.parametrize("text", [
    "u == t", "u <= 2 * t", "2 * u <= t", "u + t <= 3", "u <= t + v", "u <= 3", "u <= v", "u <= t and u > 0",
    "u <= t // 2", "-u <= t",
])  # fmt: skip
def test_another_condition_is_none(text: str) -> None:
    assert prefix(parsed(text), "u", "t") is None


def test_nothing_else_depends_on_the_bound() -> None:
    bound, other, own = parsed("u <= t"), parsed("u > 0"), parsed("t > 3")
    assert only_prefix("u", "t", parsed("u + 1"), [other, bound]) == (bound, Prefix(0, reverse=False))
    assert only_prefix("u", "t", parsed("u + t"), [other, bound]) is None
    assert only_prefix("u", "t", parsed("u + 1"), [own, bound]) is None
    assert only_prefix("u", "t", parsed("u + 1"), [bound, parsed("u < t")]) is None
    assert only_prefix("u", "t", parsed("u + 1"), [other]) is None
