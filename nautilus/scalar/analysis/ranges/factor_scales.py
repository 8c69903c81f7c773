"""Powers of two that computed factors of products are divided by, so that 16 bits hold them (``narrow``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Var, free_vars, loads, substitute
from nautilus.core.expr.products import factors, product_of
from nautilus.core.functions.intervals import magnitude
from nautilus.core.index.groups import over_groups, quotients
from nautilus.core.index.simplify import TRUE, simplify
from nautilus.core.index.sizes import at_most, nominal
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.definitions import Def, points, size
from nautilus.scalar.analysis.ranges.precision import is_streamed
from nautilus.scalar.analysis.ranges.window_places import window_places
from nautilus.scalar.analysis.value_range import Ranges

FITS_F16 = 65504.0 * (1 + 2.0**-13)  # rounding errors of f32 below 2^-13 do not reach 65520
_MOST_SHIFT = 4  # bits of a constant scale: a small factor loses as many
_TOP = 2.0**14  # a scaled factor of f16 is below twice this
_SMALL = 512.0  # the largest magnitude of probabilities, integers of 8 bits and f8e4m3, that a scale need not know
_LARGE = 2.0**17  # the same beside scales of a streamed factor: of a 16-bit number, or of a difference of two
_SHARE = 16  # elements of a streamed factor for each of its scales, and scales for each maximum of them
_STORED = 256  # results that use an element of a factor which is stored
_DEPTH = 16  # definitions that are followed from one to the next


@dataclass(frozen=True, slots=True)
class Scale:
    """A power of two that the factor is divided by.

    ``constant``: the power itself; or, where it is None, ``binade(m) / top`` of the maximum ``m`` of finite magnitudes,
    a reduction ``largest`` with the name ``''``, of which the factor has the element at ``index``.  They are those of
    ``part``, a product of some of its factors, where the others are small (``top`` allows for them), else its own.
    """

    constant: float | None
    largest: Def | None = None
    index: tuple[Expr, ...] = ()
    part: Expr | None = None
    top: float = _TOP

    def value(self, name: str, inverse: bool = False) -> Expr:
        """The power, or its inverse, as an expression over the axes of the maximum, which is called ``name``."""
        if self.constant is not None:
            return Const(1.0 / self.constant if inverse else self.constant, DType.F32)
        assert self.largest is not None
        m = Load(name, self.index, DType.F32)
        pair = (Const(self.top, DType.F32), Op("binade", (m,), DType.F32))
        return Op("div", pair if inverse else pair[::-1], DType.F32)

    def divided(self, x: Expr, name: str) -> Expr:
        """The factor ``x`` divided by the power."""
        by = self.value(name, inverse=True)
        if self.part is None:
            return Op("mul", (x, by), DType.F32, x.span)
        parts = factors(x)
        for used in factors(self.part):
            parts.remove(used)
        return product_of([*parts, Op("mul", (self.part, by), DType.F32, x.span)])


def scale_of(d: Def, factor: Expr, top: float, defs: Mapping[str, Def]) -> Scale | None:
    """The scale of ``factor``, which is at most ``top``; None where its maximum has no loop of its own."""
    shift = math.ceil(math.log2(top / FITS_F16)) if math.isfinite(top) else math.inf
    if shift <= _MOST_SHIFT:
        return Scale(2.0**shift)
    streamed = is_streamed(d, factor)
    part, small = _shared(d, factor, defs) if streamed else _unbounded(d, factor, defs)
    if part is None and not streamed and _is_table(factor, d):
        part, small = _shared(d, factor, defs)
    found = None if part is None else _of_largest(d, part, defs)
    if found is not None:
        return replace(found, part=part, top=_TOP / small)
    return None if streamed else _of_largest(d, factor, defs)


def _is_table(factor: Expr, d: Def) -> bool:
    """Whether ``factor`` has elements of a table at places that tensors give for each term, and many results use it.

    A maximum of the elements would need as many loads as the kernel that stores them (``store-operands``).
    """
    red = {a.name for a in d.red}
    uses = points(a for a in d.par if a.name not in free_vars(factor))
    return uses >= _STORED and any(loads(e) and free_vars(e) & red for ld in loads(factor) for e in ld.index)


def _shared(d: Def, factor: Expr, defs: Mapping[str, Def]) -> tuple[Expr | None, float]:
    """The product of the factors of ``factor`` that have few elements, such as scales of groups, and a power of two
    above the others.

    None where there are no such factors, or the others are not proved to be at most :data:`_LARGE`.
    """
    ranges, parts = Ranges(defs, d.axes, d.guard), factors(factor)
    all_of, few = _elements(factor, d.axes), list[bool]()
    for p in parts:
        count, rows = _elements(p, d.axes), _elements(p, d.par)
        few.append(count * _SHARE <= all_of and rows * _SHARE <= count)
    tops = [magnitude(ranges.of(p))[1] for p, one in zip(parts, few, strict=True) if not one]
    if not any(few) or not all(t <= _LARGE for t in tops):
        return None, 1.0
    return product_of([p for p, one in zip(parts, few, strict=True) if one]), _above(tops)


def _above(tops: Sequence[float]) -> float:
    """A power of two that is at least the product of ``tops``, and at least 1."""
    return float(2.0 ** max(math.ceil(math.log2(prod(tops) or 1.0)), 0))


def _elements(e: Expr, axes: Sequence[Axis]) -> int:
    """The elements that ``e`` has along ``axes``; an axis that it has in groups counts in groups."""
    return prod(-(-nominal(a.extent) // (min(quotients(e, a.name)) or 1)) for a in axes if a.name in free_vars(e))


def _unbounded(d: Def, factor: Expr, defs: Mapping[str, Def]) -> tuple[Expr | None, float]:
    """The product of the factors of ``factor`` that are not proved to be small, and a power of two above the others.

    None where there are no others, or only others.
    """
    ranges, parts = Ranges(defs, d.axes, d.guard), factors(factor)
    tops = [magnitude(ranges.of(p))[1] for p in parts]
    small = [t for t in tops if t <= _SMALL]
    if len(small) in (0, len(parts)):
        return None, 1.0
    return product_of([p for p, t in zip(parts, tops, strict=True) if t > _SMALL]), _above(small)


def _of_largest(d: Def, factor: Expr, defs: Mapping[str, Def]) -> Scale | None:
    """The scale from the largest finite magnitude of ``factor``; None where its maximum has no loop of its own."""
    if (found := window_places(d, factor)) is not None:  # one maximum for all windows, which share elements
        d, factor = replace(d, par=found.par, red=found.red, guard=found.guard), found.element
    # A maximum without the condition would let what the condition excludes reach the result.
    d = replace(d, guard=_needed(d, factor))
    held = frozenset() if d.guard is None else free_vars(d.guard)
    par, red = (tuple(a for a in axes if a.name in free_vars(factor) | held) for axes in (d.par, d.red))
    needed = [ld for ld in loads(factor) if _along(ld, factor, d, defs)]
    products = any(ld.buffer in defs and multiplies_matrices(defs[ld.buffer]) for ld in loads(factor))
    complete = any(not products or _scales(factor, ld) for ld in needed)
    free = tuple(a for a in par if a.name not in held)
    element, groups, places = over_groups(factor, free)
    if complete or len(red) != len(d.red) or (len(par) == len(d.par) and groups == free):
        return None
    element, own, _ = over_groups(element, tuple(a for a in red if a.name not in held))  # each element is read once
    red = (*own, *(a for a in red if a.name in held))
    by_group = {a.name: (a, place) for a, place in zip(groups, places, strict=True)}
    par, index = zip(*(by_group.get(a.name, (a, Var(a.name))) for a in par), strict=True) if par else ((), ())
    size_of = Op("abs", (element,), DType.F32, factor.span)
    finite = Op("lt", (size_of, Const(math.inf, DType.F32)), DType.BOOL, factor.span)
    magnitudes = Op("select", (finite, size_of, Const(0.0, DType.F32)), DType.F32, factor.span)
    buffer = Buffer("", DType.F32, tuple(a.extent for a in par), Space.TEMP, d.span)
    return Scale(None, Def("", buffer, par, red, "max", magnitudes, d.guard, d.span), index)


def _needed(d: Def, factor: Expr) -> Expr | None:
    """The conditions of ``d`` without those that hold for every element of ``factor`` in the middle of other axes.

    Those leave out elements for a few results, as a filter that reaches over the border of an image.  All elements
    meet in the results in the middle, so that each of them may have one scale.
    """
    parts = [] if d.guard is None else list(conjuncts(d.guard))
    axes = {a.name: size(a) for a in d.par if a.name not in free_vars(factor)}
    middle = {name: Const(n // 2, DType.I32) for name, n in axes.items() if n is not None}
    ranges = {a.name: (0, max(at_most(a.extent) - 1, 0)) for a in d.axes}
    held = [c for c in parts if not loads(c) and simplify(substitute(c, middle), ranges) == TRUE]
    needed = [c for c in parts if c not in held or not free_vars(c) & middle.keys()]
    return conjunction(needed)


def _scales(e: Expr, ld: Load) -> bool:
    """Whether ``e`` is a product of which ``ld``, or an exponential of it, is a factor.

    A sum of such products runs in the loop of the reduction ``ld``, with running results.  Where ``e`` depends on
    ``ld`` in another way, as a difference of it does, the sum has a loop after that reduction.  A maximum shares it
    where the loop computes elements of a product of matrices, and needs no loop of its own over elements in memory.
    """
    match e:
        case Op(op="mul" | "div" | "neg" | "cast" | "narrow"):
            return all(_scales(a, ld) for a in e.args if ld in loads(a))
        case Op(op="exp" | "exp2", args=(Op(op="add" | "sub", args=terms),)):
            return all(_scales(t, ld) for t in terms if ld in loads(t))
    return e == ld


def _along(ld: Load, factor: Expr, d: Def, defs: Mapping[str, Def]) -> bool:
    """Whether ``ld``, in ``factor``, needs the complete result of a reduction over what ``d`` sums over.

    Such a result reads something that the factor reads along the summed axes.
    """
    made = defs.get(ld.buffer)
    if made is None:
        return False
    red = frozenset(a.name for a in d.red)
    if any(free_vars(e) & red for e in ld.index):
        return any(_reduced_with(x, made, defs, _DEPTH) for x in made.reads())
    return bool(_read_along(factor, red, defs) & _read(made, defs))


def _read_along(e: Expr, axes: frozenset[str], defs: Mapping[str, Def]) -> frozenset[str]:
    """The buffers whose elements ``e`` reads at positions that depend on ``axes``, through definitions as well."""
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [(e, axes)]
    while todo:
        value, along = todo.pop()
        for ld in loads(value):
            at = [k for k, x in enumerate(ld.index) if free_vars(x) & along]
            made = defs.get(ld.buffer)
            own = frozenset(made.par[k].name for k in at) if made is not None else frozenset[str]()
            if at and (ld.buffer, own) not in seen:
                seen.add((ld.buffer, own))
                todo += [(made.value, own)] if made is not None else []
    return frozenset(name for name, _ in seen)


def _read(d: Def, defs: Mapping[str, Def]) -> frozenset[str]:
    """The buffers that ``d`` reads, through definitions as well."""
    found: set[str] = set()
    todo = [d]
    while todo:
        new = {ld.buffer for ld in todo.pop().reads()} - found
        found |= new
        todo += [defs[n] for n in new if n in defs]
    return frozenset(found)


def _reduced_with(ld: Load, reader: Def, defs: Mapping[str, Def], depth: int) -> bool:
    """Whether ``ld``, which the elementwise definition ``reader`` reads, is a reduction over an axis of ``reader``."""
    made = defs.get(ld.buffer)
    if made is None or reader.op is not None:
        return False
    missing = {a.name for a in reader.par} - free_vars(ld)
    return (made.is_reduction and bool(missing)) or depth == 0
