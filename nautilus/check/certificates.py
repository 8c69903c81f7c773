"""The independent checker of certificates by random numbers and sympy; it shares no code with the passes.

:func:`check` checks the form of both sides where the rule defines it, then decides ``before == after`` where the
conditions hold: first on random points, where a counterexample is final, then symbolically, where a proof is final.
Reductions are instantiated with small extents; a load is an unknown number that depends on its indices.  All
computation is over the reals, so a permitted ``narrow`` is the identity.  Its rule admits it only for a factor that
meets a 16-bit or 8-bit operand.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any

import sympy

from nautilus.check.functions import MEANINGS
from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import COMBINERS, Const, Expr, Load, Op, Param, Reduce, Var, rewrite, walk

SAMPLES = 48
EXTENT = 3  # extent of an instantiated reduction axis
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Verdict:
    """``ok`` is False for a counterexample or a malformed certificate. ``how``: proved, tested, wrong."""

    ok: bool
    how: str
    detail: str = ""


def check(c: Certificate, seed: int = 0) -> Verdict:
    """The verdict on one certificate."""
    problem = _RULES.get(c.rule, _no_structure)(c)
    if problem:
        return Verdict(False, "wrong", problem)
    if c.rule == "inline":
        tried = [_compare(replace(c, before=b), seed) for b in _inlined(c)]
        return next((v for v in tried if v.ok), tried[0])
    return _compare(c, seed)


def _compare(c: Certificate, seed: int) -> Verdict:
    """Compare both sides on random points, then symbolically."""
    rng = random.Random(seed)
    tested = 0
    for _ in range(20 * SAMPLES):
        point = _SamplePoint(rng.getrandbits(62))
        try:
            if not all(bool(_value(k, {}, point)) for k in c.conditions):
                continue
            x, y = _value(c.before, {}, point), _value(c.after, {}, point)
        except (ArithmeticError, ValueError):
            continue  # one side is undefined at this point
        if not _same(x, y):
            return Verdict(False, "wrong", f"before = {x}, after = {y} at {point.show()}")
        tested += 1
        if tested == SAMPLES:
            break
    if tested == 0:
        return Verdict(False, "wrong", "no point satisfies the conditions")
    return Verdict(True, "proved") if _proves(c) else Verdict(True, "tested", f"{tested} points")


# -- the form of both sides by rule ------------------------------------------------------------------


def _substituted(e: Expr, env: Mapping[str, Expr]) -> Expr:
    return rewrite(e, lambda n: env.get(n.name) if isinstance(n, Var) else None)


def _at(e: Expr, prefix: str) -> Expr:
    """``e`` with ``r0..`` renamed to ``prefix0..``."""
    names = {n.name for n in walk(e) if isinstance(n, Var) and n.name[0] == "r" and n.name[1:].isdigit()}
    kinds = {n.name: n.dtype for n in walk(e) if isinstance(n, Var)}
    return _substituted(e, {n: Var(prefix + n[1:], kinds[n]) for n in names})


def _rolling_update(c: Certificate) -> str:
    parts = dict(c.bindings)
    if not {"f", "t"} <= parts.keys():
        return "a repair term needs the bindings f and t"
    f, t = parts["f"], parts["t"]
    if c.before != _at(f, "new") or c.after != _substituted(t, {"a": _at(f, "old")}):
        return "the two sides are not f(x, new) and t(f(x, old), old, new)"
    free = {n.name for n in walk(t) if isinstance(n, Var)}
    if any(n.startswith("x") for n in free) or any(isinstance(n, Load | Reduce) for n in walk(t)):
        return "t depends on a summed element"
    return ""


def _distribute(c: Certificate) -> str:
    parts = dict(c.bindings)
    if not {"t", "combined"} <= parts.keys():
        return "distribution needs the bindings t and combined"
    t, both = parts["t"], parts["combined"]
    if not isinstance(both, Op) or both.op not in {k.binary for k in COMBINERS.values()}:
        return "the combined value is not the result of a combiner"
    a, b = both.args
    want = Op(both.op, (_substituted(t, {"a": a}), _substituted(t, {"a": b})), both.dtype)
    if c.before != _substituted(t, {"a": both}) or c.after != want:
        return "the two sides are not t(a + b) and t(a) + t(b)"
    return ""


def _narrow(c: Certificate) -> str:
    """Check that one factor is rounded to a type no narrower than the 16-bit or 8-bit tensor that it meets."""
    met = [n for name, e in c.bindings if name == "meets" for n in _through_casts(e) if isinstance(n, Load)]
    if not met or not all(n.dtype.bits <= 16 for n in met):
        return "a narrowed factor must meet a 16-bit or 8-bit operand"
    kinds = [n.dtype for n in _through_casts(c.after) if isinstance(n, Op) and n.op == "narrow"]
    if len(kinds) != 1 or kinds[0].bits < met[0].dtype.bits:
        return "the factor is not rounded exactly once, or the type is narrower than that of the other factor"
    return ""


def _through_casts(e: Expr) -> Iterator[Expr]:
    yield e
    while isinstance(e, Op) and e.op in ("cast", "narrow", "select", "neg"):
        e = e.args[1] if e.op == "select" else e.args[0]
        yield e


def _inline(c: Certificate) -> str:
    """Check that ``before`` reads the buffer of every binding ``T[...]`` as often as there are bindings."""
    if not c.bindings:
        return "inlining needs the values of the replaced reads"
    for name in {n for n, _ in c.bindings}:
        reads = _reads(c.before, name.removesuffix("[...]"))
        if len(reads) != sum(n == name for n, _ in c.bindings):
            return f"{name} has {len(reads)} reads, which differs from the number of replacements"
    return ""


def _reads(e: Expr, buffer: str) -> tuple[Load, ...]:
    return tuple(dict.fromkeys(n for n in walk(e) if isinstance(n, Load) and n.buffer == buffer))


def _inlined(c: Certificate) -> Iterator[Expr]:
    """``before`` with its reads replaced by the bindings, in every order of bindings with equal names."""
    names = list(dict.fromkeys(n for n, _ in c.bindings))
    choices = []
    for name in names:
        reads = _reads(c.before, name.removesuffix("[...]"))
        values = [e for n, e in c.bindings if n == name]
        choices.append([dict(zip(reads, order, strict=True)) for order in permutations(values[:4])])
    for pick in product(*choices):
        table = {ld: e for part in pick for ld, e in part.items()}
        yield rewrite(c.before, lambda n, t=table: t.get(n) if isinstance(n, Load) else None)  # type: ignore[misc]


def _lazy_rescale(c: Certificate) -> str:
    """Check lazy rescaling: both sides are the value, with its inputs offset and offset as a whole, respectively."""
    parts = dict(c.bindings)
    value = parts.pop("value", None)
    if value is None or not parts:
        return "lazy rescaling needs the value and its offset inputs"
    readings = {n: parts[n.buffer] for n in walk(value) if isinstance(n, Load) and n.buffer in parts}
    if {n.buffer for n in readings} != parts.keys():
        return "an offset input does not occur in the value"
    if any(_offsets(to, n) is None for n, to in readings.items()) or _offsets(c.after, value) is None:
        return "an input is changed by more than a shift or a power of two"
    if c.before != rewrite(value, lambda n: readings.get(n) if isinstance(n, Load) else None):
        return "the left side is not the value with its inputs offset"
    return ""


def _offsets(moved: Expr, e: Expr) -> set[str] | None:
    """Names of the offsets d if ``moved`` is ``e + w d``, ``e * 2^(w d)`` or ``e``; otherwise None."""
    match moved:
        case _ if moved == e:
            return set()
        case Op(op="add", args=(a, by)) if a == e:
            pass
        case Op(op="mul", args=(a, Op(op="exp2", args=(by,)))) if a == e:
            pass
        case _:
            return None
    if any(not isinstance(n, Const | Op | Var) or (isinstance(n, Op) and n.op not in ("add", "mul")) for n in walk(by)):
        return None
    return {n.name for n in walk(by) if isinstance(n, Var)}


def _no_structure(_: Certificate) -> str:
    return ""


_RULES: Mapping[str, Callable[[Certificate], str]] = {
    "rolling-update": _rolling_update,
    "split-k-update": _rolling_update,
    "distribute": _distribute,
    "narrow": _narrow,
    "inline": _inline,
    "lazy-rescale": _lazy_rescale,
}


# -- numbers ----------------------------------------------------------------------------------------


class _SamplePoint:
    """Random values of all unknowns, determined by a seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.seen: dict[str, float] = {}

    def number(self, what: str, *, integer: bool, truth: bool = False) -> Any:
        if what not in self.seen:
            rng = random.Random(f"{self._seed}/{what}")
            small = rng.choice((0, 1, 2, 3)) if integer else rng.choice((rng.uniform(-3, 3), rng.uniform(0.1, 2)))
            self.seen[what] = rng.random() < 0.5 if truth else small
        return self.seen[what]

    def show(self) -> str:
        return ", ".join(f"{k} = {v:.4g}" for k, v in list(self.seen.items())[:8])


def _same(x: Any, y: Any) -> bool:
    if isinstance(x, bool) or isinstance(y, bool):
        return bool(x) == bool(y)
    if x != x or y != y:
        return bool(x != x and y != y)
    if x == y:
        return True
    return bool(abs(x - y) <= _TOLERANCE * max(1.0, abs(x), abs(y)))


def _axes(e: Reduce) -> Iterator[dict[str, int]]:
    sizes = [min(a.extent, EXTENT) if isinstance(a.extent, int) else EXTENT for a in e.axes]
    for index in product(*(range(n) for n in sizes)):
        yield {a.name: i for a, i in zip(e.axes, index, strict=True)}


def _value(e: Expr, env: Mapping[str, Any], at: _SamplePoint) -> Any:
    match e:
        case Const(value=v):
            return v
        case Var(name=name):
            if name in env:
                return env[name]
            return at.number(name, integer=e.dtype.is_int, truth=e.dtype.value == "bool")
        case Param(name=name):
            return at.number(name, integer=e.dtype.is_int)
        case Load(buffer=buffer, index=index):
            where = ", ".join(str(_value(i, env, at)) for i in index)
            return at.number(f"{buffer}[{where}]", integer=e.dtype.is_int, truth=e.dtype.value == "bool")
        case Reduce():
            total: Any = None
            for point in _axes(e):
                inner = {**env, **point}
                if e.cond is None or _value(e.cond, inner, at):
                    v = _value(e.body, inner, at)
                    total = v if total is None else MEANINGS[COMBINERS[e.op].binary].number(total, v)
            return _EMPTY[e.op] if total is None else total
        case Op(op="select", args=(c, a, b)):
            return _value(a, env, at) if _value(c, env, at) else _value(b, env, at)
        case Op(op="cast" | "narrow", args=(a,)):
            v = _value(a, env, at)
            return int(v) if e.dtype.is_int else v
        case Op(op=op, args=args):
            return MEANINGS[op].number(*(_value(a, env, at) for a in args))
    raise TypeError(f"a certificate cannot contain {type(e).__name__}")


_EMPTY = {"sum": 0, "prod": 1, "max": -math.inf, "min": math.inf, "any": False, "all": True}


# -- symbols ----------------------------------------------------------------------------------------


def _proves(c: Certificate) -> bool:
    """Whether sympy proves that ``before - after`` is zero; failure to prove it is no counterexample."""
    asked = dict.fromkeys(
        n.args[0] for side in (c.before, c.after) for n in walk(side) if isinstance(n, Op) and n.op == "select"
    )
    if len(asked) > 3:
        return False
    cases = product((True, False), repeat=len(asked))
    return all(_proves_case(c, dict(zip(asked, answers, strict=True))) for answers in cases)


def _proves_case(c: Certificate, answers: Mapping[Expr, bool]) -> bool:
    """Whether sympy proves one case of the conditions that the two sides select on, taken as independent."""

    def choose(n: Expr) -> Expr | None:
        if isinstance(n, Op) and n.op == "select" and n.args[0] in answers:
            return n.args[1] if answers[n.args[0]] else n.args[2]
        return None

    try:
        x, y = (_symbolic(rewrite(side, choose), {}) for side in (c.before, c.after))
        difference = sympy.simplify(sympy.expand(x - y))
        if difference == 0:
            return True
        # t(max(a, b)): both orders of a and b
        a, b, gap = sympy.Symbol("a", real=True), sympy.Symbol("b", real=True), sympy.Symbol("gap", positive=True)
        cases = ((x - y).subs(b, a + gap), (x - y).subs(a, b + gap))
        return all(sympy.simplify(d) == 0 for d in cases)
    except (TypeError, ValueError, NotImplementedError, AttributeError, KeyError):
        return False


def _symbolic(e: Expr, env: Mapping[str, Any]) -> Any:
    match e:
        case Const(value=v):
            return sympy.nsimplify(v, rational=True) if isinstance(v, float) and math.isfinite(v) else v
        case Var(name=name):
            return env.get(name, sympy.Symbol(name, real=True, integer=e.dtype.is_int or None))
        case Param(name=name):
            return sympy.Symbol(name, real=True)
        case Load(buffer=buffer, index=index):
            where = ",".join(str(_symbolic(i, env)) for i in index)
            return sympy.Symbol(f"{buffer}[{where}]", real=True)
        case Reduce(cond=None, op="sum" | "prod" | "max" | "min"):
            terms = [_symbolic(e.body, {**env, **p}) for p in _axes(e)]
            kind = {"sum": sympy.Add, "prod": sympy.Mul, "max": sympy.Max, "min": sympy.Min}[e.op]
            return kind(*terms)
        case Op(op="cast" | "narrow", args=(a,)) if not e.dtype.is_int:
            return _symbolic(a, env)
        case Op(op=op, args=args) if (meaning := MEANINGS[op].symbol) is not None:
            return meaning(*(_symbolic(a, env) for a in args))
    raise NotImplementedError
