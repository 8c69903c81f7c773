"""Recurrences whose states are linear: ``h = a * h' + b``, where neither ``a`` nor ``b`` reads a state.

A *state* is a tensor that a step reads from the step before.  It is linear where its value, with the elementwise
tensors of the same step in it, reads no state but itself, at its own position, and is a sum of terms of which one has
the state as a factor.  Several states may run side by side; none may read another one.  The parts of the value are

* ``factor(x)``: the terms with the state, with ``x`` in place of it: ``a * x``, and 0 where a choice leaves it out;
* ``rest``: the terms without it;
* ``forgets``: the condition under which a choice leaves the state out.  There inf and NaN of the state are forgotten,
  which a product with 0 does not do.

Numbers are f32, f64, or integers that are added and multiplied as they wrap.

Extreme states are those of :mod:`nautilus.scalar.analysis.states.extreme_states`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from nautilus.core.expr.build import calc, number
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Var, identity, loads, rewrite, substitute, walk
from nautilus.core.index.linear import linear
from nautilus.core.index.simplify import FALSE, Ranges, simplify
from nautilus.core.index.sizes import as_extent, at_most
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.states.extreme_states import beside, extreme, left_out, moved
from nautilus.scalar.analysis.states.recurrences import Form, nests
from nautilus.scalar.ir import Kind, Loop, Stmt, Store, Update, expressions, statements

ORDER = 4  # steps between a result of a filter and the earliest one that it reads


@dataclass(frozen=True, slots=True)
class State:
    """``store`` of a linear state under its loops ``own``; ``value``: what it stores, which reads ``before``.

    The value is ``joins`` of the terms with the state and the others, and ``moves`` makes the former.
    """

    store: Store
    own: tuple[Loop, ...]
    value: Expr
    before: Load
    joins: str = "add"
    moves: str = "mul"

    @property
    def name(self) -> str:
        """The tensor of the state."""
        return self.store.buffer

    def factor(self, x: Expr) -> Expr:
        """The terms with the state, with ``x`` in place of it."""
        if self.is_extreme:
            none = identity(self.joins, x.dtype) if x == self.before or self.moves == "add" else number(0, x.dtype)
            return moved(self.value, self.before, x, self.joins, none)
        made = linear_part(self.value, self.before, x)
        assert made is not None
        return made

    @property
    def is_extreme(self) -> bool:
        """Whether it is a maximum or a minimum."""
        return self.joins != "add"

    def runs(self, step: Loop) -> bool:
        """Whether it is a running extreme: steps that have one before them neither move the state nor leave it out."""
        later = {step.var: (1, max(1, at_most(as_extent(step.hi)) - 1))}
        kept = self.is_extreme and after_first(self.factor(self.unit), later) == self.unit
        return kept and (self.forgets is None or simplify(self.forgets, later) == FALSE)

    @property
    def unit(self) -> Const:
        """The factor of a step that keeps the state."""
        return number(0 if self.moves == "add" else 1, self.value.dtype)

    @property
    def names(self) -> set[str]:
        """The tensors and the scalars in the factor."""
        factor = self.factor(self.unit)
        return {ld.buffer for ld in loads(factor)} | {e.name for e in walk(factor) if isinstance(e, Param)}

    @property
    def rest(self) -> Expr:
        """The terms without the state."""
        if self.is_extreme:
            found = beside(self.value, self.before, self.joins)
            return identity(self.joins, self.value.dtype) if found is None else found
        found = other_part(self.value, self.before)
        return number(0, self.value.dtype) if found is None else found

    @property
    def forgets(self) -> Expr | None:
        """Where a choice leaves the state out; None where none does."""
        return left_out(self.value, self.before)


@dataclass(frozen=True, slots=True)
class Filter:
    """``store`` of a linear filter: a sum of its results of earlier steps, with constant factors, and of a ``rest``.

    ``befores``: the result of one step before, of two, ..., with the ``coefficients`` in their order.
    """

    store: Store
    own: tuple[Loop, ...]
    value: Expr
    befores: tuple[Load, ...]
    coefficients: tuple[float, ...]

    @property
    def name(self) -> str:
        """The tensor of the results."""
        return self.store.buffer

    @property
    def terms(self) -> tuple[Expr, ...]:
        """The terms with earlier results, under the conditions that leave some out in the first steps."""
        return tuple(t for ld in self.befores if (t := linear_part(self.value, ld, ld)) is not None)

    @property
    def order(self) -> int:
        """How many steps before the earliest result is."""
        return len(self.coefficients)

    @property
    def rest(self) -> Expr:
        """The terms without earlier results."""
        value: Expr | None = self.value
        for ld in self.befores:
            value = None if value is None else other_part(value, ld)
        return number(0, self.value.dtype) if value is None else value


def filter_state(form: Form) -> Filter | None:
    """The filter that is the only state of a recurrence, of 2 to :data:`ORDER` steps; None where there is none."""
    stores = {s.buffer: (loops, s) for loops, s in map(_elementwise, nests(form.step.body)) if s is not None}
    written = {s.buffer: s.index for _, s in statements(form.step.body)}
    reads = [
        ld for _, s in statements(form.step.body) for e in expressions(s) for ld in loads(e) if ld.buffer in written
    ]
    backs = {ld: steps_back(form, written, ld) for ld in reads}
    names = {ld.buffer for ld, n in backs.items() if n != 0}
    if len(names) != 1 or not names <= stores.keys() or any(n is None or n < 0 for n in backs.values()):
        return None
    ((own, store),) = (stores[n] for n in names)
    value = within_step(form, stores, store.value, 16) if store.value.dtype in (DType.F32, DType.F64) else None
    if value is None:
        return None
    inside = {ld for ld in loads(value) if ld.buffer in form.roles}
    order = max((n for ld in inside if (n := steps_back(form, written, ld)) is not None), default=0)
    if not 2 <= order <= ORDER or any(ld.buffer != store.buffer or ld.dtype is not value.dtype for ld in inside):
        return None
    p = form.roles[store.buffer].index(form.step.var)
    ranges = {form.step.var: (order, max(order, at_most(as_extent(form.step.hi)) - 1))}
    far = 1 if form.reverse else -1
    befores, coefficients = list[Load](), list[float]()
    for n in range(1, order + 1):
        at = (*store.index[:p], calc("add", store.index[p], far * n), *store.index[p + 1 :])
        same = [ld for ld in inside if steps_back(form, written, ld) == n]
        if len(same) > 1 or any(_without(ld.index, p) != _without(store.index, p) for ld in same):
            return None
        ld = same[0] if same else Load(store.buffer, at, value.dtype, store.span)
        factor = linear_part(value, ld, number(1, value.dtype)) if same else number(0, value.dtype)
        known = None if factor is None else _constant(factor, ranges)
        if known is None:
            return None
        befores.append(ld)
        coefficients.append(known)
    return Filter(store, own, value, tuple(befores), tuple(coefficients))


def _constant(e: Expr, ranges: Ranges) -> float | None:
    """The value of ``e`` where it is made of constants, and of choices that ``ranges`` decide."""
    match e:
        case Const(value=value):
            return float(value)
        case Op(op="select", args=(c, a, b)):
            decided = simplify(c, ranges)
            return _constant(a if decided.value else b, ranges) if isinstance(decided, Const) else None
        case Op(op="neg", args=(a,)):
            found = _constant(a, ranges)
            return None if found is None else -found
        case Op(op="add" | "sub" | "mul" | "div" as name, args=(a, b)):
            x, y = _constant(a, ranges), _constant(b, ranges)
            if x is None or y is None or (name == "div" and y == 0):
                return None
            return {"add": x + y, "sub": x - y, "mul": x * y}.get(name) if name != "div" else x / y
    return None


def linear_states(form: Form, known: Collection[str] = (), extremes: bool = False) -> tuple[State, ...] | None:
    """The states of a recurrence, all of which are linear; None where one is not.

    ``known``: reductions of a step whose results are numbers here, whatever they are made from.  ``extremes``: some may
    be extreme states.
    """
    step = form.step.body
    stores = {s.buffer: (loops, s) for loops, s in map(_elementwise, nests(step)) if s is not None}
    written = {s.buffer: s.index for _, s in statements(step)}
    reads = [ld for _, s in statements(step) for e in expressions(s) for ld in loads(e) if ld.buffer in written]
    backs = {ld: steps_back(form, written, ld) for ld in reads}
    if any(n is None or n not in (0, 1) for n in backs.values()):
        return None
    names = {ld.buffer for ld, n in backs.items() if n == 1}
    found = [_state(form, stores, name, known, extremes) for name in sorted(names) if name in stores]
    states = tuple(x for x in found if x is not None)
    return states if states and len(states) == len(names) else None


def states_in_order(form: Form) -> tuple[State, ...] | None:
    """The states of a recurrence, where those that are stored earlier in a step are numbers to the later ones.

    Some may be extreme states.  None where one is not linear, or reads another one at an earlier step.
    """
    stores = {s.buffer: (loops, s) for loops, s in map(_elementwise, nests(form.step.body)) if s is not None}
    found = list[State]()
    for name, (_, s) in stores.items():
        if any(ld.buffer == name for ld in loads(s.value)):
            state = _state(form, stores, name, {x.name for x in found}, extremes=True)
            if state is None:
                return None
            found.append(state)
    return tuple(found) or None


def steps_back(form: Form, written: Mapping[str, tuple[Expr, ...]], ld: Load) -> int | None:
    """How many steps before ``ld`` its element is written; None where that is not constant."""
    p = form.roles[ld.buffer].index(form.step.var)
    far = linear(written[ld.buffer][p]) - linear(ld.index[p])
    return None if far.terms else (-far.const if form.reverse else far.const)


def _elementwise(nest: Sequence[Stmt]) -> tuple[tuple[Loop, ...], Store | None]:
    """The loops and the store of a nest that is one store for each element; no store for another nest."""
    loops: list[Loop] = []
    body = tuple(nest)
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind is Kind.PAR:
        loops.append(body[0])
        body = body[0].body
    single = body[0] if len(body) == 1 else None
    return tuple(loops), single if isinstance(single, Store) and single.guard is None else None


Stores = Mapping[str, tuple[tuple[Loop, ...], Store]]


def reductions(form: Form) -> frozenset[str]:
    """The tensors that reductions of a step make."""
    return frozenset(s.buffer for _, s in statements(form.step.body) if isinstance(s, Update))


def _state(form: Form, stores: Stores, name: str, known: Collection[str], extremes: bool = False) -> State | None:
    """The state ``name``; None where it is not linear, nor one of the ``extremes`` that are wanted."""
    own, store = stores[name]
    exact = store.value.dtype in (DType.F32, DType.F64, DType.I32, DType.I64)
    value = within_step(form, stores, store.value, 16, known) if exact else None
    others = form.roles.keys() - set(known)
    inside = () if value is None else tuple(ld for ld in loads(value) if ld.buffer in others)
    if value is None or len(inside) != 1 or inside[0].buffer != name or inside[0].dtype is not value.dtype:
        return None
    p = form.roles[name].index(form.step.var)
    at = inside[0].index
    if steps_back(form, {name: store.index}, inside[0]) != 1 or not all(isinstance(e, Var) for e in _without(at, p)):
        return None
    if _without(at, p) != _without(store.index, p):
        return None
    if linear_part(value, inside[0], number(1, value.dtype)) is not None:
        return State(store, own, value, inside[0])
    later = {form.step.var: (1, max(1, at_most(as_extent(form.step.hi)) - 1))}
    kinds = extreme(value, inside[0], later) if extremes else None
    return None if kinds is None else State(store, own, value, inside[0], *kinds)


def _without(index: tuple[Expr, ...], p: int) -> tuple[Expr, ...]:
    return (*index[:p], *index[p + 1 :])


def within_step(form: Form, stores: Stores, e: Expr, depth: int, known: Collection[str] = ()) -> Expr | None:
    """``e`` with elementwise tensors of the same step replaced by their values.

    None where one is not elementwise, nor ``known``.
    """
    written = {name: s.index for name, (_, s) in stores.items()}
    failed = depth == 0

    def rule(n: Expr) -> Expr | None:
        nonlocal failed
        if not (isinstance(n, Load) and n.buffer in form.roles) or n.buffer in known:
            return None
        if n.buffer not in stores:
            failed = True
            return None
        if steps_back(form, written, n) != 0:
            return None
        _, s = stores[n.buffer]
        names = {i.name: at for i, at in zip(s.index, n.index, strict=True) if isinstance(i, Var)}
        if s.value.dtype is not n.dtype or len(names) < len(s.index) - (not isinstance(s.index[_step(form, n)], Var)):
            failed = True
            return None
        return substitute(s.value, names)

    made = rewrite(e, rule)
    others = form.roles.keys() - set(known)
    if failed or any(ld.buffer in others and ld.buffer not in stores for ld in loads(made)):
        return None
    again = [ld for ld in loads(made) if ld.buffer in others and steps_back(form, written, ld) == 0]
    return within_step(form, stores, made, depth - 1, known) if again else made


def _step(form: Form, ld: Load) -> int:
    return form.roles[ld.buffer].index(form.step.var)


# -- the parts of a value -------------------------------------------------------------------------


def linear_part(e: Expr, state: Load, x: Expr) -> Expr | None:
    """The terms of ``e`` with ``state``, which ``x`` replaces; None where there are none, or ``e`` is not linear."""
    if e == state:
        return x
    if not isinstance(e, Op) or state not in loads(e):
        return None
    zero = number(0, e.dtype)
    match e.op, e.args:
        case "add" | "sub", (a, b):
            left, right = linear_part(a, state, x), linear_part(b, state, x)
            if (left is None and state in loads(a)) or (right is None and state in loads(b)):
                return None
            if left is None or right is None:
                one = left if right is None else right
                return one if left is not None or e.op == "add" or one is None else Op("neg", (one,), e.dtype)
            return Op(e.op, (left, right), e.dtype)
        case "neg", (a,):
            inner = linear_part(a, state, x)
            return None if inner is None else Op("neg", (inner,), e.dtype)
        case "mul", (a, b) if state not in loads(a) or state not in loads(b):
            first = state in loads(a)
            inner = linear_part(a if first else b, state, x)
            if inner == number(1, e.dtype):
                return b if first else a
            return None if inner is None else Op("mul", (inner, b) if first else (a, inner), e.dtype)
        case "div", (a, b) if state not in loads(b) and e.dtype.is_float:
            inner = linear_part(a, state, x)
            return None if inner is None else Op("div", (inner, b), e.dtype)
        case "select", (c, a, b) if state not in loads(c):
            left, right = linear_part(a, state, x), linear_part(b, state, x)
            if (left is None and state in loads(a)) or (right is None and state in loads(b)):
                return None
            return Op("select", (c, left or zero, right or zero), e.dtype)
    return None


def other_part(e: Expr, state: Load) -> Expr | None:
    """The terms of the linear ``e`` without ``state``; None where there are none."""
    if e == state:
        return None
    if not isinstance(e, Op) or state not in loads(e):
        return e
    match e.op, e.args:
        case "add" | "sub", (a, b):
            left, right = other_part(a, state), other_part(b, state)
            if left is None or right is None:
                return left if right is None else right if e.op == "add" else Op("neg", (right,), e.dtype)
            return Op(e.op, (left, right), e.dtype)
        case "neg" | "div", (a, *others):
            inner = other_part(a, state)
            return None if inner is None else Op(e.op, (inner, *others), e.dtype)
        case "mul", (a, b):
            first = state in loads(a)
            inner = other_part(a if first else b, state)
            return None if inner is None else Op("mul", (inner, b) if first else (a, inner), e.dtype)
        case "select", (c, a, b):
            left, right = other_part(a, state), other_part(b, state)
            zero = number(0, e.dtype)
            return Op("select", (c, left or zero, right or zero), e.dtype)
    raise AssertionError(f"{e.op} is not linear")


def without_zeros(e: Expr) -> Expr:
    """``e`` without terms of 0, and without choices between equal values; a zero may have another sign."""

    def rule(n: Expr) -> Expr | None:
        match n:
            case Op(op="select", args=(_, a, b)) if a == b:
                return a
            case Op(op="add" | "sub", args=(a, Const(value=0.0))):
                return a
            case Op(op="add", args=(Const(value=0.0), a)):
                return a
        return None

    return rewrite(e, rule)


def without_terms(e: Expr, factor: Expr) -> Expr:
    """``e`` without terms of ``factor`` times 0, beside ``factor`` times a state: each is NaN where ``factor`` is."""

    def rule(n: Expr) -> Expr | None:
        match n:
            case Op(op="mul", args=(a, Const(value=0.0))) | Op(op="mul", args=(Const(value=0.0), a)) if a == factor:
                return number(0, n.dtype)
        return None

    return without_zeros(rewrite(without_zeros(e), rule))


def after_first(e: Expr, later: Ranges) -> Expr:
    """``e`` with choices between numbers that the position alone decides as they are at ``later`` positions."""

    def rule(n: Expr) -> Expr | None:
        match n:
            case Op(op="select", args=(c, a, b)) if isinstance(decided := simplify(c, later), Const):
                chosen = a if decided.value else b
                return chosen if isinstance(chosen, Const) else None
            case Op(op="mul", args=(a, Const(value=1))) | Op(op="mul", args=(Const(value=1), a)):
                return a
        return None

    return rewrite(e, rule)
