"""Rates of global memory and launches, from which passes and planner price kernels; estimates for an H200."""

from __future__ import annotations

from typing import Final

MEMORY: Final = 3.6e12  # bytes a second
SECTOR: Final = 32  # bytes that memory writes at once
START: Final = 6.3e-10  # seconds between the starts of two blocks (``Machine.block_starts`` of the H200, rounded)
LAUNCH: Final = 3.0  # microseconds that one more kernel takes
OUTSIDE: Final = 4.0  # time of a row of a TMA box that the tensor does not have, relative to that of others
ATOMIC_LINES: Final = 1024  # lines of 128 bytes over which atomic operations spread without waiting for each other
SHARED_ATOMIC: Final = 8.0  # cycles of an instruction that combines 32 elements of 4 bytes in shared memory
#: the same with copies of the elements, relative to one: lanes in the fullest bank, expected where keys are random
WAITS: Final = {1: 1.0, 2: 0.88, 4: 0.76, 8: 0.6, 16: 0.43, 32: 0.28}
PARTIAL: Final = 6.0  # approximate time of writing a part of a sector, relative to that of as many bytes of whole ones


def partial_sectors(share: float) -> float:
    """The time of writing parts of sectors, each ``share`` of a sector, relative to writing whole sectors."""
    return 1.0 if share >= 1 else PARTIAL / share
