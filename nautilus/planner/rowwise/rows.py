"""Rows of a reduction: long ones that more than one pass reads, and those that are read at positions in memory.

A softmax or a norm reads its row again after a reduction over it.  A second read from memory costs as much as the
first, so there are two rules for rows of more than :data:`MAX_ROW` elements:

* A row of up to :data:`BLOCK_REGISTERS` elements is one tile, with 64 elements a thread.  Each operand along the row
  takes its share of these registers.  The tile is a power of two; a row that leaves much of it unused
  (:data:`WASTE`) is a loop.
* A loop over a longer row finds its operands in L2 again only if the rows of all resident blocks fit there together.
  Blocks have one warp for each 8 KB of their row, so that few large blocks share a multiprocessor.  Where each step
  of :data:`MANY_ROWS` rows ends more than :data:`FEW_SUMS` reductions, blocks are small, for warps wait for each other
  in each of them.

Measured on an H200 with f32 rows (us; tile against a loop in steps of 4096): 16384 elements 131 and 199 (floor 126),
32768 elements 263 and 396 (floor 253).  Loops in steps of 16384 against 4096: 65536 elements and three passes 193 and
269, two passes 765 and 794.  Five reductions over two rows of 32000 and of 50257 elements of 16 bits, steps of 8192
against 4096: 430 and 315, 612 and 506.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from nautilus.core.expr.nodes import Load, free_vars, loads
from nautilus.core.index.sizes import nominal
from nautilus.core.tiles import ceil_pow2, floor_pow2
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.targets.limits import BLOCK_REGISTERS

MAX_ROW = 8192  # elements of a row that is one tile under the general rule
THREAD = 64  # elements of such a row in one thread
WARP = 1024  # elements that a warp reads in one step of a loop
ROW_BYTES = 8192  # bytes of a row for each warp of its block
MIN_WARPS, MAX_WARPS = 4, 16
WARP_OF_BYTES = 4096  # elements of 8 bits that a warp reads for one sum: 1024 take 21.0 us, 2048 19.2, 4096 18.5 (H200)
FEW_SUMS = 2  # reductions along a row: a softmax has a maximum and a sum
MANY_ROWS = 512  # rows whose small blocks fill the GPU
WASTE = 8  # at most 1 / WASTE of a tile is unused
GATHERED = 1024  # elements of a block whose rows are read at positions in memory


def block(defs: Sequence[Def], most: int) -> int:
    """The elements of a block, ``most`` at most."""
    sums = [d for d in defs if d.red]
    return min(most, GATHERED) if any(_is_gathered(ld, d) for d in sums for ld in d.reads()) else most


def _is_gathered(ld: Load, d: Def) -> bool:
    """Whether ``ld`` reads the row of a result of ``d`` at positions in memory, one for each element of a reduction."""
    over, results = {a.name for a in d.red}, {a.name for a in d.par}
    before = {x for e in ld.index[:-1] for x in free_vars(e)}
    here = bool(ld.index) and any(loads(ld.index[-1])) and bool(free_vars(ld.index[-1]) & over)
    return here and bool(before & results) and not before & over


def fits(defs: Sequence[Def], row: Mapping[str, int]) -> bool:
    """Whether a row of the axes ``row`` (name -> extent), longer than the general rule allows, fits in registers."""
    tile, used = prod(map(ceil_pow2, row.values())), prod(row.values())
    return MAX_ROW < tile <= BLOCK_REGISTERS // max(1, len(operands(defs, row))) and fills(used, tile)


def fills(used: int, tile: int) -> bool:
    """Whether tiles of ``tile`` elements in all leave little unused."""
    return (tile - used) * WASTE <= tile


def warps(tile: int) -> int:
    """Warps of a block with a row of ``tile`` elements in registers."""
    return tile // (32 * THREAD)


def step(defs: Sequence[Def], axis: str, extent: int, each: int) -> int:
    """Elements of a row in one step of the loop over ``axis``, which is run several times; 0: as the general rule.

    ``each``: elements of the row at one position of the loop.
    """
    sums = [d for d in defs if d.is_reduction and any(a.name == axis for a in d.red)]
    many = len(sums) > FEW_SUMS and all(prod(nominal(a.extent) for a in d.par) >= MANY_ROWS for d in sums)
    if extent * each <= MAX_ROW or many:
        return 0
    size = sum(operands(defs, [axis]).values()) * extent * each
    most = max(MIN_WARPS, min(MAX_WARPS, floor_pow2(max(1, size // ROW_BYTES))))
    while most > MIN_WARPS:
        tile = max(1, most * WARP // each)
        if fills(extent, -(-extent // tile) * tile):
            return most * WARP
        most //= 2
    return 0


def operands(defs: Sequence[Def], row: Iterable[str]) -> dict[str, int]:
    """Bytes of an element of every tensor that ``defs`` read along ``row`` from memory."""
    names = {d.name for d in defs}
    found: dict[str, int] = {}
    for d in defs:
        along = {a.name for a in d.axes} & set(row)
        found |= {ld.buffer: ld.dtype.bytes for ld in d.reads() if along and ld.buffer not in names}
    return found


def streams_bytes(defs: Sequence[Def]) -> bool:
    """Whether ``defs`` sum products along rows of one tensor of 8-bit elements, of which each is read once."""
    sums = [d for d in defs if d.is_reduction]
    if len(sums) != 1 or sums[0].op != "sum" or {a.name for a in sums[0].red} & {a.name for d in defs for a in d.par}:
        return False
    every = {a.name for a in sums[0].axes}
    read = [ld for ld in sums[0].reads() if free_vars(ld) >= every]
    others = [ld for ld in sums[0].reads() if ld not in read]
    return len(read) == 1 and bool(others) and read[0].dtype.bytes == 1 and read[0].dtype is not DType.BOOL
