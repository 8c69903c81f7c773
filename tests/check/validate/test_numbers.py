"""The validator's arithmetic and memory, operation by operation."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nautilus.check.validate import identities, meanings, numbers
from nautilus.check.validate.expressions import literal
from nautilus.check.validate.identities import _FINITE, decide
from nautilus.check.validate.memory import Malformed
from nautilus.check.validate.numbers import Constants
from nautilus.check.validate.points import _ENDS, _SPECIAL, _floats
from nautilus.check.validate.ranges.intervals import divide, magnitude, multiply, outward, square
from nautilus.check.validate.ranges.narrowing import _Ranges
from nautilus.check.validate.residues import P, Q, products
from nautilus.check.validate.scalar_run import _grouped
from nautilus.check.validate.sets import index_sets
from nautilus.check.validate.sets.isl_text import NotAffine, condition
from nautilus.core.expr.nodes import Const, Load, Op
from nautilus.core.numerics import Array
from nautilus.core.types import DType
from nautilus.scalar.text import parse_program

F32, I32 = DType.F32, DType.I32


@pytest.mark.parametrize("value", sorted({*_FINITE}))
def test_an_identity_that_fails_at_one_number_alone_is_refuted(value: float) -> None:
    """Each of the numbers that rules treat on their own, such as 0, 1 and powers of two, is among the points."""
    x = Load("x", (), F32)
    here = Op("select", (Op("eq", (x, Const(value, F32)), DType.BOOL), Const(1.0, F32), Const(0.0, F32)), F32)
    assert decide(here, Const(0.0, F32), domain="finite").status == "refuted"


def test_the_numbers_at_which_identities_fail() -> None:
    """Both signs of zero, of one and of numbers around them; no power of two alone; what f32 rounds away."""
    for n in (0.0, 1.0, 2.0, 0.5, 5.0, 100.0, 2.0**40, 2.0**-40, 2.0**12):
        signs = {math.copysign(1.0, x) for x in _FINITE if abs(x) == n}
        assert signs == {1.0, -1.0}, n
    assert {3.0, 7.25, 1.0 + 2.0**-20, 1e-3} <= {*_FINITE}
    assert {x for x in identities._EVERYTHING if math.isinf(x)} == {math.inf, -math.inf}


def truncated(a: int, b: int) -> int:
    return 0 if b == 0 else int(math.fmod(a, b))


#: what each operation on two integers is in Python
INTEGERS: dict[str, Callable[..., int | bool]] = {
    "floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0, "fmod": truncated,
    "pow": lambda a, b: a**b if b >= 0 else (a ** -b if abs(a) == 1 else 0),
    "shift_left": lambda a, b: a << b if b >= 0 else 0,
    "shift_right": lambda a, b: a >> b if b >= 0 else (-1 if a < 0 else 0),
    "bit_and": int.__and__, "bit_or": int.__or__, "bit_xor": int.__xor__, "min": min, "max": max,
    "lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__, "eq": int.__eq__, "ne": int.__ne__,
    "add": int.__add__, "sub": int.__sub__, "mul": int.__mul__,
}  # fmt: skip


@pytest.mark.parametrize("op", INTEGERS)
def test_operations_on_integers(op: str) -> None:
    pairs = [*product((-7, -3, -2, -1, 0, 1, 2, 3, 5, 8), repeat=2)]
    a, b = (np.array([p[k] for p in pairs]) for k in range(2))
    assert meanings._INTEGER[op](a, b).tolist() == [INTEGERS[op](*p) for p in pairs]


@pytest.mark.parametrize("bits", [32, 64])
def test_a_conversion_to_integers_ends_at_the_ends_of_the_type(bits: int) -> None:
    end = 1 << (bits - 1)
    x = np.array([1e30, -1e30, np.inf, -np.inf, np.nan, 2.9, -2.9, 3.0 - 1e-13, float(end), -float(end), 0.0])
    assert meanings._whole(x, bits).tolist() == [end - 1, -end, end - 1, -end, 0, 2, -2, 3, end - 1, -end, 0]


def test_a_function_is_exact_where_it_maps_zero_or_one_to_an_integer() -> None:
    """log 1 = 0; 2 is no number of which the residues know a logarithm, and 1 + P has the residue of 1."""
    x = np.array([1.0, 0.0, 2.0, 0.5, 1.0 + P])
    made = numbers.unknown("f", np.array([0.0, 1.0, 1.0, 1.0, 1.0]), [numbers.exactly(x)])
    assert made.u is not None and made.v is not None
    known = [bool(u == r and v == r) for u, v, r in zip(made.u, made.v, (0, 1, 1, 1, 1), strict=True)]
    assert known == [True, True, False, False, False]
    broken = numbers.unknown("f", np.array([0.5, np.inf]), [numbers.exactly(np.array([1.0, 0.0]))])
    assert broken.u is not None and broken.u[0] > 1 and broken.u[1] == 0
    assert numbers.unknown("f", np.array([1.0]), [numbers.Number(np.array([1.0]), None, None)]).u is None


@pytest.mark.parametrize("shapes", [
    ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)), ((5, 1, 2, 0), (6, 0, 4)), ((2, 0), (7, 0, 4)),
])  # fmt: skip
@pytest.mark.parametrize("modulus", [P, Q])
def test_products_of_matrices_of_residues(shapes: tuple[tuple[int, ...], tuple[int, ...]], modulus: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, modulus, s) for s in shapes)
    wanted = (a.astype(object) @ b.astype(object)) % modulus if a.shape[-1] else np.zeros((a @ b).shape, int)
    made = products(a, b, modulus)
    assert made.shape == wanted.shape and np.array_equal(made, wanted.astype(np.int64))


def test_special_points_have_no_ties_and_powers_that_fall() -> None:
    """The ends of rows are apart from all other elements, and so are their squares from each other."""
    assert abs(_ENDS[0]) != abs(_ENDS[1]) and not {*_ENDS} & {*_SPECIAL}
    assert any(0.0 < x < 1.0 for x in _SPECIAL) and {0.0, 1.0, -1.0} <= {*_SPECIAL}
    assert {math.copysign(1.0, x) for x in _SPECIAL if x == 0.0} == {1.0, -1.0}


@pytest.mark.parametrize(("kind", "least", "most", "signs"), [
    ("generic", 2.0**-18, 2.0, 2), ("positive", 2.0**-18, 2.0, 1), ("large", 2.0**-12, 128.0, 2),
])  # fmt: skip
def test_the_range_of_points(kind: str, least: float, most: float, signs: int) -> None:
    x = _floats(kind, "x", (4000,), 0)
    assert least <= np.abs(x).min() and most * 0.99 < np.abs(x).max() < most
    assert len({*np.sign(x)}) == signs
    assert np.array_equal(x / least, np.rint(x / least))


def test_intervals_are_rounded_outwards_by_the_error_of_one_operation() -> None:
    tiny, step = 2.0**-126, 2.0**-22
    assert outward(0.0, 0.0) == (math.nextafter(-tiny, -1.0), math.nextafter(tiny, 1.0))
    assert outward(1.0, 2.0) == (math.nextafter(1.0 - step - tiny, 0.0), math.nextafter(2.0 + 2 * step + tiny, 3.0))
    assert outward(-3.4e38, 3.6e38) == (math.nextafter(-3.4e38 - 3.4e38 * step, -math.inf), math.inf)
    assert outward(math.nan, 1.0) == (-math.inf, math.inf) and outward(-math.inf, 0.0)[0] == -math.inf


@pytest.mark.parametrize(("given", "wanted"), [
    ((1.0, 2.0), (1.0, 2.0)), ((-3.0, -1.0), (1.0, 3.0)), ((-3.0, 2.0), (0.0, 3.0)), ((0.0, 2.0), (0.0, 2.0)),
    ((-2.0, 0.0), (0.0, 2.0)), ((-1.0, math.inf), (0.0, math.inf)), ((0.5, 0.5), (0.5, 0.5)),
])  # fmt: skip
def test_the_interval_of_a_magnitude(given: tuple[float, float], wanted: tuple[float, float]) -> None:
    assert magnitude(given) == wanted
    assert square(given) == (max(0.0, outward(wanted[0] ** 2, 0.0)[0]), outward(0.0, wanted[1] ** 2)[1])
    assert multiply(given, given)[1] >= wanted[1] ** 2
    assert (divide((1.0, 1.0), given) == (-math.inf, math.inf)) is (given[0] <= 0.0 <= given[1])


@pytest.mark.parametrize(("e", "wanted"), [
    (Op("bit_and", (Load("i", (), I32), Const(12, I32)), I32), (0.0, 12.0)),
    (Op("bit_and", (Const(12, I32), Const(9, I32)), I32), (0.0, 9.0)),
    (Op("bit_and", (Load("i", (), I32), Const(-2, I32)), I32), (-(2.0**31), 2.0**31 - 1)),
    (Op("bit_or", (Const(12, I32), Const(9, I32)), I32), (0.0, 15.0)),
    (Op("bit_or", (Load("i", (), I32), Const(9, I32)), I32), (-(2.0**31), 2.0**31 - 1)),
    (Op("mod", (Load("i", (), I32), Const(5, I32)), I32), (0.0, 4.0)),
    (Op("floordiv", (Op("mod", (Load("i", (), I32), Const(5, I32)), I32), Const(2, I32)), I32), (0.0, 2.0)),
    (Op("shift_right", (Const(-5, I32), Const(1, I32)), I32), (-3.0, -3.0)),
])  # fmt: skip
def test_the_range_of_an_operation_on_integers(e: Op, wanted: tuple[float, float]) -> None:
    place: Any = SimpleNamespace(loops=(), statement=None)
    assert _Ranges({}, place).integer(e) == wanted


def test_groups_of_factors_and_the_one_that_a_mask_makes_zero() -> None:
    """A mask goes to a factor that has its dimensions, so that no factor grows."""
    row, column, both = np.ones((3, 1, 1)), np.full((1, 4, 1), 2.0), np.full((3, 4, 1), 5.0)
    long, mask = np.full((1, 1, 40), 3.0), np.array([True, False, True]).reshape(3, 1, 1)

    def groups(*values: Array) -> list[tuple[int, ...]]:
        full = (3, 4, 40)
        made = _grouped([numbers.exactly(v) for v in values], [mask], full)
        want = np.where(mask, np.prod([np.broadcast_to(v, full) for v in values], axis=0), 0.0)
        assert np.array_equal(np.prod([np.broadcast_to(g.real, full) for g in made], axis=0), want)
        return sorted(g.real.shape for g in made)

    assert groups(row, column) == groups(column, row) == [(1, 4, 1), (3, 1, 1)]
    assert groups(row, column, both) == [(3, 4, 1)]
    assert groups(column) == [(3, 4, 1)]
    assert groups(both, long) == [(1, 1, 40), (3, 4, 1)]


PARTS = """program t {
  input X: f32[8]
  output Y: f32[1]
  kernel Y {
    Y[0] = 0.0
    red i in 0..8 {
      Y[0] sum= X[i]
    }
  }
}
"""


def test_without_islpy_nothing_is_decided_about_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    program = parse_program(PARTS, "t")
    assert index_sets.validate(program, program).status == "proved"
    monkeypatch.setitem(sys.modules, "islpy", None)
    found = index_sets.validate(program, program)
    assert (found.status, found.detail) == ("not decided", index_sets.INSTALL)


def test_the_extreme_of_no_elements_is_its_identity() -> None:
    none = numbers.exactly(np.zeros((2, 0)))
    assert numbers.extreme(none, (1,), None, 1.0).real.tolist() == [[-math.inf]] * 2
    assert numbers.extreme(none, (1,), None, -1.0).real.tolist() == [[math.inf]] * 2


def test_roots_of_small_rationals_have_residues() -> None:
    for rational, sign in ((2.0, 1.0), (0.5, -1.0), (0.75, 1.0)):
        found, (a, b) = numbers._root(sign * math.sqrt(rational)), rational.as_integer_ratio()
        assert found is not None
        assert all(x * x * b % prime == a % prime for prime, x in zip((P, Q), found, strict=True))
    assert numbers._root(math.sqrt(8191.0 * 8209.0)) is None  # its terms are no small ones
    assert numbers._root(math.pi) is None


@pytest.mark.parametrize("dtype", [DType.I8, DType.I16, I32, DType.I64])
def test_a_literal_is_an_integer_that_its_type_holds(dtype: DType) -> None:
    end, constants = 1 << (dtype.bits - 1), Constants()
    assert [int(np.asarray(literal(n, dtype, constants))) for n in (-end, 0, end - 1)] == [-end, 0, end - 1]
    for beyond in (-end - 1, end, 4 * end):
        with pytest.raises(Malformed, match=f"{beyond} is no {dtype}"):
            literal(beyond, dtype, constants)


def test_conditions_that_isl_has_no_words_for_are_not_affine() -> None:
    one, two = Const(1.0, F32), Const(2.0, F32)
    a, b = Const(1, I32), Const(3, I32)
    assert condition(Op("lt", (a, b), DType.BOOL)) == "(1 < 3)"
    for e in (Op("lt", (one, two), DType.BOOL), Op("bit_and", (a, b), I32)):
        with pytest.raises(NotAffine):
            condition(e)
