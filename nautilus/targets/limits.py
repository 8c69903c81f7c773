"""Limits of a target by name, and those that all targets share."""

from __future__ import annotations

from nautilus.core.errors import UnsupportedError
from nautilus.targets.records import TARGETS, Limits, find

__all__ = [
    "BANKS", "BLOCK_REGISTERS", "BOX", "MAX_BLOCKS", "MMA_DEPTH", "MMA_ROWS", "NAMED_BARRIERS", "SCATTERS_BYTES",
    "SCATTER_BYTES", "SHORT_DEPTH", "SMEM_WITHOUT_OPT_IN", "SM_REGISTERS", "TENSOR_MAP_AXES", "THREAD_REGISTERS",
    "VECTOR_BYTES", "WARP", "WGMMA_COLUMNS", "WGMMA_ROWS", "WHOLE_DEPTH", "WORD", "Limits", "held_registers", "limits",
]  # fmt: skip

WARP = 32  # lanes of a warp
BANKS, WORD = 32, 4  # banks of shared memory, and bytes of one of them, which are those of a register
MAX_BLOCKS = 2**31 - 1  # blocks of a launch in one dimension, and the largest i32
SMEM_WITHOUT_OPT_IN = 48 * 1024  # bytes of dynamic shared memory of a block
TENSOR_MAP_AXES = 5  # axes of a tensor map at most
BOX = 256  # largest number of elements of a box of a tensor map along one axis
MMA_DEPTH = 16  # terms of one MMA of 16-bit operands
MMA_ROWS = 16  # rows of one MMA of a warp, and the least size of an axis of its tiles
#: Terms of one short sum of 8-bit floats: each loses up to 2^-13 of the partial sum (measured by DeepSeek-AI,
#: "DeepSeek-V3 Technical Report", section 3.5.2, which takes the same depth).
SHORT_DEPTH = 128
#: The same of a sum that is one chain, as that of the elements of a row: a second chain would need another accumulator.
WHOLE_DEPTH = 256
WGMMA_ROWS, WGMMA_COLUMNS = 64, 256  # rows of one warpgroup MMA, and its columns at most
NAMED_BARRIERS = 16  # barriers of a block (PTX ISA, ``bar``); number 0 is that of all threads
THREAD_REGISTERS = 255  # registers of a thread at most
BLOCK_REGISTERS = 32768  # elements of 32 bits that the registers of a block hold beside what its threads compute with
SM_REGISTERS = 65536  # registers of a multiprocessor
SCATTER_BYTES = 33792  # bytes of a scatter that a block combines in shared memory: several blocks then share an SM
SCATTERS_BYTES = 2 * SCATTER_BYTES  # bytes of several scatters of the same terms, which are then read once
VECTOR_BYTES = 16  # bytes of the widest access of a thread, and the alignment of the rows that copy units read


def held_registers(warps: int, parts: bool = False) -> int:
    """Registers of a thread for operands that stay in them, in a block of ``warps`` that has a multiprocessor alone.

    Eleven of sixteen, and seven where products split their operands in ``parts``: the others hold what the block
    computes.
    """
    return min(THREAD_REGISTERS + 1, SM_REGISTERS // (WARP * warps)) * (7 if parts else 11) // 16


def limits(target: str) -> Limits:
    """The limits of ``target``. Raises UnsupportedError."""
    found = find(target)
    if found is None:
        raise UnsupportedError(f"target {target}", f"known targets: {', '.join(TARGETS)}")
    return found.limits
