"""The verifier's rules of the persistent tile scheduler (``ma_tile.ir.tile_scheduler``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Var
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.ma_tile.ir.ops import MbarArrive, MbarWait, MemOp, Role, RolesOp, walk_ops
from nautilus.ma_tile.ir.tile_scheduler import (
    TILE_ORDERS,
    BreakOp,
    QueuePop,
    QueuePush,
    TileFetch,
    TileFirst,
    TileReset,
    TileSchedulerOp,
)
from nautilus.ma_tile.verify.scope import KernelScope
from nautilus.ma_tile.verify.shared import element_count


def tile_loop(s: KernelScope, op: TileSchedulerOp) -> None:
    """All roles of the block process one sequence of tiles, at the top level of each."""
    s.uniform(op.count, "the number of tiles")
    s.need(op.order in TILE_ORDERS, "known orders of tiles", op.order)
    top = s.path in ((), (RolesOp,))
    s.need(top, "a tile loop stands at the top level of a role", " in ".join(t.__name__ for t in s.path))
    for other in walk_ops(s.kernel.body):
        if isinstance(other, TileSchedulerOp):
            same = (other.count, other.order) == (op.count, op.order)
            s.need(same, "all roles process the same tiles", other.var)
    dynamic = op.order == "dynamic"
    ok = not dynamic or s.kernel.cluster == 1
    s.need(ok, "the blocks of a cluster process tiles in a static order", op.order)
    exits = [x for x in op.body if isinstance(x, BreakOp)]
    ok = [x.cond for x in exits] == ([calc("ge", Var(op.var), op.count)] if dynamic else [])
    s.need(ok, "a dynamic tile loop ends where its tile is not below the count", f"{len(exits)} breaks")
    if dynamic:
        _queue(s)

    outer = set(s.vars), dict(s.types)
    if not dynamic:
        s.variable(op.var)
    s.variable(op.iteration)
    s.nested(op.body, op)
    s.vars, s.types = outer


@dataclass(frozen=True, slots=True)
class _QueueUse:
    """How one role uses the queue: ``waited`` and ``arrived`` are the mbarriers before its break."""

    role: Role
    sends: bool
    smem: str
    waited: str
    arrived: str


def _use(s: KernelScope, role: Role, loop: TileSchedulerOp) -> _QueueUse:
    """The queue of ``loop``, from the ops before its break."""
    end = next((n for n, x in enumerate(loop.body) if isinstance(x, BreakOp)), 0)
    head = loop.body[:end]
    moved = [x for x in head if isinstance(x, QueuePush | QueuePop)]
    waited = [x.mbar for x in head if isinstance(x, MbarWait)]
    arrived = [x.mbar for x in head if isinstance(x, MbarArrive)]
    ok = (len(moved), len(waited), len(arrived)) == (1, 1, 1)
    s.need(ok, "a dynamic tile comes through the queue before the break", f"role {role.name}")
    return _QueueUse(role, isinstance(moved[0], QueuePush), moved[0].slot.buffer, waited[0], arrived[0])


def _queue(s: KernelScope) -> None:
    """There is one sender; every other warp (of a single role: its thread) releases the stage that it read."""
    s.need(s.role is not None, "dynamic tiles are for roles", "no role")
    roles = [r for op in s.kernel.body if isinstance(op, RolesOp) for r in op.roles]
    uses = [_use(s, r, op) for r in roles for op in r.body if isinstance(op, TileSchedulerOp)]
    senders, receivers = [u for u in uses if u.sends], [u for u in uses if not u.sends]
    ok = len(senders) == 1 and senders[0].role.consumers == 1
    s.need(ok, "one role of one consumer sends tiles", f"{len(senders)} roles")
    sender = senders[0]
    for u in receivers:
        same = (u.smem, u.waited, u.arrived) == (sender.smem, sender.arrived, sender.waited)
        s.need(same, "all roles use one queue and its mbarriers", f"{u.smem}, {u.waited}, {u.arrived}")
    full, empty = s.mbars.get(sender.arrived), s.mbars.get(sender.waited)
    if full is None or empty is None:
        s.fail("mbarriers are declared", f"{sender.arrived}, {sender.waited}")
    released = sum(1 if u.role.single else u.role.last_warp - u.role.first_warp for u in receivers)
    ok = full.arrivals == 1 and empty.arrivals == max(released, 1)
    detail = f"{full.arrivals}, {empty.arrivals}: {released}"
    s.need(ok, "every warp that receives a tile releases its stage of the queue", detail)
    _counter(s, sender.role)


def _counter(s: KernelScope, sender: Role) -> None:
    """The sender alone uses the tile counter, and resets it."""
    used = [op for op in walk_ops(s.kernel.body) if isinstance(op, TileFirst | TileFetch | TileReset)]
    here = [op for op in walk_ops(sender.body) if isinstance(op, TileFirst | TileFetch | TileReset)]
    kinds = sorted(type(op).__name__ for op in here)
    ok = len(used) == len(here) and kinds == ["TileFetch", "TileFirst", "TileReset"]
    s.need(ok, "the sender of tiles uses the tile counter, and resets it", f"role {sender.name}: {', '.join(kinds)}")


def break_if(s: KernelScope, op: BreakOp) -> None:
    """The break stands at the top level of a dynamic tile loop."""
    ok = bool(s.path) and s.path[-1] is TileSchedulerOp
    s.need(ok, "a break leaves the tile loop around it", " in ".join(t.__name__ for t in s.path))
    s.typed(op.cond, "the condition of a break", (DType.BOOL,), None, ())


def _sender(s: KernelScope, op: MemOp) -> None:
    s.need(s.single, "one thread of the block takes tiles and sends them", type(op).__name__)


def tile_first(s: KernelScope, op: TileFirst) -> None:
    """The op defines a new variable of the sender."""
    _sender(s, op)
    s.variable(op.var)


def tile_fetch(s: KernelScope, op: TileFetch) -> None:
    """The op writes the variable that ``tile.first`` declared."""
    _sender(s, op)
    declared = any(isinstance(x, TileFirst) and x.var == op.var for x in walk_ops(s.kernel.body))
    s.need(declared and op.var in s.vars, "a fetch rewrites the variable of tile.first", op.var)


def tile_reset(s: KernelScope, op: TileReset) -> None:
    """Both operands are integers."""
    _sender(s, op)
    s.uniform(op.tile, "the tile")
    s.uniform(op.count, "the number of tiles")
    loops = [x for x in walk_ops(s.kernel.body) if isinstance(x, TileSchedulerOp)]
    ok = all(x.count == op.count for x in loops)
    s.need(ok, "the counter is reset after the last tile", "another number of tiles")


def queue_push(s: KernelScope, op: QueuePush) -> None:
    """The op writes one i32 to a stage."""
    _sender(s, op)
    _stage(s, op)
    s.uniform(op.value, "the value")


def queue_pop(s: KernelScope, op: QueuePop) -> None:
    """The op reads one i32 from a stage."""
    _stage(s, op)
    s.variable(op.var)


def _stage(s: KernelScope, op: QueuePush | QueuePop) -> None:
    buffer = s.slot(op.slot)
    ok = buffer.dtype is DType.I32 and element_count(buffer) == 1
    s.need(ok, "a queue holds one i32 a stage", buffer.name)


Rule = Callable[..., None]

TILE_SCHEDULER_RULES: Mapping[type, Rule] = {
    TileSchedulerOp: tile_loop, BreakOp: break_if, TileFirst: tile_first, TileFetch: tile_fetch,
    TileReset: tile_reset, QueuePush: queue_push, QueuePop: queue_pop,
}  # fmt: skip
