"""Which definitions become one kernel: the default rule's groups, and groups cut or merged.

A cut keeps dependence order, with what a reduction needs on one side and the rest on the other; ``apart`` cuts after
every reduction.  A group is written as its definitions, groups are separated by bars, and each is planned by the
default rules, so that a cut group is what it would be as a spec of its own.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from nautilus.core.buffers import Space
from nautilus.core.errors import ScheduleError
from nautilus.core.fallbacks import Fallbacks
from nautilus.core.schedule import KernelPlan, Schedule
from nautilus.planner.conservative import one_by_one
from nautilus.planner.kernel import plan_kernel
from nautilus.planner.kernels import sized
from nautilus.scalar.analysis.axes import Unified, unify
from nautilus.scalar.analysis.definitions import read_defs
from nautilus.scalar.ir import Program
from nautilus.targets.limits import limits

Groups = tuple[tuple[str, ...], ...]
_MOST = 12  # ways


def text(groups: Groups) -> str:
    """``groups`` as a value of a choice."""
    return " | ".join(" ".join(g) for g in groups)


def parse(value: str) -> Groups:
    """The groups of :func:`text`."""
    return tuple(tuple(g.split()) for g in value.split("|"))


def groups_of(schedule: Schedule) -> Groups:
    """The groups that ``schedule`` has."""
    return tuple(k.ops for k in schedule.kernels)


def ways(program: Program, base: Schedule) -> tuple[str, ...]:
    """Groupings that may be faster, the one of ``base`` first.  The steps of a recurrence are one kernel."""
    defs = read_defs(program)
    own = groups_of(base)
    found = [own]
    fixed = {n for n, group in enumerate(own) if not defs.keys() >= set(group)}
    for n, group in enumerate(own):
        if n in fixed:
            continue
        ends = [i for i, o in enumerate(group[:-1], 1) if defs[o].is_reduction]
        found.extend((*own[:n], *_cut(group, (cut,)), *own[n + 1 :]) for cut in ends)
        if len(ends) > 1:
            found.append((*own[:n], *_cut(group, tuple(ends)), *own[n + 1 :]))
    pairs = [n for n in range(len(own) - 1) if fixed.isdisjoint((n, n + 1))]  # neighbours that the rule kept apart
    found.extend((*own[:n], (*own[n], *own[n + 1]), *own[n + 2 :]) for n in pairs)
    return tuple(dict.fromkeys(text(g) for g in found))[:_MOST]


def _cut(group: tuple[str, ...], ends: tuple[int, ...]) -> list[tuple[str, ...]]:
    """``group`` cut after the positions ``ends``."""
    return [group[a:b] for a, b in pairwise((0, *ends, len(group)))]


def unified_of(program: Program, ops: tuple[str, ...]) -> Unified:
    """The definitions ``ops`` with unified axes."""
    defs = read_defs(program)
    return unify([defs[o] for o in ops], tuple(p.name for p in program.params))


def plan_group(program: Program, ops: tuple[str, ...], arch: str, fallbacks: Fallbacks) -> KernelPlan:
    """``ops`` as one kernel, by the default rules, on the rung of the ladder that ``fallbacks`` says.

    Raises ScheduleError that says why not.
    """
    defs = read_defs(program)
    unified = unified_of(program, ops)
    if unified.misaligned:
        reader, temp = unified.misaligned[0]
        raise ScheduleError(f"{reader} does not read {temp} at its own position")
    outputs = {b.name for b in program.buffers if b.space is Space.OUTPUT}
    read = {ld.buffer for d in defs.values() if d.name not in ops for ld in d.reads()}
    try:
        plan = plan_kernel(unified, ops[-1], frozenset(outputs | (read & set(ops))))
    except ScheduleError:
        if len(ops) > 1:
            raise
        plan = one_by_one(unified, ops[0])
    return sized(plan, unified, limits(arch), fallbacks)


def regroup(program: Program, base: Schedule, groups: Groups, arch: str, fallbacks: Fallbacks) -> Schedule:
    """``base`` with other kernels; groups that it has already keep their plan. Raises ScheduleError."""
    known = {k.ops: k for k in base.kernels}
    kernels = tuple(known.get(g) or plan_group(program, g, arch, fallbacks) for g in groups)
    return replace(base, kernels=kernels)
