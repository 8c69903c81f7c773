"""Conservative fallbacks from warpgroup MMAs: they count by kernel, and the order of failures does not matter."""

from __future__ import annotations

from nautilus.core.fallbacks import LIGHTER, NO_FALLBACKS, WITHOUT, Fallbacks


def test_each_kernel_has_its_own_count() -> None:
    found = NO_FALLBACKS.after("b").after("a").after("b")
    assert [found.steps(k) for k in "abc"] == [LIGHTER, WITHOUT, 0]
    assert found.exhausted("b") and not found.exhausted("a") and not found.exhausted("c")


def test_equal_counts_are_equal() -> None:
    there, back = NO_FALLBACKS.after("a").after("b"), NO_FALLBACKS.after("b").after("a")
    assert there == back == Fallbacks.of({"b": 1, "a": 1, "c": 0}) and hash(there) == hash(back)
