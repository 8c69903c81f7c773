"""Tiles of sums of products whose operands are all contiguous along one axis of the result.

A correlation volume and a matrix for each mode are such sums::

    Y[v, x] = sum[c](A[c, x] * B[c, x + v])          Y[b, o, x] = sum[c](A[b, c, x] * W[c, o, x])

No matrix has a contiguous side: matrix units would gather single elements, or a kernel before would store the operands
in another order.  Here lanes have neighbouring positions ``x``, and a thread has several results that share what it
loads in a step of the loop over ``c``:

* all displacements ``v``, up to :data:`SHIFTS`, at neighbouring positions, whose windows of ``B`` overlap
  (``share-windows``): 36 multiply-adds for 16 elements;
* else :data:`MEMBERS` results along an axis that each operand lacks.

Results along an axis that few of the operands have are warps of a block, which find what they share in L1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from nautilus.core.expr.nodes import Load, free_vars
from nautilus.core.index.linear import linear
from nautilus.core.schedule import AxisPlan, WarpPlan
from nautilus.core.tiles import ceil_pow2, floor_pow2
from nautilus.planner.rowwise.elementwise import WASTE, WASTE_BESIDE, fitting
from nautilus.scalar.analysis.contractions.dense import lanes_of, multiplies_lanes
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import GRID, LOOP
from nautilus.targets.limits import VECTOR_BYTES, WORD

SHIFTS = 16  # displacements of a thread
MOST_STEP = 4  # elements between displacements, at most: further apart their windows share few elements
TOGETHER = 4  # neighbouring positions of a thread, at most
HELD = 64  # results of a thread
MEMBERS = 4  # results of a thread along an axis that an operand lacks
LANES = 32  # positions of a block along the contiguous axis
THREADS = 128  # of a block
BLOCKS = 1056  # blocks at least: eight for each multiprocessor, so that all end at about the same time


def plan_of(
    defs: Sequence[Def], extents: Mapping[str, int], grid: Sequence[str], rest: Sequence[str]
) -> tuple[str, dict[str, AxisPlan], WarpPlan] | None:
    """The loop, the roles of axes and the mapping of such sums; None for any other kernel.

    ``grid``: axes with a block for each position; ``rest``: the others.
    """
    sums = [d for d in defs if d.is_reduction]
    found = {lanes_of(d) for d in sums}
    if len(rest) != 1 or len(found) != 1 or {a.name for d in sums for a in d.red} != {*rest}:
        return None
    lane = found.pop()
    if lane is None or lane not in grid or extents[lane] < LANES // 2:
        return None
    shifts = _shifts(sums, lane, extents)
    shared = shifts or (_members(sums, lane, extents) if all(map(multiplies_lanes, sums)) else {})
    if not shared or not {*shared} <= {*grid}:
        return None
    vec = max(1, min(TOGETHER, HELD // (len(sums) * prod(shared.values())))) if not shifts else TOGETHER
    tiles, threads = _block(defs[-1], lane, extents, shared, vec, () if shifts else tuple(shared))
    roles = {x: AxisPlan(x, GRID, tiles.get(x, 1)) for x in grid}
    roles[rest[0]] = AxisPlan(rest[0], LOOP, 1)
    warps = (1, max(1, threads // 32))
    width = max(ld.dtype.bytes for _, ld in _operands(sums))
    bytes_ = VECTOR_BYTES if shifts else max(WORD, vec * width)
    return rest[0], roles, WarpPlan(warps=warps, stages=1, epilogue="direct", vector_bytes=bytes_)


def _operands(sums: Sequence[Def]) -> Iterator[tuple[Def, Load]]:
    """The loads of terms of ``sums``."""
    for d in sums:
        red = {a.name for a in d.red}
        yield from ((d, ld) for ld in d.reads() if red <= free_vars(ld))


def _shifts(sums: Sequence[Def], lane: str, extents: Mapping[str, int]) -> dict[str, int]:
    """The displacements along ``lane`` of an operand, of which another one has none, with their tile."""
    read = [ld for _, ld in _operands(sums)]
    for ld in read:
        form = linear(ld.index[-1])
        moved = [
            x for x in free_vars(ld.index[-1]) if x != lane and 0 < abs(form.slope(x)) <= MOST_STEP and x in extents
        ]
        if len(moved) == 1 and any(moved[0] not in free_vars(other) for other in read):
            return {moved[0]: _whole(extents[moved[0]], SHIFTS)}
    return {}


def _members(sums: Sequence[Def], lane: str, extents: Mapping[str, int]) -> dict[str, int]:
    """For each operand the longest axis of the results that it lacks, with the results of a thread along it."""
    out = dict[str, int]()
    for d, ld in _operands(sums):
        lacking = [a.name for a in d.par if a.name not in free_vars(ld) and a.name != lane and extents[a.name] > 1]
        if lacking and not out.keys() & set(lacking):
            x = max(lacking, key=lambda x: extents[x])
            out[x] = min(MEMBERS, ceil_pow2(extents[x]))
    return out


def _whole(extent: int, most: int) -> int:
    """The tile of as few pieces of ``extent`` as have up to ``most`` elements each.

    Several pieces are about alike and begin at whole vectors.
    """
    pieces = -(-extent // most)
    each = -(-extent // pieces)
    return each if pieces == 1 else min(most, -(-each // TOGETHER) * TOGETHER)


def _block(
    last: Def, lane: str, extents: Mapping[str, int], shared: Mapping[str, int], vec: int, members: Sequence[str]
) -> tuple[dict[str, int], int]:
    """The tiles of a block, and its threads.

    ``shared``: the results of a thread that share operands; ``vec``: its positions along ``lane``; ``members``: axes
    along which other threads have more results.
    """
    tiles = {**shared, lane: fitting(extents[lane], LANES, LANES // 2, WASTE) or LANES}
    threads = max(1, tiles[lane] // vec)
    blocks = prod(-(-extents[a.name] // tiles.get(a.name, 1)) for a in last.par)
    others = [a.name for a in reversed(last.par) if a.name != lane]
    order = [*(x for x in others if x in members), *(x for x in others if x not in shared)]
    for x in order:
        room = min(THREADS // threads, max(1, 32 // threads, blocks // BLOCKS))
        before = tiles.get(x, 1)
        more = fitting(-(-extents[x] // before), floor_pow2(room), 1, WASTE if threads >= 32 else WASTE_BESIDE) or 1
        tiles[x] = before * more
        threads, blocks = threads * more, -(-blocks // more)
    return tiles, threads
