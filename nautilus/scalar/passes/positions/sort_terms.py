"""``sort-terms``: terms that a key in memory sends to elements of a sum are sorted by that key.

A sum ``O[e, d] = sum[t | key[t] == e](X[t, d])`` over f32 is exact in no order, so that ``scatter`` visits its terms
twice, for the largest one of each element and for a sum of integers, which takes atomic operations on 12 bytes for each
term and three times the memory of the result.  Where terms are rows of many elements, it is less work to find the place
of each row among the rows sorted by their key, keeping their order::

    count[q, e]   = sum[v | key[C * q + v] == e](1)             ;    total[e] = sum[q](count[q, e])
    start[e]      = sum[x | x < e](total[x])
    earlier[q, e] = sum[x | x < q](count[x, e])
    before[t]     = sum[v | v < t % C and key[C * (t // C) + v] == key[t]](1)
    place[t]      = start[key[t]] + earlier[t // C, key[t]] + before[t]  if 0 <= key[t] < E  else T
    row[p]        = sum[t | place[t] == p](t)

Each element then reduces its own segment, which writes it once and reads each term once::

    O[e, d] = sum[p | start[e] <= p < start[e + 1]](X[row[p], d])

``C`` is the length of a chunk of rows: longer chunks compare more keys, shorter ones have more counts.  Keys may depend
on several reduced axes, whose rows are numbered; other conditions stay where they are.  Sums with the same key share
the order, and so do extremes of rows of :data:`LONG` elements or more, which would take an atomic operation for each
element.  ``row`` is 0 at places that no row has, so that no index leads outside of a tensor.

The pass applies where the order takes clearly less time than the scatter (:func:`gains`).  It does not where blocks
combine all elements in shared memory and elements have many rows, because few segments leave multiprocessors idle.
Sizes have to be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer, within
from nautilus.core.expr.conditions import all_conjuncts, conjunction, short_circuit
from nautilus.core.expr.infer import make
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Var, free_vars, substitute
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.analysis.masking import certainly_in_range
from nautilus.scalar.analysis.ranges.keys import Keyed, key_of
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.axes.scatter import arranged, fits_in_blocks, in_one_pass, scattered
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs
from nautilus.targets.memory_rates import LAUNCH

CHUNKS = 64, 4096  # lengths of a chunk of rows: powers of two
KERNELS = 11  # of an order
COMPARED = 3.3e-7  # microseconds of the comparison of two keys: ten instructions of a lane (estimate for an H200)
COUNTED = 6e-6  # microseconds of a count, which is written, scattered into, and summed twice: 20 bytes (estimate)
#: microseconds of the two atomic operations of a term: 16.8M elements of the gradient of an embedding take 158 us on an
#: H200; those of graph attention, which are computed for each operation and meet more often, take 2.4e-5 and 4.3e-5
TERM = 9.3e-6
#: microseconds of the largest term and the integer of an element, which are written, read, and read again: 32.8M
#: elements of that gradient take 209 us
RESULT = 6.5e-6
GAIN = 0.8  # the order takes less than this share of the time of the scatter: keys may meet more or less often
MOST = 1 << 20  # largest number of rows that are sorted
SEGMENT = 1 << 14  # rows of an element, of which its segment has many (67M terms of 64 elements: 194 us, 268 predicted)
LONG = 8  # elements of a row of a reduction that is exact in any order, from which on it uses the order of a sum


@dataclass(frozen=True, slots=True)
class SortTerms:
    """Sort the terms of every such sum; none where elements must not depend on the number of terms.

    ``always``: also where the scatter is predicted to take less time.
    """

    schedule: Schedule | None = None
    always: bool = False

    name = "sort-terms"

    def apply(self, program: Program) -> Program:
        """The program with sorted terms; the same object where there is no such sum."""
        if self.schedule is not None and self.schedule.batch_invariant:
            return program
        found = {d.name: (d, s) for d in find_defs(program).values() if (s := _sortable(program, d)) is not None}
        sums = [(d, s) for d, s in found.values() if not in_one_pass(d)]
        ordered = {s.order for _, s in sums if self.always or gains([x for x in sums if x[1].order == s.order])}
        orders: dict[tuple[Expr, int], _Order] = {}
        out = program
        for d, s in found.values():
            if s.order in ordered and (not in_one_pass(d) or s.others(d) >= LONG):
                out = _sorted(out, d, s, orders)
        return out if out is program else Simplify().apply(out)


@dataclass(frozen=True, slots=True)
class _Sortable:
    """A reduction over ``rows``: each belongs to the element ``key`` of ``axis``, under conditions ``rest``.

    ``in_block``: blocks combine the terms of its scatter in shared memory, and elements have many rows.
    """

    rows: tuple[Axis, ...]
    axis: Axis
    key: Expr
    rest: tuple[Expr, ...]
    in_block: bool

    @property
    def number(self) -> int:
        """The number of rows."""
        return prod(size(a) or 0 for a in self.rows)

    @property
    def elements(self) -> int:
        """The number of elements that a key may name."""
        return size(self.axis) or 0

    @property
    def order(self) -> tuple[Expr, int]:
        """What reductions with one order have in common."""
        return substitute(self.key, self.at(Var("row"))), self.elements

    def others(self, d: Def) -> int:
        """The elements of a row of ``d``, which is this."""
        return prod(size(a) or 1 for a in d.par if a is not self.axis)

    @property
    def chunk(self) -> int:
        """Rows of a chunk: the power of two with the least time of counts and comparisons."""
        shortest, longest = CHUNKS
        lengths = (shortest << k for k in range((longest // shortest).bit_length()))
        return min(lengths, key=self.seconds_of)

    def seconds_of(self, chunk: int) -> float:
        """Microseconds of the counts and the comparisons with chunks of ``chunk`` rows."""
        return self.number * chunk * COMPARED + -(-self.number // chunk) * self.elements * COUNTED

    def at(self, place: Expr) -> dict[str, Expr]:
        """The axes of the row with number ``place``."""
        found: dict[str, Expr] = {}
        for a in reversed(self.rows):
            n = size(a) or 1
            found[a.name] = calc("mod", place, n) if a is not self.rows[0] else place
            place = calc("floordiv", place, n)
        return found


def _sortable(program: Program, d: Def) -> _Sortable | None:
    """``d`` as a reduction of rows; None for another definition, or where a key or a condition may be read outside."""
    k = scattered(program, d)
    found = None if k is None or len(k.keys) != 1 else _by_key(d, k)
    if found is None or not 0 < found.number <= MOST or not found.elements:
        return None
    shapes = {b.name: b.shape for b in program.buffers}
    rows, every = ({a.name: a.extent for a in axes} for axes in (found.rows, d.axes))
    certain = all(certainly_in_range(c, shapes, every) for c in found.rest)
    return found if certain and certainly_in_range(found.key, shapes, rows) else None


def _by_key(d: Def, k: Keyed) -> _Sortable | None:
    """``d`` with the key of ``k``, which depends on reduced axes alone."""
    (axis,) = k.keys
    red = {a.name for a in d.red}
    equation = next(((c, e) for c in all_conjuncts(d.guard) if (e := key_of(c, axis.name, red)) is not None), None)
    if equation is None or not free_vars(equation[1]) <= red or any(size(a) is None for a in d.axes):
        return None
    condition, key = equation
    rows = tuple(a for a in d.red if a.name in free_vars(key))
    rest = tuple(c for c in all_conjuncts(d.guard) if c != condition)
    many = prod(size(a) or 0 for a in rows) >= SEGMENT * (size(axis) or 0)
    return _Sortable(rows, axis, key, rest, many and fits_in_blocks(*arranged(d, k)))


def gains(sums: Sequence[tuple[Def, _Sortable]]) -> bool:
    """Whether the order of the rows takes clearly less time than two scatters of the terms of each of ``sums``."""
    others, s = sum(x.others(d) for d, x in sums if not x.in_block), sums[0][1]
    scatters = s.number * others * TERM + s.elements * others * RESULT
    return KERNELS * LAUNCH + s.seconds_of(s.chunk) < GAIN * scatters


@dataclass(frozen=True, slots=True)
class _Order:
    """The names of the definitions of an order: ends of the segments, and the row of each place."""

    start: str
    row: str


def _sorted(program: Program, d: Def, s: _Sortable, orders: dict[tuple[Expr, int], _Order]) -> Program:
    """``program`` with the terms of ``d`` in the order of ``s``, which joins ``orders``."""
    made: list[Def] = []
    if s.order not in orders:
        orders[s.order] = _order(program, d, s, made)
    order = orders[s.order]
    p, e = Axis(unused("p", [a.name for a in d.axes]), s.number, d.span), Var(s.axis.name)
    at = s.at(Load(order.row, (Var(p.name),), DType.I32))
    ends = [Load(order.start, (x,), DType.I32) for x in (e, calc("add", e, 1))]
    inside = (calc("le", ends[0], Var(p.name)), calc("lt", Var(p.name), ends[1]))
    guard = conjunction((*inside, *(substitute(c, at) for c in s.rest)))
    others = tuple(a for a in d.red if a not in s.rows)
    return put_defs(program, d.name, (*made, replace(d, red=(p, *others), value=substitute(d.value, at), guard=guard)))


def _order(program: Program, d: Def, s: _Sortable, made: list[Def]) -> _Order:
    """The order of the rows of ``s``, whose definitions join ``made``."""
    r, q, v, x, e, p = (unused(n, [a.name for a in d.axes], first=2) for n in ("r", "q", "v", "x", "e", "p"))
    length, number, one = s.chunk, s.number, integer(1)
    chunks, rows, places = Axis(q, -(-number // length)), Axis(r, number), Axis(p, number)
    inside, elements = Axis(v, length), Axis(e, s.elements + 1)  # of the last one, all ends are behind the rows

    def named(what: str, par: Sequence[Axis], value: Expr, red: Axis | None = None, guard: Expr | None = None) -> Def:
        name = fresh_name(program, f"{d.name}_{what}", [m.name for m in made])
        buffer = Buffer(name, DType.I32, tuple(a.extent for a in par), Space.TEMP, d.span)
        reduced = ((red,), "sum") if red is not None else ((), None)
        made.append(Def(name, buffer, tuple(par), reduced[0], reduced[1], value, guard, d.span))
        return made[-1]

    def key(place: Expr) -> Expr:
        return substitute(s.key, s.at(place))

    def read(of: Def, *index: Expr) -> Expr:
        return Load(of.name, index, DType.I32, d.span)

    place = calc("add", calc("mul", Var(q), length), Var(v))
    there: Expr = make("eq", key(place), _cast(Var(e), s.key.dtype))
    there = there if number % length == 0 else short_circuit(calc("lt", place, number), there)
    count = named("count", (chunks, elements), one, inside, there)
    total = named("total", (elements,), read(count, Var(q), Var(e)), chunks)
    earlier_key = calc("lt", Var(x), Var(e))
    start = named("start", (elements,), read(total, Var(x)), Axis(x, elements.extent), earlier_key)
    earlier = named(
        "earlier", (chunks, elements), read(count, Var(x), Var(e)), Axis(x, chunks.extent), calc("lt", Var(x), Var(q))
    )
    first = calc("mul", calc("floordiv", Var(r), length), length)
    nearer = calc("lt", Var(v), calc("mod", Var(r), length))
    alike = make("eq", key(calc("add", first, Var(v))), key(Var(r)))
    before = named("before", (rows,), one, inside, short_circuit(nearer, alike))
    known = calc("min", calc("max", _cast(key(Var(r)), DType.I32), 0), s.elements - 1)
    sums = (read(start, known), read(earlier, calc("floordiv", Var(r), length), known), read(before, Var(r)))
    total_before = reduce(lambda a, b: calc("add", a, b), sums)
    valid = conjunction(within(key(Var(r)), Const(s.elements, s.key.dtype)))
    assert valid is not None
    placed = named("place", (rows,), make("select", valid, total_before, integer(number)))
    row = named("row", (places,), Var(r), rows, calc("eq", read(placed, Var(r)), Var(p)))
    return _Order(start.name, row.name)


def _cast(e: Expr, dtype: DType) -> Expr:
    return e if e.dtype is dtype else make("cast", e, dtype=dtype)
