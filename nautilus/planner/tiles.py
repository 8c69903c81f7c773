"""Numbers for kernels with matrix products: tiles, warps and stages, by structure, sizes and target.

``plan_kernel`` chooses the roles of the axes; this file chooses their sizes.  There are two structures:

* A *GEMM* spreads both rows and columns of the result over blocks, and its loop is the contraction.  Blocks have
  128 x 256 elements in eight 64 x 64 warp tiles where there are enough blocks and shared memory suffices, else
  128 x 128.  Operand fragments are double-buffered across iterations.
* A *back-to-back GEMM* spreads only rows over blocks, and its loop feeds accumulators that stay in registers for the
  whole loop.  A warp has 32 rows where the accumulators then fit in a thread's 255 registers with a margin (two MMAs
  use each fragment that is read from shared memory), else 16.

The rules are measured on an H200 with 16-bit operands, and for GEMMs of f32 in parts (``core.functions.parts``), which
have 128 x 64 elements in four 64 x 32 warp tiles, two blocks on a multiprocessor.  Other operand types keep the general
plan.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.nodes import Load, Op
from nautilus.core.schedule import KernelPlan, WarpPlan
from nautilus.core.tiles import ceil_pow2
from nautilus.core.types import DType
from nautilus.planner import warpgroup as warpgroup_rules
from nautilus.planner.products.boxes import Side, side
from nautilus.planner.products.converted_rows import converted_gemm
from nautilus.planner.products.divided_columns import Chain, chain_of
from nautilus.planner.products.divided_columns import sizes as divided_columns_sizes
from nautilus.planner.products.dots import Dot, dot_of, full_operands, half_operands, step_of_digit
from nautilus.planner.products.few_rows import ROW, few_rows_gemm
from nautilus.planner.products.parts import gemm_in_parts
from nautilus.planner.warpgroup import STEP, extent, with_tiles
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.contractions.scales import matrix_part
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import GRID, LOOP, TILE
from nautilus.targets.limits import Limits

PART_STEP = 32  # step of a GEMM in parts: one short sum, and 128-byte rows of f32
ACCUMULATORS = 160  # most accumulator registers of a thread in a back-to-back GEMM; ptxas spills above it
STREAMED = 256  # columns of a GEMM of few rows in one step of a loop over them
NARROW_STAGES = 4  # stages of a GEMM with few rows: three stages ahead, of 16 KB each
PAD = 16  # bytes after a row of an operand in shared memory
FULL = 100  # least number of blocks for wide tiles: most multiprocessors then have one


def size_kernel(
    plan: KernelPlan, unified: Unified, limits: Limits, warpgroup: bool = False, light: bool = False,
    in_parts: bool = True, fewer: bool = False,
) -> KernelPlan:  # fmt: skip
    """``plan`` with the sizes of its matrix products chosen for ``limits``; other plans are unchanged.

    ``warpgroup``: uses warpgroup MMAs where their rules apply; ``light``: uses fewer registers a thread; ``in_parts``:
    products of f32 may have parts; ``fewer``: a back-to-back GEMM leaves more registers to elementwise work.
    """
    dots = {d.name: dot for d in unified.defs if (dot := dot_of(d)) is not None}
    loops = [a.name for a in plan.axes if a.role == LOOP and a.name not in _chosen(dots)]
    products = [d for d in unified.defs if d.name in dots]
    halves = warpgroup and not light and all(map(half_operands, products))
    if halves and (one_by_one := _one_by_one(plan, unified, limits, dots, loops)):
        return one_by_one
    if len(loops) == 2 and len(products) == 1 and all(map(half_operands, products)):
        return _streamed_gemm(plan, unified, limits, dots[products[0].name])
    if not dots or len(loops) != 1:
        return plan
    spread = {a.name: a.tile for a in plan.axes if a.role == GRID and a.tile > 1}
    rows = {x for dot in dots.values() for x in dot.rows if x in spread}
    columns = {x for dot in dots.values() for x in dot.columns if x in spread}
    if warpgroup and (whole := _whole_columns(plan, unified, limits, rows, columns, dots, products, light)):
        return whole
    place = sides = None
    if len(rows) == 1 and len(columns) == 1 and rows != columns and all(d.inner == tuple(loops) for d in dots.values()):
        place = (next(iter(rows)), next(iter(columns)), loops[0], len(dots))
    if place is not None:
        of = [[d.rows for d in dots.values()], [d.columns for d in dots.values()]]
        main = [side(plan, unified, x, axes) for x, axes in zip(place[:2], of, strict=True)]
        sides = (main[0], main[1], *place[2:])
    if not all(map(half_operands, products)):
        types = {t for d in products for t in _operand_types(d)}
        if warpgroup and _mixed(products) and len(spread) == len(rows | columns) == 1:
            return _mixed_chain(plan, unified, limits, next(iter(spread)), loops[0], dots, products, light, fewer)
        if warpgroup and types <= _FLOAT8 and len(spread) == len(rows | columns) == 1:
            (row,) = spread
            chained = warpgroup_rules.back_to_back_gemm(plan, unified, limits, row, loops[0], dots, light, 1, fewer)
            return chained or _fewer_stages(plan, unified, limits, loops[0])
        alike = warpgroup and any(types <= family for family in _OTHERS)
        wide = (
            _warpgroup_gemm(plan, unified, limits, sides, products, next(iter(types)), light)
            if sides and alike
            else None
        )
        if place and place[3] == 1 and all(map(full_operands, products)):
            stored = sides is not None and warpgroup and not light and in_parts
            found = gemm_in_parts(plan, unified, limits, *sides[:3], products[0]) if sides and stored else None
            return found or _gemm_in_parts(plan, unified, limits, *place[:3])
        if place and wide is None and types <= _FLOAT8 and limits.float8:
            return _gemm_of_bytes(plan, unified, limits, *place)
        return wide or _fewer_stages(plan, unified, limits, loops[0])
    if place is not None and sides is not None:
        few = light or bool(_chosen(dots))
        wide = _warpgroup_gemm(plan, unified, limits, sides, products, DType.F16, few) if warpgroup else None
        return wide or _within_digit(_gemm(plan, unified, limits, *place), products, loops[0])
    if len(spread) == 1 and len(rows | columns) == 1:
        return _chained(plan, unified, limits, next(iter(spread)), loops[0], dots, warpgroup, light, fewer)
    return plan


def _within_digit(plan: KernelPlan, products: list[Def], loop: str) -> KernelPlan:
    """``plan`` with a step in which the taps of a filter stay the same."""
    return with_tiles(plan, {loop: step_of_digit(products, loop, plan.axis(loop).tile)}, plan.mapping)


def _warpgroup_gemm(
    plan: KernelPlan, unified: Unified, limits: Limits, sides: tuple[Side, Side, str, int], products: list[Def],
    operand: DType, light: bool,
) -> KernelPlan | None:  # fmt: skip
    """Tiles of a GEMM on warpgroups, of few rows by a rule of their own; None where it is too small."""
    row, column, loop, _ = sides
    few = None if light else few_rows_gemm(plan, unified, limits, (row, column), loop, ROW // operand.bytes, products)
    if few is None and not light and len(products) == 1:
        few = converted_gemm(plan, unified, limits, row, column, loop, products[0])
    return few or warpgroup_rules.gemm(plan, unified, limits, *sides, products, operand, light=light)


def _chained(
    plan: KernelPlan, unified: Unified, limits: Limits, row: str, loop: str, dots: dict[str, Dot], warpgroup: bool,
    light: bool, fewer: bool,
) -> KernelPlan:  # fmt: skip
    """Tiles of a back-to-back GEMM of 16-bit operands."""
    chain = chain_of(plan, unified.defs, extent(unified, row), loop, dots)
    if chain.has_many_columns:
        return _divided(plan, unified, limits, row, loop, chain, warpgroup, light)
    rule = warpgroup_rules.back_to_back_gemm
    found = rule(plan, unified, limits, row, loop, dots, light, fewer=fewer) if warpgroup else None
    return found or _back_to_back_gemm(plan, unified, limits, row, loop, dots)


def _divided(
    plan: KernelPlan, unified: Unified, limits: Limits, row: str, loop: str, chain: Chain, warpgroup: bool, light: bool
) -> KernelPlan:
    """Tiles of a back-to-back GEMM by the rules for many columns (:mod:`.products.divided_columns`)."""
    found = divided_columns_sizes(chain, extent(unified, loop), limits, warpgroup, light)
    if found is None:
        raise ScheduleError("shared memory does not hold the operands of a step", kernel=plan.name)
    rows, step, mapping = found
    order = plan.mapping.raster_order
    sized = with_tiles(plan, {row: rows, loop: step}, replace(mapping, raster_order=order))
    return replace(sized, iteration_order="mixed-first", rescale_policy="auto")


def _chosen(dots: dict[str, Dot]) -> set[str]:
    """The axes of matrices that a condition chooses; a tile with rows of several selects between two accumulators."""
    return {x for dot in dots.values() for x in dot.chosen}


def _whole_columns(
    plan: KernelPlan, unified: Unified, limits: Limits, rows: set[str], columns: set[str], dots: dict[str, Dot],
    products: list[Def], light: bool,
) -> KernelPlan | None:  # fmt: skip
    """Tiles of a GEMM all of whose columns are in a tile, because the kernel reduces over them; None where they differ.

    They may be a group of the columns of the spec (:mod:`.cuts`), such as those that share a scale.
    """
    first, *more = dots.values()
    loop, *others = (a.name for a in plan.axes if a.role == LOOP)
    if others:
        return None
    types = {t for d in products for t in _operand_types(d)}
    held = [a.name for a in plan.axes if a.role == TILE and a.name in first.columns]
    alike = all(map(half_operands, products)) or any(types <= family for family in _OTHERS)
    same = all((d.rows, d.columns, d.inner) == (first.rows, first.columns, (loop,)) for d in (first, *more))
    if len(rows) != 1 or columns or len(held) != 1 or not same or not alike:
        return None
    (row,), (column,) = rows, held
    if plan.axis(column).tile != extent(unified, column):
        return None
    main = side(plan, unified, row, [d.rows for d in dots.values()])
    whole = Side(column, ((column, extent(unified, column), extent(unified, column)),))
    return warpgroup_rules.gemm(
        plan, unified, limits, main, whole, loop, len(dots), products, next(iter(types)), light=light, whole=True
    )


def _one_by_one(
    plan: KernelPlan, unified: Unified, limits: Limits, dots: dict[str, Dot], loops: list[str]
) -> KernelPlan | None:
    """Tiles of products of which each has a contraction of its own, over the same rows and columns; else None."""
    inner = [dot.inner for dot in dots.values()]
    if len(dots) < 2 or not loops or len(set(inner)) != len(dots) or any(len(x) != 1 for x in inner):
        return None
    spread = {a.name for a in plan.axes if a.role == GRID and a.tile > 1}
    rows = [spread & set(d.rows) for d in dots.values()]
    columns = [spread & set(d.columns) for d in dots.values()]
    alike = all(len(x) == 1 and x == side[0] for side in (rows, columns) for x in side)
    if not alike or not set(loops) <= {x for (x,) in inner}:
        return None
    (row,), (column,) = rows[0], columns[0]
    return None if row == column else warpgroup_rules.gemms_one_by_one(plan, unified, limits, row, column, dots)


def _fewer_stages(plan: KernelPlan, unified: Unified, limits: Limits, loop: str) -> KernelPlan:
    """``plan`` with as many stages as shared memory holds (rows padded by 16 bytes, as for plain layouts)."""
    width = max((ld.dtype.bytes for d in unified.defs for ld in d.reads()), default=4)
    lines = sum(a.tile for a in plan.axes if a.role == GRID and a.tile > 1)
    stage = lines * (plan.axis(loop).tile * width + 16)
    stages = max(1, min(plan.mapping.stages, limits.smem_block // max(1, stage)))
    return replace(plan, mapping=replace(plan.mapping, stages=stages))


def _mixed(products: list[Def]) -> bool:
    """Whether the products have 16-bit operands, or integers of 8 bits, and there are both kinds."""
    halves = [half_operands(d) for d in products]
    bytes_ = [_operand_types(d) <= _INTEGERS for d in products]
    return any(halves) and any(bytes_) and all(x or y for x, y in zip(halves, bytes_, strict=True))


def _mixed_chain(
    plan: KernelPlan, unified: Unified, limits: Limits, row: str, loop: str, dots: dict[str, Dot],
    products: list[Def], light: bool, fewer: bool,
) -> KernelPlan:  # fmt: skip
    """Tiles of a back-to-back GEMM of which one product has 8-bit integers, whose MMAs contract more elements."""
    chained = warpgroup_rules.back_to_back_gemm(plan, unified, limits, row, loop, dots, light, fewer=fewer)
    if chained and all(chained.axis(x).tile % _DEPTH_OF_BYTES == 0 for x in _depths(products, dots)):
        return chained
    return _fewer_stages(plan, unified, limits, loop)


def _depths(products: list[Def], dots: dict[str, Dot]) -> list[str]:
    """The contracted axes of products of 8-bit integers."""
    return [x for d in products if not half_operands(d) for x in dots[d.name].inner]


def _operand_types(d: Def) -> set[DType]:
    """Types of the factors of the product; f32 for one that is neither a tensor nor rounded to a narrower type."""
    value = matrix_part(d)
    if not (isinstance(value, Op) and value.op == "mul"):
        return {DType.F32}
    bare = (e.args[0] if isinstance(e, Op) and e.op == "cast" else e for e in value.args)
    return {e.dtype if isinstance(e, Load) or (isinstance(e, Op) and e.op == "narrow") else DType.F32 for e in bare}


#: operands of matrix instructions beside the 16-bit floats: types that one instruction may multiply
_FLOAT8 = frozenset(d for d in DType if d.is_float8)
_DEPTH_OF_BYTES = 32  # elements of 8 bits that an MMA contracts
_INTEGERS = frozenset({DType.I8, DType.U8})
_OTHERS = (frozenset({DType.TF32}), _INTEGERS, _FLOAT8)


def _gemm(
    plan: KernelPlan, unified: Unified, limits: Limits, row: str, column: str, loop: str, dots: int
) -> KernelPlan:
    """Tiles of a GEMM with ``dots`` accumulators that share their left operand."""
    if extent(unified, loop) < 2 * STEP:
        return plan
    if plan.axis(row).tile < 64 or plan.axis(column).tile < 64:
        return _narrow_gemm(plan, limits, row, column, loop) if dots == 1 else plan
    m, n = 128, 128
    others = prod(extent(unified, a.name) for a in plan.axes if a.role == GRID and a.name not in (row, column))
    blocks = others * -(-extent(unified, row) // 128) * -(-extent(unified, column) // 256)
    wide = dots == 1 and blocks >= FULL and limits.smem_block >= 3 * 2 * STEP * (128 + 256)
    wide = wide and extent(unified, column) > 128
    if extent(unified, row) < 128:
        m = 64
    if extent(unified, column) < 128:
        n = 64
    elif wide:
        n = 256
    stage = 2 * STEP * (m + dots * n)
    stages = min(4 if wide or dots > 1 else 3, limits.smem_block // stage)
    if dots > 2 or stages < 2:
        return plan
    warps = (m // 64, n // 64) if dots == 1 else (2, 4)
    if dots > 1 and (m, n) != (128, 128):
        return plan
    pair = 2 * (stages * stage + 1024) <= limits.smem_sm and prod(warps) <= 4
    mapping = WarpPlan(
        warps=warps, stages=stages, min_blocks=2 if pair else 1, raster_order="grouped",
        double_buffer_fragments=stages >= 3,
    )  # fmt: skip
    return with_tiles(plan, {row: m, column: n, loop: STEP}, mapping)


def _narrow_gemm(plan: KernelPlan, limits: Limits, row: str, column: str, loop: str, width: int = 2) -> KernelPlan:
    """Tiles of a GEMM with few rows or columns, which streams its other operand in whole 128-byte rows.

    ``width``: bytes of an element of an operand.
    """
    m, n = plan.axis(row).tile, plan.axis(column).tile
    if max(m, n) < 64 or min(m, n) > 32:
        return plan
    stages = min(NARROW_STAGES, limits.smem_block // (2 * STEP * (m + n)))
    if stages < 2:
        return plan
    warps = (1, 4) if n > m else (4, 1)
    double = stages >= 3 and width == 2
    mapping = WarpPlan(warps=warps, stages=stages, raster_order="grouped", double_buffer_fragments=double)
    return with_tiles(plan, {row: m, column: n, loop: 2 * STEP // width}, mapping)


def _gemm_of_bytes(
    plan: KernelPlan, unified: Unified, limits: Limits, row: str, column: str, loop: str, dots: int
) -> KernelPlan:
    """Tiles of a GEMM of 8-bit floats: warps of 64 x 32, which have registers for the sum of a step beside the others.

    The rule follows from registers and shared memory and is not measured.
    """
    general = _fewer_stages(plan, unified, limits, loop)
    if dots > 1 or extent(unified, loop) < 2 * 2 * STEP:
        return general
    m, n = (min(128, plan.axis(x).tile) for x in (row, column))
    if m < 64 or n < 64:
        narrow = _narrow_gemm(plan, limits, row, column, loop, width=1)
        return general if narrow is plan else narrow
    stages = min(NARROW_STAGES, limits.smem_block // ((STEP + PAD) * (m + n)))
    mapping = WarpPlan(warps=(m // 64, n // 32), stages=stages, raster_order="grouped")
    return with_tiles(plan, {row: m, column: n, loop: STEP}, mapping)


def _streamed_gemm(plan: KernelPlan, unified: Unified, limits: Limits, dot: Dot) -> KernelPlan:
    """Tiles of a GEMM of few rows whose columns are a loop, around that of its contraction, and end in reductions."""
    loops = [a.name for a in plan.axes if a.role == LOOP]
    spread = [a.name for a in plan.axes if a.role == GRID and a.tile > 1]
    for rows, columns in ((dot.rows, dot.columns), (dot.columns, dot.rows)):
        row, column = [x for x in rows if x in spread], [x for x in columns if x in loops]
        if len(spread) == len(row) == len(column) == 1 and [x for x in loops if x not in column] == list(dot.inner):
            m, n = plan.axis(row[0]).tile, STREAMED
            stages = min(3, limits.smem_block // (2 * STEP * (m + n)))
            if m > 64 or stages < 2 or extent(unified, column[0]) < n or extent(unified, dot.inner[0]) < STEP:
                return plan
            warps = (1, 4) if m <= 32 else (2, 4)
            mapping = WarpPlan(warps=warps, stages=stages, raster_order=plan.mapping.raster_order)
            return with_tiles(plan, {column[0]: n, dot.inner[0]: STEP}, mapping)
    return plan


def _gemm_in_parts(plan: KernelPlan, unified: Unified, limits: Limits, row: str, column: str, loop: str) -> KernelPlan:
    """Tiles of a GEMM of f32 in parts: warps of 64 x 32, or of 32 x 32 where there are few blocks."""
    general = _fewer_stages(plan, unified, limits, loop)
    if plan.axis(row).tile < 64 or plan.axis(column).tile < 64 or plan.axis(loop).tile != PART_STEP:
        return general
    others = prod(extent(unified, a.name) for a in plan.axes if a.role == GRID and a.name not in (row, column))
    blocks = others * -(-extent(unified, row) // 128) * -(-extent(unified, column) // 64)
    m = 128 if blocks >= 2 * FULL and extent(unified, row) >= 128 else 64
    stage = m * PART_STEP * 4 + PART_STEP * (64 * 4 + 32)
    stages = min(3, limits.smem_block // stage)
    if stages < 2:
        return general
    pair = 2 * (stages * stage + 1024) <= limits.smem_sm
    mapping = WarpPlan(warps=(2, 2), stages=stages, min_blocks=2 if pair else 1, raster_order="grouped")
    return with_tiles(plan, {row: m, column: 64, loop: PART_STEP}, mapping)


def _back_to_back_gemm(
    plan: KernelPlan, unified: Unified, limits: Limits, row: str, loop: str, dots: dict[str, Dot]
) -> KernelPlan:
    """Tiles of matrix products of which one feeds the next along a loop."""
    width = sum(
        prod(plan.axis(a.name).tile for a in d.par if a.name not in (row, loop))
        for d in unified.defs
        if d.name in dots and all(a.name != loop for a in d.par)
    )
    deep = sum(prod(plan.axis(x).tile for x in dot.inner if x != loop) for dot in dots.values())
    most = min(128, ceil_pow2(extent(unified, row)))
    for each, step, rows in product((32, 16), (64, 32), (128, 64)):
        accumulators = (width + step) * each // 32  # registers a thread
        resident, streamed = 2 * rows * deep, 2 * step * (deep + width)  # bytes
        if rows > most or width == 0 or accumulators > ACCUMULATORS or resident + streamed > limits.smem_block:
            continue
        order = plan.mapping.raster_order
        # Uneven blocks of one multiprocessor are at different iterations, so that a second stage hides more latency.
        two_stages = order == "longest-first" and 2 * (resident + 2 * streamed + 1024) <= limits.smem_sm
        pair = each == 32 and 2 * (resident + streamed + 1024) <= limits.smem_sm
        mapping = WarpPlan(
            warps=(rows // each, 1), stages=2 if two_stages else 1, min_blocks=2 if pair else 1, raster_order=order
        )
        return with_tiles(plan, {row: rows, loop: min(step, plan.axis(loop).tile)}, mapping)
    return plan
