"""Products whose neighbouring blocks share the loads of an operand (``multicast-loads``).

A block loads each operand of its tile by TMA, beside the matrix units.  A row of shared memory whose elements lie in
two lines of memory takes the TMA unit several times as long (:data:`.memory_rates.SPLIT`): where rows of both operands
begin anywhere in a line, as with a contraction of 4104, the loads take longer than the products.  Two blocks that
multiply with one operand then load half of it each.

H200, 16-bit operands in tiles of 128 x 256, 4096 x 4096 x 4104: 282 us alone, 199 us in pairs (cuBLAS 190); a gated
layer of that width 548 and 405 us; 8-bit integers 163 and 119 us.  Where one operand alone is so, the products hide its
loads: 191 us alone, 194 us in pairs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import prod
from typing import NamedTuple

from nautilus.core.expr.nodes import Load, Var, free_vars
from nautilus.core.fallbacks import Fallbacks
from nautilus.core.index.sizes import blocks
from nautilus.core.schedule import AxisPlan, KernelPlan, WarpgroupPlan
from nautilus.planner.products.dots import dot_of
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.derived_names import GRID, LOOP
from nautilus.scalar.ir import Program
from nautilus.targets.limits import VECTOR_BYTES
from nautilus.targets.memory_rates import LINE, SPLIT, split_rows
from nautilus.targets.records import Machine


def with_shared_loads(
    plans: Mapping[str, KernelPlan], unified: Mapping[str, Unified], program: Program, m: Machine, fallbacks: Fallbacks
) -> dict[str, KernelPlan]:
    """``plans`` by name, with clusters of two blocks where loads take longer than products and pairs can share them.

    ``fallbacks``: the fallbacks of kernels that failed later, which keep single blocks.
    """
    return {
        name: replace(plan, mapping=replace(plan.mapping, cluster=2))
        if not fallbacks.steps(name) and _shares(plan, unified[name], program, m)
        else plan
        for name, plan in plans.items()
    }


def _shares(plan: KernelPlan, unified: Unified, program: Program, m: Machine) -> bool:
    nest = static_nest(plan, unified)
    if nest is None:
        return False
    along = nest.grid[-2]
    if blocks(nest.sizes[-2], along.tile) % 2 or nest.mapping.raster_group % 2:
        return False  # else neighbouring blocks have neighbouring tiles along this axis
    products = [d for d in unified.defs if dot_of(d) is not None]
    reads = {ld for d in products for ld in d.reads()}
    if not reads or not all(is_box(ld, program) for ld in reads):
        return False
    tiles = {a.name: a.tile for a in plan.axes}
    shared = any(shared_by(ld, along.name) for ld in reads)
    mma = mma_cycles(reads, len(products), tiles, m)
    whole = sum(load_cycles(ld, program, tiles, m, split=1.0) for ld in reads)
    return shared and sum(load_cycles(ld, program, tiles, m) for ld in reads) > max(mma, whole)


class Nest(NamedTuple):
    """The grid axes of a kernel of warpgroups, with their ``sizes``, and its loop."""

    mapping: WarpgroupPlan
    grid: list[AxisPlan]
    sizes: list[int]
    loop: AxisPlan


def static_nest(plan: KernelPlan, unified: Unified) -> Nest | None:
    """The nest of ``plan``, whose blocks take tiles of fixed sizes in groups; None where they do not, or are paired."""
    mapping = plan.mapping
    if not isinstance(mapping, WarpgroupPlan) or mapping.cluster > 1:
        return None
    if mapping.persistent != "static" or mapping.raster_order != "grouped":
        return None
    grid, loops = ([a for a in plan.axes if a.role == role] for role in (GRID, LOOP))
    sizes = [n for a in grid if isinstance(n := unified.extents[a.name], int)]
    if len(grid) + len(loops) != len(plan.axes) or len(grid) < 2 or len(loops) != 1 or len(sizes) < len(grid):
        return None
    return Nest(mapping, grid, sizes, loops[0])


def is_box(ld: Load, program: Program) -> bool:
    """Whether TMA copies load tiles of ``ld``: an element of a tensor at one position of each of its axes."""
    buffer = program.buffer(ld.buffer)
    strides = [buffer.stride(i) for i in range(len(buffer.shape) - 1)]
    even = all(isinstance(n, int) and n * ld.dtype.bytes % VECTOR_BYTES == 0 for n in strides)
    return even and buffer.aligned and len(ld.index) > 1 and all(isinstance(e, Var) for e in ld.index)


def shared_by(ld: Load, along: str) -> bool:
    """Whether blocks that are neighbours along the axis ``along`` load the same tile of ``ld``."""
    return not any(along in free_vars(e) for e in ld.index)


def mma_cycles(reads: Collection[Load], products: int, tiles: Mapping[str, int], m: Machine) -> float:
    """The cycles of the matrix units for a step of ``products`` with the operands ``reads``, at their full rate."""
    size = max(ld.dtype.bytes for ld in reads)
    return products * 2 * prod(tiles.values()) * size / 2 / m.tensor_half


def load_cycles(ld: Load, program: Program, tiles: Mapping[str, int], m: Machine, split: float = SPLIT) -> float:
    """The cycles in which the TMA unit loads a tile of ``ld``; a row in two lines takes it ``split`` times as long."""
    buffer, size = program.buffer(ld.buffer), ld.dtype.bytes
    names = [e.name for e in ld.index if isinstance(e, Var)]
    row = min(LINE, tiles[names[-1]] * size)
    pitches = [n * size for i in range(len(names) - 1) if isinstance(n := buffer.stride(i), int)]
    rows = prod(tiles[n] for n in names) * size / row
    return rows * m.tma_row * (1 + (split - 1) * split_rows(row, pitches))
