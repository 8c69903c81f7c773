"""A memo by identity runs a function once for an object, and again for an equal one."""

from __future__ import annotations

from nautilus.core.records.memo import Results, Same, by_identity, first_equal


def test_results_are_remembered_for_the_same_objects() -> None:
    calls = []

    @by_identity(2)
    def length(x: list[int], y: list[int]) -> int:
        calls.append((x, y))
        return len(x) + len(y)

    a, b, c = [1], [1], [1, 2]
    assert [length(a, b), length(a, b), length(b, a), length(a, b)] == [2, 2, 2, 2]
    assert len(calls) == 2
    assert length(a, c) == 3 and length(a, b) == 2 and length(b, a) == 2
    assert len(calls) == 4  # the first call was remembered, the second one was forgotten


def test_errors_are_not_remembered() -> None:
    calls = []

    @by_identity(2)
    def fails(x: object) -> None:
        calls.append(x)
        raise ValueError

    for _ in range(2):
        try:
            fails(calls)
        except ValueError:
            continue
    assert len(calls) == 2


def test_equal_objects_have_one_representative() -> None:
    a, b, c = ((1, (2, n)) for n in (3, 3, 4))
    assert a is not b and first_equal(a) is first_equal(b) and first_equal(c) is c


def test_results_are_kept_by_key_until_there_are_too_many() -> None:
    module, other = [1], [1]
    results = Results(2)
    results.keep(("pass", Same(module)), "made")
    assert results.found.get(("pass", Same(module))) == "made"
    assert results.found.get(("pass", Same(other))) is None  # equal, but another object
    results.keep("second", 2)
    results.keep("third", 3)
    assert list(results.found) == ["second", "third"]
