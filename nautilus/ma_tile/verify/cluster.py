"""Rules of the cluster barrier, and of stores into another block of the cluster.

* Every block arrives equally often: arrivals stand at the top level of the kernel, with a wait between two arrivals.
  Only a wait after the last arrival may stand under a condition.
* Stores into other blocks stand at the top level too, after a first wait, because all blocks run by then.  An arrival
  that is not relaxed and a wait follow them, so that the destination block does not end before the stores complete.
* The destination buffer shares bytes only with buffers that are declared over it, and has no other writer.  Its readers
  therefore need the wait only.

The interpreter checks which block waits.

A block that is spread over the blocks of a cluster (``MemKernel.spread``) has no shared memory, because each of them
has its own.  Its ops are those that threads do by themselves, and barriers of a warp or of all threads.

Blocks that are packed (``MemKernel.packed``) are single warps that do nothing together.

All blocks of a team come to each of its barriers, because no way to one depends on the block.
"""

from __future__ import annotations

from nautilus.core.expr.nodes import Const, Load, Ref, free_vars, walk
from nautilus.ma_tile.analysis.consumers import OF_WARPS, is_packable
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.ops import ClusterArrive, ClusterWait, IfOp, MemKernel, MemOp, SharedStore, walk_ops
from nautilus.ma_tile.verify import reject, reject_op
from nautilus.ma_tile.verify.shared import touch
from nautilus.targets.limits import Limits

_OF_THREADS = (*OF_WARPS, ma.Barrier)


def check_cluster(k: MemKernel) -> None:
    """Raise VerifyError where ``k`` breaks a rule of the module docstring."""
    _order(k)
    for op in walk_ops(k.body):
        if isinstance(op, SharedStore) and op.block is not None:
            _bytes(k, op)


def _is_of_cluster(op: MemOp) -> bool:
    return isinstance(op, ClusterArrive | ClusterWait) or (isinstance(op, SharedStore) and op.block is not None)


def _order(k: MemKernel) -> None:
    """Check the order of arrivals, waits and stores at the top level of the kernel."""
    arrived: ClusterArrive | None = None  # an arrival without a wait so far
    conditional: MemOp | None = None  # the condition of the last wait
    unseen: MemOp | None = None  # the last store without an arrival and a wait after it
    waited = False
    for op in k.body:
        match op:
            case ClusterArrive():
                if arrived is not None or conditional is not None:
                    reject_op(
                        op, "a cluster wait stands between two arrivals", "there is no wait since the last arrival"
                    )
                arrived = op
            case ClusterWait():
                if arrived is None:
                    reject_op(op, "a cluster wait follows an arrival", "no arrival stands before it")
                unseen = unseen if arrived.relaxed else None
                arrived, waited = None, True
            case SharedStore(block=block) if block is not None:
                if not waited or arrived is not None:
                    reject_op(op, "a store into another block follows a cluster wait", "no wait stands before it")
                unseen = op
            case _:
                if _conditional(op, arrived):
                    assert arrived is not None
                    unseen = unseen if arrived.relaxed else None
                    arrived, conditional = None, op
    if unseen is not None:
        reject_op(unseen, "an arrival and a wait follow the stores into other blocks", "no arrival and wait follow it")


def _conditional(op: MemOp, arrived: ClusterArrive | None) -> bool:
    """Whether ``op`` is a condition with a wait for ``arrived``. Rejects every other nested op of the cluster."""
    inside = [x for x in walk_ops((op,)) if _is_of_cluster(x)]
    if not inside:
        return False
    if not isinstance(op, IfOp) or len(inside) > 1 or inside[0] not in op.body:
        reject_op(inside[0], "a cluster barrier stands at the top level of a kernel", "it is inside another operation")
    if not isinstance(inside[0], ClusterWait) or arrived is None:
        reject_op(inside[0], "a conditional cluster wait follows the last arrival", "it is under a condition")
    return True


def _bytes(k: MemKernel, op: SharedStore) -> None:
    """Check that no other op writes the destination of ``op``, and that it shares no bytes."""
    (own,) = (s for s in k.smem if s.name == op.slot.buffer)
    over = {s.name for s in k.smem if s.over == own.name}
    if own.over is not None or any(own.overlaps(s) for s in k.smem if s is not own and s.name not in over):
        reject_op(op, "the target of a store into another block shares no bytes", own.name)
    for x in walk_ops(k.body):
        writes = touch(x).writes & {own.name, *over}
        if writes and not (isinstance(x, SharedStore) and x.block is not None):
            reject_op(x, "a buffer that other blocks store to has no other writer", own.name)


def check_team(k: MemKernel) -> None:
    """Raise VerifyError where the teams of ``k`` are not whole, or not all of their blocks come to each barrier."""
    barriers = [op for op in walk_ops(k.body) if isinstance(op, ma.Barrier) and op.team]
    if k.team == 1:
        return
    node = f"kernel {k.name}"
    known = isinstance(k.blocks, Const) and int(k.blocks.value) % k.team == 0
    if not known or k.cluster != 1 or k.spread != 1 or k.consumers != 1 or k.min_blocks < 1:
        reject("the teams of a launch are whole, and their number is known", node, f"teams of {k.team}", k.span)
    own = {name for name, e in k.decode if "block" in free_vars(e)} | {"block"}
    for op in walk_ops(k.body):
        inside = isinstance(op, IfOp | ma.ForOp | ma.RolesOp | ma.TileSchedulerOp) and any(
            x is b for x in walk_ops((op,)) for b in barriers
        )
        apart = not isinstance(op, ma.ForOp) or own & (free_vars(op.lo) | free_vars(op.hi)) or _reads(op)
        if inside and apart:
            reject_op(op, "all blocks of a team come to each of its barriers", "its blocks may take other ways here")


def _reads(loop: ma.ForOp) -> bool:
    """Whether the bounds of ``loop`` are values of memory or of threads."""
    return any(isinstance(n, Load | Ref) for e in (loop.lo, loop.hi) for n in walk(e))


def check_packed(k: MemKernel) -> None:
    """Raise VerifyError where blocks of ``k`` that share a block of the launch have more in common."""
    if k.packed != 1 and (k.packed not in (2, 4, 8) or not is_packable(k)):
        why = f"{k.packed} of {k.warps} warps"
        rule = "2, 4 or 8 blocks that are packed are single warps without memory in common"
        reject(rule, f"kernel {k.name}", why, k.span)


def check_spread(k: MemKernel, target: Limits) -> None:
    """Raise VerifyError where ``k`` is spread and breaks a rule of the module docstring."""
    if k.spread == 1:
        return
    node, n = f"kernel {k.name}", k.spread
    whole = n in (2, 4, 8) and k.warps % n == 0 and k.cluster == k.consumers == 1
    if not whole or not target.warpgroup:
        reject("a block is spread over 2, 4 or 8 blocks of a cluster", node, f"{n} for {k.warps} warps", k.span)
    if k.smem or k.mbars or k.pipelines:
        reject("a block that is spread has no shared memory", node, "it declares some", k.span)
    for op in walk_ops(k.body):
        if not isinstance(op, _OF_THREADS) or (isinstance(op, ma.Barrier) and op.threads not in (None, 32)):
            reject_op(op, "a block that is spread has ops of threads and barriers of all of them", type(op).__name__)
