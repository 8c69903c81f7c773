"""Times of products of stored windows (``store-windows``) on a target with warpgroup MMAs.

The times that name a number of convolutions are measured on an H200; the others are estimates.

A tile has lines of the result's contiguous axis where the windows are stored in the order of their tensor
(:data:`LINES`), and any rows where the axis of a window is contiguous.
"""

from __future__ import annotations

from typing import Final

from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.targets import part_rates
from nautilus.targets.limits import MMA_DEPTH
from nautilus.targets.memory_rates import MEMORY, OUTSIDE

STEPS: Final = ((64, 1.0), (32, 0.92), (16, 0.77))  # terms of a step of the loop, and relative rate without copies
#: time of terms of a step that are zeros and not multiplied, relative to others: at least 0.1, as windows of 45 terms
#: in a step of 64 take 3% longer than three of 15 in steps of 16 (two convolutions); less than 0.6 keeps one more plan
ZEROS: Final = 0.25
#: positions of the lines of a box, where an axis of the result is contiguous, and relative rate
LINES: Final = ((64, 1.0), (32, 0.95), (16, 0.85))
ROWS: Final = 128  # rows of the smallest product
TILE: Final = part_rates.TILES[0][0]  # rows of a tile
SLAB: Final = 64  # columns of 128 bytes of 16-bit operands, a row of a box
LOOP: Final = 128  # terms of the shortest loop without taps
WINDOWS_SHARE: Final = 0.95  # time with stored windows, at most, as a share of that by warps
RATE: Final = 600e12  # operations a second of 16-bit operands in whole tiles
WARPS: Final = 60e12  # the same by warps (10 to 120 in 14 convolutions)
WARPS_SMALL: Final = 24e12  # the same where matrices have no more rows or columns than one MMA (one convolution)
WARPS_F32: Final = 24e12  # of f32 by warps, where places have unit steps (22 to 45 in 16 convolutions)
WARPS_F32_APART: Final = 14e12  # and where they have not, or loops are short (5 to 20 in 7 convolutions)
WHOLE: Final = 0.85  # approximate share of a tile that boxes of several axes fill
#: time of writing every n-th element, relative to n times that of whole sectors, where tiles of other phases write the
#: elements between at about the same time (one convolution with two phases: 1.7 to 2.3)
PHASES: Final = 2.0
TRANSPOSED: Final = 1.3  # time of stores whose order is not that of the loads, relative
LAUNCHES: Final = 6e-6  # seconds of the kernels that store windows
#: time of the copies of rows of 128 bytes inside of the tensor, relative to that of the products of their elements
#: (where all rows are cut, two convolutions take 1.7 and 1.9 of the time of the products)
COPIES: Final = 0.45


@dataclass(frozen=True, slots=True)
class Box:
    """The copies of windows.

    ``line``: positions of the contiguous axis of the result; None: the axis of a window is contiguous.  ``row``:
    elements of a row of a box.  ``cut``: the share of its rows that reach beyond the tensor.
    """

    line: int | None
    row: int
    cut: float

    @property
    def cost(self) -> float:
        """The time of a row, relative to that of one inside of the tensor."""
        return 1.0 + (OUTSIDE - 1.0) * self.cut


def columns(dtype: DType) -> int:
    """The least number of columns of a product: with fewer columns of 8 bits no warpgroup has a tile."""
    return 16 if dtype is DType.F32 else 32 if dtype.is_half else 64


def steps(dtype: DType) -> tuple[tuple[int, float], ...]:
    """Terms of a step of the loop, and relative rates; of elements of 8 bits, at least 64 bytes."""
    return STEPS[:1] if dtype is DType.I8 else STEPS


def is_long(dtype: DType, terms: int, columns: int) -> bool:
    """Whether a product of this many terms and columns, whose loop has no taps, has tiles for warpgroup MMAs."""
    return terms >= LOOP and (dtype is not DType.F32 or columns > TILE // 2)


def warp_seconds(dtype: DType, operations: float, longest: int, unit_steps: bool) -> float:
    """The time of ``operations`` by warps.

    ``longest``: the contracted axis of which the loop has whole steps; ``unit_steps``: neighbouring results read
    neighbouring elements.
    """
    if dtype is DType.F32:
        return operations / (WARPS_F32 if unit_steps and longest >= MMA_DEPTH else WARPS_F32_APART)
    return operations * (-(-longest // MMA_DEPTH) * MMA_DEPTH) / longest / WARPS


def product_seconds(
    dtype: DType, operations: float, shape: tuple[int, int, int], box: Box, merit: float, multiprocessors: int
) -> float:
    """The time of ``operations`` on stored windows, or of the copies of their boxes if that is longer.

    ``shape``: groups, rows and columns; ``merit``: the relative rate of the step.
    """
    share = WHOLE * max(_share(shape, tile, multiprocessors) for tile in part_rates.TILES)
    copies = COPIES * box.cost
    if box.line is not None:
        merit *= _line_share(box.line, *_best_line(box.line))
        copies *= SLAB / box.row
    share *= merit / max(1.0, copies)
    return operations / ((part_rates.STORED if dtype is DType.F32 else RATE) * share)


def box_line(line: int) -> int:
    """Positions of a line of a box, where ``line`` positions of the result are contiguous."""
    return _best_line(line)[0]


def _best_line(line: int) -> tuple[int, float]:
    return max(LINES, key=lambda x: _line_share(line, *x))


def _line_share(line: int, n: int, rate: float) -> float:
    """The share of the rate that lines of ``n`` positions reach."""
    return rate * line / (-(-line // n) * n)


def result_seconds(dtype: DType, elements: int, step: int) -> float:
    """The time that writing ``elements`` adds, where every ``step``-th element in memory belongs to one tile.

    Whole sectors are written while other tiles are computed.
    """
    return elements * dtype.bytes / MEMORY * PHASES * step if step > 1 else 0.0


def store_seconds(dtype: DType, elements: int, transposed: bool) -> float:
    """The time of the kernels that store windows of ``elements``; ``transposed``: in another order than the tensor."""
    traffic = elements * 2 * dtype.bytes * (TRANSPOSED if transposed else 1)
    if dtype is DType.F32:
        return (traffic + elements * part_rates.STORES) / MEMORY + part_rates.LAUNCHES
    return traffic / MEMORY + LAUNCHES


def _share(shape: tuple[int, int, int], tile: tuple[int, int, float], multiprocessors: int) -> float:
    """The rate of tiles of this kind as a share of that of full tiles in full waves."""
    (groups, rows, columns), (m, n, rate) = shape, tile
    if columns % TILE == 0:
        m, n = n, m
    waves = -(-groups * -(-rows // m) * -(-columns // n) // multiprocessors)
    return rate * groups * rows * columns / (waves * multiprocessors * m * n)
