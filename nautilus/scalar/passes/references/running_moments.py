"""``running-moments``: sums of products about a running mean become running sums.

Each element of a running variance or covariance depends on the result, because its mean does, so that it is no scan::

    S[t] = sum_u e(u)                               where u <= t
    V[t] = sum_u (e(u) - m[t]) * (f(u) - n[t])      where u <= t, m[t] = S[t] / (t + 1), and n[t] alike

A further element adds one product to it, about the mean before it and the one with it (Welford, "Note on a method for
calculating corrected sums of squares and products", 1962)::

    V[t] = sum_u (e(u) - m[u - 1]) * (f(u) - n[u]) where u > 0      where u <= t

The same from the last element on, ``t <= u``.  The products of a variance are not negative, so that no large numbers
are subtracted.  A rounding of a mean counts once in each product, where about one mean it counts twice, so that fewer
digits are right far from 0 (numbers about 1e4 with a deviation of 1: an error of 1.5e-4).  Centres that are not the
means themselves, such as means that are rounded, add a product to the sum::

    V[t] + (t + 1) * (m[t] - c[t]) * (n[t] - d[t])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc, integer, number
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars, loads, substitute
from nautilus.core.index.simplify import simplify
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.analysis.domains import running
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs

SHORTEST = 128  # elements of an axis; all products of a shorter one are found at once


@dataclass(frozen=True, slots=True)
class RunningMoments(CertifyingPass[Program]):
    """Make running sums of such sums; ``shortest``: elements of the shortest axis."""

    shortest: int = SHORTEST

    name = "running-moments"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with such running sums, and a certificate for the step of each one."""
        certificates: list[Certificate] = []
        for d in find_defs(program).values():
            found = _moment(d, find_defs(program))
            if found is not None and (size(found.t) or 0) >= self.shortest:
                program = put_defs(program, d.name, found.definitions(program))
                certificates.append(found.certificate())
        return program, tuple(certificates)


@dataclass(frozen=True, slots=True)
class _Side:
    """A factor ``element - centre``; ``total``: the running sum of ``element``, read at the axes of the result."""

    element: Expr
    centre: Expr
    total: Load
    exact: bool


@dataclass(frozen=True, slots=True)
class _Moment:
    """The sum ``d`` over ``u <= t`` of the product of two sides; ``reverse``: over ``t <= u``."""

    d: Def
    u: Axis
    t: Axis
    reverse: bool
    sides: tuple[_Side, _Side]

    def count(self, t: Expr) -> Expr:
        """The number of elements up to the position ``t``."""
        n = calc("sub", size(self.t) or 0, t) if self.reverse else calc("add", t, 1)
        return Op("cast", (simplify(n),), DType.F32)

    def mean(self, side: _Side, t: Expr) -> Expr:
        """The mean of the elements of ``side`` up to the position ``t``."""
        read = substitute(side.total, {self.t.name: t})
        return Op("div", (read, self.count(t)), DType.F32)

    def definitions(self, program: Program) -> tuple[Def, ...]:
        """The running sum, and what centres that are not means add to it."""
        d, u, (left, right) = self.d, Var(self.u.name), self.sides
        before, last = calc("add" if self.reverse else "sub", u, 1), (size(self.t) or 0) - 1
        later = calc("lt", u, last) if self.reverse else calc("lt", integer(0), u)
        term = _times(_minus(left.element, self.mean(left, before)), _minus(right.element, self.mean(right, u)))
        value = calc("select", later, term, number(0, DType.F32))
        if left.exact and right.exact:
            return (replace(d, value=value),)
        name = fresh_name(program, f"{d.name}_about_means")
        own = replace(d.buffer, name=name, dtype=DType.F32, space=Space.TEMP, view_of=None, strides=None)
        here, t = tuple(Var(a.name) for a in d.par), Var(self.t.name)
        between = [_minus(self.mean(s, t), s.centre) for s in self.sides]
        more = _times(self.count(t), _times(*between))
        total = Op("add", (Load(name, here, DType.F32, d.span), more), DType.F32)
        return replace(d, name=name, buffer=own, value=value), replace(d, red=(), op=None, guard=None, value=total)

    def certificate(self) -> Certificate:
        """What an element adds to the sum of products less their number times the means of both sides."""
        t = Var(self.t.name)
        first, second = (substitute(s.element, {self.u.name: t}) for s in self.sides)
        before = simplify(calc("add" if self.reverse else "sub", t, 1))
        fewer, more = self.count(before), self.count(t)
        old = [self.mean(s, before) for s in self.sides]
        new = [
            Op("div", (Op("add", (_times(fewer, m), x), DType.F32), more), DType.F32)
            for m, x in zip(old, (first, second), strict=True)
        ]
        whole = _minus(_times(first, second), _minus(_times(more, _times(*new)), _times(fewer, _times(*old))))
        step = _times(_minus(first, old[0]), _minus(second, new[1]))
        proof = "a sum of products about means is that of the products less the number of them times both means"
        some = (calc("lt", t, (size(self.t) or 0) - 1) if self.reverse else calc("lt", integer(0), t),)
        return Certificate("running-moments", self.d.name, whole, step, (), some, (), proof, self.d.span)


def _moment(d: Def, defs: Mapping[str, Def]) -> _Moment | None:
    """The sum about running means that ``d`` is; None for another definition."""
    match d:
        case Def(op="sum", at=None, red=(u,), value=Op(op="mul", dtype=DType.F32, args=(a, b))):
            bound = running(d.guard, u, d.par)
        case _:
            return None
    if bound is None or d.buffer.dtype is not DType.F32 or size(bound[0]) is None:
        return None
    t, reverse = bound
    left, right = (_side(d, e, u, bound, defs) for e in (a, b))
    return None if left is None or right is None else _Moment(d, u, t, reverse, (left, right))


def _side(d: Def, e: Expr, u: Axis, bound: tuple[Axis, bool], defs: Mapping[str, Def]) -> _Side | None:
    """``e`` as an element less a centre that depends on the running sum of the elements; None for another form."""
    match e:
        case Op(op="sub", args=(element, centre)) if u.name not in free_vars(centre):
            pass
        case _:
            return None
    t, _ = bound
    if t.name in free_vars(element) or t.name not in free_vars(centre):
        return None
    own = tuple(Var(a.name) for a in d.par)
    for read, whole in _reads(centre, centre, defs):
        total = defs[read.buffer]
        plain = total.op == "sum" and total.at is None and len(total.red) == 1 and len(total.par) == len(read.index)
        if not plain or total.buffer.dtype is not DType.F32 or not set(read.index) <= set(own):
            continue
        names: dict[str, Expr] = {a.name: i for a, i in zip(total.par, read.index, strict=True)}
        names[total.red[0].name] = Var(u.name)
        guard = None if total.guard is None else substitute(total.guard, names)
        alike = running(guard, u, d.par) == bound and substitute(total.value, names) == element
        if alike and total.buffer.space is Space.TEMP:
            return _Side(element, centre, read, _is_mean(whole, read, t, bound[1]))
    return None


def _is_mean(e: Expr, total: Load, t: Axis, reverse: bool) -> bool:
    """Whether ``e`` is ``total`` divided by the number of its elements."""
    n = calc("sub", size(t) or 0, Var(t.name)) if reverse else calc("add", Var(t.name), 1)
    match e:
        case Op(op="div", args=(a, Op(op="cast", args=(count,)))) if a == total:
            return simplify(count) == simplify(n)
    return False


def _reads(e: Expr, whole: Expr, defs: Mapping[str, Def]) -> Iterator[tuple[Load, Expr]]:
    """The reductions that ``e`` reads, also through elementwise f32 definitions, and ``whole`` with those computed."""
    for ld in loads(e):
        d = defs.get(ld.buffer)
        if d is not None and d.is_reduction:
            yield ld, whole
        elif d is not None and d.at is None and d.guard is None and d.scatter is None:
            value = substitute(d.value, {a.name: x for a, x in zip(d.par, ld.index, strict=True)})
            exact = d.buffer.dtype is d.value.dtype is ld.dtype and whole == ld
            yield from _reads(value, value if exact else whole, defs)


def _minus(a: Expr, b: Expr) -> Expr:
    return Op("sub", (a, b), DType.F32)


def _times(a: Expr, b: Expr) -> Expr:
    return Op("mul", (a, b), DType.F32)
