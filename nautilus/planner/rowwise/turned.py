"""Row-wise work on tensors that are contiguous along another axis than the rows.

A block that has one row of ``Y[j, i] = softmax[j](X[i, j])`` writes one element of each sector of ``Y``.  A block
therefore has as many rows as fill a sector of memory in every large tensor that is contiguous across the rows, whether
it is read or stored.  These rows are in registers, because a loop over them would read them several times in short
pieces.  Where there is no room for them, a kernel of its own has the definition that reads or stores the tensor.

Measured on an H200 with 4096 x 4096 f32 (us): one row 298, eight rows in registers 51, a loop over 32 rows 105.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod

from nautilus.core.expr.nodes import Expr, Var, free_vars
from nautilus.core.index.linear import moves_with
from nautilus.core.index.simplify import linear_in
from nautilus.core.schedule import KernelPlan
from nautilus.core.tiles import ceil_pow2, floor_pow2
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import GRID, LOOP, TILE
from nautilus.targets.limits import BLOCK_REGISTERS
from nautilus.targets.memory_rates import SECTOR

SHORT = 16  # elements of the shortest rows that have the rule
_NEAR = 128 << 10  # bytes of sectors that L1 holds beside others
SMALL = 8  # a tensor of less than 1 / SMALL of the largest one may be accessed in parts of sectors


def least_tiles(
    defs: Sequence[Def], kept: Collection[str], grid: Mapping[str, int], row: Mapping[str, int]
) -> dict[str, int]:
    """Elements of axes of ``grid`` that fill a sector of each tensor, where it is contiguous along them.

    ``grid`` and ``row``: extents of the axes of blocks and of rows; ``kept``: the definitions that stay in memory.
    """
    out: dict[str, int] = {}
    tensors = [(size, index, {x for e in index for x in free_vars(e)}) for size, index in _tensors(defs, kept)]
    extents = {**grid, **row}
    volumes = [size * prod(extents.get(x, 1) for x in axes) for size, _, axes in tensors]
    for (size, index, axes), volume in zip(tensors, volumes, strict=True):
        if prod(row[x] for x in axes & row.keys()) < SHORT or volume * SMALL < max(volumes):
            continue
        left = SECTOR // size
        for e in reversed(index):
            near = {x: form[0] for x in free_vars(e) & grid.keys() if (form := linear_in(e, x)) is not None}
            steps = [x for x, step in near.items() if step == 1]
            if left <= 1 or len(steps) != 1 or free_vars(e) & row.keys():
                break
            out[steps[0]] = max(out.get(steps[0], 1), min(left, ceil_pow2(grid[steps[0]])))
            left //= grid[steps[0]]
    return out


def sectors(defs: Sequence[Def], row: Mapping[str, int]) -> dict[str, int]:
    """Elements along axes of ``row`` that fill a sector, where large tensors are contiguous along different ones.

    Empty where all of them are contiguous along one axis.
    """
    found = contiguous(defs, row)
    return found if len(found) > 1 else {}


def contiguous(defs: Sequence[Def], row: Mapping[str, int]) -> dict[str, int]:
    """The axes of ``row`` along which large tensors are contiguous, and the elements along them that fill a sector."""
    names = {d.name for d in defs}
    reads = [ld for d in defs for ld in d.reads() if ld.buffer not in names and ld.index]
    volumes = [ld.dtype.bytes * prod(n for x, n in row.items() if x in free_vars(ld)) for ld in reads]
    out: dict[str, int] = {}
    for ld, volume in zip(reads, volumes, strict=True):
        near = [x for x in free_vars(ld.index[-1]) & row.keys() if moves_with(ld.index[-1], x)]
        if len(near) == 1 and volume * SMALL >= max(volumes):
            out[near[0]] = max(out.get(near[0], 1), min(SECTOR // ld.dtype.bytes, floor_pow2(row[near[0]])))
    return out


def turns_rows(defs: Sequence[Def], plan: KernelPlan) -> bool:
    """Whether a block of ``plan`` has a row of elementwise results that are contiguous from block to block."""
    roles = {a.name: a.role for a in plan.axes}
    found = [[roles[a.name] for a in d.par] for d in defs if not d.is_reduction]
    return any(x[-1:] == [GRID] and TILE in x for x in found)


def steps_across(defs: Sequence[Def], plan: KernelPlan) -> bool:
    """Whether a step of the loop of ``plan`` has one element of each of more sectors than L1 holds until the next step.

    The tensor is contiguous along the loop, and the tile has its other axes: each step reads the same sectors again.
    """
    steps = {a.name for a in plan.axes if a.role == LOOP and a.tile == 1}
    tile = {a.name: a.tile for a in plan.axes if a.role == TILE}
    for _, index in _tensors(defs, ()):
        inside = prod(n for x, n in tile.items() if any(x in free_vars(e) for e in index[:-1]))
        if index and isinstance(index[-1], Var) and index[-1].name in steps and inside * SECTOR > _NEAR:
            return True
    return False


def fits(defs: Sequence[Def], row: Mapping[str, int], tiles: Mapping[str, int]) -> bool:
    """Whether the registers of a block hold ``row`` for all rows of ``tiles``."""
    names = {d.name for d in defs}
    reads = (ld for d in defs for ld in d.reads() if ld.buffer not in names and free_vars(ld) & row.keys())
    volume = prod(map(ceil_pow2, row.values())) * prod(tiles.values())
    return volume <= BLOCK_REGISTERS // max(1, sum({ld.buffer: _words(ld) for ld in reads}.values()))


def _words(e: Expr) -> int:
    """Registers of an element."""
    return max(1, e.dtype.bytes // 4)


def _tensors(defs: Sequence[Def], kept: Collection[str]) -> Iterator[tuple[int, Sequence[Expr]]]:
    """Bytes of an element, and the index, of each access to memory."""
    names = {d.name for d in defs}
    for d in defs:
        if d.name in kept or d is defs[-1]:
            yield d.buffer.dtype.bytes, d.index
        yield from ((ld.dtype.bytes, ld.index) for ld in d.reads() if ld.buffer not in names)
