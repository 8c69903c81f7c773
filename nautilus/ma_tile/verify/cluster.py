"""Rules of a cluster's barrier, and of stores into another of its blocks.

* Every block arrives equally often: arrivals stand at the top of the kernel, with a wait between one and the next.
  A wait may stand under a condition behind the last arrival, where blocks may part.
* Stores into other blocks stand at the top too, behind a first wait (all blocks run by then), and an arrival that is
  not relaxed announces them; somebody waits for it, so that their target does not end before they are there.
* What they write has bytes of its own but for buffers that lie over it on purpose, and nothing else writes it: who
  reads it needs the wait only.

Which block it is that waits is left to the interpreter.
"""

from __future__ import annotations

from typing import NoReturn

from nautilus.core.errors import VerifyError
from nautilus.ma_tile.ir.ops import ClusterArrive, ClusterWait, IfOp, MemKernel, MemOp, SharedStore, walk_ops
from nautilus.ma_tile.text.printer import format_op
from nautilus.ma_tile.verify.shared import touch


def check_cluster(k: MemKernel) -> None:
    """Raise VerifyError where ``k`` breaks a rule of the module docstring."""
    _order(k)
    for op in walk_ops(k.body):
        if isinstance(op, SharedStore) and op.block is not None:
            _bytes(k, op)


def _reject(op: MemOp, rule: str, detail: str) -> NoReturn:
    raise VerifyError("ma-tile", rule, format_op(op), detail, op.span)


def _is_of_cluster(op: MemOp) -> bool:
    return isinstance(op, ClusterArrive | ClusterWait) or (isinstance(op, SharedStore) and op.block is not None)


def _order(k: MemKernel) -> None:
    """Arrivals, waits and stores at the top of the kernel, in their order."""
    arrived: ClusterArrive | None = None  # and not waited for
    parted: MemOp | None = None  # the condition under which blocks wait
    announced: MemOp | None = None  # the last store that nobody has seen
    met = False
    for op in k.body:
        match op:
            case ClusterArrive():
                if arrived is not None or parted is not None:
                    _reject(op, "a wait of all blocks stands between arrivals", "none since the last one")
                arrived = op
            case ClusterWait():
                if arrived is None:
                    _reject(op, "a wait follows an arrival", "none before it")
                announced = announced if arrived.relaxed else None
                arrived, met = None, True
            case SharedStore(block=block) if block is not None:
                if not met or arrived is not None:
                    _reject(op, "blocks run before others store into them", "no wait stands before it")
                announced = op
            case _:
                if _conditional(op, arrived):
                    assert arrived is not None
                    announced = announced if arrived.relaxed else None
                    arrived, parted = None, op
    if announced is not None:
        _reject(announced, "somebody waits for stores into other blocks", "no arrival and wait behind it")


def _conditional(op: MemOp, arrived: ClusterArrive | None) -> bool:
    """Whether ``op`` is a condition under which blocks wait for ``arrived``; nothing else has parts of a barrier."""
    inside = [x for x in walk_ops((op,)) if _is_of_cluster(x)]
    if not inside:
        return False
    if not isinstance(op, IfOp) or len(inside) > 1 or inside[0] not in op.body:
        _reject(inside[0], "a cluster's barrier stands at the top of a kernel", "it is inside another operation")
    if not isinstance(inside[0], ClusterWait) or arrived is None:
        _reject(inside[0], "blocks part at a wait behind their last arrival", "it is under a condition")
    return True


def _bytes(k: MemKernel, op: SharedStore) -> None:
    """Nothing else shares or writes the bytes of the buffer that ``op`` writes."""
    (own,) = (s for s in k.smem if s.name == op.slot.buffer)
    over = {s.name for s in k.smem if s.over == own.name}
    if own.over is not None or any(own.meets(s) for s in k.smem if s is not own and s.name not in over):
        _reject(op, "other blocks store to bytes of their own", own.name)
    for x in walk_ops(k.body):
        writes = touch(x).writes & {own.name, *over}
        if writes and not (isinstance(x, SharedStore) and x.block is not None):
            _reject(x, "only stores from the cluster write what they write", own.name)
