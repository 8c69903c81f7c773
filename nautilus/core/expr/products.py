"""Products and sums: their factors and terms, and which variables each of two factors has alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations

from nautilus.core.expr.nodes import Expr, Op, Reduce, free_vars
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity
from nautilus.core.types import holds

MOST_FACTORS = 64  # a product of more is no matrix product, and comparing each factor with the others is quadratic
BYTE_TERMS = 1 << 15  # products of two 8-bit integers whose sum is below 2^31


def factors(e: Expr, through: Collection[str] = ()) -> list[Expr]:
    """The operands of a product, left to right; ``e`` alone where it is none.

    ``through``: functions whose argument may be a product itself, such as conversions; of a select, that is the value
    which it chooses if its condition is true.
    """
    match e:
        case Op(op="mul", args=(a, b)):
            return factors(a, through) + factors(b, through)
        case Op(op=op, args=args) if op in through:
            return factors(args[1 if op == "select" else 0], through)
    return [e]


@by_identity(1 << 8)
def product_factors(e: Reduce) -> list[Expr] | None:
    """The factors of an unconditional sum of products with at least two factors; else None.

    None too for a product of many factors, which may be a few values, squared again and again, that are computed once.
    """
    if e.op != "sum" or e.cond is not None:
        return None
    out = factors(e.body)
    return out if 1 < len(out) <= MOST_FACTORS and all(free_vars(f) for f in out) else None


def signed_terms(e: Expr, negative: bool = False) -> list[tuple[Expr, bool]]:
    """The operands of additions, subtractions and signs in ``e``, left to right, with whether they are subtracted.

    ``negative``: whether ``e`` itself is.
    """
    match e:
        case Op(op="add" | "sub" as name, args=(a, b)):
            return signed_terms(a, negative) + signed_terms(b, negative != (name == "sub"))
        case Op(op="neg", args=(a,)):
            return signed_terms(a, not negative)
    return [(e, negative)]


def indexed_factors(e: Expr) -> list[Expr]:
    """The factors of ``e`` that depend on an index, also under conversions and signs."""
    return [f for f in factors(e, ("cast", "neg")) if free_vars(f)]


def product_of(parts: Sequence[Expr]) -> Expr:
    """The product of one or more factors, from left to right."""
    total = parts[0]
    for f in parts[1:]:
        total = Op("mul", (total, f), f.dtype)
    return total


def two_sides(
    parts: Sequence[Expr], parallel: Collection[str], reduced: Collection[str], groups: Sequence[frozenset[str]] = ()
) -> Iterator[tuple[Expr, Expr]]:
    """The factors ``parts`` of a matrix product as two: those of its rows, and those of its columns.

    No factor has an axis of the rows and one of the columns, and both sides have one of ``reduced``.  Factors without
    either belong to the second side, or in a further form of the product to the first one.  Nothing where the product
    has no such sides.  ``groups``: for each factor, the axes that it has in groups, which do not count.
    """
    used = [free_vars(p) - g for p, g in zip(parts, groups or [frozenset[str]()] * len(parts), strict=True)]
    axes = [a for a in parallel if any(a in u for u in used)]
    for x, y in combinations(axes, 2):
        place = [(x in u, y in u) for u in used]
        names = [frozenset[str]().union(*(u for u, at in zip(used, place, strict=True) if at[n])) for n in (0, 1)]
        if (True, True) in place or not names[0] & names[1] & {*reduced}:
            continue
        n = int(next((at[1] for at in place if any(at)), False))  # the side of the first factor with one is the first
        for rest in (1, 0) if (False, False) in place else (1,):
            sides = [[p for p, at in zip(parts, place, strict=True) if at[k] or (rest == m and not any(at))]
                     for m, k in enumerate((n, 1 - n))]  # fmt: skip
            yield product_of(sides[0]), product_of(sides[1])
        return


def strip_conversions(e: Expr) -> Expr:
    """``e`` without the conversions around it, which may change values: for its structure and its places."""
    while isinstance(e, Op) and e.op in ("cast", "narrow"):
        e = e.args[0]
    return e


def strip_lossless_conversions(e: Expr) -> Expr:
    """``e`` without the conversions around it; ``e`` itself where one of them, but for ``narrow``, changes values.

    ``f32(i32(x))`` of a float is no element of ``x``.
    """
    inner, at = strip_conversions(e), e
    while isinstance(at, Op) and at is not inner:
        if at.op == "cast" and not holds(at.dtype, inner.dtype):
            return e
        at = at.args[0]
    return inner


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """``rows`` and ``columns``: parallel axes of the first and of the second factor alone; ``shared``: of both."""

    rows: frozenset[str]
    columns: frozenset[str]
    shared: frozenset[str]


def matrix_product(e: Expr, parallel: Collection[str]) -> MatrixProduct | None:
    """The axes of the factors of ``e``; None unless it is a product that has rows and columns in ``parallel``."""
    if not (isinstance(e, Op) and e.op == "mul"):
        return None
    left, right = map(free_vars, e.args)
    rows, columns = (left - right).intersection(parallel), (right - left).intersection(parallel)
    return MatrixProduct(rows, columns, left & right) if rows and columns else None


def matrix_products(parts: Sequence[Expr], parallel: Collection[str]) -> Iterator[MatrixProduct]:
    """The pairs among the factors ``parts`` that are a matrix product, one for each two sets of variables."""
    kinds = {free_vars(p): p for p in reversed(parts)}
    pairs = (matrix_product(product_of(pair), parallel) for pair in combinations(reversed(kinds.values()), 2))
    return (p for p in pairs if p is not None)
