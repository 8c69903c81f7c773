"""Tuning parameters of kernels whose warps all run the same code: GEMM, back-to-back GEMM, row-wise work."""

from __future__ import annotations

from typing import Any

from nautilus.core.schedule import KernelPlan, WarpPlan
from nautilus.core.tiles import ceil_pow2
from nautilus.planner.warpgroup import with_tiles
from nautilus.tune.space import loop_structures as loops
from nautilus.tune.space.shape import GRID, LOOP, KernelShape
from nautilus.tune.space.tuning_parameter import (
    RULE,
    TuningParameter,
    including,
    kernel_parameter,
    mapping_parameter,
    tile_parameter,
    with_mapping,
)
from nautilus.tune.space.warpgroup_parameters import RESCALE_POLICIES, iteration_parameters


def _mapping(plan: KernelPlan) -> WarpPlan:
    assert isinstance(plan.mapping, WarpPlan)
    return plan.mapping


def gemm(plan: KernelPlan, shape: KernelShape) -> list[TuningParameter]:
    """The parameters of a matrix product whose rows and columns are both spread over blocks."""
    row, column = str(shape.row), str(shape.column)
    m = _mapping(plan)
    now = f"{plan.axis(row).tile}x{plan.axis(column).tile}:{m.warps[0]}x{m.warps[1]}"

    def block(p: KernelPlan, value: str) -> KernelPlan:
        tile, _, grid = value.partition(":")
        rows, columns = map(int, tile.split("x"))
        p = with_mapping(p, warps=_pair(grid))
        return with_tiles(p, {row: rows, column: columns}, p.mapping)

    found = [
        TuningParameter("block_tile", including(_blocks(shape), now), now, block),
        mapping_parameter("stages", plan, (1, 2, 3, 4)),
        tile_parameter("loop_tile", str(shape.loop), (32, 64), plan),
        mapping_parameter("min_blocks", plan, (1, 2)),
        mapping_parameter("double_buffer_fragments", plan),
        mapping_parameter("epilogue", plan),
    ]
    return [*found, mapping_parameter("raster_group", plan, (4, 8, 16))] if m.raster_order == "grouped" else found


def _pair(text: str) -> tuple[int, int]:
    down, across = map(int, text.split("x"))
    return down, across


def _blocks(shape: KernelShape) -> list[str]:
    """Blocks of 4 or 8 warps with warp tiles of 32 to 64 rows and 32 to 64 columns, and small ones for few rows."""
    rows, columns = ceil_pow2(shape.size(shape.row)), ceil_pow2(shape.size(shape.column))
    out = []
    for down, across in ((1, 4), (2, 2), (4, 1), (2, 4), (4, 2)):
        for r in (16, 32, 64):
            for c in (32, 64):
                tile = (down * r, across * c)
                fits = tile[0] <= max(16, rows) and tile[1] <= max(16, columns)
                if fits and r * c * shape.gemms <= 4096 and (r > 16 or rows <= 32):
                    out.append(f"{tile[0]}x{tile[1]}:{down}x{across}")
    return out


def back_to_back_gemm(plan: KernelPlan, shape: KernelShape) -> list[TuningParameter]:
    """The parameters of matrix products of which one feeds the next along a loop."""
    row, loop, m = str(shape.row), str(shape.loop), _mapping(plan)
    now = f"{plan.axis(row).tile}:{m.warps[0]}x{m.warps[1]}"

    def row_tile(p: KernelPlan, value: str) -> KernelPlan:
        tile, _, grid = value.partition(":")
        p = with_mapping(p, warps=_pair(grid))
        return with_tiles(p, {row: int(tile)}, p.mapping)

    most = max(16, ceil_pow2(shape.size(row)))
    blocks = [f"{each * down}:{down}x1" for down in (1, 2, 4, 8) for each in (16, 32) if each * down <= min(most, 128)]
    blocks += [f"{r}:1x{across}" for r in (16, 32) for across in (2, 4) if r <= most and shape.size(row) <= 64]
    found = [
        TuningParameter("row_tile", including(blocks, now), now, row_tile),
        tile_parameter("loop_tile", loop, [s for s in (16, 32, 64, 128, 256) if s <= shape.size(loop)], plan),
        mapping_parameter("stages", plan, (1, 2, 3, 4)),
        mapping_parameter("min_blocks", plan, (1, 2, 3)),
        *_hopper(plan, shape),
        mapping_parameter("epilogue", plan),
    ]
    return [*found, *_rescale_parameters(plan, shape), *iteration_parameters(plan, shape)]


def combined_in_block(plan: KernelPlan, shape: KernelShape) -> list[TuningParameter]:
    """The parameters of warps that combine partial results in a block; the split fixes their number and step."""
    now = plan.mapping.stages

    def stages(p: KernelPlan, value: Any) -> KernelPlan:
        return with_mapping(p, stages=now if value == RULE else value)

    found = [
        TuningParameter("stages", (RULE, 2, 3, 4), RULE, stages),  # the rule derives the number from warps and step
        *_hopper(plan, shape),
        mapping_parameter("min_blocks", plan, (1, 2)),
    ]
    return [*found, *_rescale_parameters(plan, shape)]


def combined_in_cluster(plan: KernelPlan) -> list[TuningParameter]:
    """The parameters of blocks that combine in a cluster; all but its size follows from the split."""
    return [mapping_parameter("cluster", plan, (_mapping(plan).cluster, 1))]


def _hopper(plan: KernelPlan, shape: KernelShape) -> list[TuningParameter]:
    """The parameters of options that need TMA and mbarriers."""
    names = ("tma_loads", "combine_in_block") if shape.limits.warpgroup else ()
    return [mapping_parameter(name, plan) for name in names]


def _rescale_parameters(plan: KernelPlan, shape: KernelShape) -> list[TuningParameter]:
    """The parameters of the rescaling of running results; none without them."""
    return [kernel_parameter("rescale_policy", plan, RESCALE_POLICIES)] if shape.repaired else []


def rows(plan: KernelPlan, shape: KernelShape) -> list[TuningParameter]:
    """The parameters of row-wise and elementwise work, and of matrix products of another structure."""
    m = _mapping(plan)
    found: list[TuningParameter] = []
    ways = loops.modes(plan, shape.unified, 32768) if not shape.gemms else ()
    if len(ways) > 1:

        def structured(p: KernelPlan, mode: str) -> KernelPlan:
            return loops.with_mode(p, shape.unified, mode)

        found.append(TuningParameter("loop_structure", ways, ways[0], structured, structural=True))
    found += [
        tile_parameter(f"tile.{a.name}", a.name, _around(a.tile, shape.size(a.name)), plan)
        for a in plan.axes
        if (a.role == GRID and _spread(plan, shape, a.name)) or a.role == LOOP
    ]
    total = m.warps[0] * m.warps[1]

    def warps(p: KernelPlan, value: int) -> KernelPlan:
        down = min(m.warps[0], value)
        while value % down:
            down -= 1
        return with_mapping(p, warps=(down, value // down))

    counts = [w for w in (1, 2, 4, 8, 16, 32) if total // 8 <= w <= total * 8]
    found += [
        TuningParameter("warps", including(counts, total), total, warps),
        mapping_parameter("min_blocks", plan, (1, 2, 4)),
        mapping_parameter("vector_bytes", plan, (8, 16)),
    ]
    if any(a.role == LOOP for a in plan.axes):
        found.append(mapping_parameter("stages", plan, (0, 1, 2, 3)))
    if shape.gemms:
        found.append(mapping_parameter("epilogue", plan))
    return found


def _spread(plan: KernelPlan, shape: KernelShape, axis: str) -> bool:
    """Whether blocks may take several elements of ``axis``: it is tiled, or the last of the grid."""
    last = [a.name for a in plan.axes if a.role == GRID][-1:]
    return shape.size(axis) > 1 and (plan.axis(axis).tile > 1 or axis in last)


def _around(tile: int, size: int) -> list[int]:
    """Powers of two from a quarter of ``tile`` to four times as much."""
    most = ceil_pow2(size)
    return [t for t in (tile // 4, tile // 2, tile, tile * 2, tile * 4) if 1 <= t <= max(most, tile)]
