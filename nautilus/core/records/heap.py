"""The memory of freed arrays."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
_KEPT = 1 << 30  # bytes of freed memory that stay with the process
_LARGEST = 32 << 20  # bytes of an array that may lie in it, the most that the allocator takes


def keep_freed_memory() -> None:
    """Let the allocator of glibc keep the memory of freed arrays for those that follow; elsewhere, change nothing.

    By default it returns memory to the system whenever a few MiB are free, and the next array gets new pages, each at
    its first access.  The evaluations of a stated error bound, which free as many arrays as they make, then take
    three to four times as long.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST)
        mallopt(_TRIM_THRESHOLD, _KEPT)
