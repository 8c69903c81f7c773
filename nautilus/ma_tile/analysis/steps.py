"""Loops of steps: their iterations depend on each other, and nothing in them is asynchronous.

A loop of *steps* stores results that depend on earlier iterations: on values that it carries, such as the sum of a scan
so far, or on what it stored, such as the state of a recurrence that several warps exchange.
"""

from __future__ import annotations

from nautilus.ma_tile.ir.ops import (
    Barrier,
    ConstOp,
    ConvertOp,
    ForOp,
    GlobalLoad,
    GlobalStore,
    IfOp,
    IndexOp,
    MapOp,
    ParamOp,
    ReduceOp,
    ScanOp,
    SharedLoad,
    SharedStore,
    SliceOp,
    StackOp,
    UnpackOp,
    walk_ops,
)

_STEP = (
    Barrier, ConstOp, ConvertOp, ForOp, GlobalLoad, GlobalStore, IfOp, IndexOp, MapOp, ParamOp, ReduceOp, ScanOp,
    SharedLoad, SharedStore, SliceOp, StackOp, UnpackOp,
)  # fmt: skip


def is_steps(loop: ForOp) -> bool:
    """Whether ``loop`` is one of steps."""
    inner = list(walk_ops(loop.body))
    results = {x.buffer for x in inner if isinstance(x, GlobalStore) and x.combiner is None}
    in_order = loop.carried or any(isinstance(x, GlobalLoad) and x.buffer in results for x in inner)
    return bool(results and in_order) and loop.chain is None and all(isinstance(x, _STEP) for x in inner)
