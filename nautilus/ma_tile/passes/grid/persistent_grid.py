"""Blocks that stay: as many as the device runs at once, each taking tiles until none is left.

Switch: ``WarpgroupPlan.persistent`` (static, snake, dynamic).  For kernels with roles: the body of each role goes
into ``tiles``, the kernel's decoding of ``block`` becomes ``let`` over the tile's number, and cursors run on
from tile to tile, so that the producer loads the next tile while the last one is finished.  A final wait for
bulk stores stays behind the last tile, and a stage that results left through is given back in the next one
(``lent_stages``).  Tiles come in the order of the schedule (``ma_tile.lowering.grid``).

``dynamic``: the producer fetches the next tile and sends it to the consumers through a mailbox.

The blocks of a cluster go together: a tile of the sequence stands for as many neighbouring tiles as the cluster has
blocks, and the block's number modulo that says which is whose (static and snake only).

``tile_scheduling`` pingpong: the consumer role, of one warpgroup so far, gets ``WarpgroupPlan.warpgroups``; tile n of
the block belongs to warpgroup n % warpgroups.  The other warpgroups advance their pipeline states by the stages that
the tile uses.  That number must follow from bounds and conditions alone: ScheduleError else.  An ordered barrier
(``named_barriers``) surrounds the waits and products of a tile.  It keeps main loops apart, so that the products of
one tile run under the epilogue of another, and it is required: a parity only tells neighbouring phases apart, so a
warpgroup may not wait for a stage before the previous load into that stage has arrived.

A kernel stays as it is when it has no roles, or (cooperative) no more tiles than blocks that run at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Const, Expr, Op, Var, free_vars, substitute
from nautilus.core.index.simplify import bounds, linear_in, simplify
from nautilus.core.schedule import Schedule, WarpgroupPlan
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.pipelines import Block
from nautilus.ma_tile.ir.async_ops import (
    GROUP_WARPS,
    UNIT,
    WGMMA,
    AdvanceOp,
    LetOp,
    SchedulerQueue,
    TileSchedulerOp,
    TmaWait,
)
from nautilus.ma_tile.ir.ops import ForOp, IfOp, MbarWait, MemKernel, MemModule, MemOp, MmaOp, Role, RolesOp, walk_ops
from nautilus.ma_tile.ir.traverse import each_kernel, expressions, warpgroup_plan_of
from nautilus.ma_tile.ir.values import Mbar, PipelineState, Smem
from nautilus.ma_tile.passes.copies.specialise_warps import used_lets
from nautilus.ma_tile.passes.epilogue.tma_stores import known_ranges
from nautilus.ma_tile.passes.finalise.allocate_shared import reallocate
from nautilus.ma_tile.rewriting.named_barriers import first_turn, turn
from nautilus.ma_tile.rewriting.stage_aliasing import late_release
from nautilus.targets.limits import Limits, limits

#: stages of the ring through which the numbers of dynamic tiles go
_MAIL_STAGES = 2
_ZERO, _ONE = integer(0), integer(1)


@dataclass(frozen=True, slots=True)
class PersistentGrid:
    """``multiprocessors`` overrides the target's."""

    schedule: Schedule | None = None
    multiprocessors: int | None = None
    name = "persistent-grid"

    def apply(self, module: MemModule) -> MemModule:
        target = limits(module.target)
        if self.multiprocessors is not None:
            target = replace(target, multiprocessors=self.multiprocessors)

        def one(k: MemKernel) -> MemKernel:
            plan = warpgroup_plan_of(self.schedule, k)
            return k if plan is None else persistent(k, plan, target)

        return each_kernel(module, one)


def persistent(kernel: MemKernel, plan: WarpgroupPlan, target: Limits) -> MemKernel:
    """``kernel`` with blocks that take many tiles. Raises ScheduleError where that cannot be."""
    roles = next((op for op in kernel.body if isinstance(op, RolesOp)), None)
    if roles is None or any(isinstance(op, TileSchedulerOp) for op in walk_ops(kernel.body)):
        return kernel
    if plan.persistent == "none":
        if plan.is_pingpong:
            raise ScheduleError("pingpong tile scheduling needs a persistent grid", kernel=kernel.name)
        return kernel
    resident = target.multiprocessors * kernel.min_blocks
    if not resident:
        raise ScheduleError("how many blocks run at once is not known for this target", kernel=kernel.name)
    if kernel.cluster > 1:
        if plan.persistent == "dynamic":
            raise ScheduleError("blocks of a cluster cannot take dynamic tiles", kernel=kernel.name)
        resident -= resident % kernel.cluster
    own = plan.is_pingpong
    if isinstance(kernel.blocks, Const) and int(kernel.blocks.value) <= resident and not own:
        return kernel
    if any("block" in free_vars(e) for op in walk_ops(kernel.body) for e in expressions(op)):
        raise ScheduleError("an operation mentions the number of the block", kernel=kernel.name)
    return reallocate(_Persistent(kernel, plan, resident).build(roles), target)


class _Persistent:
    """One kernel on its way."""

    def __init__(self, kernel: MemKernel, plan: WarpgroupPlan, resident: int) -> None:
        self.kernel, self.plan = kernel, plan
        taken = {name for name, _ in kernel.decode} | {n for k in kernel.cursors for n in (k.name, k.stage, k.phase)}
        taken |= {s.name for s in kernel.smem} | {m.name for m in kernel.mbars}
        taken |= {op.var for op in walk_ops(kernel.body) if isinstance(op, ForOp | LetOp)}
        self.var, self.seq, self.box = (_free(n, taken) for n in ("tile", "turn", "mail"))
        self.blocks = simplify(calc("min", kernel.blocks, resident))
        self.count = kernel.blocks
        if kernel.cluster > 1:
            self.count = simplify(calc("floordiv", kernel.blocks, kernel.cluster))
        self.own = plan.is_pingpong

    def build(self, roles: RolesOp) -> MemKernel:
        """The kernel with every role's body in ``tiles``."""
        k = self.kernel
        new = [self._role(r) for r in roles.roles]
        body = tuple(replace(op, roles=tuple(new)) if op is roles else op for op in k.body)
        out = replace(k, blocks=self.blocks, decode=(), body=body, warps=max(r.last_warp for r in new))
        if self.plan.persistent != "dynamic":
            return out
        warps = sum(r.last_warp - r.first_warp for r in new if not r.single)
        return replace(
            out,
            smem=(*k.smem, Smem(self.box, DType.I32, (), _MAIL_STAGES)),
            mbars=(*k.mbars, Mbar(f"full_{self.box}", _MAIL_STAGES, 1), Mbar(f"empty_{self.box}", _MAIL_STAGES, warps)),
            cursors=(*k.cursors, PipelineState(self.box, _MAIL_STAGES)),
        )

    def _role(self, role: Role) -> Role:
        body, last = role.body, tuple[MemOp, ...]()
        while body and isinstance(body[-1], TmaWait):
            body, last = body[:-1], (body[-1], *last)
        if not role.single:
            body, last = late_release(body, last, self.kernel, self.seq)
        if self.own and not role.single:
            role, body = self._shared(role, body)
        lets = tuple(LetOp(name, self._at_tile(e), self.kernel.span) for name, e in self.kernel.decode)
        mailbox = None
        if self.plan.persistent == "dynamic":
            full, empty = f"full_{self.box}", f"empty_{self.box}"
            mailbox = SchedulerQueue(self.box, full, empty, self.box, role.single)
        tiles = TileSchedulerOp(
            self.var, self.seq, self.count, self.plan.persistent,
            used_lets((*lets, *body)), mailbox, self.kernel.span,
        )  # fmt: skip
        first = (first_turn(self.plan.warpgroups),) if self.own and not role.single else ()
        return replace(role, body=(*first, tiles, *last))

    def _at_tile(self, e: Expr) -> Expr:
        """``e`` of the block that would have had this tile; a cluster takes as many tiles as it has blocks."""
        size = integer(self.kernel.cluster)
        if size == _ONE:
            return substitute(e, {"block": Var(self.var)})
        number = calc("add", calc("mul", Var(self.var), size), calc("mod", Var("block"), size))
        ranges = known_ranges(self.kernel)
        return simplify(substitute(e, {"block": number}), {**ranges, self.var: (0, ranges["block"][1])})

    def _shared(self, role: Role, body: Block) -> tuple[Role, Block]:
        """The consumer role with all its units, each of which runs ``body`` for every so-manieth tile."""
        if role.units != 1:
            raise ScheduleError(
                f"the consumers are {role.units} units that share a tile already", kernel=self.kernel.name
            )
        units = self.plan.warpgroups
        mod = calc("mod", Var(self.seq), units)
        moves = tuple(AdvanceOp(name, by) for name, by in self._uses(body).items())
        busy = [n for n, op in enumerate(body) if any(map(_in_turn, walk_ops((op,))))]
        mine = IfOp(calc("eq", mod, Var(UNIT)), turn(body, busy, units))
        others = IfOp(calc("ne", mod, Var(UNIT)), moves)
        last = role.first_warp + units * GROUP_WARPS
        return replace(role, units=units, last_warp=last), (mine, others) if moves else (mine,)

    def _uses(self, body: Block) -> dict[str, Expr]:
        """PipelineState -> how many stages a run of ``body`` moves it on."""
        lets = {op.var: op.expr for op in body if isinstance(op, LetOp)}
        for var, e in lets.items():  # in order: each is in terms of the grid's variables when it is used
            lets[var] = substitute(e, lets)
        out: dict[str, Expr] = {}
        for name in dict.fromkeys(op.cursor for op in walk_ops(body) if isinstance(op, AdvanceOp)):
            out[name] = simplify(substitute(self._count(body, name), lets), known_ranges(self.kernel))
        known = {name for name, _ in self.kernel.decode}
        for name, e in out.items():
            if not free_vars(e) <= known:
                unknown = ", ".join(sorted(free_vars(e) - known))
                raise ScheduleError(
                    f"how many stages of {name} a tile uses depends on {unknown}", kernel=self.kernel.name
                )
        return out

    def _count(self, body: Block, cursor: str, loop: ForOp | None = None) -> Expr:
        """Stages that ``body`` moves ``cursor`` on; with ``loop``, in all its iterations together."""
        total: Expr = _ZERO
        for op in body:
            match op:
                case AdvanceOp(cursor=c, by=by) if c == cursor:
                    total = calc("add", total, self._often(by or _ONE, loop))
                case IfOp(cond=cond, body=inner) if _moves(inner, cursor):
                    part = None if loop is None else narrowed(loop, cond)
                    if part is None:
                        total = calc("add", total, calc("select", cond, self._count(inner, cursor, loop), _ZERO))
                    else:
                        total = calc("add", total, self._count(inner, cursor, part))
                case ForOp(body=inner) if _moves(inner, cursor):
                    total = calc("add", total, self._often(self._count(inner, cursor, op), loop))
        return total

    def _often(self, e: Expr, loop: ForOp | None) -> Expr:
        """``e`` in each iteration of ``loop``, added up."""
        if loop is None:
            return e
        ranges = known_ranges(self.kernel)
        trips = simplify(calc("sub", loop.hi, loop.lo), ranges)
        least = bounds(trips, ranges)[0]
        return calc("mul", trips if least is not None and least >= 0 else calc("max", trips, _ZERO), e)


def narrowed(loop: ForOp, cond: Expr) -> ForOp | None:
    """``loop`` over the iterations where ``cond``, one bound on its variable, holds; None where it is no such thing."""
    match cond:
        case Op(op="ge" | "gt" | "lt" | "le" as name, args=(a, b)):
            gap = linear_in(calc("sub", a, b), loop.var)  # c * var + rest: compared with 0
        case _:
            return None
    if gap is None or abs(gap[0]) != 1:
        return None
    c, rest = gap
    lower = (name in ("ge", "gt")) == (c == 1)  # the condition bounds the variable from below
    edge = rest if c == -1 else calc("sub", _ZERO, rest)  # where both sides are equal
    if lower:
        least = edge if name in ("ge", "le") else calc("add", edge, _ONE)
        return replace(loop, lo=simplify(calc("max", loop.lo, least)))
    most = edge if name in ("lt", "gt") else calc("add", edge, _ONE)
    return replace(loop, hi=simplify(calc("min", loop.hi, most)))


def _in_turn(op: MemOp) -> bool:
    return isinstance(op, MbarWait) or (isinstance(op, MmaOp) and op.instr in WGMMA)


def _moves(body: Block, cursor: str) -> bool:
    return any(isinstance(op, AdvanceOp) and op.cursor == cursor for op in walk_ops(body))


def _free(name: str, taken: set[str]) -> str:
    return next(n for n in (name, *(f"{name}{i}" for i in range(len(taken) + 1))) if n not in taken)
