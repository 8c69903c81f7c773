"""Inputs that keep the promises of a spec: its facts about the contents of tensors.

Arrays are drawn without regard to the facts and then moved, one fact after another, until every fact holds:

* an axis along which a fact orders neighbours, as in ``start[b] <= start[b + 1]``, is sorted once, so that the steps
  keep the distribution of what was drawn;
* of a comparison that does not hold, an element that stands alone on one side is moved to the value of the other side
  (:func:`_moved`), the right one first;
* a remainder is made right by rounding, down and up alternately, and a bool alone is set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nautilus.core.errors import InputError
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Expr, Load, Op, walk
from nautilus.core.index.linear import linear
from nautilus.core.numerics import Array, round_to
from nautilus.core.types import FORMATS, DType
from nautilus.frontend.interp import exactly
from nautilus.frontend.spec import Assumption, Definition, Spec

_ROUNDS = 8  # passes over all facts
_INWARDS = 2  # marks a value that may move towards 0 only


def keep(spec: Spec, arrays: Mapping[str, Array], params: Mapping[str, Any]) -> dict[str, Array]:
    """``arrays`` moved so that every promise holds; ``params`` has scalars and runtime sizes.

    Raises InputError where no such values are found.
    """
    promises = [f for f in spec.facts if f.promised]
    out = dict(arrays)
    if not promises:
        return out
    made = _Maker(spec, {n: np.array(a) for n, a in arrays.items()}, params)
    for fact in promises:
        for part in _parts(fact.condition):
            made.sort(part)
    for n in range(_ROUNDS):
        held = [made.hold(f, up=n % 2 == 1) for f in promises]
        if all(held):
            return made.arrays
    for fact in promises:
        if not made.holds(fact):
            from nautilus.frontend.printer import format_expr

            raise InputError(f"no inputs were found that keep 'assume {format_expr(fact.condition)}'")
    return made.arrays


class _Maker:
    """The arrays while they are moved."""

    def __init__(self, spec: Spec, arrays: dict[str, Array], params: Mapping[str, Any]) -> None:
        self.types = {t.name: t.dtype for t in spec.inputs}
        self.arrays, self.params = arrays, params

    def value(self, fact: Assumption, e: Expr) -> Array:
        """``e`` at every value of the axes of ``fact``."""
        return exactly(Definition("", None, fact.axes, e, False), self.arrays, self.params)[0]

    def inside(self, fact: Assumption) -> Array:
        """Where every read of ``fact`` is inside of its tensor."""
        total: Expr = Const(True, DType.BOOL)
        for load in (n for n in walk(fact.condition) if isinstance(n, Load)):
            for at, size in zip(load.index, self.arrays[load.buffer].shape, strict=True):
                total = calc("and", total, calc("and", calc("ge", at, 0), calc("lt", at, size)))
        return self.value(fact, total)

    def holds(self, fact: Assumption) -> bool:
        return bool(np.all(self.value(fact, fact.condition) | ~self.inside(fact)))

    def hold(self, fact: Assumption, up: bool) -> bool:
        """Whether ``fact`` held before its parts were made to hold; ``up``: multiples are rounded up."""
        if self.holds(fact):
            return True
        for part in _parts(fact.condition):
            steps = max((self.arrays[n.buffer].size for n in walk(part) if isinstance(n, Load)), default=1)
            for _ in range(min(steps, 1 << 12)):  # what a chain of neighbours needs
                if not self.move(fact, part, up):
                    break
        return False

    def move(self, fact: Assumption, part: Expr, up: bool) -> bool:
        """Move the elements at which ``part`` does not hold; False if there are none, or none can be moved."""
        wrong = ~self.value(fact, part) & self.inside(fact)
        if not wrong.any():
            return False
        for load, to, way in _moved(part, up):
            values = self.value(fact, to)
            array, dtype = self.arrays[load.buffer], self.types[load.buffer]
            at = tuple(np.broadcast_to(self.value(fact, i), wrong.shape)[wrong] for i in load.index)
            array[at] = _rounded(np.broadcast_to(values, wrong.shape)[wrong].astype(array.dtype), dtype, way)
            return True
        return False

    def sort(self, part: Expr) -> None:
        """Sort the axis along which ``part`` orders neighbours."""
        for low, high in _ordered(part):
            if isinstance(low, Load) and isinstance(high, Load) and low.buffer == high.buffer:
                steps = [linear(b) - linear(a) for a, b in zip(low.index, high.index, strict=True)]
                moved = [n for n, s in enumerate(steps) if s.terms or s.const]
                if len(moved) == 1 and not steps[moved[0]].terms:
                    array = np.sort(self.arrays[low.buffer], moved[0])
                    up = steps[moved[0]].const > 0
                    self.arrays[low.buffer] = array if up else np.flip(array, moved[0])


def _parts(e: Expr) -> tuple[Expr, ...]:
    """The parts of a conjunction; where they read tensors, ``and`` is a choice."""
    match e:
        case Op(op="and", args=(a, b)) | Op(op="select", args=(a, b, Const(value=False))):
            return (*_parts(a), *_parts(b))
    return (e,)


def _ordered(part: Expr) -> Iterator[tuple[Expr, Expr]]:
    """The smaller and the larger side of a comparison, without widening casts."""
    match part:
        case Op(op="le" | "lt", args=(a, b)):
            yield _plain(a), _plain(b)
        case Op(op="ge" | "gt", args=(a, b)):
            yield _plain(b), _plain(a)


def _moved(part: Expr, up: bool) -> Iterator[tuple[Load, Expr, int]]:
    """The elements that may move where ``part`` does not hold, and the values that make it hold.

    Numbers above such a value make it hold as well where the last element is 1, those below where it is -1, and smaller
    ones where it is :data:`_INWARDS`.
    """
    match part:
        case Load():
            yield part, Const(True, DType.BOOL), 0
        case Op(op="not", args=(Load() as load,)):
            yield load, Const(False, DType.BOOL), 0
        case Op(op="eq", args=(Op(op="mod", args=(a, n)), rest)) if isinstance(x := _plain(a), Load):
            start = calc("add", a, calc("sub", n, 1)) if up else a
            yield x, calc("add", calc("mul", calc("floordiv", start, n), n), rest), 0
        case Op(op="eq", args=(a, b)):
            yield from ((x, y, 0) for x, y in ((_plain(b), a), (_plain(a), b)) if isinstance(x, Load))
        case Op(op="le" | "lt" | "ge" | "gt" as op, args=args):
            (low, high), strict = (args if op in ("le", "lt") else args[::-1]), op in ("lt", "gt")
            if isinstance(x := _plain(high), Load):
                yield x, Op("add", (low, _step(low)), low.dtype) if strict else low, 1
            if isinstance(x := _plain(low), Load):
                yield x, Op("sub", (high, _step(high)), high.dtype) if strict else high, -1
            if isinstance(size := _plain(low), Op) and size.op == "abs" and isinstance(x := _plain(size.args[0]), Load):
                top = Op("sub", (high, _step(high)), high.dtype) if strict else high
                bottom = Op("neg", (top,), high.dtype)
                inside = Op("max", (Op("min", (size.args[0], top), high.dtype), bottom), high.dtype)
                number = calc("eq", size.args[0], size.args[0])  # NaN, of which garbage has some, has no nearest value
                yield x, calc("select", number, inside, Const(0, high.dtype)), _INWARDS


def _step(e: Expr) -> Expr:
    """A distance from ``e`` that f64 holds beside it."""
    if e.dtype.is_int:
        return Const(1, e.dtype)
    relative = Op("mul", (Op("abs", (e,), e.dtype), Const(2.0**-50, e.dtype)), e.dtype)
    return Op("max", (Const(2.0**-8, e.dtype), relative), e.dtype)


def _rounded(x: Array, dtype: DType, way: int) -> Array:
    """``x`` in ``dtype``, rounded to the side ``way`` of ``x`` where that is not 0 (:func:`_moved`)."""
    made = round_to(x, dtype)
    if not way or not dtype.is_float:
        return made
    f, side = FORMATS[dtype], -np.sign(x) if way == _INWARDS else way
    ulp = np.maximum(np.abs(x) * 2.0**-f.mantissa, 2.0 ** (f.least - f.mantissa))
    return np.where((made - x) * side < 0.0, round_to(x + side * ulp, dtype), made)


def _plain(e: Expr) -> Expr:
    """``e`` without casts to a wider type."""
    while isinstance(e, Op) and e.op == "cast" and e.args[0].dtype.is_int == e.dtype.is_int:
        e = e.args[0]
    return e
