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

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from nautilus.core.expr.nodes import Load, Var, free_vars
from nautilus.core.fallbacks import Fallbacks
from nautilus.core.index.divisors import divisor
from nautilus.core.index.sizes import at_bound, blocks, extent_expr, nominal
from nautilus.core.schedule import AxisPlan, KernelPlan, WarpgroupPlan
from nautilus.planner.products.dots import dot_of
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.derived_names import GRID, LOOP
from nautilus.scalar.ir import Program
from nautilus.targets.limits import VECTOR_BYTES
from nautilus.targets.memory_rates import LINE, SPLIT, split_rows
from nautilus.targets.records import Machine

PAIR = 2  # blocks of a cluster


def with_shared_loads(
    plans: Mapping[str, KernelPlan], unified: Mapping[str, Unified], program: Program, m: Machine, fallbacks: Fallbacks
) -> dict[str, KernelPlan]:
    """``plans`` by name, with clusters of two blocks where loads take longer than products and pairs can share them.

    ``fallbacks``: the fallbacks of kernels that failed later, which keep single blocks.
    """
    return {
        name: replace(plan, mapping=replace(plan.mapping, cluster=PAIR))
        if not fallbacks.steps(name) and _shares(plan, unified[name], program, m)
        else plan
        for name, plan in plans.items()
    }


def _shares(plan: KernelPlan, unified: Unified, program: Program, m: Machine) -> bool:
    nest = static_nest(plan, unified)
    if nest is None or nest.mapping.raster_group % PAIR:
        return False  # else neighbouring blocks have neighbouring tiles along the last axis but one
    along = nest.grid[-2]
    products = [d for d in unified.defs if dot_of(d) is not None]
    reads = {ld for d in products for ld in d.reads()}
    if not reads or not all(is_box(ld, program) for ld in reads):
        return False
    tiles = {a.name: a.tile for a in plan.axes}
    mma = mma_cycles(reads, len(products), tiles, m)
    whole = sum(load_cycles(ld, program, tiles, m, split=1.0) for ld in reads)
    alone = sum(load_cycles(ld, program, tiles, m) for ld in reads)
    pairs = in_pairs(reads, program, tiles, m, along.name)
    if pairs == alone or alone <= max(mma, whole):
        return False
    counts = nest.counts(tiles)
    return waves(paired(counts), m) * max(mma, pairs) < waves(counts, m) * alone and counts[-2] > 1


def in_pairs(reads: Iterable[Load], program: Program, tiles: Mapping[str, int], m: Machine, along: str) -> float:
    """The cycles in which a block of a pair of neighbours along the axis ``along`` loads its part of ``reads``."""
    cycles = {ld: load_cycles(ld, program, tiles, m) for ld in reads}
    return sum(n / PAIR if shared_by(ld, along) else n for ld, n in cycles.items())


def waves(counts: Iterable[int], m: Machine) -> int:
    """The tiles that a multiprocessor takes one after another."""
    return blocks(prod(counts), m.multiprocessors)


def paired(counts: Sequence[int]) -> list[int]:
    """The tiles along each axis where those along the last one but one are whole pairs."""
    *outer, rows, columns = counts
    return [*outer, PAIR * blocks(rows, PAIR), columns]


class Nest(NamedTuple):
    """The grid axes of a kernel of warpgroups, with their ``sizes``, and its loop."""

    mapping: WarpgroupPlan
    grid: list[AxisPlan]
    sizes: list[int]  # nominal ones where they are known at launch
    loop: AxisPlan

    def counts(self, tiles: Mapping[str, int]) -> list[int]:
        """The tiles along each axis of the grid, of the sizes ``tiles``."""
        return [blocks(n, tiles[a.name]) for a, n in zip(self.grid, self.sizes, strict=True)]


def static_nest(plan: KernelPlan, unified: Unified) -> Nest | None:
    """The nest of ``plan``, whose blocks take tiles in groups in a static order; None where they do not, or are paired.

    A size in the memory of the device is none: the host launches blocks for its bound.
    """
    mapping = plan.mapping
    if not isinstance(mapping, WarpgroupPlan) or mapping.cluster > 1:
        return None
    if mapping.persistent != "static" or mapping.raster_order != "grouped":
        return None
    grid, loops = ([a for a in plan.axes if a.role == role] for role in (GRID, LOOP))
    if len(grid) + len(loops) != len(plan.axes) or len(grid) < 2 or len(loops) != 1:
        return None
    extents = [unified.extents[a.name] for a in grid]
    if any(at_bound(n) != n for n in extents):
        return None
    return Nest(mapping, grid, [nominal(n) for n in extents], loops[0])


def is_box(ld: Load, program: Program) -> bool:
    """Whether TMA copies load tiles of ``ld``: an element of a tensor at one position of each of its axes."""
    buffer = program.buffer(ld.buffer)
    strides = [buffer.stride(i) for i in range(len(buffer.shape) - 1)]
    even = all(divisor(extent_expr(n)) * ld.dtype.bytes % VECTOR_BYTES == 0 for n in strides)
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
    pitches = [divisor(extent_expr(buffer.stride(i))) * size for i in range(len(names) - 1)]
    rows = prod(tiles[n] for n in names) * size / row
    return rows * m.tma_row * (1 + (split - 1) * split_rows(row, pitches))
