"""The inverse of index expressions: what it finds is right at every position, and distinct places are told apart."""

from __future__ import annotations

import random
from itertools import product

import pytest

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Var
from nautilus.core.index.simplify import simplify
from nautilus.scalar.analysis.ranges.inverse import inverse
from tests.core.index.test_linear import value

A, B, C = Var("a"), Var("b"), Var("c")
WIDE = calc("add", calc("mul", A, 6), B)
ROLLED = calc("mod", calc("add", A, 5), 7)
CASES = {
    "digits": ((calc("add", WIDE, 3),), {"a": 4, "b": 6}),
    "reverse": ((calc("sub", 9, calc("mul", WIDE, 2)),), {"a": 4, "b": 6}),
    "quotient and remainder": ((calc("floordiv", A, 5), calc("mod", A, 5)), {"a": 13}),
    "three digits of one number": (
        (calc("floordiv", A, 12), calc("mod", calc("floordiv", A, 4), 3), calc("mod", A, 4)), {"a": 40}
    ),
    "quotient and remainder of a sum": ((calc("floordiv", A, 4), calc("mod", calc("add", A, 3), 4)), {"a": 13}),
    "rows of a rotation": (
        (calc("mod", calc("add", calc("mul", A, 4), calc("add", B, 5)), 24), calc("floordiv", A, 6)), {"a": 12, "b": 4}
    ),
    "rotation": ((ROLLED,), {"a": 7}),
    "digits of a rotation": (
        (calc("floordiv", calc("mod", calc("add", A, 7), 12), 4), calc("mod", calc("add", A, 3), 4)), {"a": 12}
    ),
    "pixels": (
        (calc("add", calc("mul", A, 2), calc("floordiv", C, 6)),
         calc("add", calc("mul", B, 2), calc("mod", calc("floordiv", C, 3), 2)), calc("mod", C, 3)),
        {"a": 3, "b": 4, "c": 12},
    ),
}  # fmt: skip


def check(index: tuple[Expr, ...], extents: dict[str, int]) -> set[str]:
    """The variables that an inverse of ``index`` has, after a look at every position."""
    ranges = {name: (0, n - 1) for name, n in extents.items()}
    points = [dict(zip(extents, at, strict=True)) for at in product(*(range(n) for n in extents.values()))]
    places = [[value(e, at) for e in index] for at in points]
    sides = {f"p{n}": (min(p[n] for p in places), max(p[n] for p in places)) for n in range(len(index))}
    found = inverse(index, [Var(name) for name in sides], ranges, sides)
    for at, place in zip(points, places, strict=True):
        env = dict(zip(sides, place, strict=True))
        assert all(value(e, env) == at[name] for name, e in found.items())
    return {*found}


@pytest.mark.parametrize("name", CASES)
def test_rearrangements_have_an_inverse(name: str) -> None:
    index, extents = CASES[name]
    assert check(index, extents) == extents.keys()


@pytest.mark.parametrize(
    ("index", "extents"),
    [
        ((calc("floordiv", A, 2),), {"a": 6}),
        ((calc("mod", A, 5),), {"a": 6}),
        ((calc("add", calc("mul", A, 5), B),), {"a": 3, "b": 6}),
        ((calc("floordiv", A, 6), calc("mod", A, 4)), {"a": 12}),
        ((calc("mod", calc("add", calc("mul", A, 4), B), 10),), {"a": 3, "b": 4}),
        ((calc("mul", A, B),), {"a": 3, "b": 3}),
    ],
)
def test_places_that_meet_have_none(index: tuple[Expr, ...], extents: dict[str, int]) -> None:
    assert check(index, extents) < extents.keys()


@pytest.mark.parametrize("seed", range(60))
def test_random_positions(seed: int) -> None:
    rng = random.Random(seed)
    extents = {name: rng.choice((1, 2, 3, 4, 6)) for name in "abc"}

    def position(depth: int) -> Expr:
        if depth == 0:
            return Var(rng.choice("abc"))
        match rng.randrange(4):
            case 0:
                return calc(rng.choice(("floordiv", "mod")), position(depth - 1), rng.choice((2, 3, 4, 6)))
            case 1:
                return calc("add", position(depth - 1), rng.choice((-1, 2, 5)))
        scaled = calc("mul", position(depth - 1), rng.choice((-1, 1, 2, 3, 6)))
        return calc("add", scaled, position(depth - 1))

    index = tuple(position(rng.randrange(1, 4)) for _ in range(rng.randrange(1, 4)))
    ranges = {name: (0, n - 1) for name, n in extents.items()}
    check(tuple(simplify(e, ranges) if seed % 2 else e for e in index), extents)
