"""Multicast loads: two blocks of a cluster share the loads that both need (PTX ISA, ``cp.async.bulk.tensor``).

Switch: ``WarpgroupPlan.cluster``.  For kernels with a producer and consumers (``specialise-warps``), before their
blocks become persistent.  Blocks 2c and 2c + 1 form a cluster.  A load whose address is the same in both becomes
``multicast``, which is found by evaluating the grid variables of every block, or their expressions in c where the
number of blocks is known at launch: each block issues its part of the tile (``analysis.tma_boxes.multicast_part``) to
the same address in both.  Hence, for the pipeline of such a load:

* full barriers expect the same bytes as before: the whole tile's bytes arrive, from either block;
* a part may only be overwritten when the consumers of *both* blocks are done with it, and what overwrites it
  comes from both producers: consumers arrive on the empty barriers of both blocks, which count twice as many;
* both blocks must reach the instances of the pipeline equally often, in the same order: a condition or bound around
  them that differs between the blocks of a cluster is refused.

Other pipelines are not changed.  There is no deadlock: consider the first instance in program order that some producer
has not issued.  Its stage is released by consumers that wait for earlier instances only, all of which are issued.

A kernel without roles is not changed.  The pass raises ScheduleError where the number of tiles is not a multiple of
the cluster size, where no load is the same in both blocks, and for dynamic tile scheduling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Expr, Var, free_vars, substitute
from nautilus.core.index.simplify import divisible_by, simplify
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, WarpgroupPlan
from nautilus.core.text.expressions import format_expr
from nautilus.ma_tile.analysis.grid_variables import BLOCK, grid_values
from nautilus.ma_tile.analysis.tma_boxes import multicast_part
from nautilus.ma_tile.ir.async_ops import AdvanceOp, LetOp, MbarExpect, TmaLoad
from nautilus.ma_tile.ir.ops import ForOp, IfOp, MbarArrive, MbarWait, MemKernel, MemModule, MemOp, RolesOp, walk_ops
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp
from nautilus.ma_tile.ir.traverse import Ops, each_planned_kernel, expressions, rebuild
from nautilus.ma_tile.text import format_op


@dataclass(frozen=True, slots=True)
class MulticastLoads:
    """``cluster`` overrides the schedule's number of blocks."""

    schedule: Schedule | None = None
    cluster: int | None = None
    name = "multicast-loads"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose kernels share loads in clusters.  Raises ScheduleError where a plan does not fit."""
        return each_planned_kernel(module, self, WarpgroupPlan, share)


def share(kernel: MemKernel, plan: WarpgroupPlan) -> MemKernel:
    """``kernel`` in clusters that share loads. Raises ScheduleError where they cannot."""
    ops = list(walk_ops(kernel.body))
    roles = any(isinstance(op, RolesOp) for op in ops) and not any(isinstance(op, TileSchedulerOp) for op in ops)
    if plan.cluster == 1 or kernel.cluster > 1 or not roles:
        return kernel
    size = plan.cluster
    if plan.persistent == "dynamic":
        raise ScheduleError(f"clusters of {size} blocks need static tile scheduling, not dynamic", kernel=kernel.name)
    apart = _apart(kernel, size)
    stages = {s.name: s for s in kernel.smem}
    same = [op for op in ops if isinstance(op, TmaLoad) and op.mbar is not None and not _mentions(op.index, apart)]
    shared = [op for op in same if multicast_part(stages[op.slot.buffer], size) is not None]
    if not shared:
        why = "the tiles that both load cannot be divided into equal parts" if same else _differing(kernel, apart)
        raise ScheduleError(f"blocks of a cluster of {size} have no load to share: {why}", kernel=kernel.name)
    pipelines = frozenset(op.mbar[0].removeprefix("full_") for op in shared if op.mbar is not None)
    check_control(kernel, pipelines, apart)
    return _rewritten(kernel, size, frozenset(map(id, shared)), frozenset(f"empty_{r}" for r in pipelines))


def _rewritten(kernel: MemKernel, size: int, shared: frozenset[int], empty: frozenset[str]) -> MemKernel:
    def rule(op: MemOp) -> tuple[MemOp, ...]:
        match op:
            case TmaLoad() if id(op) in shared:
                return (replace(op, multicast=size),)
            case MbarArrive(mbar=name) if name in empty:
                return (replace(op, cluster=True),)
        return (op,)

    mbars = tuple(replace(m, arrivals=size * m.arrivals) if m.name in empty else m for m in kernel.mbars)
    return replace(kernel, cluster=size, mbars=mbars, body=rebuild(kernel.body, rule))


# -- what differs between the blocks of a cluster -------------------------------------------------


def _apart(kernel: MemKernel, size: int) -> frozenset[str]:
    """Variables whose value is not the same in all blocks of each cluster. Raises ScheduleError for a ragged grid."""
    if not divisible_by(kernel.blocks, size):
        many = format_expr(kernel.blocks)
        raise ScheduleError(f"{many} tiles are not a multiple of the cluster size {size}", kernel=kernel.name)
    out = {BLOCK}
    known = grid_values(kernel, int(kernel.blocks.value)) if isinstance(kernel.blocks, Const) else {}
    for name, values in known.items():
        of = values.reshape(-1, size)
        if (of != of[:, :1]).any():
            out.add(name)
    alike = _with_ranks(size)
    for name, e in kernel.decode:  # of a grid that is known at launch, read from tensors, or computed from scalars
        if name not in known and _mentions((alike(e),), frozenset(out)):
            out.add(name)
    for op in walk_ops(kernel.body):
        if isinstance(op, LetOp) and _mentions((op.expr,), frozenset(out)):
            out.add(op.var)
    return frozenset(out)


def _with_ranks(size: int) -> Callable[[Expr], Expr]:
    """The function that writes an expression with the number of the cluster in place of the number of the block.

    What depends on the block in the cluster names the block still.
    """
    cluster, ranks = Var("cluster"), {BLOCK: (0, size - 1)}
    number = calc("add", calc("mul", cluster, size), Var(BLOCK))
    return lambda e: simplify(substitute(e, {BLOCK: number}), ranks)


def _mentions(es: tuple[Expr, ...], names: frozenset[str]) -> bool:
    return any(not names.isdisjoint(free_vars(e)) for e in es)


def _differing(kernel: MemKernel, apart: frozenset[str]) -> str:
    names = ", ".join(name for name, _ in kernel.decode if name in apart)
    return f"blocks next to each other differ in {names}, on which all loads depend"


# -- trip counts ----------------------------------------------------------------------------------


def check_control(kernel: MemKernel, pipelines: frozenset[str], apart: frozenset[str]) -> None:
    """Check that both blocks reach the instances of ``pipelines`` under the same conditions. Raises ScheduleError."""
    for op in _bodies(kernel.body):
        found = sorted(pipelines & {r for x in walk_ops(op.body) for r in _pipelines_of(x)})
        names = sorted(apart & {v for e in expressions(op) for v in free_vars(e)})
        if found and names:
            head = format_op(op).splitlines()[0].removesuffix("{").strip()
            detail = f"the number of loads of {found[0]} differs between the blocks of a cluster: "
            raise ScheduleError(f"{detail}`{head}` depends on {', '.join(names)}", kernel=kernel.name)
    for move in walk_ops(kernel.body):
        if isinstance(move, AdvanceOp) and move.pipeline in pipelines and _mentions(expressions(move), apart):
            detail = f"the number of stages of {move.pipeline} that are used differs between the blocks of a cluster"
            raise ScheduleError(detail, kernel=kernel.name)


def _bodies(body: Ops) -> Iterator[IfOp | ForOp]:
    for op in walk_ops(body):
        if isinstance(op, IfOp | ForOp):
            yield op


def _pipelines_of(op: MemOp) -> tuple[str, ...]:
    """The pipeline that ``op`` advances, fills, or releases."""
    match op:
        case AdvanceOp(pipeline=name):
            return (name,)
        case MbarArrive(mbar=name) | MbarWait(mbar=name) | MbarExpect(mbar=name) | TmaLoad(mbar=(name, _)):
            return (name.removeprefix("full_").removeprefix("empty_"),)
    return ()
