"""Large operands, and values that take long to compute, that many results share.

An elementwise kernel with a large operand that lacks an axis of the result (the weights of a norm over images, a
position embedding) computes :data:`RESULTS` results along that axis for each element of the operand that it loads.  So
it does, for :data:`COMPUTED` results, with values of :data:`COSTLY` operations that lack an axis, such as the sine and
the cosine of an angle that all heads have.  Where such values lack an axis of :data:`COLOURS` elements, such as the
colours of a pixel, a thread has them all: lanes along a power of two would each compute what the colours share.  So it
does with colours of 8 bits that a large operand lacks.  Where the values take :data:`COSTLIER` operations, the operands
may be small, and a thread has the results along all such axes, as the elements of the factor of each of many matrices
of 3 x 3.

Where neighbouring results read one element that has more bytes than they have, as the eight codes of a word
``Q[k // 8, n]`` do, a thread has these results: it loads the word once, and has one scale for all of them.

Measured on an H200 (us): a norm of 16 images of 16 MB with weights of as many bytes, 275 in tiles of 16 images, 375
image by image; 8-bit colours of 2160 x 3840 pixels from one with two at half the size, 26 in tiles of 256 pixels and 3
colours, 65 in tiles of 1024 and 4; from a mosaic of colours 35 in tiles of 256 pixels, 46 in tiles of 512.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import gcd, prod

from nautilus.core.expr.nodes import Expr, Load, Op, children, free_vars, walk
from nautilus.core.functions import FUNCTIONS
from nautilus.core.index.groups import digits
from nautilus.core.records import dataclass
from nautilus.core.tiles import ceil_pow2
from nautilus.scalar.analysis.definitions import Def
from nautilus.targets.limits import VECTOR_BYTES

RESULTS = 16  # results for each element of a shared operand
COLOURS = 3
TOGETHER = 8  # vectors of results that read the same vectors
COMPUTED = 4  # results for each shared value, whose other operands are in registers
PIXELS = 256  # elements of a warp with colours of 8 bits, so that it has 64 pixels
WARP = 1024  # elements of a warp with a shared operand; with a shared value a thread has one vector of each result
LARGE = 4 << 20  # bytes of an operand that L1 does not keep, and L2 not for long
COSTLIER = 32  # issue slots of a value that takes longer than the sectors of which a thread stores a part
COSTLY = 20  # issue slots of a value that is computed once for several results


@dataclass(frozen=True, slots=True)
class Lacking:
    """The axis of an elementwise kernel that a shared operand lacks, and the results of a thread along it.

    ``warp``: the elements of a warp; ``beside``: other axes that a thread has whole, with their extents.
    """

    axis: str
    results: int
    warp: int
    beside: tuple[tuple[str, int], ...] = ()

    @property
    def axes(self) -> dict[str, int]:
        """The results of a thread along each axis."""
        return {self.axis: self.results, **dict(self.beside)}


def lacking_axis(defs: Sequence[Def], fast: str | None, grid: Mapping[str, int]) -> Lacking | None:
    """The axis that the largest shared operand lacks, or the costliest shared value; None where there are none.

    ``fast``: the axis that is contiguous in memory; ``grid``: the extents of the axes of the result.
    """
    names = {d.name for d in defs}
    found: dict[str, int] = {}
    for ld in (ld for d in defs for ld in d.reads() if ld.buffer not in names):
        axes = free_vars(ld)
        size = ld.dtype.bytes * prod(n for x, n in grid.items() if x in axes)
        if fast in axes and size >= LARGE:
            found |= {x: max(size, found.get(x, 0)) for x, n in grid.items() if x not in axes and n > 1}
    costs = {x: n for x, n in _costs(defs, fast, grid).items() if n >= COSTLY}
    if not found and (together := _together(defs, fast, grid)) is not None:
        return together
    if found:
        axis = max(found, key=lambda x: found[x])
        if grid[axis] == COLOURS and defs[-1].buffer.dtype.bytes == 1:
            return Lacking(axis, COLOURS, PIXELS)
        short = grid[axis] == COLOURS and axis in costs
        return Lacking(axis, COLOURS, WARP // 2) if short else Lacking(axis, min(RESULTS, ceil_pow2(grid[axis])), WARP)
    whole = [(x, grid[x]) for x, n in costs.items() if grid[x] == COLOURS and n >= COSTLIER]
    if whole:
        return Lacking(*whole[0], WARP // 2, tuple(whole[1:]))
    costs = {x: n for x, n in costs.items() if grid[x] != COLOURS}
    axis = max(costs, key=lambda x: costs[x], default="")
    bytes_ = max((ld.dtype.bytes for d in defs for ld in d.reads() if axis in free_vars(ld)), default=VECTOR_BYTES)
    return Lacking(axis, COMPUTED, 32 * COMPUTED * max(1, VECTOR_BYTES // bytes_)) if axis else None


def _together(defs: Sequence[Def], fast: str | None, grid: Mapping[str, int]) -> Lacking | None:
    """The axis along which most neighbouring results read one large element of an operand that ``fast`` is along."""
    names, found = {d.name for d in defs}, dict[str, int]()
    results, made = prod(grid.values()), max((d.buffer.dtype.bytes for d in defs), default=0)
    for ld in (ld for d in defs for ld in d.reads() if ld.buffer not in names):
        if fast in free_vars(ld) and ld.dtype.bytes > made and results * ld.dtype.bytes >= LARGE:
            shared = {x: _neighbours(ld, x) for x in grid if x != fast}
            found |= {x: min(n, found.get(x, TOGETHER)) for x, n in shared.items() if n > 1}
    axis = max(found, key=lambda x: found[x], default="")
    return Lacking(axis, found[axis], 32 * found[axis] * (VECTOR_BYTES // max(1, made))) if axis else None


def _neighbours(e: Load, axis: str) -> int:
    """How many neighbours along ``axis``, a power of two, read the same element as ``e``."""
    together = gcd(*(low for low, _ in digits(e, axis)))
    return max(1, together & -together)


def _costs(defs: Iterable[Def], fast: str | None, grid: Mapping[str, int]) -> dict[str, float]:
    """For each axis of :data:`COLOURS` elements or more, the issue slots of values with ``fast`` that lack the axis."""
    out: dict[str, float] = {}
    for x in (x for x, n in grid.items() if n >= COLOURS and x != fast):
        shared = {n for d in defs for e in without(d.value, x) if fast in free_vars(e) for n in walk(e)}
        out[x] = sum(FUNCTIONS[n.op].slots for n in shared if isinstance(n, Op) and n.dtype.is_float)
    return out


def without(e: Expr, axis: str) -> Iterator[Expr]:
    """The largest parts of ``e`` in which ``axis`` does not occur."""
    seen, todo = set[Expr](), [e]
    while todo:
        part = todo.pop()
        if part in seen:
            continue
        seen.add(part)
        if axis in free_vars(part):
            todo += children(part)
        else:
            yield part
