"""The definitions of a program as a graph, and groups of them that are to share a kernel.

A *group* is the names of its definitions in the order of dependence.  ``groups`` maps a definition to its group; one
that is not in it is a group of its own.  All functions take time that is linear in the definitions and their reads,
because the planner calls them for every definition.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import lru_cache
from math import prod
from typing import TypeAlias

from nautilus.core.buffers import Space
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.nodes import Expr, Load, Var, free_vars, loads, substitute
from nautilus.core.fallbacks import LIGHTER, WITHOUT, Fallbacks, sizing
from nautilus.core.index.linear import divided
from nautilus.core.index.linear_bounds import bounds
from nautilus.core.records import dataclass
from nautilus.core.records.identical import identical
from nautilus.core.records.memo import Results, Same, by_identity
from nautilus.core.schedule import KernelPlan
from nautilus.planner.kernel import SHORT, plan_kernel
from nautilus.planner.rowwise.segments import segments_of
from nautilus.scalar.analysis.axes import Unified, unify
from nautilus.scalar.analysis.chunks import chunks_of
from nautilus.scalar.analysis.definitions import Def, points, read_defs, size
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.fuse import fuse_kernel
from nautilus.scalar.passes.reorder import reorder_kernel
from nautilus.scalar.passes.rolling_update import roll_kernel
from nautilus.scalar.passes.split import split_kernel

EACH = 2  # points of a definition that read an element at most, where it reads an element for each
LONG_VECTOR = 1 << 16  # elements of a vector that two kernels do not read again
FEW_RESULTS = 1 << 20  # elements that take about as long as their launch
STREAMS = 16  # tensors that a kernel of independent elements reads and writes, at most
SMALL = 1 << 23  # terms of a reduction that takes less time than its launch
Group: TypeAlias = tuple[str, ...]
Groups: TypeAlias = Mapping[str, Group]
_KNOWN = Results(16)
_UNIFIED, _PLANS = Results(4096), Results(4096)  # results for the same definitions in several programs
_ALIKE = Results(4096)  # those that are equal but for details
SIZED = Results(4096)  # plans with their sizes


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
    SIDE = "a block of the product would have all of its rows or columns"
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


def are_alike(defs: Mapping[str, Def], first: Group, second: Group) -> bool:
    """Whether ``first`` and ``second`` are one kernel though they need not read a large tensor in common."""
    found = (launches_alike, have_the_same_terms, have_the_same_keys)
    return any(alike(defs, first, second) for alike in found)


def launches_alike(defs: Mapping[str, Def], first: Group, second: Group) -> bool:
    """Whether ``first`` and ``second`` are small reductions of integers with the same axes, which read the same tensor,
    or few elements of one shape.

    A launch takes most of their time.
    """
    found = [defs[n] for n in (*first, *second)]
    if not any(d.is_reduction or d.scatter or d.at for d in found):
        streams = {*(d.name for d in found), *(ld.buffer for d in found for ld in d.reads())}
        alike = len({tuple(a.extent for a in d.par) for d in found}) == 1
        return alike and points(found[0].par) <= FEW_RESULTS and len(streams) <= STREAMS
    small = all(d.is_reduction and not d.buffer.dtype.is_float and _terms(d) <= SMALL for d in found)
    read = [{ld.buffer for n in g for ld in defs[n].reads()} for g in (first, second)]
    return small and len({(d.par, len(d.red)) for d in found}) == 1 and not read[0].isdisjoint(read[1])


def have_the_same_terms(defs: Mapping[str, Def], first: Group, second: Group) -> bool:
    """Whether ``first`` and ``second`` are a reduction each, which read the same elements at each point.

    One kernel computes what their terms have in common once.
    """
    if len(first) != 1 or len(second) != 1:
        return False
    found = [defs[first[0]], defs[second[0]]]
    if not all(d.is_reduction and d.scatter is None and chunks_of(d) is None for d in found):
        return False
    shapes = {(tuple(a.extent for a in d.par), tuple(a.extent for a in d.red)) for d in found}
    return len(shapes) == 1 and _elements(found[0]) == _elements(found[1])


def have_the_same_keys(defs: Mapping[str, Def], first: Group, second: Group) -> bool:
    """Whether ``first`` and ``second`` are scatters that read the same keys at each term."""
    found = [defs[n] for n in (*first, *second)]
    if any(d.scatter is None for d in found):
        return False
    places: list[dict[str, Expr]] = [{a.name: Var(f"axis {n}") for n, a in enumerate(d.par)} for d in found]
    keys = {
        (tuple(a.extent for a in d.par), frozenset(substitute(ld, at) for e in d.index for ld in loads(e)))
        for d, at in zip(found, places, strict=True)
    }
    return len(keys) == 1


def _elements(d: Def) -> frozenset[Expr]:
    """The loads of ``d``, whose axes are called by their places."""
    places: dict[str, Expr] = {a.name: Var(f"axis {n}") for n, a in enumerate((*d.par, *d.red))}
    return frozenset(substitute(ld, places) for ld in d.reads())


def large_inputs(defs: Mapping[str, Def], ops: Group) -> frozenset[str]:
    """The buffers that ``ops`` read from memory over all of their own axes, but for those that number chunks."""
    loaded = ((defs[o], ld) for o in ops for ld in defs[o].reads() if ld.buffer not in ops)
    return frozenset(ld.buffer for d, ld in loaded if _is_large(d, ld))


def _is_large(d: Def, ld: Load) -> bool:
    """Whether ``ld`` reads about an element for each point of ``d``: the diagonal of a matrix has fewer.

    Positions may have an axis each, or several axes in one position, as ``x[n, row * 400 + column]`` has.  A term of a
    reduction over segments has one row.
    """
    segments = segments_of(d)
    single = segments is not None and segments.disjoint and segments.axis in {a.name for a in d.red}
    axes = [a for a in d.axes if segments is None or not single or a.name not in (segments.rows, *segments.outer)]
    own = len(axes) - (chunks_of(d) is not None)
    terms = prod(size(a) or SHORT for a in axes)
    if own <= 1 and terms < LONG_VECTOR:
        return False
    ranges = {a.name: (0, (size(a) or SHORT) - 1) for a in axes}
    ends = [bounds(divided(i), ranges) for i in set(ld.index)]
    reached = prod(1 if lo is None or hi is None else hi - lo + 1 for lo, hi in ends)
    return len(set(ld.index)) >= own or (free_vars(ld) >= set(ranges) and EACH * reached >= terms)


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


# -- what is known of a program ----------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """A program, its definitions, and what has been found for groups of them."""

    program: Program
    defs: dict[str, Def]
    graph: Graph
    plans: dict[tuple[Group, int], KernelPlan | None] = field(default_factory=dict)
    groups: dict[Group, Unified] = field(default_factory=dict)
    reasons: dict[Group, str] = field(default_factory=dict)  # why a group has no plan
    unfused: dict[str, Unfused] = field(default_factory=dict)  # the definitions that the last grouping left apart
    grouped: dict[object, tuple[dict[str, Group], dict[Group, KernelPlan], dict[str, Unfused]]] = field(
        default_factory=dict
    )  # the groups of all definitions, by the fallbacks

    def unified(self, ops: Group) -> Unified:
        """The definitions of ``ops`` with unified axes."""
        if ops not in self.groups:
            key = self._key(ops)
            if key not in _UNIFIED.found:
                made = unify([self.defs[o] for o in ops], tuple(p.name for p in self.program.params))
                _UNIFIED.keep(key, made)
            self.groups[ops] = _UNIFIED.found[key]
        return self.groups[ops]

    def _key(self, ops: Group) -> tuple[object, ...]:
        """What the unified axes of ``ops`` depend on, which trials of other plans for the program have in common."""
        return (tuple(p.name for p in self.program.params), *(Same(_first(self.defs[o])) for o in ops))

    def stored(self, ops: Group) -> frozenset[str]:
        """The definitions of ``ops`` that stay in memory: outputs, and the operands of other definitions."""
        outputs = frozenset(b.name for b in self.program.buffers if b.space is Space.OUTPUT)
        return self.graph.stored(outputs, ops)

    def plan(self, ops: Group, fallbacks: Fallbacks) -> KernelPlan | None:
        """A legal plan for ``ops`` as one kernel, or None; one with fewer registers for a kernel that failed."""
        step = min(sizing(fallbacks.steps(ops[-1])), WITHOUT)
        if (ops, step) not in self.plans:
            kept = self.stored(ops)
            key = (step, kept.intersection(ops), *self._key(ops))
            if key not in _PLANS.found:
                _PLANS.keep(key, self._try(ops, step, kept))
            plan, reason = _PLANS.found[key]
            if plan is None:
                self.reasons[ops] = reason
            self.plans[ops, step] = plan
        return self.plans[ops, step]

    def _try(self, ops: Group, step: int, kept: frozenset[str]) -> tuple[KernelPlan | None, str]:
        """The plan, or None and the reason why there is none."""
        try:
            unified = self.unified(ops)
            if unified.misaligned:
                return None, "they read each other at other positions than their own"
            plan = plan_kernel(unified, ops[-1], kept, light=step >= LIGHTER, divided=step <= LIGHTER)
            kernel = fuse_kernel(self.program, plan, self.defs, kept)
            roll_kernel(reorder_kernel(split_kernel(self.program, kernel, plan), plan), plan, [])
        except ScheduleError as error:
            return None, error.reason
        return plan, ""


@by_identity(4096)
def _first(d: Def) -> Def:
    """The first of the definitions that are ``d`` in every detail, which programs of other plans have again."""
    alike: list[Def] = _ALIKE.found.get(d, [])
    found = next((x for x in alike if identical(x, d)), None)
    if found is None:
        _ALIKE.keep(d, [*alike, found := d])
    return found


def known_of(program: Program) -> Known:
    """The facts about ``program``, which a compilation plans again after each kernel that fails."""
    key = Same(program)
    if key not in _KNOWN.found:
        _KNOWN.keep(key, _known_of_equal(program))
    found: Known = _KNOWN.found[key]
    return found


@lru_cache(maxsize=4)
def _known_of_equal(program: Program) -> Known:
    defs = read_defs(program)
    return Known(program, defs, graph_of(defs))


def forget_plans() -> None:
    """Drop the facts about all programs. A test that changes constants of the planner calls it."""
    _known_of_equal.cache_clear()
    for results in (_KNOWN, _UNIFIED, _PLANS, SIZED, _ALIKE):
        results.found.clear()
