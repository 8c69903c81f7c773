"""How wide a global access may be: affine offsets, divisibility and masks that are uniform in a vector.

A vector of ``v`` elements along tile axis ``x`` starts where ``x`` is a multiple of ``v`` (layouts
place vectors so).  It is legal when the offset in the buffer

* moves by exactly one per step of ``x`` inside the vector, and
* is a multiple of ``v`` at the vector's start, whatever the other variables are,

and when the mask has one value for the whole vector.  Buffers start at 16-byte boundaries.  The
analysis is exact for affine indices and for ``//`` and ``%`` by constants; everything else is an
opaque atom about which nothing is known except which tile axes it varies with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Expr, Op, Param, Ref, Var, free_vars, loads, substitute
from nautilus.core.expr.nodes import refs as refs_of
from nautilus.core.index.linear import ZERO, Linear, atom, divided
from nautilus.core.index.simplify import divisor
from nautilus.core.index.sizes import at_most
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity
from nautilus.core.tiles import floor_pow2
from nautilus.core.types import DType
from nautilus.ma_tile.ir.layout import FragLayout

#: value name -> tile axes it varies with, and the length of the aligned runs along each of them in which it has one
#: value, a power of two; for Refs inside indices.
RefAxes = Mapping[str, Mapping[str, int]]


@by_identity(2048)  # an index is looked at for each question about its access
def affine(e: Expr) -> Linear:
    """``e`` as a linear form over opaque atoms; no ``%`` by a constant is left."""
    return divided(e, expand_mod=True)


def varies(e: Expr, axis: str, refs: RefAxes) -> bool:
    """Whether ``e`` can take different values along tile axis ``axis``."""
    return axis in free_vars(e) or any(axis in refs.get(name, ()) for name in refs_of(e))


def offset(buffer: Buffer, index: tuple[Expr, ...]) -> Linear:
    """Element offset. A stride that is known only at launch leaves only what certainly divides it visible."""
    out = ZERO
    for n, e in enumerate(index):
        stride = buffer.stride(n)
        known = stride if isinstance(stride, int) else divisor(stride)
        term = affine(e).scale(known)
        if not isinstance(stride, int):  # multiplied by an unknown number as well: the coefficients still divide
            unknown = Param(f"?{n}", DType.I64)
            term = Linear({Op("mul", (a, unknown), DType.I64): c for a, c in term.terms.items()})
            if affine(e).const:
                term = term + atom(unknown).scale(affine(e).const * known)
        out = out + term
    return out


def vector_width(
    buffer: Buffer, index: tuple[Expr, ...], mask: Expr | None, axis: str, limit: int, refs: RefAxes
) -> int:
    """Largest power of two up to ``limit`` that is a legal vector along ``axis`` (1: none is)."""
    if not buffer.aligned or any(map(loads, index)):
        return 1
    form = offset(buffer, index)
    v = floor_pow2(limit)
    while v > 1:
        if _offset_ok(form, axis, v, refs) and (mask is None or uniform(mask, axis, v, refs)):
            return v
        v //= 2
    return 1


@dataclass(frozen=True, slots=True)
class Nearest:
    """The position ``min(max(place, low), high)``; a bound that is None is absent."""

    place: Expr
    low: int | None
    high: int | None

    def first(self, width: int) -> Expr:
        """The position of the first element of the vector that has the elements of the vector at ``place``."""
        inside = self.place if self.low is None else calc("max", self.place, self.low)
        return inside if self.high is None else calc("min", inside, self.high - width + 1)


def nearest_of(e: Expr) -> Nearest | None:
    """The parts of a position that is the nearest one to another between constant bounds; None for other positions."""
    bounds: dict[str, int | None] = {"max": None, "min": None}
    place = e
    while (found := _bounded(place)) is not None and bounds[found[0]] is None:
        place = found[1]
        bounds[found[0]] = found[2]
    low, high = bounds["max"], bounds["min"]
    ordered = low is None or high is None or low <= high
    return Nearest(place, low, high) if place is not e and ordered else None


def _bounded(e: Expr) -> tuple[str, Expr, int] | None:
    match e:
        case Op(op="max" | "min" as name, args=(a, Const(value=c)) | (Const(value=c), a)) if not a.dtype.is_float:
            return name, a, int(c)
    return None


def nearest_width(
    buffer: Buffer, index: tuple[Expr, ...], mask: Expr | None, axis: str, limit: int, refs: RefAxes
) -> int:
    """The largest vector up to ``limit`` along ``axis`` at the nearest position between two bounds; 1: none is legal.

    Both bounds are multiples of the vector, so that each vector lies between them or has one element.
    """
    near = nearest_of(index[-1]) if index and buffer.dtype.bytes in (1, 2, 4) else None
    if near is None or buffer.dtype is DType.BOOL or buffer.stride(len(index) - 1) != 1:
        return 1
    v = vector_width(buffer, (*index[:-1], near.place), mask, axis, limit, refs)
    while v > 1:
        whole = (near.low or 0) % v == 0 and (near.high is None or (near.high + 1) % v == 0)
        if whole and v * buffer.dtype.bytes >= 4 and _offset_ok(affine(near.place), axis, v, refs):
            return v
        v //= 2
    return 1


def shifted_width(
    buffer: Buffer, index: tuple[Expr, ...], mask: Expr | None, axis: str, limit: int, refs: RefAxes
) -> tuple[int, int]:
    """The largest vector up to ``limit`` along ``axis`` that lies in two aligned ones, and its shift in elements.

    (1, 0): there is none.

    The mask has one value for the elements of either vector, as where rows are whole vectors and a neighbour of an
    element is read if it is in its row.
    """
    known = buffer.strides is None and all(isinstance(n, int) for n in buffer.shape)
    if not (buffer.aligned and known) or any(map(loads, index)):
        return 1, 0
    form, elements, v = offset(buffer, index), prod(n for n in buffer.shape if isinstance(n, int)), floor_pow2(limit)
    while v > 1:
        shift = form.const % v
        if shift and elements % v == 0 and _offset_ok(form.shift(-shift), axis, v, refs):
            moved = None if mask is None else substitute(mask, {axis: calc("sub", Var(axis), shift)})
            if moved is None or uniform(moved, axis, v, refs):
                return v, shift
        v //= 2
    return 1, 0


def repeated_width(
    buffer: Buffer, index: tuple[Expr, ...], mask: Expr | None, axis: str, most: int, refs: RefAxes
) -> tuple[int, int]:
    """(positions along ``axis`` of the largest legal vector, positions that share an element); (1, 1): none is.

    For an access at ``axis // r``, such as one to elements of which several share a byte.  ``most``: elements.  Groups
    of another number of positions have runs of one element, as long as the power of two that divides it.
    """
    if not buffer.aligned or buffer.dtype is DType.BOOL or buffer.dtype.bytes > 4:
        return 1, 1
    if any(map(loads, index)):
        return 1, 1
    form = offset(buffer, index)
    along = [(t, c) for t, c in form.terms.items() if varies(t, axis, refs)]
    shared = _shared(along[0][0], axis) if len(along) == 1 and along[0][1] == 1 else None
    if shared is None:
        place = along[0][0] if len(along) == 1 else None
        run = 1 if place is None else _run_of_one(place, axis)
        while place is not None and run > 1:
            if constant_in_vector(place, axis, run, refs) and _has_one_mask(mask, axis, run, refs):
                break
            run //= 2
        return run, run
    rest = [c * divisor(t) for t, c in form.terms.items() if t is not along[0][0]]
    v = floor_pow2(most)
    while v > 1 and (any(x % v for x in (form.const, *rest)) or not _has_one_mask(mask, axis, v * shared, refs)):
        v //= 2
    return (v * shared, shared) if _has_one_mask(mask, axis, v * shared, refs) else (1, 1)


def _shared(e: Expr, axis: str) -> int | None:
    """``r`` where ``e`` is ``axis // r``, a power of two; else None."""
    match e:
        case Op(op="floordiv", args=(Var(name=name), Const(value=r))) if (
            name == axis and r > 1 and floor_pow2(int(r)) == r
        ):
            return int(r)
    return None


def _run_of_one(e: Expr, axis: str) -> int:
    """The largest power of two that divides the groups of ``e``, which is ``(.. + axis) // c``; else 1.

    Runs of so many positions have one element where the other terms are multiples of it.
    """
    match e:
        case Op(op="floordiv", args=(a, Const(value=c))) if int(c) > 0 and affine(a).slope(axis) == 1:
            return int(c) & -int(c)
    return 1


def _has_one_mask(mask: Expr | None, axis: str, run: int, refs: RefAxes) -> bool:
    return mask is None or uniform(mask, axis, run, refs)


def _offset_ok(form: Linear, axis: str, v: int, refs: RefAxes) -> bool:
    if form.const % v or form.slope(axis) != 1:
        return False
    for term, c in form.terms.items():
        if isinstance(term, Var) and term.name == axis:
            continue
        if c * divisor(term) % v or not constant_in_vector(term, axis, v, refs):
            return False
    return True


def constant_in_vector(e: Expr, axis: str, v: int, refs: RefAxes) -> bool:
    """Whether ``e`` has one value for ``axis`` in [v t, v t + v)."""
    if not varies(e, axis, refs):
        return True
    match e:
        case Ref(name=name):
            return refs[name][axis] % v == 0
        case Op(op="floordiv", args=(a, Const(value=c))) if int(c) % v == 0 and int(c) > 0:
            f = affine(a)
            rest_ok = f.const % v == 0 and all(
                k % v == 0 and constant_in_vector(t, axis, v, refs)
                for t, k in f.terms.items()
                if not (isinstance(t, Var) and t.name == axis)
            )
            return rest_ok and f.slope(axis) in (0, 1)
        case Op(args=args) if args:
            return all(constant_in_vector(a, axis, v, refs) for a in args)
    return False


def uniform(mask: Expr, axis: str, v: int, refs: RefAxes) -> bool:
    """Whether ``mask`` has one value for ``axis`` in every aligned run of ``v`` positions."""
    if not varies(mask, axis, refs):
        return True
    match mask:
        case Op(op="and" | "or" | "not", args=args):
            return all(uniform(a, axis, v, refs) for a in args)
        case Op(op="lt", args=(a, b)):
            return _uniform_less(affine(a) - affine(b), axis, v, refs)
        case Op(op="le", args=(a, b)):
            return _uniform_less((affine(a) - affine(b)).shift(-1), axis, v, refs)
        case Op(op="gt", args=(a, b)):
            return _uniform_less(affine(b) - affine(a), axis, v, refs)
        case Op(op="ge", args=(a, b)):
            return _uniform_less((affine(b) - affine(a)).shift(-1), axis, v, refs)
    return constant_in_vector(mask, axis, v, refs)


def _uniform_less(d: Linear, axis: str, v: int, refs: RefAxes) -> bool:
    """Whether ``d < 0`` is uniform: the other terms are constant in a vector.

    Where ``d`` has ``axis`` as a term, they are multiples of ``v``, and so is the constant's place.
    """
    slope = d.slope(axis)
    others = [(a, c) for a, c in d.terms.items() if not (isinstance(a, Var) and a.name == axis)]
    if any((slope and c * divisor(a) % v) or not constant_in_vector(a, axis, v, refs) for a, c in others):
        return False
    match slope:
        case 0:
            return True
        case 1:  # v t + s + c < 0 for s in [0, v)
            return d.const % v == 0
        case -1:  # c - v t - s < 0
            return d.const % v == v - 1
    return False


def register_run(layout: FragLayout, axis: str) -> int:
    """Consecutive registers that hold consecutive positions of ``axis``, starting at multiples of the run."""
    run = 1
    rest = list(layout.reg)
    while rest and (rest[0].size == 1 or (rest[0].axis == axis and rest[0].stride == run)):
        run *= rest.pop(0).size
    strides = [m.stride for m in (*rest, *layout.lane, *layout.warp) if m.axis == axis and m.size > 1]
    while run > 1 and any(s % run for s in strides):
        run //= 2
    return run & -run


def contiguous_axis(buffer: Buffer, index: tuple[Expr, ...], axes: tuple[str, ...], refs: RefAxes) -> str | None:
    """The tile axis whose neighbouring positions are neighbouring elements in memory, if there is one.

    Where none is so throughout (:func:`is_contiguous`), one of which that holds in parts.
    """
    form = offset(buffer, index)
    along = [axis for axis in reversed(axes) if form.slope(axis) == 1]
    return next((axis for axis in along if _moves_by_one(form, axis, refs)), along[0] if along else None)


def is_contiguous(buffer: Buffer, index: tuple[Expr, ...], axis: str) -> bool:
    """Whether all neighbouring positions along ``axis`` are neighbouring elements in memory.

    Those of an axis with the pixels of a box are so in parts: ``(p // 8 * 56 + p % 8)`` moves by one within a row.
    """
    return _moves_by_one(offset(buffer, index), axis, {})


def _moves_by_one(form: Linear, axis: str, refs: RefAxes) -> bool:
    """Whether ``form`` is larger by one at each next position along ``axis``."""
    return form.slope(axis) == 1 and not any(varies(a, axis, refs) for a in form.terms if not isinstance(a, Var))


def key_dimensions(buffer: Buffer, index: tuple[Expr, ...], axes: Iterable[str]) -> tuple[int, ...]:
    """The extents of the dimensions from the first one on that fragments decide about; () where one is not known.

    Their values do, or their elements, which have ``axes``.  The bound of a size stands for it where
    there is one dimension.
    """
    own = frozenset(axes)
    first = next((n for n, e in enumerate(index) if refs_of(e) or free_vars(e) & own), len(index))
    extents = buffer.shape[first:]
    if len(extents) == 1:
        extents = (at_most(extents[0]),)
    known = tuple(n for n in extents if isinstance(n, int))
    return known if len(known) == len(extents) and buffer.strides is None else ()
