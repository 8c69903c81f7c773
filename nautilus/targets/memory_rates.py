"""Rates of global memory and launches, from which passes and planner price kernels; estimates for an H200."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import Final

MEMORY: Final = 3.6e12  # bytes a second
SECTOR: Final = 32  # bytes that memory writes at once
LINE: Final = 128  # bytes of a line of memory
START: Final = 6.3e-10  # seconds between the starts of two blocks (``Machine.block_starts`` of the H200, rounded)
LAUNCH: Final = 3.0  # microseconds that one more kernel takes
OUTSIDE: Final = 4.0  # time of a row of a TMA box that the tensor does not have, relative to that of others
#: the time of a row of 128 bytes that a TMA copy loads from two lines of memory, relative to that of one from a line
#: (H200, products whose operands have rows of 4000, 8208 and 4112 bytes, 7 in 8 of them so: 4.7 to 5.6 cycles a row)
SPLIT: Final = 4.0
ATOMIC_LINES: Final = 1024  # lines of 128 bytes over which atomic operations spread without waiting for each other
#: cycles of a multiprocessor for an instruction that combines 32 elements of 4 bytes in shared memory, whether or not
#: they have banks of their own (H200: 16.8M bytes in 256 bins 20.8 us, 32M pairs of f32 in 64 bins for each row 251 us)
SHARED_ATOMIC: Final = 7.5
PARTIAL: Final = 6.0  # approximate time of writing a part of a sector, relative to that of as many bytes of whole ones


def partial_sectors(share: float) -> float:
    """The time of writing parts of sectors, each ``share`` of a sector, relative to writing whole sectors."""
    return 1.0 if share >= 1 else PARTIAL / share


def split_rows(row: int, pitches: Iterable[int], begin: int = 0) -> float:
    """The share of rows of ``row`` bytes that lie in two lines of memory.

    The rows begin ``begin`` bytes behind all sums of multiples of ``pitches``, in bytes.
    """
    step = gcd(LINE, *pitches)
    places = range(begin % step, LINE, step)
    return sum(at + row > LINE for at in places) / len(places)
