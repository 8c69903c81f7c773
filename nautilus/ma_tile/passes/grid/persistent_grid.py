"""Persistent grid: as many blocks as the device runs at once, each of which processes tiles until none is left.

The switch is ``WarpgroupPlan.persistent`` (static, snake, dynamic), for kernels with roles.  The body of each role goes
into a ``tile.loop``, and the kernel's decoding of ``block`` becomes ``let`` over the number of the tile.  Pipeline
states continue from tile to tile, so that the producer loads the next tile while the consumers finish the last one.
A final wait for TMA stores stays after the last tile, and a stage that aliases the results is released in the next
tile (``rewriting.stage_aliasing``).  The order of tiles is that of the schedule (``ma_tile.lowering.grid``).

``dynamic``: the producer fetches the next tile and sends it to the consumers (``rewriting.tile_queue``).

The blocks of a cluster process the same tile of the sequence, which stands for as many neighbouring tiles as the
cluster has blocks; the number of the block modulo the size of the cluster selects one of them (static and snake
only).

``WarpgroupPlan.tile_scheduling`` pingpong: the consumer role has one warpgroup before the pass and ``warpgroups`` after
it.  Tile n of the block belongs to warpgroup n % warpgroups, and the others advance their pipeline states by the stages
that the tile uses.  That number must follow from bounds and conditions alone; the pass raises ScheduleError else.  The
warpgroups alternate (``rewriting.named_barriers``): one warpgroup at a time waits for stages and issues the MMAs of
its tile.  That runs the MMAs of one tile under the epilogue of another.  It is also needed for correctness: a parity
distinguishes neighbouring phases only, so that no warpgroup may wait for a stage before the previous load to the same
stage has arrived.

A kernel without roles stays as it is.  So does a cooperative kernel with no more tiles than blocks that run at once.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Const, Expr, Var, free_vars, substitute
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, WarpgroupPlan
from nautilus.ma_tile.analysis.pipelines import instances
from nautilus.ma_tile.ir.async_ops import CONSUMER, GROUP_WARPS, AdvanceOp, LetOp, TmaWait
from nautilus.ma_tile.ir.instruction_tables import WGMMA
from nautilus.ma_tile.ir.ops import ForOp, IfOp, MbarWait, MemKernel, MemModule, MemOp, MmaOp, Role, RolesOp, walk_ops
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp
from nautilus.ma_tile.ir.traverse import Ops, each_planned_kernel, expressions
from nautilus.ma_tile.passes.finalise.allocate_shared import reallocate
from nautilus.ma_tile.rewriting.named_barriers import first_arrival, ordered
from nautilus.ma_tile.rewriting.renaming import known_ranges, used_lets
from nautilus.ma_tile.rewriting.stage_aliasing import late_release
from nautilus.ma_tile.rewriting.tile_queue import TileQueue
from nautilus.targets.limits import Limits, limits

_ONE = integer(1)


@dataclass(frozen=True, slots=True)
class PersistentGrid:
    """``multiprocessors`` overrides the target's."""

    schedule: Schedule | None = None
    multiprocessors: int | None = None
    name = "persistent-grid"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` with persistent kernels.  Raises ScheduleError where a plan does not fit."""
        target = limits(module.target)
        if self.multiprocessors is not None:
            target = replace(target, multiprocessors=self.multiprocessors)

        return each_planned_kernel(module, self, WarpgroupPlan, lambda k, plan: persistent(k, plan, target))


def persistent(kernel: MemKernel, plan: WarpgroupPlan, target: Limits) -> MemKernel:
    """``kernel`` with blocks that process many tiles. Raises ScheduleError if the kernel cannot be persistent."""
    roles = next((op for op in kernel.body if isinstance(op, RolesOp)), None)
    if roles is None or any(isinstance(op, TileSchedulerOp) for op in walk_ops(kernel.body)):
        return kernel
    if plan.persistent == "none":
        if plan.is_pingpong:
            raise ScheduleError("pingpong tile scheduling needs a persistent grid", kernel=kernel.name)
        return kernel
    resident = target.multiprocessors * kernel.min_blocks
    if not resident:
        raise ScheduleError("the number of blocks that run at once is unknown for this target", kernel=kernel.name)
    if kernel.cluster > 1:
        if plan.persistent == "dynamic":
            raise ScheduleError("clusters cannot use dynamic tile scheduling", kernel=kernel.name)
        resident -= resident % kernel.cluster
    own = plan.is_pingpong
    if isinstance(kernel.blocks, Const) and int(kernel.blocks.value) <= resident and not own:
        return kernel
    if any("block" in free_vars(e) for op in walk_ops(kernel.body) for e in expressions(op)):
        raise ScheduleError("an operation uses the block number", kernel=kernel.name)
    return reallocate(_Persistent(kernel, plan, resident).build(roles), target)


class _Persistent:
    """The rewrite of one kernel."""

    def __init__(self, kernel: MemKernel, plan: WarpgroupPlan, resident: int) -> None:
        self.kernel, self.plan = kernel, plan
        taken = {name for name, _ in kernel.decode} | {n for k in kernel.pipelines for n in (k.name, k.stage, k.phase)}
        taken |= {s.name for s in kernel.smem} | {m.name for m in kernel.mbars}
        taken |= {op.var for op in walk_ops(kernel.body) if isinstance(op, ForOp | LetOp)}
        self.var, self.iteration = _free("tile", taken), _free("iteration", taken)
        self.blocks = simplify(calc("min", kernel.blocks, resident))
        self.count = kernel.blocks
        if kernel.cluster > 1:
            self.count = simplify(calc("floordiv", kernel.blocks, kernel.cluster))
        self.own = plan.is_pingpong
        self.queue: TileQueue | None = None
        if plan.persistent == "dynamic":
            self.queue = TileQueue(_free("queue", taken), _free("next_tile", taken), self.var, self.count)

    def build(self, roles: RolesOp) -> MemKernel:
        """The kernel with the body of every role in a tile loop."""
        k = self.kernel
        new = [self._role(r) for r in roles.roles]
        body = tuple(replace(op, roles=tuple(new)) if op is roles else op for op in k.body)
        out = replace(k, blocks=self.blocks, decode=(), body=body, warps=max(r.last_warp for r in new))
        if self.queue is None:
            return out
        return self.queue.declare(out, sum(r.last_warp - r.first_warp for r in new if not r.single))

    def _role(self, role: Role) -> Role:
        body, last = role.body, tuple[MemOp, ...]()
        while body and isinstance(body[-1], TmaWait):
            body, last = body[:-1], (body[-1], *last)
        if not role.single:
            body, last = late_release(body, last, self.kernel, self.iteration)
        if self.own and not role.single:
            role, body = self._shared(role, body)
        lets = tuple(LetOp(name, self._at_tile(e), self.kernel.span) for name, e in self.kernel.decode)
        body = used_lets((*lets, *body))
        first: Ops = (first_arrival(self.plan.warpgroups),) if self.own and not role.single else ()
        if self.queue is not None and role.single:
            first, body = (*first, *self.queue.first()), self.queue.send(body)
        elif self.queue is not None:
            body = self.queue.receive(body)
        loop = TileSchedulerOp(
            self.var, self.iteration, self.count, self.plan.persistent, body, self.kernel.span
        )  # fmt: skip
        return replace(role, body=(*first, loop, *last))

    def _at_tile(self, e: Expr) -> Expr:
        """``e`` with the number of the tile for ``block``; a cluster processes as many tiles as it has blocks."""
        size = integer(self.kernel.cluster)
        if size == _ONE:
            return substitute(e, {"block": Var(self.var)})
        number = calc("add", calc("mul", Var(self.var), size), calc("mod", Var("block"), size))
        ranges = known_ranges(self.kernel)
        return simplify(substitute(e, {"block": number}), {**ranges, self.var: (0, ranges["block"][1])})

    def _shared(self, role: Role, body: Ops) -> tuple[Role, Ops]:
        """The consumer role with all its consumers; each of them runs ``body`` for every ``consumers``-th tile."""
        if role.consumers != 1:
            raise ScheduleError(f"{role.consumers} consumers already share a tile", kernel=self.kernel.name)
        consumers = self.plan.warpgroups
        mod = calc("mod", Var(self.iteration), consumers)
        moves = tuple(AdvanceOp(name, by) for name, by in self._uses(body).items())
        busy = [n for n, op in enumerate(body) if any(map(_is_ordered, walk_ops((op,))))]
        mine = IfOp(calc("eq", mod, Var(CONSUMER)), ordered(body, busy, consumers))
        others = IfOp(calc("ne", mod, Var(CONSUMER)), moves)
        last = role.first_warp + consumers * GROUP_WARPS
        return replace(role, consumers=consumers, last_warp=last), (mine, others) if moves else (mine,)

    def _uses(self, body: Ops) -> dict[str, Expr]:
        """Name of a pipeline state -> the stages by which a run of ``body`` advances it."""
        lets = {op.var: op.expr for op in body if isinstance(op, LetOp)}
        for var, e in lets.items():  # in order: each is in terms of the grid's variables when it is used
            lets[var] = substitute(e, lets)
        out: dict[str, Expr] = {}
        ranges = known_ranges(self.kernel)
        for name in dict.fromkeys(op.pipeline for op in walk_ops(body) if isinstance(op, AdvanceOp)):
            out[name] = simplify(substitute(instances(body, name, ranges), lets), ranges)
        known = {name for name, _ in self.kernel.decode}
        for name, e in out.items():
            if not free_vars(e) <= known:
                unknown = ", ".join(sorted(free_vars(e) - known))
                raise ScheduleError(
                    f"the number of stages of {name} that a tile uses depends on {unknown}", kernel=self.kernel.name
                )
        return out


def _is_ordered(op: MemOp) -> bool:
    return isinstance(op, MbarWait) or (isinstance(op, MmaOp) and op.instr in WGMMA)


def _free(name: str, taken: set[str]) -> str:
    return next(n for n in (name, *(f"{name}{i}" for i in range(len(taken) + 1))) if n not in taken)
