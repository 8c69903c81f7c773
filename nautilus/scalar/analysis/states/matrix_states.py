"""Recurrences whose state is a matrix, which only sums of products read.

A *matrix state* is the only state of its recurrence and linear (:mod:`.linear_states`)::

    S[p, t, d, e] = a[p, t, d] * S[p, t - 1, d, e] + b[p, t] * x[p, t, d] * u[p, t, e]
    y[p, t, e]    = sum[d](q[p, t, d] * S[p, t, d, e]) * g[p, t, e] + rest[p, t, e]     the readers, also of S[t - 1]

What a step adds may read the state before it in one sum over its rows, as in the delta rule, whose steps add
``x[t, d] * w[t, e]`` with the *correction* ``f``::

    w[p, t, e] = u[p, t, e] + f[p, t] * sum[d](k[p, t, d] * S[p, t - 1, d, e])

``x``, ``k`` and ``f`` are then never infinite.

The *rows* ``d`` are the axes over which every reader sums, the *columns* ``e`` those on which neither the decay ``a``
nor ``x`` nor ``q`` depends, and ``p`` are the others.  Each of them may be several axes or, for ``p``, none.  Where the
decay is a product ``a[p, t, d] * c[p, t, e]`` and all columns would be among ``p`` for it, ``c`` is apart, the *column
decay*; nothing is corrected then.  A state of a step is not read in any other way.  Before the first step it is 0, or
what the first step reads in place of it, ``S[t - 1] if t > 0 else I[d, e]``.

Positions.  Recurrences run upwards or downwards.  All expressions here are over the *position* ``t`` of a step in its
tensors, which is ``T - 1 - step`` in a recurrence that runs downwards.

Infinities.  The sums over earlier steps are taken over products with ``q``, which is outside of them in the
recurrence.  An infinite number must not enter a sum (:mod:`nautilus.scalar.analysis.contractions.terms`), so a reader
says whether its ``q`` may be infinite.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.expr.build import calc, integer, number
from nautilus.core.expr.conditions import FALSE, TRUE
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Var, free_vars, loads, rewrite, substitute, walk
from nautilus.core.expr.products import product_of
from nautilus.core.index.linear import linear
from nautilus.core.index.simplify import Ranges, simplify, simplify_value
from nautilus.core.index.sizes import as_extent, at_most, extent_expr, total
from nautilus.core.records import dataclass
from nautilus.core.source import Span
from nautilus.core.text.expressions import format_expr
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.terms import never_infinite
from nautilus.scalar.analysis.definitions import Def, read_def, rename_axes
from nautilus.scalar.analysis.states.extreme_states import left_out
from nautilus.scalar.analysis.states.linear_states import State, linear_part, other_part, reductions
from nautilus.scalar.analysis.states.recurrences import Form, nests
from nautilus.scalar.ir import Kernel, Kind, Program, Stmt, Store, Update
from nautilus.scalar.rewriting import axis_assumptions, map_statements, substituted


@dataclass(frozen=True, slots=True)
class Reader:
    """A sum over the rows of the state, ``sum[d](inside * S) * outside + rest``, which ``target`` holds.

    ``before``: it reads the state of the step before.  ``rest``: the element of the same sum that has no state, which
    ``inside`` multiplies where ``inside`` may be infinite; None where there is none.  ``finite``: ``inside`` never is.
    """

    target: Def
    inside: Expr
    outside: Expr | None
    before: bool
    rest: Expr | None
    finite: bool


@dataclass(frozen=True, slots=True)
class Correction:
    """What the state before a step adds to its ``u``: ``factor * sum[d](inside * S[t - 1])`` (module docstring)."""

    factor: Expr
    inside: Expr


@dataclass(frozen=True, slots=True)
class MatrixState:
    """A matrix state (module docstring).  ``decay``, ``column_decay``, ``scale``: ``a``, ``c`` and ``b``, None where 1.

    ``order``: the names of the axes of its tensor, in order.

    ``correction``: what the state adds to ``u``, None where it adds nothing.  ``u`` has the scale then.

    ``initial``: the state before the first step, None where it is 0.

    ``members``: the definitions of a step but that of the state, in order.
    """

    name: str
    time: Axis
    reverse: bool
    outer: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    decay: Expr | None
    scale: Expr | None
    x: Expr
    u: Expr
    members: tuple[Reader | Def, ...]
    span: Span
    order: tuple[str, ...] = ()
    correction: Correction | None = None
    initial: Expr | None = None
    column_decay: Expr | None = None

    @property
    def readers(self) -> tuple[Reader, ...]:
        """The members that read the state."""
        return tuple(m for m in self.members if isinstance(m, Reader))


def matrix_state(program: Program, form: Form, state: State, finite: Collection[str]) -> MatrixState | None:
    """The matrix state of a recurrence whose only state is ``state``; None where it is none.

    ``finite``: the inputs that hold no inf.
    """
    loops = (*form.shared, *state.own)
    if state.value.dtype is not DType.F32 or (form.reverse and not isinstance(form.step.hi, Const)):
        return None  # which step is the first one depends on a size then, so conditions are not simplified
    axes = {x.var: Axis(x.var, as_extent(x.hi)) for x in (*loops, form.step)}
    places = _Places(form, axes)
    state, initial = _without_initial(places, state)
    places.initial = initial
    added, read, share = _added(places, state, reductions(form))
    names = [e.name for e in state.store.index if isinstance(e, Var) and e.name != form.step.var]
    stored = program.buffer(state.name).space is not Space.TEMP
    if added is None or stored or sorted(names) != sorted(x.var for x in loops):
        return None
    role = form.roles[state.name].index(form.step.var)
    members = _members(program, places, state, role, finite)
    if members is None or not (found := tuple(m for m in members if isinstance(m, Reader))):
        return None
    rows = {frozenset(a.name for a in m.target.red) for m in found}
    if len(rows) != 1:
        return None
    (summed,) = rows
    correction = None
    if read is not None and share is not None:
        correction = _correction(found, read, share, added, summed)
        if correction is None:
            return None
    decay = places.later(state.factor(number(1, state.value.dtype)))
    m = _parted(places, state, members, summed, added, decay, correction)
    return None if m is None else _readable(program, places, m)


def _readable(program: Program, places: _Places, m: MatrixState) -> MatrixState:
    """``m`` whose parts read nothing outside of a tensor at the position of the first step, which does not need them.

    They are simplified for later steps, so that no condition excludes such a read, as that of ``g[t - 1]``.
    """
    shapes = {b.name: b.shape for b in program.buffers}

    def part(e: Expr, other: int = 0) -> Expr:
        found = ((i, n) for ld in loads(places.at_first(e)) for i, n in zip(ld.index, shapes[ld.buffer], strict=True))
        if all(not isinstance(i, Const) or (isinstance(n, int) and 0 <= i.value < n) for i, n in found):
            return e
        return calc("select", calc("ne", Var(places.time), places.first), e, number(other, e.dtype))

    def reader(r: Reader) -> Reader:
        return replace(r, inside=part(r.inside), outside=None if r.outside is None else part(r.outside))

    c = m.correction
    return replace(
        m,
        decay=None if m.decay is None else part(m.decay, 1),
        column_decay=None if m.column_decay is None else part(m.column_decay, 1),
        members=tuple(reader(x) if isinstance(x, Reader) and x.before else x for x in m.members),
        correction=None if c is None else Correction(part(c.factor), part(c.inside)),
    )


def _correction(
    readers: Sequence[Reader], read: Load, share: Expr, added: Expr, rows: frozenset[str]
) -> Correction | None:
    """What the sum ``read`` over the state adds, as the factor ``share`` of it; ``added``: the terms without it.

    Both have the same factors of rows.  None where they do not, or ``read`` is no plain sum of the state before.
    """
    reader = next((r for r in readers if r.target.name == read.buffer), None)
    if reader is None or not reader.before or reader.rest is not None or read.index != reader.target.index:
        return None
    left, right = ([f for f in _factors(e) if free_vars(f) & rows] for e in (added, share))
    if sorted(map(format_expr, left)) != sorted(map(format_expr, right)):
        return None
    rest = [f for f in _factors(share) if not free_vars(f) & rows]
    rest += [] if reader.outside is None else [reader.outside]
    return Correction(product_of(rest or [number(1, share.dtype)]), reader.inside)


def _parted(
    places: _Places, state: State, members: Sequence[Reader | Def], rows: frozenset[str], added: Expr, decay: Expr,
    correction: Correction | None,
) -> MatrixState | None:  # fmt: skip
    """The matrix state whose steps add the product ``added``; None where the axes are not those of matrices."""
    parts = _factors(added)
    left = [f for f in parts if free_vars(f) & rows]
    right = [f for f in parts if not free_vars(f) & rows]
    inside = [m.inside for m in members if isinstance(m, Reader)]
    shares = [] if correction is None else [correction.factor]
    loops = [x.var for x in (*places.form.shared, *state.own)]
    fixed = [*left, *inside, *shares]
    bound = frozenset[str]().union(*map(free_vars, (*fixed, decay)))
    columns = [n for n in loops if n not in rows and n not in bound]
    faded: list[Expr] = []
    if not columns and correction is None:
        every = [x for f in _factors(decay) for x in _exponentials(f)]
        own = [f for f in every if free_vars(f) & rows]
        bound = frozenset[str]().union(*map(free_vars, (*fixed, *own)))
        columns = [n for n in loops if n not in rows and n not in bound]
        faded = [f for f in every if free_vars(f) & set(columns)]
        decay = product_of([f for f in every if f not in faded] or [number(1, decay.dtype)])
    if not columns or not left or not all(free_vars(q) & rows for q in inside):
        return None
    outer = [n for n in loops if n not in rows and n in bound]
    middle = [f for f in right if free_vars(f).isdisjoint(columns) and correction is None]
    right = [f for f in right if f not in middle]
    if not right:
        return None

    def axes(names: Sequence[str]) -> tuple[Axis, ...]:
        return tuple(places.axes[n] for n in names)

    one = number(1, state.value.dtype)
    order = (next(iter(free_vars(e)), places.time) for e in state.store.index)
    return MatrixState(
        state.name, places.axes[places.time], places.form.reverse, axes(outer), axes([n for n in loops if n in rows]),
        axes(columns), None if decay == one else decay, product_of(middle) if middle else None,
        product_of(left), product_of(right),
        tuple(members), state.store.span, tuple(order), correction, places.initial,
        product_of(faded) if faded else None,
    )  # fmt: skip


# -- positions ------------------------------------------------------------------------------------


class _Places:
    """Expressions of the steps of a recurrence over positions; ``axes``: the loops of its state."""

    def __init__(self, form: Form, axes: dict[str, Axis]) -> None:
        self.form, self.axes, self.time = form, axes, form.step.var
        steps = axes[self.time].extent
        end = extent_expr(total(steps, -1))
        self.at: Expr = calc("sub", end, Var(self.time)) if form.reverse else Var(self.time)
        known, _ = axis_assumptions(axes.values())
        self.ranges: Ranges = {v: (lo, max(hi, lo + 1)) for v, (lo, hi) in known.items()}  # no variable is a number
        last = at_most(steps) - 1
        self.after_first: Ranges = {
            **self.ranges,
            self.time: (0, max(last - 1, 1)) if form.reverse else (1, max(last, 2)),
        }
        self.first = end if form.reverse else integer(0)
        self.initial: Expr | None = None  # the state before the first step

    def everywhere(self, e: Expr) -> Expr:
        """``e`` at the position ``time``."""
        return _simple(substitute(e, {self.time: self.at}), self.ranges)

    def later(self, e: Expr) -> Expr:
        """``e`` at the position ``time`` of a step that is not the first one."""
        return _simple(substitute(e, {self.time: self.at}), self.after_first)

    def at_first(self, e: Expr) -> Expr:
        """``e``, an expression over positions, at the position of the first step."""
        return _simple(substitute(e, {self.time: self.first}), self.ranges)

    def at_first_only(self, condition: Expr) -> bool:
        """Whether ``condition``, over positions, holds at the position of the first step only."""
        return _simple(condition, self.after_first) == FALSE and self.at_first(condition) == TRUE

    def only_later(self, condition: Expr) -> bool:
        """Whether ``condition``, over positions, holds at all positions but that of the first step."""
        return _simple(condition, self.after_first) == TRUE and self.at_first(condition) == FALSE

    def among(self, later: bool) -> Ranges:
        """The positions of all steps; ``later``: of all but the first one."""
        return self.after_first if later else self.ranges

    def definitions(self, program: Program) -> tuple[Def, ...]:
        """The definitions of a step over positions, in order."""
        form = self.form

        def rule(_: tuple[object, ...], s: Store | Update) -> Store | Update:
            guard = None if s.guard is None else _simple(s.guard, self.ranges)
            index = tuple(simplify(i, self.ranges) for i in s.index)
            return replace(s, index=index, value=_simple(s.value, self.ranges), guard=guard)

        out = []
        for nest in nests(form.step.body):
            body: tuple[Stmt, ...] = map_statements(substituted(nest, {self.time: self.at}), rule)
            for x in (form.step, *reversed(form.shared)):
                body = (replace(x, kind=Kind.PAR, body=body),)
            out.append(read_def(program, Kernel(self.time, (), body, form.step.span)))
        return tuple(out)


def _simple(e: Expr, ranges: Ranges) -> Expr:
    return simplify_value(simplify(e, ranges))


# -- what a step adds -----------------------------------------------------------------------------


def _without_initial(places: _Places, state: State) -> tuple[State, Expr | None]:
    """``state`` whose first step reads a state before it, and that state; None where there is none, or it is 0."""
    for e in walk(state.value):
        if isinstance(e, Op) and e.op == "select" and e.args[1] == state.before:
            condition, other = (places.everywhere(x) for x in (e.args[0], e.args[2]))
            first = places.at_first(other)
            if places.only_later(condition) and first != number(0, e.dtype):
                value = rewrite(state.value, lambda x, found=e: state.before if x == found else None)  # type: ignore[misc]
                return replace(state, value=value), first
    return state, None


def _added(places: _Places, state: State, sums: Collection[str]) -> tuple[Expr | None, Load | None, Expr | None]:
    """What each step adds to the state, over positions; None where the first step adds something else.

    Where it reads one of ``sums``: the terms without it, the read, and the factor of the read.  The sum of the first
    step is 0, since it has no state.
    """
    none = None, None, None
    if (state.forgets is None) is (places.initial is None):
        return none
    everywhere = places.everywhere(state.rest)
    rest, first = _without_zeros(places.later(state.rest)), _without_zeros(places.at_first(everywhere))
    if state.forgets is not None and not places.at_first_only(places.everywhere(state.forgets)):
        return none
    reads = [ld for ld in loads(rest) if ld.buffer in sums]
    if not reads:
        return (rest, None, None) if first == places.at_first(rest) else none
    read, *others = reads
    share = linear_part(rest, read, number(1, rest.dtype))
    if share is None:
        return none
    alone, early = other_part(rest, read), first
    for ld in (ld for ld in loads(first) if ld.buffer in sums):
        own = linear_part(early, ld, number(1, rest.dtype))
        same = own is not None and _simple(own, places.ranges) == places.at_first(share)
        if places.initial is not None and not same:
            return none
        found = other_part(early, ld) if own is not None else None
        early = number(0, rest.dtype) if found is None else found
    if others or alone is None:
        return none
    alone, share = _without_zeros(_simple(alone, places.ranges)), _simple(share, places.ranges)
    same = _without_zeros(_simple(early, places.ranges)) == places.at_first(alone)
    return (alone, read, share) if same else none


def _without_zeros(e: Expr) -> Expr:
    """``e`` without terms that have a factor 0: what is left of ``a * S'`` where a condition leaves out ``S'``.

    Where ``a`` is NaN in such a step, the product of the factors up to any later step is.
    """
    zero = number(0, e.dtype)
    match e:
        case Op(op="add" | "sub" as name, args=(a, b)):
            left, right = _without_zeros(a), _without_zeros(b)
            if right == zero:
                return left
            if left == zero:
                return right if name == "add" else Op("neg", (right,), e.dtype)
            return Op(name, (left, right), e.dtype)
        case Op(op="mul", args=(a, b)):
            left, right = _without_zeros(a), _without_zeros(b)
            return zero if zero in (left, right) else Op("mul", (left, right), e.dtype)
    return e


def _factors(e: Expr) -> list[Expr]:
    """The factors of ``e``; a sign is a factor, and a condition that leaves out the whole product is one of the first.

    The zero of that condition is structural: the product is absent.
    """
    match e:
        case Op(op="mul", args=(a, b)):
            return [*_factors(a), *_factors(b)]
        case Op(op="neg", args=(a,)):
            return [*_factors(a), number(-1, e.dtype)]
        case Op(op="select", args=(c, a, b)) if b == number(0, e.dtype):
            first, *others = _factors(a)
            return [Op("select", (c, first, b), e.dtype), *others]
    return [e]


def _exponentials(e: Expr) -> list[Expr]:
    """The factors of ``e``; the exponential of a sum is a product of exponentials."""
    match e:
        case Op(op="exp", args=(Op(op="add" | "sub" as name, args=(a, b)),)):
            right = b if name == "add" else Op("neg", (b,), b.dtype)
            return [x for power in (a, right) for x in _exponentials(Op("exp", (power,), e.dtype))]
    return [e]


# -- the readers ----------------------------------------------------------------------------------


def _members(
    program: Program, places: _Places, state: State, role: int, finite: Collection[str]
) -> tuple[Reader | Def, ...] | None:
    """The definitions of a step but that of the state, in order; None where one reads the state in another way.

    ``role``: the axis of the state's tensor that counts steps.
    """
    members: list[Reader | Def] = []
    for d in places.definitions(program):
        if d.name == state.name:
            continue
        reads = [ld for ld in d.reads() if ld.buffer == state.name]
        reader = _reader(places, state, role, d, reads[0], finite) if len(reads) == 1 else None
        if d.at is not None or (reads and reader is None):
            return None
        members.append(reader or d)
    return tuple(members)


def _reader(places: _Places, state: State, role: int, d: Def, ld: Load, finite: Collection[str]) -> Reader | None:
    """``d``, which reads the state at ``ld``, as a reader with the names of the axes of the state."""
    far = linear(ld.index[role]) - linear(Var(places.time))
    back = far.const if places.form.reverse else -far.const
    names = {places.time: places.time}
    for n, (own, e) in enumerate(zip(state.store.index, ld.index, strict=True)):
        if n != role:
            if not isinstance(own, Var) or not isinstance(e, Var) or e.name in names:
                return None
            names[e.name] = own.name
    apart = d.op != "sum" or ld not in loads(d.value) or set(names) != {a.name for a in d.axes}
    if apart or far.terms or back not in (0, 1):
        return None
    whole = rename_axes(d, names)
    (read,) = (x for x in whole.reads() if x.buffer == state.name)
    if places.initial is not None and back == 1:
        chosen = [e for e in walk(whole.value) if isinstance(e, Op) and e.op == "select" and e.args[1] == read]
        if len(chosen) != 1 or whole.guard is not None or not places.only_later(chosen[0].args[0]):
            return None
        if places.at_first(chosen[0].args[2]) != places.initial:
            return None
        whole = replace(whole, value=rewrite(whole.value, lambda e: read if e == chosen[0] else None))
    one = number(1, whole.value.dtype)
    factor = linear_part(whole.value, read, one)
    if factor is None:
        return None
    rest = other_part(whole.value, read)
    forgets, ranges = left_out(whole.value, read), places.among(later=back == 1 and places.initial is None)
    guard = TRUE if whole.guard is None else simplify(whole.guard, ranges)
    if guard != TRUE or (forgets is not None and simplify(forgets, ranges) != FALSE):
        return None
    simple = _simple(factor, ranges)
    summed = {a.name for a in whole.red}
    inside = [f for f in _factors(simple) if free_vars(f) & summed]
    outside = [f for f in _factors(simple) if not free_vars(f) & summed]
    if not inside:
        return None
    zero = number(0, whole.value.dtype)
    left = zero if rest is None else _without_zeros(_simple(rest, places.ranges))
    bounded = all(never_infinite(f, finite) for f in inside)
    if not bounded and left != zero:
        others = _factors(left)
        if any(others.count(f) != 1 or inside.count(f) != 1 for f in inside):
            return None
        left = product_of([f for f in others if f not in inside] or [one])
    return Reader(
        whole,
        product_of(inside),
        product_of(outside) if outside and outside != [one] else None,
        back == 1,
        None if left == zero else left,
        bounded,
    )
