"""The closed form of "the domain is not empty" agrees with enumeration of the domain."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nautilus.core.buffers import Buffer
from nautilus.core.buffers import Space as Where
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Axis
from nautilus.core.source import Source
from nautilus.core.text.expressions import ExprParser, format_expr
from nautilus.core.text.tokens import TokenStream
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.domains import first_alternative, nonempty
from nautilus.scalar.interp.space import Space, Tables

M, N = 5, 6


def reduction(guard: Any, red: tuple[str, ...] = ("j",)) -> Def:
    ts = TokenStream(Source("<guard>", guard))
    e = ExprParser(ts, {"T": DType.I32, "U": DType.I64}).expr()
    axes = tuple(Axis(r, N) for r in red)
    par = (Axis("i", M), Axis("k", M))
    return Def("S", Buffer("S", DType.F32, (M, M), Where.TEMP), par, axes, "sum", e, e)


def closed(d: Def) -> str:
    """The closed form of "the domain is not empty", as text."""
    found = nonempty(d)
    assert found is not None
    return format_expr(found)


def value(e: Any, **env: Any) -> Any:
    return bool(Space(Tables({}, {}, "real"), (), env).eval(e))


def check(guard: Any, red: tuple[str, ...] = ("j",)) -> Any:
    d = reduction(guard, red)
    closed = nonempty(d)
    assert closed is not None, guard
    for i, k in itertools.product(range(M), range(M)):
        points = itertools.product(range(N), repeat=len(red))
        want = any(value(d.guard, i=i, k=k, **dict(zip(red, at, strict=True))) for at in points)
        assert value(closed, i=i, k=k) == want, f"{guard}: {format_expr(closed)} at i={i} k={k}"


@pytest.mark.parametrize(
    "guard",
    [
        "j <= i", "j > i", "j - i <= 2 and i - j < 3", "2 * j <= i", "3 * j >= i + 4", "2 * j == i", "i + j == k",
        "j < k and i > 2", "i < 3 and k < 2", "5 - j <= i and j * 2 < 7", "3 * j + 1 == 2 * i",
    ],
)  # fmt: skip
def test_closed_forms(guard: Any) -> None:
    check(guard)


def test_two_variables() -> None:
    check("j <= i and l > k", ("j", "l"))


@pytest.mark.parametrize("guard", ["j % 2 == i", "j + i < l - 3", "T[j] > i", "j < i or j > k + l", "T[i] == j * j"])
def test_what_has_no_closed_form_here(guard: Any) -> None:
    assert nonempty(reduction(guard, ("j", "l"))) is None


@pytest.mark.parametrize(
    "guard",
    [
        "j // 2 == i // 2", "abs(i - j) <= 1", "(i - j) % 3 == 0", "j < 2 or j <= i", "not (j > i or i - j > 3)",
        "abs(i // 2 - j // 2) <= 1 and abs(i % 2 - j % 2) <= 1", "j <= min(i, 3) and j >= max(i - 2, 0)", "j >= i % 4",
        "T[i] == T[j]",
    ],
)  # fmt: skip
def test_a_witness_proves_that_every_domain_has_a_point(guard: Any) -> None:
    assert closed(reduction(guard)) == "true"


def test_a_witness_for_two_variables() -> None:
    assert closed(reduction("j <= l", ("j", "l"))) == "true"


@pytest.mark.parametrize(
    "guard",
    [
        "j < i or j > k + 2", "j != i and j <= i", "abs(i - j) >= 3", "j // 2 > i // 2", "abs(i // 2 - j // 2) == 2",
        "j < min(i, k)", "max(i, j) < k", "j // 3 - i // 2 >= 1 and k < 3", "2 * j == i or j > 4 + i",
    ],
)  # fmt: skip
def test_alternatives_have_closed_forms(guard: Any) -> None:
    check(guard)


def test_data_may_bound_a_variable() -> None:
    d = reduction("j < T[i]")
    assert closed(d) == "T[i] >= 1"


def test_bounds_from_data_do_not_wrap() -> None:
    assert closed(reduction("j + 5 <= T[i]")) == "cast<i64>(T[i]) >= 5i64"
    assert closed(reduction("j < T[i] - 1")) == "0 < T[i] - 1"  # which may wrap, as in the guard


@pytest.mark.parametrize(
    ("guard", "want"),
    [
        ("j < T[i] and j - i <= T[i] - 3", "T[i] >= 1 and -i <= T[i] - 3"),
        ("j < T[i] - 1 and j <= i", "0 < T[i] - 1"),
        ("j > T[i] - 1", "5 > T[i] - 1"),
        ("j >= T[i] - 1 and j < T[i] - i", None),
        ("j < T[i] and (j < 1 or j > T[i] - 3)", None),
        ("j < T[i] and (j < 0 or j >= i)", "T[i] >= 1 and i < T[i]"),
    ],
)
def test_the_guard_at_the_least_point(guard: Any, want: str | None) -> None:
    found = nonempty(reduction(guard))
    assert found is not None
    if want is not None:
        assert closed(reduction(guard)) == want


@pytest.mark.parametrize(
    "guard",
    [
        "j < T[i]", "j <= T[i] and j <= i", "j > T[i]", "j >= T[i]", "j >= T[i] and j >= k", "j >= T[i] and j > k",
        "j > T[i] - 1 and j <= i", "j >= T[i] and j < k", "j < T[i] and j - i <= T[i] - 3", "j + 1 >= T[i] and j < 3",
        "T[i] <= j and T[k] > j", "T[i] < j and j <= T[k]", "j >= T[i] - 1 and j <= i", "j >= T[i] - 1 and j < k",
        "T[i] - 1 <= j and j < T[k] - 1", "j >= T[i] - 1 and j > k and j <= i",
        "cast<i64>(j) >= U[i] and cast<i64>(j) < U[k]", "select(U[i] <= cast<i64>(j), U[k] > cast<i64>(j), false)",
        "cast<i64>(j) <= U[i] and j >= k",
    ],
)  # fmt: skip
def test_the_guard_at_the_least_point_decides_for_all_contents(guard: Any) -> None:
    d = reduction(guard)
    closed = nonempty(d)
    assert closed is not None and d.guard is not None
    for i, k, a, b in itertools.product((0, 3), (1, 4), range(-2, 8), (0, 2, 9)):
        contents = {"i": np.asarray(a), "k": np.asarray(b)}

        def element(e: Any, contents: Any = contents) -> Any:
            return contents[e.index[0].name]

        env = {"i": np.asarray(i), "k": np.asarray(k)}
        want = bool(np.any(evaluate(d.guard, env | {"j": np.arange(N)}, element)))
        assert bool(evaluate(closed, env, element)) == want, (i, k, a, b)


@pytest.mark.parametrize("guard", ["cast<i64>(j) <= U[i] - 1i64", "cast<i64>(j) > U[i]", "cast<i64>(j) == U[i]"])
def test_sums_of_64_bits_that_may_wrap_are_no_bounds(guard: Any) -> None:
    assert nonempty(reduction(guard)) is None


@pytest.mark.parametrize(
    ("guard", "found"),
    [
        ("j < i or (i + j) % 4 == 3", True),
        ("j < 6 and (j < i or (i + j) % 4 == 3) and j > k", True),
        ("(i + j) % 4 == 3", False),
        ("(i + j) % 4 == 3 or j < i", False),
    ],
)
def test_a_first_alternative_with_a_closed_form_and_the_others_are_the_whole(guard: str, found: bool) -> None:
    d = reduction(guard)
    closed, others = first_alternative(d)
    if not found:
        assert closed is None and others == d.guard
        return
    assert closed is not None and others is not None
    for i, k in itertools.product(range(M), range(M)):
        some = [value(d.guard, i=i, k=k, j=j) for j in range(N)]
        rest = [value(others, i=i, k=k, j=j) for j in range(N)]
        assert any(some) == (value(closed, i=i, k=k) or any(rest)), (i, k)
        assert sum(rest) < sum(some) or not value(closed, i=i, k=k)


def test_causal_rows_are_never_empty() -> None:
    assert closed(reduction("j <= i")) == "true"
    assert closed(reduction("j - i <= -2")) == "i >= 2"


_PART = st.tuples(
    st.integers(-3, 3).filter(bool), st.integers(-2, 2), st.integers(-2, 2), st.integers(-8, 8),
    st.sampled_from(["<", "<=", ">", ">=", "=="]),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(_PART, min_size=1, max_size=3).filter(lambda ps: sum(p[4] == "==" and abs(p[0]) > 1 for p in ps) <= 1))
def test_random_guards(parts: Any) -> None:
    check(" and ".join(f"{c} * j + {a} * i + {b} * k + {r} {op} 0" for c, a, b, r, op in parts))


def test_helpers_agree_with_numpy() -> None:
    assert value(reduction("j <= i").guard, i=np.int64(3), k=0, j=2)
