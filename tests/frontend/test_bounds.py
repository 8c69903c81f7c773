"""Out-of-range reads: the check is exact in small index spaces, and has no false reports in large ones."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nautilus.core.errors import DiagnosticError
from nautilus.frontend.semantics.check import load_text


def rejected(text: str) -> bool:
    try:
        load_text(text)
    except DiagnosticError as error:
        assert {d.code for d in error.diagnostics} == {"N0305"}, str(error)
        return True
    return False


_COEFFICIENT = st.integers(-2, 2)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_exact_in_small_spaces(data: st.DataObject) -> None:
    m, k, n = (data.draw(st.integers(1, 5)) for _ in range(3))
    a, b, c = (data.draw(_COEFFICIENT) for _ in range(3))
    d = data.draw(st.integers(1, 3))
    index = f"({a} * i + {b} * k + ({c})) // {d}"
    guard = data.draw(
        st.sampled_from(["true", "i + k < 4", "0 <= {0} and {0} < {n}", "0 <= {0} < {n} or i == 1", "not (i > k)"])
    ).format(index, n=n)
    text = f"input X: f32[{n}]\noutput O: f32[{m}]\nO[i] = sum[k: {k} | k < 3](X[{index}] if {guard} else 0)\n"
    holds = guard.replace("true", "True")
    outside = any(
        not 0 <= eval(index, {"i": i, "k": kk}) < n
        for i, kk in itertools.product(range(m), range(min(k, 3)))
        if eval(holds, {"i": i, "k": kk})
    )
    assert rejected(text) == outside


LARGE = "dim M = 4096, N = 5000, W = 100\ninput X: f32[N]\ninput p: i32[M]\ninput f: bool[M]\noutput O: f32[M]\n"


@pytest.mark.parametrize(
    ("expr", "bad"),
    [
        ("X[i + 0 * M]", False),
        ("X[i + N - M]", False),
        ("X[i + N - M + 1]", True),
        ("X[i - 1]", True),
        ("X[i - 1] if i > 0 else 0", False),
        ("X[i - 1] if i >= 0 else 0", True),
        ("sum[k: W](X[i + k])", False),
        ("sum[k: W](X[i + k * 10])", True),
        ("sum[k: W | i + k * 10 < N](X[i + k * 10])", False),
        ("sum[k: W | i + k * 10 <= N](X[i + k * 10])", True),
        ("0 if i + 1000 >= N else X[i + 1000]", False),
        ("X[p[i]]", False),
        ("X[p[i] + N]", False),
        ("X[i + N] if f[i] else 0", False),
        ("X[i * 2 % N]", False),
        ("X[i * 2 // 2 + 905]", True),
        ("X[min(i + 1000, N - 1)]", False),
        ("X[N]", True),
        ("X[-1]", True),
        ("1 if i + 1000 < N and X[i + 1000] > 0 else 0", False),
        ("1 if X[i + 1000] > 0 and i + 1000 < N else 0", True),
    ],
)
def test_large_spaces(expr: str, bad: bool) -> None:
    assert rejected(LARGE + f"O[i] = {expr} + 0 * p[i] * i32(f[i])\n") == bad


def test_runtime_sizes() -> None:
    head = "dim N = runtime\ninput X: f32[N]\noutput O: f32[N]\n"
    assert rejected(head + "O[i] = X[i + 1]\n")
    assert not rejected(head + "O[i] = X[i + 1] if i + 1 < N else X[N - 1 - i]\n")


@pytest.mark.parametrize("fact", ["P == B + 1", "B + 1 <= P", "B < P", "P - 1 >= B"])
def test_sizes_known_at_launch_satisfy_their_facts(fact: str) -> None:
    text = (
        "dim B = runtime <= 4096, T = runtime, P = runtime <= 4097\nassume {}\ninput X: f32[T], ptr: i32[P]\n"
        "output Y: f32[B]\nY[b: B] = ptr[b + 1] - ptr[b] + X[0]\n"
    )
    assert not rejected(text.format(fact))
    assert rejected(text.format("B <= P"))
