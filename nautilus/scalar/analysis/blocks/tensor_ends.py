"""Ends of ranges that are read from tensors: ``j < len[b]``, ``start[b] <= j``, ``j - i <= len[b] - M``.

A *value* is the largest part of one side of a comparison that reads tensors and does not depend on the loop.  It is
any integer of its type.  :func:`with_names` replaces each value by a name, so that a comparison is linear in index
variables and names, and :func:`ends` gives what a name stands for in a form ``c * name + rest >= 0``:

* One name: the value, clamped to where it decides.  ``rest`` has known bounds, so every value beyond them decides as
  the bound does, and the clamped value is exact for any contents of the tensor.
* A side is ``part of index variables + value``, and such a sum wraps in its type.  Where the value is so large that a
  sum of it may wrap, nothing is concluded: the form holds if blocks are asked for that can be live, and does not hold
  if full ones are.
* Two names: the same, with one limit for both values.

A value that depends on tile variables is replaced by its greatest or least element over the tile, if it has at most
:data:`MOST` different values: so the rows of a tile may have ranges of their own.

Positions of a read are clamped to the tensor, because a bound is computed where a condition around the comparison may
not hold.  Only what stands there before the kernel is read, at positions that depend on grid variables: such a value is
the same for a whole block.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import (
    COMPARISONS,
    Const,
    Expr,
    Load,
    Op,
    Var,
    children,
    details,
    free_vars,
    loads,
    rewrite,
    substitute,
    with_children,
)
from nautilus.core.index.linear import ZERO, Linear, build, divided, linear
from nautilus.core.index.linear_bounds import Ranges, bounds
from nautilus.core.index.simplify import simplify
from nautilus.core.index.sizes import Extent, as_extent, extent_expr
from nautilus.core.records import dataclass
from nautilus.core.records.memo import within_compilation
from nautilus.core.types import INDEX_TYPES, DType, integer_limits

_END = "%end"  # names of values begin so
MOST = 32  # different values of the points of a tile, each of which is read
_TRIED = 512  # points of a tile
_LIMIT = 1 << 28  # largest magnitude of two values in one comparison, and of what stands beside them


@dataclass(frozen=True, slots=True)
class Readable:
    """What a bound may read: tensors of ``shapes`` that stand there before the kernel, at positions made of the grid
    variables of ``extents``.
    """

    shapes: Mapping[str, tuple[Extent, ...]]
    extents: Mapping[str, Expr]


@dataclass(frozen=True, slots=True)
class Value:
    """What a name stands for: ``expr``, beside ``index`` in a sum that wraps in its type (None: alone).

    ``partner``: the name on the other side of the comparison.
    """

    expr: Expr
    index: Linear | None
    partner: str | None = None


Values = Mapping[str, Value]
Limits = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Side:
    index: Linear
    value: Value | None


def with_names(c: Expr, var: str, tiles: frozenset[str], readable: Readable) -> tuple[Expr, Values]:
    """Condition ``c`` with a name for each value in it, in a loop over ``var`` with variables ``tiles`` inside."""
    found: dict[str, Value] = {}

    def visit(e: Expr) -> Expr:
        if isinstance(e, Op) and e.op in COMPARISONS and e.args[0].dtype in INDEX_TYPES and loads(e):
            return _named(e, found, var, tiles, readable)
        return with_children(e, tuple(map(visit, children(e)))) if isinstance(e, Op) else e

    return (visit(c), found) if loads(c) else (c, found)


def _named(e: Op, found: dict[str, Value], var: str, tiles: frozenset[str], readable: Readable) -> Expr:
    sides = [_side(a, var, tiles, readable) for a in e.args]
    a, b = sides
    if a is None or b is None or not (a.value or b.value):
        return e
    first = 1 + max((int(name.removeprefix(_END)) for name in found), default=-1)
    names = [f"{_END}{first + n}" for n in range(2)]  # one of them may have no value, so their number is none of a name
    args: list[Expr] = []
    for n, side in enumerate((a, b)):
        total = build(side.index, DType.I32)
        if side.value is not None:
            partner = names[1 - n] if sides[1 - n].value is not None else None  # type: ignore[union-attr]
            found[names[n]] = Value(side.value.expr, side.value.index, partner)
            total = calc("add", total, Var(names[n]))
        args.append(total)
    return Op(e.op, tuple(args), e.dtype, e.span)


def _side(e: Expr, var: str, tiles: frozenset[str], readable: Readable) -> _Side | None:
    """One side of a comparison as a part of index variables and a value; None: it is not of that form."""
    if loads(e) and not free_vars(e) & {var, *tiles}:
        return _Side(Linear({}), Value(e, None)) if _reads(e, tiles, readable) else None
    if not loads(e):
        return _Side(divided(e), None)
    terms = linear(e)
    index = Linear({a: c for a, c in terms.terms.items() if not loads(a)}, terms.const)
    rest = Linear({a: c for a, c in terms.terms.items() if loads(a)})
    value = build(rest, e.dtype)
    if not _reads(value, tiles, readable):
        return None
    index = divided(build(index, e.dtype))
    return _Side(index, Value(value, index if index.terms or index.const else None))


def _reads(e: Expr, tiles: frozenset[str], readable: Readable) -> bool:
    """Whether a bound may be computed from ``e``, for all points of a tile where it has tile variables."""
    readings = all(ld.buffer in readable.shapes and ld.dtype.is_int for ld in loads(e))
    return readings and free_vars(e) <= readable.extents.keys() | tiles


def ends(
    form: Linear, values: Values, tiles: Mapping[str, int], ranges: Ranges, readable: Readable, *, upper: bool
) -> dict[str, tuple[Expr, Limits]] | None:
    """What each name in ``form`` stands for, and its bounds, where ``form >= 0`` is asked (module docstring).

    ``tiles``: sizes of tile variables; ``ranges``: of all index variables; ``upper``: for live blocks, else for full
    ones.  None: nothing can be concluded.
    """
    names = [a.name for a in form.terms if isinstance(a, Var) and a.name in values]
    rest = Linear({a: c for a, c in form.terms.items() if not (isinstance(a, Var) and a.name in values)}, form.const)
    if len(names) > 2 or any(free_vars(a) & values.keys() for a in rest.terms):
        return None
    out: dict[str, tuple[Expr, Limits]] = {}
    for name in names:
        value, sign = values[name], form.coeff(name)
        if abs(sign) != 1 or (value.partner in names) != (len(names) == 2):
            return None
        found = _alone(value, rest, sign, ranges) if len(names) == 1 else _beside(value, values, rest, ranges)
        if found is None:
            return None
        span, fits = found
        greatest = (sign > 0) == upper
        over = _over_tile(_end(value.expr, span, fits, greatest), tiles, greatest)
        if over is None:
            return None
        out[name] = reads_inside(over, ranges, readable), span
    return out


def _alone(value: Value, rest: Linear, sign: int, ranges: Ranges) -> tuple[Limits, Expr | None] | None:
    """Where ``value`` decides on ``sign * value + rest >= 0``, and when no sum with it wraps (None: always)."""
    low, high = bounds(rest, ranges)
    if low is None or high is None:
        return None
    span = (-high - 1, -low) if sign > 0 else (low, high + 1)  # at one end it never holds, at the other one always
    least, most = integer_limits(DType.I32)
    if not least < span[0] <= span[1] < most:
        return None
    if value.index is None:
        return span, None
    low, high = bounds(value.index, ranges)
    if low is None or high is None:
        return None
    least, most = integer_limits(value.expr.dtype)
    return span, _within(value.expr, least - min(low, 0), most - max(high, 0))


def _beside(value: Value, values: Values, rest: Linear, ranges: Ranges) -> tuple[Limits, Expr | None] | None:
    """The limits and the condition of ``value`` where a value is on the other side of the comparison too."""
    span, other = (-_LIMIT, _LIMIT), values[value.partner or ""]
    for x in (rest, value.index or ZERO, other.index or ZERO):
        low, high = bounds(x, ranges)
        if low is None or high is None or max(-low, high) > _LIMIT:
            return None
    return span, calc("and", _within(value.expr, *span), _within(other.expr, *span))


def _within(e: Expr, low: int, high: int) -> Expr:
    return calc("and", calc("ge", e, Const(low, e.dtype)), calc("le", e, Const(high, e.dtype)))


def _end(e: Expr, span: tuple[int, int], fits: Expr | None, greatest: bool) -> Expr:
    """``e`` clamped to ``span``, as i32; the end of ``span`` that decides where it does not ``fit``."""
    low, high = span
    out: Expr = Op("min", (Op("max", (e, Const(low, e.dtype)), e.dtype), Const(high, e.dtype)), e.dtype)
    if e.dtype is not DType.I32:
        out = Op("cast", (out,), DType.I32)
    if fits is None:
        return out
    return Op("select", (fits, out, integer(high if greatest else low)), DType.I32)


def _over_tile(e: Expr, tiles: Mapping[str, int], greatest: bool) -> Expr | None:
    """The greatest (least) ``e`` over the tile variables in it; None where they have too many points."""
    names = sorted(free_vars(e) & tiles.keys())
    sizes = tuple([tiles[n] for n in names])
    if not all(sizes) or prod(sizes) > _TRIED:
        return None
    return _over_points(e, details(e), tuple(zip(names, sizes, strict=True)), greatest)


@within_compilation(256)  # conditions around each other ask for the ends of one value, and so do plans of equal tiles
def _over_points(
    e: Expr, about: tuple[object, ...], sizes: tuple[tuple[str, int], ...], greatest: bool
) -> Expr | None:  # fmt: skip
    """The greatest (least) ``e`` over variables of ``sizes``; ``about``: what equal expressions may differ in."""
    found: dict[Expr, None] = {}
    for place in product(*(range(n) for _, n in sizes)):
        at = {name: integer(n) for (name, _), n in zip(sizes, place, strict=True)}
        found[simplify(substitute(e, at))] = None  # positions i // 64 have few values
        if len(found) > MOST:
            return None
    points = list(found)
    while len(points) > 1:
        pairs = [
            Op("max" if greatest else "min", (a, b), e.dtype) for a, b in zip(points[::2], points[1::2], strict=False)
        ]
        points = [*pairs, *points[len(pairs) * 2 :]]
    return points[0]


def reads_inside(e: Expr, ranges: Ranges, readable: Readable) -> Expr:
    """``e`` with the positions of its reads clamped to the tensors; a tensor without elements is not read."""

    def rule(n: Expr) -> Expr | None:
        if not isinstance(n, Load):
            return None
        index: list[Expr] = []
        empty: list[Expr] = []
        for i, size in zip(n.index, readable.shapes[n.buffer], strict=True):
            low, high = bounds(divided(i), ranges)
            if isinstance(i, Var) and as_extent(readable.extents[i.name]) == size:
                index.append(i)
                continue
            inside = isinstance(size, int) and low is not None and low >= 0 and high is not None and high < size
            index.append(i if inside else calc("max", calc("min", i, calc("sub", extent_expr(size), 1)), 0))
            empty += [] if isinstance(size, int) else [calc("le", size, 0)]
        read: Expr = with_children(n, tuple(index))
        dtype = n.dtype.compute  # only an element has another type, which its reader converts
        if empty and n.dtype is not dtype:
            read = Op("cast", (read,), dtype)
        zero = Const(0.0 if dtype.is_float else 0 if dtype.is_int else False, dtype)
        for none in empty:
            read = calc("select", none, zero, read)
        return read

    return rewrite(e, rule)
