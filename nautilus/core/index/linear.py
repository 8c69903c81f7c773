"""Integer expressions as linear combinations of atoms, and the division of linear combinations by a constant.

A :class:`Linear` is ``const + sum coeff * atom``.  An atom is any integer expression that is not a
sum, a difference or a product with a constant: a variable, a param, ``x // n``, ``x % n``, ``min``,
or a load, for example.  Coefficients are Python integers, so sizes of 2^40 and beyond are exact.  Index
arithmetic is assumed not to overflow its type, because the frontend bounds every size; the elements of tensors may
(:mod:`nautilus.core.index.intervals`).

All rules for division follow from two facts about floor division, for n > 0 and any integers::

    (n * q + r) // n == q + r // n                (n * q + r) % n == r % n
    (g * a + b) // (g * m) == a // m  and  (g * a + b) % (g * m) == g * (a % m) + b      if 0 <= b < g
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import gcd
from typing import TypeAlias

from nautilus.core.expr.nodes import Const, Expr, Op, Param, Ref, Var, free_vars
from nautilus.core.records import dataclass
from nautilus.core.text.expressions import format_expr
from nautilus.core.types import DType, integer_limits

Interval: TypeAlias = tuple[int | None, int | None]
Bounder: TypeAlias = "Callable[[Linear], Interval]"
Exact: TypeAlias = "Callable[[Linear], bool]"  # whether a combination does not wrap in the type of the expression


class _Hashed:
    """Has a place for the hash, which is computed once."""

    __slots__ = ("_hash",)
    _hash: int


@dataclass(frozen=True, slots=True)
class Linear(_Hashed):
    """``const + sum(coeff * atom)``; no coefficient is 0. Do not mutate ``terms``."""

    terms: Mapping[Expr, int]
    const: int = 0

    def __add__(self, other: Linear) -> Linear:
        return combine(self, other, 1)

    def __sub__(self, other: Linear) -> Linear:
        return combine(self, other, -1)

    def scale(self, k: int) -> Linear:
        """Every coefficient times ``k``."""
        return Linear({a: c * k for a, c in self.terms.items()}, self.const * k) if k else ZERO

    def shift(self, k: int) -> Linear:
        """The form plus the constant ``k``."""
        return Linear(self.terms, self.const + k)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            found = hash((self.const, frozenset(self.terms.items())))
            object.__setattr__(self, "_hash", found)
            return found

    def slope(self, var: str) -> int:
        """The coefficient of the variable ``var`` itself, not of an atom around it."""
        return sum(c for a, c in self.terms.items() if isinstance(a, Var) and a.name == var)

    def without(self, atom: Expr) -> Linear:
        """This combination without the term of ``atom``."""
        return Linear({a: c for a, c in self.terms.items() if a != atom}, self.const)

    def coeff(self, name: str) -> int:
        """The coefficient of the variable, param or value called ``name``."""
        named = (c for a, c in self.terms.items() if isinstance(a, Var | Param | Ref) and a.name == name)
        return next(named, 0)

    def interval(self, of: Callable[[Expr], Interval]) -> Interval:
        """The range of the combination, where ``of`` gives that of an atom; None where unknown."""
        lo: int | None = self.const
        hi: int | None = self.const
        for atom, c in self.terms.items():
            a, b = of(atom)
            if c < 0:
                a, b = b, a
            lo = None if lo is None or a is None else lo + c * a
            hi = None if hi is None or b is None else hi + c * b
        return lo, hi

    def single(self) -> Expr | None:
        """The atom, where this is one atom with coefficient 1 and no constant."""
        if self.const or len(self.terms) != 1:
            return None
        ((atom, c),) = self.terms.items()
        return atom if c == 1 else None


ZERO = Linear({}, 0)


def combine(a: Linear, b: Linear, k: int) -> Linear:
    """``a + k * b``."""
    terms = dict(a.terms)
    for atom, c in b.terms.items():
        total = terms.get(atom, 0) + k * c
        if total:
            terms[atom] = total
        else:
            terms.pop(atom, None)
    return Linear(terms, a.const + k * b.const)


def constant(k: int) -> Linear:
    """``k`` alone."""
    return Linear({}, k)


def atom(e: Expr) -> Linear:
    """``e`` alone, whatever is inside it."""
    return Linear({e: 1})


def linear(e: Expr, other: Callable[[Expr], Linear] = atom) -> Linear:
    """``e`` as a linear combination; ``other`` tells what the parts that are not linear stand for."""
    if isinstance(e, Op) and e.op in _LINEAR:
        if other is not atom:
            return _linear(e, other)
        kept: Linear | None = getattr(e, "_linear", None)
        if kept is None:
            kept = _linear(e, atom)
            if e not in kept.terms:  # else it would hold itself
                object.__setattr__(e, "_linear", kept)
        return kept
    return constant(int(e.value)) if isinstance(e, Const) else other(e)


_LINEAR = frozenset({"add", "sub", "neg", "mul"})


def _linear(e: Op, other: Callable[[Expr], Linear]) -> Linear:
    match e.op:
        case "add":
            return combine(linear(e.args[0], other), linear(e.args[1], other), 1)
        case "sub":
            return combine(linear(e.args[0], other), linear(e.args[1], other), -1)
        case "neg":
            return linear(e.args[0], other).scale(-1)
        case "mul":
            x, y = linear(e.args[0], other), linear(e.args[1], other)
            if not y.terms:
                return x.scale(y.const)
            if not x.terms:
                return y.scale(x.const)
    return other(e)


def affine(e: Expr) -> Linear | None:
    """``e`` as const + sum of coeff * (variable, param or value), or None where it is not that."""
    x = linear(e)
    return x if all(isinstance(a, Var | Param | Ref) for a in x.terms) else None


def linear_in(e: Expr, var: str) -> tuple[int, Expr] | None:
    """``(c, rest)`` with ``e == c * var + rest`` and ``rest`` free of ``var``, or None."""
    x = linear(e)
    if any(not isinstance(a, Var) and mentions(a, var) for a in x.terms):
        return None
    rest = Linear({a: c for a, c in x.terms.items() if not (isinstance(a, Var) and a.name == var)}, x.const)
    own = [c for a, c in x.terms.items() if isinstance(a, Var) and a.name == var]
    return (own[0] if own else 0), build(rest, e.dtype)


def moves_with(e: Expr, var: str) -> bool:
    """Whether ``e`` is ``var`` plus what does not depend on it, so that neighbours along ``var`` are neighbours."""
    form = linear_in(e, var)
    return form is not None and form[0] == 1


def mentions(e: Expr, var: str) -> bool:
    """Whether the variable ``var`` occurs in ``e``."""
    return var in free_vars(e)


def sides(d: Linear) -> tuple[Linear, Linear]:
    """``left <= right`` with positive coefficients for ``d >= 0``, up to the place of the constant."""
    left = Linear({a: -c for a, c in d.terms.items() if c < 0}, max(-d.const, 0))
    return left, d + left


def linear_parts(e: Expr) -> Iterator[Linear]:
    """``e`` as a combination, and those in its atoms, such as ``x + r`` in ``max(x + r - 1, 0)`` or in a remainder."""
    form = linear(e)
    yield form
    for inner in (x for a in form.terms if isinstance(a, Op) for x in a.args):
        yield from linear_parts(inner)


def divided(e: Expr, *, expand_mod: bool = False) -> Linear:
    """``linear``, seen through widening casts to i32 or i64 and through ``//`` by a constant, term by term.

    With ``expand_mod`` also through ``%`` by a constant: ``x % n`` is ``x - n * (x // n)``.
    """

    def see(e: Expr) -> Linear:
        return linear(e, other)

    def other(e: Expr) -> Linear:
        match e:
            case Op(op="cast", args=(a,), dtype=d) if a.dtype.is_int and max(32, a.dtype.bits) <= d.bits and d.is_int:
                return see(a)
            case Op(op="floordiv", args=(a, Const(value=n))) if n > 0:
                return divide(see(a), int(n), e.dtype)
            case Op(op="mod", args=(a, Const(value=n))) if n > 0 and expand_mod:
                whole = see(a)
                return whole - divide(whole, int(n), e.dtype).scale(int(n))
        return atom(e)

    return see(e)


def excess(comparison: Expr) -> Linear | None:
    """The smaller side less the larger one of ``comparison``, one of integers that holds where this is at most 0, or
    where it is 0 if it is an equation; None for anything else."""
    match comparison:
        case Op(op="le" | "lt" | "ge" | "gt" | "eq" as op, args=args) if all(a.dtype.is_int for a in args):
            low, high = args[::-1] if op in ("ge", "gt") else args
            return (divided(low) - divided(high)).shift(1 if op in ("lt", "gt") else 0)
    return None


def first_positions(comparison: Expr, name: str) -> int | None:
    """The number of first positions of variable ``name`` at which ``comparison``, of nothing else, holds; or None."""
    found = excess(comparison)
    if found is None or found.shift(-found.const).single() != Var(name):
        return None
    return None if isinstance(comparison, Op) and comparison.op == "eq" else 1 - found.const


def divide(x: Linear, n: int, dtype: DType) -> Linear:
    """``x // n`` for n > 0 and unknown atoms: multiples of ``n`` leave the division."""
    q, r = split(x, n)
    if not r.terms:
        return q
    return q + atom(Op("floordiv", (build(r, dtype), Const(n, dtype)), dtype))


def build(x: Linear, dtype: DType) -> Expr:
    """The canonical expression of ``x``: large coefficients first, then names, negatives, the constant."""
    ordered = list(x.terms.items())
    if len(ordered) > 1:
        ordered.sort(key=lambda t: (t[1] < 0, -abs(t[1]), format_expr(t[0])))
    total: Expr | None = None
    for atom, c in ordered:
        if total is None:
            total = _times(atom, c, dtype)
        elif c > 0:
            total = Op("add", (total, _times(atom, c, dtype)), dtype)
        else:
            total = Op("sub", (total, _times(atom, -c, dtype)), dtype)
    if total is None:
        return Const(x.const, dtype)
    if x.const == 0:
        return total
    return Op("add" if x.const > 0 else "sub", (total, Const(abs(x.const), dtype)), dtype)


def _times(atom: Expr, c: int, dtype: DType) -> Expr:
    if atom.dtype is not dtype:
        atom = Op("cast", (atom,), dtype)
    if c == 1:
        return atom
    if c == -1:
        return Op("neg", (atom,), dtype)
    return Op("mul", (atom, Const(c, dtype)), dtype)


def _inside(x: Linear, n: int, bound: Bounder) -> int | None:
    """k such that k * n <= x < (k + 1) * n always, if there is one."""
    lo, hi = bound(x)
    if lo is None or hi is None or lo // n != hi // n:
        return None
    return lo // n


def split(x: Linear, n: int) -> tuple[Linear, Linear]:
    """``x == n * q + r``: terms divisible by ``n`` in q, the others in r, and 0 <= r.const < n."""
    q = {a: c // n for a, c in x.terms.items() if c % n == 0}
    r = {a: c for a, c in x.terms.items() if c % n}
    return Linear(q, x.const // n), Linear(r, x.const % n)


def _coarser(r: Linear, n: int, bound: Bounder) -> tuple[int, Linear, Linear] | None:
    """``r == g * a + b`` with g > 1 dividing n and 0 <= b < g always, the largest such g first."""
    grains = {gcd(n, c) for c in r.terms.values()}
    for g in sorted(grains - {1}, reverse=True):
        a, b = split(r, g)
        if a.terms and _inside(b, g, bound) == 0:
            return g, a, b
    return None


def floordiv(x: Linear, n: int, dtype: DType, bound: Bounder, exact: Exact) -> Linear:
    """``x // n`` for n > 0."""
    divisor = n
    q, r = split(x, n)
    while n > 1:
        k = _inside(r, n, bound)
        if k is not None:
            return q.shift(k)
        coarse = _coarser(r, n, bound)
        if coarse is not None:
            g, r, _ = coarse
            n //= g
            more, r = split(r, n)
            q = q + more
            continue
        inner = Linear(r.terms).single()
        if isinstance(inner, Op) and inner.op == "floordiv" and isinstance(inner.args[1], Const):
            m, y = int(inner.args[1].value), linear(inner.args[0])
            if m > 0 and n * m <= integer_limits(dtype)[1] and exact(y):
                r = y.shift(m * r.const)  # (y // m + c) // n == (y + m * c) // (m * n)
                n *= m
                more, r = split(r, n)
                q = q + more
                continue
        if not exact(r):  # a part of a sum may wrap where the sum does not
            return atom(Op("floordiv", (build(x, dtype), Const(divisor, dtype)), dtype))
        return q + atom(Op("floordiv", (build(r, dtype), Const(n, dtype)), dtype))
    return q + r


def mod(x: Linear, n: int, dtype: DType, bound: Bounder, exact: Exact) -> Linear:
    """``x % n`` for n > 0."""
    _, r = split(_forget_mods(x, n, exact), n)
    r = Linear({a: c for a, c in r.terms.items() if not isinstance(a, Param) or c * a.multiple % n}, r.const)
    if n == 1:
        return ZERO
    k = _inside(r, n, bound)
    if k is not None:
        return r.shift(-k * n)
    coarse = _coarser(r, n, bound)
    if coarse is not None and exact(coarse[1]):
        g, a, b = coarse
        return mod(a, n // g, dtype, bound, exact).scale(g) + b
    return atom(Op("mod", (build(r if exact(r) else x, dtype), Const(n, dtype)), dtype))


def _forget_mods(x: Linear, n: int, exact: Exact) -> Linear:
    """Replace ``c * (y % m)`` by ``c * y`` where n divides c * m (equal modulo n) and neither side wraps."""
    out = x
    for atom, c in x.terms.items():
        m = _constant_divisor(atom, "mod")
        if m is None or not isinstance(atom, Op) or (c * m) % n or not exact(linear(atom.args[0])):
            continue
        longer = combine(combine(out, Linear({atom: 1}), -c), _forget_mods(linear(atom.args[0]), n, exact), c)
        out = longer if exact(longer) else out
    return out


def _constant_divisor(e: Expr, op: str) -> int | None:
    """n, where ``e`` is ``x op n`` with a constant n > 0."""
    match e:
        case Op(op=name, args=(_, Const(value=value))) if name == op and value > 0:
            return int(value)
    return None


def recombine(x: Linear, dtype: DType) -> Linear:
    """``k*n*(y // n) + k*(y % n)`` is ``k*y``.

    ``k*y - k*n*(y // n)`` is ``k*(y % n)``, and ``k*y - k*(y % n)`` is ``k*n*(y // n)``.
    """
    if not any(isinstance(a, Op) and a.op in ("floordiv", "mod") for a in x.terms):
        return x
    for atom, c in list(x.terms.items()):
        if (n := _constant_divisor(atom, "mod")) is not None and isinstance(atom, Op):
            whole = linear(atom.args[0])
            if whole.terms and all(x.terms.get(a) == -c * t for a, t in whole.terms.items()):
                quotient = Linear({Op("floordiv", atom.args, dtype): -c * n})
                rest = combine(x, Linear({atom: 1}), -c)
                return recombine(combine(rest, whole, c) + quotient, dtype)
        n = _constant_divisor(atom, "floordiv")
        if n is None or c % n:
            continue
        assert isinstance(atom, Op)
        y = atom.args[0]
        k = c // n
        rest = combine(x, Linear({atom: 1}), -c)
        remainder = Op("mod", (y, atom.args[1]), dtype)
        if x.terms.get(remainder) == k:
            return recombine(combine(combine(rest, Linear({remainder: 1}), -k), linear(y), k), dtype)
        whole = linear(y)
        if whole.terms and all(x.terms.get(a) == -k * t for a, t in whole.terms.items()):
            return recombine(combine(combine(rest, whole, k), Linear({remainder: 1}), -k), dtype)
    return x


def paired_quotients(x: Linear, exact: Callable[[Linear, DType], bool]) -> tuple[Linear, int, int]:
    """``x`` less its differences of neighbouring quotients, and least and greatest value of those.

    ``(a + d) // n - a // n`` lies between ``d // n`` rounded down and up, whatever ``a`` is.
    """
    low = high = 0
    quotients = [a for a in x.terms if type(a) is Op and a.op == "floordiv" and type(a.args[1]) is Const]
    if len(quotients) < 2:
        return x, 0, 0
    for i, p in enumerate(quotients):
        for q in quotients[i + 1 :]:
            c, k = x.terms.get(p, 0), x.terms.get(q, 0)
            if p.args[1] != q.args[1] or c * k >= 0:
                continue
            a, b, n = linear(p.args[0]), linear(q.args[0]), linear(p.args[1]).const
            distance = a - b
            if distance.terms or n <= 0 or not (exact(a, p.dtype) and exact(b, q.dtype)):
                continue
            times = min(abs(c), abs(k)) * (1 if c > 0 else -1)
            ends = (times * (distance.const // n), times * -(-distance.const // n))
            low, high = low + min(ends), high + max(ends)
            x = x - Linear({p: times}) + Linear({q: times})
    return x, low, high
