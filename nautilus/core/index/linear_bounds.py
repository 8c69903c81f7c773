"""Exact interval bounds of linear forms (:mod:`nautilus.core.index.linear`) of loop variables, and conditions as such
forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import COMPARISONS, Const, Expr, Op, Param, Var
from nautilus.core.index.divisors import atom_divisor
from nautilus.core.index.intervals import UNKNOWN, fits, without_casts
from nautilus.core.index.linear import Interval, Linear, divided, linear

Ranges = Mapping[str, tuple[int | None, int | None]]  # variable -> inclusive bounds, where known


def bounds(x: Linear, ranges: Ranges) -> tuple[int | None, int | None]:
    """Inclusive bounds of ``x``; None where unknown."""
    return x.interval(lambda atom: _atom_bounds(atom, ranges))


def _atom_bounds(atom: Expr, ranges: Ranges) -> tuple[int | None, int | None]:
    match atom:
        case Var(name=name):
            return ranges.get(name, (None, None))
        case Param():
            return atom.range
        case Op(op="floordiv", args=(a, Const(value=k))) if int(k) > 0:
            lo, hi = bounds(divided(a), ranges)
            return (None if lo is None else lo // int(k)), (None if hi is None else hi // int(k))
        case Op(op="mod", args=(_, Const(value=k))) if int(k) > 0:
            return 0, int(k) - 1
        case Op(op="mod", args=(_, b)) if (limits := bounds(divided(b), ranges))[0] is not None and limits[0] >= 0:
            return 0, None if limits[1] is None else max(limits[1] - 1, 0)  # % 0 has no value
        case Op(op="min" | "max" as op, args=(a, b)):
            (la, ha), (lb, hb) = bounds(divided(a), ranges), bounds(divided(b), ranges)
            return _pick(op, la, lb, lower=True), _pick(op, ha, hb, lower=False)
        case Op(op="select", args=(_, a, b)):
            (la, ha), (lb, hb) = bounds(divided(a), ranges), bounds(divided(b), ranges)
            return (
                None if la is None or lb is None else min(la, lb),
                None if ha is None or hb is None else max(ha, hb),
            )
    return None, None


def _pick(op: str, a: int | None, b: int | None, *, lower: bool) -> int | None:
    if a is None or b is None:
        # One known side still bounds min from above and max from below.
        known = a if b is None else b
        return known if (op == "max") is lower else None
    return min(a, b) if op == "min" else max(a, b)


def facts_of(given: Iterable[Expr], ranges: Mapping[str, tuple[int, int]]) -> tuple[Linear, ...]:
    """What ``given`` says about integers, each as ``linear >= 0``, and each once."""

    def named(a: Expr) -> Interval:
        if isinstance(a, Param):
            return ranges.get(a.name, a.range)
        return ranges.get(a.name, UNKNOWN) if isinstance(a, Var) else UNKNOWN

    out: list[Linear] = []
    for e in given:
        for part in conjuncts(e):
            if isinstance(part, Op) and part.op in COMPARISONS and part.args[0].dtype.is_int:
                left, right = linear(part.args[0]), linear(part.args[1])
                if not all(fits(x, part.args[0].dtype, named) for x in (left, right)):
                    continue
                d = without_casts(right - left)  # a <= b is d >= 0
                match part.op:
                    case "le":
                        out.append(d)
                    case "lt":
                        out.append(d.shift(-1))
                    case "ge":
                        out.append(d.scale(-1))
                    case "gt":
                        out.append(d.scale(-1).shift(-1))
                    case "eq":
                        out += [d, d.scale(-1)]
                    case "ne":
                        out += _beside(d, ranges)
    return tuple(dict.fromkeys((*out, *(scaled for f in out if (scaled := _without_quotient(f, named)) is not None))))


def _beside(d: Linear, ranges: Mapping[str, tuple[int, int]]) -> list[Linear]:
    """What ``d != 0`` says where 0 is an end of the range of ``d``."""
    lo, hi = bounds(d, ranges)
    return [d.shift(-1)] if lo == 0 else [d.scale(-1).shift(-1)] if hi == 0 else []


class Facts:
    """Linear forms that are at least 0."""

    def __init__(self, forms: tuple[Linear, ...]) -> None:
        self.forms = forms
        self._sums: dict[tuple[int, int], Linear] = {}  # of two forms, by their numbers

    def about(self, x: Linear) -> Iterator[Linear]:
        """Every form and every sum of two forms that has an atom of ``x``."""
        atoms = x.terms.keys()
        near = [not atoms.isdisjoint(f.terms) for f in self.forms]
        for i, f in enumerate(self.forms):
            if near[i]:
                yield f
            for j in range(i + 1, len(self.forms)):
                if near[i] or near[j]:
                    s = self._sums.get((i, j))
                    if s is None:
                        s = self._sums[i, j] = f + self.forms[j]
                    if not atoms.isdisjoint(s.terms):
                        yield s


def _without_quotient(fact: Linear, named: Callable[[Expr], Interval]) -> Linear | None:
    """``fact`` times n, where it has a quotient by n that is known well enough; None where it has none.

    ``i < (N + 63) // 64`` is ``64 * i + 64 <= N`` if ``N`` is a multiple of 64, and ``64 * i < N`` for any size:
    n times a quotient by n is at most what was divided, where that does not wrap.
    """
    for a, c in fact.terms.items():
        if isinstance(a, Op) and a.op == "floordiv" and isinstance(a.args[1], Const) and a.args[1].value > 0:
            n, x = int(a.args[1].value), linear(a.args[0])
            whole = all(k * atom_divisor(t) % n == 0 for t, k in x.terms.items())
            sizes = all(isinstance(t, Param) and t.most is not None for t in x.terms)
            if whole or (c > 0 and sizes and fits(x, a.args[0].dtype, named)):
                return fact.without(a).scale(n) + x.shift(-(x.const % n) if whole else 0).scale(c)
    return None
