"""``pack-blocks``: blocks of one warp share a block of the launch, of which each has a warp.

A multiprocessor starts one block after another, so that a launch of a million blocks of one warp takes as long as their
starts do.  Updates of few rows of a large table, and other rows with few terms, have such blocks.  Each warp of a block
of the launch runs one block of the kernel instead::

    kernel k grid 1000000 warps 1 min_blocks 1 packed 8 {      ; 125,000 blocks of 256 threads

Warps of different blocks have nothing in common: the kernel has neither shared memory nor barriers, and its ops are
those that the threads of a warp do by themselves.  Elements of tensors say where the loops of its blocks end, so that
many of them are short; blocks of dense rows have enough to do, and stay as they are.

An update of 65,536 of a million rows of 32 elements takes 373 us on an H200, and 660 with blocks of one warp.  It is
done for :data:`STARTS` blocks or more.  Although a multiprocessor has only 32 blocks at a time, and room for twice as
many warps, fewer, longer blocks gain nothing: attention over the edges of 16,384 nodes takes 68 us packed by four and
61 without, and 8192 bags of embeddings 39 both ways.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.expr.nodes import Const, loads
from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.consumers import is_packable
from nautilus.ma_tile.ir.ops import MemKernel, MemModule
from nautilus.ma_tile.ir.traverse import each_kernel

WARPS = 8  # of a block of the launch
STARTS = 1 << 17  # blocks of a kernel whose starts take 80 us on an H200


@dataclass(frozen=True, slots=True)
class PackBlocks:
    """``least``: blocks of a kernel that are packed; None: :data:`STARTS`."""

    least: int | None = None
    name = "pack-blocks"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` with fewer, larger blocks in its launches."""
        least = STARTS if self.least is None else self.least
        return each_kernel(module, lambda k: _packed(k, least))


def _packed(k: MemKernel, least: int) -> MemKernel:
    if k.packed > 1 or not isinstance(k.blocks, Const) or k.blocks.value < least:
        return k
    if not is_packable(k) or not any(loads(e) for _, e in k.decode):
        return k
    return replace(k, packed=WARPS)
