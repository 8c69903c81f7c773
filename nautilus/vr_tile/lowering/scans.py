"""Scans among the statements of tiles.

An update ``A[t] op= f(u) where u <= t`` is one (:mod:`nautilus.core.index.prefixes`).  The tiles of ``u`` and of ``t``
have one size.  Without scans the lowering would make a tile over both axes.

A store ``h[t] = a * h[t - 1] + b`` in a ``tile.seq`` loop is a scan with factors, and one of which several states
along another axis read each other is a scan of states.
"""

from __future__ import annotations

from collections.abc import Sequence

from nautilus.core.errors import UnsupportedError
from nautilus.core.expr.build import calc, integer, number
from nautilus.core.expr.nodes import Const, Expr, Load, Var, loads, substitute
from nautilus.core.index.linear import linear
from nautilus.core.index.prefixes import Prefix, only_prefix
from nautilus.core.index.simplify import FALSE, TRUE, Ranges, simplify
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.states.extreme_states import beside, extreme, left_out, moved
from nautilus.scalar.analysis.states.linear_states import after_first, linear_part, other_part, without_zeros
from nautilus.scalar.ir import Store
from nautilus.vr_tile.ir import Value
from nautilus.vr_tile.lowering.build import Builder


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan along ``axis``; ``into`` numbers its results, and ``condition``, which is ``bound``, relates both."""

    axis: str
    into: str
    bound: Prefix
    condition: Expr


def scan_of(b: Builder, e: Expr, reduced: frozenset[str], guard: Sequence[Expr]) -> Scan | None:
    """The scan that the reduction of ``e`` over ``reduced`` where ``guard`` holds is; None if it is none."""
    names = frozenset[str]().union(*map(b.names, guard))
    for u in sorted(names & reduced):
        for t in sorted(names - reduced):
            found = only_prefix(u, t, e, guard) if b.axes[u].size == b.axes[t].size else None
            if found is not None and found[1].scans:
                return Scan(u, t, found[1], found[0])
    return None


def scan_along(axis: str, bound: Prefix | None) -> Scan | None:
    """The scan of a tile that has the axis of its results (:attr:`.regions.Point.bound`); None without a ``bound``."""
    return None if bound is None else Scan(axis, axis, bound, TRUE)


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a linear recurrence: ``factor * before + rest``, in which a factor of inf forgets what is before.

    Those of another ``combiner`` have the factor 1: it combines ``before`` and ``rest``.  ``reverse``: from the last
    position on.
    """

    factor: Expr
    rest: Expr
    reverse: bool
    combiner: str = "sum"


def steps_of(s: Store, axis: str, size: int) -> Steps | None:
    """The steps of the store ``s`` along ``axis``, of ``size`` positions; None where they are not linear.

    Nothing is before the first position, so that the factor of its step may be any finite number.
    """
    found = {ld for ld in loads(s.value) if ld.buffer == s.buffer}
    if len(found) != 1:
        return None
    (before,) = found
    gaps = [linear(e) - linear(own) for e, own in zip(before.index, s.index, strict=True) if own == Var(axis)]
    if len(gaps) != 1 or gaps[0].terms or abs(gaps[0].const) != 1:
        return None
    reverse, dtype = gaps[0].const == 1, s.value.dtype
    factor = linear_part(s.value, before, number(1, dtype))
    later = {axis: (0, size - 2) if reverse else (1, size - 1)}
    if factor is None:
        return _extreme(s.value, before, reverse, later)
    forgets = left_out(s.value, before) if dtype.is_float else None
    factor = after_first(factor if loads(factor) else simplify(factor, later), later)
    if forgets is not None and (forgets := simplify(forgets, later)) != FALSE:
        factor = calc("select", forgets, Const(float("inf"), dtype), factor)
    rest = other_part(s.value, before)
    return Steps(factor, number(0, dtype) if rest is None else rest, reverse)


def _extreme(e: Expr, before: Load, reverse: bool, later: Ranges) -> Steps | None:
    """The steps of the running extreme ``e``; None where it moves the state, or leaves it out."""
    found, forgets = extreme(e, before, later), left_out(e, before)
    if found is None or (forgets is not None and simplify(forgets, later) != FALSE):
        return None
    none, rest = number(0, e.dtype), beside(e, before, found[0])
    if after_first(moved(e, before, none, found[0], none), later) != none or rest is None:
        return None
    return Steps(number(1, e.dtype), rest, reverse, found[0])


def recurrence(b: Builder, s: Store, names: Sequence[str], axis: str, states: str) -> Value:
    """The states of a linear recurrence along ``axis``, one of which ``s`` stores in each step, over ``names``.

    ``states``: the axis of several that need each other.  Raises UnsupportedError where they are not linear.
    """
    if states:
        return _coupled_states(b, s, names, axis, states)
    found = steps_of(s, axis, b.axes[axis].size)
    if found is None:
        raise UnsupportedError("a scan that is no linear recurrence of whole rows", s.buffer, s.span)
    rest = b.spread(b.value(found.rest), names)
    if found.factor == number(1, s.value.dtype):
        return b.scan(found.combiner, rest, (axis, axis), found.reverse, False)
    by = b.value(found.factor)
    return b.recurrence(rest, by, axis, found.reverse, s.buffer)


def _coupled_states(b: Builder, s: Store, names: Sequence[str], axis: str, states: str) -> Value:
    size = b.axes[states].size
    rows = [simplify(substitute(s.value, {states: integer(n)})) for n in range(size)]
    found = [_row(b, s, row, axis) for row in rows]
    places = [n * size + column for n, (factors, _, _) in enumerate(found) for column in sorted(factors)]
    factors = [b.value(fs[column]) for fs, _, _ in found for column in sorted(fs)]
    rest = found[-1][1]
    for n, (_, own, _) in reversed(list(enumerate(found[:-1]))):
        rest = calc("select", calc("eq", Var(states), n), own, rest)
    (reverse,) = {step > 0 for _, _, steps in found for step in steps}
    return b.states(b.spread(b.value(rest), names), factors, places, axis, states, reverse, s.buffer)


def _row(b: Builder, s: Store, value: Expr, axis: str) -> tuple[dict[int, Expr], Expr, set[int]]:
    """The factors of the columns in ``value``, its rest, and the steps to its columns."""
    own = next(n for n, e in enumerate(s.index) if e == Var(axis))
    factors, rest, steps = dict[int, Expr](), value, set[int]()
    for ld in sorted({ld for ld in loads(value) if ld.buffer == s.buffer}, key=lambda ld: str(ld.index[-1])):
        column, gap = ld.index[-1], linear(ld.index[own]) - linear(Var(axis))
        factor = linear_part(value, ld, number(1, value.dtype))
        forgets = left_out(value, ld)
        size = b.axes[axis].size
        later = {axis: (1, size - 1) if gap.const < 0 else (0, size - 2)}
        known = isinstance(column, Const) and not gap.terms and abs(gap.const) == 1
        if factor is None or not known or (forgets is not None and simplify(forgets, later) != FALSE):
            raise UnsupportedError("a scan that is no linear recurrence of whole rows", s.buffer, s.span)
        assert isinstance(column, Const)
        factors[int(column.value)] = simplify(factor, later)
        steps.add(gap.const)
        rest = other_part(rest, ld) or number(0, value.dtype)
    return factors, without_zeros(rest), steps
