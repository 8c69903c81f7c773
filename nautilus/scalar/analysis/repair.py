"""Repair terms, which convert an accumulation under an old reference to a new reference.

A reduction ``A = combine_j f(x_j, r)`` needs ``r``, itself a reduction over ``j``.  In one loop ``A`` uses a running
``r``; the repair term ``t`` satisfies, for every ``x``,

    f(x, new) = t(f(x, old), old, new)         and         t(a (+) b) = t(a) (+) t(b)

(Neptune, arXiv 2510.08726, section 4).  It is found by solving ``y = f(x, old)`` for ``x``, the
outermost sub-expressions free of ``r``: ``f`` is brought to ``X(x) * G(r)`` or ``X(x) + G(r)``, so
that ``X = y / G(old)`` (``y - G(old)``), and substituting gives

    t(y) = y * G(new)/G(old)     -- distributes over sum; over max and min where the ratio is positive
    t(y) = y + G(new)-G(old)     -- distributes over max and min

The normal form (``symbolic``) proves both equations.  Without one, the result is a :class:`Refusal` with the reason.

References.  ``old`` and ``new`` may be *any* values for which ``G`` is finite and not zero.  A running value can be its
identity, for which this fails; a *reference* replaces it: ``select(r == identity, c, r)``.

* ``r`` a maximum (minimum) that occurs as ``exp(c * (v - r))``, ``v`` the very element that it is
  the maximum of and the accumulator's guard at least as strict, so exponents are never positive:
  ``c = 0``.  With ``r = -inf`` every ``v`` so far was -inf or excluded, so under the reference 0
  each element was ``exp(-inf) = 0``: nothing but the identity was accumulated, and the repair from
  it, ``exp(-inf - new) = 0``, keeps it.  The accumulator is repaired *from* the raw old value (an old
  reference of 0 could overflow: exp(0 - new)).  At the end ``r = -inf`` leaves the identity, as an
  empty domain should.
* ``r`` a sum in a factor or a function, ``r = 0``: ``c = 1``, on both sides, and after the loop the
  accumulator is *finalised*: repaired from the last reference to ``r`` itself, unless it still is its
  own identity (an empty domain next to ``r = 0`` must not become 0 * inf).
* ``r`` a maximum as a plain term under max or min (``x - r``): ``c = 0`` on both sides; the accumulator's
  domain lies within that of ``r``, so it is empty where ``r`` is an identity of an empty domain.

A value may itself read ``select(r == identity, c, r)`` instead of ``r``, as ``split_k_update`` writes it.  It then
needs the reference itself, so nothing is finalised after the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nautilus.core.expr.nodes import (
    Const,
    Expr,
    Load,
    Op,
    Var,
    children,
    free_vars,
    identity,
    rewrite,
    walk,
    with_children,
)
from nautilus.core.types import DType
from nautilus.scalar.analysis.symbolic import Lin, Prod, emit_difference, emit_ratio, linear_form, op, product_form


@dataclass(frozen=True, slots=True)
class Running:
    """A running reduction: the load by which ``f`` reads it, its combiner, its element and its guard conjuncts."""

    load: Load
    op: str
    value: Expr
    guard: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why there is no proved repair term."""

    reason: str


@dataclass(frozen=True, slots=True)
class Repair:
    """A proved repair.

    ``mode`` is scale, shift or none.  ``f`` is over variables ``x0..``, ``c0..`` (invariant) and
    ``r0..``; ``factor`` over ``c``, ``old0..`` and ``new0..``; ``t`` over those and ``a``.  ``symbols`` gives
    what ``x`` and ``c`` stand for.  ``references[k]`` is the value that stands in for the identity of
    ``r_k`` (None: not needed); ``raw_old[k]``: repaired from the running value itself; ``finite[k]``: ``f`` asks
    for the reference of ``r_k``, not for ``r_k`` itself.
    """

    mode: str
    combiner: str
    f: Expr
    factor: Expr | None
    t: Expr
    symbols: tuple[tuple[str, Expr], ...]
    references: tuple[float | None, ...]
    raw_old: tuple[bool, ...]
    finite: tuple[bool, ...]
    finalise: bool
    conditions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Parts:
    """``x`` (None: neutral) and the normal form of the rest."""

    x: Expr | None
    g: Prod | Lin


class _NoSplit(Exception):
    """Internal: the expression does not separate; the message says where."""


def _is_running(e: Expr) -> bool:
    return any(isinstance(n, Var) and n.name.startswith("r") for n in walk(e))


def _is_element(e: Expr) -> bool:
    return any(isinstance(n, Var) and n.name.startswith("x") for n in walk(e))


def _invariant(e: Expr) -> bool:
    return not _is_running(e) and not _is_element(e)


def stand_in(r: Expr, combiner: str, value: float) -> Op:
    """``select(r == identity, value, r)``: a reference of ``r`` that is never its identity."""
    return Op("select", (Op("eq", (r, identity(combiner, r.dtype)), DType.BOOL), Const(value, r.dtype), r), r.dtype)


class Abstraction:
    """Replaces maximal r-free sub-expressions by ``x`` (walked) or ``c`` (invariant) symbols.

    ``read`` collects, for each running value, which references stand in for it (None: it is read itself).
    """

    def __init__(self, running: Sequence[Running], walked: frozenset[str]) -> None:
        self._running = {r.load: k for k, r in enumerate(running)}
        self._ops = [r.op for r in running]
        self._walked = walked
        self.symbols: dict[Expr, Var] = {}
        self.read: list[set[float | None]] = [set() for _ in running]

    def __call__(self, e: Expr) -> Expr:
        match e:
            case Load() if e in self._running:
                self.read[self._running[e]].add(None)
                return Var(f"r{self._running[e]}", e.dtype)
            case Op(op="select", args=(_, Const(value=value), Load() as r)) if r in self._running:
                k = self._running[r]
                if e == stand_in(r, self._ops[k], float(value)):
                    self.read[k].add(float(value))
                    return Var(f"r{k}", r.dtype)
        if isinstance(e, Const):
            return e
        if not any(isinstance(n, Load) and n in self._running for n in walk(e)):
            return self._symbol(e)
        return with_children(e, tuple(self(c) for c in children(e)))

    def _symbol(self, e: Expr) -> Var:
        if e not in self.symbols:
            kind = "x" if free_vars(e) & self._walked else "c"
            k = sum(v.name[0] == kind for v in self.symbols.values())
            self.symbols[e] = Var(f"{kind}{k}", e.dtype)
        return self.symbols[e]

    def restore(self, e: Expr) -> Expr:
        """``e`` with what its ``x`` and ``c`` symbols stand for."""
        back = {v.name: expr for expr, v in self.symbols.items()}
        return rewrite(e, lambda n: back.get(n.name) if isinstance(n, Var) else None)


def derive(
    value: Expr, guard: tuple[Expr, ...], combiner: str, running: Sequence[Running], walked: frozenset[str]
) -> Repair | Refusal:
    """The repair of an accumulator with element ``value`` where ``guard`` over axes ``walked``."""
    abstract = Abstraction(running, walked)
    f = abstract(value)
    asked = [set(a) for a in abstract.read]
    bad = next((r for r in running if not r.load.dtype.is_float or r.op not in ("sum", "max", "min")), None)
    if bad is not None:
        return Refusal(f"{bad.load.buffer} is a {bad.op} of {bad.load.dtype}")
    try:
        mode, parts = _separate(f, combiner)
        shape = _asked(_references(parts, [abstract(r.value) for r in running], guard, running), asked, running)
        if combiner != "sum" and mode == "scale" and 0.0 in shape.references:
            raise _NoSplit(f"a factor of 0 does not keep the identity of {combiner}")
    except _NoSplit as e:
        return Refusal(str(e))
    factor = _factor(parts, len(running), running)
    a = Var("a", value.dtype)
    t: Expr = a if factor is None else op("mul" if mode == "scale" else "add", a, factor)
    symbols = tuple((v.name, e) for e, v in abstract.symbols.items())
    conditions = _conditions(mode, parts, shape)
    return Repair(
        mode="none" if factor is None else mode,
        combiner=combiner,
        f=f,
        factor=factor,
        t=t,
        symbols=symbols,
        references=shape.references,
        raw_old=shape.raw,
        finite=shape.finite,
        finalise=shape.finalise,
        conditions=conditions,
    )


def _separate(f: Expr, combiner: str) -> tuple[str, _Parts]:
    if combiner == "sum":
        return "scale", _product_split(f)
    if combiner in ("max", "min"):
        try:
            return "shift", _sum_split(f)
        except _NoSplit:
            parts = _product_split(f)
            if isinstance(parts.g, Prod) and parts.g.positive:
                return "scale", parts  # _references sees to it that the factor is not 0 either
            raise _NoSplit(f"the factor under {combiner} is not certainly positive") from None
    raise _NoSplit(f"no repair is known to distribute over {combiner}")


def _product_split(e: Expr) -> _Parts:
    """``e = x * g``."""
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
            return _common(e, name, _product_split(a), _product_split(b))
        case Op(op="select", args=(c, a, b)) if not _is_running(c):
            return _select(e, c, a, b)
        case Op(op="narrow", args=(a,)):
            return _product_split(a)
        case Op(op="cast", args=(a,)) if _widens(e):
            return _product_split(a)
    raise _NoSplit(_stuck(e))


def _sum_split(e: Expr) -> _Parts:
    """``e = x + g``."""
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
    raise _NoSplit(_stuck(e))


def _stuck(e: Expr) -> str:
    what = e.op if isinstance(e, Op) else type(e).__name__.lower()
    return f"'{what}' mixes the running value and the element in a way that does not separate"


def _common(e: Expr, name: str, p: _Parts, q: _Parts) -> _Parts:
    if _prod(p).key() != _prod(q).key() or p.x is None or q.x is None:
        raise _NoSplit(_stuck(e))
    if name in ("max", "min") and not _prod(p).positive:
        raise _NoSplit(_stuck(e))
    return _Parts(op(name, p.x, q.x), p.g)


def _select(e: Expr, c: Expr, a: Expr, b: Expr) -> _Parts:
    zero = Const(0.0, e.dtype)
    if zero in (a, b):
        p = _product_split(b if a == zero else a)
        x = Const(1.0, e.dtype) if p.x is None else p.x
        return _Parts(Op("select", (c, zero, x) if a == zero else (c, x, zero), e.dtype), p.g)
    p, q = _product_split(a), _product_split(b)
    if _prod(p).key() != _prod(q).key() or p.x is None or q.x is None:
        raise _NoSplit(_stuck(e))
    return _Parts(Op("select", (c, p.x, q.x), e.dtype), p.g)


def _widens(e: Op) -> bool:
    """A cast that is exact, or undoes a permitted ``narrow``."""
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
class _Shape:
    references: tuple[float | None, ...]
    raw: tuple[bool, ...]
    finite: tuple[bool, ...]
    finalise: bool


def _asked(shape: _Shape, asked: list[set[float | None]], running: Sequence[Running]) -> _Shape:
    """``shape`` for a value that asks for references itself; they must be those that the repair needs."""
    finite: list[bool] = []
    for r, reference, found in zip(running, shape.references, asked, strict=True):
        if found - {None} and found != {reference}:
            raise _NoSplit(f"{r.load.buffer} is read under another reference than its repair needs")
        finite.append(bool(found - {None}))
    late = [ref == 1.0 and not f for ref, f in zip(shape.references, finite, strict=True)]
    return replace(shape, finite=tuple(finite), finalise=any(late))


def _references(parts: _Parts, elements: list[Expr], guard: tuple[Expr, ...], running: Sequence[Running]) -> _Shape:
    """What stands in for identities (module docstring). Raises _NoSplit where nothing provably can."""
    refs: list[float | None] = []
    raw: list[bool] = []
    finalise = False
    for k, r in enumerate(running):
        symbol = Var(f"r{k}", r.load.dtype)
        used = _uses(parts.g, symbol)
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
            covered = used == {"exponent"} and set(r.guard) <= set(guard)
            if isinstance(parts.g, Lin) and used == {"plain"} and set(r.guard) <= set(guard):
                raw.append(False)
            elif covered and _bounded(parts, symbol, elements[k], r.op):
                raw.append(True)
            else:
                raise _NoSplit(f"{r.load.buffer} does not provably bound the exponent that subtracts it")
            refs.append(0.0)
    return _Shape(tuple(refs), tuple(raw), (False,) * len(refs), finalise)


def _uses(g: Prod | Lin, symbol: Var) -> set[str]:
    """How ``symbol`` occurs: plain (a term of a sum), exponent, or function (anything else)."""
    found: set[str] = set()
    lins = [("plain", g)] if isinstance(g, Lin) else [("exponent", e) for _, e in g.exponents]
    for kind, lin in lins:
        for (atom, _), _n in lin.terms:
            if atom == symbol:
                found.add(kind)
            elif any(n == symbol for n in walk(atom)):
                found.add("function")
    if isinstance(g, Prod) and any(n == symbol for a, _ in g.powers for n in walk(a)):
        found.add("function")
    return found


def _bounded(parts: _Parts, symbol: Var, element: Expr, combiner: str) -> bool:
    """Whether every exponential factor with ``symbol`` is ``exp(c * (element - r))`` and at most 1."""
    assert isinstance(parts.g, Prod)
    want = linear_form(element, _invariant)
    for _, lin in parts.g.exponents:
        n = dict(lin.terms).get((symbol, None), 0.0)
        if any(atom == symbol and scale is not None for (atom, scale), _ in lin.terms):
            return False
        if n == 0.0:
            continue
        if (n < 0) != (combiner == "max") or not _has_exponent(parts.x, want.times(-n)):
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


def _conditions(mode: str, parts: _Parts, shape: _Shape) -> tuple[str, ...]:
    out = ["f(x, new) = t(f(x, old), old, new)", f"t distributes: it is a {mode}"]
    if isinstance(parts.g, Prod) and parts.g.powers:
        out.append("G(old) is finite and not zero: references stand in for identities")
    if any(v == 0.0 for v in shape.references):
        out.append("exponents are at most zero: the running value bounds the element")
    if shape.finalise:
        out.append("finalised after the loop from the last reference to the final value")
    return tuple(out)
