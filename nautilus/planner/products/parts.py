"""Tiles of a GEMM of f32 whose operands are stored in parts (``core.functions.parts``).

A tile has 128 rows and columns, which leave registers for the sum of one step beside the accumulators; fewer columns
where the result has fewer, then with twice the rows if there are enough of them.  A step of the loop is as long as the
innermost digit of the loop allows (``flatten-contractions``, ``store-shifted``), because each step has f32 additions.
The engine is chosen where the time that the product saves is longer than the kernels take that store the parts.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from nautilus.core.expr.nodes import Load, Op, Var, free_vars
from nautilus.core.expr.products import strip_conversions
from nautilus.core.functions.parts import STORED
from nautilus.core.schedule import KernelPlan, WarpgroupPlan
from nautilus.core.types import DType
from nautilus.planner.products.back_to_back import shape_of
from nautilus.planner.products.boxes import Side
from nautilus.planner.products.dots import digit
from nautilus.planner.warpgroup import (
    RESERVE,
    STEP,
    extent,
    fetches_tiles,
    rasterised,
    registers,
    useful,
    wave,
    with_tiles,
)
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import GRID
from nautilus.targets import part_rates as rates
from nautilus.targets.limits import Limits
from nautilus.targets.tile_rates import WARPGROUPS
from nautilus.targets.window_rates import LINES

STEPS = (STEP, STEP // 2, STEP // 4)  # the last one is the depth of an MMA
LEAST = 2  # stages
FEW = 32  # columns of a tile whose time is that of loading its rows
#: the relative time up to which such a tile has long boxes: those of 8 images, 4 lines and 8 columns take 1.7 to 3.6
#: times as long as predicted (two convolutions), those of one image and 256 columns 1.4 times
SLACK = 1.08


def gemm_in_parts(
    plan: KernelPlan, unified: Unified, limits: Limits, row: Side, column: Side, loop: str, d: Def
) -> KernelPlan | None:
    """Tiles of a GEMM ``d`` of f32 whose operands are stored in parts; None where parts in registers are faster."""
    value = strip_conversions(d.value)
    operands = [e for e in (value.args if isinstance(value, Op) else ()) if isinstance(e, Load)]
    if len(operands) < 2 or not all(e.dtype is DType.F32 for e in operands):
        return None
    near = {x for ld in operands for x in free_vars(ld.index[-1])}  # copy units need the size of rows
    if not all(isinstance(unified.extents[x], int) for x in {loop, *near} & unified.extents.keys()):
        return None
    shifted = any(not isinstance(e, Var) for ld in operands for e in ld.index)
    depth = digit(operands, loop)
    step = next((s for s in STEPS if depth % s == 0), 0) if shifted else STEP
    if not step or extent(unified, loop) < LEAST * step:
        return None
    tiles = [t for t in rates.TILES if shifted or t == rates.TILES[0]]
    tiles = [(m, n, r) for m, n, r in tiles if row.extent >= m and (column.extent > n // 2 or n == rates.TILES[-1][1])]
    tiles = [t for t in tiles if _stages(limits, t[0], t[1], step) >= LEAST]
    if not tiles:
        return None
    sides = {x for s in (row, column) for x, _, _ in s.axes}
    others = prod(extent(unified, a.name) for a in plan.axes if a.role == GRID and a.name not in sides)

    def cut(n: int, line: int) -> tuple[Side, Side]:
        slack = SLACK if n <= FEW else 1.0
        return replace(row.narrow(line), slack=slack), replace(column.narrow(line), slack=slack)

    def share(case: tuple[tuple[int, int, float], int, float]) -> float:
        (m, n, rate), line, merit = case
        left, right = cut(n, line)
        count = others * left.count(left.tiles(m)) * right.count(right.tiles(n))
        elements = others * row.extent * column.extent
        return rate * merit * useful(elements, count, m * n, wave(limits, row, column))

    best = max(((t, line, merit) for line, merit in LINES for t in tiles), key=share)
    (rows, columns, _), line, _ = best
    row, column = cut(columns, line)
    work = 2 * prod(extent(unified, x) for x in unified.extents)
    elements = sum(prod(shape_of(ld, unified)) for ld in operands)
    stored = rates.stored_seconds(work, share(best), elements)
    if stored > rates.STORED_SHARE * work / (rates.SHIFTED if shifted else rates.REGISTERS):
        return None
    fetches = fetches_tiles(plan, unified, loop)
    producer, consumer = registers(fetches)
    mapping = WarpgroupPlan(
        warpgroups=WARPGROUPS, stages=_stages(limits, rows, columns, step), epilogue="tma",
        raster_order=rasterised(fetches), raster_group=1024 // rows, producer_registers=producer,
        consumer_registers=consumer, persistent="dynamic" if fetches else "static", pipeline_mma=False,
    )  # fmt: skip
    return with_tiles(plan, row.tiles(rows) | column.tiles(columns) | {loop: step}, mapping)


def _stages(limits: Limits, rows: int, columns: int, step: int) -> int:
    """Stages of both operands that fit in shared memory."""
    return min(4, (limits.smem_block - RESERVE) // (STORED * (rows + columns) * step * DType.BF16.bytes))
