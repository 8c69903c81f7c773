"""Ranges of inputs and scalars that a spec promises: ``assume abs(v[j]) < inf``, ``assume 0 <= gamma <= 1``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Param, Var, loads, walk
from nautilus.core.expr.products import strip_conversions, strip_lossless_conversions
from nautilus.core.records import dataclass
from nautilus.core.source import Span

_BELOW = {"lt": (0, 1), "le": (0, 1), "gt": (1, 0), "ge": (1, 0)}  # positions of the lesser and of the greater side


class Promise(Protocol):
    """A condition that holds at all values of its axes."""

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of which the condition holds at all values."""
        ...

    @property
    def condition(self) -> Expr:
        """The condition, a bool over the axes."""
        ...


class Promises(Protocol):
    """What has promises: a Spec."""

    @property
    def facts(self) -> Sequence[Promise]:
        """All promises, in the order of the spec."""
        ...


@dataclass(frozen=True, slots=True)
class Fenced:
    """Definition ``name`` is computed as it is written because of values that ``inputs`` may hold, such as inf.

    A promise that they hold none would make it clearly faster.  ``inputs`` are inputs and scalars.
    """

    name: str
    inputs: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class FencedSteps(Fenced):
    """A recurrence of ``steps`` steps that would run in chunks of ``length`` steps under a promise about inputs."""

    steps: int
    length: int


def finite_inputs(spec: Promises | None) -> frozenset[str]:
    """The inputs all of whose elements have a finite bound on both sides."""
    facts = () if spec is None else spec.facts
    known = {(name, above) for f in facts if len(loads(f.condition)) == 1 for name, above, _ in _sides(f)}
    return frozenset(name for name, above in known if (name, not above) in known)


def promised_ranges(spec: Promises | None) -> dict[str, tuple[float, float]]:
    """The ranges of the elements of inputs, and of scalars, that the facts of ``spec`` give."""
    found: dict[str, tuple[float, float]] = {}
    for f in () if spec is None else spec.facts:
        for name, above, value in _sides(f):
            lo, hi = found.get(name, (-math.inf, math.inf))
            found[name] = (lo, min(hi, value)) if above else (max(lo, value), hi)
    return found


def _sides(f: Promise) -> Iterator[tuple[str, bool, float]]:
    """The inputs and scalars that ``f`` bounds, with whether from above, and by what.

    A fact holds where all of its reads are inside of their tensors, so that one that reads ``y[i + 4]`` says nothing of
    some elements ``x[i]``.
    """
    if not all(isinstance(e, Var | Const) for ld in loads(f.condition) for e in ld.index):
        return
    for c in conjuncts(f.condition):
        if not (isinstance(c, Op) and c.op in _BELOW):
            continue
        less, more = (c.args[k] for k in _BELOW[c.op])
        strict = c.op in ("lt", "gt")
        name, size = _named(less), _number(more, strict)
        if name and size is not None:
            yield name, True, _reached(less, size, -1) if strict else size
        elif isinstance(less, Op) and less.op == "abs" and _named(less.args[0]) and size is not None:
            yield from ((_named(less.args[0]), True, size), (_named(less.args[0]), False, -size))
        name, size = _named(more), _number(less, strict)
        if name and size is not None:
            yield name, False, _reached(more, size, 1) if strict else size


def _reached(e: Expr, bound: float, step: int) -> float:
    """The extreme of ``e`` that does not reach ``bound``: for integers the next one, in the direction of ``step``."""
    if not e.dtype.is_int or not math.isfinite(bound):
        return bound
    return math.ceil(bound) - 1 if step < 0 else math.floor(bound) + 1


def _named(e: Expr) -> str:
    """The input of which ``e`` takes every element, or the scalar that it is; empty for another expression.

    A conversion that changes values, such as ``i8(x[i])`` of a float, says nothing of the element itself.
    """
    if any(isinstance(n, Op) and n.op == "narrow" for n in walk(e)):
        return ""
    e = strip_lossless_conversions(e)
    if isinstance(e, Param):
        return e.name
    return e.buffer if isinstance(e, Load) and _whole(e) else ""


def _whole(ld: Load) -> bool:
    """Whether the index takes every position: each dimension has a variable of its own."""
    names = {e.name for e in ld.index if isinstance(e, Var)}
    return len(names) == len(ld.index)


def _number(e: Expr, strict: bool) -> float | None:
    """The constant ``e`` where it is a bound: finite, or infinite and not reached."""
    e = strip_conversions(e)
    sign = 1.0
    if isinstance(e, Op) and e.op == "neg":
        e, sign = strip_conversions(e.args[0]), -1.0
    usable = isinstance(e, Const) and (math.isfinite(e.value) or (strict and not math.isnan(e.value)))
    return sign * float(e.value) if usable and isinstance(e, Const) else None
