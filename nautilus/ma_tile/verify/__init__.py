"""The verifier of MA-tile IR, which rejects what no rule allows."""

from __future__ import annotations

from typing import NoReturn

from nautilus.core.errors import VerifyError
from nautilus.core.source import NO_SPAN, Span
from nautilus.ma_tile.ir.ops import MemOp
from nautilus.ma_tile.text import format_op

LEVEL = "ma-tile"


def reject(rule: str, node: str, detail: str, span: Span = NO_SPAN) -> NoReturn:
    """Raise the VerifyError of this level."""
    raise VerifyError(LEVEL, rule, node, detail, span)


def reject_op(op: MemOp, rule: str, detail: str) -> NoReturn:
    """Raise the VerifyError for ``op``."""
    reject(rule, format_op(op), detail, op.span)
