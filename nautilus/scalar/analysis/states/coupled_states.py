"""Recurrences whose states need each other, linearly: ``h = A * h' + b`` for a vector ``h`` of a few numbers.

A *column* is what a step reads of an earlier one: a tensor one step before it, or more.  A *row* is the value of a
column after the step.  That of a tensor is what the step stores, with the elementwise tensors of the same step in it;
that of a tensor two steps before is its value one step before.  Tensors that read earlier values, but are not read at
earlier steps themselves, are rows after those of the columns.  A value is a sum of terms with one column each and of a
rest::

    y[t] = a * y[t - 1] + b * y[t - 2] + x[t]        columns y[t - 1], y[t - 2]; rows (a, b) and (1, 0)

A term whose column is left out by a condition where it exists is no linear one here: it would forget inf and NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from nautilus.core.common_ops import largest_factor
from nautilus.core.expr.build import number
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, free_vars, loads, walk
from nautilus.core.functions.specials import nearest_f32
from nautilus.core.index.simplify import FALSE, simplify
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.states.extreme_states import left_out
from nautilus.scalar.analysis.states.linear_states import (
    State,
    linear_part,
    linear_states,
    other_part,
    states_in_order,
    steps_back,
    within_step,
    without_zeros,
)
from nautilus.scalar.analysis.states.recurrences import Form
from nautilus.scalar.ir import Stmt, Store, expressions, extent, statements

LEAST, MOST = 2, 3  # rows
Matrix = list[list[float]]
_ROUNDINGS = 16  # of f32, the error of a power of the matrix relative to the largest one
_TILE = 8192  # steps, at most, that a block combines
_VARYING = 2  # columns where factors differ from step to step, so that a map of steps has a matrix


@dataclass(frozen=True, slots=True)
class Column:
    """The tensor ``name``, ``back`` steps before."""

    name: str
    back: int


@dataclass(frozen=True, slots=True)
class Row:
    """A value after a step: ``factors`` of columns, each where it has a term, and a ``rest``.

    ``store``: what stores it; None where it is an earlier value of another row.  ``value``: the whole of it, with
    the ``befores`` of its columns.
    """

    store: Store | None
    value: Expr | None
    befores: tuple[Load | None, ...]
    factors: tuple[Expr | None, ...]
    rest: Expr

    @property
    def terms(self) -> tuple[Expr | None, ...]:
        """The factors under the conditions that leave terms out in the first steps."""
        one = number(1, self.rest.dtype)
        return tuple(None if b is None or self.value is None else linear_part(self.value, b, one) for b in self.befores)


@dataclass(frozen=True, slots=True)
class CoupledStates:
    """The ``columns`` and the ``rows`` of a recurrence, of which those of the columns come first."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    dtype: DType

    @property
    def steady(self) -> bool:
        """Whether all factors are constants."""
        return all(f is None or isinstance(f, Const) for r in self.rows for f in r.factors)


def states_apart(form: Form) -> tuple[State, ...] | None:
    """The states of a recurrence that do not need each other, and that no other tensor reads at an earlier step.

    A state may read those that are stored before it at its own step: their scans come first.  Extremes only run, and
    are read at the step before as well (:func:`read_before`).
    """
    found, written = linear_states(form, extremes=True), {s.buffer: s.index for _, s in statements(form.step.body)}
    found = found if found is not None else states_in_order(form)
    if found is not None and any(x.is_extreme and not x.runs(form.step) for x in found):
        return None
    order, extremes = list(written), {x.name for x in found or () if x.is_extreme}
    for _, s in statements(form.step.body) if found is not None else ():
        own = s.buffer if any(x.name == s.buffer for x in found or ()) else None
        reads = [ld for e in expressions(s) for ld in loads(e) if ld.buffer in written and ld.buffer != own]
        backs = [(ld, steps_back(form, written, ld)) for ld in reads]
        if any(n != 0 and not (n == 1 and ld.buffer in extremes and _is_later(order, s, ld)) for ld, n in backs):
            return None
    return found


def read_before(form: Form) -> frozenset[str]:
    """The tensors of a recurrence that other stores of a step read at the step before."""
    written = {s.buffer: s.index for _, s in statements(form.step.body)}
    return frozenset(
        ld.buffer
        for _, s in statements(form.step.body)
        for e in expressions(s)
        for ld in loads(e)
        if ld.buffer in written and ld.buffer != s.buffer and steps_back(form, written, ld) == 1
    )


def _is_later(order: Sequence[str], s: Stmt, ld: Load) -> bool:
    """Whether the store ``s`` follows that of the tensor that ``ld`` reads."""
    return isinstance(s, Store) and order.index(ld.buffer) < order.index(s.buffer)


def coupled_states(form: Form) -> CoupledStates | None:
    """The states of a recurrence whose steps are stores of single numbers; None where they are not such states."""
    found = list(statements(form.step.body))
    stores = {s.buffer: s for loops, s in found if isinstance(s, Store) and not loops and s.guard is None}
    steps = extent(form.step)
    if len(stores) != len(found) or steps is None:
        return None
    written = {n: s.index for n, s in stores.items()}
    reads = {ld for s in stores.values() for e in expressions(s) for ld in loads(e) if ld.buffer in written}
    backs = {ld: steps_back(form, written, ld) for ld in reads}
    furthest: dict[str, int] = {}
    for ld, n in backs.items():
        if n is None or n < 0 or not _same_place(form, written, ld):
            return None
        furthest[ld.buffer] = max(furthest.get(ld.buffer, 0), n)
    columns = tuple(Column(n, back) for n in stores for back in range(1, furthest.get(n, 0) + 1))
    readers = [n for n, s in stores.items() if any(backs[ld] for e in expressions(s) for ld in loads(e) if ld in backs)]
    extra = [n for n in readers if not furthest.get(n)]
    if not columns or not LEAST <= len(columns) + len(extra) <= MOST:
        return None
    dtypes = {s.value.dtype for n, s in stores.items() if furthest.get(n) or n in readers}
    dtype = next(iter(dtypes))
    if len(dtypes) != 1 or dtype not in (DType.F32, DType.F64):
        return None
    if any(ld.dtype is not dtype for ld in reads if backs[ld] or ld.buffer in extra):
        return None
    rows = [_row(form, stores, written, columns, c.name, c.back, steps) for c in columns]
    rows += [_row(form, stores, written, columns, n, 1, steps) for n in extra]
    known = tuple(r for r in rows if r is not None)
    return CoupledStates(columns, known, dtype) if len(known) == len(rows) else None


def _same_place(form: Form, written: Mapping[str, tuple[Expr, ...]], ld: Load) -> bool:
    """Whether ``ld`` differs from the position that its tensor is written at in the step alone."""
    pairs = zip(form.roles[ld.buffer], written[ld.buffer], ld.index, strict=True)
    return all(own == at for role, own, at in pairs if role != form.step.var)


def _row(
    form: Form, stores: Mapping[str, Store], written: Mapping[str, tuple[Expr, ...]], columns: Sequence[Column],
    name: str, back: int, steps: int,
) -> Row | None:  # fmt: skip
    """The row of the tensor ``name``, ``back - 1`` steps before a step; None where it is not linear."""
    dtype = stores[name].value.dtype
    if back > 1:
        one = tuple(number(1, dtype) if c == Column(name, back - 1) else None for c in columns)
        return Row(None, None, tuple(None for _ in columns), one, number(0, dtype))
    value = within_step(form, {n: ((), s) for n, s in stores.items()}, stores[name].value, 16)
    if value is None:
        return None
    inside = {ld for ld in loads(value) if ld.buffer in written}
    factors, befores = list[Expr | None](), list[Load | None]()
    rest: Expr | None = value
    for c in columns:
        own = [ld for ld in inside if Column(ld.buffer, steps_back(form, written, ld) or 0) == c]
        if len(own) > 1:
            return None
        befores.append(own[0] if own else None)
        if not own:
            factors.append(None)
            continue
        factor = _factor(value, own[0], written, form.step.var, c.back, steps)
        if factor is None:
            return None
        factors.append(factor)
        rest = None if rest is None else other_part(rest, own[0])
    if sum(b is not None for b in befores) != len(inside) or (rest is not None and not inside.isdisjoint(loads(rest))):
        return None
    kept = number(0, dtype) if rest is None else without_zeros(rest)
    return Row(stores[name], value, tuple(befores), tuple(factors), kept)


def _factor(value: Expr, ld: Load, written: Collection[str], step: str, back: int, steps: int) -> Expr | None:
    """The factor of ``ld`` in ``value`` where it exists; None where ``value`` is not linear, or leaves it out there.

    Where the element does not exist it counts as 0: a factor without numbers of the caller is finite and needs no
    condition for that, and the first step has no term.
    """
    factor = linear_part(value, ld, number(1, value.dtype))
    later = {step: (back, steps - 1)}
    if factor is None or any(x.buffer in written for x in loads(factor)):
        return None
    forgets = left_out(value, ld)
    if forgets is not None and simplify(forgets, later) != FALSE:
        return None
    known = not any(isinstance(e, Load | Param) for e in walk(factor))
    made = simplify(factor, later if known or back == 1 else {})
    constant = folded(made)
    return made if constant is None else Const(constant, value.dtype)


def folded(e: Expr) -> float | None:
    """The value of ``e`` where it is made of constants."""
    match e:
        case Const(value=value):
            return float(value)
        case Op(op="neg", args=(a,)):
            x = folded(a)
            return None if x is None else -x
        case Op(op="add" | "sub" | "mul" | "div" as name, args=(a, b)):
            x, y = folded(a), folded(b)
            if x is None or y is None or (name == "div" and y == 0.0):
                return None
            return {"add": x + y, "sub": x - y, "mul": x * y}[name] if name != "div" else x / y
    return None


def may_combine(found: CoupledStates, form: Form) -> bool:
    """Whether steps may be combined in any order, so far as is known before the launch.

    No element of a product of constant matrices is above :func:`.largest_factor`, and their squares keep the precision
    of the steps; other matrices are looked at when they are known.
    """
    if not found.steady:
        factors = [f for r in found.rows for f in r.factors if f is not None]
        return len(found.columns) <= _VARYING or all(form.step.var not in free_vars(f) for f in factors)
    size, steps = len(found.columns), extent(form.step) or 0
    matrix = [[folded(f) or 0.0 if f is not None else 0.0 for f in r.factors] for r in found.rows[:size]]
    if not _squares_are_close(matrix, steps):
        return False
    power, most = matrix, largest_factor(min(steps, _TILE))
    for _ in range(steps):
        if max(abs(x) for row in power for x in row) > most:
            return False
        if max(sum(abs(x) for x in row) for row in power) <= 1.0:
            return True
        power = _product(power, matrix)
    return True


def _squares_are_close(matrix: Matrix, steps: int) -> bool:
    """Whether squares of squares in f32, up to ``steps`` factors, differ by few roundings from those of ``matrix``.

    A square has twice the relative error of its factors.  Where old states hardly decay, as in momentum over thousands
    of steps, the squares have errors of more than a hundred roundings, and steps one after another are more exact.
    Squares in f64 have about as many roundings of their own.
    """
    exact, rounded, largest, count = matrix, _in_f32(matrix), 1.0, 1
    while count < steps:
        exact, rounded, count = _product(exact, exact), _in_f32(_product(rounded, rounded)), 2 * count
        elements = [(x, y) for xs, ys in zip(exact, rounded, strict=True) for x, y in zip(xs, ys, strict=True)]
        largest = max(largest, *(abs(x) for x, _ in elements))
        if not max(abs(x - y) for x, y in elements) <= _ROUNDINGS * 2.0**-24 * largest:
            return False
    return True


def _product(a: Matrix, b: Matrix) -> Matrix:
    return [[sum(row[k] * b[k][c] for k in range(len(b))) for c in range(len(b))] for row in a]


def _in_f32(matrix: Matrix) -> Matrix:
    return [[nearest_f32(x) for x in row] for row in matrix]
