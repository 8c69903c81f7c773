"""Data types of repair terms: what a term is derived from, the term, and why there is none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nautilus.core.expr.conditions import all_conjuncts, conjunction
from nautilus.core.expr.nodes import Expr, Load, Op, identity
from nautilus.core.records import dataclass


def parts_of(guard: Iterable[Expr]) -> tuple[Expr, ...]:
    """The parts of the conditions ``guard``, also of those that are asked only where others hold."""
    return tuple(p for c in guard for p in all_conjuncts(c))


@dataclass(frozen=True, slots=True)
class Running:
    """A running reduction: the load by which ``f`` reads it, its combiner, its element and its guard conjuncts."""

    load: Load
    op: str
    value: Expr
    guard: tuple[Expr, ...] = ()

    def over(self, guard: tuple[Expr, ...]) -> Running:
        """The same extremum without conditions other than those of an accumulator, ``guard``.

        Elements that it alone leaves out are its identity: ``exp(select(c, x, -inf) - r)`` has the same ones as ``r``.
        """
        shared = set(parts_of(guard))
        own = conjunction(c for c in self.guard if not set(parts_of((c,))) <= shared)
        if self.op not in ("max", "min") or own is None:
            return self
        value = Op("select", (own, self.value, identity(self.op, self.value.dtype)), self.value.dtype)
        return replace(self, value=value, guard=tuple(c for c in parts_of(self.guard) if c in shared))


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why there is no proved repair term."""

    reason: str


@dataclass(frozen=True, slots=True)
class Repair:
    """A proved repair term.

    ``mode`` is scale, shift, reset or none.  ``f`` is over variables ``x0..``, ``c0..`` (invariant) and
    ``r0..``; ``factor`` over ``c``, ``old0..`` and ``new0..`` (None: ``t`` has none); ``t`` over those and ``a``.
    ``symbols`` gives the expressions of ``x`` and ``c``.  ``references[k]`` is the value that replaces the identity of
    ``r_k`` (None: not needed).  ``raw_old[k]``: the repair starts from the running value itself.  ``finite[k]``: ``f``
    reads the reference of ``r_k``, not ``r_k`` itself.  ``domain``: what holds of ``x0..``, ``old0..`` and ``new0..``.
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
    domain: tuple[Expr, ...] = ()
