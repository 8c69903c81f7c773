"""``scatter``: a reduction whose condition is an equation with a key visits each term once.

``O[e, d] sum= X[t, d] where Index[t] == e`` visits all terms for each element.  A key in memory says where a term
belongs (:mod:`nautilus.scalar.analysis.ranges.keys`), so each term is combined into its own element instead, and the
work no longer grows with the extent of ``e``::

    O[e, d] = identity
    O[Index[t], d] op= X[t, d]  where 0 <= Index[t] < E  atomic

Terms whose key is outside of the result are dropped, which the masked form does too.  Iterations meet in any order,
so the combiner has to be exact (:mod:`nautilus.core.expr.atomics`): every run gives the same bits.

A sum of f32 is not.  It becomes one of integers, relative to the largest term of each element::

    O_most[e, d]  max= |x|                               atomic
    O_scale[e, d] =    1 / binade(O_most)
    O_fixed[e, d] sum= i64(x * O_scale * 2^bits)         atomic
    O[e, d]       =    f32(O_fixed) / 2^bits * binade(O_most)

``bits`` is the largest number for which no sum of all terms leaves 62 bits, so a term is rounded by less than
``terms * 2^-61`` of the largest one, and a sum by less than a sum in f32 is.  A scale is divided for once, and not for
each term.  Where the largest term is inf or NaN, the scale is 0, and ``O_fixed`` counts inf, -inf and NaN instead,
which decide the result.

The largest of terms ``exp(x - M[e])``, or ``exp(x - M[Index[t]])``, is ``exp(M[e] - M[e])`` where ``M[e]`` is the
largest ``x`` of the same terms, because ``exp`` is monotone: no scatter looks for it (:func:`largest_of`).  It is NaN
where ``M[e]`` is not finite, and so for an element without terms, of which ``O_fixed`` counts none.

A condition (``any``, ``all``) is the maximum or the minimum of integers that are 0 or 1.  A sum of equal terms is their
number times one of them.

Atomic operations on one line of memory run one after another.  A result of few elements, of which each has many terms,
has *copies*: a run of :data:`RUN` terms is combined into one of them, the next run into the next one, and a reduction
over the copies follows::

    O_copy[t // RUN % copies, Index[t]] op= X[t]  atomic
    O[e] = op_c O_copy[c, e]

Where the elements of all keys fit in the shared memory of a block, blocks combine there, and no copies are needed.
The keys have to be the last axes for it, so where others follow them, a temp has the axes in this order.  Another last
axis along which terms are contiguous stays, and a block has the elements along it too.

Reduced axes on which no key depends are reduced in a definition of their own before, so that their terms do not meet
in memory.  ``schedule.scatters`` names the reductions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf, isfinite, prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.atomics import is_exact
from nautilus.core.expr.build import integer
from nautilus.core.expr.infer import make
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Var, free_vars, identity, loads, substitute
from nautilus.core.index.sizes import at_most, large, nominal
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.core.text.names import unused
from nautilus.core.tiles import floor_pow2
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def, points
from nautilus.scalar.analysis.ranges.keys import Keyed, keyed
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs
from nautilus.targets.limits import SCATTER_BYTES
from nautilus.targets.memory_rates import ATOMIC_LINES

RUN = 1024  # terms that follow each other and have one copy
MEET = 64  # least number of terms of an element for each of its copies
FEWEST = 4  # least number of copies that justify a reduction over them
MANY = 1 << 18  # terms for which all multiprocessors have blocks that combine enough of them
EACH = 96  # terms of an element, so that each of these blocks has at least one
LINE = 32  # elements of 4 bytes on a line of memory
_WHOLE = 62  # bits of the magnitude of a sum of integers
_LEAST = 24  # bits of a term of f32
_SHIFT = 13  # with it, the scale and its reciprocal are normal numbers
_CONDITIONS = {"any": "max", "all": "min"}  # the combiners of integers that stand for them
_INF, _MINUS_INF = 1, 1 << 31  # what a term of this value counts where the largest one is not finite


@dataclass(frozen=True, slots=True)
class Scatter:
    """Scatter the reductions that ``schedule`` names; none without a schedule, or where it names none."""

    schedule: Schedule | None = None

    name = "scatter"

    def apply(self, program: Program) -> Program:
        """The program with scatters. Raises ScheduleError for a definition that cannot be one."""
        names = (self.schedule.scatters if self.schedule is not None else None) or ()
        given = find_defs(program)
        for name in names:
            d = find_defs(program).get(name)
            found = None if d is None else scattered(program, d)
            if d is None or found is None:
                raise ScheduleError(f"scatters: {name!r} is no reduction with a key")
            program = _rewritten(program, d, found, largest_of(d, given, found.at))
        return Simplify().apply(program) if names else program


def scattered(program: Program, d: Def) -> Keyed | None:
    """``d`` by its terms; None where it is no reduction with a key, or none that is exact in any order."""
    if not is_scattered(d):
        return None
    return keyed(d, {b.name: b.shape for b in program.buffers})


def is_scattered(d: Def) -> bool:
    """Whether a scatter of the terms of the reduction ``d`` gives the same bits in every order."""
    return d.op is not None and (in_one_pass(d) or _bits(d) is not None)


def in_one_pass(d: Def) -> bool:
    """Whether every order of the terms of ``d`` gives the same bits, so that one scatter finds the result."""
    return d.op in _CONDITIONS or is_exact(d.op or "", d.buffer.dtype) or _counts(d)


def _counts(d: Def) -> bool:
    """Whether ``d`` is a sum of f32 over one axis whose terms all are the same finite number."""
    equal = d.op == "sum" and d.buffer.dtype is DType.F32 and isinstance(d.value, Const) and isfinite(d.value.value)
    return equal and len(d.red) == 1 and terms(d) < 1 << 31


def expected(axes: Iterable[Axis]) -> int:
    """The elements along ``axes``, where a size that is known only at launch counts as large.

    A scatter of few terms takes a few launches longer, and the masked form of many terms may take any time.
    """
    return prod(large(a.extent) for a in axes)


def terms(d: Def) -> int:
    """The terms of one element of ``d``, at most."""
    return prod(at_most(a.extent) for a in d.red)


def _bits(d: Def) -> int | None:
    """Bits of the fraction of a term of a sum of f32; None for another reduction, or where there are too many terms."""
    if d.op != "sum" or d.buffer.dtype is not DType.F32:
        return None
    found = _WHOLE - 1 - (terms(d) - 1).bit_length()
    return found if found >= _LEAST else None


def largest_of(d: Def, defs: Mapping[str, Def], at: tuple[Expr, ...] = ()) -> Expr | None:
    """The largest term of the sum ``d`` of exponentials relative to the largest of their arguments; None for others.

    ``at``: the element of a term by its keys, which is that of the result where the condition of ``d`` holds.
    """
    match d.value:
        case Op(op="exp", args=(Op(op="sub", args=(x, Load() as read)),)) if d.op == "sum" and read.buffer in defs:
            of = defs[read.buffer]
        case _:
            return None
    own, alike = tuple(Var(a.name) for a in d.par), [a.extent for a in of.axes] == [a.extent for a in d.axes]
    if of.op != "max" or of.at is not None or read.index not in (own, at) or not alike or len(of.par) != len(d.par):
        return None
    if not (of.buffer.dtype is DType.F32 is x.dtype is d.buffer.dtype):
        return None
    names: dict[str, Expr] = {a.name: Var(b.name) for a, b in zip(of.axes, d.axes, strict=True)}
    guard = None if of.guard is None else substitute(of.guard, names)
    if guard != d.guard or substitute(of.value, names) != x:
        return None
    largest = replace(read, index=own)
    return make("exp", make("sub", largest, largest))


def _at_most_one(e: Expr) -> Expr:
    """``e``, which is ``exp(x - m)`` with ``x <= m``; a computed ``x`` may be rounded in another way than in ``m``."""
    match e:
        case Op(op="exp", args=(Op(op="sub", args=(x, _)) as exponent,)) if not isinstance(x, Load):
            return make("exp", make("min", exponent, _f32(0.0)))
    return e


def _rewritten(program: Program, whole: Def, k: Keyed, largest: Expr | None) -> Program:
    taken: list[str] = []

    def temp(suffix: str, dtype: DType) -> Buffer:
        name = fresh_name(program, f"{whole.name}_{suffix}", taken)
        taken.append(name)
        return Buffer(name, dtype, d.buffer.shape, Space.TEMP, d.span)

    d, k = arranged(whole, k)
    made: list[Def] = []

    def scattered(target: Buffer, op: str, value: Expr) -> None:
        count = copies(d, k)
        if count == 1:
            made.append(_scatter(d, k, target, op, value))
        else:
            made.extend(_copied(d, k, target, (temp("copy", target.dtype), count), op, value))

    if d is not whole:
        d = replace(d, name=(own := temp("by_key", d.buffer.dtype)).name, buffer=replace(own, shape=d.buffer.shape))
    largest = None if without_position(d, k) else largest
    k = _reduced_first(d, k, made, temp("terms", d.buffer.dtype))
    assert d.op is not None
    if is_exact(d.op, d.buffer.dtype):
        scattered(d.buffer, d.op, k.value)
    elif _counts(d):
        number = temp("number", DType.I32)
        scattered(number, "sum", integer(1))
        made.append(_from_count(d, number, k.value))
    elif d.op in _CONDITIONS:
        number = temp("number", DType.I32)
        scattered(number, _CONDITIONS[d.op], make("cast", k.value, dtype=DType.I32))
        made.append(_from_number(d, number))
    else:
        most, scale, fixed = temp("most", DType.F32), temp("scale", DType.F32), temp("fixed", DType.I64)
        if largest is None:
            scattered(most, "max", make("abs", k.value))
        else:
            made.append(Def(most.name, most, d.par, (), None, largest, None, d.span))
            k = replace(k, value=_at_most_one(k.value))
        made.append(_scale_of(d, most, scale))
        scattered(fixed, "sum", _in_fixed_point(d, k, scale))
        made.append(_from_fixed_point(d, most, fixed))
    if d is not whole:
        made.append(_in_order_of(whole, d))
    return put_defs(program, whole.name, made)


def arranged(d: Def, k: Keyed) -> tuple[Def, Keyed]:
    """``d`` and ``k`` with the keys as last axes where blocks then combine the terms; else both as they are.

    Terms that are contiguous along another axis of the result stay: a block has elements of several keys along it.
    """
    keys = {a.name for a in k.keys}
    if _in_layout(k.axes, k, k.value)[-1].name in {a.name for a in d.par}:
        return d, k
    order = sorted(range(len(d.par)), key=lambda n: d.par[n].name in keys)
    axes = tuple(d.par[n] for n in order)
    shape = tuple(d.buffer.shape[n] for n in order)
    other = replace(d, par=axes, buffer=replace(d.buffer, shape=shape, space=Space.TEMP))
    by_key = replace(k, at=tuple(k.at[n] for n in order))
    gains = axes != d.par and not fits_in_blocks(d, k) and fits_in_blocks(other, by_key)
    return (other, by_key) if gains else (d, k)


def _in_order_of(d: Def, by_key: Def) -> Def:
    """The elements of ``d`` from those of ``by_key``, whose axes have another order."""
    read: Expr = Load(by_key.name, by_key.index, by_key.buffer.dtype, d.span)
    if d.buffer.dtype.compute is not d.buffer.dtype:
        read = make("cast", read, dtype=d.buffer.dtype.compute)
    return Def(d.name, d.buffer, d.par, (), None, read, None, d.span)


def _reduced_first(d: Def, k: Keyed, made: list[Def], target: Buffer) -> Keyed:
    """``k`` without the reduced axes of which no position depends, which a definition in ``made`` then has."""
    rest = without_position(d, k)
    if not rest:
        return k
    names = {a.name for a in rest}
    axes = _in_layout(tuple(a for a in k.axes if a.name not in names), k, k.value)
    buffer = replace(target, shape=tuple(a.extent for a in axes))
    made.append(Def(buffer.name, buffer, axes, rest, d.op, k.value, k.guard, d.span))
    return replace(k, axes=axes, value=Load(buffer.name, made[-1].index, buffer.dtype, d.span), guard=k.inside)


def without_position(d: Def, k: Keyed) -> tuple[Axis, ...]:
    """The reduced axes of which no position depends: these terms meet before the scatter."""
    used = frozenset[str]().union(*(free_vars(e) for e in k.at))
    return tuple(a for a in d.red if a.name not in used)


def _in_layout(axes: tuple[Axis, ...], k: Keyed, value: Expr) -> tuple[Axis, ...]:
    """``axes`` in the order that they have in the access with most of them; others come first.

    The last one is that along which terms ``value`` are contiguous, as tiles are long along it.  Accesses are the loads
    of ``value``, those of the keys, and the elements that the terms are combined into.
    """
    names = {a.name for a in axes}
    every = [*(ld.index for e in (value, *k.at) for ld in loads(e)), k.at]
    widest = max(every, key=lambda index: len(names & frozenset[str]().union(*map(free_vars, index))))
    found = [free_vars(e) for e in widest]
    place = {a.name: next((n for n, used in enumerate(found) if a.name in used), -1) for a in axes}
    return tuple(sorted(axes, key=lambda a: place[a.name]))


def _scatter(d: Def, k: Keyed, target: Buffer, op: str, value: Expr) -> Def:
    """``target[k.at] op= value`` for every term of ``k``."""
    start = identity(op, target.dtype).value
    buffer = replace(target, initial=start)
    return Def(target.name, buffer, _in_layout(k.axes, k, value), (), None, value, k.guard, d.span, k.at, op)


def copies(d: Def, k: Keyed) -> int:
    """How many copies the result of the scatter of ``d`` has."""
    if fits_in_blocks(d, k):
        return 1
    elements, count = points(d.par), expected(k.axes)
    wanted = min(ATOMIC_LINES * LINE // max(1, elements), count // (MEET * max(1, elements)), count // RUN)
    return floor_pow2(wanted) if wanted >= FEWEST else 1


def fits_in_blocks(d: Def, k: Keyed) -> bool:
    """Whether blocks combine the terms of ``d`` in shared memory (the MA-tile pass ``block-scatters``)."""
    keys = {a.name for a in k.keys}
    first = next(n for n, a in enumerate(d.par) if a.name in keys)
    trailing = d.par[first:]
    known = [a for a in d.par if isinstance(a.extent, int)]
    one = len(trailing) == 1 and {a.name for a in d.par} - {a.name for a in known} <= {trailing[0].name}
    apart = [a.name for a in trailing if a.name not in keys]
    if (len(known) < len(d.par) and not one) or apart not in ([], [_in_layout(k.axes, k, k.value)[-1].name]):
        return False
    if len(k.axes) > 1 and any(not isinstance(a.extent, int) for a in k.axes):
        return False
    own, rows = prod(at_most(a.extent) for a in trailing), points(d.par[:first])
    size = max(4, d.buffer.dtype.bytes) if in_one_pass(d) else 8
    count = expected(k.axes)
    return own * size <= SCATTER_BYTES and count >= MANY and count >= EACH * own * rows


def _copied(
    d: Def, k: Keyed, target: Buffer, copy_of: tuple[Buffer, int], op: str, value: Expr
) -> tuple[Def, Def]:  # fmt: skip
    """The scatter into copies, of which ``copy_of`` is one and their number, and their reduction to ``target``."""
    one, count = copy_of
    few = replace(one, shape=(count, *one.shape))
    term = max(k.axes, key=lambda a: nominal(a.extent)).name
    run = make("floordiv", Var(term), integer(RUN))
    copy = make("mod", run, integer(count))
    first = _scatter(d, replace(k, at=(copy, *k.at)), few, op, value)
    axis = Axis(unused("copy", {a.name for a in (*d.par, *d.red)}), count, d.span)
    at = (Var(axis.name), *(Var(a.name) for a in d.par))
    read: Expr = Load(few.name, at, few.dtype, d.span)
    if few.dtype.compute is not few.dtype:
        read = make("cast", read, dtype=few.dtype.compute)
    return first, Def(target.name, target, d.par, (axis,), op, read, None, d.span)


def _scale_of(d: Def, most: Buffer, scale: Buffer) -> Def:
    """The power of two for the terms of each element; 0 where one of them is not finite."""
    top = Load(most.name, tuple(Var(a.name) for a in d.par), DType.F32, d.span)
    finite = make("div", _f32(2.0**_SHIFT), make("binade", top))
    value = make("select", make("lt", top, _f32(inf)), finite, _f32(0.0))
    return Def(scale.name, scale, d.par, (), None, value, None, d.span)


def _in_fixed_point(d: Def, k: Keyed, scale: Buffer) -> Expr:
    """A term of the sum of integers that a sum of f32 becomes (module docstring)."""
    bits = _bits(d)
    assert bits is not None
    by = Load(scale.name, k.at, DType.F32, d.span)
    scaled = make("mul", make("mul", k.value, by), _f32(2.0 ** (bits - _SHIFT)))
    whole = make("cast", make("round", scaled), dtype=DType.I64)
    return make("select", make("lt", _f32(0.0), by), whole, _count(k.value))


def _from_number(d: Def, number: Buffer) -> Def:
    """The condition ``d`` from the extreme of its terms, which is no term where there is none."""
    found = Load(number.name, tuple(Var(a.name) for a in d.par), DType.I32, d.span)
    return Def(d.name, d.buffer, d.par, (), None, make("lt", integer(0), found), None, d.span)


def _from_count(d: Def, number: Buffer, term: Expr) -> Def:
    """The sum of as many equal terms ``term`` as ``number`` says."""
    found = Load(number.name, tuple(Var(a.name) for a in d.par), DType.I32, d.span)
    value = make("mul", make("cast", found, dtype=DType.F32), term)
    return Def(d.name, d.buffer, d.par, (), None, value, None, d.span)


def _from_fixed_point(d: Def, most: Buffer, fixed: Buffer) -> Def:
    """The sum of f32 from that of integers."""
    bits = _bits(d)
    assert bits is not None
    own = tuple(Var(a.name) for a in d.par)
    total, top = Load(fixed.name, own, DType.I64, d.span), Load(most.name, own, DType.F32, d.span)
    fraction = make("mul", make("cast", total, dtype=DType.F32), _f32(2.0**-bits))
    value = make("mul", fraction, make("binade", top))
    result = make("select", make("lt", top, _f32(inf)), value, _counted(total, top))
    return Def(d.name, d.buffer, d.par, (), None, result, None, d.span)


def _count(x: Expr) -> Expr:
    """What ``x`` counts beside a term that is not finite: NaN counts as inf and as -inf."""
    nan = make("select", make("ne", x, x), _i64(_INF + _MINUS_INF), _i64(0))
    low = make("select", make("eq", x, _f32(-inf)), _i64(_MINUS_INF), nan)
    return make("select", make("eq", x, _f32(inf)), _i64(_INF), low)


def _counted(total: Expr, top: Expr) -> Expr:
    """The sum of terms that count ``total``, of which the largest magnitude ``top`` is inf or NaN."""
    low = make("eq", make("mod", total, _i64(_MINUS_INF)), _i64(0))
    both = make("select", low, _f32(-inf), make("sub", top, top))
    some = make("select", make("lt", total, _i64(_MINUS_INF)), _f32(inf), both)
    return make("select", make("eq", total, _i64(0)), _f32(0.0), some)


def _f32(value: float) -> Const:
    return Const(value, DType.F32)


def _i64(value: int) -> Const:
    return Const(value, DType.I64)
