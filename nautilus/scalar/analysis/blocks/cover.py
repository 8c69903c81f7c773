"""One range of blocks for several spans: a hull of those that are live, a part of those that are full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import permutations

import numpy as np

from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Const, Expr, Op, Param, Var, children, free_vars, walk
from nautilus.core.index.alternatives import alternatives
from nautilus.core.index.linear import Interval, Linear, build, divided
from nautilus.core.index.linear_bounds import Ranges, bounds
from nautilus.core.index.simplify import simplify
from nautilus.core.index.sizes import nominal_size
from nautilus.core.types import DType, integer_limits
from nautilus.scalar.analysis.blocks.spans import Span, meet

CASES = 8  # functions of which all cases are distinguished at once
NESTED = 32  # functions of a difference whose cases are looked at: their number grows exponentially
_SAMPLES = 5  # values of each outer variable at which the sizes of spans are compared


def largest(terms: Iterable[Linear], ranges: Ranges) -> Expr:
    """The largest of ``terms``, without those that never decide it."""
    return _extreme(terms, "max", ranges)


def smallest(terms: Iterable[Linear], ranges: Ranges) -> Expr:
    """The smallest of ``terms``, without those that never decide it."""
    return _extreme(terms, "min", ranges)


def _extreme(terms: Iterable[Linear], op: str, ranges: Ranges) -> Expr:
    kept: list[Linear] = []
    for t in terms:
        if any(_dominates(k, t, op, ranges) for k in kept):
            continue
        kept = [k for k in kept if not _dominates(t, k, op, ranges)] + [t]
    out = build(kept[0], DType.I32)
    for t in kept[1:]:
        out = Op(op, (out, build(t, DType.I32)), DType.I32)
    return out


def _dominates(a: Linear, b: Linear, op: str, ranges: Ranges) -> bool:
    """Whether ``b`` never changes ``op(a, b)``."""
    return never_positive(b - a if op == "max" else a - b, ranges)


def never_positive(x: Linear, ranges: Ranges) -> bool:
    """Whether ``x <= 0`` is proved for all values of its variables.

    Distinguishes the cases of a min, a max or a select where there are :data:`NESTED` of these at most.
    """
    return _never_positive(tuple(x.terms.items()), x.const, tuple(ranges.items()))


@lru_cache(maxsize=1 << 15)  # the cases of nested selects meet in the same differences
def _never_positive(terms: tuple[tuple[Expr, int], ...], const: int, known: tuple[tuple[str, Interval], ...]) -> bool:
    x, ranges = Linear(dict(terms), const), dict(known)
    _, hi = bounds(x, ranges)
    if hi is not None and hi <= 0:
        return True
    if sum(map(_choices, x.terms)) > NESTED:
        return False
    if any(never_positive(rest, ranges) for rest in _without_quotients(x, ranges)):
        return True
    for a, c in x.terms.items():
        if isinstance(a, Op) and a.op in ("min", "max", "select"):
            cases = [x.without(a) + divided(arg).scale(c) for arg in a.args[-2:]]
            if a.op == "select":
                where = (_where(a.args[0], ranges), _where(calc("not", a.args[0]), ranges))
                return all(r is None or never_positive(case, r) for case, r in zip(cases, where, strict=True))
            decide = all if (a.op == "max") is (c > 0) else any
            return decide(never_positive(case, ranges) for case in cases)
    return False


@lru_cache(maxsize=1 << 12)
def _choices(e: Expr) -> int:
    """The functions in ``e`` that have cases, each as often as it stands there."""
    own = isinstance(e, Op) and e.op in ("min", "max", "select")
    return own + sum(map(_choices, children(e)))


def _where(cond: Expr, ranges: Ranges) -> Ranges | None:
    """``ranges`` where ``cond``, which may say something of single variables, holds; None: it never holds."""
    found = alternatives(cond)
    known = dict(ranges)
    for form in found[0].forms if len(found) == 1 else ():
        ((a, c),) = form.terms.items() if len(form.terms) == 1 else ((None, 0),)
        if not isinstance(a, Var):
            continue
        low, high = known.get(a.name, (None, None))
        if c > 0:
            low = max(x for x in (-(form.const // c), low) if x is not None)
        else:
            high = min(x for x in (form.const // -c, high) if x is not None)
        if low is not None and high is not None and low > high:
            return None
        known[a.name] = (low, high)
    return known


def _without_quotients(x: Linear, ranges: Ranges) -> Iterator[Linear]:
    """``x`` without two terms ``c * (y // n) - c * (z // n)`` of which it is known that ``y <= z``."""
    quotients = [(a, c) for a, c in x.terms.items() if isinstance(a, Op) and a.op == "floordiv"]
    for (a, c), (b, k) in permutations(quotients, 2):
        n = a.args[1]
        alike = c > 0 and k == -c and b.args[1] == n and isinstance(n, Const) and n.value > 0
        if alike and never_positive(divided(a.args[0]) - divided(b.args[0]), ranges):
            yield x.without(a).without(b)


def empty(s: Span, ranges: Ranges) -> bool:
    """Whether ``s`` certainly has no block."""
    if any(never_positive(hi - lo, ranges) for lo in s.lo for hi in s.hi):
        return True
    if any(never_positive(w.shift(1), ranges) for w in s.when):
        return True
    if len(s.lo) == len(s.hi) == 1:
        return False
    lo, hi = largest(s.lo, ranges), smallest(s.hi, ranges)  # one bound may decide in one case, another one in another
    cases = sum(isinstance(n, Op) and n.op in ("min", "max", "select") for e in (lo, hi) for n in walk(e))
    return cases <= CASES and never_positive(divided(hi) - divided(lo), ranges)


def conditional(s: Span, ranges: Ranges) -> Span:
    """``s`` with bounds that say ``when``: it ends where it begins if that does not hold."""
    return _chosen(s, largest(s.lo, ranges), None, ranges)


def _chosen(s: Span, end: Expr, begin: Expr | None, ranges: Ranges) -> Span:
    """``s`` where ``when`` holds, else up to ``end``, and from ``begin`` if that is given."""
    when = [w for w in s.when if not never_positive(w.scale(-1), ranges)]
    cond = conjunction(calc("ge", build(w, DType.I32), 0) for w in when)
    if cond is None:
        return Span(s.lo, s.hi)
    inside = _where(cond, ranges) or ranges
    hi = _simple(calc("select", cond, smallest(s.hi, inside), end), ranges)
    if begin is None:
        return Span(s.lo, (hi,))
    return Span((_simple(calc("select", cond, largest(s.lo, inside), begin), ranges),), (hi,))


def _simple(e: Expr, ranges: Ranges) -> Linear:
    known = {name: (lo, hi) for name, (lo, hi) in ranges.items() if lo is not None and hi is not None}
    return divided(simplify(e, known))


def live_hull(spans: Sequence[Span], whole: Span, ranges: Ranges) -> Span:
    """A range that has all blocks of ``spans`` and none outside of ``whole``."""
    found = [meet(whole, s) for s in spans]
    low, high = largest(whole.lo, ranges), smallest(whole.hi, ranges)
    found = [_chosen(s, low, high, ranges) for s in found if not empty(s, ranges)]
    if not found:
        return Span(whole.lo, whole.lo)
    return reduce(lambda a, b: joined(a, b, ranges), found)


def joined(a: Span, b: Span, ranges: Ranges) -> Span:
    """From the first block of either span to the last one."""
    if a.within(b):
        return b
    if b.within(a):
        return a
    lo = smallest((divided(largest(s.lo, ranges)) for s in (a, b)), ranges)
    hi = largest((divided(smallest(s.hi, ranges)) for s in (a, b)), ranges)
    return Span((_simple(lo, ranges),), (_simple(hi, ranges),))


def full_part(spans: Sequence[Span], visit: Span, ranges: Ranges) -> Span | None:
    """A range of blocks that one of ``spans`` has, as large as can be told; None where all are empty."""
    found = [meet(visit, s) for s in spans]
    parts: list[Span] = []
    for s in (conditional(s, ranges) for s in found if not empty(s, ranges)):
        other = next((x for x in parts if touch(s, x, ranges)), None)
        if other is None:
            parts.append(s)
        else:
            parts[parts.index(other)] = joined(other, s, ranges)
    return max(parts, key=lambda s: size(s, ranges)) if parts else None


def touch(a: Span, b: Span, ranges: Ranges) -> bool:
    """Whether each range begins before or where the other one ends: then no block lies between them."""
    return _before(a.lo, b.hi, ranges) and _before(b.lo, a.hi, ranges)


def _before(lo: Iterable[Linear], hi: Sequence[Linear], ranges: Ranges) -> bool:
    return all(never_positive(x - y, ranges) for x in lo for y in hi)


def size(s: Span, ranges: Ranges) -> float:
    """The number of blocks of ``s`` over samples of the outer variables, or 0 where their ranges are not known."""
    lo, hi = largest(s.lo, ranges), smallest(s.hi, ranges)
    names = free_vars(lo) | free_vars(hi)
    env: dict[str, np.ndarray] = {}
    for name in names:
        a, b = ranges.get(name, (None, None))
        if a is None or b is None:
            return 0.0
        env[name] = np.linspace(a, b, _SAMPLES).astype(np.int64)
    least, most = integer_limits(DType.I32)
    return float(np.maximum(_at(hi, env, most) - _at(lo, env, least), 0).mean())


def _at(e: Expr, env: Mapping[str, np.ndarray], read: int) -> np.ndarray:
    """``e`` where every element of a tensor is ``read``: a range is taken as long as it may be."""

    def other(e: Expr) -> np.ndarray:
        return np.asarray(nominal_size(e) if isinstance(e, Param) else read)

    return np.asarray(evaluate(e, env, other))
