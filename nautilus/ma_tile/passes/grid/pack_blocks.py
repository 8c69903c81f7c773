"""``pack-blocks``: blocks of one warp share a block of the launch, of which each has a warp.

A multiprocessor has at most 32 blocks at a time and starts one block after another, so blocks of one warp leave half
of its warps empty, and a launch of a million of them takes as long as their starts do.  Rows of sparse matrices, bags
of embeddings and updates of few rows of a table have such blocks.  Each of the :data:`FEW` warps of a block of the
launch runs one block of the kernel, or :data:`MANY` where there are :data:`STARTS` blocks or more::

    kernel k grid 1000000 warps 1 min_blocks 1 packed 8 {      ; 125,000 blocks of 256 threads

Elements of tensors say where the loops of such a block end, so that it mostly waits.  Blocks of dense rows have enough
to do: they stay as they are.
Warps of different blocks have nothing in common: the kernel has neither shared memory nor barriers, and its ops are
those that the threads of a warp do by themselves.  It has :data:`LEAST` blocks or more, since fewer, longer blocks are
spread less evenly over the multiprocessors.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.expr.nodes import Const, loads
from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.consumers import is_packable
from nautilus.ma_tile.ir.ops import MemKernel, MemModule
from nautilus.ma_tile.ir.traverse import each_kernel
from nautilus.targets.limits import limits

FEW, MANY = 4, 8  # warps of a block of the launch
STARTS = 1 << 17  # blocks whose starts take 80 us on an H200
LEAST = 32  # blocks of a kernel for each multiprocessor, as many as it has at a time


@dataclass(frozen=True, slots=True)
class PackBlocks:
    """``least``: blocks of a kernel that are packed, for each multiprocessor; None: :data:`LEAST`."""

    least: int | None = None
    name = "pack-blocks"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` with fewer, larger blocks in its launches."""
        least = (LEAST if self.least is None else self.least) * limits(module.target).multiprocessors
        return each_kernel(module, lambda k: _packed(k, least))


def _packed(k: MemKernel, least: int) -> MemKernel:
    if k.packed > 1 or not isinstance(k.blocks, Const) or k.blocks.value < least:
        return k
    if not is_packable(k) or not any(loads(e) for _, e in k.decode):
        return k
    return replace(k, packed=MANY if k.blocks.value >= STARTS else FEW)
