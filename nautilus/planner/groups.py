"""The definitions of a program as a graph, and groups of them that are to share a kernel.

A *group* is the names of its definitions in the order of dependence.  ``groups`` maps a definition to its group; one
that is not in it is a group of its own.  All functions take time that is linear in the definitions and their reads,
because the planner asks for every definition.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from nautilus.core.expr.nodes import Expr, Var, free_vars, loads, substitute
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.definitions import Def, points

SMALL = 1 << 23  # terms of a reduction that takes less time than its launch
Group: TypeAlias = tuple[str, ...]
Groups: TypeAlias = Mapping[str, Group]


class Why(enum.Enum):
    """Why a definition and its readers are not one kernel."""

    SCATTER = "one of them combines its terms in memory"
    MANY = "together they are too many definitions for one kernel"
    FAILED = "the kernel of all of them was refused"
    CYCLE = "a definition between them is in another kernel"
    CHUNKS = "a reader needs the results of all blocks"
    PLAN = "one kernel has no legal plan"
    BLOCKS = "one kernel would have too few blocks to fill the GPU"
    REPEATED = "every block of the product would reduce it again"
    BATCHED = "a block would have several matrices of one product"
    CROWDED = "a tile would have more sums of products than registers"
    WINDOWS = "the elements of a row would share the threads of a window"
    SECTORS = "a step of one loop would read an element of each sector"
    NESTED = "the loop of the product would run inside another loop"


@dataclass(frozen=True, slots=True)
class Unfused:
    """Definition ``name``, which the rules do not join to ``readers``. ``reason``: more on :attr:`Why.PLAN`."""

    name: str
    readers: Group
    why: Why
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """``place``: definition -> its place in the order of dependence.

    ``operands``, ``readers``: definition -> the definitions that it reads, and those that read it, in that order.
    """

    place: Mapping[str, int]
    operands: Mapping[str, Group]
    readers: Mapping[str, Group]

    def group(self, groups: Groups, name: str) -> Group:
        """The group of ``name``."""
        return groups.get(name, (name,))

    def share_operands(self, groups: Groups, first: Group, second: Group) -> bool:
        """Whether all operands that ``first`` and ``second`` have in other groups are in one group."""
        found = [{self.group(groups, o) for n in g for o in self.operands[n]} - {g} for g in (first, second)]
        return len(found[0]) == 1 and found[0] == found[1]

    def union(self, parts: Iterable[Group]) -> Group:
        """The definitions of ``parts`` as one group."""
        return tuple(sorted({n for g in parts for n in g}, key=self.place.__getitem__))

    def stored(self, outputs: frozenset[str], group: Group) -> frozenset[str]:
        """The definitions of ``group`` that stay in memory: ``outputs``, and the operands of other groups."""
        inside = frozenset(group)
        return outputs | {n for n in group if not inside.issuperset(self.readers[n])}

    def cyclic(self, groups: Groups, merged: Group) -> bool:
        """Whether another group would read from ``merged`` and be read by it, through any number of groups."""
        inside = frozenset(merged)
        seen: set[Group] = set()
        todo = [o for n in merged for o in self.operands[n] if o not in inside]
        while todo:
            found = self.group(groups, todo.pop())
            if found in seen:
                continue
            seen.add(found)
            read = [o for n in found for o in self.operands[n]]
            if not inside.isdisjoint(read):
                return True
            todo += read
        return False

    def ordered(self, groups: Groups) -> tuple[Group, ...]:
        """All groups, operands first: in rounds, each of the groups whose operands are of earlier rounds.

        Raises AssertionError where groups depend on each other.
        """
        whole = dict.fromkeys(self.group(groups, n) for n in self.place)
        needs = {g: {self.group(groups, o) for n in g for o in self.operands[n]} - {g} for g in whole}
        readers: dict[Group, list[Group]] = {g: [] for g in whole}
        for g, found in needs.items():
            for o in found:
                readers[o].append(g)
        places = {g: p for p, g in enumerate(whole)}
        missing = {g: len(found) for g, found in needs.items()}
        ready, out = [g for g in whole if not missing[g]], []
        while ready:
            out += ready
            free = []
            for g in (r for done in ready for r in readers[done]):
                missing[g] -= 1
                free += [g] if not missing[g] else []
            ready = sorted(free, key=places.__getitem__)
        assert len(out) == len(whole), "groups depend on each other"
        return tuple(out)


def graph_of(defs: Mapping[str, Def]) -> Graph:
    """The graph of ``defs``, which are in the order of dependence."""
    operands = {n: tuple(dict.fromkeys(ld.buffer for ld in d.reads() if ld.buffer in defs)) for n, d in defs.items()}
    readers: dict[str, list[str]] = {n: [] for n in defs}
    for n, found in operands.items():
        for o in found:
            readers[o].append(n)
    places = {n: p for p, n in enumerate(defs)}
    return Graph(places, operands, {n: tuple(found) for n, found in readers.items()})


def launches_alike(defs: Mapping[str, Def], first: Group, second: Group) -> bool:
    """Whether ``first`` and ``second`` are small reductions of integers with the same axes, which read the same tensor.

    A launch takes most of their time.
    """
    found = [defs[n] for n in (*first, *second)]
    small = all(d.is_reduction and not d.buffer.dtype.is_float and _terms(d) <= SMALL for d in found)
    read = [{ld.buffer for n in g for ld in defs[n].reads()} for g in (first, second)]
    return small and len({(d.par, len(d.red)) for d in found}) == 1 and not read[0].isdisjoint(read[1])


def visits_alike(d: Def, others: Iterable[Def]) -> bool:
    """Whether one of ``others`` has the reduced axis and the condition of ``d``, which reads nothing else."""
    mine = None if loads(d.value) else _domain(d)
    return mine is not None and any(_domain(x) == mine for x in others)


def _domain(d: Def) -> tuple[Expr, object] | None:
    """The condition of ``d`` and the extent of its reduced axis; None where it has more of them, or no condition."""
    if d.guard is None or len(d.red) != 1 or d.red[0].name not in free_vars(d.guard):
        return None
    return substitute(d.guard, {d.red[0].name: Var("%reduced")}), d.red[0].extent


def _terms(d: Def) -> int:
    return points(d.axes)
