"""What the grid variables of a kernel are in every block of its launch, worked out from the block's number."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from nautilus.core.expr import Const, Expr, Op, Var
from nautilus.core.numerics import eval_op
from nautilus.memory.ops import MemKernel

Ints = NDArray[np.int64]

BLOCK = "block"


def grid_values(kernel: MemKernel, count: int) -> dict[str, Ints]:
    """Variable -> its value in blocks 0 .. ``count`` - 1; the block's own number too."""
    values: dict[str, Ints] = {BLOCK: np.arange(count, dtype=np.int64)}
    for name, e in kernel.decode:
        values[name] = np.broadcast_to(value(e, values), count)
    return values


def value(e: Expr, values: Mapping[str, Ints]) -> Ints:
    """An integer expression of the variables in ``values``, for all blocks at once. Raises KeyError for another."""
    match e:
        case Const(value=number):
            return np.asarray(number)
        case Var(name=name):
            return values[name]
        case Op(op=op, args=args, dtype=dtype):
            return eval_op(op, [value(a, values) for a in args], dtype, "typed")
    raise KeyError(str(e))
