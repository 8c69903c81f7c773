"""Which cases of a parametrised test a run has: those of :mod:`tests.cases.table`, or all of them.

A case is what pytest writes in brackets behind the name of the test.  The choice depends on the cases alone, so that
each run and each process of a run has the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pytest

Case = tuple[str, Mapping[str, str]]  # its name, and the text of the value of each parameter


@dataclass(frozen=True, slots=True)
class Every:
    """One of ``step`` cases in the order of the file, beginning with the first one; and those that ``also`` names.

    For cases in a list, in which neighbours are alike.  ``never``: cases that take long, which others stand for.
    """

    step: int
    also: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def chosen(self, cases: Sequence[Case]) -> set[int]:
        """The numbers of the cases that are run."""
        names = [name for name, _ in cases]
        missing = {*self.also, *self.never} - {*names}
        assert not missing, f"no such cases: {sorted(missing)}"
        return {n for n, x in enumerate(names) if (n % self.step == 0 or x in self.also) and x not in self.never}


@dataclass(frozen=True, slots=True)
class Covering:
    """Cases in which all values that ``strength`` parameters have together occur: 1, each value; 2, each pair.

    For cases that are a product of parameters.  The next case is the first one of those with the most new values.
    """

    strength: int

    def chosen(self, cases: Sequence[Case]) -> set[int]:
        """The numbers of the cases that are run."""
        left = {n: {*combinations(sorted(values.items()), self.strength)} for n, (_, values) in enumerate(cases)}
        found = set[int]()
        while left:
            best = max(left, key=lambda n: (len(left[n]), -n))
            new = left.pop(best)
            if not new:
                break
            found.add(best)
            left = {n: x - new for n, x in left.items()}
        return found


Choice = Every | Covering


def divide(items: Sequence[pytest.Item], table: Mapping[str, Choice]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """``items`` in their order: those that are run, and those that are left out."""
    cases: dict[str, list[tuple[int, Case]]] = defaultdict(list)
    for n, item in enumerate(items):
        test = item.nodeid.partition("[")[0].removeprefix("tests/")
        if test in table:
            cases[test].append((n, _case(item)))
    left = set[int]()
    for test, found in cases.items():
        kept = table[test].chosen([case for _, case in found])
        left |= {n for place, (n, _) in enumerate(found) if place not in kept}
    return [i for n, i in enumerate(items) if n not in left], [i for n, i in enumerate(items) if n in left]


def _case(item: pytest.Item) -> Case:
    """The case of ``item``, of which a test without parameters has one without a name."""
    spec: Any = getattr(item, "callspec", None)
    return ("", {}) if spec is None else (spec.id, {name: repr(value) for name, value in spec.params.items()})
