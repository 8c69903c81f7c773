"""``sort-rows``: the rows of a product, each of which has the matrix that an index names, are sorted by that index.

In ``Y[t, n] = sum[k](X[t, k] * W[expert[t], k, n])`` every row has a matrix of its own, so that nothing is shared
between rows and no matrix units help.  Rows of one matrix that follow each other are a product of matrices.  The pass
finds the place of each row among the rows sorted by their matrix, keeping their order::

    start[e]  = sum[t | expert[t] < e](1)
    before[t] = sum[u | u < t and expert[u] == expert[t]](1)
    place[t]  = start[expert[t]] + before[t]
    row[p]    = sum[t | place[t] == p](t)

and computes a product for each segment of them, for which the planner has plans (``planner.products.dots``)::

    S[p, k] = X[row[p], k]
    Z[p, n] = sum[e, k | start[e] <= p < start[e + 1]](S[p, k] * W[e, k, n])      ;      Y[t, n] = Z[place[t], n]

A row that a condition leaves out, as one whose expert is none, has the first matrix, and 0 is chosen for its result::

    key[t]  = expert[t] if 0 <= expert[t] < E else 0        Y[t, n] = Y_all[t, n] if 0 <= expert[t] < E else 0

Of many rows, those before a row are counted in chunks of :data:`CHUNK` rows: ``before`` is then the number in the chunk
of the row, and a running sum over the counts of chunks, ``earlier[t // 256, expert[t]]``, is added to it.

Where the index is proved to ascend, as by ``assume expert[t] <= expert[t + 1]``, the rows are sorted already: a row is
at its own place.  A caller that breaks such a promise gets wrong rows, and no access outside of a tensor.

Rows may have several axes (tokens, and the choices of each), of sizes that may be known only at launch, and products
with the same index share the order.  Every place is clamped, so that no index in memory leads outside of a tensor.

The pass applies where the rows read so much more than all matrices have that :data:`LEAST` bytes are saved.  Rows that
are sorted already, in groups of :data:`GROUP` or more with one matrix (``expert[t // 128]``), are products of matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import conjunction, short_circuit
from nautilus.core.expr.infer import make
from nautilus.core.expr.nodes import (
    Axis,
    Const,
    Expr,
    Load,
    Op,
    Var,
    free_vars,
    identity,
    loads,
    replaced,
    substitute,
)
from nautilus.core.expr.products import factors, strip_conversions
from nautilus.core.index.groups import quotients
from nautilus.core.index.simplify import bounds
from nautilus.core.index.sizes import Extent, at_most, blocks, extent_expr, nominal, total, volume
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.disjoint import ascends
from nautilus.scalar.analysis.contractions.promises import Promises
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import axis_assumptions, find_defs, fresh_name, put_defs

LEAST = 1 << 28  # least bytes that rows read again: the order and the copies take as long as 2^27 bytes
GROUP = 16  # rows of one MMA
LONG = 1 << 10  # rows above which those before each row are counted in chunks
CHUNK = 1 << 8  # rows of a chunk
MOST = 1 << 22  # largest number of rows that are sorted


@dataclass(frozen=True, slots=True)
class SortRows:
    """Sort the rows of every such product; none where elements must not depend on the number of rows.

    ``always``: also of few rows, where it is predicted not to pay.  ``spec``: the Spec, whose promises say which rows
    are sorted already.
    """

    schedule: Schedule | None = None
    always: bool = False
    spec: Promises | None = None

    name = "sort-rows"

    def apply(self, program: Program) -> Program:
        """The program with sorted rows; the same object where there is no such product."""
        if self.schedule is not None and self.schedule.batch_invariant:
            return program
        orders: dict[Expr, _Order] = {}
        keys: dict[tuple[Expr, Expr], Load] = {}
        for d in find_defs(program).values():
            program, d = _with_all_rows(program, d, keys, self.always)
            found = _chosen(program, d, self.always)
            if found is not None and _ascend(program, found, self.spec):
                program = _in_segments(program, d, found)
            elif found is not None:
                program = _sorted(program, d, found, orders)
        return program


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A product of rows with matrices that ``index`` names for each point of the axes ``rows``.

    ``row``: the element of the rows; ``matrix``: the element of the matrices, of which there are ``count``.
    """

    rows: tuple[Axis, ...]
    index: Expr
    count: Extent
    row: Expr
    matrix: Expr

    @property
    def number(self) -> Extent:
        """The number of rows."""
        return volume(a.extent for a in self.rows)

    def at(self, place: Expr) -> dict[str, Expr]:
        """The axes of the row with number ``place``."""
        found: dict[str, Expr] = {}
        for a in reversed(self.rows):
            found[a.name] = calc("mod", place, a.extent) if a is not self.rows[0] else place
            place = calc("floordiv", place, a.extent)
        return found

    @property
    def place(self) -> Expr:
        """The number of the row at its axes."""
        number: Expr = Var(self.rows[0].name)
        for a in self.rows[1:]:
            number = calc("add", calc("mul", number, a.extent), Var(a.name))
        return number


@dataclass(frozen=True, slots=True)
class _Order:
    """The names of the definitions of an order: ends of the segments, place of each row, row of each place."""

    start: str
    place: str
    row: str


def _with_all_rows(
    program: Program, d: Def, keys: dict[tuple[Expr, Expr], Load], always: bool
) -> tuple[Program, Def]:  # fmt: skip
    """``program`` and ``d`` without a condition on its rows, if it is such a product; what they are elsewhere.

    ``keys``: the elements that say which matrix a row has, by the index and the condition.
    """
    found = None if d.guard is None else _chosen(program, replace(d, guard=None), always)
    if d.guard is None or found is None or not free_vars(d.guard) <= {a.name for a in found.rows}:
        return program, d
    if not _is_inside(program, d, found):
        return program, d
    made: list[Def] = []
    if (found.index, d.guard) not in keys:
        key = _named(program, d, "key", DType.I32, found.rows, made)
        index = make("select", d.guard, found.index, integer(0))
        made.append(replace(key, value=index, guard=None))
        keys[found.index, d.guard] = Load(key.name, key.index, DType.I32, d.span)
    whole = _named(program, d, "all", d.value.dtype, d.par, made)
    value = replaced(d.value, found.index, keys[found.index, d.guard])
    made.append(replace(whole, red=d.red, op=d.op, value=value, guard=None))
    read = make("select", d.guard, Load(whole.name, whole.index, d.value.dtype, d.span), identity("sum", d.value.dtype))
    program = put_defs(program, d.name, (*made, replace(d, op=None, red=(), value=read, guard=None)))
    return program, made[-1]


def _is_inside(program: Program, d: Def, c: _Chosen) -> bool:
    """Whether all rows of the tensors that ``d`` reads exist: only the index of ``c`` may lead outside."""
    sizes = {a.name: a.extent for a in d.axes}
    ranges, facts = axis_assumptions(d.axes)
    shapes = {b.name: b.shape for b in program.buffers}
    found = [ld for e in (c.row, c.matrix) for ld in loads(e)]

    def holds(e: Expr, n: int | Expr) -> bool:
        if isinstance(e, Var) and (e.name == "" or sizes.get(e.name) == n):
            return True
        lo, hi = bounds(e, ranges, facts)
        return isinstance(n, int) and lo is not None and hi is not None and lo >= 0 and hi < n

    return all(holds(e, n) for ld in found for e, n in zip(ld.index, shapes[ld.buffer], strict=True))


def _chosen(program: Program, d: Def, always: bool = False) -> _Chosen | None:
    """``d`` as such a product whose rows are worth sorting, or ``always``; None for another definition."""
    if d.op != "sum" or d.guard is not None or d.at is not None:
        return None
    buffers = {b.name: b for b in program.buffers}
    parts = factors(d.value)
    for n, element in enumerate(parts):
        gathered = {
            (e, buffers[ld.buffer].shape[k]) for ld in loads(element) for k, e in enumerate(ld.index) if loads(e)
        }
        if len(parts) != 2 or len(gathered) != 1:
            continue
        ((index, count),) = gathered
        rows = tuple(a for a in d.par if a.name in free_vars(index))
        matrix = replaced(element, index, Var(""))
        made = _Chosen(rows, index, count, parts[1 - n], matrix)
        known = all(size(a) is not None for a in d.axes if a not in rows)
        if known and _fits(d, made) and _is_worth(d, made, strip_conversions(element).dtype, always):
            return made
    return None


def _fits(d: Def, c: _Chosen) -> bool:
    """Whether a matrix has columns, and shares all summed axes and nothing else with a row of at most 16 bits."""
    rows, red = {a.name for a in c.rows}, {a.name for a in d.red}
    columns = {a.name for a in d.par} - rows
    own = free_vars(c.matrix) - {""}
    stored = _stored(c.row)
    if stored is None or c.count == 0 or not rows or not columns or free_vars(c.index) - rows:
        return False
    if any(min(quotients(c.index, a.name)) >= GROUP for a in c.rows):
        return False
    return own == columns | red and red <= free_vars(c.row) <= rows | red and bool(free_vars(c.row) & rows)


def _stored(e: Expr) -> tuple[DType, Expr] | None:
    """The type of at most 16 bits in which a factor is stored without rounding it, and its value; None for others."""
    match e:
        case Op(op="cast", args=(Op(op="narrow", args=(value,), dtype=dtype),)) if dtype.bits <= 16:
            return dtype, value
        case Op(op="cast", args=(Load(dtype=dtype) as read,)) if dtype.bits <= 16 and dtype is not DType.BOOL:
            return dtype, e if e.dtype is dtype.compute else Op("cast", (read,), dtype.compute)
    return None


def _is_worth(d: Def, c: _Chosen, dtype: DType, always: bool) -> bool:
    each = prod(size(a) or 0 for a in d.axes if a not in c.rows) * dtype.bytes
    rows = nominal(c.number)
    return at_most(c.number) <= MOST and (always or (rows - min(rows, nominal(c.count))) * each >= LEAST)


def _ascend(program: Program, c: _Chosen, spec: Promises | None) -> bool:
    """Whether the rows of ``c`` are proved to be sorted by their matrix, and are elements of a tensor as they are."""
    stored = [e for e in (strip_conversions(c.row), c.index) if isinstance(e, Load)]
    return len(stored) == 2 and len(c.rows) == 1 and ascends(c.index, c.rows[0].name, find_defs(program), spec)


def _in_segments(program: Program, d: Def, c: _Chosen) -> Program:
    """``program`` with the sorted rows of ``d`` as segments, one for each matrix."""
    made: list[Def] = []
    start = _start(program, d, c, made)
    return put_defs(program, d.name, (*made, _product(d, c, d, c.place, start.name, c.row)))


def _sorted(program: Program, d: Def, c: _Chosen, orders: dict[Expr, _Order]) -> Program:
    """``program`` with the rows of ``d`` in the order of ``c``, which joins ``orders``."""
    p = Var(_unused(d, "p"))
    before: list[Def] = []
    key = calc("add", substitute(c.index, c.at(Var("row"))), extent_expr(c.count))
    if key not in orders:
        orders[key], made = _order(program, d, c)
        before += made
    order = orders[key]
    place = Axis(p.name, c.number)
    columns = tuple(a for a in d.par if a not in c.rows)
    stored = _stored(c.row)
    assert stored is not None
    row = _named(program, d, "rows", stored[0], (place, *(a for a in d.red if a.name in free_vars(c.row))), before)
    at = c.at(Load(order.row, (p,), DType.I32))
    before.append(replace(row, value=substitute(stored[1], at)))
    operand = Load(row.name, tuple(Var(a.name) for a in row.par), stored[0])
    factor: Expr = Op("cast", (operand,), d.value.dtype, c.row.span)
    product = _named(program, d, "sorted", d.value.dtype, (place, *columns), before)
    before.append(_product(product, c, d, p, order.start, factor))
    found = Load(order.place, (c.place,), DType.I32)
    read = Load(product.name, (found, *(Var(a.name) for a in columns)), d.value.dtype, d.span)
    return put_defs(program, d.name, (*before, replace(d, op=None, red=(), value=read)))


def _product(made: Def, c: _Chosen, d: Def, place: Expr, start: str, row: Expr) -> Def:
    """``made`` as the product ``d`` of the rows ``row``, at ``place`` in their order, with their matrices.

    ``start``: the ends of the segments.
    """
    e = Var(_unused(d, "e"))
    ends = [Load(start, (x,), DType.I32) for x in (e, calc("add", e, 1))]
    inside = conjunction((calc("le", ends[0], place), calc("lt", place, ends[1])))
    value = Op("mul", (row, substitute(c.matrix, {"": e})), d.value.dtype, d.value.span)
    return replace(made, red=(Axis(e.name, c.count), *d.red), op="sum", value=value, guard=inside)


def _start(program: Program, d: Def, c: _Chosen, made: list[Def]) -> Def:
    """How many rows have a matrix before each one, and how many there are; adds it to ``made``."""
    rows, e = Axis(_unused(d, "r"), c.number), Var(_unused(d, "e"))
    start = _named(program, d, "start", DType.I32, (Axis(e.name, total(c.count, 1)),), made)
    earlier = calc("lt", substitute(c.index, c.at(Var(rows.name))), e)
    made.append(replace(start, red=(rows,), op="sum", value=integer(1), guard=earlier))
    return made[-1]


def _order(program: Program, d: Def, c: _Chosen) -> tuple[_Order, list[Def]]:
    """The definitions of the order of the rows of ``c``."""
    made: list[Def] = []
    r, u, p = (Var(_unused(d, name)) for name in ("r", "u", "p"))
    rows, others, places = (Axis(x.name, c.number) for x in (r, u, p))
    mine, theirs = (substitute(c.index, c.at(x)) for x in (r, u))
    one = integer(1)
    start = _start(program, d, c, made)
    group = _clamped(mine, _last(c.count))
    if at_most(c.number) > LONG:
        before = _before_in_chunks(program, d, c, rows, made)
    else:
        earlier = _named(program, d, "before", DType.I32, (rows,), made)
        alike = conjunction((calc("lt", u, r), calc("eq", theirs, mine)))
        made.append(replace(earlier, red=(others,), op="sum", value=one, guard=alike))
        before = Load(earlier.name, (r,), DType.I32)
    place = _named(program, d, "place", DType.I32, (rows,), made)
    at = calc("add", Load(start.name, (group,), DType.I32), before)
    made.append(replace(place, value=_clamped(at, _last(c.number))))
    row = _named(program, d, "row", DType.I32, (places,), made)
    there = calc("eq", Load(place.name, (r,), DType.I32), p)
    made.append(replace(row, red=(rows,), op="sum", value=r, guard=there))
    return _Order(start.name, place.name, row.name), made


def _before_in_chunks(program: Program, d: Def, c: _Chosen, rows: Axis, made: list[Def]) -> Expr:
    """How many rows before ``rows`` have its matrix: those of earlier chunks and those of its own; adds to ``made``."""
    r, v, q, x, e = (Var(_unused(d, name)) for name in ("r", "v", "q", "x", "e"))
    chunks = blocks(c.number, CHUNK)
    inside, all_chunks = Axis(v.name, CHUNK), Axis(q.name, chunks)
    one = integer(1)

    def key(place: Expr) -> Expr:
        return substitute(c.index, c.at(place))

    def row(chunk: Expr) -> Expr:
        return calc("add", calc("mul", chunk, CHUNK), v)

    count = _named(program, d, "count", DType.I32, (all_chunks, Axis(e.name, c.count)), made)
    exists = calc("lt", row(q), extent_expr(c.number))
    alike = short_circuit(exists, calc("eq", key(row(q)), e))
    made.append(replace(count, red=(inside,), op="sum", value=one, guard=alike))
    sums = _named(program, d, "earlier", DType.I32, count.par, made)
    counted = Load(count.name, (x, e), DType.I32)
    earlier = calc("lt", x, q)
    made.append(replace(sums, red=(Axis(x.name, chunks),), op="sum", value=counted, guard=earlier))
    own = _named(program, d, "before", DType.I32, (rows,), made)
    chunk = calc("floordiv", r, CHUNK)
    alike = short_circuit(calc("lt", v, calc("mod", r, CHUNK)), calc("eq", key(row(chunk)), key(r)))
    made.append(replace(own, red=(inside,), op="sum", value=one, guard=alike))
    group = _clamped(key(r), _last(c.count))
    return calc("add", Load(sums.name, (chunk, group), DType.I32), Load(own.name, (r,), DType.I32))


def _last(extent: Extent) -> Expr:
    return integer(extent - 1) if isinstance(extent, int) else calc("sub", extent, 1)


def _clamped(e: Expr, most: Expr) -> Expr:
    return calc("min", calc("max", e, 0), most)


def _named(program: Program, d: Def, what: str, dtype: DType, par: Sequence[Axis], others: Sequence[Def]) -> Def:
    """An elementwise definition over ``par`` with a name that neither ``program`` nor ``others`` have."""
    name = fresh_name(program, f"{d.name}_{what}", [x.name for x in others])
    buffer = Buffer(name, dtype, tuple(a.extent for a in par), Space.TEMP, d.span)
    return Def(name, buffer, tuple(par), (), None, Const(0, dtype.compute), None, d.span)


def _unused(d: Def, name: str) -> str:
    """``name``, or with a number where ``d`` has such an axis."""
    return unused(name, [a.name for a in d.axes], first=2)
