"""Times of products whose operands are stored (``store-matrices``, ``store-masked``); estimates for an H200."""

from __future__ import annotations

from typing import Final

from nautilus.targets import part_rates, window_rates
from nautilus.targets.memory_rates import LAUNCH, MEMORY

WARPS: Final = 60e12  # operations a second of 16-bit operands by warps, in a loop for each contracted axis
WARPS_WIDE: Final = 14e12  # the same of f32
RATE: Final = window_rates.RATE  # the same on stored matrices
MASKED: Final = 120e12  # by warps, where some tiles of a matrix have masks
STEP: Final = 16  # terms of a step of such a loop
TILE: Final = 128  # rows and columns
SPLIT: Final = 64  # terms of the shortest chunk of a split loop
LEAST: Final = 1 << 24  # terms of the smallest product that takes longer than one more kernel
GAIN: Final = 0.8  # time with stored matrices, at most, as a share of that without


def seconds(wide: bool, shape: tuple[int, int, int, int], multiprocessors: int) -> float:
    """The time of a product on stored matrices, whose loop may be split.

    ``wide``: an operand has 32 bits; ``shape``: groups, rows, columns and terms.
    """
    groups, rows, columns, terms = shape
    tiles = groups * -(-rows // TILE) * -(-columns // TILE)
    useful = groups * rows * columns / (tiles * TILE * TILE)
    blocks = min(tiles * max(1, terms // SPLIT), multiprocessors)
    rate = part_rates.REGISTERS if wide else RATE
    return 2.0 * groups * rows * columns * terms / (rate * useful * blocks / multiprocessors)


def relative_to_warps(wide: bool, shortest: int) -> float:
    """The rate of the same product by warps, whose loop has ``shortest`` terms along one of its axes, relative."""
    rate = WARPS_WIDE / part_rates.REGISTERS if wide else WARPS / RATE
    return rate * min(1.0, shortest / STEP)


def store_seconds(stored: int, kernels: int) -> float:
    """The time of ``kernels`` that read and write ``stored`` bytes in another order."""
    return 2 * window_rates.TRANSPOSED * stored / MEMORY + kernels * LAUNCH * 1e-6
