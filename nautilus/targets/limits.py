"""Limits of a target by name, and those that all targets share."""

from __future__ import annotations

from nautilus.core.errors import UnsupportedError
from nautilus.targets.records import TARGETS, Limits, find

__all__ = ["MAX_BLOCKS", "SMEM_WITHOUT_OPT_IN", "TENSOR_MAP_AXES", "VECTOR_BYTES", "Limits", "limits"]

MAX_BLOCKS = 2**31 - 1  # of a launch in one dimension, and the largest i32
SMEM_WITHOUT_OPT_IN = 48 * 1024  # bytes of dynamic shared memory of a block
TENSOR_MAP_AXES = 5  # at most
VECTOR_BYTES = 16  # of the widest access of a thread, and the alignment of the rows that copy units read


def limits(target: str) -> Limits:
    """The limits of ``target``. Raises UnsupportedError."""
    found = find(target)
    if found is None:
        raise UnsupportedError(f"target {target}", f"known targets: {', '.join(TARGETS)}")
    return found.limits
