"""Tiles of products whose loads take longer than the matrix units.

The rates of :data:`.tile_rates.TILES` are those of operands whose rows are whole lines of memory.  A row of shared
memory whose elements lie in two lines takes the TMA unit several times as long (:data:`.memory_rates.SPLIT`), so that
the tile with the fewest rows of operands for its elements is faster, even where its last wave is emptier.

H200, bf16, 256 x 192 in place of two tiles of 128 x 128: 4096 x 4160 x 4104 207 us and 268, 4096 x 4104 x 4104, whose
blocks share loads in pairs (:mod:`.shared_loads`), 220 us and 294 (cuBLAS 208).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from nautilus.core.expr.nodes import Load
from nautilus.core.fallbacks import Fallbacks
from nautilus.core.schedule import KernelPlan, WarpgroupPlan
from nautilus.planner.clusters.shared_loads import (
    Nest,
    in_pairs,
    is_box,
    load_cycles,
    mma_cycles,
    paired,
    static_nest,
    waves,
)
from nautilus.planner.products.dots import dot_of
from nautilus.planner.warpgroup import CHUNK, SHORT, in_whole_loops, with_tiles
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.ir import Program
from nautilus.targets.records import Machine
from nautilus.targets.tile_rates import TILES, WARPGROUPS, Tile

_GAIN = 0.97  # of the predicted cycles of the tile that the measured rates say


class _Product(NamedTuple):
    """A product of plain boxes: its nest, the axes of its tile, and its loads."""

    d: Def
    nest: Nest
    row: str
    column: str
    loads: tuple[Load, ...]


def with_load_tiles(
    plans: Mapping[str, KernelPlan], unified: Mapping[str, Unified], program: Program, m: Machine, fallbacks: Fallbacks
) -> dict[str, KernelPlan]:
    """``plans`` by name, with other tiles of warpgroups where loads take longer than products.

    ``fallbacks``: the fallbacks of kernels that failed later, which keep their tiles.
    """
    return {
        name: plan if fallbacks.steps(name) else _retiled(plan, unified[name], program, m)
        for name, plan in plans.items()
    }


def _retiled(plan: KernelPlan, unified: Unified, program: Program, m: Machine) -> KernelPlan:
    product = _product(plan, unified, program)
    own = None if product is None else _tile(plan, product)
    if product is None or own is None:
        return plan
    nest, reads, mapping = product.nest, product.loads, product.nest.mapping
    tiles = {a.name: a.tile for a in plan.axes}
    if sum(load_cycles(ld, program, tiles, m) for ld in reads) <= mma_cycles(reads, 1, tiles, m):
        return plan

    def cycles(tile: Tile) -> float:
        """The cycles of all waves of ``tile``, in pairs of blocks where these share loads and are faster."""
        sizes = tiles | {product.row: tile.rows, product.column: tile.columns}
        counts, mma = nest.counts(sizes), mma_cycles(reads, 1, sizes, m) * TILES[0].merit / tile.merit
        alone = sum(load_cycles(ld, program, sizes, m) for ld in reads)
        pairs = in_pairs(reads, program, sizes, m, nest.grid[-2].name) if alone > mma and counts[-2] > 1 else alone
        return min(waves(counts, m) * max(mma, alone), waves(paired(counts), m) * max(mma, pairs))

    def stages(tile: Tile) -> int:
        return min(8, mapping.stages * (own.rows + own.columns) // (tile.rows + tile.columns))

    twice = any(ld.dtype in SHORT for ld in product.loads)
    possible = (t for t in TILES if not t.dots and t.columns % CHUNK == 0 and stages(t) >= t.least_stages)
    best = min((t for t in possible if t.has_registers_for_two or not twice), key=cycles, default=own)
    if cycles(best) > _GAIN * cycles(own):
        return plan
    mapping = replace(
        mapping, tile_scheduling="pingpong" if best.pingpong else "cooperative", stages=stages(best),
        raster_group=best.raster_group,
    )  # fmt: skip
    made = with_tiles(plan, {product.row: best.rows, product.column: best.columns}, mapping)
    return in_whole_loops(made, unified, nest.loop.name, [product.d])


def _product(plan: KernelPlan, unified: Unified, program: Program) -> _Product | None:
    """The product of ``plan``, if it has one with a loop of its own, whose operands are boxes."""
    nest = static_nest(plan, unified)
    if nest is None or nest.mapping.warpgroups != WARPGROUPS or nest.mapping.epilogue != "tma":
        return None
    products = [(d, dot) for d in unified.defs if (dot := dot_of(d)) is not None]
    if len(products) != 1:
        return None
    (d, dot), spread = products[0], {a.name for a in nest.grid if a.tile > 1}
    rows, columns = ([x for x in side if x in spread] for side in (dot.rows, dot.columns))
    loads = tuple(dict.fromkeys(d.reads()))
    if len(rows) != 1 or len(columns) != 1 or len(spread) != 2 or len(loads) != 2:
        return None
    return _Product(d, nest, rows[0], columns[0], loads) if all(is_box(ld, program) for ld in loads) else None


def _tile(plan: KernelPlan, product: _Product) -> Tile | None:
    """The measured tile of ``plan``."""
    mapping, size = plan.mapping, (plan.axis(product.row).tile, plan.axis(product.column).tile)
    pingpong = isinstance(mapping, WarpgroupPlan) and mapping.tile_scheduling == "pingpong"
    return next((t for t in TILES if (t.rows, t.columns) == size and t.pingpong == pingpong), None)
