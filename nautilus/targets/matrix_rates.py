"""Times of products whose operands or results are stored (``store-matrices``, ``store-masked``, ``store-results``).

They are estimates for an H200.
"""

from __future__ import annotations

from typing import Final

from nautilus.targets import part_rates, window_rates
from nautilus.targets.limits import MMA_DEPTH
from nautilus.targets.memory_rates import LAUNCH, MEMORY, SECTOR

MASKED: Final = 120e12  # operations a second by warps, where some tiles of a matrix have masks
MASKED_F32: Final = 45e12  # the same of f32, in parts in registers (39 to 49 in three products)
SPLIT: Final = 64  # terms of the shortest chunk of a split loop
LEAST: Final = 1 << 24  # terms of the smallest product that takes longer than one more kernel
MATRICES_SHARE: Final = 0.8  # time with stored matrices, at most, as a share of that without
SCATTERED: Final = 60e9  # elements a second that tiles store into sectors of their own (one product on an H200)
SIDE: Final = 16  # rows and columns of the smallest matrix


def seconds(wide: bool, shape: tuple[int, int, int, int], multiprocessors: int) -> float:
    """The time of a product on stored matrices, whose loop may be split.

    ``wide``: an operand has 32 bits; ``shape``: groups, rows, columns and terms.
    """
    groups, rows, columns, terms = shape
    high, wide_, _ = part_rates.TILES[0]
    tiles = groups * -(-rows // high) * -(-columns // wide_)
    useful = groups * rows * columns / (tiles * high * wide_)
    blocks = min(tiles * max(1, terms // SPLIT), multiprocessors)
    rate = part_rates.REGISTERS if wide else window_rates.RATE
    return 2.0 * groups * rows * columns * terms / (rate * useful * blocks / multiprocessors)


def relative_to_warps(wide: bool, shortest: int) -> float:
    """The rate of the same product by warps, whose loop has ``shortest`` terms along one of its axes, relative."""
    f32 = window_rates.WARPS_F32_APART / part_rates.REGISTERS
    return (f32 if wide else window_rates.WARPS / window_rates.RATE) * min(1.0, shortest / MMA_DEPTH)


def store_seconds(stored: int, kernels: int) -> float:
    """The time of ``kernels`` that read and write ``stored`` bytes in another order."""
    return 2 * window_rates.TRANSPOSED * stored / MEMORY + kernels * LAUNCH * 1e-6


def turns(elements: int, each: int, run: int) -> bool:
    """Whether a result is stored faster by way of a temp in another order than by single elements.

    ``elements``: of ``each`` bytes; ``run``: how many of them side by side in memory belong to different tiles.
    """
    alone = elements * min(1.0, run * each / SECTOR) / SCATTERED
    return store_seconds(elements * each, 1) <= MATRICES_SHARE * alone
