"""``taps-to-columns``: products with few columns have those of the taps of one axis too (kn2row).

Each element of the shifted operand of a convolution is read once for each tap, for as many products as there are
columns.  With few columns, reading takes longer than multiplying.  Here the product is computed for all taps of one
axis at each position of the operand, and the results of the taps, shifted against each other, are added::

    Y[b, k, x] sum= X[b, c, x + r] * F[k, c, r]

    Y_taps[b, j, u] sum= X[b, c, u] * F[j % K, c, j // K]   ;   Y[b, k, x] sum= Y_taps[b, r * K + k, x + r]

The operand is read as often less as there are taps, and tiles have no columns that nobody needs (3 taps of 24 columns
are 72).  The price is a tensor that is as many times as large as the result.

The axis ``x`` moves the operand in unit steps.  Conditions on ``x`` and ``r`` say that positions are inside of the
operand and no more; they become those of the sum of taps.  The pass takes the axis for which the times of
:mod:`nautilus.targets.window_rates` are shortest, where they are at most :data:`SHARE` of that without it, and the last
one of axes with nearly the same times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, within
from nautilus.core.expr.conditions import TRUE, conjunction, conjuncts
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars, substitute
from nautilus.core.index.linear import linear
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, parts_allowed
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.windows import extent, length
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.operands.store_windows import Convolution, convolution, seconds
from nautilus.scalar.rewriting import axis_assumptions, find_defs, fresh_name, put_defs
from nautilus.targets.limits import limits
from nautilus.targets.memory_rates import LAUNCH, MEMORY
from nautilus.targets.records import DEFAULT_TARGET

COLUMNS = 64  # most columns of such a product
SHARE = 0.85  # time with the taps as columns, at most, as a share of that without
TIE = 1.05  # relative time up to which a later axis, along which neighbours are closer, is taken
_LEAST = 16  # contracted terms that remain


@dataclass(frozen=True, slots=True)
class TapsToColumns:
    """Make taps columns.  ``arch``: the target; ``schedule`` and ``precision`` may forbid parts of operands of f32."""

    arch: str = DEFAULT_TARGET
    precision: str = "fast"
    schedule: Schedule | None = None

    name = "taps-to-columns"

    def apply(self, program: Program) -> Program:
        """The program with one more definition for each such product."""
        target = limits(self.arch)
        if not (target.warpgroup and parts_allowed(self.precision, self.schedule)):
            return program
        for d in find_defs(program).values():
            c = convolution(program, d, True) if d.at is None else None
            if c is None or c.dtype is not DType.F32 or extent(c.column) > COLUMNS:
                continue
            before = seconds(c, target.multiprocessors)
            tried = [self._priced(program, c, t) for t in _taps(c)]
            most = min([SHARE * before, *(TIE * t for t, _ in tried)])
            program = next((made for t, made in reversed(tried) if t <= most), program)
        return program

    def _priced(self, program: Program, c: Convolution, t: _Taps) -> tuple[float, Program]:
        """The time with the taps ``t`` as columns, and the program."""
        made, name = _with_columns(program, c, t)
        product = find_defs(made)[name]
        inner = convolution(made, product, True)
        if inner is None:
            return float("inf"), made
        results = prod(map(length, product.par)) * 2 + prod(map(length, c.d.par))
        added = results * product.buffer.dtype.bytes / MEMORY + LAUNCH * 1e-6
        return seconds(inner, limits(self.arch).multiprocessors) + added, made


@dataclass(frozen=True, slots=True)
class _Taps:
    """The summed axis ``tap``, which shifts dimension ``at`` of the operand, of ``size`` elements, along ``row``."""

    tap: Axis
    row: Axis
    at: int
    size: int


def _taps(c: Convolution) -> Iterator[_Taps]:
    """The axes whose taps may become columns."""
    kept = frozenset[str]().union(*map(free_vars, c.kept))
    rows, red = {a.name: a for a in c.rows}, {a.name: a for a in c.d.red}
    for n, e in enumerate(c.load.index):
        form = linear(e)
        names = {a.name: k for a, k in form.terms.items() if isinstance(a, Var)}
        row, tap = [x for x in names if x in rows], [x for x in names if x in red]
        if len(form.terms) != 2 or len(row) != 1 or len(tap) != 1 or names[row[0]] != 1 or tap[0] in kept:
            continue
        size = c.shapes[0][n]
        if not isinstance(size, int):
            continue
        found = _Taps(red[tap[0]], rows[row[0]], n, size)
        rest = prod(extent(a) for a in c.d.red if a is not found.tap)
        alone = all(m == n or not free_vars(x) & {row[0], tap[0]} for m, x in enumerate(c.load.index))
        if rest >= _LEAST and alone and extent(found.tap) > 1 and _is_bounded(c, found):
            yield found


def _is_bounded(c: Convolution, t: _Taps) -> bool:
    """Whether conditions on the axes of ``t`` say that the operand is read inside of it, and no more."""
    inside, names = within(c.load.index[t.at], t.size), {t.tap.name, t.row.name}
    ranges, facts = axis_assumptions(c.d.axes)
    return all(simplify(p, ranges, (*facts, *inside)) == TRUE for p in conjuncts(c.d.guard) if free_vars(p) & names)


def _with_columns(program: Program, c: Convolution, t: _Taps) -> tuple[Program, str]:
    """``program`` with the product of the taps, and its name."""
    d, taken = c.d, {a.name for a in c.d.axes}
    place = Axis(unused("u", taken), t.size, t.row.span)
    many = Axis(unused("j", {*taken, place.name}), extent(t.tap) * extent(c.column), t.tap.span)
    new = {t.row.name: place, c.column.name: many}
    par = tuple(new.get(a.name, a) for a in d.par)
    digits = {t.tap.name: calc("floordiv", Var(many.name), extent(c.column)),
              c.column.name: calc("mod", Var(many.name), extent(c.column))}  # fmt: skip
    index = tuple(Var(place.name) if n == t.at else e for n, e in enumerate(c.load.index))
    factors: list[Expr] = [replace(c.load, index=index)] * 2
    factors[1 - c.side] = substitute(c.other, digits)
    assert isinstance(d.value, Op)
    name = fresh_name(program, f"{d.name}_taps")
    buffer = Buffer(name, DType.F32, tuple(a.extent for a in par), Space.TEMP, d.span)
    names = {t.tap.name, t.row.name}
    guard = conjunction(p for p in conjuncts(d.guard) if not free_vars(p) & names)
    red = tuple(a for a in d.red if a.name != t.tap.name)
    product = Def(name, buffer, par, red, d.op, replace(d.value, args=tuple(factors)), guard, d.span)
    return put_defs(program, d.name, (product, _sum_of_taps(c, t, product, new))), name


def _sum_of_taps(c: Convolution, t: _Taps, product: Def, new: dict[str, Axis]) -> Def:
    """The definition of ``c`` as a sum over the taps of what ``product`` computes."""
    d, e = c.d, c.load.index[t.at]
    column: Expr = calc("add", calc("mul", Var(t.tap.name), extent(c.column)), Var(c.column.name))
    env = {t.row.name: e, c.column.name: column}
    at = tuple(env[a.name] if a.name in new else Var(a.name) for a in d.par)
    ranges, facts = axis_assumptions((*d.par, t.tap))
    inside = conjunction(p for p in within(e, t.size) if simplify(p, ranges, facts) != TRUE)
    return replace(d, red=(t.tap,), value=Load(product.name, at, DType.F32, d.span), guard=inside)
