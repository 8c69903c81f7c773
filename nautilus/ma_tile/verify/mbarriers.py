"""Rules of the initialisation of mbarriers.

* ``mbar.init`` stands once at the top level of a kernel with mbarriers, and no use of an mbarrier stands before it.
* A barrier of all threads of the block stands between it and the first use.  Where blocks of a cluster arrive at each
  other's mbarriers, it is a cluster barrier, and another one follows the last use, because a block whose mbarriers are
  in use may not end.  Its arrival is not relaxed: a relaxed one may overtake the last arrival at an mbarrier.

A kernel without ``mbar.init`` precedes the pass ``initialise-mbarriers``; its mbarriers are ready at the start.
"""

from __future__ import annotations

from nautilus.ma_tile.analysis.mbarriers import makes_ready, shared_in_cluster, uses_mbarriers
from nautilus.ma_tile.ir.ops import ClusterArrive, ClusterWait, MbarInit, MemKernel, walk_ops
from nautilus.ma_tile.verify import reject_op


def check_mbarriers(k: MemKernel) -> None:
    """Raise VerifyError where ``k`` breaks a rule of the module docstring."""
    inits = [op for op in walk_ops(k.body) if isinstance(op, MbarInit)]
    if not inits:
        return
    first = inits[0]
    if len(inits) > 1 or first not in k.body or not k.mbars:
        reject_op(
            first, "mbar.init stands once at the top level of a kernel with mbarriers", f"{len(inits)} in {k.name}"
        )
    initialised, ready, cluster = False, False, shared_in_cluster(k)
    for op in k.body:
        if isinstance(op, MbarInit):
            initialised = True
        elif initialised and makes_ready(op, cluster):
            ready = True
        elif uses_mbarriers(op) and not ready:
            who = "cluster" if cluster else "block"
            reject_op(
                op, "mbarriers are used after mbar.init and a barrier", f"there is none of all threads of the {who}"
            )
    if cluster:
        last = max(n for n, op in enumerate(k.body) if uses_mbarriers(op))
        end = [op for op in k.body[last + 1 :] if isinstance(op, ClusterArrive | ClusterWait)]
        ordered = any(isinstance(op, ClusterArrive) and not op.relaxed for op in end)
        if not ordered or not any(isinstance(op, ClusterWait) for op in end):
            detail = "no cluster barrier that orders follows the last use"
            reject_op(k.body[last], "a block does not end while other blocks use its mbarriers", detail)
