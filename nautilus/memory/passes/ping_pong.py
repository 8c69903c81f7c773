"""Consumer units take turns at products, so that one computes while another's elementwise work runs.

Switch: ``MemoryPlan.ping_pong``, for consumer roles of at least two units.  A turn begins at a named barrier
of the unit and the one before it, and ends with an arrival at the next unit's barrier:

* units that share tiles: the batch of products of one loop iteration, from the first to the last that its
  body issues (with the fence before and the commit behind), is one turn;
* units with tiles of their own: all the products of a tile, from the op that holds the first to the op that
  holds the last, are one turn.

The last unit gives unit 0 its first turn.  Where units share tiles every unit takes as many turns, and at the
end unit 0 takes the turn that is left over, so that every arrival is met; with tiles of their own one arrival
stays when the kernel ends.  Runs behind ``order-products`` and ``persistent-grid``.

ScheduleError where the number of turns would depend on the unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nautilus.core.errors import ScheduleError
from nautilus.core.expr import Op, Var, free_vars
from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.memory.ops import Barrier, ForOp, IfOp, MemKernel, MemModule, MemOp, MmaOp, Role, RolesOp, walk_ops
from nautilus.memory.passes.barriers import TURN, number, of_next, of_unit
from nautilus.memory.passes.rings import Block
from nautilus.memory.passes.walk import each_kernel, plan_of
from nautilus.memory.warpgroup_ops import GROUP_THREADS, UNIT, WGMMA, NamedArrive, TilesOp, WgCommit, WgFence

#: those who give and those who take a turn
_BOTH = 2 * GROUP_THREADS


@dataclass(frozen=True, slots=True)
class PingPong:
    """``ping_pong`` overrides the schedule's switch."""

    schedule: Schedule | None = None
    ping_pong: bool | None = None
    name: str = "ping-pong"

    def apply(self, module: MemModule) -> MemModule:
        def one(k: MemKernel) -> MemKernel:
            plan = plan_of(self.schedule, k)
            wanted = plan.ping_pong if self.ping_pong is None else self.ping_pong
            return take_turns(k, plan.own_tiles) if wanted else k

        return each_kernel(module, one)


def take_turns(kernel: MemKernel, own_tiles: bool) -> MemKernel:
    """``kernel`` with turns in its consumer roles."""

    def role(r: Role) -> Role:
        if r.single or r.units < 2:
            return r
        work = _Turns(kernel.name, r.units)
        body = work.tiles(r.body) if own_tiles else work.loops(r.body)
        return replace(r, body=work.closed(body, own_tiles)) if work.turns else r

    body = tuple(replace(op, roles=tuple(map(role, op.roles))) if isinstance(op, RolesOp) else op for op in kernel.body)
    return replace(kernel, body=body)


@dataclass(slots=True)
class _Turns:
    kernel: str
    units: int
    turns: int = 0

    # -- units that share tiles -----------------------------------------------------------------
    def loops(self, body: Block) -> Block:
        """``body`` with a turn in each iteration of the loops that hold products."""
        out: list[MemOp] = []
        for op in body:
            match op:
                case ForOp():
                    inner = self.loops(op.body)
                    if any(_is_product(x) for x in op.body):
                        self._alike(op)
                        inner = self._turn(inner, [n for n, x in enumerate(inner) if _is_product(x)])
                    out.append(replace(op, body=inner))
                case IfOp() | TilesOp():
                    before = self.turns
                    inner = self.loops(op.body)
                    if self.turns > before and isinstance(op, IfOp):
                        self._alike(op)
                    out.append(replace(op, body=inner))
                case _:
                    out.append(op)
        return tuple(out)

    def _alike(self, op: ForOp | IfOp) -> None:
        exprs = (op.cond,) if isinstance(op, IfOp) else (op.lo, op.hi)
        if any(UNIT in free_vars(e) for e in exprs):
            raise ScheduleError("how often a unit has its turn depends on the unit", f"kernel {self.kernel}")

    # -- units with tiles of their own ------------------------------------------------------------
    def tiles(self, body: Block) -> Block:
        """``body`` with one turn a tile."""

        def tile(op: MemOp) -> MemOp:
            return replace(op, body=self._whole(op.body)) if isinstance(op, IfOp) else op

        return tuple(replace(op, body=tuple(map(tile, op.body))) if isinstance(op, TilesOp) else op for op in body)

    def _whole(self, body: Block) -> Block:
        holders = [n for n, op in enumerate(body) if any(_is_product(x) for x in walk_ops((op,)))]
        return self._turn(body, holders)

    # -- turns ------------------------------------------------------------------------------------
    def _turn(self, body: Block, at: Sequence[int]) -> Block:
        """``body`` with a turn from the first to the last position of ``at``."""
        if not at:
            return body
        self.turns += 1
        first, last = at[0], at[-1] + 1
        if first and isinstance(body[first - 1], WgFence):
            first -= 1
        if last < len(body) and isinstance(body[last], WgCommit):
            last += 1
        begin = Barrier(of_unit(TURN), _BOTH)
        end = NamedArrive(of_next(TURN, self.units), _BOTH)
        return (*body[:first], begin, *body[first:last], end, *body[last:])

    def closed(self, body: Block, own_tiles: bool) -> Block:
        """``body`` with the first turn given, and the last one taken."""
        give = IfOp(_unit_is(self.units - 1), (NamedArrive(number(TURN), _BOTH),))
        take = IfOp(_unit_is(0), (Barrier(number(TURN), _BOTH),))
        return (give, *body) if own_tiles else (give, *body, take)


def _unit_is(n: int) -> Op:
    return Op("eq", (Var(UNIT), number(n)), DType.BOOL)


def _is_product(op: MemOp) -> bool:
    return isinstance(op, MmaOp) and op.instr in WGMMA
