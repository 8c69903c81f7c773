"""Repair terms, which convert an accumulation under an old reference to a new reference.

A reduction ``A = combine_j f(x_j, r)`` depends on ``r``, which is also a reduction over ``j``.  In one loop ``A`` uses
a running ``r``.  The repair term ``t`` satisfies, for every ``x``,

    f(x, new) = t(f(x, old), old, new)         and         t(a (+) b) = t(a) (+) t(b)

(Neptune, arXiv 2510.08726, section 4).  The derivation solves ``y = f(x, old)`` for ``x``, the outermost
sub-expressions that do not depend on ``r``.  It separates ``f`` into ``X(x) * G(r)`` or ``X(x) + G(r)``, so that
``X = y / G(old)`` or ``X = y - G(old)``.  Substitution gives

    t(y) = y * G(new)/G(old)     -- distributes over sum; over max and min where the ratio is positive
    t(y) = y + G(new)-G(old)     -- distributes over max and min

The normal form (``symbolic``) proves both equations.  If ``f`` has none, the result is a :class:`Refusal` with the
reason.

References.  ``old`` and ``new`` may be *any* values for which ``G`` is finite and not zero.  For a running value equal
to its identity that fails, so a *reference* replaces it: ``select(r == identity, c, r)``.

* ``r`` is a maximum (minimum) that occurs as ``exp(c * (v - r))``, or as ``exp(c * (v - max(r, d)))`` with an invariant
  ``d``, where ``v`` is the element of ``r`` and the accumulator's guard implies the guard of ``r``, so exponents are
  never positive: ``c = 0``.  While ``r = -inf``, every
  ``v`` was -inf or excluded, so under the reference 0 each element was ``exp(-inf) = 0`` and the accumulator is its
  identity.  The repair ``exp(-inf - new) = 0`` keeps the identity.  The accumulator is repaired *from* the raw old
  value, because an old reference of 0 could overflow: exp(0 - new).  If ``r = -inf`` after the loop, the accumulator
  is its identity, the value of an empty domain.  Where the accumulator leaves out elements of ``r``, an inf among these
  makes ``old`` and ``new`` inf, and the factor is 1 where both are the same.
* ``r`` is a sum in a factor, a function or an exponent: only if the ranges of the inputs prove that no partial result
  makes an overflow or a division by 0 (``ranges.repair_range``); a partial sum may exceed the whole one by any factor.
* ``r`` is a sum in a factor or a function, with ``r = 0``: ``c = 1``, for old and new.  After the loop the accumulator
  is *finalised*: it is repaired from the last reference to ``r`` itself, unless it equals its own identity (otherwise
  an empty domain with ``r = 0`` would give 0 * inf).
* ``r`` is a maximum in factors that are functions whose results are positive and finite for every argument, also for
  the identity (``binade``): no reference is needed.  While ``r`` is the identity, the accumulator is its own.
* ``r`` is a maximum as a plain term under max or min (``x - r``): ``c = 0``, for old and new.  The accumulator's
  domain is a subset of the domain of ``r``, so it is empty where the domain of ``r`` is empty.

A condition that reads ``r`` has terms of its own (``extrema``).

A value may itself read ``select(r == identity, c, r)`` instead of ``r``, as ``split-k-update`` writes it.  Such a value
depends on the reference itself, so it is not finalised after the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nautilus.core.expr.conditions import constant_last
from nautilus.core.expr.nodes import (
    Const,
    Expr,
    Load,
    Op,
    Var,
    children,
    free_vars,
    identity,
    loads,
    rewrite,
    walk,
    with_children,
)
from nautilus.core.functions.intervals import Interval
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.ranges.repair_range import interval, partial_sums, unproved
from nautilus.scalar.analysis.repair import domains, extrema
from nautilus.scalar.analysis.repair.records import Refusal, Repair, Running, parts_of
from nautilus.scalar.analysis.symbolic import Lin, Prod, emit_difference, emit_ratio, linear_form, op, product_form

_TINY = 2.0**-127  # a ratio of two such factors, where the larger one is above, may be 0, as it is over the reals


@dataclass(frozen=True, slots=True)
class _Parts:
    """An expression separated into ``x`` (None: the neutral element) and the normal form ``g`` of the rest."""

    x: Expr | None
    g: Prod | Lin


class _NotSeparable(Exception):
    """The expression is not separable; the message gives the reason."""


def _is_running(e: Expr) -> bool:
    return any(isinstance(n, Var) and n.name.startswith("r") for n in walk(e))


def _is_element(e: Expr) -> bool:
    return any(isinstance(n, Var) and n.name.startswith("x") for n in walk(e))


def _invariant(e: Expr) -> bool:
    return not _is_running(e) and not _is_element(e)


def reference_of(r: Expr, combiner: str, value: float) -> Op:
    """``select(r == identity, value, r)``: the reference of ``r``, which is never the identity."""
    return Op("select", (Op("eq", (r, identity(combiner, r.dtype)), DType.BOOL), Const(value, r.dtype), r), r.dtype)


class Abstraction:
    """Replaces maximal sub-expressions without ``r`` by symbols ``x`` (over reduction axes) or ``c`` (invariant).

    ``read`` collects, for each running value, the constants of the references that are read (None: the value itself).
    """

    def __init__(self, running: Sequence[Running], reduced: frozenset[str]) -> None:
        self._running = {r.load: k for k, r in enumerate(running)}
        self._ops = [r.op for r in running]
        self._reduced = reduced
        self.symbols: dict[Expr, Var] = {}
        self.read: list[set[float | None]] = [set() for _ in running]

    def __call__(self, e: Expr) -> Expr:
        """``e`` with symbols for running values and for the largest parts without them."""
        match e:
            case Load() if e in self._running:
                self.read[self._running[e]].add(None)
                return Var(f"r{self._running[e]}", e.dtype)
            case Op(op="select", args=(_, Const(value=value), Load() as r)) if r in self._running:
                k = self._running[r]
                if e == reference_of(r, self._ops[k], float(value)):
                    self.read[k].add(float(value))
                    return Var(f"r{k}", r.dtype)
        if isinstance(e, Const):
            return e
        if not any(isinstance(n, Load) and n in self._running for n in walk(e)):
            return self._symbol(e)
        return with_children(e, tuple(self(c) for c in children(e)))

    def _symbol(self, e: Expr) -> Var:
        e = constant_last(e)
        if e not in self.symbols:
            kind = "x" if free_vars(e) & self._reduced else "c"
            k = sum(v.name[0] == kind for v in self.symbols.values())
            self.symbols[e] = Var(f"{kind}{k}", e.dtype)
        return self.symbols[e]


def derive(
    value: Expr, guard: tuple[Expr, ...], combiner: str, running: Sequence[Running], reduced: frozenset[str]
) -> Repair | Refusal:
    """The repair term of an accumulator of ``value`` where ``guard`` holds, over the axes ``reduced``."""
    if any(r.load in loads(c) for r in running for c in guard):
        return extrema.derive(value, guard, combiner, running, reduced)
    abstract = Abstraction(running, reduced)
    f = abstract(value)
    read = [set(a) for a in abstract.read]
    bad = next((r for r in running if not r.load.dtype.is_float or r.op not in ("sum", "max", "min")), None)
    if bad is not None:
        return Refusal(f"{bad.load.buffer} is a {bad.op} of {bad.load.dtype}")
    try:
        mode, parts = _separate(f, combiner)
        running = [r.over(guard) for r in running]
        elements = [abstract(r.value) for r in running]
        needed = _with_read(_references(parts, elements, guard, running), read, running)
        _check_range(parts, elements, abstract, running)
        if combiner != "sum" and mode == "scale" and 0.0 in needed.references:
            raise _NotSeparable(f"a factor of 0 does not keep the identity of {combiner}")
    except _NotSeparable as e:
        return Refusal(str(e))
    factor = _factor(parts, len(running), running)
    bounds = [r for r, c in zip(running, needed.references, strict=True) if c == 0.0]
    if factor is not None and any(domains.sees_more(r, guard, reduced) for r in bounds):
        factor = domains.where_changed(factor, Const(1.0 if mode == "scale" else 0.0, factor.dtype), running)
    a = Var("a", value.dtype)
    t: Expr = a if factor is None else op("mul" if mode == "scale" else "add", a, factor)
    symbols = tuple((v.name, e) for e, v in abstract.symbols.items())
    conditions = _conditions(mode, parts, needed)
    return Repair(
        mode="none" if factor is None else mode,
        combiner=combiner,
        f=f,
        factor=factor,
        t=t,
        symbols=symbols,
        references=needed.references,
        raw_old=needed.raw,
        finite=needed.finite,
        finalise=needed.finalise,
        conditions=conditions,
    )


def _separate(f: Expr, combiner: str) -> tuple[str, _Parts]:
    if combiner == "sum":
        return "scale", _product_split(f)
    if combiner in ("max", "min"):
        try:
            return "shift", _sum_split(f)
        except _NotSeparable:
            parts = _product_split(f)
            if isinstance(parts.g, Prod) and parts.g.positive:
                return "scale", parts  # _references ensures that the factor is not 0
            raise _NotSeparable(f"the factor under {combiner} is not certainly positive") from None
    raise _NotSeparable(f"no repair is known to distribute over {combiner}")


def _product_split(e: Expr) -> _Parts:
    """``e`` separated as ``x * g``."""
    if not _is_running(e):
        return _Parts(e, Prod())
    if not _is_element(e):
        g = product_form(e, _invariant)
        assert g is not None
        return _Parts(None, g)
    match e:
        case Op(op="mul", args=(a, b)):
            p, q = _product_split(a), _product_split(b)
            return _Parts(_join("mul", p.x, q.x), _prod(p) * _prod(q))
        case Op(op="div", args=(a, b)):
            p, q = _product_split(a), _product_split(b)
            bottom = q.x if q.x is None or p.x is not None else op("rcp", q.x)
            return _Parts(bottom if p.x is None else _join("div", p.x, q.x), _prod(p) * _prod(q).power(-1))
        case Op(op="rcp" | "neg" as name, args=(a,)):
            p = _product_split(a)
            return _Parts(None if p.x is None else op(name, p.x), _prod(p).power(-1 if name == "rcp" else 1))
        case Op(op="exp" | "exp2" as name, args=(a,)):
            s = _sum_split(a)
            assert isinstance(s.g, Lin)
            return _Parts(None if s.x is None else op(name, s.x), Prod((), ((name, s.g),)))
        case Op(op="pow", args=(a, Const(value=n))) if float(n).is_integer():
            p = _product_split(a)
            return _Parts(None if p.x is None else op("pow", p.x, e.args[1]), _prod(p).power(int(n)))
        case Op(op="add" | "sub" | "max" | "min" as name, args=(a, b)):
            return _same_factor(e, name, _product_split(a), _product_split(b))
        case Op(op="select", args=(c, a, b)) if not _is_running(c):
            return _select(e, c, a, b)
        case Op(op="narrow", args=(a,)):
            return _product_split(a)
        case Op(op="cast", args=(a,)) if _widens(e):
            return _product_split(a)
    raise _NotSeparable(_not_separable(e))


def _sum_split(e: Expr) -> _Parts:
    """``e`` separated as ``x + g``."""
    if not _is_running(e):
        return _Parts(e, Lin())
    if not _is_element(e):
        return _Parts(None, linear_form(e, _invariant))
    match e:
        case Op(op="add" | "sub" as name, args=(a, b)):
            p, q = _sum_split(a), _sum_split(b)
            right = q.x if q.x is None or name == "add" or p.x is not None else op("neg", q.x)
            x = right if p.x is None else _join(name, p.x, q.x)
            return _Parts(x, _lin(p) + _lin(q).times(1.0 if name == "add" else -1.0))
        case Op(op="neg", args=(a,)):
            p = _sum_split(a)
            return _Parts(None if p.x is None else op("neg", p.x), _lin(p).times(-1.0))
        case Op(op="mul", args=(a, b)) if _invariant(a) or _invariant(b):
            scale, rest = (a, b) if _invariant(a) else (b, a)
            p = _sum_split(rest)
            n = float(scale.value) if isinstance(scale, Const) else None
            g = _lin(p).scaled(scale) if n is None else _lin(p).times(n)
            return _Parts(None if p.x is None else op("mul", p.x, scale), g)
        case Op(op="div", args=(a, Const(value=v) as d)) if v:
            p = _sum_split(a)
            return _Parts(None if p.x is None else op("div", p.x, d), _lin(p).times(1.0 / float(v)))
        case Op(op="max" | "min" as name, args=(a, b)):
            p, q = _sum_split(a), _sum_split(b)
            if _lin(p).key() == _lin(q).key() and p.x is not None and q.x is not None:
                return _Parts(op(name, p.x, q.x), p.g)
        case Op(op="narrow", args=(a,)):
            return _sum_split(a)
        case Op(op="cast", args=(a,)) if _widens(e):
            return _sum_split(a)
    raise _NotSeparable(_not_separable(e))


def _not_separable(e: Expr) -> str:
    what = e.op if isinstance(e, Op) else type(e).__name__.lower()
    return f"'{what}' combines the running value and the element in a form that is not separable"


def _same_factor(e: Expr, name: str, p: _Parts, q: _Parts) -> _Parts:
    if _prod(p).key() != _prod(q).key() or p.x is None or q.x is None:
        raise _NotSeparable(_not_separable(e))
    if name in ("max", "min") and not _prod(p).positive:
        raise _NotSeparable(_not_separable(e))
    return _Parts(op(name, p.x, q.x), p.g)


def _select(e: Expr, c: Expr, a: Expr, b: Expr) -> _Parts:
    zero = Const(0.0, e.dtype)
    if zero in (a, b):
        p = _product_split(b if a == zero else a)
        x = Const(1.0, e.dtype) if p.x is None else p.x
        return _Parts(Op("select", (c, zero, x) if a == zero else (c, x, zero), e.dtype), p.g)
    p, q = _product_split(a), _product_split(b)
    if _prod(p).key() != _prod(q).key() or p.x is None or q.x is None:
        raise _NotSeparable(_not_separable(e))
    return _Parts(Op("select", (c, p.x, q.x), e.dtype), p.g)


def _widens(e: Op) -> bool:
    """Whether cast ``e`` is exact, or reverses a permitted ``narrow``."""
    a = e.args[0].dtype
    return a.is_float and e.dtype.is_float and e.dtype.bits >= a.bits and e.dtype.mantissa >= a.mantissa


def _join(name: str, a: Expr | None, b: Expr | None) -> Expr | None:
    if a is None or b is None:
        return b if a is None else a
    return op(name, a, b)


def _prod(p: _Parts) -> Prod:
    assert isinstance(p.g, Prod)
    return p.g


def _lin(p: _Parts) -> Lin:
    assert isinstance(p.g, Lin)
    return p.g


@dataclass(frozen=True, slots=True)
class _References:
    references: tuple[float | None, ...]
    raw: tuple[bool, ...]
    finite: tuple[bool, ...]
    finalise: bool


def _with_read(needed: _References, read: list[set[float | None]], running: Sequence[Running]) -> _References:
    """``needed`` for a value that itself reads references, which must be those of the repair."""
    finite: list[bool] = []
    for r, reference, found in zip(running, needed.references, read, strict=True):
        if found - {None} and found != {reference}:
            raise _NotSeparable(f"the value reads a reference of {r.load.buffer} that differs from that of the repair")
        finite.append(bool(found - {None}))
    late = [ref == 1.0 and not f for ref, f in zip(needed.references, finite, strict=True)]
    return replace(needed, finite=tuple(finite), finalise=any(late))


def _references(
    parts: _Parts, elements: list[Expr], guard: tuple[Expr, ...], running: Sequence[Running]
) -> _References:
    """The references that replace identities (module docstring). Raises _NotSeparable where none is proved."""
    refs: list[float | None] = []
    raw: list[bool] = []
    finalise = False
    for k, r in enumerate(running):
        symbol = Var(f"r{k}", r.load.dtype)
        used = _uses(parts.g, symbol, r.op)
        if not used:
            refs.append(None)
            raw.append(True)
        elif r.op == "sum":
            plain = isinstance(parts.g, Lin) and used == {"plain"}
            in_exponent = isinstance(parts.g, Prod) and used == {"exponent"}
            refs.append(None if plain or in_exponent else 1.0)
            raw.append(plain or in_exponent)
            finalise |= refs[-1] is not None
        else:
            if isinstance(parts.g, Prod) and used == {"function"} and _positive_functions(parts.g, symbol):
                refs.append(None)
                raw.append(True)
                continue
            implied = set(parts_of(r.guard)) <= set(parts_of(guard))
            covered = used == {"exponent"} and implied
            if isinstance(parts.g, Lin) and used == {"plain"} and implied:
                raw.append(False)
            elif covered and _bounded(parts, symbol, elements[k], r.op):
                raw.append(True)
            else:
                raise _NotSeparable(f"{r.load.buffer} is not proved to bound the exponent that subtracts it")
            refs.append(0.0)
    return _References(tuple(refs), tuple(raw), (False,) * len(refs), finalise)


def _check_range(parts: _Parts, elements: list[Expr], abstract: Abstraction, running: Sequence[Running]) -> None:
    """Raise _NotSeparable unless every function of a running sum is proved finite (``ranges.repair_range``)."""
    known = {v.name: interval(e, {}) for e, v in abstract.symbols.items()}
    sums: dict[str, Interval] = {}
    for k, r in enumerate(running):
        symbol = Var(f"r{k}", r.load.dtype)
        used = _uses(parts.g, symbol, r.op)
        if r.op == "sum" and used and not (isinstance(parts.g, Lin) and used == {"plain"}):
            sums[symbol.name] = partial_sums(elements[k], known)
    reason = unproved(parts.x, parts.g, sums, known) if sums else ""
    if reason:
        raise _NotSeparable(reason)


def _uses(g: Prod | Lin, symbol: Var, combiner: str) -> set[str]:
    """The kinds of occurrence of ``symbol``: plain (a term of a sum), exponent, or function (all others)."""
    found: set[str] = set()
    lins = [("plain", g)] if isinstance(g, Lin) else [("exponent", e) for _, e in g.exponents]
    for kind, lin in lins:
        for (atom, _), _n in lin.terms:
            if atom == symbol or (kind == "exponent" and _bounds(atom, symbol, combiner)):
                found.add(kind)
            elif any(n == symbol for n in walk(atom)):
                found.add("function")
    if isinstance(g, Prod) and any(n == symbol for a, _ in g.powers for n in walk(a)):
        found.add("function")
    return found


def _bounds(atom: Expr, symbol: Var, combiner: str) -> bool:
    """Whether ``atom`` bounds what the extremum ``symbol`` bounds: it is that, or ``max(symbol, c)`` of a maximum."""
    if atom == symbol or not (isinstance(atom, Op) and atom.op == combiner and combiner in ("max", "min")):
        return atom == symbol
    mine = [a for a in atom.args if not _invariant(a)]
    return len(mine) == 1 and _bounds(mine[0], symbol, combiner)


def _positive_functions(g: Prod, symbol: Var) -> bool:
    """Whether every factor with ``symbol`` is a function of it with positive, finite results for every argument.

    A function in an exponent, as in ``exp(x - ceil(r))``, is infinite at the identity, and so is the exponent.
    """
    exponents = (atom for _, lin in g.exponents for (atom, _), _n in lin.terms)
    if any(n == symbol for atom in exponents for n in walk(atom)):
        return False
    for atom, _ in g.powers:
        if any(n == symbol for n in walk(atom)):
            lo, hi = interval(atom, {})
            if not (isinstance(atom, Op) and atom.args == (symbol,) and lo >= _TINY and hi <= 1 / _TINY):
                return False
    return True


def _bounded(parts: _Parts, symbol: Var, element: Expr, combiner: str) -> bool:
    """Whether every exponential factor with ``symbol`` is ``exp(c * (element - b))`` with a bound ``b``, at most 1."""
    assert isinstance(parts.g, Prod)
    want = linear_form(element, _invariant)
    for _, lin in parts.g.exponents:
        mine = [(scale, n) for (atom, scale), n in lin.terms if any(x == symbol for x in walk(atom))]
        if not mine:
            continue
        ((scale, n),) = mine if len(mine) == 1 else (("several", 0.0),)
        if scale is not None or (n < 0) != (combiner == "max") or not _has_exponent(parts.x, want.times(-n)):
            return False
    return True


def _has_exponent(x: Expr | None, want: Lin) -> bool:
    """Whether a factor of ``x`` (of each term of it) is an exponential of exactly ``want``."""
    match x:
        case Op(op="mul", args=(a, b)):
            return _has_exponent(a, want) or _has_exponent(b, want)
        case Op(op="add" | "sub" | "max" | "min", args=(a, b)):
            return _has_exponent(a, want) and _has_exponent(b, want)
        case Op(op="div", args=(a, _)) | Op(op="select", args=(_, a, Const())) | Op(op="neg", args=(a,)):
            return _has_exponent(a, want)
        case Op(op="select", args=(_, Const(), a)):
            return _has_exponent(a, want)
        case Op(op="exp" | "exp2", args=(a,)):
            return _close(linear_form(a, _invariant), want)
    return False


def _close(a: Lin, b: Lin) -> bool:
    x, y = dict(a.terms), dict(b.terms)
    return x.keys() == y.keys() and all(abs(x[t] - y[t]) <= 1e-12 * abs(x[t]) for t in x)


def _factor(parts: _Parts, count: int, running: Sequence[Running]) -> Expr | None:
    def at(when: str):  # type: ignore[no-untyped-def]
        env: dict[str, Expr] = {f"r{k}": Var(f"{when}{k}", running[k].load.dtype) for k in range(count)}
        return lambda e: rewrite(e, lambda n: env.get(n.name) if isinstance(n, Var) else None)

    if isinstance(parts.g, Lin):
        return emit_difference(parts.g, at("old"), at("new"))
    return emit_ratio(parts.g, at("old"), at("new"))


def _conditions(mode: str, parts: _Parts, needed: _References) -> tuple[str, ...]:
    out = ["f(x, new) = t(f(x, old), old, new)", f"t distributes: it is a {mode}"]
    if isinstance(parts.g, Prod) and parts.g.powers:
        out.append("G(old) is finite and not zero: references replace identities")
    if any(v == 0.0 for v in needed.references):
        out.append("exponents are at most zero: the running value bounds the element")
    if needed.finalise:
        out.append("finalised after the loop from the last reference to the final value")
    return tuple(out)
