"""Tiles of scatters: which terms a block and a thread have.

Atomic operations on one element run one after another, and terms that follow each other often have one key: segments
are sorted, and some keys are more frequent than others.  So a thread has :data:`RUN` terms that follow each other along
the axis of the keys, which it combines before it writes.  Lanes lie along the contiguous axis of the terms, so that the
elements of a warp are whole sectors of memory.  Terms without such an axis are read in vectors: those of bytes in whole
ones, and the general rule of elementwise kernels gives the tiles of others.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from nautilus.core.expr.nodes import free_vars, loads
from nautilus.core.index.sizes import at_most
from nautilus.core.tiles import ceil_pow2
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.passes.axes import scatter
from nautilus.targets.limits import SCATTER_BYTES, VECTOR_BYTES, WARP

RUN, SHORTEST_RUN = 16, 4  # terms of a thread
WARPS = 4  # warps of a block
BYTES = VECTOR_BYTES * WARP * WARPS  # terms of a block that are bytes
WIDE, EACH = 512, 8  # threads of a block, and terms of each, where blocks are few because elements are many
TERMS = 4  # terms of a block for each element that it combines (``block-scatters``)
BLOCKS = 512  # blocks with which a run is as long as possible: about four on each multiprocessor


def block_of(d: Def, fast: str | None, extents: Mapping[str, int]) -> tuple[dict[str, int], tuple[int, int]] | None:
    """Tiles of axes, and the warps along rows and columns, for the scatter ``d``; None where the general rule holds.

    ``fast``: the axis that is contiguous in memory.
    """
    keyed = {x for e in d.at or () for ld in loads(e) for i in ld.index for x in free_vars(i)}
    order = [a.name for a in d.par if a.name in keyed]
    if d.scatter is None or fast is None or not order:
        return None
    if fast in keyed:
        return _along_keys(d, fast, extents)
    columns = _columns(extents[fast])
    across = max(1, columns // 32)
    down = WARPS // across
    rows = down * max(1, 32 // columns)  # threads along the terms
    along = [x for x in reversed(order) if x in extents]
    others = prod(n for x, n in extents.items() if x not in (fast, *along))
    blocks, run = others * -(-extents[fast] // columns) * -(-prod(extents[x] for x in along) // rows), RUN
    while run > SHORTEST_RUN and blocks // run < BLOCKS:
        run //= 2
    tiles, room = {fast: columns}, run * rows
    for x in along:  # of short axes, a block has all elements and several positions of the axis before
        tiles[x] = min(room, ceil_pow2(extents[x]))
        room //= tiles[x]
    return tiles, (down, across)


def _along_keys(d: Def, fast: str, extents: Mapping[str, int]) -> tuple[dict[str, int], tuple[int, int]] | None:
    """The tiles of terms that are contiguous along their keys; None where the general rule holds."""
    reached = keyed_elements(d)
    count = prod(extents.values())
    in_block = len(extents) == 1 and reached * d.buffer.dtype.bytes <= SCATTER_BYTES
    in_block = in_block and count >= max(scatter.MANY, scatter.EACH * reached)
    if in_block and extents[fast] >= EACH * WIDE <= TERMS * reached and count < BLOCKS * TERMS * reached:
        return {fast: EACH * WIDE}, (1, WIDE // WARP)
    whole = extents[fast] >= BYTES and all(ld.dtype.bytes == 1 for ld in d.reads())
    return ({fast: BYTES}, (1, WARPS)) if whole else None


def keyed_elements(d: Def) -> int:
    """The elements that a term of the scatter ``d`` may reach, at most: those of dimensions from the first key on."""
    first = next((n for n, e in enumerate(d.index) if loads(e)), len(d.index))
    return prod(at_most(n) for n in d.buffer.shape[first:])


def _columns(extent: int) -> int:
    """Columns of a block: those of few idle lanes, then as many as possible."""
    if extent < 32:
        return ceil_pow2(extent)
    return min((128, 64, 32), key=lambda n: -(-extent // n) * n)
