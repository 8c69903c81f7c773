"""Facts about results in f32 against numpy, on numbers around all special ones."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from nautilus.core.functions.arrays import binade
from nautilus.core.functions.specials import RULES, Fact, compared, constant, either, joined, unequal
from nautilus.core.numerics import Array

INF, NAN, LARGEST, TINY = math.inf, math.nan, float(np.finfo(np.float32).max), 2.0**-149
VALUES = (-INF, -LARGEST, -2.0, -TINY, -0.0, 0.0, TINY, 1.0, 1.5, LARGEST, INF)
#: sets of values, and the fact that says most about each
SETS: list[tuple[tuple[float, ...], Fact]] = [((v,), constant(v)) for v in VALUES]
for low, high in (
    (-INF, INF),
    (-LARGEST, INF),
    (-LARGEST, LARGEST),
    (0.0, 1.5),
    (TINY, INF),
    (1.0, 1.5),
    (-2.0, -TINY),
):
    members = tuple(v for v in VALUES if low <= v <= high)
    SETS += [(members, Fact(low, high, False)), ((*members, NAN), Fact(low, high, True))]
SETS += [((-INF, NAN), Fact(-INF, -INF, True)), ((INF, NAN), Fact(INF, INF, True)), ((0.0, NAN), Fact(0.0, 0.0, True))]

EXACT: dict[str, Any] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "max": np.maximum,
    "min": np.minimum, "neg": lambda a: -a, "abs": abs, "exp2": np.exp2, "exp2_approx": np.exp2,
    "fma": lambda a, b, c: np.float32(np.longdouble(a) * np.longdouble(b) + np.longdouble(c)),
    "binade": lambda a: float(binade(np.array(a, np.float64))),
}  # fmt: skip


def holds(fact: Fact, got: float, arguments: dict[str, float]) -> bool:
    if math.isnan(got):
        value_says = fact.unless is None or math.isnan(arguments[fact.unless])
        return fact.nan and value_says
    within = fact.low <= got <= fact.high
    if fact.value is None:
        return within
    same = got == fact.value and math.copysign(1, got) == math.copysign(1, fact.value)
    return within and same and not (fact.unless is not None and math.isnan(arguments[fact.unless]))


@pytest.mark.parametrize("op", sorted(RULES))
def test_rules_say_what_ieee_754_does(op: str) -> None:
    count = (
        EXACT[op].nin
        if isinstance(EXACT[op], np.ufunc)
        else 1
        if op in ("neg", "abs", "binade")
        else 3
        if op == "fma"
        else 2
    )
    sets = SETS if count < 3 else SETS[::2]
    with np.errstate(all="ignore"):
        for chosen in product(sets, repeat=count):
            named = [(f"x{n}", f) for n, (_, f) in enumerate(chosen)]
            fact = RULES[op](*named)
            if fact == Fact():
                continue
            for values in product(*(members for members, _ in chosen)):
                got = float(EXACT[op](*map(np.float32, values)))
                given = {name: v for (name, _), v in zip(named, values, strict=True)}
                assert holds(fact, got, given), (op, chosen, values, got, fact)


def test_what_is_known_is_not_lost() -> None:
    above = Fact(-LARGEST, INF, True)
    found = RULES["sub"](("c", constant(-INF)), ("x", above))
    assert (found.value, found.unless) == (-INF, "x")
    power = RULES["exp2"](("d", found))
    assert (power.value, power.unless) == (0.0, "x")
    assert RULES["mul"](("z", constant(0.0)), ("e", power)) == power
    assert RULES["fma"](("c", constant(-INF)), ("x", Fact(1.0, 1.5, False)), ("d", constant(-7.0))) == constant(-INF)
    assert RULES["fma"](("m", above), ("o", constant(1.0)), ("d", constant(-7.0))).low == -LARGEST
    assert RULES["sub"](("x", Fact()), ("c", constant(-INF))).is_infinite
    assert unequal(Fact(), -INF) == Fact(-LARGEST, INF, True)


@pytest.mark.parametrize("op", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_comparisons(op: str) -> None:
    compare = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}.get(op)
    compare = compare or {"eq": np.equal, "ne": np.not_equal}[op]
    decided = 0
    for (xs, a), (ys, b) in product(SETS, repeat=2):
        found = compared(op, a, b)
        decided += found is not None
        if found is not None:
            table: Array = compare.outer(np.array(xs), np.array(ys))
            assert (table == found).all(), (op, xs, ys)
    assert decided > 300


def test_two_cases_keep_a_common_value() -> None:
    zero, maybe = constant(0.0), Fact(0.0, 0.0, True, 0.0, "x")
    assert either(zero, maybe) == maybe and joined(zero, maybe) == Fact(0.0, 0.0, True)
    assert either(constant(-0.0), maybe).value is None
    assert either(Fact(0.0, 0.0, True, 0.0, "y"), maybe).unless is None
