"""Inputs whose elements are finite because the caller promises it: ``assume abs(v[j]) < inf``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Var, loads
from nautilus.core.expr.products import bare

_BELOW = {"lt": (0, 1), "le": (0, 1), "gt": (1, 0), "ge": (1, 0)}  # positions of the lesser and of the greater side


class Promise(Protocol):
    """A condition that holds at all values of its axes."""

    @property
    def axes(self) -> tuple[Axis, ...]: ...

    @property
    def condition(self) -> Expr: ...


class Promises(Protocol):
    """What has promises: a Spec."""

    @property
    def facts(self) -> Sequence[Promise]: ...


def finite_inputs(spec: Promises | None) -> frozenset[str]:
    """The inputs all of whose elements have a finite bound on both sides."""
    known = {side for f in (() if spec is None else spec.facts) for side in _sides(f)}
    return frozenset(name for name, above in known if (name, not above) in known)


def _sides(f: Promise) -> Iterator[tuple[str, bool]]:
    """The inputs that ``f`` bounds, with whether from above."""
    read = loads(f.condition)
    if len(read) != 1 or not _whole(read[0]):
        return
    for c in conjuncts(f.condition):
        if not (isinstance(c, Op) and c.op in _BELOW):
            continue
        less, more = (c.args[k] for k in _BELOW[c.op])
        strict = c.op in ("lt", "gt")
        if bare(less) == read[0] and _bounds(more, strict):
            yield read[0].buffer, True
        if bare(more) == read[0] and _bounds(less, strict):
            yield read[0].buffer, False
        if isinstance(less, Op) and less.op == "abs" and bare(less.args[0]) == read[0] and _bounds(more, strict):
            yield from ((read[0].buffer, True), (read[0].buffer, False))


def _whole(ld: Load) -> bool:
    """Whether the index takes every position: each dimension has a variable of its own."""
    names = {e.name for e in ld.index if isinstance(e, Var)}
    return len(names) == len(ld.index)


def _bounds(e: Expr, strict: bool) -> bool:
    e = bare(e)
    if isinstance(e, Op) and e.op == "neg":
        e = bare(e.args[0])
    return isinstance(e, Const) and (math.isfinite(e.value) or (strict and not math.isnan(e.value)))
