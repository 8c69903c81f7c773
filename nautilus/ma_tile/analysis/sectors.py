"""How many sectors of global memory one access of a warp touches, and how many of them it covers in part.

Memory moves whole sectors of 32 bytes.  A store to a part of a sector takes several times as long as one to the whole
sector, and a load of a part moves the rest as well.  One access is that of 32 lanes with ``vec`` elements each.

Where the access starts in a sector may depend on the tile, on the registers and, if rows are no multiples of sectors,
on the row.  The numbers are then averages over all places at which it may start.  An element whose place is read from a
tile counts as alone in its sector, unless it is known where that value comes from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

from nautilus.core.buffers import Buffer
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Expr, Load, Ref, Var, free_vars, walk
from nautilus.core.index.simplify import divisor
from nautilus.core.index.sizes import nominal
from nautilus.core.numerics import distinct, run_starts
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity, first_equal
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.access import offset
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.targets.limits import VECTOR_BYTES, WARP
from nautilus.targets.memory_rates import SECTOR

#: value name -> index expressions over tile axes: where these are equal, elements of the value are equal
Places = Mapping[str, tuple[Expr, ...]]
LINE = 128  # bytes of a line of L1: neighbouring sectors that one access of a warp finds in a step
ENDS = 3.0  # parts of sectors of a row in aligned vectors: half of one at each end of these, and the rest at each end
_STEP_BITS = 56  # bits of numbers of lines
_APART = 1 << 12  # elements between two elements whose place is not known, where so many are in a row
_SPREAD = 2654435761  # numbers times this one, modulo a smaller extent, are about evenly spread (Knuth, 6.4)


@dataclass(frozen=True, slots=True)
class Sectors:
    """Averages of one access of a warp: sectors ``touched``, of these those covered in ``part``, and ``lines``.

    ``finds``: lines in each step in which L1 finds them, of which several steps may find the same.  ``size``: bytes
    that the warp needs.
    """

    touched: float
    part: float
    lines: float
    finds: float
    size: int

    @property
    def waste(self) -> float:
        """Bytes of the sectors, as a multiple of the bytes that the warp needs."""
        return self.touched * SECTOR / max(1, self.size)


def sectors(
    buffer: Buffer, index: tuple[Expr, ...], layout: FragLayout, vec: int, known: Places | None = None
) -> Sectors:
    """The sectors of one access of the elements at ``index``, ``vec`` registers of every lane at a time.

    ``known``: for values in ``index``, expressions that are equal where they are, if values are not to count as
    different in every element.
    """
    if known is None:
        return _alone(buffer if not index or _chosen(index[0]) else _of_any_length(buffer), index, layout, vec)
    return _counted(buffer, index, layout, vec, known)


@by_identity(256)
def _of_any_length(buffer: Buffer) -> Buffer:
    """One object for all buffers that differ in their first extent alone, which no stride depends on."""
    return first_equal(replace(buffer, shape=(1, *buffer.shape[1:]), view_of=None))


@by_identity(1024)  # the cost model asks for the same access at many places and sizes
def _alone(buffer: Buffer, index: tuple[Expr, ...], layout: FragLayout, vec: int) -> Sectors:
    return _counted(buffer, index, layout, vec, None)


def _counted(buffer: Buffer, index: tuple[Expr, ...], layout: FragLayout, vec: int, known: Places | None) -> Sectors:
    size = buffer.dtype.bytes
    lanes = FragLayout(_cut(layout, vec)[0], layout.lane, ())
    each = max(1, SECTOR // size)
    step = gcd(each, _step(buffer, index, layout, vec))
    positions, before = list[tuple[Expr, int, int]](), 0
    for n, e in enumerate(index):
        if free_vars(e).isdisjoint(layout.axes) and not _chosen(e):
            before += int(_at(e, {}).flat[0]) * nominal(buffer.stride(n))
        else:
            extent = nominal(buffer.shape[n]) if _chosen(e) else 0  # which matters for no other position
            positions.append((e, nominal(buffer.stride(n)), extent))
    names = {x.name for e, _, _ in positions for x in _chosen(e) if isinstance(x, Ref)}
    places = None if known is None else tuple((name, known[name]) for name in sorted(names))
    return _averages(tuple(positions), before % (LINE // size), lanes, places, size, vec, step)


@lru_cache(maxsize=1024)  # most accesses are alike at all sizes, and in all iterations of an unrolled loop
def _averages(
    positions: tuple[tuple[Expr, int, int], ...], before: int, lanes: FragLayout,
    known: tuple[tuple[str, tuple[Expr, ...]], ...] | None, size: int, vec: int, step: int,
) -> Sectors:  # fmt: skip
    """The averages for elements of ``size`` bytes, which may start at every multiple of ``step`` in a sector.

    ``positions``: those that depend on the element, with their strides and, where they are read from memory or a tile,
    the extents of their dimensions; ``before``: elements from a line to the others.
    """
    elements = _places(positions, lanes, None if known is None else dict(known)) + before
    places = distinct(elements)
    number = np.repeat(_steps(vec * size), elements.size // WARP) if elements.size % WARP == 0 else 0
    each = max(1, SECTOR // size)
    starts = range(0, each, step)
    touched = part = lines = finds = 0
    for start in starts:
        counts = np.diff(run_starts((places + start) // each), append=len(places))
        touched += len(counts)
        part += int((counts < each).sum())
        lines += len(run_starts((places + start) // (LINE // size)))
        finds += len(distinct((elements + start) // (LINE // size) + number))
    n = len(starts)
    return Sectors(touched / n, part / n, lines / n, finds / n, len(places) * size)


def _steps(width: int) -> NDArray[np.int64]:
    """The step in which an access finds the line of each lane: a step moves at most the bytes of a line.

    Lanes of ``width`` bytes find a line again that they share with lanes of an earlier step.  Vectors have at most
    :data:`VECTOR_BYTES` bytes; more is no single access.
    """
    steps = max(1, WARP * width // LINE) if width <= VECTOR_BYTES else 1
    return (np.arange(WARP) * steps // WARP) << _STEP_BITS


def _cut(layout: FragLayout, vec: int) -> tuple[tuple[Mode, ...], tuple[Mode, ...]]:
    """The register modes of one access, and those between accesses."""
    inside, between = list[Mode](), list[Mode]()
    for m in layout.reg:
        take = min(m.size, vec)
        inside.append(Mode(take, m.axis, m.stride))
        between.append(Mode(m.size // take, m.axis, m.stride * take))
        vec = max(1, vec // m.size)
    return tuple(inside), tuple(between)


def _places(
    positions: Sequence[tuple[Expr, int, int]], layout: FragLayout, known: Places | None
) -> NDArray[np.int64]:  # fmt: skip
    """The element offsets of the lanes and registers of ``layout``, of the first warp at the first tile."""
    axes = layout.axes
    at: dict[str, NDArray[np.int64]] = {a: layout.coords(a).reshape(-1) for a in axes}
    threads = np.arange(at[axes[0]].size if axes else 1)
    total = np.zeros_like(threads)
    for e, stride, extent in positions:
        if chosen := _chosen(e):
            numbers = threads if known is None else _numbers(chosen, known, at)
            found = numbers * _APART + (0 if known is None else _at(e, at))
            found = found if extent >= _APART else numbers * _SPREAD % max(1, extent)
        else:
            found = _at(e, at)
        total = total + found * stride
    return np.asarray(total).reshape(-1)


def _chosen(e: Expr) -> list[Ref | Load]:
    """What in ``e`` is read from memory or from a tile."""
    return [x for x in walk(e) if isinstance(x, Ref | Load)]


def _at(e: Expr, at: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """``e`` at the coordinates ``at``, and at 0 of all other variables."""
    return np.asarray(evaluate(e, {**dict.fromkeys(free_vars(e), np.zeros(1, np.int64)), **at}, _unknown), np.int64)


def _numbers(chosen: list[Ref | Load], known: Places, at: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """A number for each element, which is equal where the values ``chosen`` are those of one place."""
    out = np.zeros(1, np.int64)
    for e in dict.fromkeys(e for x in chosen for e in (x.index if isinstance(x, Load) else known[x.name])):
        place = _at(e, at)
        out = out * (int(place.max()) + 1) + place
    return out


def _unknown(e: Expr) -> NDArray[np.generic]:
    """A value of the kind of ``e``, because numpy has no difference of two booleans: true, or the integer 0."""
    return np.asarray(True) if e.dtype is DType.BOOL else np.zeros((), np.int64)


def _step(buffer: Buffer, index: tuple[Expr, ...], layout: FragLayout, vec: int) -> int:
    """A number of elements that divides every move of an access along registers, warps, tiles and unknown terms."""
    form = offset(buffer, index)
    moves: Mapping[str, int] = {a: form.slope(a) for a in layout.axes}
    others = [m for m in (*_cut(layout, vec)[1], *layout.warp) if m.axis is not None and m.size > 1]
    out = gcd(form.const, *(moves[m.axis] * m.stride for m in others if m.axis is not None))
    for term, c in form.terms.items():
        if not (isinstance(term, Var) and term.name in moves):
            out = gcd(out, c * divisor(term))
    return out or max(1, SECTOR // buffer.dtype.bytes)
