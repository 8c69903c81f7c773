"""What the layouts of tiles (:mod:`nautilus.ma_tile.lowering.layouts`) cost: the global accesses along each axis.

* Elements of a load or store that is contiguous along an axis are moved by vectors, or by neighbouring lanes.
* Neighbouring windows, ``X[x + r]``, share elements: a thread has several along an axis, and loads each element once
  (``share-windows``), where each position is at most a term away from the next one.  A thread has one window where
  another load, such as that of a band ``D[x, r]``, has the positions as columns, because neighbouring lanes would read
  more lines of L1, and where much is computed of the positions alone, such as how many terms a window has, because more
  threads would repeat it.
* Displacements ``v`` of a product ``A[x] * B[x + v]`` are terms of windows too, which no axis reduces: a thread has all
  of them, so that it loads each element of both operands once.
* Tiles in shared memory (:mod:`.shared_tiles`) have any order there, so that their accesses do not count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import prod

from nautilus.core.buffers import Buffer
from nautilus.core.expr.nodes import Expr, Ref, free_vars, walk
from nautilus.core.functions import FUNCTIONS
from nautilus.core.index.linear import Linear, linear, linear_parts
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileType
from nautilus.ma_tile.analysis.access import (
    RefAxes,
    affine,
    contiguous_axis,
    offset,
    repeated_width,
    vector_width,
)
from nautilus.ma_tile.analysis.sectors import LINE
from nautilus.ma_tile.lowering.dots import DotPlan
from nautilus.targets.limits import WORD
from nautilus.vr_tile.ir import (
    DotOp,
    ForOp,
    IndexOp,
    LoadOp,
    MapOp,
    ReduceOp,
    ScanOp,
    StoreOp,
    TileKernel,
    results,
    walk_ops,
)

_STORES = 4  # the weight of a store beside a load: L1 keeps what is left of a sector that is read, and not written
COSTLY = 16  # issue slots of an operation that threads should not repeat
MOST_SHIFTS = 16  # displacements of a product of which a thread has all
MOST_SLIDING = 8  # neighbouring windows of a thread along contiguous elements
#: a thread has several windows if elements that are computed of positions alone are at most 1 / REPEATED of theirs
REPEATED = 16
OVERLAPPING = 8  # positions that windows further apart than their terms step over, at least, so that most are shared
SHARED = 16  # lanes along the columns of tiles in shared memory, so that a thread has several of their rows
_STEP = 4  # elements between the windows of neighbouring lanes; further apart they share few sectors


@dataclass(frozen=True, slots=True)
class LayoutCost:
    """Cost data of the global accesses of a kernel, by axis."""

    weight: Mapping[str, int]  # elements moved with the axis contiguous
    vec: Mapping[str, int]  # widest legal vector along the axis
    loaded: Mapping[str, int]  # the same, without elements that several positions share
    tiles: tuple[tuple[str, ...], ...]  # axes of every tile
    keyed: frozenset[str] = frozenset()  # axes of the values that say where a scatter combines
    bytes: frozenset[str] = frozenset()  # axes along which whole registers of 8-bit floats are loaded
    costly: frozenset[frozenset[str]] = frozenset()  # axes of the tiles that take long to compute
    sharing: frozenset[str] = frozenset()  # axes that a load has not, if all terms are contiguous along reduced axes
    lanes: int = 32  # most lanes along the columns
    terms: frozenset[str] = frozenset()  # axes that are reduced and that all tiles beside those in shared memory have
    sliding: frozenset[str] = frozenset()  # positions of windows that are in registers
    shifts: frozenset[str] = frozenset()  # displacements of products, of which a thread has all


def collect(
    kernel: TileKernel, buffers: Mapping[str, Buffer], refs: RefAxes, vector_bytes: int, dots: Mapping[str, DotPlan],
    shared: Collection[str] = frozenset(),
) -> LayoutCost:  # fmt: skip
    """Cost data of every load and store of ``kernel``; ``shared``: the loads whose tiles are in shared memory.

    Of the axes of a window (``X[2 * x + r]``) the kept one counts, unless a vector holds the reduced one: lanes along a
    reduced axis exchange values.  Neighbouring lanes then read neighbouring windows, so it has no vectors.
    Where neighbours along an axis are a few elements apart in memory (``X[j, 0]`` and ``X[j, 1]``), vectors along it
    have one register at most: each instruction of a longer one would touch as many lines of L1 as it has elements.

    A store weighs more than a load, unless positions along another axis share elements of loads: a thread with these
    positions has them from one load, and the results go through shared memory.  Without products, stores of whole
    vectors limit the width to theirs.  With more elements in a thread, neighbouring lanes would write every other 16
    bytes, which are halves of the 32-byte sectors of memory; a load of such halves finds the others in L1.
    """
    weight, stores, vec = dict[str, int](), dict[str, int](), dict[str, int]()
    # narrowest whole vectors of stores and of shared elements; widest ones along axes of loads a few elements apart
    whole, repeated, apart = dict[str, int](), dict[str, int](), dict[str, int]()
    reduced = {x for op in walk_ops(kernel.body) if isinstance(op, ReduceOp) for x in op.axes}
    shifts = frozenset[str]() if dots else _shifts(kernel, reduced)
    stepped = _stepped(kernel, buffers, refs, 0 if dots else vector_bytes)
    windows, words = set(stepped), set[str]()
    sliding = set[str]() if dots else _positions(kernel, buffers, reduced | shifts) - stepped
    for op in walk_ops(kernel.body):
        if not isinstance(op, LoadOp | StoreOp):
            continue
        type_, buffer = op.result.type if isinstance(op, LoadOp) else op.value.type, buffers[op.buffer]
        axis = contiguous_axis(buffer, op.index, type_.names, refs)
        limit = max(1, _widest(kernel, axis, vector_bytes) // buffer.dtype.bytes)
        if axis is None and isinstance(op, LoadOp):
            strided = _strided(offset(buffer, op.index), type_.names, buffer.dtype.bytes)
            apart |= {x: min(n, apart.get(x, n)) for x, n in strided.items()}
            for x, run in _shared_run(op, buffer, [x for x in type_.names if x not in reduced], limit, refs):
                weight[x] = weight.get(x, 0) + prod(type_.shape) * buffer.dtype.bytes
                repeated[x] = min(repeated.get(x, run), run)
        apart_rows = isinstance(op, LoadOp) and bool(shared) and axis in reduced  # lanes have neighbouring rows
        windows |= set(type_.names) - reduced if apart_rows else set()
        if axis is None or apart_rows:
            continue
        width = vector_width(buffer, op.index, op.mask, axis, limit, refs)
        if axis in reduced | shifts and width < dict(zip(type_.names, type_.shape, strict=True))[axis]:
            kept = _beside(op.index, axis, [x for x in type_.names if x not in reduced | shifts])
            windows, axis = windows | ({kept} if kept else set()), kept or axis
        words |= {axis} if isinstance(op, LoadOp) and not dots and buffer.dtype.is_float8 and width >= WORD else set()
        moved = stores if isinstance(op, StoreOp) else weight
        moved[axis] = moved.get(axis, 0) + prod(type_.shape) * buffer.dtype.bytes
        vec[axis] = max(vec.get(axis, 1), width)
        if isinstance(op, StoreOp) and not dots and width == limit > (2 if buffer.dtype.bytes <= WORD else 1):
            whole[axis] = min(width, whole.get(axis, width))
    loaded, vec = vec, vec | {x: max(n, vec.get(x, 1)) for x, n in repeated.items()}
    weight |= {x: weight.get(x, 0) + n * (1 if dots or repeated.keys() - {x} else _STORES) for x, n in stores.items()}
    narrow = ({} if dots else apart) | dict.fromkeys(windows, 1)
    vec = {x: min(v, narrow.get(x, whole.get(x, v))) for x, v in vec.items()}
    sliding |= (own := {a.name: a.size for a in kernel.axes if a.name in shifts & reduced and a.name in vec}).keys()
    return LayoutCost(
        weight, _held(vec, sliding, windows, vector_bytes // WORD, bool(shifts)) | own, loaded, _tiles(kernel, dots),
        _keyed(kernel, refs), frozenset(words), _costly(kernel), _sharing(kernel, buffers, refs, reduced),
        SHARED if shared else 32, _terms(kernel, reduced) if shared else frozenset(), frozenset(sliding), shifts,
    )  # fmt: skip


def _widest(kernel: TileKernel, axis: str | None, vector_bytes: int) -> int:
    """The bytes of the widest vector along ``axis``.

    Across the steps of a recurrence, lanes have a word each: fewer lanes along the steps exchange their maps.  The
    steps are also those of scans whose results they read.
    """
    scans = [op for op in walk_ops(kernel.body) if isinstance(op, ScanOp)]
    steps = {op.axis for op in scans if op.into == op.axis}
    steps |= {op.axis for op in scans if op.into in steps}
    return min(vector_bytes, WORD) if steps and axis is not None and axis not in steps else vector_bytes


def _held(
    vec: Mapping[str, int], sliding: Collection[str], windows: Collection[str], held: int, shifts: bool
) -> dict[str, int]:
    """``vec`` with the neighbouring windows of a thread along the axes ``sliding``, up to ``held``.

    ``windows``: those without vectors; ``shifts``: a thread has the results of all displacements at each position.
    """
    found = {x: min(held, MOST_SLIDING) for x in vec if x in sliding and x in windows}
    return {**vec, **found, **({x: min(held, n) for x, n in vec.items() if x in sliding} if shifts else {})}


def _tiles(kernel: TileKernel, dots: Mapping[str, DotPlan]) -> tuple[tuple[str, ...], ...]:
    """The axes of every tile of ``kernel``."""
    tiles: dict[tuple[str, ...], None] = {}
    for op in walk_ops(kernel.body):
        tiles |= dict.fromkeys(value.type.names for value in results(op))
        if isinstance(op, DotOp) and dots[op.result.name].instr == "map":
            tiles[tuple(dict.fromkeys((*op.a.type.names, *op.b.type.names)))] = None
    return tuple(tiles)


def _keyed(kernel: TileKernel, refs: RefAxes) -> frozenset[str]:
    """The axes of the values that say where a scatter combines."""
    stores = (op for op in walk_ops(kernel.body) if isinstance(op, StoreOp) and op.combiner is not None)
    keys = (n for op in stores for e in op.index for n in walk(e) if isinstance(n, Ref))
    return frozenset(x for n in keys for x in refs.get(n.name, ()))


def _terms(kernel: TileKernel, reduced: Collection[str]) -> frozenset[str]:
    """The axes among ``reduced`` that all loads of more than a vector have."""
    held = [op.result.type.names for op in walk_ops(kernel.body) if isinstance(op, LoadOp)]
    return frozenset(reduced).intersection(*(names for names in held if len(names) > 1))


def _stepped(kernel: TileKernel, buffers: Mapping[str, Buffer], refs: RefAxes, vector_bytes: int) -> set[str]:
    """The axes along which loops load single elements that each step moves by one, as the terms of a window.

    They have no vectors: lanes that are some elements apart would touch as many times more sectors in every step, for
    one wide store at the end.  ``vector_bytes``: 0 where no such axis is asked for, as in a kernel with products.
    """
    found = set[str]()
    loops = [op for op in walk_ops(kernel.body) if isinstance(op, ForOp)]
    for var, op in ((f.var, op) for f in loops for op in walk_ops(f.body) if isinstance(op, LoadOp) and op.index):
        buffer, names = buffers[op.buffer], op.result.type.names
        axis, limit = contiguous_axis(buffer, op.index, names, refs), vector_bytes // buffer.dtype.bytes
        if axis is not None and abs(affine(op.index[-1]).slope(var)) == 1 and limit > 1:
            found |= {axis} if vector_width(buffer, op.index, op.mask, axis, limit, refs) == 1 else set()
    return found


def _shared_run(op: LoadOp, buffer: Buffer, axes: Iterable[str], most: int, refs: RefAxes) -> Iterator[tuple[str, int]]:
    """The first of ``axes`` along which a vector has elements that several positions share, and its positions."""
    runs = ((x, repeated_width(buffer, op.index, op.mask, x, most, refs)[0]) for x in axes)
    yield from islice(((x, run) for x, run in runs if run > 1), 1)


def _costly(kernel: TileKernel) -> frozenset[frozenset[str]]:
    """The axes of the tiles of ``kernel`` that take long to compute."""
    maps = (op for op in walk_ops(kernel.body) if isinstance(op, MapOp) and op.result.type.dtype.is_float)
    return frozenset(frozenset(op.result.type.names) for op in maps if FUNCTIONS[op.op].slots >= COSTLY)


def _sharing(
    kernel: TileKernel, buffers: Mapping[str, Buffer], refs: RefAxes, reduced: Collection[str]
) -> frozenset[str]:
    """The axes along which all positions share the elements of a load of terms, which axes ``reduced`` add up.

    None where neighbours along another axis are contiguous in a load, because lanes are to have them.
    """
    loads = [op for op in walk_ops(kernel.body) if isinstance(op, LoadOp)]
    terms = [op for op in loads if not set(reduced).isdisjoint(op.result.type.names)]
    near = (contiguous_axis(buffers[op.buffer], op.index, op.result.type.names, refs) for op in terms)
    if not all(axis in reduced for axis in near):
        return frozenset()
    return frozenset(a.name for a in kernel.axes for op in terms if a.name not in op.result.type.names)


def _positions(kernel: TileKernel, buffers: Mapping[str, Buffer], reduced: Collection[str]) -> set[str]:
    """The positions of windows of which a thread has neighbouring ones; the others are those of neighbouring lanes."""
    found, lanes = set[str](), set[str]()
    for op in (op for op in walk_ops(kernel.body) if isinstance(op, LoadOp)):
        own, type_, buffer = _sliding(op, reduced), op.result.type, buffers[op.buffer]
        others = [x for x in type_.names if x not in own]
        lanes |= _strided(offset(buffer, op.index), others, buffer.dtype.bytes).keys()
        lanes |= {x for x in own if _repeated(kernel, x, type_) * REPEATED > prod(type_.shape)}
        found |= own
    return found - lanes


def _shifts(kernel: TileKernel, reduced: Collection[str]) -> frozenset[str]:
    """The displacements of products of ``kernel``: few, along which an operand slides and another one has no axis."""
    loads = [op for op in walk_ops(kernel.body) if isinstance(op, LoadOp)]
    found = set[str]()
    for op in loads:
        sizes = {a.name: a.size for a in op.result.type.axes}
        for e, form in ((e, linear(e)) for e in op.index):
            inside = [x for x in sizes if form.slope(x)]
            grouped = len(free_vars(e) & set(reduced)) > 1  # neighbours in a group of positions, which are summed
            for x in (x for x in inside if x not in reduced and 1 < sizes[x] <= MOST_SHIFTS):
                others = [y for y in inside if y != x and (grouped if y in reduced else len(inside) == 2)]
                tiles = [o.result.type.names for o in loads]
                shared = (y for y in others if form.slope(y) == 1 and any(y in t and x not in t for t in tiles))
                if abs(form.slope(x)) <= _STEP and (position := next(shared, None)) is not None:
                    found |= {x, position} if position in reduced else {x}
    return frozenset(found)


def _sliding(op: LoadOp, reduced: Collection[str]) -> set[str]:
    """The axes of positions of windows of ``op``, whose terms are ``reduced``.

    They are no further apart than the terms, or neighbouring windows have most elements in common.
    """
    found = set[str]()
    terms = {a.name: a.size for a in op.result.type.axes if a.name in reduced}
    for form in (part for e in op.index for part in (affine(e), *linear_parts(e))):
        inside = [x for x in op.result.type.names if form.slope(x) > 0]
        step = max((abs(form.slope(x)) for x in terms), default=0)
        longest = max((terms[x] for x in terms if abs(form.slope(x)) == 1), default=0)
        near = {x for x in inside if x not in reduced and form.slope(x) <= step}
        over = {x for x in inside if x not in reduced and form.slope(x) * OVERLAPPING <= longest}
        found |= near | (over if not near else set())
    return found


def _repeated(kernel: TileKernel, position: str, window: TileType) -> int:
    """Elements of the tiles that are computed for each ``position``, and along no other axis of ``window``."""
    made = (op.result.type for op in walk_ops(kernel.body) if isinstance(op, MapOp | IndexOp))
    tiles = [t for t in made if position in t.names and len(t.names) > 1]
    return sum(prod(t.shape) for t in tiles if set(t.names).isdisjoint(set(window.names) - {position}))


def _strided(form: Linear, axes: Iterable[str], width: int) -> dict[str, int]:
    """The axes along which elements of ``width`` bytes are apart, but in one line of L1: the widest vectors there."""
    near = (x for x in axes if abs(form.slope(x)) > 1 and abs(form.slope(x)) * width < LINE)
    return dict.fromkeys(near, max(1, WORD // width))


def _beside(index: Sequence[Expr], axis: str, kept: Sequence[str]) -> str | None:
    """The one of ``kept`` that shares an expression of ``index`` with ``axis`` and moves it by few elements."""
    shared = [e for e in index if axis in free_vars(e)]
    near = [x for x in kept if any(x in free_vars(e) and abs(affine(e).slope(x)) <= _STEP for e in shared)]
    return near[-1] if near else None
