"""The inverse of a map between positions: variables as functions of the values of index expressions.

``inverse`` solves equations ``index[n] == value[n]`` for the variables in ``index``.  An equation is a linear
combination of atoms (:mod:`nautilus.core.index.linear`), and three rules solve it for its atoms:

* digits: atoms of which each coefficient is a multiple of the one before, and at least the values that the atoms before
  reach, as in ``64 * h + d``, are quotients and remainders of the value: ``h == v // 64`` and ``d == v % 64``;
* halves: ``a // n`` and ``a % n`` together are ``a``, and so with a remainder of ``a + c``; ``a // (n * m)`` and
  ``a // n % m`` together are ``a // n``;
* rotations: ``a % n``, where ``a`` has at most ``n`` values from ``lo`` on, gives ``a == lo + (v - lo) % n``; in
  ``(4 * b + c) % n``, where ``c`` has four values, ``b`` counts as ``b % (n // 4)``.

What is found holds at every position within the ranges, so different positions have different values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Const, Expr, Op, Var, free_vars, substitute
from nautilus.core.index.linear import Linear, atom, build, linear, split
from nautilus.core.index.simplify import Ranges, bounds, simplify
from nautilus.core.records import dataclass
from nautilus.core.types import DType


def inverse(
    index: Sequence[Expr], values: Sequence[Expr], ranges: Ranges, of_values: Ranges, given: Sequence[Expr] = ()
) -> dict[str, Expr]:  # fmt: skip
    """The variables of ``index`` that the rules solve, as expressions of ``values``.

    ``ranges``: of the variables in ``index``, about which ``given`` holds; ``of_values``: of those in ``values``.
    """
    wanted = frozenset[str]().union(*map(free_vars, index))
    scope = _Scope(ranges, of_values, tuple(given))
    single = {name: lo for name, (lo, hi) in ranges.items() if lo is not None and lo == hi and name in wanted}
    known: dict[Expr, Expr] = {Var(name): integer(lo) for name, lo in single.items()}
    plain = [simplify(e, ranges, given) for e in index]
    equations = [(linear(e), v) for e, v in zip(plain, values, strict=True)]
    while True:
        before = len(known)
        for u, v in equations:
            known = scope.atoms(*_without(u, v, known)) | known
        found = {a.name: e for a, e in known.items() if isinstance(a, Var)}
        if len(known) == before or found.keys() >= wanted:
            return found
        equations = [*equations, *scope.whole(known)]


def _without(u: Linear, v: Expr, known: Mapping[Expr, Expr]) -> tuple[Linear, Expr]:
    """The equation ``u == v`` without the atoms whose values are ``known``."""
    env = {a.name: e for a, e in known.items() if isinstance(a, Var)}
    for a, c in u.terms.items():
        at = known.get(a, substitute(a, env) if free_vars(a) <= env.keys() else None)
        if at is not None:
            u, v = u.without(a), calc("sub", v, calc("mul", at, c))
    return u, v


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is known about the variables on both sides of the equations."""

    ranges: Ranges
    of_values: Ranges
    given: tuple[Expr, ...]

    def limits(self, e: Expr) -> tuple[int, int] | None:
        """The least and the greatest value of ``e``."""
        lo, hi = bounds(e, self.ranges, self.given)
        return None if lo is None or hi is None else (lo, hi)

    def atoms(self, u: Linear, v: Expr) -> dict[Expr, Expr]:
        """The atoms of ``u`` as digits of ``v``; none where their coefficients are not those of digits."""
        limits = {a: found for a in u.terms if (found := self.limits(a)) is not None}
        made: dict[Expr, Expr] = {a: integer(lo) for a, (lo, hi) in limits.items() if lo == hi}
        order = sorted(u.terms.keys() - made.keys(), key=lambda a: abs(u.terms[a]))
        start, reached, scale = u.const, 0, 1
        for a in u.terms:
            if a not in limits:
                return {}
            start += u.terms[a] * limits[a][u.terms[a] < 0]
        for a in order:
            if u.terms[a] % scale or abs(u.terms[a]) <= reached:
                return {}
            scale = abs(u.terms[a])
            reached += scale * (limits[a][1] - limits[a][0])
        rest = calc("sub", v, start)
        for n, a in enumerate(order):
            digit: Expr = calc("floordiv", rest, abs(u.terms[a]))
            if n + 1 < len(order):
                digit = calc("mod", digit, abs(u.terms[order[n + 1]] // u.terms[a]))
            lo, hi = limits[a]
            value = calc("add", digit, lo) if u.terms[a] > 0 else calc("sub", hi, digit)
            made[a] = simplify(value, self.of_values)
        return made

    def whole(self, known: Mapping[Expr, Expr]) -> Iterator[tuple[Linear, Expr]]:
        """Equations for what is divided in the atoms that are ``known``."""
        remainders = [(*found, v) for a, v in known.items() if (found := _divided(a, "mod")) is not None]
        quotients = [(*found, v) for a, v in known.items() if (found := _divided(a, "floordiv")) is not None]
        for a, n, q in quotients:
            for b, m, r in remainders:
                part = _part(a, n, m)
                apart = None if part is None else _apart(part, b, m)
                if part is not None and apart is not None:
                    rest = calc("mod", calc("add", r, apart), m) if apart else r
                    yield linear(part), calc("add", calc("mul", q, m), rest)
        for b, m, r in remainders:
            yield from self.from_quotient(b, m, r, known)
            yield from self.rotated(b, m, r)

    def from_quotient(self, b: Expr, m: int, r: Expr, known: Mapping[Expr, Expr]) -> Iterator[tuple[Linear, Expr]]:
        """The equation for ``b``, of which ``b % m`` is ``r``, where ``b // m`` in its plain form is ``known``."""
        rest, value = _without(linear(simplify(calc("floordiv", b, m), self.ranges, self.given)), integer(0), known)
        if not rest.terms:
            yield linear(b), calc("add", calc("mul", calc("sub", rest.const, value), m), r)

    def rotated(self, a: Expr, n: int, r: Expr) -> Iterator[tuple[Linear, Expr]]:
        """Equations from ``a % n == r`` for ``a``, or for the parts of ``g * b + c`` where ``c`` has ``g`` values."""
        found, x = self.limits(a), linear(a)
        if found is not None and found[1] - found[0] < n:
            yield x, calc("add", calc("mod", calc("sub", r, found[0]), n), found[0])
            return
        for g in sorted({abs(c) for c in x.terms.values()}):
            high, low = split(Linear(x.terms), g)
            rest = self.limits(build(low, a.dtype))
            if n % g == 0 and high.terms and rest is not None and rest[1] - rest[0] < g:
                v = calc("mod", calc("sub", r, x.const + rest[0]), n)
                yield atom(calc("mod", build(high, a.dtype), n // g)), calc("floordiv", v, g)
                yield low, calc("add", calc("mod", v, g), rest[0])


def _part(a: Expr, n: int, m: int) -> Expr | None:
    """``b`` such that ``a // n`` is ``b // m``; None where none is known."""
    if n == m:
        return a
    return simplify(calc("floordiv", a, n // m)) if n % m == 0 else None


def _divided(e: Expr, op: str) -> tuple[Expr, int] | None:
    """``a`` and ``n`` of ``a // n`` or ``a % n``."""
    match e:
        case Op(args=(a, Const(value=n))) if e.op == op and e.dtype is DType.I32 and n > 0:
            return a, int(n)
    return None


def _apart(a: Expr, b: Expr, n: int) -> int | None:
    """``k`` from 0 to ``n - 1`` such that ``a % n == (b + k) % n`` for all variables; None where none is found."""
    difference = linear(_residue(a, n)) - linear(_residue(b, n))
    return difference.const % n if all(c % n == 0 for c in difference.terms.values()) else None


def _residue(e: Expr, n: int) -> Expr:
    """An expression with the remainder of ``e`` by ``n``, without remainders by multiples of ``n``."""
    x = linear(e)
    inner = ((a, c, _divided(a, "mod")) for a, c in x.terms.items())
    for a, c, found in inner:
        if found is not None and found[1] % n == 0:
            x = x.without(a) + linear(found[0]).scale(c)
    return build(x, e.dtype)
