"""Limits of the targets, one line each (CUDA C++ Programming Guide, "Compute Capabilities")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nautilus.core.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class Limits:
    """What one block and one multiprocessor may use. Memory in bytes."""

    smem_block: int
    smem_sm: int
    threads_sm: int
    registers_sm: int = 65536
    registers_thread: int = 255
    threads_block: int = 1024
    async_copy: bool = True
    warpgroup: bool = False  # warpgroup products, bulk copies and mbarriers with byte counts
    float8: bool = False  # instructions that convert 8-bit floats
    multiprocessors: int = 0  # of the largest device, 0: not known


_KB = 1024
TARGETS: Mapping[str, Limits] = {
    "sm_80": Limits(163 * _KB, 164 * _KB, 2048),
    "sm_86": Limits(99 * _KB, 100 * _KB, 1536),
    "sm_87": Limits(163 * _KB, 164 * _KB, 1536),
    "sm_89": Limits(99 * _KB, 100 * _KB, 1536, float8=True),
    "sm_90": Limits(227 * _KB, 228 * _KB, 2048, float8=True),
    "sm_90a": Limits(227 * _KB, 228 * _KB, 2048, warpgroup=True, float8=True, multiprocessors=132),
    "sm_120": Limits(99 * _KB, 100 * _KB, 1536, float8=True),
}


def limits(target: str) -> Limits:
    """The limits of ``target``; a suffix ``a`` or ``f`` without a line of its own is dropped.

    Raises UnsupportedError.
    """
    found = TARGETS.get(target) or TARGETS.get(target.rstrip("af"))
    if found is None:
        raise UnsupportedError(f"target {target}", f"known targets: {', '.join(TARGETS)}")
    return found
