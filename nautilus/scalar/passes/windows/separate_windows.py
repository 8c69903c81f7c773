"""``separate-windows``: reductions over windows of several axes are found one axis after another.

Neighbouring results share the reductions along the other axes::

    Y[y, x] sum= g[r] * h[s] * X[y + r, x + s]          becomes     P[y, u] sum= g[r] * X[y + r, u]
                                                                    Y[y, x] sum= h[s] * P[y, x + s]

The number of terms of a result is then the sum of the widths, where it was their product.

Invariants: the element has a reduced axis ``s`` in factors of its own, and else depends on ``s`` and on an axis ``x``
of the result by ``x + s`` alone, as the conditions do.  A factor of its own leaves the sum over the other axes as it
does by ``factor``; where that sum may be empty, the factor is a finite number for certain, since a term that is not
there does not meet it.

A sum that is separated costs a kernel, and a tensor that is stored and loaded.  A term at a clamped place, as that of a
filter that repeats the border, takes longer, and the outer reduction has none.  The estimate has to be
:data:`~nautilus.scalar.passes.windows.nest_windows.SHARE` of that of the window at most.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Reduce, Var, free_vars, substitute
from nautilus.core.expr.products import factors, product_of
from nautilus.core.index.simplify import TRUE, linear_in, simplify
from nautilus.core.index.sizes import nominal
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.definitions import Def, points, size, slides
from nautilus.scalar.analysis.domains import nonempty
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.factor import certainly_finite
from nautilus.scalar.passes.windows.nest_windows import SHARE, TERM, by_sum
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs
from nautilus.targets.memory_rates import LAUNCH
from nautilus.targets.rates import machine
from nautilus.targets.records import DEFAULT_TARGET

#: time of a term at a clamped place relative to a plain one: it is an element, not part of a vector
CLAMPED = 2.2


@dataclass(frozen=True, slots=True)
class SeparateWindows(CertifyingPass[Program]):
    """Separate windows; ``always``: where the invariants permit it (for tests)."""

    always: bool = False

    name = "separate-windows"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with windows of one axis, and a certificate for each that was separated."""
        certificates: list[Certificate] = []
        pending = [*find_defs(program)]
        while pending:
            d = find_defs(program)[pending.pop(0)]
            found = [x for s in d.red if (x := _separable(d, s)) is not None]
            made = min(found, key=lambda x: x.terms(d), default=None)
            if made is None or not (self.always or _pays(d, made)):
                continue
            inner, outer, certificate = _separated(program, d, made)
            program = put_defs(program, d.name, (inner, outer))
            certificates.append(certificate)
            pending = [inner.name, *pending]
        return program, tuple(certificates)


@dataclass(frozen=True, slots=True)
class _Separable:
    """``s``: the axis that is reduced last, which moves with ``x``; ``own``: its factors; ``shared``: the others.

    ``inside`` and ``outside``: the conditions of both reductions.
    """

    s: Axis
    x: Axis
    own: tuple[Expr, ...]
    shared: Expr
    inside: tuple[Expr, ...]
    outside: tuple[Expr, ...]

    def inner_axes(self, d: Def) -> tuple[Axis, ...]:
        """The axes of the results of the inner reduction, in the order of the result."""
        used = free_vars(self.shared).union(*map(free_vars, self.inside))
        width = nominal(self.x.extent) + nominal(self.s.extent) - 1
        return tuple(replace(a, extent=width) if a is self.x else a for a in d.par if a is self.x or a.name in used)

    def elements(self, d: Def) -> int:
        """The results of the inner reduction."""
        return points(self.inner_axes(d))

    def terms(self, d: Def) -> float:
        """The terms of both reductions, as many as those of a plain window that take as long."""
        last, whole = nominal(self.s.extent), points(d.red)
        return _clamped(d) * self.elements(d) * whole // last + points(d.par) * last


def _separable(d: Def, s: Axis) -> _Separable | None:
    """``d`` with ``s`` reduced last; None where the invariants do not hold."""
    if not d.is_reduction or d.at is not None or (size(s) or 0) < 2:
        return None
    if not all(_slides(d, a) for a in d.red):
        return None
    others = {a.name for a in d.red if a is not s}
    parts = factors(d.value) if d.op == "sum" else (d.value,)
    own = tuple(e for e in parts if s.name in free_vars(e) and not free_vars(e) & others)
    shared = [e for e in parts if e not in own]
    if not shared or not all(free_vars(e) & others or s.name in free_vars(e) for e in shared):
        return None
    conditions = () if d.guard is None else conjuncts(d.guard)
    for x in d.par:
        if size(x) is None or not any(s.name in free_vars(e) for e in shared):
            continue
        if not all(_moves(e, x.name, s.name) for e in (*shared, *conditions)):
            continue
        if not all(map(certainly_finite, own)) and not _never_empty(d, s, x):
            return None
        outside = tuple(c for c in conditions if s.name in free_vars(c) and not free_vars(c) & others)
        return _Separable(s, x, own, product_of(shared), conditions, outside)
    return None


def _slides(d: Def, a: Axis) -> bool:
    """Whether a place in memory depends on the reduced axis ``a`` and on an axis of the result."""
    return slides(d, {a.name}, {x.name for x in d.par})


def _moves(e: Expr, x: str, s: str) -> bool:
    """Whether ``e`` depends on ``x`` and ``s`` by their sum, if at all."""
    return not free_vars(e) & {x, s} or by_sum(e, x, s)


def _never_empty(d: Def, s: Axis, x: Axis) -> bool:
    """Whether each result of the inner reduction that the outer one reads has a term."""
    red = tuple(a for a in d.red if a is not s)
    own = [c for c in (() if d.guard is None else conjuncts(d.guard)) if free_vars(c) & {a.name for a in red}]
    if any(free_vars(c) & {s.name, x.name} for c in own):
        return False
    return not own or nonempty(replace(d, red=red, guard=conjunction(own))) == TRUE


def _pays(d: Def, w: _Separable) -> bool:
    """Whether the kernels of both reductions are predicted to be faster than that of ``d``."""
    moved = 2 * w.elements(d) * d.value.dtype.bytes / machine(DEFAULT_TARGET).dram
    whole = _clamped(d) * points(d.axes)
    return LAUNCH * 1e-6 + moved + w.terms(d) * TERM < SHARE * whole * TERM


def _clamped(d: Def) -> float:
    """The time of a term of ``d`` relative to that of a window without clamped or wrapped places."""
    plain = all(linear_in(e, a.name) for ld in d.reads() for e in ld.index for a in d.red if a.name in free_vars(e))
    return 1.0 if plain else CLAMPED


def _separated(program: Program, d: Def, w: _Separable) -> tuple[Def, Def, Certificate]:
    """The inner reduction and the outer one."""
    assert d.op is not None
    name = fresh_name(program, f"{d.name}_row")
    axes = w.inner_axes(d)
    taken = {a.name for a in d.axes}
    moved = unused("u", taken)
    red = tuple(a for a in d.red if a is not w.s)

    def at(e: Expr, place: Expr) -> Expr:
        return simplify(substitute(e, {w.x.name: place, w.s.name: integer(0)}))

    par = tuple(replace(a, name=moved) if a.name == w.x.name else a for a in axes)
    value = at(w.shared, Var(moved))
    guard = conjunction(at(c, Var(moved)) for c in w.inside)
    buffer = Buffer(name, d.value.dtype, tuple(a.extent for a in par), Space.TEMP, d.span)
    inner = Def(name, buffer, par, red, d.op, value, guard, d.span)
    place = calc("add", Var(w.x.name), Var(w.s.name))
    read: Expr = Load(name, tuple(place if a.name == w.x.name else Var(a.name) for a in axes), buffer.dtype, d.span)
    weighted = product_of([*w.own, read]) if w.own else read
    outside = conjunction(w.outside)
    outer = replace(d, red=(w.s,), value=weighted, guard=outside)
    whole = Reduce(d.op, red, conjunction(w.inside), w.shared, d.value.dtype, d.span)
    both = Op("mul", (product_of(list(w.own)), whole), d.value.dtype) if w.own else whole
    before = Reduce(d.op, d.red, d.guard, d.value, d.value.dtype, d.span)
    after = Reduce(d.op, (w.s,), outside, both, d.value.dtype, d.span)
    proof = f"a {d.op} over the axes of a window, one after another"
    return inner, outer, Certificate("separate-windows", d.name, before, after, (), (), (), proof, d.span)
