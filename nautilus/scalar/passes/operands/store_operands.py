"""``store-operands``: operands that copy units cannot load become tensors in memory.

A matrix product reads each element of an operand once for every tile of the result along the other operand's axes.
TMA copies do not load an operand in these cases:

* it is computed, in f32 or rounded (``narrow``, or by the spec), so that each tile would compute it again in its loop;
* its rows are gathered or strided, or are no multiple of 16 bytes;
* its contiguous axis is no axis of the tile (``A[i, k, h]``, or ``A[i, k, 1]`` of complex numbers), also where it has
  elements of f32, whose parts have the order of the tensor (``store-parts``);
* with elements of 8 bits, its contiguous axis is not the contracted one.

Such an operand becomes a temp of its own, in the type that the matrix unit reads:

    C[i, j] sum= f32(narrow<f16>(x[i, k])) * f32(B[k, j])

    C_left[i, k] = f32(narrow<f16>(x[i, k]))  ;  C[i, j] sum= f32(C_left[i, k]) * f32(B[k, j])

Rows of the temp whose axis is no multiple of 16 bytes end in zeros (:attr:`~nautilus.core.buffers.Buffer.support`).

Where the other operand is computed and rounded to 8 bits, the rows along the contracted axis are *interleaved*
(:mod:`nautilus.core.expr.interleaved`): the result of another product in registers is then an operand as it is.

An axis that the operand has in groups only (``h // 4``) is one of groups in the temp.  Where tensors choose terms for
each row, as the experts of a token, a computed operand of 16 bits is 0 in the terms that they leave out, which the
support of the temp says, so that copy units need no mask.

The store does not round again, because the value is one of the temp's type.  A factor that is computed in f32 has a
temp of f32.  An operand is stored where

* the product has one axis of the operand's own, or others number its matrices in memory (``W[i, o, y, x]`` of a
  transposed convolution), and both operands have all contracted axes; a tensor that is only strided has one of several
  contracted axes last, if ``flatten-contractions`` then makes one loop of them;
* it is not computed from another product, or the product has more than :data:`HELD` columns;
* it has no condition, or the operand reads nothing outside of a tensor where the condition is false; where its position
  is read from memory, as that of a page beyond a length, the temp has 0 for what lies outside;
* each element is an operand of :data:`AGAIN` terms, or of :data:`AGAIN_INPUTS` if it is computed from inputs, and the
  product has :data:`TERMS` of them, so that the traffic and the launch of one more kernel take a small part of the time
  that the product saves.  Fewer suffice in six cases: the
  other operand has :data:`STREAMED` bytes, which few rows read in a time that is longer than two launches; the
  contiguous axis is none of the tile, so that elements are loaded one by one; each element is a reduction of other
  terms, such as a sum of gathered rows, which its kernel then stores in 16 bits; both operands are computed from
  products, of which a kernel has one in registers; an element is computed from its position alone (the cosines of a
  Fourier transform, the signs of a Hadamard matrix); rows of 16-bit elements are no multiple of 16 bytes, or those of 8
  bits are not along the contracted axis, and the target has warpgroup MMAs (1000 x 1001 x 1003 takes 31.6 us by warps
  on an H200);
* the temp is not much larger than what it is computed from.  It has at most twice the elements of a tensor (the windows
  of a convolution have more).  Elements of 8 bits, and those computed from integers, are at most as many as there are
  fields in the words of the tensor (``W[n, k // 4]``).  The product of tensors without an axis in common
  (``P[i, e] * X[i, k]``) is stored at any size, because they are read once each, also at constant positions, as the
  terms of a short sum are, and so is what reads no tensor;
* its rows, in the order of that tensor but with the axes of the tile last, have a known size; rows that end in zeros
  have at least :data:`_SHORTEST` elements and are not along one of several contracted axes.

Sizes that are known only at launch count with their nominal values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, within
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.interleaved import element, position
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Var, free_vars, identity, loads, substitute, walk
from nautilus.core.expr.products import strip_conversions
from nautilus.core.index.divisors import divisor
from nautilus.core.index.groups import over_groups
from nautilus.core.index.linear import linear_in
from nautilus.core.index.sizes import Extent, extent_expr, nominal
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.scales import scaled_product, unscaled
from nautilus.scalar.analysis.definitions import Def, points, size
from nautilus.scalar.analysis.masking import certainly_in_range
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.axes.flatten_contractions import contracted, innermost
from nautilus.scalar.rewriting import equal_temp, find_defs, fresh_name, put_defs
from nautilus.targets.limits import VECTOR_BYTES, limits
from nautilus.targets.memory_rates import LINE
from nautilus.targets.records import DEFAULT_TARGET

AGAIN = 512  # least number of terms of which an element is an operand
AGAIN_INPUTS = 256  # the same of one that is computed from inputs: scores of attention have heads of as many columns
TERMS = 1 << 31  # terms of the smallest product: about 6 microseconds of wgmma
TERMS_ROWS = 3 << 28  # the same number where only rows of tensors start at wrong addresses for copy units (estimate)
STREAMED = 24 << 20  # bytes of an operand: 5 microseconds of memory on an H200
HELD = 512  # columns of the widest tile whose accumulators a block has
SEVERAL = 4  # the same number is that many times smaller where the operand has several axes of its own
AGAIN_APART, TERMS_APART = 128, 1 << 29  # the same where the contiguous axis is no axis of the tile
_SHORTEST = 16  # elements of rows that end in zeros
_LONG = 4096  # bytes of rows that end in zeros up to a whole line of memory, at most 3% of them
_GROWTH = 2
_MOST = 1 << 27  # elements of the largest product of tensors


@dataclass(frozen=True, slots=True)
class StoreOperands:
    """Store the operands of large products that are computed, gathered or strided.  ``arch``: the target."""

    arch: str = DEFAULT_TARGET

    name = "store-operands"

    def apply(self, program: Program) -> Program:
        """The program with one more definition for each such operand."""
        rows = min(TERMS, TERMS_ROWS) if limits(self.arch).warpgroup else None
        for name, d in find_defs(program).items():
            for side in (0, 1):
                d = find_defs(program)[name]
                reduced = _reduced(program) | _of_two_products(program, d, side)
                made = operand(d, side, {b.name: b for b in program.buffers}, rows=rows, reduced=reduced)
                if made is not None and not _is_box(program, d, made) and not _is_held(program, d, made):
                    program = _stored(program, d, side, made)
                elif made is None:
                    program = _strided(program, d, side)
        return program


@dataclass(frozen=True, slots=True)
class Operand:
    """A factor of a product as a tensor over ``axes`` of ``dtype``; ``index``: the element that the product reads."""

    factor: Expr
    axes: tuple[Axis, ...]
    index: tuple[Expr, ...]
    dtype: DType
    support: Expr | None = None


def _is_box(program: Program, d: Def, made: Operand) -> bool:
    """Whether the operand is a tensor that other contracted axes shift, which copies of boxes load as it is.

    Rows whose positions are read from memory, such as those of pages, are no box.
    """
    shifted = any(not isinstance(e, Var) for ld in loads(made.factor) for e in ld.index)
    gathered = any(_reads(e) for ld in loads(made.factor) for e in ld.index)
    whole = bool(contracted(program, d)) or any(_has_digits(ld, d) for ld in loads(made.factor))
    return shifted and not gathered and whole and not any(_has_taps(ld, made) for ld in loads(made.factor))


def _has_taps(ld: Load, made: Operand) -> bool:
    """Whether the contiguous elements of the tensor are taps of a filter, too few for a copy of 16 bytes."""
    along = free_vars(ld.index[-1]) if ld.index else frozenset()
    taps = points(a for a in made.axes if a.name in along)
    return taps * ld.dtype.bytes < VECTOR_BYTES


def _is_held(program: Program, d: Def, made: Operand) -> bool:
    """Whether the operand is computed from a product, and one tile of ``d`` may have all columns that read it.

    The results of that product are then operands in registers, and computed once (a back-to-back GEMM).
    """
    defs = find_defs(program)
    sources = [defs[ld.buffer] for ld in loads(made.factor) if ld.buffer in defs]
    products = [s for s in sources if _multiplies(s)]
    used = {a.name for a in made.axes}
    narrow = points(a for a in d.axes if a.name not in used) <= HELD
    return bool(products) and narrow and not _needs_whole_rows(d, made.factor, products, defs)


def _needs_whole_rows(d: Def, factor: Expr, products: Sequence[Def], defs: Mapping[str, Def]) -> bool:
    """Whether ``factor`` has a reduction of one of ``products`` along an axis of the result of ``d``.

    Such a reduction, as that of a softmax in the gradient of its weights, is known before the loop of ``d`` only where
    another kernel has computed the product, which then is in memory.
    """
    names = {s.name for s in products}
    along = {ld.buffer: free_vars(ld) for ld in loads(factor) if ld.buffer in defs and defs[ld.buffer].is_reduction}
    whole = frozenset[str]().union(*(used for name, used in along.items() if name in names)) & {a.name for a in d.par}
    others = (name for name in along if name not in names)
    return any(not whole <= along[name] and any(ld.buffer in names for ld in defs[name].reads()) for name in others)


def _has_digits(ld: Load, d: Def) -> bool:
    """Whether the one contracted axis of ``d`` counts positions along axes of ``ld`` as its digits."""
    names = [Var(a.name) for a in d.red]
    inner = {(e.args[0], e.args[1]) for e in ld.index if isinstance(e, Op) and e.op == "mod"}
    outer = {(x.args[0], x.args[1]) for e in ld.index for x in walk(e) if isinstance(x, Op) and x.op == "floordiv"}
    return len(names) == 1 and any(e == names[0] for e, _ in inner & outer)


def _strided(program: Program, d: Def, side: int) -> Program:
    """``program`` with a strided operand stored, if the product then has one loop (``flatten-contractions``)."""
    made = operand(replace(d, guard=None), side, {b.name: b for b in program.buffers}, innermost(d)) if d.red else None
    if made is None or not _is_view(made.factor):
        return program
    stored = _stored(program, d, side, made)
    return stored if contracted(stored, find_defs(stored)[d.name]) else program


def _is_view(factor: Expr) -> bool:
    """Whether ``factor`` is an element of a tensor at the axes of the product, each by itself."""
    plain = all(isinstance(e, Var) for ld in loads(factor) for e in ld.index)
    return plain and isinstance(strip_conversions(factor), Load)


def _reduced(program: Program) -> frozenset[str]:
    """The temps that are reductions of other terms than products."""
    reductions = (d for d in find_defs(program).values() if d.is_reduction and d.buffer.space is Space.TEMP)
    return frozenset(d.name for d in reductions if not (isinstance(v := unscaled(d), Op) and v.op == "mul"))


def _of_two_products(program: Program, d: Def, side: int) -> frozenset[str]:
    """The products that factor ``side`` of ``d`` reads, if the other factor is computed from one too.

    A back-to-back GEMM computes one of the two in its loop, and reads the other one.
    """
    value = unscaled(d)
    if not (isinstance(value, Op) and value.op == "mul"):
        return frozenset()
    defs = find_defs(program)
    mine, other = (
        frozenset(ld.buffer for ld in loads(e) if ld.buffer in defs and _multiplies(defs[ld.buffer]))
        for e in (value.args[side], value.args[1 - side])
    )
    return mine if other else frozenset()


def _multiplies(d: Def) -> bool:
    return d.op == "sum" and isinstance(v := unscaled(d), Op) and v.op == "mul"


def operand(
    d: Def, side: int, buffers: Mapping[str, Buffer], inner: Axis | None = None, rows: int | None = None,
    reduced: Collection[str] = (),
) -> Operand | None:  # fmt: skip
    """Factor ``side`` of product ``d`` as the tensor that is stored; None where it stays as it is.

    ``inner``: the contracted axis of the tile, if it is not all of them.  ``rows``: terms of the smallest product of
    which a tensor is stored for its rows alone, if it is another one than :data:`TERMS`.  ``reduced``: the reductions
    of other terms than products, and products beside another one.
    """
    value = unscaled(d)
    if d.op != "sum" or not (isinstance(value, Op) and value.op == "mul"):
        return None
    mine, other = value.args[side], value.args[1 - side]
    used, rest = free_vars(mine), free_vars(other)
    factor, axes, index = over_groups(mine, [a for a in d.axes if a.name in used])
    several = [a for a in d.par if a.name in used - rest]
    own = {a.name for a in several} if len(several) < 2 else {_main(mine, several).name}
    tile = own | {a.name for a in (d.red if inner is None else (inner,))}
    if not own or not {a.name for a in d.red} <= used & rest:
        return None
    if not any(a.name in rest - used for a in d.par):
        return None
    elements, terms = (points(every) for every in (axes, d.axes))
    dtype = _dtype(mine, tile, deep := {a.name for a in d.red}, buffers)
    narrow = dtype is not None and (dtype.is_half or _is_byte(dtype)) and _is_view(mine)
    whole = rows if rows is not None and narrow else TERMS
    sums = any(ld.buffer in reduced and free_vars(ld) >= used for ld in loads(mine))
    few = sums or not loads(mine) or _is_apart(mine, tile)
    made = all(buffers[ld.buffer].space is Space.INPUT or ld.buffer in reduced for ld in loads(mine))
    least, again = (TERMS_APART, AGAIN_APART) if few else (whole, AGAIN_INPUTS if made else AGAIN)
    if not _is_view(mine) and _bytes(other, d) >= STREAMED and made:
        least = 0
    if len(several) > 1:  # others number matrices: short tiles, so that an element is loaded more often
        if not _is_apart(mine, tile):
            return None
        least //= SEVERAL
    if dtype is None or terms < max(least, again * elements):
        return None
    order = _order(factor, axes, tile, buffers, elements, dtype)
    if _is_byte(dtype):
        order = tuple(sorted(order, key=lambda a: a.name in deep))
    if not order or order[-1].name not in tile:
        return None
    if len(deep) > 1 and not _is_whole(order[-1], dtype):
        order = _with_whole_rows(order, tile, dtype)
    row, whole = size(order[-1]), _is_whole(order[-1], dtype)
    if not whole and (row is None or row < _SHORTEST or (order[-1].name in deep and len(deep) > 1)):
        return None  # taps of a filter, or rows of any length
    if row is None and not _is_byte(dtype):
        return None
    shapes = {b.name: b.shape for b in buffers.values()}
    if d.guard is not None:
        inside = _within_tensors(factor, shapes, axes)
        if inside is None:
            return None
        factor = inside
    place = dict(zip((a.name for a in axes), index, strict=True))
    at = tuple(place[a.name] for a in order)
    return Operand(factor, order, at, dtype, _support(d, mine, index, own, dtype))


def _support(d: Def, factor: Expr, index: Sequence[Expr], own: set[str], dtype: DType) -> Expr | None:
    """The part of the condition of ``d`` by which tensors choose terms for the axes ``own`` of ``factor``."""
    used, red = free_vars(factor), {a.name for a in d.red}
    if not dtype.is_half or _is_view(factor) or not all(isinstance(e, Var) for e in index):
        return None
    mine = [c for c in conjuncts(d.guard) if free_vars(c) <= used and free_vars(c) & red and free_vars(c) & own]
    return conjunction(mine) if any(loads(c) for c in mine) else None


def _bytes(factor: Expr, d: Def) -> int:
    """The bytes of the largest tensor that ``factor`` of the product ``d`` reads."""
    read = ((ld, [a for a in d.axes if a.name in free_vars(ld)]) for ld in loads(factor))
    return max((points(axes) * ld.dtype.bits // 8 for ld, axes in read), default=0)


def _with_whole_rows(order: tuple[Axis, ...], tile: set[str], dtype: DType) -> tuple[Axis, ...]:
    """``order``, whose last axis counts taps of a filter, with the longest axis of whole rows in the tile last."""
    whole = [a for a in order if a.name in tile and _is_whole(a, dtype)]
    last = max(whole, key=lambda a: nominal(a.extent), default=order[-1])
    return (*(a for a in order if a is not last), last)


def _fields(ld: Load) -> int:
    """The fields of a word, of which each element of the operand is one."""
    found = (e.args[1] for e in ld.index if isinstance(e, Op) and e.op == "floordiv" and isinstance(e.args[0], Var))
    return prod(int(n.value) for n in found if isinstance(n, Const))


def _is_whole(axis: Axis, dtype: DType) -> bool:
    """Whether rows along ``axis`` are multiples of 16 bytes at every size."""
    return divisor(extent_expr(axis.extent)) * dtype.bytes % VECTOR_BYTES == 0


def _main(factor: Expr, own: Sequence[Axis]) -> Axis:
    """The axis of a tile among the axes that ``factor`` has ``own``: that of vectors in memory, or the longest one."""
    ld = strip_conversions(factor)
    last = ld.index[-1] if isinstance(ld, Load) and ld.index else None
    near = next((a for a in own if last == Var(a.name)), None)
    vectors = near is not None and nominal(near.extent) * ld.dtype.bytes >= VECTOR_BYTES
    return near if near is not None and vectors else max(own, key=lambda a: nominal(a.extent))


def _is_apart(factor: Expr, tile: set[str]) -> bool:
    """Whether the neighbours of an element in memory are in other tiles, so that a tile loads single elements."""
    ld = strip_conversions(factor)
    if not (isinstance(ld, Load) and ld.index and isinstance(ld.index[-1], Var | Const)):
        return False
    return free_vars(ld.index[-1]).isdisjoint(tile)


def _within_tensors(factor: Expr, shapes: Mapping[str, tuple[Extent, ...]], axes: Sequence[Axis]) -> Expr | None:
    """``factor``, or 0 where a position that is read from memory lies outside; None where others may lie outside.

    What the product leaves out need not be an element of a tensor, such as the page beyond a length.
    """
    positions = [(i, n) for ld in loads(factor) for i, n in zip(ld.index, shapes[ld.buffer], strict=True) if _reads(i)]
    inside = tuple(dict.fromkeys(c for i, n in positions for c in within(i, n)))
    if not certainly_in_range(factor, shapes, {a.name: a.extent for a in axes}, inside):
        return None
    condition = conjunction(inside)
    return factor if condition is None else calc("select", condition, factor, identity("sum", factor.dtype))


def _reads(e: Expr) -> bool:
    return any(isinstance(n, Load) for n in walk(e))


def _dtype(factor: Expr, tile: set[str], deep: set[str], buffers: Mapping[str, Buffer]) -> DType | None:
    """The type of a computed factor, or of a tensor that no TMA copy loads along the axes ``tile``; else None.

    Matrix units read 8-bit elements along the contracted axes ``deep`` only, and no elements that are converted to
    another type than their compute type, such as integers to f32.
    """
    converted = factor.args[0].dtype if isinstance(factor, Op) and factor.op == "cast" else None
    if converted is not None and factor.dtype is not converted.compute:
        return None
    match factor:
        case Op(op="cast", args=(Op(op="narrow", dtype=dtype),)) if dtype.is_half:
            return dtype
        case Op(op="cast", args=(Op(op="cast", dtype=dtype),)) if dtype.is_half or _is_byte(dtype):
            return dtype
        case Op(op="cast", args=(Load(buffer=name, dtype=dtype, index=index),)) if dtype.is_half:
            along = [e for e in index if free_vars(e) & tile]
            plain = all(_is_step(e) for e in along) and bool(free_vars(index[-1]) & tile)
            whole = _has_whole_rows(buffers[name]) and _offset(index[-1]) * dtype.bytes % VECTOR_BYTES == 0
            return None if plain and whole else dtype
        case Op(op="cast", args=(Load(buffer=name, dtype=dtype, index=index),)) if _is_byte(dtype):
            plain = all(isinstance(e, Var) for e in index if free_vars(e) & tile)
            loaded = bool(free_vars(index[-1]) & deep) and _has_whole_rows(buffers[name])
            return dtype if plain and not loaded else None
        case Op(op=op, dtype=DType.F32) if op != "cast":
            return DType.F32
        case Load(dtype=DType.F32, index=index) if all(isinstance(e, Var | Const) for e in index):
            return DType.F32 if _is_apart(factor, tile) else None  # other rows become whole with their parts
    return None


def _is_step(e: Expr) -> bool:
    """Whether ``e`` is a variable, or a constant away from one: boxes start anywhere along axes other than the last."""
    names = free_vars(e)
    form = linear_in(e, next(iter(names))) if len(names) == 1 else None
    return form is not None and form[0] == 1 and isinstance(form[1], Const)


def _offset(e: Expr) -> int:
    """The constant of a position that :func:`_is_step` accepts, else 0."""
    form = linear_in(e, next(iter(free_vars(e)))) if _is_step(e) else None
    return int(form[1].value) if form is not None and isinstance(form[1], Const) else 0


def _has_whole_rows(buffer: Buffer) -> bool:
    """Whether rows are contiguous and start at multiples of 16 bytes, or may do so: their size is known at launch."""
    row = buffer.shape[-1]
    if buffer.strides is not None:
        *rows, last = buffer.strides
        return last == 1 and all(divisor(extent_expr(e)) * buffer.dtype.bytes % VECTOR_BYTES == 0 for e in rows)
    return not isinstance(row, int) or row * buffer.dtype.bytes % VECTOR_BYTES == 0


def _is_byte(dtype: DType) -> bool:
    return dtype.is_float8 or dtype in (DType.I8, DType.U8)


def _order(
    factor: Expr, axes: tuple[Axis, ...], tile: set[str], buffers: Mapping[str, Buffer], elements: int, dtype: DType
) -> tuple[Axis, ...]:
    """``axes`` in the order of the largest tensor that ``factor`` reads, if it reads any, those of ``tile`` last.

    () where that tensor is much smaller.
    """

    def count(ld: Load) -> int:
        return prod(map(nominal, buffers[ld.buffer].shape))

    found = {ld: free_vars(ld) for ld in loads(factor)}
    if not found:
        return tuple(sorted(axes, key=lambda a: a.name in tile)) if elements <= _MOST else ()
    names = {a.name for a in axes}
    read = [ld for ld, used in found.items() if used >= names]
    outer = not read and all(isinstance(e, Var | Const) for ld in found for e in ld.index)
    if not read and not (outer and names <= frozenset[str]().union(*found.values())):
        return ()
    largest = max(read or found, key=count)
    fields = _fields(largest)
    packed = _is_byte(dtype) or (largest.dtype.is_int and fields <= largest.dtype.bits)
    growth = max(_GROWTH, fields) if packed else _GROWTH
    if elements > (_MOST if outer else growth * count(largest)):
        return ()
    place = {v: n for n, e in enumerate(largest.index) for v in free_vars(e)}
    before = len(largest.index) - 1.5  # in front of the contiguous axis
    return tuple(sorted(axes, key=lambda a: (a.name in tile, place.get(a.name, before))))


def _stored(program: Program, d: Def, side: int, made: Operand) -> Program:
    """``program`` where ``d`` reads factor ``side`` from a temp, which may be that of an earlier operand."""
    span = made.factor.span
    turned = _is_accumulator_of_bytes(d, side)
    axes, value, support = _padded(made, {a.name for a in d.axes}, turned)
    if made.support is not None:
        chosen = substitute(made.support, {a.name: Var(b.name) for a, b in zip(made.axes, axes, strict=True)})
        value = calc("select", chosen, value, identity("sum", value.dtype))
        places = substitute(chosen, {a.name: Var(f"i{n}") for n, a in enumerate(axes)})
        support = conjunction([*conjuncts(support), *conjuncts(places)])
    name = fresh_name(program, f"{d.name}_{('left', 'right')[side]}")
    buffer = Buffer(name, made.dtype, tuple(a.extent for a in axes), Space.TEMP, span, support=support)
    temp = Def(name, buffer, axes, (), None, value, None, span)
    known = equal_temp(program, temp, d.name)
    index = (*made.index[:-1], position(made.index[-1])) if turned else made.index
    load = Load(known or name, index, made.dtype, span)
    product, scaled = unscaled(d), scaled_product(d)
    assert isinstance(product, Op)
    factors = list(product.args)
    dtype = product.dtype
    factors[side] = load if made.dtype is dtype else Op("cast", (load,), dtype, span)
    product = replace(product, args=tuple(factors))
    element = product if scaled is None else replace(scaled, product=product).element
    return put_defs(program, d.name, (*(() if known else (temp,)), replace(d, value=element)))


def _is_accumulator_of_bytes(d: Def, side: int) -> bool:
    """Whether the other operand of ``d`` is computed and rounded to 8 bits, along one contracted axis."""
    value = unscaled(d)
    match value.args[1 - side] if isinstance(value, Op) else None:
        case Op(op="cast", args=(Op(op="narrow", dtype=dtype),)):
            return dtype.is_float8 and len(d.red) == 1
    return False


def _padded(made: Operand, taken: set[str], turned: bool) -> tuple[tuple[Axis, ...], Expr, Expr | None]:
    """Axes and value of the temp, whose rows are multiples of 16 bytes, and where it is not 0.

    Long rows are whole lines of memory: TMA copies take several times as long for parts of two lines
    (:data:`.memory_rates.SPLIT`).  ``turned``: rows are interleaved.
    """
    *outer, last = made.axes
    row = size(last)
    long = row is not None and row * made.dtype.bytes >= _LONG
    unit = (LINE if long else VECTOR_BYTES) // made.dtype.bytes
    wide = last
    if not _is_whole(last, made.dtype):
        assert row is not None
        wide = Axis(unused(f"{last.name}_padded", taken), -(-row // unit) * unit, last.span)
    at = element(Var(wide.name)) if turned else Var(wide.name)
    factor = made.factor if at == Var(last.name) else substitute(made.factor, {last.name: at})
    if wide is last or row is None:
        return made.axes, factor, None
    inside = calc("lt", at, row)
    value = Op("select", (inside, factor, identity("sum", factor.dtype)), factor.dtype, factor.span)
    return (*outer, wide), value, substitute(inside, {wide.name: Var(f"i{len(outer)}")})
