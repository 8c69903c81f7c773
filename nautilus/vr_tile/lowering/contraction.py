"""Recognition of contractions among sums of products, by matching scalar expressions.

``sum over K of x`` is a *contraction* if ``x`` is a product whose factors form two groups ``a`` (axes I, K, batch) and
``b`` (axes J, K, batch), where I and J are not empty and both groups have every summed axis.  Factors without summed
axes apply after the sum (``after``).  Every other factor joins a group that has its axes, preferably one that is not a
plain load, because a plain load as operand keeps its storage type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from nautilus.core.expr.infer import make
from nautilus.core.expr.nodes import Const, Expr, Load, Op
from nautilus.core.expr.products import BYTE_TERMS, MOST_FACTORS
from nautilus.core.records import dataclass
from nautilus.core.types import DType

Axes = frozenset[str]
AxesOf = Callable[[Expr], Axes]


@dataclass(frozen=True, slots=True)
class Contraction:
    """``sum over axes of prod(a) * prod(b)``, then each ``after`` (mul, div, neg) applied in order."""

    a: Expr
    b: Expr
    a_axes: Axes
    b_axes: Axes
    axes: Axes
    after: tuple[tuple[str, Expr | None], ...]


def addends(e: Expr) -> list[tuple[bool, Expr]]:
    """The terms of a sum, each with its sign (True: plus)."""
    match e:
        case Op(op="add", args=(x, y)):
            return addends(x) + addends(y)
        case Op(op="sub", args=(x, y)):
            return addends(x) + [(not s, t) for s, t in addends(y)]
    return [(True, e)]


def contraction(e: Expr, summed: Axes, axes_of: AxesOf, vectors: bool = False) -> Contraction | None:
    """``e`` summed over ``summed`` as a contraction, or None. ``vectors``: I or J may be empty."""
    factors, after = _factors(e, summed, axes_of)
    if not 2 <= len(factors) <= MOST_FACTORS:
        return None
    for i, j in combinations(range(len(factors)), 2):
        groups = _grouped(factors, i, j, axes_of)
        if groups is None:
            continue
        a, b = groups
        a_axes, b_axes = axes_of(a), axes_of(b)
        if not summed <= a_axes & b_axes:
            continue
        left, right = a_axes - b_axes, b_axes - a_axes
        if (left and right) or (vectors and (left or right)):
            return Contraction(a, b, a_axes, b_axes, summed, tuple(after))
    return None


def _factors(e: Expr, summed: Axes, axes_of: AxesOf) -> tuple[list[Expr], list[tuple[str, Expr | None]]]:
    """The factors that vary along ``summed``, and the operations that apply to the sum."""
    if not axes_of(e) & summed:
        return [], [("mul", e)]
    match e:
        case Op(op="mul", args=(x, y)):
            fx, ax = _factors(x, summed, axes_of)
            fy, ay = _factors(y, summed, axes_of)
            return fx + fy, ax + ay
        case Op(op="neg", args=(x,)):
            fx, ax = _factors(x, summed, axes_of)
            return fx, [*ax, ("neg", None)]
        case Op(op="div", args=(x, y)) if not axes_of(y) & summed:
            fx, ax = _factors(x, summed, axes_of)
            return fx, [*ax, ("div", y)]
    return [e], []


def _grouped(factors: Sequence[Expr], i: int, j: int, axes_of: AxesOf) -> tuple[Expr, Expr] | None:
    """Two groups with factors ``i`` and ``j``, to which every other factor is multiplied; None if one fits neither."""
    a, b = factors[i], factors[j]
    for k, f in enumerate(factors):
        if k in (i, j):
            continue
        fits_a, fits_b = axes_of(f) <= axes_of(a), axes_of(f) <= axes_of(b)
        if fits_a and (not fits_b or not is_plain(a) or is_plain(b)):
            a = make("mul", a, f)
        elif fits_b:
            b = make("mul", b, f)
        else:
            return None
    return a, b


def is_plain(e: Expr) -> bool:
    """Whether ``e`` is a loaded element, possibly with conversions: an operand without arithmetic."""
    while isinstance(e, Op) and e.op in ("cast", "narrow"):
        e = e.args[0]
    return isinstance(e, Load)


def stripped(e: Expr) -> Expr:
    """``e`` without exact conversions to its compute type, which is the operand in its storage type.

    An integer of fewer bits needs no compute type: the product of two of them in i64 is one instruction.
    """
    while isinstance(e, Op) and e.op == "cast":
        inner = e.args[0]
        same_kind = inner.dtype.is_float == e.dtype.is_float and inner.dtype.is_int == e.dtype.is_int
        exact = inner.dtype.compute is e.dtype or e.dtype is DType.I64
        if isinstance(inner, Const) or not same_kind or not exact:
            break
        e = inner
    return e


def stored(c: Contraction) -> tuple[Expr, Expr]:
    """The operands of ``c`` in their storage type if they have the same one, else in a compute type."""
    x, y = stripped(c.a), stripped(c.b)
    if x.dtype is y.dtype:
        return x, y
    if c.a.dtype is DType.I64 and x.dtype.compute is y.dtype.compute:
        return Op("cast", (x,), x.dtype.compute, x.span), Op("cast", (y,), y.dtype.compute, y.span)
    return c.a, c.b


def integers(c: Contraction, terms: int) -> tuple[Expr, Expr] | None:
    """The operands of ``c`` as i32 where they are 8-bit integers in f32 whose sum is scaled before it is added.

    The sum of ``terms`` products is exact in i32; a running sum in f32 would round each addition.
    """
    sides = [_integer(e) for e in (c.a, c.b)]
    if not c.after or c.a.dtype is not DType.F32 or terms > BYTE_TERMS or sides[0] is None or sides[1] is None:
        return None
    x, y = (stripped(e) for e in sides if e is not None)
    return (x, y) if x.dtype is y.dtype else (sides[0], sides[1])


def _integer(e: Expr) -> Expr | None:
    """The 8-bit integer of a tensor that ``e`` converts to f32, as i32."""
    match e:
        case Op(op="cast", args=(Load(dtype=DType.I8 | DType.U8) as ld,)):
            return Op("cast", (ld,), DType.I32, e.span)
    return None
