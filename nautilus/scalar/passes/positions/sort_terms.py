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

``C`` is the length of a chunk of rows: longer chunks compare more keys, shorter ones have more counts.  Where it takes
less time, rows are sorted by one digit after the other, the lowest first (a radix sort): the counts of a chunk are then
those of the values of a digit, and come from words of the bits of digits (``rewriting.orders.ranks``), without atomic
operations.  A row without an element has a key behind all others, and what is left of a key moves with its row::

    code[t]    = key[t]  if 0 <= key[t] < E  else E      ;    total[e] = sum[t | code[t] == e](1)
    digit_1[t] = code[t] % B                             ;    row_1[p] = sum[t | place_1[t] == p](code[t] // B * R + t)
    digit_2[t] = row_1[t] // R % B                       ;    row_2[p] = sum[t | place_2[t] == p](row_1[t] % R)

Keys may depend on several reduced axes, whose rows are numbered; other conditions stay where they are.  The keys of
several axes of the result are the digits of one, which is stored, and which is -1 where one of them is outside of its
axis::

    key[t] = key_e[t] * F + key_f[t]  if 0 <= key_e[t] < E and 0 <= key_f[t] < F  else -1

Sums with the same key share the order, and so do extremes of rows of :data:`LONG` elements or more, which would take an
atomic operation for each element.  ``row`` is 0 at places that no row has, so that no index leads outside of a tensor.

The pass applies where the order takes clearly less time than the scatter (:func:`gains`).  It does not where blocks
combine all elements in shared memory and elements have many rows, because few segments leave multiprocessors idle.
Sizes have to be known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from nautilus.core.expr.build import calc, integer, within
from nautilus.core.expr.conditions import all_conjuncts, conjunction
from nautilus.core.expr.infer import make
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Var, free_vars, loads, substitute
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.analysis.masking import certainly_in_range
from nautilus.scalar.analysis.ranges.keys import Keyed, key_of, keyed
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.axes.scatter import arranged, fits_in_blocks, in_one_pass, is_scattered, scattered
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.rewriting import find_defs, put_defs
from nautilus.scalar.rewriting.orders.ranks import WORD, Codes, Comparisons, Masks, Names, converted, read_of
from nautilus.targets.memory_rates import LAUNCH

CHUNKS = 64, 4096  # lengths of a chunk of rows: powers of two
MASKED_CHUNKS = 256, 4096  # of words, so that their sums are no short expressions, which readers would repeat
KERNELS, KERNELS_OF_KEYS = 8, 11  # of an order by one digit, and by whole keys
ONES = 6  # operations that count the bits of a word
MASKED = 7e-8  # microseconds of an operation on a word for one row (estimate)
COMPARED = 3.3e-7  # microseconds of the comparison of two keys: ten instructions of a lane (estimate for an H200)
COUNTED = 6e-6  # microseconds of a count, which is written, and summed twice: up to 20 bytes (estimate)
#: microseconds of the two atomic operations of a term: 16.8M elements of the gradient of an embedding take 158 us on an
#: H200; those of graph attention, which are computed for each operation and meet more often, take 2.4e-5 and 4.3e-5
TERM = 9.3e-6
#: microseconds of the largest term and the integer of an element, which are written, read, and read again: 32.8M
#: elements of that gradient take 209 us
RESULT = 6.5e-6
DIGITS = 3  # of a key, at most
MOVED = 1.6e-5  # microseconds of the bits of a row and of its place, half of which are sectors (estimate)
CODES = 5  # kernels of the codes, and of the rows of each element
GAIN = 0.8  # the order takes less than this share of the time of the scatter: keys may meet more or less often
_ORDERED = ("sum", "prod")  # combiners that every order rounds in another way
MOST = 1 << 24  # largest number of rows that are sorted
SEGMENT = 1 << 14  # rows of an element, of which its segment has many (67M terms of 64 elements: 194 us, 268 predicted)
_ELEMENTS = 1 << 31  # of several axes, which an i32 numbers
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
            if s.order in ordered and (not in_one_pass(d) or s.others(d) >= LONG or _of_ends(d, s) is not None):
                out = _sorted(out, d, s, orders)
        return out if out is program else Simplify().apply(out)


@dataclass(frozen=True, slots=True)
class _Sortable:
    """A reduction over ``rows``: each belongs to the element ``key`` of ``keyed``, under conditions ``rest``.

    The elements of several axes ``keyed`` are numbered, and a row of none of them has the key -1.

    ``in_block``: blocks combine the terms of its scatter in shared memory, and elements have many rows.
    """

    rows: tuple[Axis, ...]
    keyed: tuple[Axis, ...]
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
        return prod(size(a) or 0 for a in self.keyed)

    @property
    def element(self) -> Expr:
        """The number of an element."""
        return _numbered(self.keyed, [Var(a.name) for a in self.keyed])

    @property
    def order(self) -> tuple[Expr, int]:
        """What reductions with one order have in common."""
        return substitute(self.key, self.at(Var("row"))), self.elements

    def others(self, d: Def) -> int:
        """The elements of a row of ``d``, which is this."""
        return prod(size(a) or 1 for a in d.par if a not in self.keyed)

    @property
    def digits(self) -> int:
        """The digits of a key by which rows are sorted one after the other; 0: whole keys are compared."""
        return min(range(DIGITS + 1), key=self.seconds_by)

    def values(self, digits: int) -> int:
        """The values of one of ``digits`` digits of a key: a power of two; of whole keys: all."""
        if not digits:
            return self.elements
        return next(1 << k for k in range(1, 32) if (1 << (k * digits)) > self.elements)

    def chunk(self, digits: int) -> int:
        """Rows of a chunk: the power of two with the least time."""
        shortest, longest = MASKED_CHUNKS if digits else CHUNKS
        lengths = (shortest << k for k in range((longest // shortest).bit_length()))
        return min(lengths, key=lambda n: self.seconds_of(n, digits))

    def seconds_of(self, chunk: int, digits: int) -> float:
        """Microseconds of the counts of one of ``digits`` digits, and of the ranks in chunks of ``chunk`` rows."""
        values = self.values(digits)
        counts = -(-self.number // chunk) * values * COUNTED
        if not digits:
            return counts + self.number * chunk * COMPARED
        words = (chunk + values) / WORD  # of the rows before a row, and of the counts of a chunk for each of its rows
        return counts + self.number * words * (values.bit_length() + ONES) * MASKED

    def seconds_by(self, digits: int) -> float:
        """Microseconds of an order by ``digits`` digits."""
        ranks = self.seconds_of(self.chunk(digits), digits)
        if digits == 0:
            return KERNELS_OF_KEYS * LAUNCH + ranks + self.number * MOVED
        each = KERNELS * LAUNCH + ranks
        return digits * (each + self.number * MOVED) + (CODES * LAUNCH if digits > 1 else 0)

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
    shapes = {b.name: b.shape for b in program.buffers}
    k = keyed(d, shapes) if d.op in _ORDERED or scattered(program, d) is not None else None
    found = None if k is None else _by_key(d, k)
    if found is None or not 0 < found.number <= MOST or not 0 < found.elements < _ELEMENTS:
        return None
    rows, every = ({a.name: a.extent for a in axes} for axes in (found.rows, d.axes))
    certain = all(certainly_in_range(c, shapes, every) for c in found.rest)
    return found if certain and certainly_in_range(found.key, shapes, rows) else None


def _by_key(d: Def, k: Keyed) -> _Sortable | None:
    """``d`` with the keys of ``k``, which depend on reduced axes alone."""
    red, equations = {a.name for a in d.red}, dict[Expr, Expr]()
    keyed_axes = tuple(a for a in d.par if a in k.keys)
    for axis in keyed_axes:
        found = ((c, e) for c in all_conjuncts(d.guard) if (e := key_of(c, axis.name, red)) is not None)
        condition, key = next((pair for pair in found if pair[0] not in equations), (None, None))
        if condition is None or key is None or not free_vars(key) <= red:
            return None
        equations[condition] = key
    if any(size(a) is None for a in d.axes):
        return None
    key = _one_key(keyed_axes, tuple(equations.values()))
    rows = tuple(a for a in d.red if a.name in free_vars(key))
    rest = tuple(c for c in all_conjuncts(d.guard) if c not in equations)
    elements = prod(size(a) or 0 for a in keyed_axes)
    many = prod(size(a) or 0 for a in rows) >= SEGMENT * elements
    return _Sortable(rows, keyed_axes, key, rest, many and fits_in_blocks(*arranged(d, k)))


def _one_key(axes: Sequence[Axis], keys: Sequence[Expr]) -> Expr:
    """The number of the element of ``axes`` at ``keys``; of several, -1 where it is none."""
    if len(keys) == 1:
        return keys[0]
    inside = conjunction(
        c for a, key in zip(axes, keys, strict=True) for c in within(key, Const(size(a) or 0, key.dtype))
    )
    assert inside is not None
    return make("select", inside, _numbered(axes, [converted(key, DType.I32) for key in keys]), integer(-1))


def _numbered(axes: Sequence[Axis], place: Sequence[Expr]) -> Expr:
    """The number of ``place`` in ``axes``."""
    number = place[0]
    for a, x in zip(axes[1:], place[1:], strict=True):
        number = calc("add", calc("mul", number, size(a) or 1), x)
    return number


def gains(sums: Sequence[tuple[Def, _Sortable]]) -> bool:
    """Whether the order of the rows takes clearly less time than two scatters of the terms of each of ``sums``."""
    s = sums[0][1]
    masked = [x for d, x in sums if not is_scattered(d)]
    others = sum(x.others(d) for d, x in sums if not x.in_block and is_scattered(d))
    scatters = s.number * others * TERM + s.elements * others * RESULT
    scatters += sum(s.number * x.elements * COMPARED for x in masked)  # which visit all rows for each element
    return s.seconds_by(s.digits) < GAIN * scatters


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
    of_ends = _of_ends(d, s)
    if of_ends is not None:
        ends = [Load(order.start, (x,), DType.I32) for x in (s.element, calc("add", s.element, 1))]
        return put_defs(program, d.name, (*made, replace(d, red=(), op=None, value=of_ends(*ends), guard=None)))
    p, e = Axis(unused("p", [a.name for a in d.axes]), s.number, d.span), s.element
    at = s.at(Load(order.row, (Var(p.name),), DType.I32))
    ends = [Load(order.start, (x,), DType.I32) for x in (e, calc("add", e, 1))]
    inside = (calc("le", ends[0], Var(p.name)), calc("lt", Var(p.name), ends[1]))
    guard = conjunction((*inside, *(substitute(c, at) for c in s.rest)))
    others = tuple(a for a in d.red if a not in s.rows)
    return put_defs(program, d.name, (*made, replace(d, red=(p, *others), value=substitute(d.value, at), guard=guard)))


def _of_ends(d: Def, s: _Sortable) -> Callable[[Expr, Expr], Expr] | None:
    """``d`` from the ends of the segment of an element: the number of its rows, or whether it has any, or None."""
    if s.rest or len(d.red) != len(s.rows):
        return None
    match d.op, d.value:
        case "any", Const(value=True):
            return lambda start, end: calc("lt", start, end)
        case "sum", Const(value=1, dtype=DType.I32 | DType.F32 as dtype):
            return lambda start, end: converted(calc("sub", end, start), dtype)
    return None


def _order(program: Program, d: Def, s: _Sortable, made: list[Def]) -> _Order:
    """The order of the rows of ``s``, whose definitions join ``made``."""
    r, x, e, p = (unused(n, [a.name for a in d.axes], first=2) for n in ("r", "x", "e", "p"))
    number, one, digits = s.number, integer(1), s.digits
    stored: Def | None = None
    rows, places = Axis(r, number), Axis(p, number)
    elements = Axis(e, s.elements + 1)  # of the last one, all ends are behind the rows
    named, whole = Names(program, d, made), s.key.dtype

    def key(place: Expr) -> Expr:
        return substitute(s.key, s.at(place)) if stored is None else read_of(stored, place)

    def row_of(placed: Def, value: Expr) -> Def:
        return named("row", (places,), value, rows, calc("eq", read_of(placed, Var(r)), Var(p)))

    def start_of(total: Def) -> Def:
        before = Axis(x, elements.extent)
        return named("start", (elements,), read_of(total, Var(x)), before, calc("lt", Var(x), Var(e)))

    if len(s.keyed) > 1:
        stored = named("key", (rows,), key(Var(r)))
    valid = conjunction(within(key(Var(r)), Const(s.elements, whole)))
    assert valid is not None
    if digits == 0:
        ranks = Comparisons(named, rows, elements, s.chunk(0), key, whole)
        start, earlier = start_of(ranks.total()), ranks.earlier()
        known = calc("min", calc("max", converted(key(Var(r)), DType.I32), 0), s.elements - 1)
        place = make("select", valid, ranks.place(start, earlier, known), integer(number))
        return _Order(start.name, row_of(named("place", (rows,), place), Var(r)).name)
    coded = make("select", valid, converted(key(Var(r)), DType.I32), integer(s.elements))
    far = any(loads(i) for x in loads(key(Var(r))) for i in x.index)
    code = named("code", (rows,), coded) if far else None

    def code_of(place: Expr) -> Expr:
        return substitute(coded, {r: place}) if code is None else read_of(code, place)

    values, left = s.values(digits), Codes(code_of, Var(r), s.elements + 1, number)
    while left.count > 1:
        every = Axis(e, min(values, left.count))
        masks = Masks(named, rows, every, s.chunk(digits), partial(left.digit, values), DType.I32)
        earlier = masks.earlier()
        total = calc("add", *(read_of(of, integer(masks.last), Var(x)) for of in (earlier, masks.count)))
        begin = named("first", (every,), total, Axis(x, every.extent), calc("lt", Var(x), Var(e)))
        placed = named("place", (rows,), masks.place(begin, earlier, masks.key(Var(r))))
        left = left.moved(values, partial(row_of, placed))
    if digits == 1:
        return _Order(begin.name, left.name)
    start = start_of(named("total", (elements,), one, rows, calc("eq", code_of(Var(r)), Var(e))))
    return _Order(start.name, left.name)
