"""``recur-scans``: running sums of exponentials relative to the largest element so far become recurrences.

Each element of such a sum depends on the result, because its reference does, so that it is no scan::

    m[t] = max_u x[u]               where u <= t
    s[t] = sum_u exp(x[u] - m[t])   where u <= t

A change of the reference is a factor of at most 1, and two exponentials for each element are enough::

    r[t] = max(m[t], LOWEST)
    S[t] = S[t - 1] * exp(r[t - 1] - r[t]) + exp(x[t] - r[t])
    s[t] = S[t] if S[t] != 0 else -inf - -inf

``LOWEST`` is the least finite number: a reference that is finite wherever an element is leaves 0 of elements that are
-inf, and the sum is at least 1 where one is not.  Else ``s`` is the difference of infinite numbers, as it was.  Running
values may be rescaled (``grammar/README.md``, "Numbers").

Sums whose terms decay with their distance, as in a moving average, are no scans either, and take a matrix of weights::

    y[t] = sum_u 0.06 * pow(0.94, t - u) * x[u]   where u <= t
    y[t] = y[t - 1] * 0.94 + 0.06 * x[t]

The weight of a term at distance ``n`` is that at distance 1 to the power of ``n``, and at most 1 in magnitude, so that
neither a result nor an error grows (:mod:`nautilus.scalar.analysis.ranges.decays`).

The same from the last element on, ``t <= u``.  Shorter axes stay as they are: all terms of each result are found at
once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from nautilus.core.buffers import Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc, integer, number
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Var, free_vars, identity, loads, rewrite, substitute
from nautilus.core.expr.products import signed_terms
from nautilus.core.index.simplify import simplify
from nautilus.core.index.sizes import extent_expr, large
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.types import DType, value_limits
from nautilus.scalar.analysis.contractions.promises import Promises, promised_ranges
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.analysis.domains import running
from nautilus.scalar.analysis.ranges.decays import Decay, decay
from nautilus.scalar.analysis.value_range import Ranges
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Store
from nautilus.scalar.rewriting import find_defs, fresh_name, nest, put_defs

SHORTEST = 256  # elements of an axis
_DEPTH = 3  # definitions that a term is made of, at most


@dataclass(frozen=True, slots=True)
class RecurScans(CertifyingPass[Program]):
    """Make recurrences of such sums; ``shortest``: elements of the shortest axis.

    ``spec``: the Spec, whose facts bound inputs and scalars.
    """

    shortest: int = SHORTEST
    spec: Promises | None = None

    name = "recur-scans"
    sees_recurrences = True

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with such recurrences, and a certificate for the step of each one."""
        certificates: list[Certificate] = []
        given = promised_ranges(self.spec)
        for d in find_defs(program).values():
            defs = find_defs(program)
            axes = tuple(a for a in d.par if size(a) is not None)
            decaying = decay(d, Ranges(defs, axes, given=given).of)
            if decaying is not None and large(decaying.t.extent) >= self.shortest:
                program, certificate = _decayed(program, d, decaying)
                certificates.append(certificate)
            found = _scan(d, defs)
            if found is None or (size(found.t) or 0) < self.shortest:
                continue
            program, certificate = _rewritten(program, d, found)
            certificates.append(certificate)
        return program, tuple(certificates)


@dataclass(frozen=True, slots=True)
class _Factor:
    """A factor of a product, or a divisor of it."""

    value: Expr
    divides: bool

    def on(self, e: Expr) -> Expr:
        """``e`` times the factor, or divided by it."""
        return Op("div" if self.divides else "mul", (e, self.value), e.dtype)


@dataclass(frozen=True, slots=True)
class _Scan:
    """A sum over ``u <= t - lag`` of ``exp(element - of[.., t])``, where ``of`` is the largest such ``element``.

    ``reverse``: over ``t <= u - lag``.  ``weights``: factors of a term; ``outer``: those that depend on ``t`` alone.
    """

    u: Axis
    t: Axis
    of: Def
    element: Expr
    reverse: bool
    lag: int
    weights: tuple[_Factor, ...]
    outer: tuple[_Factor, ...]

    def weighted(self, e: Expr, at: Mapping[str, Expr]) -> Expr:
        """``e`` with the weights of the term at the positions ``at``."""
        for w in self.weights:
            e = _Factor(substitute(w.value, at), w.divides).on(e)
        return e


def _scan(d: Def, defs: Mapping[str, Def]) -> _Scan | None:
    """The scan that ``d`` is; None for another definition."""
    if d.op != "sum" or d.at is not None or len(d.red) != 1 or d.value.dtype is not DType.F32:
        return None
    (u,) = d.red
    parts, guard = _factors(_computed(d.value, d.par, u, defs), d.guard)
    found = [(p, f) for p in parts if not p.divides and (f := _relative(p.value, d, u, defs)) is not None]
    if len(found) != 1:
        return None
    power, (element, of, beside) = found[0]
    lag = next((n for n in (0, 1) if running(guard, u, d.par, n) is not None), None)
    bound = None if lag is None else running(guard, u, d.par, lag)
    if lag is None or bound is None or len(of.par) != len(d.par):
        return None
    t, reverse = bound
    rest = [p for p in parts if p is not power]
    outer = beside + tuple(p for p in rest if u.name not in free_vars(p.value))
    weights = tuple(p for p in rest if u.name in free_vars(p.value))
    names: dict[str, Expr] = {a.name: Var(b.name) for a, b in zip((*of.par, *of.red), (*d.par, u), strict=True)}
    of_guard = None if of.guard is None else substitute(of.guard, names)
    same = running(of_guard, u, d.par, lag) == (t, reverse) and substitute(of.value, names) == element
    temps = of.buffer.space is Space.TEMP and of.buffer.dtype is DType.F32 is element.dtype
    plain = all(t.name not in free_vars(e) for e in (element, *(w.value for w in weights)))
    return _Scan(u, t, of, element, reverse, lag, weights, outer) if same and temps and plain else None


def _relative(
    e: Expr, d: Def, u: Axis, defs: Mapping[str, Def]
) -> tuple[Expr, Def, tuple[_Factor, ...]] | None:  # fmt: skip
    """The element of ``exp(element - reference)``, the maximum in the reference, and what else that adds to it.

    The other terms of the reference are a divisor of the whole sum: a term overflows where its quotient does, as the
    largest element is among those of the sum.
    """
    match e:
        case Op(op="exp", args=(Op(op="sub", args=(element, reference)),)) if u.name not in free_vars(reference):
            terms = signed_terms(_computed(reference, d.par, None, defs))
        case _:
            return None
    own = tuple(Var(a.name) for a in d.par)
    for term, negative in terms:
        of = defs.get(term.buffer) if isinstance(term, Load) and term.index == own and not negative else None
        if of is not None and of.op == "max" and len(of.red) == 1 and of.at is None:
            more = [(x, minus) for x, minus in terms if x is not term]
            total: Expr | None = None
            for x, minus in more:
                total = Op("sub" if minus else "add", (total or number(0, e.dtype), x), e.dtype)
            return element, of, () if total is None else (_Factor(Op("exp", (total,), e.dtype), True),)
    return None


def _computed(e: Expr, par: Sequence[Axis], u: Axis | None, defs: Mapping[str, Def]) -> Expr:
    """``e`` with elementwise temps over the axes ``par`` and ``u`` computed in it; None: over ``par`` alone."""
    axes = {a.name for a in par}

    def rule(n: Expr) -> Expr | None:
        of = defs.get(n.buffer) if isinstance(n, Load) else None
        if of is None or not isinstance(n, Load) or of.op is not None or of.at is not None or of.scatter is not None:
            return None
        names = free_vars(n)
        if not names & axes or (u is not None and u.name not in names) or of.guard is not None:
            return None
        exact = of.buffer.space is Space.TEMP and of.buffer.dtype is of.value.dtype is n.dtype
        if not exact or any(loads(i) for i in n.index):
            return None
        return substitute(of.value, {a.name: i for a, i in zip(of.par, n.index, strict=True)})

    for _ in range(_DEPTH):
        e = rewrite(e, rule)
    return e


def _factors(e: Expr, guard: Expr | None) -> tuple[list[_Factor], Expr | None]:
    """The factors of the product ``e``, and where its terms are: under ``guard``, or where they are not 0."""
    match e:
        case Op(op="mul", args=(a, b)):
            left, guard = _factors(a, guard)
            right, guard = _factors(b, guard)
            return [*left, *right], guard
        case Op(op="div", args=(a, b)):
            left, guard = _factors(a, guard)
            return [*left, _Factor(b, True)], guard
        case Op(op="select", args=(c, a, b)) if b == number(0, e.dtype) and guard in (None, c):
            return _factors(a, c)
    return [_Factor(e, False)], guard


def _decayed(program: Program, d: Def, x: Decay) -> tuple[Program, Certificate]:
    """``program`` with the recurrence that ``d`` is, and the certificate of its step."""
    step, last = Var(x.t.name), simplify(calc("sub", extent_expr(x.t.extent), 1))
    place = calc("sub", last, step) if x.reverse else step
    back = "add" if x.reverse else "sub"

    def at(t: Expr) -> Load:
        return Load(d.name, tuple(t if a is x.t else Var(a.name) for a in d.par), DType.F32, d.span)

    here = substitute(x.rest, {x.u.name: calc(back, place, x.lag) if x.lag else place})
    here = here if x.first is None else Op("mul", (x.first, here), DType.F32)
    later = Op("add", (Op("mul", (at(calc(back, place, 1)), x.step), DType.F32), here), DType.F32)
    value = calc("select", calc("lt", integer(0), step), later, number(0, DType.F32) if x.lag else here)
    loops = [Loop(a.name, integer(0), extent_expr(a.extent), Kind.PAR, (), d.span) for a in d.par if a is not x.t]
    loops.append(Loop(x.t.name, integer(0), extent_expr(x.t.extent), Kind.SEQ, (), d.span))
    kernel = Kernel(d.name, (), nest(loops, (Store(d.name, at(place).index, value, None, d.span),)), d.span)
    program = replace(program, kernels=tuple(kernel if k.name == d.name else k for k in program.kernels))
    other = substitute(x.weight, {x.t.name: calc(back, Var(x.t.name), 1)})
    moved = Op("mul", (other, x.step), DType.F32)
    far = calc(back, Var(x.t.name), x.lag) if x.lag else Var(x.t.name)
    pair = (far, Var(x.u.name)) if x.reverse else (Var(x.u.name), far)
    proof = "the weight of a term is multiplied once by that of one step in each later one"
    condition = Op("lt", pair, DType.BOOL)
    return program, Certificate("recur-scans", d.name, x.weight, moved, (), (condition,), (), proof, d.span)


def _exp(a: Expr, b: Expr) -> Expr:
    """``exp(a - b)``."""
    return Op("exp", (Op("sub", (a, b), DType.F32),), DType.F32)


def _rewritten(program: Program, d: Def, scan: _Scan) -> tuple[Program, Certificate]:
    """``program`` with the recurrence of ``d``, and the certificate of its step."""
    lowest, name = Const(value_limits(DType.F32)[0], DType.F32), fresh_name(program, f"{d.name}_relative")
    relative = replace(d.buffer, name=name, dtype=DType.F32, space=Space.TEMP, view_of=None, strides=None)
    step, last = Var(scan.t.name), (size(scan.t) or 0) - 1
    place = calc("sub", last, step) if scan.reverse else step
    back = "add" if scan.reverse else "sub"
    before, term = calc(back, place, 1), calc(back, place, scan.lag) if scan.lag else place

    def at(buffer: str, t: Expr) -> Load:
        index = tuple(t if a is scan.t else Var(a.name) for a in d.par)
        return Load(buffer, index, DType.F32, d.span)

    def reference(t: Expr) -> Expr:
        return Op("max", (at(scan.of.name, t), lowest), DType.F32)

    zero, names = number(0, DType.F32), {scan.u.name: term}
    here = scan.weighted(_exp(substitute(scan.element, names), reference(place)), names)
    moved = _exp(reference(before), reference(place))
    later = Op("add", (Op("mul", (at(name, before), moved), DType.F32), here), DType.F32)
    value = calc("select", calc("lt", integer(0), step), later, zero if scan.lag else here)
    loops = [Loop(a.name, integer(0), extent_expr(a.extent), Kind.PAR, (), d.span) for a in d.par if a is not scan.t]
    loops.append(Loop(scan.t.name, integer(0), extent_expr(scan.t.extent), Kind.SEQ, (), d.span))
    kernel = Kernel(name, (), nest(loops, (Store(name, at(name, place).index, value, None, d.span),)), d.span)
    program = put_defs(program, d.name, (_result(d, scan, at(name, step), at(scan.of.name, step)),))
    mine = next(n for n, k in enumerate(program.kernels) if k.name == d.name)
    kernels = (*program.kernels[:mine], kernel, *program.kernels[mine:])
    program = replace(program, kernels=kernels, buffers=(*program.buffers, relative))
    proof = "exp(x - r) is exp(x - q) * exp(q - r), and a term of an earlier step is multiplied once in each later one"
    whole = scan.weighted(_exp(scan.element, reference(place)), {})
    earlier = scan.weighted(_exp(scan.element, reference(before)), {})
    moved = Op("mul", (earlier, moved), DType.F32)
    ordered = (scan.element, at(scan.of.name, before), at(scan.of.name, place))
    conditions = tuple(Op("le", pair, DType.BOOL) for pair in pairwise(ordered))
    return program, Certificate("recur-scans", d.name, whole, moved, (), conditions, (), proof, d.span)


def _result(d: Def, scan: _Scan, total: Load, of: Load) -> Def:
    """``d`` as what its running sum ``total`` relative to ``of`` gives."""
    least = identity("max", DType.F32)
    tells: tuple[Expr, Expr] = (of, least) if scan.weights else (total, number(0, DType.F32))
    value: Expr = calc("select", Op("ne", tells, DType.BOOL), total, Op("sub", (least, least), DType.F32))
    for factor in scan.outer:
        value = factor.on(value)
    if scan.lag:
        last = (size(scan.t) or 0) - 1
        some = calc("lt", Var(scan.t.name), last) if scan.reverse else calc("lt", integer(0), Var(scan.t.name))
        value = calc("select", some, value, number(0, DType.F32))
    return replace(d, red=(), op=None, guard=None, value=value)
