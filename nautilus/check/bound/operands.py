"""The operands of sums of products, as matrix units read them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from math import prod
from typing import Final

from nautilus.core.expr.nodes import Const, Expr, Load, Op, Reduce, Var, free_vars, walk
from nautilus.core.expr.products import factors, matrix_products, product_factors
from nautilus.core.index.groups import quotients
from nautilus.core.records.memo import by_identity
from nautilus.core.types import DType
from nautilus.frontend.spec import Spec
from nautilus.targets.limits import SHORT_DEPTH

_ROW: Final = 1024  # elements along an axis, at least, that lanes share
#: Functions that may be applied to a product, or to a factor of one.
AROUND: Final = frozenset({"cast", "neg", "select"})


@by_identity(1 << 8)
def multiplies(e: Reduce) -> bool:
    """Whether ``e`` is a sum of products of which two factors have an index each that the other lacks."""
    summed = {a.name for a in e.axes}
    parts = [f for f in factors(e.body, AROUND) if free_vars(f) & summed]
    return any(matrix_products(parts, frozenset[str]().union(*map(free_vars, parts)) - summed))


@by_identity(8)
def without_matrices(spec: Spec) -> frozenset[str]:
    """The definitions of which no matrix unit computes a sum: products of a matrix and a vector, or of vectors.

    Every position is a variable or a number, because rows that share a quotient may be packed, and windows may be.
    Of two such products in a row none counts (``scalar.passes.axes.add_unit_axes``), and none beside a recurrence.
    """
    products = {
        d.name: [e for e in walk(d.expr) if isinstance(e, Reduce) and e.op == "sum" and _has_factors(e.body)]
        for d in spec.definitions
        if d.recurrence is None
    }
    if len(products) < len(spec.definitions):
        return frozenset()
    needs: dict[str, frozenset[str]] = {}
    for d in spec.definitions:
        read = {e.buffer for e in walk(d.expr) if isinstance(e, Load)}
        needs[d.name] = frozenset(read).union(*(needs[n] for n in read if n in needs))
    vectors = {n for n, found in products.items() if found and not any(map(multiplies, found))}

    def alone(name: str) -> bool:
        others = vectors - {name}
        return len(products[name]) == 1 and not (needs[name] & others or any(name in needs[n] for n in others))

    return frozenset(n for n in vectors if alone(n) and _is_plain(products[n][0].body))


@by_identity(8)
def in_lanes(spec: Spec) -> frozenset[str]:
    """The definitions with a sum that the lanes of a warp share: each lane adds a part of it at the same time.

    They are sums of all elements, which leave no other axis for lanes, and sums along rows whose lanes read neighbours,
    unless matrix units determine where the elements lie.
    """
    sums = {d.name: [e for e in walk(d.expr) if isinstance(e, Reduce) and e.op == "sum"] for d in spec.definitions}
    plain = not any(d.recurrence is not None for d in spec.definitions) and not any(
        multiplies(e) for found in sums.values() for e in found
    )
    total = {d.name for d in spec.definitions if not d.axes and d.recurrence is None}
    return frozenset(n for n, found in sums.items() if n in total or (plain and found and all(map(_is_row, found))))


def _is_row(e: Reduce) -> bool:
    """Whether each element that ``e`` reads for its terms lies beside the next one along a long row of the sum.

    Last axes that are all summed are one row: those of the pixels of an image, and of its channels.
    """
    over = {a.name: a.extent for a in e.axes if isinstance(a.extent, int)}
    read = [n for n in walk(e.body) if isinstance(n, Load) and free_vars(n) & {a.name for a in e.axes}]
    return bool(read) and e.cond is None and all(_length(n.index, over) >= _ROW for n in read)


@by_identity(1 << 8)
def is_strided(e: Reduce) -> bool:
    """Whether no element that ``e`` reads for its terms lies beside that of the next term, as in sums of columns."""
    over = {a.name for a in e.axes}
    read = [n for n in walk(e.body) if isinstance(n, Load) and n.index and free_vars(n) & over]
    return bool(read) and not any(free_vars(n.index[-1]) & over for n in read)


def _length(index: tuple[Expr, ...], over: Mapping[str, int]) -> int:
    """The elements of the last positions of ``index`` that are variables of a sum alone, which has them ``over``."""
    mine = list(takewhile(lambda i: isinstance(i, Var) and i.name in over, reversed(index)))
    return prod(over[i.name] for i in mine if isinstance(i, Var)) if mine else 0


def _has_factors(e: Expr) -> bool:
    return len(factors(e, AROUND)) > 1


def _is_plain(e: Expr) -> bool:
    return all(isinstance(i, Var | Const) for n in walk(e) if isinstance(n, Load) for i in n.index)


def operand_type(e: Expr) -> DType | None:
    """The type in which a factor reaches the arithmetic, if it is a load or was narrowed."""
    while isinstance(e, Op) and e.op in ("cast", "select", "neg"):
        e = e.args[1] if e.op == "select" else e.args[0]
    if isinstance(e, Load) or (isinstance(e, Op) and e.op == "narrow"):
        return e.dtype
    return None


def unscaled_factors(e: Reduce, parts: list[Expr]) -> list[Expr]:
    """``parts`` without what the terms of a short sum share, where the others are two tensors of 8-bit floats."""
    rest = [f for f in parts if not _is_shared(f, e)]
    return rest if len(rest) == 2 and all((t := operand_type(f)) is not None and t.is_float8 for f in rest) else parts


def _is_shared(f: Expr, e: Reduce) -> bool:
    """Whether neighbours along a summed axis, as many as a short sum has or a multiple, have the same ``f``."""
    used = free_vars(f)
    if any(a.name not in used and isinstance(a.extent, int) and a.extent % SHORT_DEPTH == 0 for a in e.axes):
        return True
    return all(n and n % SHORT_DEPTH == 0 for a in e.axes for n in quotients(f, a.name))


@by_identity(1 << 8)  # the same for all inputs
def engine_of(e: Reduce) -> DType | None:
    """The type of both operands if tensor cores may compute the sum of products ``e``, else None."""
    parts = product_factors(e) or (factors(e.body, AROUND) if multiplies(e) else [])  # 0 under a condition
    types = [operand_type(f) for f in unscaled_factors(e, parts)]
    known = [t for t in types if t is not None]
    short = len(known) == len(types) and all(t.bits <= 16 or t is DType.TF32 for t in known)
    return max(known, key=lambda t: t.bits) if known and short else None
