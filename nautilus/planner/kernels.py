"""The default scheduler: rules turn a Program of unfused definitions into a :class:`Schedule`.

The rules visit definitions from the outputs to the inputs.  A definition joins the merged group of all its readers if
that group has a legal plan: its reads are aligned, its tiles fit, its loops have the repair terms that they need, and
its grid has enough blocks.  Otherwise the definition is a kernel of its own, and its result is a temp in global memory.
A single definition always has a plan.

The passes themselves decide legality: each candidate runs through fusion, split, reordering and rolling update.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from math import prod

from nautilus.core.buffers import Space
from nautilus.core.errors import ScheduleError
from nautilus.core.fallbacks import LIGHTER, NO_FALLBACKS, PLAIN, SMALLER, UNFUSED, WITHOUT, Fallbacks
from nautilus.core.schedule import KernelPlan, Schedule
from nautilus.planner import streaming
from nautilus.planner.conservative import plain, smaller
from nautilus.planner.dots import dot_of
from nautilus.planner.kernel import SHORT, one_by_one, plan_kernel
from nautilus.planner.tiles import size_kernel
from nautilus.scalar.analysis.axes import Unified, unify
from nautilus.scalar.analysis.chunks import chunks_of
from nautilus.scalar.analysis.definitions import Def, read_defs, size
from nautilus.scalar.analysis.derived_names import GRID, blocks
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.fuse import fuse_kernel
from nautilus.scalar.passes.reorder import reorder_kernel
from nautilus.scalar.passes.rolling_update import roll_kernel
from nautilus.scalar.passes.split import split_kernel
from nautilus.targets.limits import Limits, limits
from nautilus.targets.records import DEFAULT_TARGET

FEW_BLOCKS = 32  # of a kernel that leaves most multiprocessors idle
_Ops = tuple[str, ...]


def plan_kernels(
    program: Program, schedule: Schedule | None = None, arch: str = DEFAULT_TARGET, fallbacks: Fallbacks = NO_FALLBACKS
) -> Schedule:
    """``schedule`` (None: one of defaults) with its kernels, by the default rules if it has none.

    ``fallbacks``: the fallbacks of kernels that failed later.
    """
    if schedule is not None and schedule.kernels:
        return schedule
    return replace(schedule or Schedule(), kernels=default_schedule(program, arch, fallbacks).kernels)


def default_schedule(program: Program, arch: str = DEFAULT_TARGET, fallbacks: Fallbacks = NO_FALLBACKS) -> Schedule:
    """A legal schedule for every valid ``program`` (after inline, factor, narrow and dead), sized for ``arch``."""
    defs = read_defs(program)
    readers = _readers(defs)
    groups: dict[str, tuple[str, ...]] = {}
    plans: dict[tuple[str, ...], KernelPlan] = {}
    for name in reversed(defs):
        alone = (name,)
        plans[alone] = _single(program, defs, name, fallbacks)
        groups[name] = alone
        near = [r for r in readers[name] if not _apart(defs[name], defs[r])]
        merged = _union(defs, (alone, *(groups[r] for r in near)))
        if len(merged) == 1 or _cyclic(defs, groups, merged) or _mixes(defs, merged) or _alone(merged, fallbacks):
            continue
        plan = _try(program, defs, merged)
        if plan is not None and not _starves(plan, defs, [plans[alone], *(plans[groups[r]] for r in near)]):
            plans[merged] = plan
            groups.update(dict.fromkeys(merged, merged))
    _join_siblings(program, defs, groups, plans, fallbacks)
    target = limits(arch)
    unified = {g: unify([defs[o] for o in g], _reserved(program)) for g in plans}

    kernels = {plans[g].name: sized(plans[g], unified[g], target, fallbacks) for g in _ordered(defs, groups)}
    whole = {plans[g].name: unified[g] for g in _ordered(defs, groups)}
    return Schedule(kernels=tuple(streaming.joined(kernels, whole, target, fallbacks).values()))


def sized(plan: KernelPlan, unified: Unified, target: Limits, fallbacks: Fallbacks = NO_FALLBACKS) -> KernelPlan:
    """``plan`` with its sizes chosen for ``target``, on the rung of the ladder that ``fallbacks`` says."""
    step = fallbacks.steps(plan.name)
    if step >= PLAIN and len(plan.ops) == 1:
        return plain(unified, plan.name)
    made = size_kernel(plan, unified, target, target.warpgroup and step < WITHOUT, light=step == LIGHTER)
    return made if step < SMALLER else smaller(made, unified, fallbacks.excess(plan.name))


def _alone(ops: _Ops, fallbacks: Fallbacks) -> bool:
    """Whether the kernel of ``ops`` failed, so that its definitions are kernels of their own."""
    return fallbacks.steps(ops[-1]) >= UNFUSED


def _join_siblings(
    program: Program, defs: dict[str, Def], groups: dict[str, _Ops], plans: dict[_Ops, KernelPlan], fallbacks: Fallbacks
) -> None:
    """Merge groups that read the same tensor over the same grid, so that it is read once.

    The rule is for row-wise work: a matrix product gains no time and loses registers.
    """
    for a, b in combinations(_ordered(defs, groups), 2):
        first, second = groups[a[0]], groups[b[0]]
        if first == second or not _large_inputs(defs, first) & _large_inputs(defs, second):
            continue
        merged = _union(defs, (first, second))
        if any(dot_of(defs[o]) for o in merged) or _cyclic(defs, groups, merged) or _mixes(defs, merged):
            continue
        if any(_alone(g, fallbacks) for g in (first, second, merged)):
            continue
        plan = _try(program, defs, merged)
        sizes = [_grid_size(plans[g], defs) for g in (first, second)]
        apart = sum(len(plans[g].phases) for g in (first, second))
        if plan is not None and len(plan.phases) <= apart and _grid_size(plan, defs) * 4 >= min(sizes):
            plans[merged] = plan
            groups.update(dict.fromkeys(merged, merged))


def _apart(operand: Def, reader: Def) -> bool:
    """Whether ``reader`` needs all chunks of ``operand``, which different blocks compute."""
    return chunks_of(operand) is not None and chunks_of(reader) is None


def _mixes(defs: dict[str, Def], ops: _Ops) -> bool:
    """Whether one of ``ops`` needs all the chunks of another."""
    pairs = ((ld.buffer, o) for o in ops for ld in defs[o].reads() if ld.buffer in ops)
    return any(_apart(defs[p], defs[o]) for p, o in pairs)


def _large_inputs(defs: dict[str, Def], ops: _Ops) -> frozenset[str]:
    """The buffers that ``ops`` read from memory over all of their own axes."""
    found: set[str] = set()
    for o in ops:
        d = defs[o]
        for ld in d.reads():
            if ld.buffer not in ops and len(ld.index) >= max(2, len(d.axes)):
                found.add(ld.buffer)
    return frozenset(found)


def _readers(defs: dict[str, Def]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {name: [] for name in defs}
    for d in defs.values():
        for b in dict.fromkeys(ld.buffer for ld in d.reads()):
            if b in found:
                found[b].append(d.name)
    return {k: tuple(v) for k, v in found.items()}


def _union(defs: dict[str, Def], groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    names = {n for g in groups for n in g}
    return tuple(n for n in defs if n in names)


def _single(program: Program, defs: dict[str, Def], name: str, fallbacks: Fallbacks) -> KernelPlan:
    if fallbacks.steps(name) >= PLAIN:
        return plain(unify([defs[name]], _reserved(program)), name)
    return _try(program, defs, (name,)) or one_by_one(unify([defs[name]], _reserved(program)), name)


def _reserved(program: Program) -> tuple[str, ...]:
    return tuple(p.name for p in program.params)


def _try(program: Program, defs: dict[str, Def], ops: tuple[str, ...]) -> KernelPlan | None:
    """A legal plan for ``ops`` as one kernel, or None."""
    try:
        unified = unify([defs[o] for o in ops], _reserved(program))
        if unified.misaligned:
            return None
        kept = stored(program, defs, ops)
        plan = plan_kernel(unified, ops[-1], kept)
        kernel = fuse_kernel(program, plan, defs, kept)
        roll_kernel(reorder_kernel(split_kernel(kernel, plan), plan), plan, [])
    except ScheduleError:
        return None
    return plan


def stored(program: Program, defs: dict[str, Def], ops: tuple[str, ...]) -> frozenset[str]:
    """The definitions of ``ops`` that stay in memory: outputs, and the operands of other definitions."""
    outputs = {b.name for b in program.buffers if b.space is Space.OUTPUT}
    read = {ld.buffer for d in defs.values() if d.name not in ops for ld in d.reads()}
    return frozenset(outputs | (read & set(ops)))


def _grid_size(plan: KernelPlan, defs: dict[str, Def]) -> int:
    total = 1
    unified = unify([defs[o] for o in plan.ops])
    for a in plan.axes:
        extent = unified.extents.get(a.name)
        if a.role == GRID and isinstance(extent, int):
            total *= blocks(extent, a.tile)
    return total


def _starves(plan: KernelPlan, defs: dict[str, Def], parts: list[KernelPlan]) -> bool:
    """Whether fusion leaves the GPU idle with too few blocks, where one of ``parts`` would fill it.

    The rule is for reductions without a matrix product: an elementwise operand is cheap to recompute, and fusion
    serves to keep the result of a matrix product out of memory.
    """
    if not defs[parts[0].name].is_reduction or any(dot_of(defs[o]) for o in plan.ops):
        return False
    merged = _grid_size(plan, defs)
    long = any(prod(size(a) or SHORT for a in defs[o].red) > SHORT for o in plan.ops)
    return merged < (FEW_BLOCKS if long else 4) and any(_grid_size(p, defs) >= 16 * merged for p in parts)


def _edges(defs: dict[str, Def], group: dict[str, _Ops]) -> dict[_Ops, set[_Ops]]:
    """Group -> the groups that it reads."""
    edges: dict[_Ops, set[_Ops]] = {group.get(n, (n,)): set() for n in defs}
    for d in defs.values():
        mine = group.get(d.name, (d.name,))
        edges[mine] |= {group.get(ld.buffer, (ld.buffer,)) for ld in d.reads() if ld.buffer in defs} - {mine}
    return edges


def _cyclic(defs: dict[str, Def], groups: dict[str, tuple[str, ...]], merged: tuple[str, ...]) -> bool:
    """Whether two kernels would depend on each other if ``merged`` were one kernel."""
    return _sorted(_edges(defs, groups | dict.fromkeys(merged, merged))) is None


def _ordered(defs: dict[str, Def], groups: dict[str, tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    order = _sorted(_edges(defs, groups))
    assert order is not None
    return order


def _sorted(edges: dict[_Ops, set[_Ops]]) -> tuple[_Ops, ...] | None:
    """Groups, operands first; None where there is a cycle."""
    out: list[tuple[str, ...]] = []
    left = dict(edges)
    while left:
        ready = [g for g, needs in left.items() if not needs & left.keys()]
        if not ready:
            return None
        out.extend(ready)
        for g in ready:
            del left[g]
    return tuple(out)
