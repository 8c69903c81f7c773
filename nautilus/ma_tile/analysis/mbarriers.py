"""Who uses the mbarriers of a kernel, and the ops at its start that make them ready."""

from __future__ import annotations

from nautilus.core.ops import Kind, declaration
from nautilus.ma_tile.ir.ops import Barrier, ClusterWait, MbarArrive, MbarInit, MemKernel, MemOp, TmaLoad, walk_ops


def uses_mbarriers(op: MemOp) -> bool:
    """Whether ``op``, or an op inside it, arrives or waits at an mbarrier."""
    return any(getattr(x, n) is not None for x in walk_ops((op,)) for n in declaration(type(x)).names(Kind.BARRIER))


def shared_in_cluster(kernel: MemKernel) -> bool:
    """Whether blocks of a cluster, or their copies, arrive at mbarriers of other blocks."""
    return any(
        (isinstance(op, MbarArrive) and op.cluster) or (isinstance(op, TmaLoad) and op.multicast > 1)
        for op in walk_ops(kernel.body)
    )


def makes_ready(op: MemOp, cluster: bool) -> bool:
    """Whether mbarriers that were initialised before ``op`` are ready after it, in a ``cluster`` in all its blocks."""
    return isinstance(op, ClusterWait) or (not cluster and isinstance(op, Barrier) and op.threads is None)


def after_initialisation(body: tuple[MemOp, ...]) -> tuple[MemOp, ...]:
    """``body`` without what initialises mbarriers, which is a part of the start of a block."""
    if not body or not isinstance(body[0], MbarInit):
        return body
    return body[1 + next(n for n, op in enumerate(body[1:], 1) if makes_ready(op, cluster=False)) :]
