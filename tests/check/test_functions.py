"""The checker defines every function of the compiler, independently, with equal arity and equal values."""

from __future__ import annotations

import math

import pytest

from nautilus.check.bound.errors import instruction_error
from nautilus.check.functions import MEANINGS
from nautilus.core.functions import FUNCTIONS, Types
from tests.check.elementary import ELEMENTARY

#: sympy has no form of these that its simplification uses
UNPROVED = {"floordiv", "mod", "fmod", "round", "select"}
CONDITIONS = {f.name for f in FUNCTIONS.values() if f.types in (Types.COMPARISON, Types.LOGIC)}
POINTS = [-3.0, -1.25, -0.75, -0.5, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.5]


def points(arity: int) -> list[tuple[float, ...]]:
    shifted = [POINTS[n:] + POINTS[:n] for n in (0, 3, 5)][:arity]
    return list(zip(*shifted, strict=True))


def test_every_function_has_a_meaning_of_its_arity() -> None:
    conversions = {f.name for f in FUNCTIONS.values() if f.types is Types.CONVERSION}
    assert MEANINGS.keys() == FUNCTIONS.keys() - conversions
    assert {n: m.arity for n, m in MEANINGS.items()} == {n: FUNCTIONS[n].arity for n in MEANINGS}
    assert {n for n, m in MEANINGS.items() if m.symbol is None} == UNPROVED | CONDITIONS


@pytest.mark.parametrize("name", sorted(MEANINGS.keys() - {"select"}))
def test_numbers_agree_with_the_compilers(name: str) -> None:
    ours = FUNCTIONS[name].python
    assert ours is not None
    tried = 0
    for at in points(FUNCTIONS[name].arity):
        try:
            got = MEANINGS[name].number(*at)
        except (ArithmeticError, ValueError):
            with pytest.raises((ArithmeticError, ValueError)):
                ours(*at)
            continue
        if not isinstance(got, complex):
            assert float(got) == pytest.approx(float(ours(*at)), rel=1e-13, abs=1e-15), at
            tried += 1
    assert tried > 2


@pytest.mark.parametrize("name", sorted(MEANINGS.keys() - UNPROVED - CONDITIONS))
def test_symbols_agree_with_numbers(name: str) -> None:
    import sympy

    names = sympy.symbols("a b c", real=True)[: MEANINGS[name].arity]
    symbol = MEANINGS[name].symbol
    assert symbol is not None
    e = symbol(*names)
    tried = 0
    for at in points(MEANINGS[name].arity):
        try:
            want = MEANINGS[name].number(*at)
        except (ArithmeticError, ValueError):
            continue
        value = e.subs(dict(zip(names, map(sympy.Float, at), strict=True))).evalf()
        if not isinstance(want, complex) and math.isfinite(want):
            assert float(value) == pytest.approx(float(want), rel=1e-9, abs=1e-12), at
            tried += 1
    assert tried > 2


@pytest.mark.parametrize("name", ELEMENTARY)
@pytest.mark.parametrize("fast", [True, False])
def test_the_stated_error_is_that_of_the_table(name: str, fast: bool) -> None:
    f = FUNCTIONS[name]
    u32, u64 = 2.0**-24, 2.0**-53
    assert instruction_error(name, u64, fast) == 2 * f.ulps[1] * u64
    assert instruction_error(name, u32, False) == 2 * f.ulps[0] * u32
    assert instruction_error(name, u32, True) >= instruction_error(name, u32, False)
