"""Ordered MMAs of consumer warpgroups: one issues its MMAs while others do elementwise work.

Switch: ``WarpgroupPlan.ordered_mma``, for consumer roles of at least two warpgroups that share tiles.  An ordered
barrier (``rewriting.named_barriers``) surrounds the MMAs of one iteration of an innermost loop, from the first to the
last that its body issues, with the fence before and the commit after.  MMAs before and after an inner loop are not
ordered, because the barriers of that loop are between them.  Every warpgroup passes the barrier equally often.  No
warpgroup waits for the last arrival, as in a persistent grid under pingpong tile scheduling.  Runs after ``async-mma``.

Pingpong tile scheduling orders the MMAs of warpgroups without this pass (``persistent-grid``).

The pass raises ScheduleError where the number of passes through the barrier would depend on the warpgroup.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.nodes import free_vars
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, WarpgroupPlan
from nautilus.ma_tile.ir.async_ops import CONSUMER, NamedArrive
from nautilus.ma_tile.ir.instruction_tables import WGMMA
from nautilus.ma_tile.ir.ops import ForOp, IfOp, MemKernel, MemModule, MemOp, MmaOp, Role, RolesOp, walk_ops
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp
from nautilus.ma_tile.ir.traverse import Ops, each_planned_kernel
from nautilus.ma_tile.rewriting.named_barriers import first_arrival, ordered


@dataclass(frozen=True, slots=True)
class PingPong:
    """``ordered_mma`` overrides the schedule's switch."""

    schedule: Schedule | None = None
    ordered_mma: bool | None = None
    name = "ping-pong"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose consumers issue MMAs in order.  Raises ScheduleError where a plan does not fit."""

        def one(k: MemKernel, plan: WarpgroupPlan) -> MemKernel:
            return order_mma(k) if plan.ordered_mma else k

        return each_planned_kernel(module, self, WarpgroupPlan, one)


def order_mma(kernel: MemKernel) -> MemKernel:
    """``kernel`` with ordered barriers in its consumer roles. Roles that already have them are not changed."""

    def role(r: Role) -> Role:
        if r.single or r.consumers < 2 or any(isinstance(op, NamedArrive) for op in walk_ops(r.body)):
            return r
        work = _OrderedBarriers(kernel.name, r.consumers)
        body = work.block(r.body)
        return replace(r, body=(first_arrival(r.consumers), *body)) if work.loops else r

    body = tuple(replace(op, roles=tuple(map(role, op.roles))) if isinstance(op, RolesOp) else op for op in kernel.body)
    return replace(kernel, body=body)


@dataclass(slots=True)
class _OrderedBarriers:
    kernel: str
    consumers: int
    loops: int = 0

    def block(self, body: Ops) -> Ops:
        """``body`` with an ordered section in each iteration of the innermost loops that contain MMAs."""
        out: list[MemOp] = []
        for op in body:
            before = self.loops
            match op:
                case ForOp():
                    inner = self.block(op.body)
                    innermost = self.loops == before
                    at = [n for n, x in enumerate(inner) if innermost and isinstance(x, MmaOp) and x.instr in WGMMA]
                    self.loops += bool(at)
                    op = replace(op, body=ordered(inner, at, self.consumers))
                case IfOp() | TileSchedulerOp():
                    op = replace(op, body=self.block(op.body))
            if self.loops > before:
                self._alike(op)
            out.append(op)
        return tuple(out)

    def _alike(self, op: MemOp) -> None:
        match op:
            case IfOp(cond=cond):
                exprs = [cond]
            case ForOp(lo=lo, hi=hi):
                exprs = [lo, hi]
            case _:
                exprs = []
        if any(CONSUMER in free_vars(e) for e in exprs):
            detail = "the number of passes through the ordered barrier depends on the consumer"
            raise ScheduleError(detail, kernel=self.kernel)
