"""Tiles of products of few rows: they stream one operand, at the rate of the memory.

A block has few columns, so that most multiprocessors have a block, and stages for as many bytes as shared memory holds.
It has at least 64 columns where these are contiguous in memory, which are 128 bytes.
Warpgroups have the rows as rows of the instruction, 64 or 128, or as its columns, in steps of 8: rows of a box that the
tensor does not have take a TMA copy several times as long as others do.  Blocks with the same columns are neighbours,
which read the streamed operand from memory once.

Measured on an H200 for 4096 columns and terms of 16 bits (cuBLAS: 15.3 us for 16 rows, 16.3 for 48, 14.2 for 64):

* rows as columns of the instruction, 64 of the result for each of 64 multiprocessors: 14.4 us for 16 rows, 14.6 for 48;
* a tile of 64 x 32 takes 14.4 us for 64 rows, and 19.0 for 16, of which the other 48 rows of each box are zeros;
* with 4, 8, 12 and 16 stages of 12 KB it takes 20.1, 15.1, 14.6 and 14.4 us;
* 16 rows by single warps, in clusters of two blocks that divide the terms: 13.4 us with 14 stages;
* 224 blocks for 14336 columns take 32.5 us where two share a multiprocessor, and 34.7 in two waves;
* 200 rows in two tiles of 104 take 20.7 us, in tiles of 128 they take 27.7.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import prod

from nautilus.core.expr.nodes import Load, children, free_vars
from nautilus.core.expr.products import strip_conversions
from nautilus.core.index.sizes import blocks, nominal
from nautilus.core.records import dataclass
from nautilus.core.schedule import AxisPlan, KernelPlan, WarpgroupPlan, WarpPlan
from nautilus.core.types import BYTES, DType
from nautilus.planner.products.boxes import Side
from nautilus.planner.warpgroup import with_tiles
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.chunks import chunks_of
from nautilus.scalar.analysis.contractions.scales import scaled_product
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import GRID
from nautilus.targets.limits import MMA_ROWS, WGMMA_ROWS, Limits
from nautilus.targets.memory_rates import OUTSIDE
from nautilus.targets.rates import machine
from nautilus.targets.records import DEFAULT_TARGET

_RATES = machine(DEFAULT_TARGET)  # the device that the study measured
MOST_ROWS = 256
MOST_IN_TILE = 128
ROW = 128  # bytes of a row of a stage
STEP = 8  # columns of an instruction; twice as many for integers of 8 bits
NARROW = 32  # columns of the narrowest tile
BUSY = 0.8  # share of the memory's rate that the blocks must be able to load
MOST_STAGES, LEAST_STAGES = 32, 6
WARP_STAGES = 14  # of single warps
CLUSTERS = 2, 8  # fewest and most blocks of a cluster that divide the terms
BLOCK = 1 << 10  # bytes of shared memory that each block of a multiprocessor takes
SPACE = 4 << 10  # bytes of shared memory for barriers and alignment
PAIR_REGISTERS = 24, 232  # of threads of the producer and of the consumer, where two blocks share a multiprocessor


@dataclass(frozen=True, slots=True)
class _Tile:
    """``rows`` x ``columns`` of the results of ``count`` products.

    ``down``: tiles along the rows.  ``missing``: rows of their boxes that the tensor does not have.
    """

    rows: int
    columns: int
    count: int
    down: int
    missing: int

    @property
    def loaded(self) -> int:
        """Rows of 128 bytes of a stage."""
        return self.rows + self.count * self.columns

    def time(self, tiles: int, many: int) -> float:
        """The time of the copies of a multiprocessor, in rows of each step."""
        return blocks(tiles, many) * (self.loaded + (OUTSIDE - 1) * self.missing / self.down)

    def stages(self, room: int) -> int:
        """The stages that ``room`` bytes hold beside the results."""
        return min(MOST_STAGES, (room - SPACE - 2 * self.rows * self.columns * self.count) // (ROW * self.loaded))


def _tiles(rows: int, step: int, count: int) -> Iterator[_Tile]:
    """The tiles for ``rows`` rows; ``step``: columns of an instruction."""
    down = blocks(rows, MOST_IN_TILE)
    each = blocks(blocks(rows, down), step) * step
    yield _Tile(max(each, 2 * STEP), WGMMA_ROWS, count, down, 0 if each > STEP else down * each - rows)
    for m in (WGMMA_ROWS, 2 * WGMMA_ROWS):
        for n in (NARROW, WGMMA_ROWS):
            if rows <= m:
                yield _Tile(m, n, count, 1, m - rows)


def few_rows_gemm(
    plan: KernelPlan, unified: Unified, limits: Limits, sides: tuple[Side, Side], loop: str, step: int,
    products: Sequence[Def],
) -> KernelPlan | None:  # fmt: skip
    """``plan`` with tiles of few rows; None where rows are many, or the blocks too few to load at the full rate.

    ``step``: elements of a row of a stage.  ``products``: of the same left operand.
    """
    row, column = sides
    terms, rows, count = unified.extents[loop], row.extent, len(products)
    if not isinstance(unified.extents[row.main], int) or not isinstance(terms, int):
        return None
    if rows > MOST_ROWS or column.extent < WGMMA_ROWS or terms < LEAST_STAGES * step or not _are_loaded(products, step):
        return None
    if len(row.axes) + len(column.axes) > len(sides):
        return None
    names = {row.main, column.main}
    others = prod(blocks(nominal(unified.extents[a.name]), a.tile) for a in plan.axes if _is_other(a, names))
    many = max(1, limits.multiprocessors)

    def tiles(t: _Tile) -> int:
        return others * t.down * blocks(column.extent, t.columns)

    room = limits.smem_block
    least = STEP * (2 if any(ld.dtype in BYTES for d in products for ld in d.reads()) else 1)
    narrow = all(loop in free_vars(e.index[-1]) for e in _operands(products) if column.main in free_vars(e))
    fits = [t for t in _tiles(rows, least, count) if t.stages(room) >= LEAST_STAGES and (narrow or t.columns > NARROW)]
    if not fits:
        return None
    best = min(fits, key=lambda t: t.time(tiles(t), many))
    if best.down > 1 and best.rows == MOST_IN_TILE:
        return None  # tiles of two warpgroups, with as many rows
    if rows > WGMMA_ROWS and tiles(best) > 2 * many:
        return None  # wide tiles fill the multiprocessors as well, and load less
    sizes = {row.main: best.rows, column.main: best.columns, loop: step}
    chunks = prod(nominal(unified.extents[c.by]) for d in products if (c := chunks_of(d)) is not None)
    idle = chunks <= CLUSTERS[-1] and tiles(best) // chunks <= many // CLUSTERS[0]
    if idle and best.rows <= MMA_ROWS and count == 1 and step == ROW // DType.F16.bytes:
        stages = min(_warp_stages(best, tiles(best) // chunks, chunks, limits), terms // chunks // step)
        by_warps = WarpPlan(warps=(1, 4), stages=max(2, stages), raster_order="grouped", epilogue="direct")
        return with_tiles(plan, sizes, by_warps)
    share = count * best.columns / best.loaded
    if min(many, tiles(best)) * _RATES.tma * _RATES.clock * share < BUSY * _RATES.dram_read:
        return None
    half = limits.smem_sm // 2 - BLOCK
    pair = tiles(best) > many and best.stages(half) >= LEAST_STAGES
    low, high = PAIR_REGISTERS if pair else (24, 240)
    mapping = WarpgroupPlan(
        warpgroups=1, stages=min(best.stages(half if pair else room), terms // step), epilogue="tma",
        pipeline_mma=False, raster_order="grouped", producer_registers=low, consumer_registers=high,
        min_blocks=2 if pair else 1,
    )  # fmt: skip
    return with_tiles(plan, sizes, mapping)


def _warp_stages(tile: _Tile, clusters: int, size: int, limits: Limits) -> int:
    """The stages of single warps in ``clusters`` clusters of ``size`` blocks, all of which run at the same time.

    Where multiprocessors do not suffice for one block each, some have two.
    """
    two = clusters > limits.clusters(size, 1)
    room = limits.smem_sm // 2 - BLOCK if two else limits.smem_block
    parts = size * DType.F32.bytes * tile.rows * (tile.columns + 4)
    return min(WARP_STAGES, (room - 2 * SPACE - parts) // (ROW * tile.loaded))


def _is_other(a: AxisPlan, names: Collection[str]) -> bool:
    return a.role == GRID and a.name not in names


def _operands(products: Sequence[Def]) -> list[Load]:
    """The factors of ``products`` that are tensors."""
    factors = [strip_conversions(e) for d in products for e in children(strip_conversions(d.value))]
    return [e for e in factors if isinstance(e, Load)]


def _are_loaded(products: Sequence[Def], step: int) -> bool:
    """Whether all factors of ``products`` are tensors of one size of elements, ``step`` of which are a row."""
    found = _operands(products)
    alike = all(ld.dtype.bytes * step == ROW for ld in found)
    return len(found) == 2 * len(products) and alike and all(scaled_product(d) is None for d in products)
