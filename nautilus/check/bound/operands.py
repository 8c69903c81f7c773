"""The operands of sums of products, as matrix units read them."""

from __future__ import annotations

from typing import Final

from nautilus.core.expr.nodes import Expr, Load, Op, Reduce, free_vars
from nautilus.core.expr.products import factors, matrix_products
from nautilus.core.index.groups import quotients
from nautilus.core.records.memo import by_identity
from nautilus.core.types import DType
from nautilus.targets.limits import SHORT_DEPTH

#: Functions that may be applied to a product, or to a factor of one.
AROUND: Final = frozenset({"cast", "neg", "select"})


@by_identity(1 << 8)
def multiplies(e: Reduce) -> bool:
    """Whether ``e`` is a sum of products of which two factors have an index each that the other lacks."""
    summed = {a.name for a in e.axes}
    parts = [f for f in factors(e.body, AROUND) if free_vars(f) & summed]
    return any(matrix_products(parts, frozenset[str]().union(*map(free_vars, parts)) - summed))


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
