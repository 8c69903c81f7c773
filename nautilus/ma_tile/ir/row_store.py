"""The op ``st.rows``: a stage whose rows begin anywhere in memory, stored in vectors that are aligned there.

Meaning.  Every element of the stage is stored at ``index`` where ``where`` holds.  The threads of the role store
together, so that a barrier must lie between a write to the stage and this op.  The last axis of the stage is contiguous
in the tensor, and ``where`` holds on a range of its positions.

A row of the tensor may begin at any multiple of the element's size.  Let ``past`` be the number of elements by which
position 0 of a row lies after a multiple of 16 bytes.  The layout ``threads`` gives a thread vectors of 16 bytes, n
elements, of the stage.  The thread of positions ``c .. c + n - 1``, c above 0, stores ``c - past .. c - past + n - 1``,
which are one aligned vector in memory, made of two vectors of the stage.  The first ``n - past`` positions and the last
``past`` ones are stored one by one by neighbouring threads; so are vectors of which ``where`` holds for a part.  An
access of a warp then writes whole sectors except at the ends of rows.
"""

from __future__ import annotations

from nautilus.core.expr.nodes import Expr, Op, free_vars
from nautilus.core.index.simplify import linear_in
from nautilus.core.op_fields import EXPR, EXPRS, WRITE_MEMORY
from nautilus.core.ops import SPAN, declare, op
from nautilus.core.source import Span
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.values import LAYOUT, MA, READ_SLOT, Slot


@op(MA, "st.rows $slot, $buffer[$index]( where $mask)? threads $threads")
class RowStore:
    """Stores a stage in aligned vectors (module docstring)."""

    slot: Slot = declare(READ_SLOT)
    buffer: str = declare(WRITE_MEMORY)
    index: tuple[Expr, ...] = declare(EXPRS)
    mask: Expr | None = declare(EXPR)
    threads: str = declare(LAYOUT)
    span: Span = SPAN


def is_range(mask: Expr | None, axis: str) -> bool:
    """Whether the positions along ``axis`` at which ``mask`` holds are certain to follow each other."""
    match mask:
        case None:
            return True
        case Op(op="and", args=args):
            return all(is_range(a, axis) for a in args)
        case Op(op="lt" | "le" | "gt" | "ge", args=args):
            return all(linear_in(a, axis) is not None for a in args)
    return axis not in free_vars(mask)


def in_rows(layout: FragLayout, axis: str, vec: int) -> bool:
    """Whether threads have vectors of ``vec`` elements along ``axis``, neighbouring threads neighbouring ones.

    The registers along ``axis`` come before all others.
    """
    first, *rest = layout.reg or (None,)
    if first is None or (first.size, first.axis, first.stride) != (vec, axis, 1):
        return False
    along = [m.axis == axis for m in rest]
    reach = vec
    for m in (*layout.lane, *layout.warp):
        if m.axis == axis and m.size > 1:
            if m.stride != reach:
                return False
            reach *= m.size
    return along == sorted(along, reverse=True)


def threads_along(layout: FragLayout, axis: str) -> int:
    """Threads that share a row along ``axis``."""
    out = 1
    for m in (*layout.lane, *layout.warp):
        out *= m.size if m.axis == axis else 1
    return out
