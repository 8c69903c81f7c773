"""Mutations by the effects of single changes."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import pytest

from nautilus.tune.search.mutations import difference, effects, proposals, single_changes


@dataclass(frozen=True)
class Choice:
    name: str
    values: tuple[object, ...]


CHOICES = (Choice("a", (1, 2, 3)), Choice("b", (True, False)), Choice("c", ((1, 2), (2, 1))))
BASE = {"a": 2, "b": True, "c": (1, 2)}


def test_single_changes_are_complete() -> None:
    found = list(single_changes(CHOICES, BASE))
    assert [difference(v, BASE) for v in found] == [("a",), ("a",), ("b",), ("c",)]
    assert found[0] == {**BASE, "a": 1}
    assert difference({**BASE, "b": 1}, BASE) == ("b",)  # True and 1 are two values


def test_an_effect_is_measured_where_nothing_else_differs_and_estimated_elsewhere() -> None:
    estimated = [({**BASE, "a": 1}, 0.5), ({**BASE, "b": False}, 1.2)]
    points = [(BASE, 2.0), ({**BASE, "b": False}, 1.0), ({**BASE, "b": False, "c": (2, 1), "a": 3}, 0.1)]
    found = effects(BASE, BASE, estimated, points)
    assert found["b", "False"].log_ratio == pytest.approx(log(0.5)) and found["b", "False"].measured
    back = effects({**BASE, "b": False}, BASE, estimated, points)
    assert back["b", "True"].log_ratio == pytest.approx(log(2.0)) and back["a", "1"].log_ratio == log(0.5)
    there = effects({**BASE, "a": 1}, BASE, estimated, points)
    assert there["a", "2"].log_ratio == log(2.0)  # the change back to the value that the model prefers
    assert not found["a", "1"].measured and found["a", "1"].expected > log(0.5)  # an estimate counts half
    assert ("c", "(2, 1)") not in found


def test_helpful_changes_are_tried_together_then_alone() -> None:
    points = [(BASE, 1.0), ({**BASE, "a": 1}, 0.9), ({**BASE, "a": 3}, 0.95), ({**BASE, "b": False}, 0.97)]
    points += [({**BASE, "c": (2, 1)}, 1.3)]
    found = proposals({**BASE}, effects(BASE, BASE, [], points), 10)
    assert found[0] == {**BASE, "a": 1, "b": False}  # the better value of a, with what else helps
    assert found[1] == {**BASE, "a": 1}
    assert found[-1] == {**BASE, "c": (2, 1)}
    here = {**BASE, "a": 1}
    moved = proposals(here, effects(here, BASE, [], [*points, ({**here, "b": False}, 0.8)]), 10)
    assert moved[0] == {**here, "b": False}
    assert moved.index({**here, "a": 3}) < moved.index({**here, "a": 2})  # the change that costs less comes first


def test_without_effects_there_are_no_proposals() -> None:
    assert proposals(BASE, {}, 10) == []
