"""Comparisons of indices with scalars are comparisons in i32 that say the same."""

from __future__ import annotations

import pytest

from nautilus.core.expr.nodes import Expr, walk
from nautilus.core.types import DType
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_spec
from nautilus.frontend.spec import Spec

M, N = 9, 6
SCALARS = (-(2**31), -(2**31) + 3, -4, 0, 1, 3, 5, 2**31 - 2, 2**31 - 1)


def condition_of(spec: Spec) -> Expr:
    (d,) = (d for d in spec.definitions if d.name == "Y")
    return d.expr


def spec_of(condition: str) -> Spec:
    text = f"dim M = {M}, N = {N}\nscalar w: i32, v: i32\noutput Y: i32[M, N], Z: i64\nZ = w + v\n"
    return load_spec(text + f"Y[i, j] = 1 if {condition} else 0\n")


@pytest.mark.parametrize(
    "condition",
    [
        "max(0, i - w + 1) <= j", "i - w < j <= i", "j + w > i", "not (j < i - w + 1)", "i - j < 2 * w",
        "3 * w + 1 >= i - 2 * j", "-w <= j - i", "w - (i - j) > 0", "min(i, i + w) > j", "abs(i - j + w) <= 2",
        "(i + w) // 4 >= j", "j >= (i - w) // 4 * 4", "i - w == j", "i + w != j + 2", "5 - w <= i",
    ],
)  # fmt: skip
def test_values_are_those_of_the_integers(condition: str) -> None:
    spec = spec_of(condition)
    assert all(e.dtype is not DType.I64 for e in walk(condition_of(spec)))
    for w in SCALARS:
        found = run_spec(spec, {}, {"w": w, "v": 0})["Y"]
        want = [[int(eval(condition, {"i": i, "j": j, "w": w})) for j in range(N)] for i in range(M)]
        assert found.tolist() == want, w


@pytest.mark.parametrize("condition", ["i - w < j + v", "i * 1000000007 < j + w", "(i + w) % 3 == j"])
def test_what_does_not_fit_stays_wide(condition: str) -> None:
    assert any(e.dtype is DType.I64 for e in walk(condition_of(spec_of(condition))))
