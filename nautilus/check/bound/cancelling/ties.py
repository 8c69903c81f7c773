"""Computed numbers at ties, where a function with steps such as ``floor`` takes another value.

What ``floor`` gives for a number that roundings move across an integer differs by 1, but a result may be continuous
there, as that of an interpolation is::

    k[p] = floor(x[p])              f[p] = x[p] - k[p]              Y[p] = (1 - f[p]) * X[k[p]] + f[p] * X[k[p] + 1]

Just below an integer, ``f`` is nearly 1, and just above it, ``k`` is one more and ``f`` nearly 0.  So a tie is not
another result of ``floor`` beside the same ``x``: the program is evaluated twice, with a few elements of ``x`` just
below the nearest tie, and just above it.  All that reads ``x``, or computes it again, has the same number.  The
difference of the two results is the effect of the ties.

Positions may lie exactly at ties, as those do at which a logarithm is an integer.  All of these elements are on one
side together, and so are those of a comparison of numbers that are equal over the reals, as of
``log(f32(j) + 1) / log(2.0) <= 3`` for the seventh position.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from math import inf, sqrt

import numpy as np

from nautilus.check.bound.cancelling.tails import median
from nautilus.core.expr.nodes import RELATIONAL, Const, Expr, Load, Op, Reduce, Var, substitute, walk
from nautilus.core.functions import FUNCTIONS
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity
from nautilus.core.types import DType
from nautilus.frontend.spec import Spec

FLIPS = 1024  # one element in this many of those that a step decides about is taken to be at a tie
_FEW = 8  # elements of which the largest one does not decide about the norm
_SPREAD = 64  # elements that move in the place of a few
_LARGE = 4  # one in this many steps is a large one
_PART = 1 / 16  # the unit of errors of arguments, relative to the period, above which their remainders may be any
_CROSSING = 4.0  # numbers that cross a tie, in units of those that are expected
_AT = 2.0**-40  # the relative distance of a number from a tie that is an error of f64
_KEEP_WHOLE = frozenset({"neg", "abs", "min", "max", "add", "sub", "mul"})


@dataclass(frozen=True, slots=True)
class Step:
    """The ties are ``(n + offset) * period`` for all integers ``n``; 0 alone where ``period`` is 0.

    ``low``, ``high``: what limits the numbers that the step decides about, such as a ``clamp``.  ``also``: another step
    that decides about the same numbers, as ``round`` beside ``floor``.
    """

    period: float
    offset: float = 0.0
    low: float = -inf
    high: float = inf
    also: Step | None = None

    def __iter__(self) -> Iterator[Step]:
        """The step, and all that decide about the same numbers."""
        step: Step | None = self
        while step is not None:
            yield replace(step, also=None)
            step = step.also

    def beside(self, other: Step | None) -> Step:
        """The step with those of ``other``, None or one that decides about the same numbers."""
        return self if other is None else other if self in other else replace(self, also=other)

    def nearest(self, x: Array) -> Array:
        """The tie next to each element."""
        if self.period == 0.0:
            return np.zeros_like(x)
        return np.asarray((np.round(x / self.period - self.offset) + self.offset) * self.period)


@dataclass(frozen=True, slots=True)
class Ties:
    """The steps that decide about tensors, by name, and about other expressions, by their :func:`form`.

    ``whole``: the definitions of floats whose values are integers.  ``orders``: the forms of comparisons of numbers
    that positions and integers decide about, which may tie at many elements.
    """

    tensors: Mapping[str, Step] = field(default_factory=dict)
    forms: Mapping[Expr, Step] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()
    orders: frozenset[Expr] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.tensors or self.forms or self.orders)


def ties(spec: Spec, computed: frozenset[str]) -> Ties:
    """The steps of ``spec`` that have arguments which are rounded, as ``computed`` definitions are."""
    from nautilus.check.bound.exactness import inexact

    whole, tensors, forms = whole_numbers(spec), dict[str, Step](), dict[Expr, Step]()
    for e in (n for d in spec.definitions for n in walk(d.expr) if isinstance(n, Op)):
        step = _step(e, whole)
        if step is None:
            continue
        x = _unconverted(e.args[0])
        low, high = _limits(spec.definition(x.buffer).expr if isinstance(x, Load) and x.buffer in computed else x)
        step = replace(step, low=low, high=high)
        if isinstance(x, Load) and x.buffer in computed:
            tensors[x.buffer] = step.beside(tensors.get(x.buffer))
        elif any(inexact(n) or (isinstance(n, Load) and n.buffer in computed) for n in walk(x)):
            forms[form(x)] = step.beside(forms.get(form(x)))
    return Ties(tensors, forms, whole, _orders(spec))


def _orders(spec: Spec) -> frozenset[Expr]:
    """The forms of comparisons of rounded floats that no float of an input decides about."""
    from nautilus.check.bound.cancelling.positions import unmarked
    from nautilus.check.bound.exactness import inexact

    rounds: dict[str, bool | None] = {t.name: None if t.dtype.is_float else False for t in spec.inputs}
    found = set[Expr]()

    def of(e: Expr) -> bool | None:
        """Whether ``e`` is rounded; None where an input decides."""
        read = [rounds.get(n.buffer) for n in walk(e) if isinstance(n, Load)]
        return None if None in read else any(read) or any(map(inexact, walk(e)))

    for d in spec.definitions:
        nodes = unmarked(d.expr)
        comparisons = (n for n in nodes if isinstance(n, Op) and n.op in RELATIONAL and n.args[0].dtype.is_float)
        found |= {form(n) for n in comparisons if of(n)}
        rounds[d.name] = None if d.recurrence is not None else of(d.expr)
    return frozenset(found)


def _step(e: Op, whole: frozenset[str]) -> Step | None:
    """The step of the operation ``e``; None for one that has none, or an unknown one."""
    if e.op == "cast":
        is_step = e.args[0].dtype.is_float and e.dtype.is_int and not is_whole(e.args[0], whole)
        return Step(1.0) if is_step else None
    steps = FUNCTIONS[e.op].steps
    if steps is None or not e.dtype.is_float or is_whole(e.args[0], whole):
        return None
    if steps.period is not None:
        return Step(steps.period, steps.offset)
    by = e.args[1]
    return Step(abs(float(by.value)), steps.offset) if isinstance(by, Const) and by.value else None


def whole_numbers(spec: Spec) -> frozenset[str]:
    """The definitions of floats whose values are integers, because a function rounds to these."""
    found: frozenset[str] = frozenset()
    for d in spec.definitions:
        if is_whole(d.expr, found):
            found |= {d.name}
    return found


def is_whole(e: Expr, known: frozenset[str]) -> bool:
    """Whether the values of ``e`` are integers, where those of ``known`` definitions are."""
    match e:
        case Const(value=value):
            return float(value).is_integer()
        case Load(buffer=name, dtype=dtype):
            return name in known or dtype.is_int
        case Reduce(op="sum" | "prod" | "max" | "min", body=body):
            return is_whole(body, known)
        case Op(op="select", args=(_, a, b)):
            return is_whole(a, known) and is_whole(b, known)
        case Op(op="cast", args=(x,)):
            return x.dtype.is_int or e.dtype.is_int or is_whole(x, known)
        case Op(op=op, args=args):
            steps = FUNCTIONS[op].steps
            rounds = steps is not None and steps.whole
            return rounds or (op in _KEEP_WHOLE and all(is_whole(x, known) for x in args))
    return e.dtype.is_int


def _unconverted(e: Expr) -> Expr:
    while isinstance(e, Op) and e.op == "cast" and e.args[0].dtype.is_float:
        e = e.args[0]
    return e


def _limits(e: Expr) -> tuple[float, float]:
    """What no value of ``e`` is below, and above: numbers to which operations limit it."""
    match _unconverted(e):
        case Op(op="max" | "min" as op, args=args):
            known = [_limits(x) for x in args]
            (a, b), (c, d) = known
            return (max(a, c), max(b, d)) if op == "max" else (min(a, c), min(b, d))
        case Op(op="abs" | "sqrt" | "exp" | "exp2"):
            return 0.0, inf
        case Const(value=value):
            return float(value), float(value)
    return -inf, inf


def form(e: Expr) -> Expr:
    """``e`` with variables named in the order in which they occur, so that definitions with other axes agree."""
    names = dict.fromkeys(n.name for n in walk(e) if isinstance(n, Var))
    return substitute(e, {name: Var(f"axis {n}") for n, name in enumerate(names)})


@by_identity(1 << 8)
def orders_of(e: Expr, known: Ties) -> Mapping[int, str]:
    """By identity, the nodes of ``e`` that are ``known`` comparisons, with a name of each."""
    if not known.orders:
        return {}
    nodes = (n for n in walk(e) if isinstance(n, Op) and n.op in RELATIONAL)
    return {id(n): repr(f) for n in nodes if (f := form(n)) in known.orders}


@by_identity(1 << 8)
def _by_node(e: Expr, known: Ties) -> Mapping[int, tuple[Step, str]]:
    return {id(n): (known.forms[f], repr(f)) for n, f in _candidates(e, known) if f in known.forms}


def _candidates(e: Expr, known: Ties) -> Iterator[tuple[Expr, Expr]]:
    kinds = {(type(f), getattr(f, "op", None)) for f in known.forms}
    return ((n, form(n)) for n in walk(e) if (type(n), getattr(n, "op", None)) in kinds)


def of_nodes(e: Expr, known: Ties) -> Mapping[int, tuple[Step, str]]:
    """By identity, the nodes of ``e`` that ``known`` steps decide about, with the step and a name of the number."""
    return _by_node(e, known) if known.forms else {}


def at_ties(x: Array, step: Step, name: str, seed: int, error: float, exact: Array | None = None) -> Array:
    """``x`` with a few elements at a distance of ``error`` from their ties, relative to them or to 1.

    Which elements depends on ``seed`` and ``name`` alone.  A tie that is beyond all elements is none of theirs.
    ``exact``: the values without roundings; those that are ties and are rounded are at this distance too.
    """
    if not x.size:
        return x
    flat = np.array(x, np.float64).reshape(-1)
    usual = flat[np.isfinite(flat)]
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    for one in step:
        at = rng.integers(0, x.size, few(x.size))
        if exact is not None:
            at = np.concatenate([at, _rounded_ties(flat, exact.reshape(-1), one)])
        own = flat[at]
        with np.errstate(all="ignore"):
            tie = one.nearest(own)
            moved = np.clip(tie + error * np.maximum(np.abs(tie), 1.0), one.low, one.high)
            reached = (tie >= usual.min(initial=inf)) & (tie <= usual.max(initial=-inf))
            flat[at] = np.where(np.isfinite(own) & reached, moved, own)
    return flat.reshape(x.shape)


def part_of_all(x: Array, exact: Array, step: Step, whole: float) -> float:
    """The effect that ties have on all elements, ``whole`` times as many as ``x``, in units of that of :func:`at_ties`.

    An error moves a number across a tie with a probability of their quotient by the period.  At least one of all
    elements is at one, and each of those that are ties over the reals.
    """
    flat, known = x.reshape(-1), exact.reshape(-1)
    share = 0.0
    for one in step:
        if _rounded_ties(flat, known, one).size:
            return 1.0
        with np.errstate(all="ignore"):
            error = np.abs(flat - known)
            period = one.period or 2.0 * median(np.abs(known))
        usual = float(np.mean(error[np.isfinite(error)])) if np.isfinite(error).any() else inf
        share += usual / period if period > 0.0 else 1.0
    expected = max(1.0, _CROSSING * share * whole * x.size)
    return min(1.0, sqrt(expected / whole / few(x.size)))


def are_equal(a: Array, b: Array) -> Array:
    """Whether numbers are the same but for an error of f64."""
    with np.errstate(all="ignore"):
        return np.asarray(np.abs(a - b) <= _AT * np.maximum(np.abs(a), np.abs(b)))


def ordered(op: str, result: Array, tied: Array, side: int) -> Array:
    """The ``result`` of the comparison ``op``, where ``tied`` numbers are on one ``side``: above (1), or below (-1)."""
    other = side > 0 if op in ("gt", "ge") else side < 0
    return np.where(tied, other if side else op in ("ge", "le"), result)


def _rounded_ties(x: Array, exact: Array, step: Step) -> Array:
    """The positions of the elements of ``x`` that are rounded, and that are ties of ``step`` over the reals."""
    with np.errstate(all="ignore"):
        tie = step.nearest(exact)
        return np.flatnonzero((np.abs(exact - tie) <= _AT * np.maximum(np.abs(tie), step.period)) & (x != exact))


def anywhere(x: Array, period: Array, error: Array, end: Array | float) -> Array:
    """The remainders ``x``, at one ``end`` of the ``period`` where arguments have an ``error`` that is a part of it.

    Such a remainder may be any, and random errors leave some of many elements close to where they were.
    """
    unknown = (error > _PART * period) & np.isfinite(period) & np.isfinite(x)
    return np.where(unknown, np.copysign(end, x), x)


def share_at_ties(dtype: DType) -> float:
    """The share of numbers within 4 units of f32 of a tie of ``dtype``; larger errors move numbers across ties."""
    return min(1.0 / FLIPS, 2.0 ** (dtype.mantissa - 21))


def move_few(rng: np.random.Generator, x: Array, steps: Array, whole: float, dtype: DType | None) -> None:
    """Move the share of ``x`` at ties of ``dtype`` (None: of another step), or one element, by ``steps`` up or down.

    ``x`` is a part of ``whole`` times as many elements.
    Where few elements of the whole move, one with the largest step is among them.  Of roundings, others have the norm
    of the few together: what reads the part may be evaluated at some of its elements only, and not at that one.
    Where fewer than one element of the part would move, one does by less, so that the norm of all is that of the whole.
    """
    steps = np.where((x != 0.0) & np.isfinite(steps), steps, 0.0)
    share = 1.0 / FLIPS if dtype is None else share_at_ties(dtype)
    all_of_them, own = (1 + int(n * share) for n in (x.size * whole, x.size))
    count = own if all_of_them < _FEW else min(x.size, max(own, _FEW))
    at, size = rng.integers(0, x.size, count), np.full(count, min(1.0, sqrt(all_of_them / whole / count)))
    if all_of_them < _FEW:
        at[0] = int(np.argmax(np.abs(steps)))
    if all_of_them < _FEW and dtype is not None:
        large = np.argsort(np.abs(steps))[-max(1, x.size // _LARGE) :]
        at = np.append(rng.choice(large, _SPREAD), at)
        size = np.append(np.full(_SPREAD, sqrt(all_of_them / whole / _SPREAD)), size)
    x[at] += steps[at] * rng.choice([-1.0, 1.0], len(at)) * size


def few(size: int) -> int:
    """How many of ``size`` elements are taken to be at a tie."""
    return 1 + size // FLIPS
