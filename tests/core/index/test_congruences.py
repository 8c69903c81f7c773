"""Congruences: what counts as one, and the numbering of residues against all residues."""

from __future__ import annotations

import pytest

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Var
from nautilus.core.index.congruences import congruence, solved
from nautilus.core.types import DType

Y, R = Var("y", DType.I32), Var("r", DType.I32)


def zero(form: Expr, n: int, rest: int = 0) -> Expr:
    return calc("eq", calc("mod", form, n), rest)


def test_lowest_terms() -> None:
    form = calc("sub", calc("mul", Y, 6), calc("mul", R, 2))
    found = congruence(zero(form, 8, 2))
    assert found is not None
    assert (found.form.coeff("y"), found.form.coeff("r"), found.form.const, found.modulus) == (3, 3, 3, 4)


def test_two_remainders() -> None:
    found = congruence(calc("eq", calc("mod", Y, 4), calc("mod", R, 4)))
    assert found is not None
    assert (found.form.coeff("y"), found.form.coeff("r"), found.modulus) == (1, 3, 4)


@pytest.mark.parametrize(
    "condition",
    [
        calc("eq", Y, R),
        calc("ne", calc("mod", Y, 4), 1),
        zero(calc("mul", Y, 4), 8, 2),  # never
        zero(calc("mul", Y, 8), 8),  # always
        calc("eq", calc("mod", Y, 4), calc("mod", R, 8)),
        zero(Y, 4, 5),
        zero(Y, 4, -1),
    ],
)
def test_not_a_congruence(condition: Expr) -> None:
    assert congruence(condition) is None


@pytest.mark.parametrize("rest", [0, 1, 3])
def test_a_rest_below_the_modulus(rest: int) -> None:
    found = congruence(zero(Y, 4, rest))
    assert found is not None and (found.form.const, found.modulus) == (-rest % 4, 4)


@pytest.mark.parametrize(("n", "a", "k", "carry"), [
    (2, 1, 1, (1, 0, 0)), (3, 2, 0, (0, 0, 0)), (3, 1, 1, (1, 0, 0)), (3, 2, 1, None), (4, 2, 2, (1, 0, 0)),
    (2, 0, 1, (0, 1, 0)), (4, 2, 1, None),
])  # fmt: skip
def test_the_quotient_where_it_is_linear(n: int, a: int, k: int, carry: tuple[int, int, int] | None) -> None:
    found = solved(n, 1, a, k)
    assert found is not None and found.carry() == carry


@pytest.mark.parametrize("n", range(2, 13))
def test_every_residue_once(n: int) -> None:
    for c in range(1, n):
        for a in range(n):
            for k in (0, 1, n - 1):
                s = solved(n, c, a, k)
                if s is None:
                    assert any(c % d == 0 and n % d == 0 for d in range(2, n))
                    continue
                points = [(i, j) for i in range(s.residues) for j in range(s.offsets)]
                assert sorted(s.at(*p) % n for p in points) == list(range(n))
                for i, j in points:
                    solutions = [r for r in range(n) if (c * s.at(i, j) + a * r + k) % n == 0]
                    assert solutions == ([r for r in range(n) if r % s.residues == i] if j == 0 else [])
                if (carry := s.carry()) is not None:
                    assert all(s.at(i, j) // n == carry[0] * i + carry[1] * j + carry[2] for i, j in points)
