"""What the grid variables of a kernel are in every block of its launch, worked out from the block's number."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import free_vars, loads
from nautilus.ma_tile.ir.ops import MemKernel

Ints = NDArray[np.int64]

BLOCK = "block"


def grid_values(kernel: MemKernel, count: int) -> dict[str, Ints]:
    """Variable -> its value in blocks 0 .. ``count`` - 1; the block's own number too.

    Without the variables that are read from tensors, and without those that depend on them.
    """
    values: dict[str, Ints] = {BLOCK: np.arange(count, dtype=np.int64)}
    for name, e in kernel.decode:
        if not loads(e) and free_vars(e) <= values.keys():
            values[name] = np.broadcast_to(evaluate(e, values), count)
    return values
