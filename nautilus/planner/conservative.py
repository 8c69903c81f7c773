"""Plans that need fewer resources than those of the rules: lower rungs of the ladder (:mod:`nautilus.core.fallbacks`).

* :func:`smaller` divides stages and tiles of a plan by two, one at a time, until its footprint is small enough.  The
  *footprint* is the number of bytes of all tiles that a block handles: of the operands that it loads, once for each
  stage, and of the values that it computes.  Shared memory, registers and emitted code all shrink with it, so that a
  failure with a known need (twice the shared memory of a block, for example) gives the wanted footprint directly.
* :func:`plain` is the plan that is legal for every definition.  A block has up to :data:`THREADS` elements of one axis
  of the result, one for each thread; all other axes have one element at a time, and every reduction is a serial loop.
  No value is a tile of two axes, so there is no matrix product, no exchange between threads and no shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from nautilus.core.expr.nodes import Axis, free_vars
from nautilus.core.schedule import AxisPlan, KernelPlan, WarpPlan
from nautilus.core.tiles import ceil_pow2
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.chunks import chunks_of
from nautilus.scalar.analysis.definitions import size
from nautilus.scalar.analysis.derived_names import GRID, LOOP, TILE
from nautilus.targets.limits import MMA_ROWS, WARP

THREADS = 128  # elements of a block of a plain kernel


def smaller(plan: KernelPlan, unified: Unified, excess: float) -> KernelPlan:
    """``plan`` with at most 1 / ``excess`` of its footprint, or the smallest plan with the same loops.

    A plan with warpgroup MMAs has none after this.  Tiles shrink to those of matrix instructions first.
    """
    mapping = plan.mapping if isinstance(plan.mapping, WarpPlan) else WarpPlan(stages=plan.mapping.stages)
    plan = replace(plan, mapping=replace(mapping, min_blocks=1, double_buffer_fragments=False))
    goal = footprint(plan, unified) / excess
    while footprint(plan, unified) > goal:
        steps = list(_steps(plan, unified))
        if not steps:
            break
        plan = min(steps, key=lambda p: (_below(p), footprint(p, unified)))
    return _fitting_warps(plan, unified)


def footprint(plan: KernelPlan, unified: Unified) -> int:
    """Bytes of the tiles that a block of ``plan`` handles."""
    tiles = {a.name: min(a.tile, e) if isinstance(e := unified.extents[a.name], int) else a.tile for a in plan.axes}
    loops = {a.name for a in plan.axes if a.role == LOOP}
    names = {d.name for d in unified.defs}
    total = sum(d.buffer.dtype.compute.bytes * prod(tiles[a.name] for a in d.axes) for d in unified.defs)
    for ld in {ld for d in unified.defs for ld in d.reads() if ld.buffer not in names}:
        axes = free_vars(ld) & tiles.keys()
        stages = max(1, plan.mapping.stages) if axes & loops else 1
        total += stages * ld.dtype.bytes * prod(tiles[x] for x in axes)
    return total


def _steps(plan: KernelPlan, unified: Unified) -> Iterator[KernelPlan]:
    """``plan`` with half the stages, or with half of one tile."""
    interleaved = {c.axis for d in unified.defs if (c := chunks_of(d)) is not None and c.tile}
    if plan.mapping.stages > 1:
        yield replace(plan, mapping=replace(plan.mapping, stages=plan.mapping.stages // 2))
    for n, a in enumerate(plan.axes):
        if a.role != TILE and a.tile > 1 and a.name not in interleaved:
            half = replace(a, tile=a.tile // 2)
            yield replace(plan, axes=(*plan.axes[:n], half, *plan.axes[n + 1 :]))


def _below(plan: KernelPlan) -> int:
    """Tiles that are shorter than those of matrix instructions, without tiles of one element."""
    return sum(1 < a.tile < MMA_ROWS for a in plan.axes)


def _fitting_warps(plan: KernelPlan, unified: Unified) -> KernelPlan:
    """``plan`` with no more warps than its largest tile has work for: one element or more for each thread."""
    assert isinstance(plan.mapping, WarpPlan)
    tiles = {a.name: a.tile for a in plan.axes}
    most = max((prod(tiles[a.name] for a in d.axes) for d in unified.defs), default=1)
    rows, columns = plan.mapping.warps
    while rows * columns > max(1, most // WARP):
        rows, columns = (rows // 2, columns) if rows > 1 else (rows, columns // 2)
    return replace(plan, mapping=replace(plan.mapping, warps=(rows, columns)))


def plain(unified: Unified, name: str) -> KernelPlan:
    """The plan that is legal for every single definition (module docstring)."""
    (d,) = unified.defs
    across = _across([(a.name, size(a) or THREADS) for a in d.par])
    tile = min(THREADS, ceil_pow2(across[1]))
    grid = tuple(AxisPlan(a.name, GRID, tile if a.name == across[0] else 1) for a in d.par)
    loops = tuple(AxisPlan(a.name, LOOP, 1) for a in d.red)
    mapping = WarpPlan(warps=(1, max(1, tile // WARP)), stages=0, epilogue="direct", dependent_launch=False)
    return KernelPlan(name, (d.name,), (*grid, *loops), ((d.name,),), partition=False, mapping=mapping)


def _across(axes: list[tuple[str, int]]) -> tuple[str, int]:
    """The axis whose elements the threads of a block have: the last one that fills a warp, else the longest."""
    wide = [a for a in axes if a[1] >= WARP]
    return wide[-1] if wide else max(axes, key=lambda a: a[1], default=("", 1))


def one_by_one(unified: Unified, name: str) -> KernelPlan:
    """The plan that is legal for every single definition: no tiles, and a loop for each reduction."""
    (d,) = unified.defs
    grid = tuple(AxisPlan(a.name, GRID, 1) for a in d.par)
    return KernelPlan(name, (d.name,), (*grid, *(_serial(a) for a in d.red)), ((d.name,),))


def _serial(a: Axis) -> AxisPlan:
    return AxisPlan(a.name, LOOP, min(64, ceil_pow2(size(a) or 64)))
