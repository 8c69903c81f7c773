"""Constants and integer arithmetic written as expressions: positions, sizes, and conditions on them.

Nothing is simplified here: what a pass builds is printed as it was built.
"""

from __future__ import annotations

from nautilus.core.expr.nodes import COMPARISONS, Const, Expr, Op
from nautilus.core.types import DType

_TRUTH = COMPARISONS | {"and", "or", "not"}


def integer(value: int) -> Const:
    """An index constant."""
    return Const(value, DType.I32)


ZERO = integer(0)


def in_compute_type(e: Expr) -> Expr:
    """``e``, an element of a tensor, in the type in which arithmetic is done with it."""
    return e if e.dtype is e.dtype.compute else Op("cast", (e,), e.dtype.compute, e.span)


def number(value: int, dtype: DType) -> Const:
    """``value`` as a constant of the compute type ``dtype``."""
    return Const(float(value) if dtype.is_float else value, dtype)


def calc(name: str, *args: Expr | int) -> Op:
    """Operation ``name`` on 32-bit integers or conditions; a choice has the type of what is chosen."""
    found = tuple(integer(a) if isinstance(a, int) else a for a in args)
    if name == "select":
        return Op(name, found, found[-1].dtype)
    return Op(name, found, DType.BOOL if name in _TRUTH else DType.I32)


def within(e: Expr, extent: Expr | int) -> tuple[Op, Op]:
    """``0 <= e`` and ``e < extent``, in the type of ``e``."""
    end = Const(extent, e.dtype) if isinstance(extent, int) else extent
    return Op("ge", (e, Const(0, e.dtype)), DType.BOOL), Op("lt", (e, end), DType.BOOL)
