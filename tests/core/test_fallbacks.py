"""The ladder of conservative fallbacks: it counts by kernel, ends, and the order of failures does not matter."""

from __future__ import annotations

from nautilus.core.fallbacks import (
    EPILOGUES,
    FEWER,
    LIGHTER,
    MOST,
    NO_FALLBACKS,
    PLAIN,
    SMALLER,
    UNFUSED,
    WITHOUT,
    Fallbacks,
)


def test_each_kernel_has_its_own_count() -> None:
    found = NO_FALLBACKS.after("b").after("a").after("b")
    assert [found.steps(k) for k in "abc"] == [FEWER, LIGHTER, 0]
    assert not any(found.exhausted(k) for k in "abc")


def test_equal_counts_are_equal() -> None:
    there, back = NO_FALLBACKS.after("a").after("b"), NO_FALLBACKS.after("b").after("a")
    assert there == back == Fallbacks.of({"b": 1, "a": 1, "c": 0}) and hash(there) == hash(back)


def test_a_failure_without_a_need_takes_every_step_once() -> None:
    found, steps = NO_FALLBACKS, list[int]()
    while not found.exhausted("k"):
        found = found.after("k")
        steps.append(found.steps("k"))
    assert steps == [FEWER, LIGHTER, WITHOUT, SMALLER, EPILOGUES, UNFUSED, PLAIN]


def test_a_definition_of_its_own_that_shrinks_goes_on_before_its_last_step() -> None:
    """Fragments of a smaller tile may fit where the failure does not say how many are too many."""
    found, steps = Fallbacks.of({"k": UNFUSED}, {"k": 1.25}), list[tuple[int, float]]()
    while not found.exhausted("k"):
        found = found.after("k")
        steps.append((found.steps("k"), found.excess("k")))
    assert steps == [(UNFUSED, 2.5), (UNFUSED, 5.0), (PLAIN, 1.0)]
    assert Fallbacks.of({"k": UNFUSED}, {"k": 1.25}).after("k", again=True).exhausted("k")


def test_a_stated_need_is_the_first_factor_and_grows_with_the_next_one() -> None:
    first = Fallbacks.of({"k": WITHOUT}).after("k", 1.5)
    assert (first.steps("k"), first.excess("k")) == (SMALLER, 1.5)
    second = first.after("k", 2.0)
    assert (second.steps("k"), second.excess("k")) == (SMALLER, 3.0)
    assert second.after("k", 1.01).excess("k") > 3.5  # few attempts reach the smallest tiles
    assert second.after("k", 1.01, again=True).excess("k") == 6.0


def test_a_kernel_that_spills_shrinks_a_little_and_then_may_spill() -> None:
    found = Fallbacks.of({"k": WITHOUT}).after_spill("k", 2.0)
    assert (found.steps("k"), found.excess("k")) == (SMALLER, 2.0)
    found = found.after_spill("k", 2.0)
    assert found.excess("k") == 4.0 and not found.spilling
    found = found.after_spill("k", 2.0)
    assert found.spilling == {"k"} and (found.steps("k"), found.excess("k")) == (SMALLER, 4.0)
    assert Fallbacks.of({"k": SMALLER}, {"k": 1.5}).after_spill("k", 1.5, again=True).spilling == {"k"}
    assert Fallbacks.of({"k": PLAIN}).after_spill("k", 9.0).spilling == {"k"}


def test_a_plan_stops_shrinking() -> None:
    found, attempts = Fallbacks.of({"k": SMALLER}), 0
    while not found.exhausted("k"):
        found, attempts = found.after("k", 1.01), attempts + 1
    assert attempts < 60
    assert Fallbacks.of({"k": SMALLER}, {"k": MOST}).after("k", 8.0).steps("k") == EPILOGUES
