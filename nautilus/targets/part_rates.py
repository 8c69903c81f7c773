"""Rates of matrix products of f32 on a target with warpgroup MMAs: in stored parts of bf16, and by warps.

Those that name a shape are measured on an H200; the others are estimates.  ``core.functions.parts`` describes parts.
"""

from __future__ import annotations

from typing import Final

from nautilus.targets.memory_rates import MEMORY

STORED: Final = 120e12  # operations a second of whole tiles, in parts that kernels store (4096^3)
REGISTERS: Final = 58e12  # the same rate in parts that warps make in registers (4096^3)
SHIFTED: Final = 25e12  # the same where an operand is shifted (convolutions of 64 channels)
BYTES: Final = 10  # bytes that are read and written for each element whose parts are stored
STORES: Final = 6  # the same where the kernel that stores the element also stores its parts
#: (rows, columns) of tiles, and their rate relative to the first one: estimates by the traffic of shared memory and of
#: L2, which bind tiles of few columns (four convolutions with 32 columns, one with 16)
TILES: Final = (
    (128, 128, 1.0), (128, 160, 1.0), (128, 144, 1.0), (128, 112, 0.96), (128, 96, 0.92), (256, 80, 0.9),
    (128, 80, 0.83), (256, 64, 0.8), (128, 64, 0.75), (256, 32, 0.5), (128, 32, 0.45), (256, 16, 0.3),
)  # fmt: skip
SHIFTED_SHARE: Final = 0.8  # the same of a product with a shifted operand, as a share of that by warps
LAUNCHES: Final = 10e-6  # seconds of the kernels that store parts
STORED_SHARE: Final = 0.9  # time with stored parts, at most, as a share of that with parts in registers


def stored_seconds(operations: float, share: float, elements: int) -> float:
    """The time of ``operations`` in stored parts of ``elements``, in tiles of which the part ``share`` is used."""
    return operations / (STORED * share) + elements * BYTES / MEMORY + LAUNCHES
