"""Inputs that keep the promises of a spec: its facts about the contents of tensors, and the ranges of integers that it
uses as positions.

Arrays are drawn without regard to the facts and then moved, one fact after another, until every fact holds:

* an axis along which facts order neighbours is sorted once, so that the steps keep the distribution of what was drawn.
  Such facts are ``start[b] <= start[b + 1]``, ``start[b] + len[b] <= start[b + 1]``, and ``start[b] <= end[b]`` with
  ``end[b] <= start[b + 1]``;
* of a comparison that does not hold, one element is moved to the value that makes it hold (:func:`_moved`): one that
  has no neighbour in the comparison first, then the one on the right; another one in each further pass over the facts,
  in the end any one, because a chain of neighbours that is moved in one direction may meet its bound;
* a value with a wrong remainder is rounded, down and up in alternate passes, and a bool that stands alone is set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np

from nautilus.core.errors import InputError
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import COMPARISONS, Axis, Const, Expr, Load, Op, Reduce, Var, free_vars, rewrite, walk
from nautilus.core.index.linear import build, excess, linear
from nautilus.core.index.simplify import bounds
from nautilus.core.numerics import Array, round_to
from nautilus.core.records import dataclass
from nautilus.core.types import FORMATS, DType
from nautilus.frontend.fixed import at_sizes
from nautilus.frontend.interp import exactly
from nautilus.frontend.spec import Assumption, Definition, Spec

_ROUNDS = 32  # passes over all facts
_INWARDS = 2  # marks a value that may move towards 0 only

_Way: TypeAlias = tuple[Load, Expr, int]  # an element that may move, its value, and the side of that (:func:`_moved`)


def keep(spec: Spec, arrays: Mapping[str, Array], params: Mapping[str, Any]) -> dict[str, Array]:
    """``arrays`` moved so that every promise holds; ``params`` has scalars and runtime sizes.

    Raises InputError where no such values are found.
    """
    promises = [p for fact in spec.facts if fact.promised for p in _promises(fact)]
    if not promises:
        return dict(arrays)
    made = _Maker(spec, {n: np.array(a) for n, a in arrays.items()}, params)
    for (name, axis), rises in _sorted_axes(promises).items():
        array = np.sort(made.arrays[name], axis)
        made.arrays[name] = array if rises else np.flip(array, axis)
    for number in range(_ROUNDS):
        held = [made.hold(p, number) for p in promises]
        if all(held):
            return made.arrays
    for promise in promises:
        if not made.holds(promise):
            raise InputError(f"no inputs were found that keep '{promise.fact.said}'")
    return made.arrays


@dataclass
class _Promise:
    """A part of the conjunction ``fact`` over its own ``axes``; ``reads``: those of the fact that these axes decide."""

    fact: Assumption
    part: Expr
    axes: tuple[Axis, ...]
    reads: tuple[Load, ...]


def _promises(fact: Assumption) -> Iterator[_Promise]:
    reads = tuple({n: None for n in walk(fact.condition) if isinstance(n, Load)})
    for part in _parts(fact.condition):
        axes = tuple(a for a in fact.axes if a.name in free_vars(part))
        names = {a.name for a in axes}
        yield _Promise(fact, part, axes, tuple(x for x in reads if free_vars(x) <= names))


class _Maker:
    """The arrays while they are moved."""

    def __init__(self, spec: Spec, arrays: dict[str, Array], params: Mapping[str, Any]) -> None:
        self.types = {t.name: t.dtype for t in spec.inputs}
        self.arrays, self.params = arrays, params
        self.rng = np.random.default_rng(0)

    def value(self, promise: _Promise, e: Expr) -> Array:
        """``e`` at every value of the axes of ``promise``."""
        return exactly(Definition("", None, promise.axes, e, False), self.arrays, self.params)[0]

    def wrong(self, promise: _Promise) -> Array:
        """Where ``promise`` does not hold and every read is inside of its tensor."""
        total = calc("not", promise.part)
        for load in promise.reads:
            for at, size in zip(load.index, self.arrays[load.buffer].shape, strict=True):
                total = calc("and", total, calc("and", calc("ge", at, 0), calc("lt", at, size)))
        return self.value(promise, total)

    def holds(self, promise: _Promise) -> bool:
        return not self.wrong(promise).any()

    def hold(self, promise: _Promise, number: int) -> bool:
        """Whether ``promise`` held before it was made to hold, in the pass ``number`` over all of them."""
        if self.holds(promise):
            return True
        steps = max((self.arrays[n.buffer].size for n in promise.reads), default=1)
        for _ in range(min(steps, 1 << 12)):  # what a chain of neighbours needs
            if not self.move(promise, number):
                break
        return False

    def move(self, promise: _Promise, number: int) -> bool:
        """Move the elements at which ``promise`` does not hold; False if there are none, or none can be moved."""
        wrong = self.wrong(promise)
        ways = _in_order(promise.part, tuple(_moved(promise.part, number % 2 == 1))) if wrong.any() else ()
        if not ways:
            return False
        load, to, way = ways[number % len(ways) if number < 8 else self.rng.integers(len(ways))]
        values = self.value(promise, to)
        array, dtype = self.arrays[load.buffer], self.types[load.buffer]
        at = tuple(np.broadcast_to(self.value(promise, i), wrong.shape)[wrong] for i in load.index)
        array[at] = _rounded(np.broadcast_to(values, wrong.shape)[wrong].astype(array.dtype), dtype, way)
        return True


def _sorted_axes(promises: Sequence[_Promise]) -> dict[tuple[str, int], bool]:
    """The axes along which ``promises`` order the elements of a tensor, by name and number, and whether they rise."""
    edges = {e for p in promises for e in _less(p.part)}
    pairs = {(a, d, _sum(s, t)) for a, b, s in edges for c, d, t in edges if b == c and len(s) == len(t)}
    found = {}
    for low, high, step in sorted(edges | pairs):
        moved = [n for n, s in enumerate(step) if s]
        if low == high and len(moved) == 1:
            found[low, moved[0]] = step[moved[0]] > 0
    return found


def _sum(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _less(part: Expr) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Tensors x and y and distances n of which ``part`` says ``x[i] <= y[i + n]``.

    A term that is added to the smaller element counts as not negative, as lengths are.
    """
    pairs = [(x, y) for x, y in _ordered(part) if isinstance(x, Load) and isinstance(y, Load)]
    found = excess(part)
    for d in () if found is None else (found, found.scale(-1)) if _is_equation(part) else (found,):
        above = [a for a, c in d.terms.items() if c < 0]
        below = [_plain(a) for a, c in d.terms.items() if c == 1]
        if d.const >= 0 and len(above) == 1 and d.terms[above[0]] == -1 and isinstance(y := _plain(above[0]), Load):
            pairs += [(x, y) for x in below if isinstance(x, Load)]
    for low, high in pairs:
        if len(low.index) == len(high.index):
            steps = [linear(b) - linear(a) for a, b in zip(low.index, high.index, strict=True)]
            if not any(s.terms for s in steps):
                yield low.buffer, high.buffer, tuple(s.const for s in steps)


def _parts(e: Expr) -> tuple[Expr, ...]:
    """The parts of a conjunction; where they read tensors, ``and`` is a choice."""
    match e:
        case Op(op="and", args=(a, b)) | Op(op="select", args=(a, b, Const(value=False))):
            return (*_parts(a), *_parts(b))
    return (e,)


def _ordered(part: Expr) -> Iterator[tuple[Expr, Expr]]:
    """The smaller and the larger side of a comparison, without casts."""
    match part:
        case Op(op="le" | "lt", args=(a, b)):
            yield _plain(a), _plain(b)
        case Op(op="ge" | "gt", args=(a, b)):
            yield _plain(b), _plain(a)


def _is_equation(part: Expr) -> bool:
    return isinstance(part, Op) and part.op == "eq"


def _in_order(part: Expr, ways: tuple[_Way, ...]) -> tuple[_Way, ...]:
    """``ways`` to make ``part`` hold, first those that move an element without neighbours in it."""
    found = Counter(n.buffer for n in {n for n in walk(part) if isinstance(n, Load)})
    return tuple(sorted(ways, key=lambda way: found[way[0].buffer] > 1))


def _solved(part: Expr) -> Iterator[_Way]:
    """The elements of a comparison of integers that are terms of a side, with the largest or the least value that makes
    the comparison hold."""
    d = excess(part)
    for atom, c in {} if d is None else d.terms.items():
        dtype = part.args[0].dtype if isinstance(part, Op) else atom.dtype
        if d is not None and isinstance(x := _plain(atom), Load):
            most = Op("floordiv", (build(d.without(atom).scale(-1), dtype), Const(abs(c), dtype)), dtype)
            yield (x, most, -1) if c > 0 else (x, Op("neg", (most,), dtype), 1)


def _moved(part: Expr, up: bool) -> Iterator[_Way]:
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
            yield from ((x, to, 0) for x, to, _ in _solved(part) if x not in (_plain(a), _plain(b)))
        case Op(op="ne", args=(a, b)):
            sides = [(x, y) for x, y in ((_plain(b), a), (_plain(a), b)) if isinstance(x, Load)]
            for x, y in sides or [(x, x) for x in walk(part) if isinstance(x, Load)]:
                yield x, Op("add" if up else "sub", (y, _step(y)), y.dtype), 1 if up else -1
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
            yield from (way for way in _solved(part) if way[0] not in (_plain(low), _plain(high)))


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
    """``e`` without casts from integers to integers and from floats to floats.

    A narrower type may have another value, as ``i8(300)``: the promise then does not hold, and is tried once more.
    """
    while isinstance(e, Op) and e.op == "cast" and e.args[0].dtype.is_int == e.dtype.is_int:
        e = e.args[0]
    return e


# -- ranges of integer tensors ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interface(Spec):
    """The interface of a module; ``integers``: the ranges of its integer inputs, which definitions would give."""

    integers: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def integer_ranges(spec: Spec, sizes: Mapping[str, int] | None = None) -> dict[str, tuple[int, int]]:
    """Inclusive range of every integer input that a spec uses as an index or compares with one.

    ``sizes`` of runtime dims are those of a launch; one that is 0 counts as 1, because nothing is read.  An
    index position with such a tensor must lie inside its dimension for every value.  The tightest of several uses
    counts.  A tensor in arithmetic alone has no entry.
    """
    if isinstance(spec, Interface):
        return dict(spec.integers)
    names = {t.name for t in spec.inputs if t.dtype.is_int}
    found: dict[str, tuple[int, int]] = {}
    if not names:
        return found
    known = spec.samples(77) | dict(sizes or {})
    spec = at_sizes(spec, {n: max(1, size) for n, size in known.items()})
    shapes = {t.name: t.shape for t in spec.inputs} | {d.name: d.shape for d in spec.definitions}
    for d in spec.definitions:
        axes = {a.name: _extent(a) for a in d.axes}
        for e in walk(d.expr):
            if isinstance(e, Reduce):
                axes |= {a.name: _extent(a) for a in e.axes}
        limits = {name: (0, n - 1) for name, n in axes.items()}
        for e in walk(d.expr):
            if isinstance(e, Load):
                for position, size in zip(e.index, shapes[e.buffer], strict=True):
                    extent = size if isinstance(size, int) else 1
                    _narrow(found, names, _inlined(position, spec), limits, extent)
            elif isinstance(e, Op) and e.op in COMPARISONS:
                _compared(found, names, e, axes, spec)
    return found


def _extent(axis: Axis) -> int:
    return axis.extent if isinstance(axis.extent, int) else 1


def _inlined(e: Expr, spec: Spec) -> Expr:
    """``e`` with integer definitions inlined, but for recurrences, which have no end."""
    made = {d.name: d for d in spec.definitions if d.recurrence is None}

    def rule(n: Expr) -> Expr | None:
        if isinstance(n, Load) and n.buffer in made and n.dtype.is_int:
            d = made[n.buffer]
            at = {a.name: i for a, i in zip(d.axes, n.index, strict=True)}
            return _inlined(rewrite(d.expr, lambda v: at.get(v.name) if isinstance(v, Var) else None), spec)
        return None

    return rewrite(e, rule)


def _narrow(
    found: dict[str, tuple[int, int]], names: set[str], position: Expr,
    limits: Mapping[str, tuple[int, int]], extent: int,
) -> None:  # fmt: skip
    """Tighten the ranges of the tensors in one index position of a dimension of ``extent``."""
    used = {n.buffer for n in walk(position) if isinstance(n, Load) and n.buffer in names}
    if not used:
        return
    flat = rewrite(position, lambda n: Var(f"%{n.buffer}") if isinstance(n, Load) and n.buffer in names else None)

    def fits(high: int) -> bool:
        ranges = dict(limits) | {f"%{n}": (0, min(high, found.get(n, (0, high))[1])) for n in used}
        low, top = bounds(flat, ranges)
        return low is not None and top is not None and low >= 0 and top < extent

    low, high = 0, extent  # fits(0) is assumed
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    for n in used:
        old = found.get(n, (0, low))
        found[n] = (0, min(old[1], low))


def _compared(found: dict[str, tuple[int, int]], names: set[str], e: Op, axes: Mapping[str, int], spec: Spec) -> None:
    """Add the range of tensors that are compared with an index variable.

    It ends one above that of the variable: at the largest length, or at a key that equals no index.  A variable in an
    index of a load, such as ``t`` of ``key[t] == i``, counts only where there is no other one.
    """
    sides = [_inlined(a, spec) for a in e.args]
    used = {n.buffer for s in sides for n in walk(s) if isinstance(n, Load) and n.buffer in names}
    outside = [rewrite(s, lambda n: Const(0, n.dtype) if isinstance(n, Load) else None) for s in sides]
    for places in (outside, sides):
        extents = [axes[n.name] for s in places for n in walk(s) if isinstance(n, Var) and n.name in axes]
        if extents:
            break
    for name in used:
        if extents and name not in found:
            found[name] = (0, max(extents))
