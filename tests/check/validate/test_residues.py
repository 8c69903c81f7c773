"""Arithmetic on residues."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nautilus.check import validation
from nautilus.check.check import Check
from nautilus.check.inputs import InputSet
from nautilus.check.validate import identities
from nautilus.check.validate.memory import Unsupported
from nautilus.check.validate.numbers import Constants, Number, exactly
from nautilus.check.validate.residues import P, Q, inverse, of_floats, of_integers, power, products
from nautilus.check.validate.verdict import Verdict
from nautilus.core.text.expressions import parse_expr
from nautilus.core.types import DType


@pytest.mark.parametrize("modulus", [P, Q])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (16,), (17,), (3, 5, 7), (1001,)])
def test_inverses(modulus: int, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(len(shape)).integers(0, modulus, shape)
    x = np.where(x % 5 == 0, 0, x)
    assert np.array_equal(inverse(x, modulus), power(x, modulus - 2, modulus))
    assert np.array_equal(inverse(x, modulus) * x % modulus, x != 0)


@pytest.mark.parametrize("modulus", [P, Q])
@pytest.mark.parametrize("depth", [1, 3, 3000])
def test_products_are_those_of_integers(modulus: int, depth: int) -> None:
    rng = np.random.default_rng(depth)
    a, b = (rng.integers(0, modulus, shape) for shape in ((2, 3, depth), (depth, 2)))
    a[0, 0], b[:, 0] = modulus - 1, modulus - 1  # the largest sums
    want = [
        [[sum(map(int.__mul__, row, column)) % modulus for column in b.T.tolist()] for row in m] for m in a.tolist()
    ]
    assert products(a, b, modulus).tolist() == want


@pytest.mark.parametrize("modulus", [P, Q])
def test_residues_of_numbers(modulus: int) -> None:
    x = np.array([0.0, 3.0, -5.0, 2.0**60, 0.75, -(2.0**-40), np.inf, np.nan])
    half = pow(2, -1, modulus)
    want = [0, 3, -5, 2**60, 3 * half * half, -pow(half, 40, modulus), 0, 0]
    assert of_floats(x, modulus).tolist() == [w % modulus for w in want]
    assert of_integers(np.array([7, -1, 2**62]), modulus).tolist() == [7, modulus - 1, 2**62 % modulus]


def test_constants_that_are_no_integers_move_and_so_do_roundings() -> None:
    still, moved = Constants(), Constants((2.0**-20, 3))
    assert still.number(0.3).real == 0.3 and moved.number(0.3).real != 0.3
    assert abs(float(moved.number(0.3).real) - 0.3) < 1e-5 and moved.number(4.0).real == 4.0
    x = exactly(np.linspace(1.0, 2.0, 64))
    assert np.array_equal(still.rounding(x).real, x.real)
    ratios = moved.rounding(x).real / x.real - 1.0
    assert ratios.min() < -(2.0**-22) and ratios.max() > 2.0**-22 and len({*ratios.tolist()}) > 32
    assert np.array_equal(moved.rounding(x).real, moved.rounding(replace(x)).real)


def test_the_ends_of_integers_have_the_least_one_whose_square_overflows() -> None:
    least = [min(n for n in identities._ENDS[d] if n * n >= 1 << 31 and n > 0) for d in (DType.I32, DType.I64)]
    assert least == [46341, 46341] and 46340**2 < 1 << 31


def test_what_the_samples_have_no_meaning_for_is_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    x = parse_expr("x + 1.0", params={"x": DType.F32})

    def refuses(*_: object) -> Verdict:
        raise Unsupported("no meaning")

    monkeypatch.setattr(identities, "_compared", refuses)
    assert identities.decide(x, x) == Verdict("not decided", detail="no meaning")


def test_two_runs_of_a_level() -> None:
    given, numbers = InputSet("normal", 0, {}, {}), {"Y": np.ones(2)}
    said = {
        (a, b): validation._compared(a, b, given).status
        for a in ("error: a", "the interpreter: a")
        for b in ("error: b",)
    }
    assert {*said.values()} == {"not decided"}
    assert validation._compared(numbers, "error: b", given).status == "refuted"
    assert validation._compared(numbers, "the interpreter: b", given).status == "not decided"
    assert validation._compared(numbers, {"Y": -np.ones(2)}, given).status == "refuted"
    assert validation._compared({"Y": np.zeros(2)}, {"Y": -np.zeros(2)}, given).status == "refuted"
    for status in ("proved", "tested", "not decided"):
        found = Verdict(status)
        assert validation._close(numbers, numbers, given, dict, lambda *_: None, found) is found


def test_sides_that_differ_by_a_rounding_of_numbers_of_1_are_tested() -> None:
    one, other = (Number(np.array([x, 1.0]), np.array([n, 1]), np.array([n, 1])) for x, n in ((1e-14, 3), (0.0, 0)))
    samples: Any = SimpleNamespace(kind="generic", count=2)
    assert identities._verdict(one, other, np.ones(2, bool), samples).status == "tested"
    assert identities._verdict(one, one, np.ones(2, bool), samples).status == "proved"


def test_outputs_behind_one_that_ties_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    types = [("tie", DType.I32), ("count", DType.I32)]
    monkeypatch.setattr("nautilus.check.check.levels.output_types", lambda _: types)
    made: Any = SimpleNamespace(
        tied=lambda name, _: name == "tie", bounds={}, agreed=lambda found, *_: found is None,
        differs_exactly=lambda name, *_: seen.append(name),
    )  # fmt: skip
    sides: Any = {name: np.zeros(1) for name, _ in types}
    level: Any = SimpleNamespace(module=None)
    assert Check.agree(made, level, sides, sides, InputSet("normal", 0, {}, {}), None, None) and seen == ["count"]
