"""The work of a block for each of its tiles, counted on the MA-tile IR by hardware unit.

All counts are arrays over the tiles of the launch, because trip counts may depend on the tile's position.  Work under
an MMA that is issued and not waited for is *covered*, else *exposed*.  A condition is evaluated in a loop's middle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nautilus.core.expr.nodes import Expr, Ref, free_vars, walk
from nautilus.core.index.sizes import nominal, volume
from nautilus.core.types import DType
from nautilus.cost.accesses import (
    PlainLoads,
    alone,
    box_rows,
    box_share,
    copy_work,
    row_overhead,
    row_work,
    shared_bytes,
    shares_loads,
    store_work,
    unmasked_share,
    with_strides,
)
from nautilus.cost.counts import Counts, Work
from nautilus.cost.estimates import (
    choices,
    chosen_rows,
    estimated,
    loop_end,
    segment_rows,
    share_of_one,
    starts_of,
    window_ends,
    within_loop,
)
from nautilus.cost.instructions import (
    FREE,
    LAZY,
    SPECIAL,
    combining,
    forms,
    index_slots,
    integer_slots,
    issue_slots,
    load_slots,
    mma_rate,
    multiply_adds,
    operation,
    rescales_lazily,
)
from nautilus.cost.latency import Waits, awaited_loads, chain
from nautilus.cost.reads import Access, Reads, both_ends
from nautilus.ma_tile.analysis.consumers import is_split_k_block
from nautilus.ma_tile.analysis.mbarriers import after_initialisation
from nautilus.ma_tile.analysis.repeated_values import repeated_values
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.async_ops import CONSUMER, GROUP_WARPS
from nautilus.ma_tile.ir.instruction_tables import MMA, WGMMA
from nautilus.ma_tile.ir.ops import Frag, MemKernel, MemModule, MemOp, MmaOp, Role, Slot
from nautilus.ma_tile.ir.tile_scheduler import TileFirst, TileSchedulerOp
from nautilus.ma_tile.ir.traverse import bound
from nautilus.ma_tile.ir.values import MA

Numbers = NDArray[np.float64]
COPIES = ma.AsyncCopy | ma.TmaLoad
MOST_TILES = 1 << 16  # tiles that are evaluated one by one; they represent all further tiles
COPIED = 2.0  # instructions of a vector that cp.async copies
GATHERED = 8.0  # instructions of a vector whose row an element chooses: address, and test whether it is in the tensor
TABLE = 4 << 10  # bytes of a table that L1 holds, from which elements are read in any order


def count(module: MemModule, kernel: MemKernel, most: int = MOST_TILES) -> Work:
    """The work of ``kernel`` for each of its tiles, of which the first ``most`` represent all others."""
    return Counter(module, kernel, most).run()


class Counter:
    """Traverses the ops of a kernel once, each loop body at its middle iteration, and adds the work of each op."""

    def __init__(self, module: MemModule, kernel: MemKernel, most: int = MOST_TILES) -> None:
        self.module, self.kernel, self.most = module, kernel, most
        self.shapes = {b.name: with_strides(b) for b in module.buffers}
        self.smem = {s.name: s for s in kernel.smem}
        tiles = next((op for op in ma.walk_ops(kernel.body) if isinstance(op, TileSchedulerOp)), None)
        cluster = kernel.cluster if tiles is not None else 1  # one tile of the scheduler serves a whole cluster
        total = estimated(tiles.count if tiles is not None else kernel.blocks, {})
        self.tiles = max(1, int(total) * cluster)
        number = np.arange(min(self.tiles, self.most), dtype=np.int64)
        self.env: dict[str, Any] = {"block": number, CONSUMER: np.asarray(0)}
        if tiles is not None:
            self.env = {tiles.var: number // cluster, tiles.iteration: np.asarray(0), CONSUMER: np.asarray(0)}
            self.env["block"] = number % cluster
            self.env |= {op.var: number for op in ma.walk_ops(kernel.body) if isinstance(op, TileFirst)}
        self.starts, self.segments = starts_of(kernel), segment_rows(kernel, self.shapes)
        self.windows, self.chosen = window_ends(kernel, self.starts), chosen_rows(kernel, self.shapes)
        for name, e in kernel.decode:
            self.env[name] = self._loop_end(name, e, self.env)
        self.order = tiles.order if tiles is not None else "none"
        self.flight = 0
        self.counts = Counts()
        self.reads = Reads(self.shapes)
        self.every = True  # whether all values of the loops around are counted, so that their boxes are those of a tile
        self.unpipelined: dict[str, float] = {}  # bytes a tile of loads outside pipelines
        self.pipelines: dict[str, tuple[int, bool]] = {}
        self.stored: set[str] = set()
        self.axes = {f.name: f.type.names for op in ma.walk_ops(kernel.body) for f in bound(op)}
        self.plain = PlainLoads(kernel)
        self.waits = Waits(kernel)
        self.forms = forms(kernel)
        self.warps = kernel.warps
        self.lazy = rescales_lazily(kernel)
        self.depth = 0
        self.unrolled = 1  # iterations whose loads are outstanding together
        self.depths = {m.name: m.stages for m in kernel.mbars}
        self.late = frozenset(c.name.removesuffix("_done") for c in kernel.pipelines if c.name.endswith("_done"))
        self.iteration_bytes = 0.0
        self.iterations: tuple[str, Any, Any] | None = None  # of the innermost loop: variable, first value, number
        self.repeats = repeated_values(kernel)
        self.private = 1  # consumers with a pipeline of their own, each a slice of one buffer

    def run(self) -> Work:
        """The work of the kernel for each tile."""
        roles = [r for op in self.kernel.body if isinstance(op, ma.RolesOp) for r in op.roles]
        consumers = [r for r in roles if not r.single]
        if is_split_k_block(self.kernel):
            return self._split_k_block(consumers[0])
        units = consumers[0].consumers if consumers else self.kernel.consumers
        self.warps = GROUP_WARPS if consumers or units > 1 else self.kernel.warps
        if consumers:
            for r in roles:
                self.role(r)
        else:
            self.block(after_initialisation(self.kernel.body), 1.0, dict(self.env))
        self.warps //= self.kernel.spread
        self.counts.spread(self.kernel.spread)
        pipelined = max(sum(self.pipeline_bytes().values()), sum(self.unpipelined.values()))
        return Work(
            self.tiles, self.counts, self.reads.boxes, units, self.warps, self._separate_tiles(consumers), self.order,
            bool(consumers), self._ordered(consumers), pipelined, self.pipelines, max(1.0, self.iteration_bytes),
            min(self.tiles, self.most), self.kernel.cluster if shares_loads(self.kernel) else 1,
            self.waits, frozenset(self.stored), self.plain.moved, self.plain.gathered, self.plain.anywhere,
        )  # fmt: skip

    def _split_k_block(self, r: Role) -> Work:
        """The work of a block whose warps compute partial results that the block combines."""
        self.warps, self.private = (r.last_warp - r.first_warp) // r.consumers, r.consumers
        self.env[f"{CONSUMER}#"] = (np.asarray(0), np.asarray(r.consumers - 1))
        self.block(after_initialisation(self.kernel.body), 1.0, dict(self.env))
        pipelined = max(sum(self.pipeline_bytes().values()), r.consumers * sum(self.unpipelined.values()))
        return Work(
            self.tiles, self.counts, self.reads.boxes, r.consumers, self.warps, False, self.order, False, False,
            pipelined, self.pipelines, max(1.0, self.iteration_bytes), min(self.tiles, self.most), 1,
            self.waits, frozenset(self.stored), self.plain.moved, self.plain.gathered, self.plain.anywhere, True,
        )  # fmt: skip

    def role(self, r: Role) -> None:
        """Add the work of a role.  A producer adds only its loads, since no consumer waits for its instructions."""
        if not r.single:
            self.block(r.body, 1.0, dict(self.env))
            return
        kept, self.counts = self.counts, Counts()
        self.block(r.body, 1.0, dict(self.env))
        kept.read = kept.read + self.counts.read
        kept.lines = kept.lines + self.counts.lines
        self.counts = kept

    def _separate_tiles(self, consumers: list[Role]) -> bool:
        for r in consumers:
            for op in r.body:
                if isinstance(op, TileSchedulerOp):
                    both = {op.iteration, CONSUMER}
                    return any(isinstance(x, ma.IfOp) and both <= free_vars(x.cond) for x in op.body)
        return False

    def _ordered(self, consumers: list[Role]) -> bool:
        return any(isinstance(op, ma.NamedArrive) for r in consumers for op in ma.walk_ops(r.body))

    def pipeline_bytes(self) -> dict[str, float]:
        """Bytes of the prefetched stages by shared buffer."""
        out: dict[str, float] = {}
        for name, (stages, _) in self.pipelines.items():
            s = self.smem[name]
            ahead = s.stages if any(m.startswith("full_") for m in self.depths) else max(1, stages - 1)
            out[name] = float(self.private * ahead * s.stage_bytes)
        return out

    # -- structure ------------------------------------------------------------------------------
    def _loop_end(self, name: str, e: Expr, env: Mapping[str, Any]) -> Any:
        """The value of variable ``name``, at which a loop starts or ends, or an element that chooses rows."""
        return loop_end(e, env, self.segments, self.windows, starts=name in self.starts, rows=self.chosen.get(name, 0))

    def block(
        self, body: tuple[MemOp, ...], times: Any, env: dict[str, Any], loop: ma.ForOp | None = None
    ) -> None:  # fmt: skip
        """Count the ops of ``body``, that of ``loop`` if any, which runs ``times`` for each tile at values ``env``."""
        around, waited = self.plain.enter(), self.waits.enter(loop)
        for op in body:
            match op:
                case ma.LetOp(var=var, expr=e):
                    places = [env]
                    if own := self.private > 1 and CONSUMER in free_vars(e):
                        places += both_ends(env)
                    env[var], *ends = (self._loop_end(var, e, x) for x in places)
                    if own:
                        env[f"{var}#"] = tuple(ends)
                case TileSchedulerOp(body=inner):
                    self.block(inner, times, dict(env))
                case ma.IfOp(cond=cond, body=inner):
                    holds, within = self.holds(cond, env, any(isinstance(x, COPIES) for x in inner))
                    if np.any(holds):
                        self.block(inner, times * holds, within)
                case ma.ForOp():
                    self.loop(op, times, env)
                case ma.RolesOp(roles=roles):
                    for r in roles:
                        self.role(r)
                case _:
                    self.leaf(op, times, env)
                    self.waits.add(op, times)
        self.plain.leave(around)
        self.waits.leave(waited)

    def holds(self, cond: Expr, env: dict[str, Any], copies: bool) -> tuple[Any, dict[str, Any]]:
        """Whether ``cond`` holds, and ``env`` where it does.

        Of the copies of later iterations, and of a split-K warp, it is the share of the iterations of the loop.
        """
        if self.iterations is not None and self.iterations[0] in free_vars(cond) and (copies or self.private > 1):
            found = within_loop(cond, env, *self.iterations, self.most * (64 if self.private > 1 else 1))
            if found is not None:
                return found[0], found[1] if copies and np.all(found[0]) else env
        return np.asarray(estimated(cond, env), dtype=np.float64), env

    def loop(self, op: ma.ForOp, times: Any, env: dict[str, Any]) -> None:
        """Count a loop at its middle iteration, multiplied by its trip count."""
        low, high = estimated(op.lo, env), estimated(op.hi, env)
        trips = np.maximum(np.asarray(high, np.float64) - np.asarray(low, np.float64), 0.0)
        if not np.any(trips):  # flags are taken as 0
            return
        self.flight = max(self.flight, self._flight_after(op.body))
        self.counts.chain = self.counts.chain + times * trips * chain(op, self.kernel.layouts, self.forms)
        ends = (low, np.maximum(high - 1, low))
        if self.private > 1:  # from the first iteration of the first consumer to the last one of the last consumer
            first, last = both_ends(env)
            ends = (estimated(op.lo, first), np.maximum(estimated(op.hi, last) - 1, ends[1]))
        inner = {**env, op.var: np.maximum((low + high) // 2, low), f"{op.var}#": ends}
        self.depth += 1
        outer, self.iterations = self.iterations, (op.var, low, trips)
        self.reads.carried(op)
        around, self.unrolled = self.unrolled, self.unrolled * (op.unroll or 1)
        segments = choices(op, low, high, self.segments)
        every, self.every = self.every, self.every and (not segments or len(segments) == np.max(trips))
        for value, share in segments or [(inner[op.var], 1.0)]:
            chosen = {op.var: value, f"{op.var}#": (value, value)} if share < 1 else {}
            self.block(op.body, times * trips * share, inner | chosen, op)
        self.unrolled, self.every, self.iterations = around, every, outer
        self.depth -= 1
        if any(isinstance(x, ma.AsyncWait | ma.TmaLoad) and getattr(x, "mbar", None) is None for x in op.body):
            self.counts.waits = self.counts.waits + times * trips
        self.counts.stalls = self.counts.stalls + times * trips * awaited_loads(op, self.kernel)

    def _flight_after(self, body: tuple[MemOp, ...]) -> int:
        """The number of outstanding MMA groups at the end of an iteration."""
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
        """Count an op without ops inside."""
        if (found := _COUNTED.get(type(op))) is not None:
            found(self, op, times, env)

    def wg_commit(self, _op: ma.WgCommit, _times: Any, _env: dict[str, Any]) -> None:
        """Count one more outstanding group."""
        self.flight += 1

    def wg_wait(self, op: ma.WgWait, times: Any, _env: dict[str, Any]) -> None:
        """Count a wait for the last outstanding MMA."""
        if self.flight > op.pending == 0:
            self.counts.drains = self.counts.drains + times
        self.flight = min(self.flight, op.pending)

    def async_copy(self, op: ma.AsyncCopy, times: Any, env: dict[str, Any]) -> None:
        """Count a copy by cp.async and its pipeline."""
        stage = self.smem[op.slot.buffer]
        self.copied(op.slot, op.buffer, op.index, times, env, unmasked_share(op.mask, env, stage.axes))
        self.pipeline(op.slot, stage.stages, False)
        self.counts.row_overhead = self.counts.row_overhead + times * row_overhead(stage, self.shapes[op.buffer])
        gathered = any(isinstance(n, Ref) for e in op.index for n in walk(e))
        layout, elements = self.kernel.layouts[op.threads], stage.stage_bytes // stage.dtype.bytes
        issue, finds = copy_work(self.shapes[op.buffer], op, layout, elements)
        self.elementwise(times, issue * (GATHERED if gathered else COPIED))
        self.counts.finds = self.counts.finds + times * finds

    def load(self, op: ma.GlobalLoad, times: Any, env: dict[str, Any]) -> None:
        """Count a load to registers."""
        c, r = self.counts, op.result
        share = unmasked_share(op.mask, env, r.type.axes)
        self.reads.add(op.buffer, op.index, {a.name: a.size for a in r.type.axes}, env)
        self.reads.loaded(op)
        size = prod(r.type.shape) * r.type.dtype.bytes // (op.repeat or 1)
        around = alone(self.shapes[op.buffer], op, self.axes) * size / r.type.dtype.bytes
        table = nominal(volume(self.shapes[op.buffer].shape)) * r.type.dtype.bytes
        if around and table <= TABLE:  # L1 holds it
            size, around = min(size, table), 0.0
        c.read = c.read + times * (size + around) * share
        self.unpipelined[r.name] = float(np.mean(share) * size) * self.unrolled
        slots, integer = load_slots(op, self.kernel.layouts[r.layout], self.registers(r))
        self.elementwise(times, self.warps * slots, self.warps * integer)
        found = self.plain.add(self.shapes[op.buffer], op, float(np.mean(times * share)), around and size + around)
        c.finds = c.finds + times * share * self.warps * found

    def barrier(self, op: ma.Barrier, times: Any, _env: dict[str, Any]) -> None:
        """Count a barrier of more than one warp."""
        if op.threads is None or op.threads > 32:
            self.counts.meet(times * (1.0 if op.threads is None else 0.5), op.team)

    def cluster_arrive(self, op: ma.ClusterArrive, times: Any, _env: dict[str, Any]) -> None:
        """Count a cluster barrier that orders stores."""
        if not op.relaxed:
            self.counts.cluster_syncs = self.counts.cluster_syncs + times

    def unpacked(self, op: ma.UnpackOp, times: Any, _env: dict[str, Any]) -> None:
        """Count the fields of words."""
        self.elementwise(times, self.warps * op.slots * self.registers(op.result))

    def indices(self, op: ma.IndexOp, times: Any, _env: dict[str, Any]) -> None:
        """Count an index expression, once for registers that hold one value."""
        layout, repeats = self.kernel.layouts[op.result.layout], self.repeats.get(op.result.name, 1)
        slots, integer = index_slots(op.expr, layout, repeats)
        self.elementwise(times, self.warps * slots, self.warps * integer)

    def mapped(self, op: ma.MapOp, times: Any, _env: dict[str, Any]) -> None:
        """Count an elementwise operation, once for registers that hold one value."""
        name = operation(op, self.forms)
        slots = issue_slots(name, op.args[0].type.dtype, op.result.type.dtype)
        if op.op == "mul_unless_one" and self.lazy:
            slots = LAZY
        integer = integer_slots(name, op.args[0].type.dtype, op.result.type.dtype, slots)
        values = self.warps * self.registers(op.result) / self.repeats.get(op.result.name, 1)
        self.elementwise(times, slots * values, integer * values, 32 * SPECIAL.get(name, 0.0) * values)

    def mma(self, op: MmaOp, times: Any, _env: dict[str, Any]) -> None:
        """Count an MMA at the full rate of its element type; mma.sync operands are also read by ldmatrix."""
        m, n = (a.size for a in op.result.type.axes) if len(op.result.type.axes) == 2 else (1, 1)
        k, dtype = self.depth_of(op)
        flops = 2.0 * prod(op.result.type.shape) * k
        c = self.counts
        c.flops = c.flops + times * flops
        if op.instr in WGMMA:
            c.wgmma = c.wgmma + times * flops / mma_rate(dtype)
            c.drains = c.drains + (0.0 if op.is_async else times)
            return
        if op.instr in MMA:
            parts = MMA[op.instr].parts
            products = parts * (parts + 1) // 2
            c.warp_mma = c.warp_mma + times * products * flops / mma_rate(dtype)
            rows, columns = self.split(op, 0), self.split(op, 1)
            fetched = (m * columns if isinstance(op.a, Slot) else 0) + (n * rows if isinstance(op.b, Slot) else 0)
            c.shared = c.shared + times * float(fetched * k * dtype.bytes)
            split = fetched * k / 32 * 3 + 2.0 * self.warps * self.registers(op.result) if parts > 1 else 0.0
            self.elementwise(times, products * flops / 2 / 2048 + fetched * k * dtype.bytes / 512 + split)
            return
        self.elementwise(times, *multiply_adds(flops / 2 / 32, dtype, op.result.type.dtype))

    def depth_of(self, op: MmaOp) -> tuple[int, DType]:
        """The contracted elements of an MMA, and their type."""
        for side in (op.a, op.b):
            axes = side.type.axes if isinstance(side, Frag) else self.smem[side.buffer].axes
            dtype = side.type.dtype if isinstance(side, Frag) else self.smem[side.buffer].dtype
            for a in axes:
                if a.name == op.over:
                    return op.terms or a.size, dtype
        return 1, op.result.type.dtype

    def split(self, op: MmaOp, position: int) -> int:
        """The number of warps along one axis of the result."""
        layout, axis = self.kernel.layouts[op.result.layout], op.result.type.axes[position].name
        return prod(x.size for x in layout.warp if x.axis == axis)

    def combine(self, op: ma.ReduceOp | ma.ScanOp, times: Any, _env: dict[str, Any]) -> None:
        """Count a reduction or a scan."""
        found = combining(op, self.kernel.layouts)
        self.elementwise(times, self.warps * found.slots, self.warps * found.integer)
        if found.shuffles and self.depth:
            self.counts.lane_reductions = self.counts.lane_reductions + times
        self.counts.barriers = self.counts.barriers + times * found.barriers

    def elementwise(self, times: Any, slots: float, integer: float = 0.0, special: float = 0.0) -> None:
        """Add warp instructions, how many of them are of the integer unit, and results of the special-function unit."""
        self.counts.instructions(times * slots, times * integer, times * special, bool(self.flight))

    def registers(self, f: Frag) -> int:
        """Registers of a thread for ``f``."""
        return self.kernel.layouts[f.layout].registers

    def shared(
        self, op: ma.SharedLoad | ma.SharedStore | ma.MatrixLoad | ma.MatrixStore, times: Any, _env: dict[str, Any]
    ) -> None:
        """Count the bytes of a fragment in shared memory, and the instructions that move them."""
        f = op.result if isinstance(op, ma.SharedLoad | ma.MatrixLoad) else op.value
        vec = op.vec if isinstance(op, ma.SharedLoad | ma.SharedStore) else 8
        size = shared_bytes(op, self.smem[op.slot.buffer], self.kernel.layouts[f.layout])
        self.counts.shared = self.counts.shared + times * float(size * self.warps)
        self.elementwise(times, self.warps * self.registers(f) / max(1, vec))

    # -- memory ---------------------------------------------------------------------------------
    def store(self, op: ma.GlobalStore, times: Any, env: dict[str, Any]) -> None:
        """Count a store, which moves nothing in the iterations that its mask leaves out."""
        if np.any(times):
            self.stored.add(op.buffer)
        found = store_work(self.shapes[op.buffer], op, self.kernel, self.warps)
        stored = times * share_of_one(op.mask, env)
        self.counts.sectors = self.counts.sectors + stored * found.sectors
        self.counts.meets = self.counts.meets + stored * found.meets
        self.elementwise(times, found.issue)

    def tma_store(self, op: ma.TmaStore, _times: Any, _env: dict[str, Any]) -> None:
        """Count what a TMA store writes, which takes no instructions of the consumers."""
        self.stored.add(op.buffer)

    def rows(self, op: ma.RowStore, times: Any, _env: dict[str, Any]) -> None:
        """Count a store of rows: two vectors from the stage for each one to memory, and the elements at the ends."""
        self.stored.add(op.buffer)
        stage = self.smem[op.slot.buffer]
        found, size = row_work(stage), prod(a.size for a in stage.axes) * stage.dtype.bytes
        self.counts.shared = self.counts.shared + times * 2.0 * size
        self.counts.sectors = self.counts.sectors + times * found.sectors
        self.elementwise(times, found.issue)

    def tma_load(self, op: ma.TmaLoad, times: Any, env: dict[str, Any]) -> None:
        """Count a TMA load and its pipeline."""
        s = self.smem[op.slot.buffer]
        self.copied(op.slot, op.buffer, op.index, times, env, box_share(op, s.axes, self.shapes[op.buffer]))
        rows = prod(a.size for a in s.axes) * s.dtype.bytes / (op.slot.swizzle or s.axes[-1].size * s.dtype.bytes)
        self.counts.lines = self.counts.lines + times * rows * box_rows(op, s.axes, self.shapes[op.buffer], env)
        if op.mbar is None:
            self.pipeline(op.slot, 1, False)
        else:
            pipeline = op.mbar[0].removeprefix("full_")
            self.pipeline(op.slot, self.depths.get(op.mbar[0], 1), pipeline in self.late)

    def pipeline(self, slot: Slot, stages: int, late: bool) -> None:
        """Record the pipeline of ``slot``; ``late``: its stages are released one iteration later."""
        if self.depth and slot.buffer not in self.pipelines:
            s = self.smem[slot.buffer]
            self.iteration_bytes += s.bytes / max(1, stages)
        if self.depth:
            self.pipelines[slot.buffer] = (max(1, stages // self.private), late)

    def copied(
        self, slot: Slot, buffer: str, index: tuple[Expr, ...], times: Any, env: dict[str, Any], share: Any
    ) -> None:
        """Count the bytes of a copy to ``slot``, of which ``share`` are not masked."""
        s = self.smem[slot.buffer]
        size = prod(a.size for a in s.axes) * s.dtype.bytes
        self.counts.read = self.counts.read + times * size * share
        if not self.depth:
            self.unpipelined[slot.buffer] = float(size)
        self.reads.add(buffer, index, {a.name: a.size for a in s.axes}, env, times if self.every else 1.0)


#: op class -> what counts it; :meth:`Counter.block` counts those with ops inside
_COUNTED: Mapping[type, Callable[[Counter, Any, Any, dict[str, Any]], None]] = {
    MmaOp: Counter.mma,
    ma.WgCommit: Counter.wg_commit,
    ma.WgWait: Counter.wg_wait,
    ma.TmaLoad: Counter.tma_load,
    ma.TmaStore: Counter.tma_store,
    ma.AsyncCopy: Counter.async_copy,
    ma.GlobalLoad: Counter.load,
    ma.GlobalStore: Counter.store,
    ma.RowStore: Counter.rows,
    **dict.fromkeys((ma.SharedLoad, ma.SharedStore, ma.MatrixLoad, ma.MatrixStore), Counter.shared),
    ma.Barrier: Counter.barrier,
    ma.ClusterArrive: Counter.cluster_arrive,
    **dict.fromkeys((ma.ReduceOp, ma.ScanOp), Counter.combine),
    ma.MapOp: Counter.mapped,
    ma.UnpackOp: Counter.unpacked,
    ma.IndexOp: Counter.indices,
}
_WITH_BODIES = (ma.LetOp, TileSchedulerOp, ma.IfOp, ma.ForOp, ma.RolesOp)
MA.complete({**_COUNTED, **dict.fromkeys((*FREE, *_WITH_BODIES))}, "costs")

__all__ = ["Access", "Counter", "Counts", "Work", "count", "estimated"]
