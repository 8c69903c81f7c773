"""Whether two expressions are equal, and on which domain.

Loads, parameters and float variables are unknowns; a load with other indices is another unknown.  Both sides are
evaluated at many samples at once, a reduction over few elements, or over up to 64 positions of numbers and vectors.
Where one side is short of other elements than the other one, as where one has every term of a sum, reductions are over
all elements, up to 64 in all; over more of them a difference refutes nothing, and the identity is *not decided*.
The samples are:

* ``positive`` and ``generic``: random rationals, on which residues decide;
* ``finite``: 0, -0, small, huge, tiny, equal and opposite numbers, for which residues decide as well, because the
  numbers are exact;
* ``everything``: inf, -inf and NaN too, for which both sides must be the same inf or NaN, and integers whose sums and
  products wrap.  Index variables are small in all of them, because sizes are bounded.

Few integers are sampled.  So an identity of integers or bools is proved only where isl decides it for all integers
(:func:`nautilus.check.validate.sets.index_sets.always_equal`), and an identity of floats only where both sides have the
same conditions and integers inside, reductions have the same terms for isl, or the numbers at different positions may
be any; otherwise it is *tested*.

So ``x / x = 1``, ``x * 0 = 0`` and ``max(x, 5) = 5`` are refuted.  An identity that fails at inf or NaN only holds on
the domain ``finite``, and the caller says whether that is enough.  Samples at which a condition does not hold do not
count.  Samples at which the left side is inf, as after an overflow, do not count for ``finite``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from math import prod
from typing import Literal, TypeAlias

import numpy as np

from nautilus.check.validate import numbers
from nautilus.check.validate.expressions import Space
from nautilus.check.validate.memory import Malformed, Unsupported, reduced
from nautilus.check.validate.numbers import Constants, Number, Value
from nautilus.check.validate.residues import scrambled
from nautilus.check.validate.sets import index_sets
from nautilus.check.validate.verdict import Verdict
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Reduce, Ref, Var, children, rewrite, walk
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.core.types import DType

Domain: TypeAlias = Literal["everything", "finite", "generic", "positive"]

#: every domain contains those after it
DOMAINS: tuple[Domain, ...] = ("everything", "finite", "generic", "positive")

SAMPLES = {"positive": 64, "generic": 64, "finite": 4096, "everything": 4096}
_ROUNDING = 1e-13  # relative error of a side in float64
_MOST = 4  # elements of a reduction axis
_POSITIONS = 64  # the same of one along which nothing but vectors is read, such as coefficients
_WHOLE = 64  # elements of all reductions, at most, where both sides need every element
_FINITE = (0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, 5.0, -5.0, 7.25, 100.0, -100.0, 2.0**40, -(2.0**40),
           2.0**-40, -(2.0**-40), 2.0**12, -(2.0**12), 1.0 + 2.0**-20, 1e-3)  # fmt: skip
_EVERYTHING = (*_FINITE[:12], *_FINITE[14:18], float("inf"), float("-inf"), float("nan"))
_INTEGERS = (0, 1, -1, 2, 3, -3, 5, 7, -8, 64, 127)
_ENDS = {d: (-(1 << (d.bits - 1)), (1 << (d.bits - 1)) - 1, 1 << (d.bits - 2), 46341) for d in (DType.I32, DType.I64)}


def decide(
    before: Expr,
    after: Expr,
    conditions: Sequence[Expr] = (),
    domain: Domain = "everything",
    seed: int = 0,
) -> Verdict:
    """Whether ``before`` equals ``after`` on ``domain`` wherever ``conditions`` hold."""
    if before.dtype is not after.dtype and before.dtype.compute is not after.dtype.compute:
        return Verdict("refuted", detail=f"the types are {before.dtype} and {after.dtype}")
    known = Constants()
    points, undecided = 0, False
    try:
        for kind in reversed(DOMAINS[DOMAINS.index(domain) :]):
            found = _compared(_Samples(kind, seed), before, after, conditions, known)
            if found.status == "refuted":
                whole = _lacks_same_elements(before, after, _axes(before, after, conditions))
                return found if whole else Verdict("not decided", detail="the sides lack different terms at samples")
            points += found.points
            undecided |= found.status == "tested"
    except (Unsupported, Malformed, TypeError, KeyError) as error:
        return Verdict("not decided", detail=str(error))
    if not points:
        return Verdict("not decided", detail="the conditions hold at no sample")
    if not undecided and not _integers_decided(before, after, conditions, domain):
        sides = (before, after, *conditions)
        free = _without_places(sides)
        # what fails for arbitrary numbers may hold for these elements, such as those that only one side sums
        undecided = free == sides or decide(free[0], free[1], free[2:], domain, seed).status != "proved"
    return Verdict("tested" if undecided else "proved", points)


def _without_places(sides: Sequence[Expr]) -> tuple[Expr, ...]:
    """``sides`` with an unknown for each element of floats, whatever its indices are, but for elements of a reduction.

    What holds for all numbers holds for those that are one element at some indices.
    """
    names: dict[Expr, Expr] = {}
    inner = {a.name for side in sides for n in walk(side) if isinstance(n, Reduce) for a in n.axes}

    def rule(e: Expr) -> Expr | None:
        if not (isinstance(e, Load) and e.dtype.is_float) or inner & {*_variables(e)}:
            return None
        return names.setdefault(e, Var(f"element {len(names)}", e.dtype))

    return tuple(rewrite(e, rule) for e in sides)


def _integers_decided(before: Expr, after: Expr, conditions: Sequence[Expr], domain: Domain) -> bool:
    """Whether the integers and the conditions of both sides need no sample: they are the same, or equal for isl."""
    if not before.dtype.is_float:
        return before == after or index_sets.always_equal(before, after, wraps=domain == "everything")
    if isinstance(before, Reduce) and isinstance(after, Reduce) and _same_terms(before, after, domain):
        return True
    if not _lacks_same_elements(before, after, _axes(before, after, conditions)):
        return False
    known = {x for side in (before, *conditions) for x in _discrete(side)}
    return all(x in known or _decided(x, known, domain) for x in _discrete(after))


def _same_terms(a: Reduce, b: Reduce, domain: Domain) -> bool:
    """Whether two reductions have the same terms at the same points, by isl."""
    same = a.op == b.op and a.body == b.body and [x.name for x in a.axes] == [x.name for x in b.axes]
    return same and index_sets.always_equal(_points(a), _points(b), wraps=domain == "everything")


def _points(e: Reduce) -> Expr:
    """The condition on the variables of ``e`` under which there is a term."""
    points: Expr = Const(True, DType.BOOL) if e.cond is None else e.cond
    for axis in e.axes:
        end = Const(axis.extent, DType.I32) if isinstance(axis.extent, int) else axis.extent
        for op, pair in (("ge", (Var(axis.name), Const(0, DType.I32))), ("lt", (Var(axis.name), end))):
            points = Op("and", (points, Op(op, pair, DType.BOOL)), DType.BOOL)
    return points


def _decided(e: Expr, known: Iterable[Expr], domain: Domain) -> bool:
    wraps = domain == "everything"
    return any(x.dtype is e.dtype and index_sets.always_equal(x, e, wraps) for x in known)


def _discrete(e: Expr) -> Iterator[Expr]:
    """The largest integers and comparisons in ``e`` that are no constants."""
    match e:
        case Const():
            return
        case Load(index=index) if e.dtype.is_float:
            parts: tuple[Expr, ...] = index
        case Op(op="and" | "or" | "not", args=args):
            parts = args
        case Op(dtype=DType.BOOL, args=args) if any(a.dtype.is_float for a in args):
            parts = args
        case _:
            parts = children(e) if e.dtype.is_float else ()
            if not e.dtype.is_float:
                yield e
    for c in parts:
        yield from _discrete(c)


@dataclass(frozen=True)
class _Samples:
    """Values of unknowns, determined by the seed, the name and the index."""

    kind: Domain
    seed: int

    @property
    def count(self) -> int:
        return SAMPLES[self.kind]

    def value(self, name: str, index: Sequence[Array], dtype: DType, rank: int) -> Value:
        ids = np.arange(self.count).reshape((-1, *(1 for _ in range(rank - 1))))
        h = scrambled(f"{self.seed} {self.kind} {name}", [ids, *(np.asarray(i) for i in index)], 1 << 60)
        if dtype is DType.BOOL:
            return np.asarray(h & 1 == 1)
        if dtype.is_int:
            ends = _ENDS.get(dtype, ()) if self.kind == "everything" and not name.startswith("var ") else ()
            return np.asarray(np.asarray((*_INTEGERS, *ends), np.int64)[h % (len(_INTEGERS) + len(ends))])
        held = dtype if dtype.compute is not dtype else None
        if self.kind in ("generic", "positive"):
            x = (h % (1 << 20) - (1 << 19) + 0.5) / (1 << 18)
            return replace(numbers.exactly(np.abs(x) if self.kind == "positive" else x), held=held)
        table = _table(self.kind)
        return replace(table.each(lambda x: x[h % table.real.size]), held=held)


@cache
def _table(kind: Domain) -> Number:
    """The special numbers of a domain."""
    return numbers.like_constants(np.asarray(_FINITE if kind == "finite" else _EVERYTHING))


@dataclass
class _Unknowns(Space):
    """A space whose loads, parameters and free variables are unknowns."""

    samples: _Samples = field(default_factory=lambda: _Samples("generic", 0))
    rank: int = 1

    def _value(self, e: Expr, mask: Array) -> Value:
        match e:
            case Var(name=name) if name not in self.variables:
                return self.samples.value(f"var {name}", (), e.dtype, self.rank)
            case Param(name=name) | Ref(name=name):
                return self.samples.value(f"name {name}", (), e.dtype, self.rank)
            case Load(buffer=buffer, index=index):
                at = [self.array(i, mask) for i in index]
                return self.samples.value(f"load {buffer}", at, e.dtype, self.rank)
            case Reduce():
                return self.reduction(e, mask)
        return super()._value(e, mask)

    def reduction(self, e: Reduce, mask: Array) -> Value:
        dims = tuple(int(np.argmax(self.variables[a.name].shape)) for a in e.axes if self.variables[a.name].size > 1)
        full = np.broadcast_shapes(mask.shape, *(self.variables[a.name].shape for a in e.axes))
        inner = np.broadcast_to(mask, full)
        for a in e.axes:  # one of the same name may have more elements on the other side
            if isinstance(a.extent, int) and self.variables[a.name].size > a.extent:
                inner = inner & (self.variables[a.name] < a.extent)
        if e.cond is not None:
            inner = inner & self.array(e.cond, inner)
        body = self.value(e.body, inner)

        def grown(x: Array) -> Array:
            x = x if x.ndim else x.reshape((1,) * self.rank)
            return np.broadcast_to(x, tuple(full[d] if d in dims else n for d, n in enumerate(x.shape)))

        return reduced(e.op, body.each(grown) if isinstance(body, Number) else grown(body), dims, inner, e.dtype)


def _axes(before: Expr, after: Expr, conditions: Sequence[Expr]) -> dict[str, int]:
    """The axes of all reductions and the number of elements that are evaluated."""
    sides = (before, after, *conditions)
    few = _first_elements(sides)
    if _lacks_same_elements(before, after, few):
        return few
    every = {name: n for name, n in _extents(sides).items() if n is not None}
    return every if every.keys() == few.keys() and prod(every.values()) <= _WHOLE else few


def _extents(sides: Iterable[Expr]) -> dict[str, int | None]:
    """The largest extent of each axis of a reduction; None where one is known only at launch."""
    found: dict[str, int | None] = {}
    for a in (a for side in sides for n in walk(side) if isinstance(n, Reduce) for a in n.axes):
        known = found.get(a.name, 0)
        found[a.name] = None if known is None or not isinstance(a.extent, int) else max(known, a.extent)
    return found


def _first_elements(sides: Iterable[Expr]) -> dict[str, int]:
    """The axes of all reductions and how many elements show how these combine."""
    found: dict[str, int] = {}
    reductions = [n for side in sides for n in walk(side) if isinstance(n, Reduce)]
    together = [v for r in reductions for x in walk(r) if isinstance(x, Load | Ref) and len(v := {*_variables(x)}) > 1]
    read = set[str]().union(*together)  # by any reduction over an axis, so that all of them have the same elements
    for n in reductions:
        for a in n.axes:
            most = _MOST if a.name in read or len(n.axes) > 1 else _POSITIONS
            count = min(a.extent, most) if isinstance(a.extent, int) else _MOST
            found[a.name] = max(count, found.get(a.name, 0))
    return found


def _shortened(e: Expr, counts: Mapping[str, int]) -> set[int | Expr]:
    """The extents of the axes in ``e`` of which an evaluation has the first ``counts`` elements alone."""
    return {a.extent for n in walk(e) if isinstance(n, Reduce) for a in n.axes if a.extent != counts[a.name]}


def _lacks_same_elements(before: Expr, after: Expr, counts: Mapping[str, int]) -> bool:
    """Whether an evaluation with ``counts`` elements shortens the same reductions of both sides, or none."""
    return _shortened(before, counts) == _shortened(after, counts)


def _variables(e: Expr) -> Iterator[str]:
    """The variables in ``e``."""
    return (x.name for x in walk(e) if isinstance(x, Var))


def _compared(
    samples: _Samples, before: Expr, after: Expr, conditions: Sequence[Expr], constants: Constants
) -> Verdict:
    axes = _axes(before, after, conditions)
    rank = 1 + len(axes)
    variables = {
        name: np.arange(n).reshape(tuple(-1 if d == k + 1 else 1 for d in range(rank)))
        for k, (name, n) in enumerate(axes.items())
    }
    space = _Unknowns(constants, variables, {}, {}, samples=samples, rank=rank)
    mask = np.ones((samples.count, *(1 for _ in axes)), bool)
    with np.errstate(all="ignore"):
        for c in conditions:
            mask = mask & space.array(c, mask)
        left, right = space.value(before, mask), space.value(after, mask)
    return _verdict(left, right, mask, samples)


def _verdict(left: Value, right: Value, mask: Array, samples: _Samples) -> Verdict:
    if not isinstance(left, Number) or not isinstance(right, Number):
        if isinstance(left, Number) or isinstance(right, Number):
            return Verdict("refuted", detail="one side is a float")
        wrong = np.asarray(mask & (left != right))
        return _refuted(wrong, left, right, samples) if wrong.any() else Verdict("proved", int(mask.sum()))
    a, b = left.real, right.real
    fine = np.isfinite(a) & np.isfinite(b)
    same = fine | (a == b) | (np.isnan(a) & np.isnan(b))
    counted = mask & ~np.isinf(a) if samples.kind == "finite" else mask
    assert left.u is not None and right.u is not None
    equal = left.u == right.u
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= _ROUNDING * np.maximum(np.abs(a), np.maximum(np.abs(b), 1.0))
    wrong = counted & (~same | (fine & ~equal & ~near))
    if wrong.any():
        return _refuted(wrong, a, b, samples)
    points = int(np.count_nonzero(counted))
    return Verdict("tested" if np.any(counted & fine & ~equal) else "proved", points)


def _refuted(wrong: Array, a: Array, b: Array, samples: _Samples) -> Verdict:
    at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    x, y = (np.broadcast_to(v, wrong.shape)[at].item() for v in (a, b))
    return Verdict("refuted", detail=f"before = {x!r}, after = {y!r} at a {samples.kind} sample")
