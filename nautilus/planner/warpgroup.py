"""Sizes of kernels on targets with warpgroup MMAs and TMA copies (sm_90a): tiles, warpgroups, pipelines.

The two structures are those of ``planner.tiles``: a *GEMM*, whose rows and columns are both spread over blocks, and a
*back-to-back GEMM*, whose reduction loop feeds accumulators that stay in registers.  The rules are measured on an
H200.  A kernel of another structure keeps the general plan.

* a back-to-back GEMM: two warpgroups of 64 rows, three for narrow accumulators; steps of 128, or shorter ones where
  shared memory or registers do not suffice (:mod:`.products.back_to_back`); pipelines of two stages.  Results without
  room in shared memory alias a pipeline stage.  An ordered barrier serialises the products of the warpgroups where they
  are short beside the elementwise work: for narrow accumulators, or for several special functions for each element
  between the products, and for operands of 8 bits, whose products are short.
* a GEMM: the tile with the best merit x useful area per wave of blocks; its rows and columns may be positions along
  several axes (:mod:`.products.boxes`).
* a GEMM of f32 whose operands are stored in parts: :mod:`.products.parts`.
* several GEMMs with one result shape, whose loops run one after another: 128 rows, and the columns that leave
  registers for all accumulators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import gcd, prod

from nautilus.core.buffers import Space
from nautilus.core.expr.nodes import Expr, Load, Op, Var, children, free_vars, loads
from nautilus.core.expr.nodes import walk as nested
from nautilus.core.expr.products import strip_conversions
from nautilus.core.functions import FUNCTIONS
from nautilus.core.index.simplify import divisor
from nautilus.core.index.sizes import blocks, nominal
from nautilus.core.schedule import AxisPlan, KernelPlan, MappingPlan, WarpgroupPlan
from nautilus.core.schedule.mapping import RasterOrder
from nautilus.core.types import DType
from nautilus.planner.products.back_to_back import (
    L2_BYTES,
    computes_left,
    fits_bytes,
    inner_axes,
    is_plain,
    live_registers,
    pair_loads,
    steps,
    streamed_bytes,
    tile_loads,
    whole_tiles,
)
from nautilus.planner.products.back_to_back import SHORTEST as SHORTEST_STEP
from nautilus.planner.products.boxes import Side
from nautilus.planner.products.dots import Dot, digit, dot_of, lengths_differ, step_within
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.contractions.scales import scaled_product
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import GRID, LOOP, TILE
from nautilus.targets.limits import VECTOR_BYTES, WGMMA_ROWS, Limits
from nautilus.targets.memory_rates import SECTOR
from nautilus.targets.tile_rates import TILES, WARPGROUPS, Tile

STEP = 64  # elements of the contraction in one stage of a GEMM: 128-byte rows
CONSUMER, CONSUMER_OF_THREE = 232, 160  # registers of a consumer thread of two warpgroups, and of three
LIVE_SHARE, LIVE_SHARE_MASKED = 0.87, 0.83  # of a thread's registers may be accumulators and operands
MANY_ROWS = 2048  # the least number with which a partial last tile has no effect
WAVES = 3  # waves of tiles in a supertile, so that long and short tiles balance
OUTER = 16  # the least number of outer grid points in a supertile, if it has fewer waves
SPECIAL = frozenset(f.name for f in FUNCTIONS.values() if f.elementary)
SHORTEST = 32  # bytes of the shortest rows of a stage
FEWEST = 33  # positions of the shortest loop between two products: half of the shortest step has work
MANY = 96  # accumulators of a thread that has no registers for two sets of them
RESERVE = 2048  # bytes of shared memory for barriers and alignment
SHORT = tuple(
    d for d in DType if d.is_float8
)  # the instruction's sums have few bits: each stage's is added to a second one
TWO_RATE = 0.88  # rate of two warpgroups with narrow accumulators, relative to three
NARROW = 32  # columns of the narrowest slabs of an operand
NARROW_MERIT = 0.95  # relative merit of a tile with narrow slabs
CHUNK = 64  # columns of an epilogue's chunk: two buffers of 64 x 64 elements a warpgroup


def extent(unified: Unified, axis: str) -> int:
    """Elements of ``axis``; the nominal number where the extent is known only at launch."""
    return nominal(unified.extents[axis])


def _is_fixed(plan: KernelPlan, unified: Unified) -> bool:
    """Whether the grid is known."""
    return all(isinstance(unified.extents[a.name], int) for a in plan.axes if a.role == GRID)


def with_tiles(plan: KernelPlan, tiles: dict[str, int], mapping: MappingPlan) -> KernelPlan:
    """``plan`` with other tiles and another mapping."""
    axes = tuple(AxisPlan(a.name, a.role, tiles.get(a.name, a.tile)) for a in plan.axes)
    return replace(plan, axes=axes, mapping=mapping)


def gemm(
    plan: KernelPlan, unified: Unified, limits: Limits, row: Side, column: Side, loop: str, dots: int,
    products: Sequence[Def], operand: DType = DType.F16, light: bool = False, whole: bool = False,
) -> KernelPlan | None:  # fmt: skip
    """Tiles of a GEMM with ``dots`` accumulators that share their left operand; None where it is too small.

    ``whole``: a tile has all columns, and a consumer registers for reductions over them.
    ``operand``: type of the operands (measured for 16 bits); a stage has rows of 128 bytes, or shorter ones where the
    innermost digit of the loop has fewer positions.  ``light``: at most 64 accumulators a thread.
    """
    rows, columns = row.extent, column.extent
    factors = [strip_conversions(e) for d in products for e in children(strip_conversions(d.value))]
    operands = [e for e in factors if isinstance(e, Load)]
    step = gcd(step_within(products, 2 * STEP // operand.bytes), digit(operands, loop))
    if step * operand.bytes < SHORTEST or rows < 128 or columns < 64 or extent(unified, loop) < step:
        return None
    sides = {x for s in (row, column) for x, _, _ in s.axes}
    lefts, rights = _operands(operands, row, dots)
    others = prod(extent(unified, a.name) for a in plan.axes if a.role == GRID and a.name not in sides)
    scaled, kinds = any(scaled_product(d) is not None for d in products), max(1, len(stored_kinds(unified)))
    twice = operand in SHORT or scaled
    best: tuple[float, Tile, int] | None = None
    for tile in TILES:
        n = tile.columns // dots
        if (
            n % NARROW
            or (whole and (n != columns or tile.pingpong or tile.warpgroups > WARPGROUPS))
            or tile.dots not in (0, dots)
            or n > -(-columns // CHUNK) * CHUNK
            or (light and (tile.pingpong or tile.warpgroups > WARPGROUPS or tile.rows * tile.columns > 1 << 14))
        ):
            continue
        if twice and not tile.has_registers_for_two:
            continue
        stage = step * operand.bytes * (lefts * tile.rows + rights * n)
        found = (_stages(limits, tile, stage, k * _result_bytes(unified, n)) for k in (kinds, 1))
        stages = next((s for s in found if s >= tile.least_stages), 0)
        if not stages:
            continue
        merit = tile.merit if n % CHUNK == 0 else NARROW_MERIT * tile.merit
        tiles = others * row.count(row.tiles(tile.rows)) * column.count(column.tiles(n))
        score = merit * useful(others * rows * columns, tiles, tile.rows * n, wave(limits, row, column))
        if best is None or score > best[0]:
            best = (score, tile, stages)
    if best is None:
        return None
    _, tile, stages = best
    fetches = fetches_tiles(plan, unified, loop)
    low, high = registers(fetches) if tile.warpgroups == WARPGROUPS else (32, 160)
    mapping = WarpgroupPlan(
        warpgroups=tile.warpgroups, tile_scheduling="pingpong" if tile.pingpong else "cooperative", stages=stages,
        epilogue="tma", store_columns=_chunk(unified, tile.columns // dots), raster_order=rasterised(fetches),
        raster_group=tile.raster_group,
        producer_registers=low, consumer_registers=high, persistent="dynamic" if fetches else "static",
        pipeline_mma=False,
        ordered_mma=scaled and not tile.pingpong,  # 5% faster on an H200; products without scales are slower
    )  # fmt: skip
    made = with_tiles(plan, row.tiles(tile.rows) | column.tiles(tile.columns // dots) | {loop: step}, mapping)
    return in_whole_loops(made, unified, loop, products) if tile.accumulators >= MANY else made


def in_whole_loops(plan: KernelPlan, unified: Unified, loop: str, products: Sequence[Def]) -> KernelPlan:
    """``plan`` without a loop for the last step of ``loop``, if TMA copies bring zeros for what it has beyond the end.

    That loop would have accumulators of its own, for which a large tile has no registers.
    """
    length, step = unified.extents[loop], plan.axis(loop).tile
    loops = [a.name for a in plan.axes if a.role == LOOP]
    if not isinstance(length, int) or length % step == 0 or loops != [loop] or any(d.guard for d in products):
        return plan

    def is_box(e: Expr) -> bool:
        """Whether ``e`` is an element of a tensor at one position of each of its axes."""
        return isinstance(e, Load) and all(isinstance(x, Var) for x in e.index)

    values = [strip_conversions(d.value) for d in products]
    whole = all(is_box(strip_conversions(e)) for value in values for e in children(value))
    return replace(plan, partition=False) if whole else plan


def _operands(loads: Sequence[Load], row: Side, dots: int) -> tuple[int, int]:
    """The numbers of left and of right operands of ``dots`` products; one left operand where all have it in common."""
    sides = {x for x, _, _ in row.axes}
    lefts = max(1, len({ld for ld in loads if free_vars(ld) & sides}))
    return lefts, dots if lefts == 1 else max(1, len({*loads}) - lefts)


def fetches_tiles(plan: KernelPlan, unified: Unified, loop: str) -> bool:
    """Whether the blocks of a GEMM take tiles from a counter, because loops have different lengths."""
    return lengths_differ(unified.defs, loop, [a.name for a in plan.axes if a.role == GRID])


def rasterised(fetches: bool) -> RasterOrder:
    """The order of tiles, of which long ones are fetched first."""
    return "longest-first" if fetches else "grouped"


def registers(fetches: bool) -> tuple[int, int]:
    """Registers of a thread of the producer and of two consumer warpgroups; a producer that fetches tiles has more."""
    return (40, CONSUMER) if fetches else (24, 240)


def _stages(limits: Limits, tile: Tile, stage: int, results: int) -> int:
    """Stages of ``stage`` bytes that fit beside ``results`` bytes of results of each warpgroup."""
    return min(8, (limits.smem_block - RESERVE - results * tile.warpgroups) // stage)


def _result_bytes(unified: Unified, columns: int) -> int:
    """Bytes of a warpgroup's buffers for results: two chunks, or a longer one of rows that begin anywhere."""
    two = 2 * 2 * WGMMA_ROWS * CHUNK
    row = 2 * (_chunk(unified, columns) or columns) + VECTOR_BYTES
    return max(two, WGMMA_ROWS * row) if _begin_anywhere(unified) else two


def _chunk(unified: Unified, columns: int) -> int:
    """Columns of an epilogue's chunk of a tile of ``columns``; 0: all of them.

    The ends of rows that begin anywhere in memory write parts of sectors, so a chunk of such a result has all columns.
    This holds only where the epilogue has nothing but the accumulators in registers: one that loads tensors is slower
    with chunks of 128 columns than with 64 (24.5 us against 22.9 for a bias and a residual on an H200).
    """
    if not _begin_anywhere(unified) or columns % CHUNK:
        return CHUNK if columns % CHUNK == 0 else NARROW
    names = {d.name for d in unified.defs}
    alone = all(ld.buffer in names for d in unified.defs if dot_of(d) is None for ld in d.reads())
    return 0 if alone else CHUNK


def _begin_anywhere(unified: Unified) -> bool:
    """Whether rows of a result may begin at other places than multiples of 16 bytes."""
    stored = [d.buffer for d in unified.defs if d.buffer.space is Space.OUTPUT and len(d.buffer.shape) > 1]
    return any(_row_bytes(d) % VECTOR_BYTES for d in unified.defs if d.buffer in stored)


def _row_bytes(d: Def) -> int:
    """A number that divides the bytes between neighbouring rows of the result."""
    row = d.buffer.stride(len(d.buffer.shape) - 2) if len(d.buffer.shape) > 1 else 0
    return (row if isinstance(row, int) else divisor(row)) * d.buffer.dtype.bytes


def stored_kinds(unified: Unified) -> set[tuple[int, str | None]]:
    """(bytes of an element, axis of memory) of the results that reach memory through shared memory.

    Accumulators hold 32 bytes in a row of elements of 4 bytes, along either axis, which are whole sectors where rows of
    the result are.
    """
    out = set[tuple[int, str | None]]()
    for d in unified.defs:
        size, last = d.buffer.dtype.bytes, d.index[-1] if d.index else None
        if d.buffer.space is Space.OUTPUT and (size < 4 or _row_bytes(d) % SECTOR):
            out.add((size, last.name if isinstance(last, Var) else None))
    return out


def gemms_one_by_one(
    plan: KernelPlan, unified: Unified, limits: Limits, row: str, column: str, dots: Mapping[str, Dot]
) -> KernelPlan | None:
    """Tiles of GEMMs with one result shape and a loop each, one after the other; None where they do not fit.

    All accumulators exist at once, and each loop has pipelines of its own.
    """
    rows, columns = 128, 256 // len(dots) // CHUNK * CHUNK
    if columns < CHUNK or extent(unified, row) < rows or extent(unified, column) < columns:
        return None
    loops = [x for dot in dots.values() for x in dot.inner if plan.axis(x).role == LOOP]
    if any(extent(unified, x) < 2 * STEP for x in loops):
        return None
    stage = 2 * STEP * (rows + columns) * len(loops)
    stages = min(4, (limits.smem_block - RESERVE - WARPGROUPS * 2 * 2 * WGMMA_ROWS * CHUNK) // stage)
    if stages < 2:
        return None
    mapping = WarpgroupPlan(
        warpgroups=WARPGROUPS, stages=stages, epilogue="tma", store_columns=CHUNK, raster_order="grouped",
        raster_group=1024 // rows, producer_registers=24, consumer_registers=240, persistent="static",
        pipeline_mma=False,
    )  # fmt: skip
    return with_tiles(plan, {row: rows, column: columns} | dict.fromkeys(loops, STEP), mapping)


def wave(limits: Limits, row: Side, column: Side) -> int:
    """Tiles of a wave; 1 where images are of any size, of which larger ones have many waves."""
    return 1 if row.lines or column.lines else limits.multiprocessors


def useful(elements: int, tiles: int, area: int, multiprocessors: int) -> float:
    """Useful share of the area of ``tiles`` with ``elements``, over whole waves of one tile a multiprocessor."""
    return elements / (-(-tiles // multiprocessors) * multiprocessors * area)


def _supertiles(plan: KernelPlan, unified: Unified, loop: str, row: str, rows: int, limits: Limits) -> int:
    """Supertiles of the outer axes: each fits in the L2 cache and has several waves of tiles.

    The number divides the outer grid points, so that all supertiles are alike and the bounds of loops stay known.
    """
    if not _is_fixed(plan, unified):
        return 1
    outer = prod(extent(unified, a.name) for a in plan.axes if a.role == GRID and a.name != row)
    tiles = outer * -(-extent(unified, row) // rows)
    fit = -(-streamed_bytes(unified, loop) // L2_BYTES)
    most = min(fit, max(tiles // (WAVES * max(1, limits.multiprocessors)), outer // OUTER), outer)
    return next(n for n in range(max(1, most), 0, -1) if outer % n == 0)


def _has_room_in_stage(unified: Unified, sums: list[Def], loop: str, step: int, width: int, warpgroups: int) -> bool:
    """Whether a stage of the operand that the accumulators read along the loop holds chunks of all results."""
    names = {d.name for d in unified.defs}
    found = (ld for d in sums for ld in d.reads() if ld.buffer not in names)
    loads = [ld for ld in found if any(loop in free_vars(e) for e in ld.index)]
    piece = WGMMA_ROWS * CHUNK * DType.F16.bytes
    stage = step * width * (loads[0].dtype.bytes if len(loads) == len(sums) == 1 else 0)
    return stage % piece == 0 and stage >= 2 * warpgroups * piece


def _places(unified: Unified, loop: str) -> bool:
    """Whether the loop's index enters the computation, so that its values are live beside the accumulators.

    Narrower epilogue chunks are then 3 to 9% faster on an H200.
    """

    def place(e: Expr) -> bool:
        if isinstance(e, Var):
            return e.name == loop
        return not isinstance(e, Load) and any(map(place, children(e)))

    return any(place(d.value) for d in unified.defs)


def _special(unified: Unified, row: str, loop: str) -> int:
    """Special functions that are evaluated for every pair of a row and an iteration point of the loop."""
    pair = {row, loop}
    return len({e for d in unified.defs for e in nested(d.value) if _is_special(e) and pair <= free_vars(e)})


def _is_special(e: Expr) -> bool:
    return isinstance(e, Op) and e.op in SPECIAL and e.dtype.is_float


def back_to_back_gemm(
    plan: KernelPlan, unified: Unified, limits: Limits, row: str, loop: str, dots: dict[str, Dot], light: bool = False,
    operand: int = 2, fewer: bool = False,
) -> KernelPlan | None:  # fmt: skip
    """Tiles of matrix products of which one feeds the next along a loop; None where rows are few or columns many.

    Where no product follows, reductions over the columns of the loop do: a maximum, its position, a sum.
    ``operand``: bytes of an element of the operands.  ``light``: two warpgroups, half the loop's step, no operand in
    registers; elementwise work needs the registers.  ``fewer``: the same with the whole step.  The tile of a whole
    contraction is one of whole MMAs.
    """
    whole = {x for dot in dots.values() for x in (*dot.inner, *dot.columns) if x not in (row, loop)}
    tiles = whole_tiles({x: extent(unified, x) for x in whole if plan.axis(x).role == TILE}, dots, operand)
    plan = with_tiles(plan, tiles, plan.mapping)
    sums = [d for d in unified.defs if d.name in dots and all(a.name != loop for a in d.par)]
    width = sum(prod(plan.axis(a.name).tile for a in d.par if a.name not in (row, loop)) for d in sums)
    deep = sum(prod(plan.axis(x).tile for x in dot.inner if x != loop) for dot in dots.values())
    if deep == 0 or width > 256 or extent(unified, row) < 2 * WGMMA_ROWS or extent(unified, loop) < FEWEST:
        return None
    uneven = plan.mapping.raster_order == "longest-first"
    along = len(dots) - len(sums)  # products whose results an iteration holds at once
    many = extent(unified, row) >= MANY_ROWS if uneven else _waves_of_three(plan, unified, row, limits)
    tile, many = _tile_bytes(unified, row, loop, dots), many and not pair_loads(unified, row, loop, dots)
    warpgroups = 3 if width <= 64 and along == 1 and many and not (light or fewer) else 2
    step = (128 if width <= 128 else 64) // (2 if light else 1)
    if len(sums) == along == 1 and not light:
        longest = _step(unified, row, loop, width, deep, warpgroups, limits, operand, dots)
        step = longest or (step if operand == 2 else 0)
    step = min(step, _step_beside(tile, width, deep, operand, limits)) if tile else step
    if step == 0:
        return None  # none leaves registers for the second accumulator of bytes
    beside = _masks_read(unified, row, loop) * step // 4
    held = operand == 2 and live_registers(width, deep, step, True) + beside <= _most_live(unified, loop, warpgroups)
    rows, stages = WGMMA_ROWS * warpgroups, 2
    resident, streamed = operand * rows * deep, step * (operand * (deep + width) + rows * tile)
    own, chunks = 2 * rows * width, 2 * rows * min(width, CHUNK)
    free = limits.smem_block - RESERVE - resident - stages * streamed
    aliased = own > free and _has_room_in_stage(unified, sums, loop, step, width, warpgroups)
    fits = own <= free or (not aliased and chunks <= free)
    # a producer that fetches tiles or loads for two blocks needs more registers
    even = -(-extent(unified, row) // rows) % 2 == 0 and plan.mapping.raster_order == "natural"
    pairs = not uneven and not light and 64 < width <= 128 and even and _is_fixed(plan, unified)
    fetched = uneven or width > 128
    low, high = (32, CONSUMER_OF_THREE) if warpgroups == 3 else (40, CONSUMER) if fetched or pairs else (24, 240)
    chunk = NARROW if own <= free and _places(unified, loop) else CHUNK if fits or aliased else 0
    heavy = warpgroups == 2 and width <= 128 and not light and _special(unified, row, loop) >= 2
    ordered = warpgroups == 3 or heavy or (width <= 64 and not light) or operand == 1
    mapping = WarpgroupPlan(
        warpgroups=warpgroups, stages=stages, raster_order=plan.mapping.raster_order,
        epilogue="tma" if fits else "tma-staged" if aliased else "tma-aliased",
        producer_registers=low, consumer_registers=high,
        persistent="dynamic" if fetched else "static", rescale_placement="early" if heavy else "late",
        cluster=2 if pairs else 1, store_columns=chunk, ordered_mma=ordered, outstanding_mma=not heavy,
        volatile_waits=heavy or (operand == 1 and uneven), register_operands=held and not (light or fewer or tile),
        resident_stages=2 if min(own, chunks) + resident <= free else 1,
        l2_supertiles=_supertiles(plan, unified, loop, row, rows, limits) if uneven else 0,
    )  # fmt: skip
    plan = with_tiles(_last(plan, (row, *inner_axes(plan, unified, row, loop, dots))), {row: rows, loop: step}, mapping)
    # sums of products of 8 bits are added to the accumulator in f32, and its correction is part of that addition
    return replace(plan, iteration_order="mixed-first", rescale_policy="auto" if operand == 2 else "always")


def _tile_bytes(unified: Unified, row: str, loop: str, dots: Mapping[str, Dot]) -> int:
    """Bytes of the element that elementwise work reads at each pair of a row and a position of the loop; else 0.

    Its tiles come to shared memory with the operands (``stage-loads``), where no other tensor is read so.
    """
    tiles = tile_loads(unified, row, loop, dots)
    return tiles[0].dtype.bytes if len(tiles) == 1 else 0


def _step_beside(tile: int, width: int, deep: int, operand: int, limits: Limits) -> int:
    """The longest step with whose tiles, of ``tile`` bytes an element, two stages of all operands and results fit."""
    rows = WGMMA_ROWS * WARPGROUPS
    room = limits.smem_block - RESERVE - rows * (operand * deep + 2 * width)
    return 128 if 2 * 128 * (operand * (deep + width) + rows * tile) <= room else 64


def _waves_of_three(plan: KernelPlan, unified: Unified, row: str, limits: Limits) -> bool:
    """Whether tiles of three warpgroups take no more time than those of two, whole waves of even tiles counted."""

    def rows_one_by_one(warpgroups: int) -> int:
        rows = WGMMA_ROWS * warpgroups
        tiles = prod(blocks(extent(unified, a.name), a.tile) for a in plan.axes if a.role == GRID and a.name != row)
        waves = blocks(tiles * blocks(extent(unified, row), rows), limits.multiprocessors)
        return waves * rows

    return rows_one_by_one(3) * TWO_RATE <= rows_one_by_one(2)


def _step(
    unified: Unified, row: str, loop: str, width: int, deep: int, warpgroups: int, limits: Limits, operand: int,
    dots: Mapping[str, Dot],
) -> int | None:  # fmt: skip
    """The step of a loop with one product before and one after it; None where no step fits."""
    rows = WGMMA_ROWS * warpgroups
    room = limits.smem_block - RESERVE - rows * (operand * deep + 2 * min(width, CHUNK))
    plain = is_plain(unified.defs, loop, 32 if operand == 1 else 1)
    found = [s for s in steps(extent(unified, loop), plain) if 2 * operand * s * (deep + width) <= room]
    most = _most_live(unified, loop, warpgroups)
    if width > 128 and _special(unified, row, loop) >= 2:
        found = [s for s in found if s == SHORTEST_STEP]  # their values need registers
    registers = CONSUMER if warpgroups == WARPGROUPS else CONSUMER_OF_THREE
    if operand == 1:  # their products need a second accumulator: 0 spills with 208 of 232 registers (ptxas 13.0)
        left = deep if computes_left(unified.defs, row, loop, dots) else 0
        return next((s for s in found if fits_bytes(width, s, left, registers)), None)
    held = [s for s in found if live_registers(width, deep, s, True) <= most]
    streamed = [s for s in found if live_registers(width, deep, s, False) <= most]
    best = held or streamed if warpgroups == WARPGROUPS else streamed  # three have few registers for operands
    return best[0] if best else None


def _most_live(unified: Unified, loop: str, warpgroups: int) -> float:
    """Registers of a consumer thread for accumulators and operands; a mask along the loop needs others."""
    masked = _places(unified, loop) or any(d.guard is not None and loop in free_vars(d.guard) for d in unified.defs)
    share = LIVE_SHARE_MASKED if masked else LIVE_SHARE
    return share * (CONSUMER if warpgroups == WARPGROUPS else CONSUMER_OF_THREE)


def _masks_read(unified: Unified, row: str, loop: str) -> int:
    """Registers for what conditions read at each position of the loop: a thread has the elements of its columns."""
    found = {(ld.buffer, ld.dtype, free_vars(ld)) for d in unified.defs if d.guard is not None for ld in loads(d.guard)}
    return sum(-(-dtype.bytes // 4) for _, dtype, names in found if loop in names and row not in names)


def _last(plan: KernelPlan, axes: tuple[str, ...]) -> KernelPlan:
    """``plan`` whose neighbouring blocks are neighbours along ``axes``, which read the same operands or tiles."""
    place = {a.name: (a.role != GRID, axes.index(a.name) if a.name in axes else -1) for a in plan.axes}
    return replace(plan, axes=tuple(sorted(plan.axes, key=lambda a: place[a.name])))
