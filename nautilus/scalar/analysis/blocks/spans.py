"""The blocks of a loop in which a condition can hold, and those in which it holds throughout the tile, as spans.

A :class:`Span` is a range of values of the loop variable whose bounds depend on outer variables.  :func:`spans` gives
one for each alternative of a condition (:mod:`nautilus.core.index.alternatives`).  A form ``x >= 0`` becomes a bound on
the loop variable in two steps:

* the variables inside the tile are replaced by the end of their range that decides: the greatest value of ``x`` for
  *live* blocks, the least for *full* ones.  ``//`` is monotone, and ``%`` lies between 0 and the divisor;
* the rest is solved for the loop variable, with divisions rounded the right way.  One ``//`` around it is isolated;
  more than one are replaced by multiples of their dividends, larger ones for live blocks and smaller ones for full.

Where a comparison reads tensors, the bounds do so too (:mod:`nautilus.scalar.analysis.blocks.tensor_ends`).

So live spans are a superset of the blocks in which the condition holds at a point, and full spans a subset of those in
which it holds at every point.  A form that is not understood bounds no live span, and makes the alternative full
nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Var, free_vars, substitute, walk
from nautilus.core.index.alternatives import MOST, alternatives, isolated
from nautilus.core.index.linear import Linear, atom, build, constant, divide, divided, floordiv
from nautilus.core.index.linear_bounds import Ranges, bounds
from nautilus.core.records import dataclass
from nautilus.core.types import DType, integer_limits
from nautilus.scalar.analysis.blocks.tensor_ends import Readable, ends, with_names

_FAR = (1 << 20, 1 << 29)  # a multiple of the first one stays in i32


@dataclass(frozen=True, slots=True)
class Span:
    """A range of blocks: the largest of ``lo`` to the smallest of ``hi``, half-open, where all of ``when`` are >= 0."""

    lo: tuple[Linear, ...] = ()
    hi: tuple[Linear, ...] = ()
    when: tuple[Linear, ...] = ()

    def within(self, other: Span) -> bool:
        """Whether each bound of ``other`` is one of this span."""
        mine = (self.lo, self.hi, self.when)
        return all(set(b) <= set(a) for a, b in zip(mine, (other.lo, other.hi, other.when), strict=True))


def meet(*spans: Span) -> Span:
    """The blocks that all ``spans`` have."""
    return Span(
        tuple(dict.fromkeys(x for s in spans for x in s.lo)),
        tuple(dict.fromkeys(x for s in spans for x in s.hi)),
        tuple(dict.fromkeys(x for s in spans for x in s.when)),
    )


@dataclass(frozen=True, slots=True)
class Blocks:
    """Where a condition can hold (one of ``live``), and where it certainly holds throughout (each of ``full``)."""

    live: tuple[Span, ...]
    full: tuple[Span, ...]


def spans(c: Expr, var: str, tiles: Mapping[str, int], ranges: Ranges, readable: Readable) -> Blocks:
    """The spans of ``c`` for the loop over ``var`` (module docstring).

    ``tiles``: the extents of the tile variables, 0 where unknown; ``ranges``: of the outer variables and of ``var``;
    ``readable``: what bounds may read.
    """
    if isinstance(c, Op) and c.op == "implied":
        full_part, live_part = (spans(e, var, tiles, ranges, readable) for e in c.args[1:])
        return Blocks(live_part.live, full_part.full)
    live: list[Span] = []
    full: list[Span] = []
    named, values = with_names(c, var, frozenset(tiles), readable)
    known = {**ranges, **{t: (0, n - 1) for t, n in tiles.items() if n}}

    def solved(form: Linear, *, upper: bool) -> Span | None:
        read = ends(form, values, tiles, known, readable, upper=upper)
        if read is None:
            return None
        found = _solved(form, var, tiles, {**ranges, **{name: span for name, (_, span) in read.items()}}, upper)
        return _with_ends(found, {name: e for name, (e, _) in read.items()}) if found and read else found

    for a in alternatives(named):
        upper = [solved(f, upper=True) for f in a.forms]
        lower = [solved(f, upper=False) for f in a.forms]
        live.append(meet(*(s for s in upper if s is not None)))
        if a.exact and None not in lower:
            full.append(meet(*(s for s in lower if s is not None)))
    return Blocks(tuple(dict.fromkeys(live)), tuple(dict.fromkeys(full)))


def _with_ends(s: Span, read: Mapping[str, Expr]) -> Span:
    """``s`` with expressions for the names that stand for values of tensors."""

    def put(xs: tuple[Linear, ...]) -> tuple[Linear, ...]:
        return tuple(divided(substitute(build(x, DType.I32), read)) for x in xs)

    return Span(put(s.lo), put(s.hi), put(s.when))


def invariant(c: Expr, trips: int, tiles: Mapping[str, int], ranges: Ranges) -> Blocks | None:
    """The blocks where ``c`` holds, which is the same in all iterations 0 to ``trips``: all or none; None: unknown."""
    found = alternatives(c)
    forms = found[0].forms if len(found) == 1 and found[0].exact else ()
    if len(forms) != 1 or not trips or free_vars(c) & tiles.keys() or any(isinstance(n, Load) for n in walk(c)):
        return None
    bound = _with_near_scalars(forms[0], ranges).shift(1).scale(trips)
    return Blocks((Span(hi=(bound,)),), (Span(hi=(bound,)),)) if _exact(bound, ranges) else None


def _solved(form: Linear, var: str, tiles: Mapping[str, int], ranges: Ranges, upper: bool) -> Span | None:
    """The span in which the greatest (least) value of ``form`` inside a tile is at least 0; None: not understood."""
    over_tile = extreme(form, var, tiles, ranges, upper)
    return None if over_tile is None else solve(over_tile, var, ranges, upper=upper)


def extreme(x: Linear, var: str, tiles: Mapping[str, int], ranges: Ranges, upper: bool) -> Linear | None:
    """A form without tile variables that is never below the greatest value of ``x`` in a tile (above the least)."""
    total = constant(x.const)
    for a, c in x.terms.items():
        greatest = upper == (c > 0)
        names = free_vars(a)
        value: Linear | None = atom(a)
        if any(isinstance(n, Load) for n in walk(a)):
            value = None
        elif not names & {var, *tiles}:
            pass
        elif isinstance(a, Var):
            if a.name != var:
                size = tiles[a.name]
                value = constant(size - 1 if greatest else 0) if size else None
        else:
            value = _extreme_atom(a, var, tiles, ranges, greatest)
        if value is None:
            return None
        total = total + value.scale(c)
    return total


def _extreme_atom(a: Expr, var: str, tiles: Mapping[str, int], ranges: Ranges, upper: bool) -> Linear | None:
    match a:
        case Op(op="floordiv", args=(y, Const(value=n))) if n > 0:
            inner = extreme(divided(y), var, tiles, ranges, upper)
            if inner is None:
                return None
            return floordiv(inner, int(n), a.dtype, lambda x: bounds(x, ranges), lambda _: True)
        case Op(op="mod", args=(_, Const(value=n))) if n > 0:
            return constant(int(n) - 1 if upper else 0)
    return None


def solve(form: Linear, var: str, ranges: Ranges, *, upper: bool | None = None) -> Span | None:
    """The values of ``var`` with ``form >= 0``, as a span; None: not understood.

    ``upper``: a superset (False: a subset) may do; None: none but the exact span.
    """
    form = _with_near_scalars(form, ranges)
    inside = [a for a in form.terms if not isinstance(a, Var) and var in free_vars(a)]
    k = form.slope(var)
    if not inside:
        rest = form.without(Var(var))
        if not _exact(rest, ranges):
            return None
        return _side(k, rest) if k else Span(when=(rest,))
    a = inside[0]
    if not isinstance(a, Op) or a.op != "floordiv" or not isinstance(a.args[1], Const) or a.args[1].value <= 0:
        return None
    c, rest = form.terms[a], form.without(a)
    if len(inside) == 1 and k == 0:
        return solve(isolated(a, c, rest), var, ranges, upper=upper)
    if upper is None:
        return None
    n, y = int(a.args[1].value), divided(a.args[0])  # (y - n + 1) / n <= y // n <= y / n
    return solve(rest.scale(n) + (y if upper == (c > 0) else y.shift(1 - n)).scale(c), var, ranges, upper=upper)


def _with_near_scalars(x: Linear, ranges: Ranges) -> Linear:
    """``x`` with the same sign, in which a scalar of the caller is limited to what the rest of ``x`` may reach.

    A window may have the largest integer as its width, to which no position is added without a wrap.  The limit is one
    of :data:`_FAR`, so that bounds which differ little have it in common.
    """
    far = [a for a in x.terms if _is_scalar(a) and None in bounds(atom(a), ranges)]
    if len(far) != 1:
        return x
    (a,) = far
    low, high = bounds(x.without(a), ranges)
    if low is None or high is None:
        return x
    c = x.terms[a]
    limit = next((n for n in _FAR if n * abs(c) > max(-low, high)), None)
    return x if limit is None else x.without(a) + atom(calc("min", calc("max", a, -limit), limit)).scale(c)


def _is_scalar(a: Expr) -> bool:
    """Whether ``a`` is a scalar of the caller, or the quotient of one by a number."""
    match a:
        case Param(most=None) | Op(op="floordiv", args=(Param(most=None), Const())):
            return True
    return False


def _side(k: int, rest: Linear) -> Span:
    """The range of v with ``k*v + rest >= 0``."""
    if k > 0:
        return Span(lo=(divide(rest, k, DType.I32).scale(-1),))
    return Span(hi=(divide(rest, -k, DType.I32).shift(1),))


def _exact(x: Linear, ranges: Ranges) -> bool:
    """Whether ``x`` and the divisions in it do not leave i32, as far as the ranges of the variables are known.

    A scalar of the caller is any integer.
    """
    least, most = integer_limits(DType.I32)
    lo = hi = x.const
    for a, c in x.terms.items():
        if isinstance(a, Op) and a.op == "floordiv" and not _exact(divided(a.args[0]), ranges):
            return False
        low, high = bounds(atom(a), ranges)
        if any(isinstance(n, Param) and n.most is None for n in walk(a)):
            low, high = least if low is None else low, most if high is None else high
        ends = (0 if low is None else c * low, 0 if high is None else c * high)
        lo, hi = lo + min(0, *ends), hi + max(0, *ends)
    return least < lo and hi < most


def common(spans: Sequence[Span]) -> Span:
    """A range that holds all ``spans``: the bounds common to every one."""
    first = spans[0]
    return Span(
        tuple(x for x in first.lo if all(x in s.lo for s in spans)),
        tuple(x for x in first.hi if all(x in s.hi for s in spans)),
    )


def conjunctions(parts: Iterable[tuple[Span, ...]], *, subset: bool) -> tuple[Span, ...]:
    """The blocks that a span of each of ``parts`` has, as at most :data:`MOST` spans.

    Where there are more, the result is a superset of these blocks, or a subset if one is asked for.
    """
    total: tuple[Span, ...] = (Span(),)
    for part in parts:
        found = tuple(dict.fromkeys(meet(a, b) for a in total for b in part))
        if len(found) <= MOST:
            total = found
        elif subset:
            total = found[:MOST]
    return total
