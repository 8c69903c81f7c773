"""The loop structures for the reductions of one kernel: a shared loop, a loop for each reduction, or a whole row.

* ``rolling``: dependent reductions over one axis share a loop; repair terms correct the running results.
* ``passes``: each dependent reduction has a loop of its own, which recomputes its operands.
* ``row``: the whole extent is one tile, and there is no loop.

The pass ``rolling-update`` derives the repair terms and refuses a reduction that has none.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.schedule import AxisPlan, KernelPlan
from nautilus.core.tiles import ceil_pow2
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import LOOP, TILE

ROW, ROLLING, PASSES = "row", "rolling", "passes"


def loop_of(plan: KernelPlan) -> str | None:
    """The loop axis of ``plan``; None where it has none or several."""
    loops = [a.name for a in plan.axes if a.role == LOOP]
    return loops[0] if len(loops) == 1 else None


def mode_of(plan: KernelPlan, unified: Unified) -> str | None:
    """The loop structure of ``plan``; None where there is no alternative."""
    loop = loop_of(plan)
    if loop is None:
        return ROW if _row_axis(plan, unified) is not None else None
    modes = [m for m in (ROLLING, PASSES) if plan.phases == phases(unified, loop, m == ROLLING)]
    return modes[0] if modes else None


def modes(plan: KernelPlan, unified: Unified, most_row: int) -> tuple[str, ...]:
    """The loop structures that differ from each other, the plan's own first; fewer than two: no choice."""
    own = mode_of(plan, unified)
    if own is None:
        return ()
    axis = loop_of(plan) or _row_axis(plan, unified)
    assert axis is not None
    out = [own]
    if own != ROW and unified_size(unified, axis) <= most_row and not _has_mma(plan):
        out.append(ROW)
    rolling, passes = phases(unified, axis, True), phases(unified, axis, False)
    out += [m for m, p in ((ROLLING, rolling), (PASSES, passes)) if m not in out and (m == ROLLING or p != rolling)]
    return tuple(out)


def with_mode(plan: KernelPlan, unified: Unified, mode: str) -> KernelPlan:
    """``plan`` with the loop structure ``mode``."""
    axis = loop_of(plan) or _row_axis(plan, unified)
    assert axis is not None
    extent = ceil_pow2(unified_size(unified, axis))
    if mode == ROW:
        role = AxisPlan(axis, TILE, extent)
        order: tuple[tuple[str, ...], ...] = tuple((d.name,) for d in unified.defs)
    else:
        now = plan.axis(axis)
        role = now if now.role == LOOP else AxisPlan(axis, LOOP, min(4096, max(1, extent // 2)))
        order = phases(unified, axis, mode == ROLLING)
    axes = tuple(role if a.name == axis else a for a in plan.axes)
    grid = tuple(a for a in axes if a.role not in (LOOP, TILE))
    return replace(plan, axes=(*grid, *_loops_first(axes)), phases=order)


def _loops_first(axes: tuple[AxisPlan, ...]) -> tuple[AxisPlan, ...]:
    return (*(a for a in axes if a.role == LOOP), *(a for a in axes if a.role == TILE))


def unified_size(unified: Unified, axis: str) -> int:
    """Elements of ``axis``; a large number where the extent is known only at launch."""
    e = unified.extents[axis]
    return e if isinstance(e, int) else 1 << 20


def _has_mma(plan: KernelPlan) -> bool:
    return plan.mapping.engine == "warpgroup" or plan.mapping.epilogue != "direct"


def _row_axis(plan: KernelPlan, unified: Unified) -> str | None:
    """The reduced axis that is one tile, and is long enough for a loop."""
    if any(a.role == LOOP for a in plan.axes):
        return None
    reduced = {a.name for d in unified.defs for a in d.red}
    found = [a for a in plan.axes if a.role == TILE and a.name in reduced and unified_size(unified, a.name) >= 512]
    return max(found, key=lambda a: a.tile).name if found else None


def phases(unified: Unified, loop: str, rolling: bool) -> tuple[tuple[str, ...], ...]:
    """The loops in order, each with the block-wise operands that it recomputes, and the definitions between them."""
    at: dict[str, int] = {}
    running: dict[str, bool] = {}  # whether a block-wise definition has running values
    for d in unified.defs:
        at[d.name], running[d.name] = _place(unified, d, loop, rolling, at, running)
    out: list[tuple[str, ...]] = []
    for w in range(max(at.values(), default=0) + 1):
        if members := _computed_in(unified, w, loop, at):
            out.append(members)
        out.extend((d.name,) for d in unified.defs if at[d.name] == w and d.axis(loop) is None)
    return tuple(out)


def _place(
    unified: Unified, d: Def, loop: str, rolling: bool, at: dict[str, int], running: dict[str, bool]
) -> tuple[int, bool]:
    along = d.axis(loop) is not None
    earliest, open_at = (1 if along else 0), -1
    for ld in d.reads():
        if ld.buffer not in at:
            continue
        p = unified.get(ld.buffer)
        summed = any(a.name == loop for a in p.red)
        complete = p.axis(loop) is None or (summed and not rolling)
        need = at[p.name] + 1 if complete and along else at[p.name]
        if along and ((summed and rolling) or running[p.name]):
            open_at = max(open_at, at[p.name])
        earliest = max(earliest, need)
    if not along or open_at < earliest:
        return earliest, False
    if any(a.name == loop for a in d.red):
        return earliest, False
    readers = [r for r in unified.defs if any(ld.buffer == d.name for ld in r.reads())]
    feeds = bool(readers) and all(any(a.name == loop for a in r.red) for r in readers)
    if feeds and d.guard is None and d.buffer.space is Space.TEMP:
        return earliest, True
    return earliest + 1, False


def _computed_in(unified: Unified, w: int, loop: str, at: dict[str, int]) -> tuple[str, ...]:
    need = {d.name for d in unified.defs if at[d.name] == w and d.axis(loop) is not None}
    for d in reversed(unified.defs):
        if d.name in need:
            names = {ld.buffer for ld in d.reads()}
            need |= {p.name for p in unified.defs if p.name in names and any(a.name == loop for a in p.par)}
    return tuple(d.name for d in unified.defs if d.name in need)
