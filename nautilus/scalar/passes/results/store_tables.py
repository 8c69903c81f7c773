"""``store-tables``: a costly function of few positions, which many terms have in common, becomes a table.

The cosines of a transform of blocks depend on a position in a block and a frequency, of which there are eight each::

    C[y] sum= X[y // 8 * 8 + r] * cos((2 * r + 1) * (y % 8) * 0.19634954084936207)

Every block computes the same 64 of them.  They are computed once, and read from caches::

    C_table[u, r] = cos((2 * r + 1) * u * 0.19634954084936207)
    C[y] sum= X[y // 8 * 8 + r] * C_table[y % 8, r]

A part of a value becomes a table where it reads no memory, takes :data:`COSTLY` issue slots or more, and has at least
:data:`SHARED` terms for each of its elements, whose number is known.  It depends on remainders of positions, or it is a
special function of an axis that is summed, such as the weight ``sin(k) / k`` of a filter.  The evaluations that this
saves take longer than the tensors of the definition take to be read and written, and than two launches.  Operands of
products of matrices stay, because a tile computes each once (``store-operands`` stores them where that is not enough).

So does a special function of elements of tensors that lacks an axis of the result of a reduction, such as the inverse
deviation ``exp(-s[k, d])`` in the distances of many points from ``k`` centres.  A thread computes it
once for :data:`EACH` results along each axis that the function lacks.

Parts of conditions become tables too: an argmax compares the values of which another reduction has the maximum, and
both are one loop only where they compute these alike.

``shared``: the parts are those beside products of matrices that many of their elements have in common
(:mod:`nautilus.scalar.analysis.contractions.shared_parts`), such as a bias for each pair of positions in a window, and
read memory.  Definitions with equal parts, such as the maximum and the sum of a softmax, read the same table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import (
    Axis,
    Const,
    Expr,
    Load,
    Op,
    Var,
    children,
    free_vars,
    rewrite,
    substitute,
    walk,
)
from nautilus.core.functions import FUNCTIONS
from nautilus.core.index.groups import over_remainders
from nautilus.core.index.sizes import Extent, nominal
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.contractions.shared_parts import Part, shared_parts, slots
from nautilus.scalar.analysis.definitions import Def, points, size
from nautilus.scalar.analysis.masking import zero_outside
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs
from nautilus.targets.memory_rates import LAUNCH, MEMORY
from nautilus.targets.rates import machine
from nautilus.targets.records import DEFAULT_TARGET

COSTLY = 16  # issue slots: several times those of a load
SHARED = 32  # terms for each element of a table
EACH = 8  # results of a thread along an axis, which share the evaluations of functions of elements
LARGEST = 1 << 20  # elements of a table, which stay in L2
GAIN = 1.0  # the time saved, relative to that of memory and launches


@dataclass(frozen=True, slots=True)
class StoreTables:
    """Store the tables of all definitions, or the ``shared`` parts beside products.  ``arch``: the target."""

    arch: str = DEFAULT_TARGET
    shared: bool = False

    name = "store-tables"

    def apply(self, program: Program) -> Program:
        """The program with one more definition for each table; the same object where there is none."""
        if self.shared:
            return _with_shared_parts(program)
        rates = machine(self.arch)
        special = rates.fma / rates.special  # issue slots in which the unit of special functions takes one
        rate = rates.multiprocessors * rates.fma * rates.clock
        buffers = {b.name: b for b in program.buffers}
        made = dict[tuple[Expr, tuple[Axis, ...]], Def]()
        for name, d in find_defs(program).items():
            read = () if multiplies_matrices(d) else (d.value,) if d.guard is None else (d.value, d.guard)
            found = tuple(dict.fromkeys(t for e in read for t in _tables(e, d, buffers, special)))
            saved = sum(points(d.axes) * t.slots for t in found) / rate
            if found and saved > GAIN * (_bytes(d, buffers) / MEMORY + 2e-6 * LAUNCH):
                program = put_defs(program, name, _stored(program, d, found, made))
        return program


@dataclass(frozen=True, slots=True)
class _Table:
    """``value`` over ``axes``, whose element at ``index`` is the part ``of`` a definition.

    ``slots``: the issue slots for each term of the definition that the table saves.
    """

    of: Expr
    axes: tuple[Axis, ...]
    value: Expr
    index: tuple[Expr, ...]
    slots: float


def _tables(e: Expr, d: Def, buffers: Mapping[str, Buffer], special: float) -> Iterator[_Table]:
    """The largest parts of ``e`` that become tables. ``special``: issue slots for a special function."""
    if isinstance(e, Load):
        return
    made = None
    if e.dtype is DType.F32:
        read = [n for n in walk(e) if isinstance(n, Load)]
        made = _of_elements(e, read, d, buffers, special) if read else _table(e, d) if slots(e) >= COSTLY else None
    if made is not None:
        yield made
    for c in children(e) if made is None else ():
        yield from _tables(c, d, buffers, special)


def _table(e: Expr, d: Def) -> _Table | None:
    """``e`` over its axes, or over the remainders of them that alone it reads; None where it has too many elements."""
    names = free_vars(e)
    value, axes, index = over_remainders(e, [a for a in d.axes if a.name in names])
    small = SHARED * points(axes) <= points(d.axes) and points(axes) <= LARGEST and all(size(a) for a in axes)
    summed = not {a.name for a in axes}.isdisjoint(a.name for a in d.red)  # each result has all of its terms
    weights = summed and _is_special(e)
    apart = weights or any(not isinstance(i, Var) for i in index)  # else each thread has it once for many terms
    return _Table(e, axes, value, index, slots(e)) if apart and small else None


def _of_elements(e: Expr, read: Sequence[Load], d: Def, buffers: Mapping[str, Buffer], special: float) -> _Table | None:
    """``e``, a special function of all elements of tensors, over its axes, if a reduction has many results for each."""
    extents = {a.name: a.extent for a in d.axes}
    whole = all(
        isinstance(x, Var) and extents.get(x.name) == n
        for ld in read
        for x, n in zip(ld.index, buffers[ld.buffer].shape, strict=True)
    )
    axes = tuple(a for a in d.axes if a.name in free_vars(e))
    plain = d.op is not None and d.scatter is None and whole and _is_special(e) and all(size(a) for a in d.axes)
    lacking = [a for a in d.par if a not in axes]
    results = points(lacking)
    if not (plain and lacking) or results < SHARED * EACH or points(axes) > LARGEST or {*axes}.isdisjoint(d.red):
        return None
    functions = sum(isinstance(n, Op) and n.op in FUNCTIONS and FUNCTIONS[n.op].special for n in walk(e))
    cost = (slots(e) + special * functions) / EACH ** len(lacking)
    return _Table(e, axes, e, tuple(Var(a.name) for a in axes), cost)


def _is_special(e: Expr) -> bool:
    """Whether ``e`` has a function of the special unit, apart from divisions."""
    return any(isinstance(n, Op) and n.op != "div" and n.op in FUNCTIONS and FUNCTIONS[n.op].special for n in walk(e))


def _bytes(d: Def, buffers: Mapping[str, Buffer]) -> int:
    """Bytes of the tensors that ``d`` reads, or elements of them where those are fewer, and of what it writes."""
    return sum(
        min(prod(map(nominal, b.shape)), points(d.axes)) * b.dtype.bytes
        for b in {d.buffer, *(buffers[ld.buffer] for ld in d.reads())}
    )


def _stored(
    program: Program, d: Def, found: tuple[_Table, ...], made: dict[tuple[Expr, tuple[Axis, ...]], Def]
) -> tuple[Def, ...]:
    """The tables ``found`` that are not in ``made``, which then has them, and ``d`` that reads all of them."""
    at: dict[Expr, Expr] = {}
    new: list[Def] = []
    for t in found:
        names = {a.name: Axis(f"i{n}", a.extent, d.span) for n, a in enumerate(t.axes)}
        value, axes = substitute(t.value, {old: Var(a.name) for old, a in names.items()}), tuple(names.values())
        if (value, axes) not in made:
            name = fresh_name(program, f"{d.name}_table", [x.name for x in made.values()])
            buffer = Buffer(name, value.dtype, tuple(a.extent for a in axes), Space.TEMP, d.span)
            made[value, axes] = Def(name, buffer, axes, (), None, value, None, d.span)
            new.append(made[value, axes])
        at[t.of] = Load(made[value, axes].name, t.index, value.dtype, t.of.span)
    return (*new, _reading(d, at))


def _reading(d: Def, at: Mapping[Expr, Expr]) -> Def:
    """``d`` with the elements ``at`` its parts, in its value and in its condition."""
    guard = None if d.guard is None else rewrite(d.guard, at.get)
    return replace(d, value=rewrite(d.value, at.get), guard=guard)


def _with_shared_parts(program: Program) -> Program:
    """``program`` with the shared parts beside products in temps, equal ones once."""
    shapes = {b.name: b.shape for b in program.buffers}
    defs = find_defs(program)
    made: dict[tuple[Expr, tuple[Extent, ...]], Buffer] = {}
    for d in defs.values():
        found = shared_parts(d, defs, shapes)
        at: dict[Expr, Expr] = {}
        tables: list[Def] = []
        for part in found:
            table = _stored_part(program, part, d, [b.name for b in made.values()])
            key = table.value, table.buffer.shape
            if key not in made:
                made[key] = table.buffer
                tables.append(table)
            at[part.of] = _element(made[key], part)
        if found:
            program = put_defs(program, d.name, (*tables, _reading(d, at)))
    return program


def _stored_part(program: Program, part: Part, d: Def, others: Sequence[str]) -> Def:
    """The temp that has the elements of ``part`` of ``d``."""
    axes = tuple(Axis(f"i{n}", a.extent, d.span) for n, a in enumerate(part.axes))
    value = substitute(part.value, {a.name: Var(i.name) for a, i in zip(part.axes, axes, strict=True)})
    if part.partial:
        shapes = {b.name: b.shape for b in program.buffers}
        value = zero_outside(value, shapes, {a.name: a.extent for a in axes})
    if part.pitch != axes[-1].extent:
        inside = calc("lt", Var(axes[-1].name), axes[-1].extent)
        value = Op("select", (inside, value, Const(0.0, value.dtype)), value.dtype)
        axes = (*axes[:-1], replace(axes[-1], extent=part.pitch))
    name = fresh_name(program, f"{d.name}_table", others)
    buffer = Buffer(name, part.dtype, tuple(a.extent for a in axes), Space.TEMP, d.span)
    return Def(name, buffer, axes, (), None, value, None, d.span)


def _element(buffer: Buffer, part: Part) -> Expr:
    load = Load(buffer.name, part.index, buffer.dtype, part.of.span)
    return load if load.dtype is part.of.dtype else Op("cast", (load,), part.of.dtype, part.of.span)
