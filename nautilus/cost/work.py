"""What one block does for each of its tiles, counted on the MA-tile IR: by unit of the hardware, for every tile.

All counts are arrays over the tiles of the launch, because loops may be as long as the tile's place says.  A count
is *covered* where a product is in flight (issued, not waited for) when the operation runs, else *exposed*: that is
all that the model needs to know about how a loop is pipelined.  Conditions in a loop count as in its middle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nautilus.core.errors import NautilusError
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Expr, Param
from nautilus.core.types import DType
from nautilus.cost.instructions import LAZY, SKIPPED, SPECIAL, issue_slots
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.async_ops import GROUP_WARPS, UNIT, WGMMA
from nautilus.ma_tile.ir.ops import MMA, Frag, MemKernel, MemModule, MemOp, MmaOp, Role, Slot, TileSchedulerOp

Numbers = NDArray[np.float64]
MOST_TILES = 1 << 16  # evaluated one by one; more are represented by the first ones
_SIZE = 1024  # stands for a size that is known at launch only


@dataclass(slots=True)
class Counts:
    """Work of one unit (or block without units) for each tile. Cycles are a multiprocessor's for itself alone."""

    products: Any = 0.0  # cycles of the matrix unit, at the rate of warpgroup products
    warp_products: Any = 0.0  # the part by instructions of single warps
    special: Any = 0.0  # results of the special-function unit, exposed
    issue: Any = 0.0  # instructions of warps, exposed
    special_under: Any = 0.0  # covered by products in flight
    issue_under: Any = 0.0
    stores: Any = 0.0  # instructions of warps that store short pieces
    shared: Any = 0.0  # bytes that warps read and write in shared memory
    empties: Any = 0.0  # how often the last product in flight is waited for
    barriers: Any = 0.0  # of all threads of the block
    meetings: Any = 0.0  # of the blocks of a cluster, behind stores into one of them
    chains: Any = 0.0  # reductions between lanes, in loops: latency that work of the same unit cannot fill
    waits: Any = 0.0  # iterations that wait for copies of their own
    read: Any = 0.0  # bytes loaded
    lines: Any = 0.0  # rows of shared memory that bulk copies fill
    flops: Any = 0.0


@dataclass(slots=True)
class Access:
    """Where a tile reads a buffer: first and last position along each axis, over all loops, for every tile."""

    lows: list[Any]
    highs: list[Any]


@dataclass(slots=True)
class Work:
    """``consumer``: one unit of the role that computes; ``loads``: buffer -> what tiles read of it."""

    tiles: int
    consumer: Counts
    loads: dict[str, Access]
    units: int
    warps: int  # of one unit
    own: bool  # units take tiles of their own
    order: str  # how tiles reach blocks: none | static | snake | dynamic
    specialised: bool
    turns: bool  # units take turns at products
    ring_bytes: float  # bytes that a block has asked for and not used yet, at most
    rings: dict[str, tuple[int, bool]]  # loaded in loops: buffer of shared memory -> (stages, released late)
    stage_bytes: float  # of all rings together, one iteration's
    evaluated: int  # tiles counted one by one
    cluster: int  # blocks that share loads
    stored: frozenset[str] = field(default_factory=frozenset)
    joined: bool = False  # units copy for themselves and wait for nobody until the block combines what they made


def estimated(e: Expr, env: Mapping[str, Any]) -> Any:
    """``e`` at the values of ``env``; what the launch or memory decides is a number of no meaning."""
    return evaluate(e, env, _meaningless)


def _meaningless(e: Expr) -> Any:
    return np.asarray(True if e.dtype is DType.BOOL else _SIZE if isinstance(e, Param) else 0)


def count(module: MemModule, kernel: MemKernel) -> Work:
    """The work of ``kernel`` for each of its tiles."""
    return _Counter(module, kernel).run()


class _Counter:
    def __init__(self, module: MemModule, kernel: MemKernel) -> None:
        self.module, self.kernel = module, kernel
        self.shapes = {b.name: b for b in module.buffers}
        self.smem = {s.name: s for s in kernel.smem}
        tiles = next((op for op in ma.walk_ops(kernel.body) if isinstance(op, TileSchedulerOp)), None)
        cluster = kernel.cluster if tiles is not None else 1  # the blocks of a cluster take one turn together
        total = estimated(tiles.count if tiles is not None else kernel.blocks, {})
        self.tiles = max(1, int(total) * cluster)
        number = np.arange(min(self.tiles, MOST_TILES), dtype=np.int64)
        self.env: dict[str, Any] = {"block": number, UNIT: np.asarray(0)}
        if tiles is not None:
            self.env = {tiles.var: number // cluster, tiles.seq: np.asarray(0), UNIT: np.asarray(0)}
            self.env["block"] = number % cluster
        for name, e in kernel.decode:
            self.env[name] = estimated(e, self.env)
        self.order = tiles.order if tiles is not None else "none"
        self.flight = 0
        self.counts = Counts()
        self.loads: dict[str, Access] = {}
        self.asked: dict[str, float] = {}  # loads outside of rings: bytes a tile
        self.rings: dict[str, tuple[int, bool]] = {}
        self.stored: set[str] = set()
        self.warps = kernel.warps
        self.lazy = _keeps_references(kernel)
        self.depth = 0
        self.depths = {m.name: m.stages for m in kernel.mbars}
        self.late = frozenset(c.name.removesuffix("_done") for c in kernel.cursors if c.name.endswith("_done"))
        self.iteration_bytes = 0.0
        self.walk: tuple[str, Any, Any] | None = None  # of a unit: variable, first value, iterations
        self.private = 1  # units that have a ring of their own each: slices of one buffer

    def run(self) -> Work:
        roles = [r for op in self.kernel.body if isinstance(op, ma.RolesOp) for r in op.roles]
        consumers = [r for r in roles if not r.single]
        if is_joined(self.kernel):
            return self._joined(consumers[0])
        units = consumers[0].units if consumers else self.kernel.units
        self.warps = GROUP_WARPS if consumers or units > 1 else self.kernel.warps
        if consumers:
            for r in roles:
                self.role(r)
        else:
            self.block(self.kernel.body, 1.0, dict(self.env))
        ring = sum(self.ring_bytes().values()) or sum(self.asked.values())
        return Work(
            self.tiles, self.counts, self.loads, units, self.warps, self._own(consumers), self.order, bool(consumers),
            self._turns(consumers), ring, self.rings, max(1.0, self.iteration_bytes),
            min(self.tiles, MOST_TILES), self.kernel.cluster if shares_loads(self.kernel) else 1,
            frozenset(self.stored),
        )  # fmt: skip

    def _joined(self, r: Role) -> Work:
        """Units of a block that combines their results: what each does, and its part of the combination."""
        self.warps, self.private = (r.last_warp - r.first_warp) // r.units, r.units
        self.env[f"{UNIT}#"] = (np.asarray(0), np.asarray(r.units - 1))
        self.block(self.kernel.body, 1.0, dict(self.env))
        ring = sum(self.ring_bytes().values()) or r.units * sum(self.asked.values())
        return Work(
            self.tiles, self.counts, self.loads, r.units, self.warps, False, self.order, False, False, ring,
            self.rings, max(1.0, self.iteration_bytes), min(self.tiles, MOST_TILES), 1, frozenset(self.stored), True,
        )  # fmt: skip

    def role(self, r: Role) -> None:
        """A producer only adds its loads; its own instructions cost nothing that anybody waits for."""
        if not r.single:
            self.block(r.body, 1.0, dict(self.env))
            return
        kept, self.counts = self.counts, Counts()
        self.block(r.body, 1.0, dict(self.env))
        kept.read = kept.read + self.counts.read
        kept.lines = kept.lines + self.counts.lines
        self.counts = kept

    def _own(self, consumers: list[Role]) -> bool:
        for r in consumers:
            for op in r.body:
                if isinstance(op, TileSchedulerOp):
                    return any(isinstance(x, ma.IfOp) and {op.seq, UNIT} <= _names(x.cond) for x in op.body)
        return False

    def _turns(self, consumers: list[Role]) -> bool:
        return any(isinstance(op, ma.NamedArrive) for r in consumers for op in ma.walk_ops(r.body))

    def ring_bytes(self) -> dict[str, float]:
        """Bytes of the stages that loads fill ahead of use, by shared buffer."""
        out: dict[str, float] = {}
        for name, (stages, _) in self.rings.items():
            s = self.smem[name]
            ahead = s.stages if any(m.startswith("full_") for m in self.depths) else max(1, stages - 1)
            out[name] = float(self.private * ahead * s.stage_bytes)
        return out

    # -- structure ------------------------------------------------------------------------------
    def block(self, body: tuple[MemOp, ...], times: Any, env: dict[str, Any]) -> None:
        for op in body:
            match op:
                case ma.LetOp(var=var, expr=e):
                    env[var] = estimated(e, env)
                    if self.private > 1 and UNIT in _names(e):
                        first, last = _ends(env)
                        env[f"{var}#"] = (estimated(e, first), estimated(e, last))
                case TileSchedulerOp(body=inner):
                    self.block(inner, times, dict(env))
                case ma.IfOp(cond=cond, body=inner):
                    holds = self.holds(cond, env)
                    if np.any(holds):
                        self.block(inner, times * holds, env)
                case ma.ForOp():
                    self.loop(op, times, env)
                case ma.RolesOp(roles=roles):
                    for r in roles:
                        self.role(r)
                case _:
                    self.leaf(op, times, env)

    def holds(self, cond: Expr, env: dict[str, Any]) -> Any:
        """Whether ``cond`` holds; of a unit's walk, the share of its iterations in which it does.

        A unit of many has few iterations, so that what the first ones asked for ahead counts.
        """
        if self.walk is not None and self.walk[0] in _names(cond):
            var, low, trips = self.walk
            steps = np.arange(int(np.max(trips, initial=1)))[:, None]
            if steps.size * np.size(low + trips) <= MOST_TILES * 64:
                found = np.asarray(_safe(cond, {**env, var: np.reshape(low, (1, -1)) + steps}), np.float64)
                inside = steps < np.reshape(trips, (1, -1))
                share = (found * inside).sum(0) / np.maximum(1.0, np.reshape(trips, (1, -1))[0])
                return share if share.size > 1 else share[0]
        return np.asarray(_safe(cond, env), dtype=np.float64)

    def loop(self, op: ma.ForOp, times: Any, env: dict[str, Any]) -> None:
        low, high = _safe(op.lo, env), _safe(op.hi, env)
        trips = np.maximum(np.asarray(high, np.float64) - np.asarray(low, np.float64), 0.0)
        self.flight = max(self.flight, self._flight_after(op.body))
        ends = (low, np.maximum(high - 1, low))
        if self.private > 1:  # where the first unit begins and the last one ends
            first, last = _ends(env)
            ends = (_safe(op.lo, first), np.maximum(_safe(op.hi, last) - 1, ends[1]))
        inner = {**env, op.var: np.maximum((low + high) // 2, low), f"{op.var}#": ends}
        self.depth += 1
        outer, self.walk = self.walk, (op.var, low, trips) if self.private > 1 else None
        self.block(op.body, times * trips, inner)
        self.walk = outer
        self.depth -= 1
        if any(isinstance(x, ma.AsyncWait | ma.TmaLoad) and getattr(x, "mbar", None) is None for x in op.body):
            self.counts.waits = self.counts.waits + times * trips

    def _flight_after(self, body: tuple[MemOp, ...]) -> int:
        """Groups of products in flight at the end of an iteration."""
        flight = 0
        for op in ma.walk_ops(body):
            match op:
                case ma.WgCommit():
                    flight += 1
                case ma.WgWait(pending=n):
                    flight = min(flight, n)
        return flight

    # -- leaves ---------------------------------------------------------------------------------
    def leaf(self, op: MemOp, times: Any, env: dict[str, Any]) -> None:
        c = self.counts
        match op:
            case MmaOp():
                self.product(op, times)
            case ma.WgCommit():
                self.flight += 1
            case ma.WgWait(pending=n):
                if self.flight > n == 0:
                    c.empties = c.empties + times
                self.flight = min(self.flight, n)
            case ma.TmaLoad():
                self.bulk(op, times, env)
            case ma.AsyncCopy(slot=slot, buffer=buffer, index=index, mask=mask):
                self.copied(slot, buffer, index, times, env, self.share(mask, env))
                self.ring(slot, self.smem[slot.buffer].stages, False)
                self.elementwise(times, self.smem[slot.buffer].stage_bytes / 16 / 32 * 2)
            case ma.GlobalLoad(result=r, buffer=buffer, index=index, mask=mask):
                share = self.share(mask, env)
                self.reads(buffer, index, {a.name: a.size for a in r.type.axes}, env)
                size = prod(r.type.shape) * r.type.dtype.bytes
                c.read = c.read + times * size * share
                self.asked[r.name] = float(np.mean(share) * size)
                self.elementwise(times, self.warps * (self.registers(r) / max(1, op.vec) + 4))
            case ma.GlobalStore(buffer=buffer, value=v):
                self.stored.add(buffer)
                count = self.warps * self.registers(v) / max(1, op.vec)
                if op.vec * self.shapes[buffer].dtype.bytes >= 8:
                    self.elementwise(times, 2 * count)
                else:
                    c.stores = c.stores + times * count
            case ma.TmaStore(buffer=buffer):
                self.stored.add(buffer)
            case ma.SharedLoad(result=f, vec=vec) | ma.SharedStore(value=f, vec=vec):
                self.through_shared(f, vec, times)
            case ma.MatrixLoad(result=f) | ma.MatrixStore(value=f):
                self.through_shared(f, 8, times)
            case ma.Barrier(threads=threads) if threads is None or threads > 32:
                c.barriers = c.barriers + times * (1.0 if threads is None else 0.5)
            case ma.ClusterArrive(relaxed=False):
                c.meetings = c.meetings + times
            case ma.ReduceOp():
                self.reduce(op, times)
            case ma.MapOp(result=r, op=name):
                whole = len(op.args) > 1 and len(op.args[1].type.axes) == len(r.type.axes)
                slots = issue_slots(name, op.args[0].type.dtype, r.type.dtype, whole)
                if name == "mul_unless_one" and not whole:
                    slots = LAZY if self.lazy else SKIPPED
                self.elementwise(times, self.warps * slots * self.registers(r))
                if name in SPECIAL:
                    self.special(times, self.warps * 32 * SPECIAL[name] * self.registers(r))
            case ma.IndexOp(result=r):
                self.elementwise(times, self.warps * 2.0 * self.registers(r))

    def product(self, op: MmaOp, times: Any) -> None:
        """A product's cycles at the full rate of its type; those of single warps also read through ldmatrix."""
        m, n = (a.size for a in op.result.type.axes) if len(op.result.type.axes) == 2 else (1, 1)
        k, dtype = self.depth_of(op)
        flops = 2.0 * prod(op.result.type.shape) * k
        c = self.counts
        c.flops = c.flops + times * flops
        if op.instr in WGMMA:
            c.products = c.products + times * flops / _rate(dtype)
            if not op.pending:
                c.empties = c.empties + times
            return
        if op.instr in MMA:
            c.warp_products = c.warp_products + times * flops / _rate(dtype)
            rows, columns = self.split(op, 0), self.split(op, 1)
            fetched = (m * columns if isinstance(op.a, Slot) else 0) + (n * rows if isinstance(op.b, Slot) else 0)
            c.shared = c.shared + times * float(fetched * k * dtype.bytes)
            self.elementwise(times, flops / 2 / 2048 + fetched * k * dtype.bytes / 512)
            return
        self.elementwise(times, flops / 2 / 32 * 1.2)

    def depth_of(self, op: MmaOp) -> tuple[int, DType]:
        for side in (op.a, op.b):
            axes = side.type.axes if isinstance(side, Frag) else self.smem[side.buffer].axes
            dtype = side.type.dtype if isinstance(side, Frag) else self.smem[side.buffer].dtype
            for a in axes:
                if a.name == op.over:
                    return a.size, dtype
        return 1, op.result.type.dtype

    def split(self, op: MmaOp, position: int) -> int:
        """Warps side by side along one axis of the result."""
        layout, axis = self.kernel.layouts[op.result.layout], op.result.type.axes[position].name
        return prod(x.size for x in layout.warp if x.axis == axis)

    def reduce(self, op: ma.ReduceOp, times: Any) -> None:
        layout = self.kernel.layouts[op.arg.layout]
        lanes = prod(x.size for x in layout.lane if x.axis in op.axes)
        shuffles = 0 if op.into is not None else max(0, lanes.bit_length() - 1)
        self.elementwise(times, self.warps * (self.registers(op.arg) + 3.0 * shuffles * self.registers(op.result)))
        if shuffles and self.depth:
            self.counts.chains = self.counts.chains + times
        if op.scratch is not None:
            self.counts.barriers = self.counts.barriers + times * 2.0

    def elementwise(self, times: Any, slots: float) -> None:
        if self.flight:
            self.counts.issue_under = self.counts.issue_under + times * slots
        else:
            self.counts.issue = self.counts.issue + times * slots

    def special(self, times: Any, results: float) -> None:
        if self.flight:
            self.counts.special_under = self.counts.special_under + times * results
        else:
            self.counts.special = self.counts.special + times * results

    def registers(self, f: Frag) -> int:
        return self.kernel.layouts[f.layout].registers

    def through_shared(self, f: Frag, vec: int, times: Any) -> None:
        count = self.registers(f)
        self.counts.shared = self.counts.shared + times * float(count * f.type.dtype.bytes * 32 * self.warps)
        self.elementwise(times, self.warps * count / max(1, vec))

    # -- memory ---------------------------------------------------------------------------------
    def share(self, mask: Expr | None, env: Mapping[str, Any]) -> Any:
        """A mask counts at position 0 of the tile: whole tiles are in or out, edges are rare."""
        return 1.0 if mask is None else np.asarray(_safe(mask, env), np.float64)

    def bulk(self, op: ma.TmaLoad, times: Any, env: dict[str, Any]) -> None:
        self.copied(op.slot, op.buffer, op.index, times, env, 1.0)
        s = self.smem[op.slot.buffer]
        rows = prod(a.size for a in s.axes) * s.dtype.bytes / (op.slot.swizzle or s.axes[-1].size * s.dtype.bytes)
        self.counts.lines = self.counts.lines + times * rows
        if op.mbar is None:
            self.ring(op.slot, 1, False)
        else:
            ring = op.mbar[0].removeprefix("full_")
            self.ring(op.slot, self.depths.get(op.mbar[0], 1), ring in self.late)

    def ring(self, slot: Slot, stages: int, late: bool) -> None:
        if self.depth and slot.buffer not in self.rings:
            s = self.smem[slot.buffer]
            self.iteration_bytes += s.bytes / max(1, stages)
        if self.depth:
            self.rings[slot.buffer] = (max(1, stages // self.private), late)

    def copied(
        self, slot: Slot, buffer: str, index: tuple[Expr, ...], times: Any, env: dict[str, Any], share: Any
    ) -> None:
        s = self.smem[slot.buffer]
        size = prod(a.size for a in s.axes) * s.dtype.bytes
        self.counts.read = self.counts.read + times * size * share
        if not self.depth:
            self.asked[slot.buffer] = float(size)
        self.reads(buffer, index, {a.name: a.size for a in s.axes}, env)

    def reads(self, buffer: str, index: tuple[Expr, ...], sizes: Mapping[str, int], env: dict[str, Any]) -> None:
        """Extend the ranges that every tile reads of ``buffer``.

        What an iteration asks for ahead may jump at either end of the loop, so the values beside the ends count too.
        """
        first, last = _ends(env)
        ranged = [name[:-1] for name in env if name.endswith("#")]
        second = first | {v: np.minimum(first[v] + 1, last[v]) for v in ranged}
        before = last | {v: np.maximum(last[v] - 1, first[v]) for v in ranged}
        low, high = {a: np.asarray(0) for a in sizes}, {a: np.asarray(n - 1) for a, n in sizes.items()}
        places = (first, second, before, last) if ranged else (first,)
        points = [[_safe(e, at | tile) for e in index] for at in places for tile in (low, high)]
        if (known := self.loads.get(buffer)) is not None:
            points += [known.lows, known.highs]
        by_axis = list(zip(*points, strict=True))
        self.loads[buffer] = Access(
            [reduce(np.minimum, values) for values in by_axis], [reduce(np.maximum, values) for values in by_axis]
        )


def is_joined(kernel: MemKernel) -> bool:
    """Whether units make partial results that their own block combines (pass ``combine-in-block``)."""
    roles = [r for op in kernel.body if isinstance(op, ma.RolesOp) for r in op.roles]
    alike = len(roles) == 1 and roles[0].units > 1 and not roles[0].single
    return alike and not isinstance(kernel.body[-1], ma.RolesOp)


def shares_loads(kernel: MemKernel) -> bool:
    """Whether the blocks of a cluster load for each other (pass ``multicast-loads``)."""
    return any(isinstance(op, ma.TmaLoad) and op.multicast > 1 for op in ma.walk_ops(kernel.body))


def _ends(env: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """``env`` with everything that has a range (of loops, of units) at its first and at its last value."""
    first, last = dict(env), dict(env)
    for name, ends in env.items():
        if name.endswith("#"):
            first[name[:-1]], last[name[:-1]] = ends
    return first, last


def _keeps_references(kernel: MemKernel) -> bool:
    """Whether a loop carries a running value that it replaces only sometimes (repair ``lazy``)."""
    for loop in (op for op in ma.walk_ops(kernel.body) if isinstance(op, ma.ForOp)):
        carried = {f.name for f, _ in loop.carried}
        next_ = {f.name for f in loop.yields}
        for op in loop.body:
            kept = isinstance(op, ma.MapOp) and op.op == "select" and op.result.name in next_
            if kept and any(a.name in carried for a in op.args):  # type: ignore[union-attr]
                return True
    return False


def _safe(e: Expr, env: Mapping[str, Any]) -> Any:
    try:
        return estimated(e, env)
    except (NautilusError, ArithmeticError, TypeError, ValueError, KeyError):
        return np.asarray(1)


def _names(e: Expr) -> set[str]:
    from nautilus.core.expr.nodes import free_vars

    return set(free_vars(e))


def _rate(dtype: DType) -> float:
    """Operations a cycle of products of ``dtype``, where those of 16 bits have 4096."""
    return 4096.0 * 2 / max(dtype.bytes, 1)


__all__ = ["Access", "Counts", "Work", "count", "estimated", "is_joined", "shares_loads"]
