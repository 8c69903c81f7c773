"""Index expressions in the model: what they are where sizes and elements of tensors are not known.

A runtime size has its nominal value.  A loop between ends that are read from tensors is taken as long as it may be, so
a length counts as the whole range: what the lengths of a caller are is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Expr, Load, Param, free_vars
from nautilus.core.index.sizes import nominal_size
from nautilus.core.types import DType, integer_limits
from nautilus.ma_tile.ir.ops import ForOp, MemKernel, walk_ops


def estimated(e: Expr, env: Mapping[str, Any]) -> Any:
    """``e`` at the values of ``env``; runtime sizes have their nominal value, values from memory a placeholder."""
    return evaluate(e, env, _placeholder)


def _placeholder(e: Expr) -> Any:
    return np.asarray(True if e.dtype is DType.BOOL else nominal_size(e) if isinstance(e, Param) else 0)


def starts_of(kernel: MemKernel) -> frozenset[str]:
    """Variables with which a loop begins, and that do not end an earlier one."""
    starts, ends = set[str](), set[str]()
    for op in walk_ops(kernel.body):
        if isinstance(op, ForOp):
            starts |= free_vars(op.lo) - ends
            ends |= free_vars(op.hi) - starts
    return frozenset(starts)


def longest(e: Expr, env: Mapping[str, Any], *, starts: bool) -> Any:
    """``e`` where every element that it reads is the least integer, if a loop ``starts`` at it, else the greatest."""
    least, most = integer_limits(DType.I32)

    def read(n: Expr) -> Any:
        return np.asarray(least if starts else most) if isinstance(n, Load) else _placeholder(n)

    return evaluate(e, env, read)
