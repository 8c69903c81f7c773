"""``order-results``: a product that another product reads across its matrices is stored in an order that suits both.

In products with monarch matrices, each matrix of the outer product has one column of every matrix of the inner one::

    u[b, p, q] sum= L[p, q, r] * X[b, p, r]   ;   v[b, q, s] sum= R[q, p, s] * f32(narrow<bf16>(u[b, p, q]))

Neighbours of an element of ``u`` in memory belong to other matrices of ``v``, so that a tile of ``v`` would load single
elements.  No other kernel reads ``u``, which may have any order of its axes.  Here the last one becomes an axis that
the matrices of both products have (``b``), so that tiles of both are contiguous along it::

    u_rounded[p, q, b] = f32(narrow<bf16>(u[p, q, b]))   ;   v[b, q, s] sum= R[q, p, s] * f32(u_rounded[p, q, b])

What the reader makes of an element by itself, such as the rounding to the type of its operands, moves to the kernel
that computes the product in any case, so that memory holds elements of that type.

Where the products have no such axis, or its rows are no multiples of 16 bytes, a kernel brings the elements into the
order of the reader, if a prediction of the time says that it is faster::

    u_turned[q, b, p] = f32(u_rounded[b, p, q])

The order changes where the last axis numbers matrices of one of both products.

The pass applies to elements that no other products read, each at axes by themselves (:mod:`~nautilus.scalar.analysis.
contractions.crossing`).  Sizes that are known only at launch count with their nominal values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars, loads, replaced, substitute
from nautilus.core.index.divisors import divisor
from nautilus.core.index.sizes import extent_expr, nominal
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.alternating import is_copy_faster, run_of, smallest_side
from nautilus.scalar.analysis.contractions.crossing import crosses, numbering, product_axes
from nautilus.scalar.analysis.contractions.scales import matrix_part
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs, turned
from nautilus.targets import matrix_rates
from nautilus.targets.limits import VECTOR_BYTES


@dataclass(frozen=True, slots=True)
class OrderResults:
    """Give products that others read across their matrices another order in memory."""

    name = "order-results"

    def apply(self, program: Program) -> Program:
        """The program with such products in another order; the same object where there are none."""
        for name in find_defs(program):
            live = Dead().apply(program)
            found = _crossed(live, name)
            made = live if found is None else _ordered(live, found)
            program = program if made is live else made
        return program


@dataclass(frozen=True, slots=True)
class _Crossed:
    """The elements ``of`` a product ``made``, and the products ``readers`` that read them across their matrices.

    ``at``: the axes at which each of them reads an element.  ``value``: what all of them make of it, at the axes of
    ``of``; None where they differ, or make it from other elements too.  ``dtype``: of what they read.  ``stored_apart``
    and ``read_apart``: whether neighbours in memory belong to other matrices of ``made``, and of one of ``readers``.
    """

    of: Def
    made: Def
    readers: tuple[Def, ...]
    at: tuple[tuple[str, ...], ...]
    value: Expr | None
    dtype: DType
    stored_apart: bool
    read_apart: bool


def _crossed(program: Program, name: str) -> _Crossed | None:
    """The elements ``name`` of a product, if others read it across their matrices and may have another form of it."""
    defs = find_defs(program)
    d = defs.get(name)
    made = None if d is None else _product(defs, d)
    if d is None or made is None or product_axes(made) is None:
        return None
    readers = tuple(r for r in defs.values() if product_axes(r) and any(ld.buffer == name for ld in r.reads()))
    at = tuple(names for r in readers if (names := _axes(made, d, r)) is not None)
    if not readers or len(at) < len(readers):
        return None
    values = {_value(d, r, names) for r, names in zip(readers, at, strict=True)}
    value = values.pop() if len(values) == 1 else None
    dtype = d.buffer.dtype if value is None else _rounded(value) or d.buffer.dtype
    stored_apart = d.buffer.space is Space.TEMP and made.par[-1].name in numbering(made)
    read_apart = any(names[-1] in numbering(r) for r, names in zip(readers, at, strict=True))
    if not (stored_apart or read_apart or (value is not None and d.buffer.space is Space.TEMP)):
        return None
    return _Crossed(d, made, readers, at, value, dtype, stored_apart, read_apart)


def _product(defs: Mapping[str, Def], d: Def) -> Def | None:
    """The product ``d``, or the one from whose element at the same axes ``d`` is made."""
    if d.at is not None or d.scatter is not None:
        return None
    if d.is_reduction:
        return d
    own = tuple(Var(a.name) for a in d.par)
    found = (defs[ld.buffer] for ld in d.reads() if ld.buffer in defs and ld.index == own)
    return next((s for s in found if s.at is None and product_axes(s) is not None), None)


def _axes(made: Def, d: Def, reader: Def) -> tuple[str, ...] | None:
    """The axes at which ``reader`` reads ``d``, which has the elements of ``made``; None where it does not cross it."""
    found = {ld.index for ld in reader.reads() if ld.buffer == d.name}
    index = found.pop()
    names = tuple(e.name for e in index if isinstance(e, Var))
    if found or len(set(names)) < len(index) or not crosses(made, reader, index) or not _is_large(reader):
        return None
    return names


def _is_large(d: Def) -> bool:
    """Whether the matrices of ``d`` are large enough for matrix instructions."""
    found = product_axes(d)
    assert found is not None
    side = smallest_side(d.axes, found.rows, found.columns, [a.name for a in d.red])
    return side >= matrix_rates.SIDE


def _value(d: Def, reader: Def, at: Sequence[str]) -> Expr | None:
    """The factor of ``reader`` that is made from an element of ``d``, at the axes of ``d``, if it has 16 bits."""
    mine = _factor(d, reader)
    if mine is None or not free_vars(mine) <= set(at):
        return None
    return substitute(mine, {x: Var(a.name) for x, a in zip(at, d.par, strict=True)})


def _factor(d: Def, reader: Def) -> Expr | None:
    """The one factor of ``reader`` that reads ``d``, if it is rounded to 16 bits."""
    product = matrix_part(reader)
    assert isinstance(product, Op)
    found = [e for e in product.args if any(ld.buffer == d.name for ld in loads(e))]
    return found[0] if len(found) == 1 and _rounded(found[0]) is not None else None


def _rounded(e: Expr) -> DType | None:
    """The 16-bit type to which ``e`` is rounded."""
    match e:
        case Op(op="cast", args=(Op(op="narrow" | "cast", dtype=dtype),)) if dtype.is_half and e.dtype is dtype.compute:
            return dtype
    return None


def _ordered(program: Program, found: _Crossed) -> Program:
    """``program`` with the elements of ``found`` in another order, or stored again in an order that suits readers."""
    d, last = found.of, _common(found)
    every = range(len(d.par))
    places = (*(n for n in every if n != last), *(n for n in every if n == last))
    if not found.read_apart and (last is None or not found.stored_apart):
        return program if d.buffer.space is Space.OUTPUT else _rounding(program, found)[0]
    if last is None and not _is_worth(found):
        return program
    if d.buffer.space is Space.OUTPUT and last is not None:
        return _copied(program, d, places, dict(zip((r.name for r in found.readers), found.at, strict=True)))
    program, stored = (program, d.name) if d.buffer.space is Space.OUTPUT else _rounding(program, found)
    if last is not None:
        for name in dict.fromkeys((found.made.name, d.name, stored)):
            program = turned(program, find_defs(program)[name], places)
        return program
    for r, at in zip(found.readers, found.at, strict=True):
        one, deep = numbering(r), {a.name for a in r.red}
        places = tuple(sorted(every, key=lambda n: (at[n] not in one, at[n] in deep)))
        program = _copied(program, find_defs(program)[stored], places, {r.name: at})
    return program


def _is_worth(found: _Crossed) -> bool:
    """Whether a kernel that brings the elements into another order takes less time than it saves."""
    axes = found.of.par
    names = ((found.made, [a.name for a in found.made.par]), *zip(found.readers, found.at, strict=True))
    inside = [[a.name for a, x in zip(axes, at, strict=True) if x not in numbering(d)] for d, at in names]
    return is_copy_faster(axes, found.dtype, max(run_of(axes, x) for x in inside))


def _common(found: _Crossed) -> int | None:
    """The place of the longest axis that matrices of all products have, if its rows are multiples of 16 bytes."""
    d, product = found.made, product_axes(found.made)
    assert product is not None
    inside = product.rows | product.columns
    places = [n for n, a in enumerate(d.par) if a.name in inside and _is_whole(a, found.dtype)]
    common = [n for n in places if all(x[n] not in numbering(r) for r, x in zip(found.readers, found.at, strict=True))]
    return max(common, key=lambda n: nominal(d.par[n].extent), default=None)


def _is_whole(axis: Axis, dtype: DType) -> bool:
    """Whether rows along ``axis`` are multiples of 16 bytes, and fill a tile."""
    whole = divisor(extent_expr(axis.extent)) * dtype.bytes % VECTOR_BYTES == 0
    return whole and nominal(axis.extent) >= matrix_rates.SIDE


def _rounding(program: Program, found: _Crossed) -> tuple[Program, str]:
    """``program`` whose readers have elements of a temp with what they make of them, and the name of that temp."""
    d = found.of
    if found.value is None:
        return program, d.name
    buffer = Buffer(fresh_name(program, f"{d.name}_rounded"), found.dtype, d.buffer.shape, Space.TEMP, d.span)
    temp = Def(buffer.name, buffer, d.par, (), None, found.value, None, d.span)
    for n, (r, at) in enumerate(zip(found.readers, found.at, strict=True)):
        new = _reading(r, _factor(d, r), buffer, at)
        program = put_defs(program, r.name, (new,) if n else (temp, new))
    return program, buffer.name


def _copied(program: Program, d: Def, places: Sequence[int], at: Mapping[str, Sequence[str]]) -> Program:
    """``program`` with the axes ``places`` of ``d`` in this order in a temp, which products read instead.

    ``at``: their names and the axes at which they read ``d``.
    """
    axes = tuple(d.par[n] for n in places)
    shape = tuple(a.extent for a in axes)
    buffer = Buffer(fresh_name(program, f"{d.name}_turned"), d.buffer.dtype, shape, Space.TEMP, d.span)
    temp = Def(buffer.name, buffer, axes, (), None, _element(d.buffer, [a.name for a in d.par]), None, d.span)
    for n, (name, index) in enumerate(at.items()):
        reader = find_defs(program)[name]
        new = _reading(reader, _element(d.buffer, index), buffer, [index[n] for n in places])
        program = put_defs(program, name, (new,) if n else (temp, new))
    return program


def _reading(reader: Def, factor: Expr | None, buffer: Buffer, at: Sequence[str]) -> Def:
    """``reader`` with an element of ``buffer`` in the place of ``factor``."""
    assert factor is not None
    return replace(reader, value=replaced(reader.value, factor, _element(buffer, at)))


def _element(buffer: Buffer, at: Sequence[str]) -> Expr:
    load = Load(buffer.name, tuple(map(Var, at)), buffer.dtype, buffer.span)
    dtype = buffer.dtype.compute
    return load if load.dtype is dtype else Op("cast", (load,), dtype, buffer.span)
