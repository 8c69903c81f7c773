"""The ops ``slice`` and ``stack``: parts of a fragment along an axis, and the fragment of such parts.

Meaning.  Both select registers and move no data: each element stays in its thread.  A slice is as large along the axis
as its type says, or has one position and no such axis; a stack is the inverse of slices of the latter kind.
"""

from __future__ import annotations

from nautilus.core.op_fields import AXIS, INTEGER, OPERAND, OPERANDS
from nautilus.core.ops import RESULT, SPAN, declare, op
from nautilus.core.source import Span
from nautilus.ma_tile.ir.values import MA, Frag


@op(MA, "slice $arg at $axis $start")
class SliceOp:
    """The part of ``arg`` that starts at ``start`` along ``axis``, as large there as the result.

    A result without ``axis`` has one position.
    """

    result: Frag = declare(RESULT)
    arg: Frag = declare(OPERAND)
    axis: str = declare(AXIS)
    start: int = declare(INTEGER)
    span: Span = SPAN


@op(MA, "stack $args over $axis")
class StackOp:
    """The tile whose part at each position along ``axis``, which the operands lack, is the next one of ``args``."""

    result: Frag = declare(RESULT)
    args: tuple[Frag, ...] = declare(OPERANDS)
    axis: str = declare(AXIS)
    span: Span = SPAN
