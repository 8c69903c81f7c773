"""Tiles of sums of displaced elements over groups of positions (``flatten-positions``)::

    D[c, r] = sum[z, v | ...](X[z // 7, z % 7 * 8 + v + r - 1, c] * G[z // 7, z % 7 * 8 + v, c])

A thread has the positions ``v`` of a group and the results of several taps ``r``, so that it loads the elements of
their windows once (``share-windows``), and it has few elements along the axis that is contiguous in all operands, where
that is one of the results.  The loop is over ``z``: other threads of a block have other groups, and their results meet
after the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nautilus.core.expr.nodes import Load, Var, free_vars
from nautilus.core.index.linear import linear
from nautilus.core.index.sizes import at_most
from nautilus.core.records import dataclass
from nautilus.core.schedule import AxisPlan, WarpPlan
from nautilus.core.tiles import ceil_pow2
from nautilus.planner.rowwise.elementwise import WASTE, fitting
from nautilus.scalar.analysis.definitions import Def, points
from nautilus.scalar.analysis.derived_names import GRID, LOOP, TILE
from nautilus.scalar.passes.positions.flatten_positions import GROUP, LEAST
from nautilus.targets.limits import VECTOR_BYTES, WARP

HELD = 64  # results of a thread
TAPS = 16  # results of a thread along an axis of taps
WARPS = 4  # of a block
LANES = 4  # rows of lanes of a warp, at most, whose groups differ: fewer lanes along results fill no sectors


def plan_of(
    defs: Sequence[Def], extents: Mapping[str, int], grid: Sequence[str], rest: Sequence[str]
) -> tuple[str, dict[str, AxisPlan], WarpPlan] | None:
    """The loop, the roles of axes and the mapping of such a sum; None for any other kernel.

    ``grid``: axes with a block for each position; ``rest``: the others.
    """
    form = _form(defs, extents)
    if form is None or {*form.axes} != {*rest} or not {*form.taps} <= {*grid}:
        return None
    found, taps, (loop, group) = form.found, form.taps, form.axes
    lane = _lane(found, grid)
    width = max(ld.dtype.bytes for ld in found)
    vec = 1 if lane is None else _vector(width, extents[lane])
    tiles = dict[str, int]()
    room = HELD // vec
    for x in taps:  # the nearest in memory first
        tiles[x] = _whole(extents[x], min(room, TAPS))
        room //= tiles[x]
    across = 1
    if lane is not None:
        count = -(-extents[lane] // vec)
        most = min(WARP, ceil_pow2(count))
        across = fitting(count, most, min(WARP // LANES, most), WASTE) or WARP // LANES
        tiles[lane] = across * vec
    bytes_ = VECTOR_BYTES if lane is None else vec * width
    step = min(WARP // across * WARPS, ceil_pow2(extents[loop]))
    warps = max(1, across * step // WARP)
    roles = {x: AxisPlan(x, GRID, tiles.get(x, 1)) for x in grid}
    roles |= {loop: AxisPlan(loop, LOOP, step), group: AxisPlan(group, TILE, extents[group])}
    return loop, roles, WarpPlan(warps=(1, warps), stages=1, epilogue="direct", vector_bytes=bytes_)


def is_displaced(defs: Sequence[Def]) -> bool:
    """Whether ``defs`` are one such sum, whose threads hold so much that others have to fill their waits."""
    return _form(defs, {a.name: at_most(a.extent) for d in defs for a in d.axes}) is not None


@dataclass(frozen=True, slots=True)
class _Form:
    """The operands, the taps, and the axes of groups and of the positions of a group."""

    found: tuple[Load, ...]
    taps: tuple[str, ...]
    axes: tuple[str, str]


def _form(defs: Sequence[Def], extents: Mapping[str, int]) -> _Form | None:
    """The only sum of ``defs``, if it is such a sum."""
    sums = [d for d in defs if d.is_reduction]
    if len(sums) != 1 or len(sums[0].red) != 2 or points(sums[0].red) < LEAST:
        return None
    d, (group, loop) = sums[0], sorted((a.name for a in sums[0].red), key=lambda x: extents[x])
    found = tuple(ld for ld in d.reads() if ld.index and {group, loop} <= free_vars(ld))
    together = any({group, loop} <= free_vars(e) for ld in found for e in ld.index)
    taps = _taps(d, group, found, extents)
    return _Form(found, tuple(taps), (loop, group)) if taps and together and extents[group] <= GROUP else None


def _taps(d: Def, group: str, found: Sequence[Load], extents: Mapping[str, int]) -> list[str]:
    """The axes of results that displace an operand and that another one lacks; those beside ``group`` come first."""
    out = dict[str, bool]()
    par = [a.name for a in d.par]
    for e in (e for ld in found for e in ld.index):
        form = linear(e)
        for x in par:
            if form.slope(x) and len(free_vars(e)) > 1 and any(x not in free_vars(o) for o in found):
                out[x] = out.get(x, False) or bool(form.slope(group))
    near = [x for x in out if out[x]]
    others = sorted((x for x in out if not out[x]), key=par.index, reverse=True)
    return [*near, *others] if len(near) == 1 and extents[near[0]] > 1 else []


def _lane(found: Sequence[Load], grid: Sequence[str]) -> str | None:
    """The axis of results along which all operands are contiguous; None where there is none."""
    last = {ld.index[-1].name if isinstance(ld.index[-1], Var) else "" for ld in found}
    return last.pop() if len(last) == 1 and last <= {*grid} else None


def _vector(width: int, extent: int) -> int:
    """Elements of a thread along the axis of lanes."""
    return max(1, min(VECTOR_BYTES // 2 // width, extent & -extent))


def _whole(extent: int, most: int) -> int:
    """The tile of as few pieces of ``extent`` as have up to ``most`` elements each."""
    return -(-extent // -(-extent // max(1, most)))
