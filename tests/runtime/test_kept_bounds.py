"""Bounds that are kept: their key tells programs apart by all but places, and they equal computed ones."""

from __future__ import annotations

import pytest

from nautilus.check.bound import stated as module
from nautilus.check.bound.bound import Bound
from nautilus.check.bound.stated import stated
from nautilus.frontend.semantics.check import load_text
from tests.runtime.kept_bounds import USED, content, kept_bounds

TEXT = (
    "dim M = {m}, N = runtime <= {n}\ninput A: {type}[M, N]\noutput Y: f32[M]\nY[i] = sum[j](f32(A[i, j]) * {factor})\n"
)


def key(text: str = TEXT, **changed: object) -> str:
    return content(load_text(text.format(**{"m": 4, "n": 64, "type": "f16", "factor": "0.0", **changed})), {})


def test_what_decides_a_bound_is_in_the_key() -> None:
    keys = {key(), key(m=5), key(n=128), key(type="bf16"), key(factor="2.0"), key(factor="-0.0")}
    assert len(keys) == 6


def test_places_in_the_text_are_not_in_the_key() -> None:
    assert key() == key("\n# a comment\n" + TEXT.replace(" * ", "  *  "))


@pytest.mark.skipif(not USED, reason="bounds are not kept")
def test_bounds_are_kept_and_equal_to_computed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load_text(TEXT.format(m=4, n=64, type="f16", factor="2.0"))
    assert module._store is None  # this test may change constants
    made = stated(spec)
    calls = []

    def make() -> dict[str, Bound]:
        calls.append(1)
        return made

    assert [kept_bounds((spec, "fast"), make) for _ in range(2)] == [made, made]
    assert len(calls) <= 1  # none where an earlier run of the tests has kept it
