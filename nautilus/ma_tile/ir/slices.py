"""The ops ``slice``, ``stack`` and ``window``: parts of a fragment along an axis, and fragments of such parts.

Meaning.  They select registers and move no data: each element stays in its thread.  A slice is as large along the axis
as its type says, or has one position and no such axis; a stack is the inverse of slices of the latter kind.  A window
has the elements of overlapping parts, those of several positions, of which each is in a register once.
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


@op(MA, "window $arg over $axis into $positions $terms by $step $dilation( from $start)?")
class WindowOp:
    """The elements of ``arg`` along ``axis`` in windows: along ``positions``, ``step`` apart, and ``terms`` of each.

    Element (p, t) of the result is that at ``step`` * (p % n) + ``dilation`` * t after ``start`` along ``axis``, and at
    p / n along ``positions``, which ``arg`` has if its windows are those of more than n positions.
    """

    result: Frag = declare(RESULT)
    arg: Frag = declare(OPERAND)
    axis: str = declare(AXIS)
    positions: str = declare(AXIS)
    terms: str = declare(AXIS)
    step: int = declare(INTEGER)
    dilation: int = declare(INTEGER)
    start: int | None = declare(INTEGER, default=None)
    span: Span = SPAN

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """How far positions and terms are apart, the positions along one ``axis``, and the first element."""
        return self.step, self.dilation, self.together, self.start or 0

    @property
    def together(self) -> int:
        """Positions whose windows are along one ``axis``."""
        sizes, apart = ({a.name: a.size for a in f.type.axes} for f in (self.result, self.arg))
        return sizes.get(self.positions, 1) // apart.get(self.positions, 1)
