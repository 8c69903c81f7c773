"""The verifier's rules of the ops of ``ma_tile.ir.async_ops``, and of wgmma.

PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" (shapes, fragments, shared memory layouts) and
"Data Movement: tensors" (boxes, strides, swizzling).  Every slab of a stage that wgmma or TMA addresses starts at a
multiple of its swizzle pattern, 8 rows of ``swizzle`` bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nautilus.core.buffers import Buffer, Space, show_shape
from nautilus.core.expr.nodes import Const, Expr
from nautilus.core.tiles import TileType
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.access import varies
from nautilus.ma_tile.analysis.digits import Digit, digit_of, is_whole
from nautilus.ma_tile.analysis.tma_boxes import (
    aligned,
    combined_axes,
    device_ends,
    multicast_part,
    whole_rows,
)
from nautilus.ma_tile.ir.async_ops import (
    GROUP_WARPS,
    AdvanceOp,
    ClusterArrive,
    ClusterWait,
    LetOp,
    MatrixStore,
    MbarExpect,
    MbarInit,
    NamedArrive,
    ProxyFence,
    TmaCommit,
    TmaLoad,
    TmaStore,
    TmaWait,
    WgCommit,
    WgFence,
    WgWait,
)
from nautilus.ma_tile.ir.instruction_tables import WGMMA, WgInstr, has_types, wg_a_layout, wg_acc_layout
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import Frag, MbarArrive, MbarWait, MmaOp, Slot, Smem, walk_ops
from nautilus.ma_tile.verify.layout import same_map
from nautilus.ma_tile.verify.scope import KernelScope
from nautilus.ma_tile.verify.tile_scheduler import TILE_SCHEDULER_RULES
from nautilus.targets.limits import BOX, NAMED_BARRIERS, TENSOR_MAP_AXES


def _engines(s: KernelScope) -> None:
    ok = s.target.warpgroup
    s.need(ok, "the target has TMA and wgmma", s.module.target)


def _group(s: KernelScope) -> None:
    _engines(s)
    ok = s.warps == GROUP_WARPS and s.first % GROUP_WARPS == 0 and not s.single
    detail = f"a consumer of {s.warps} warps from warp {s.first}"
    s.need(ok, "wgmma runs in a consumer of 4 warps that starts at a multiple of 4", detail)


def _threads(s: KernelScope) -> None:
    s.need(not s.single, "a single role has no fragments and no thread barriers", type(s.op).__name__)


def pattern(swizzle: int) -> int:
    """Bytes after which the swizzle repeats; without swizzle, the alignment of the stage of a TMA copy."""
    return 8 * swizzle if swizzle else 128


def _engine_stage(s: KernelScope, slot: Slot) -> Smem:
    """The buffer of a stage that TMA or wgmma addresses."""
    b = s.slot(slot)
    align, layout = pattern(b.swizzle), b.layout()
    rule = "stages of TMA copies and wgmma operands are aligned to their swizzle pattern"
    s.need(b.pad == 0, "stages of TMA copies and wgmma operands have no padding", b.name)
    s.need(b.offset % align == 0, rule, f"{b.name} at {b.offset}, no multiple of {align}")
    s.need(b.stages == 1 or b.stage_bytes % align == 0, rule, f"{b.name}: {b.stage_bytes} bytes a stage")
    slabs = b.swizzle and layout.cols * b.dtype.bytes // b.swizzle
    s.need(slabs < 2 or layout.rows % 8 == 0, rule, f"{b.name}: {layout.rows} rows a slab")
    return b


# -- TMA copies -------------------------------------------------------------------------------


def _tile(s: KernelScope, op: TmaLoad | TmaStore) -> tuple[Smem, Buffer]:
    """Check that the copy moves a box of the buffer with the shape of the stage."""
    _engines(s)
    stage, buffer = _engine_stage(s, op.slot), s.buffers.get(op.buffer)
    if buffer is None:
        s.fail("buffers are declared", f"no buffer is called {op.buffer}")
    s.need(buffer.dtype is stage.dtype, "copies keep the type", f"{buffer.dtype}, not {stage.dtype}")
    rank = len(buffer.shape)
    detail = f"{op.buffer} has {rank} dimensions, not {len(op.index)}"
    s.need(len(op.index) == rank, "an access has one index for each dimension", detail)
    names = tuple(a.name for a in stage.axes)
    for e in op.index:
        s.typed(e, f"an index of {op.buffer}", (DType.I32, DType.I64), None, names)
    sizes = {a.name: a.size for a in stage.axes}
    found = [_digit(s, e, sizes) for e in op.index]
    used = [x for x in found if x is not None]
    whole = all(is_whole(used, a.name, a.size) for a in stage.axes)
    detail = f"axes {', '.join(x.axis for x in used)} of {stage.name}"
    s.need(whole, "a TMA copy moves a box of the stage's shape", detail)
    last = found[-1] if stage.axes and found else None
    ok = last is not None and (last.axis, last.stride) == (stage.axes[-1].name, 1)
    s.need(ok, "a TMA copy has the same contiguous axis in buffer and stage", f"{op.buffer} and {stage.name}")
    if op.index:
        ok = aligned(op.index[-1], sizes, stage.dtype.bytes)
        s.need(ok, "TMA copies start at multiples of 16 bytes of a row", op.buffer)
    _box(s, stage, buffer, used)
    rule = "TMA copies move no elements beyond a size in device memory that meet others"
    for n in device_ends(buffer):
        at = found[n]
        apart = isinstance(op, TmaLoad) and at is not None and at.axis not in combined_axes(s.kernel)
        s.need(apart, rule, f"axis {n} of {op.buffer}")
    return stage, buffer


def _digit(s: KernelScope, e: Expr, sizes: Mapping[str, int]) -> Digit | None:
    """What counts the buffer axis with index ``e``: a tile axis or a digit of one; None for the same place."""
    here = [x for x in sizes if varies(e, x, {})]
    found = digit_of(e, sizes) if here else None
    ok = not here or found is not None
    s.need(ok, "indices of TMA copies are base, base + AXIS, or base and a digit of an axis", ", ".join(here))
    return found


def _box(s: KernelScope, stage: Smem, buffer: Buffer, digits: list[Digit]) -> None:
    width, columns = stage.dtype.bytes, stage.axes[-1].size
    s.need(len(buffer.shape) <= TENSOR_MAP_AXES, f"tensor maps have at most {TENSOR_MAP_AXES} axes", buffer.name)
    if len(buffer.shape) > 1:
        row = show_shape(buffer.shape[-1:])
        s.need(whole_rows(buffer), "rows of TMA copies are multiples of 16 bytes", f"{row} elements of {buffer.name}")
    ok = columns * width % 16 == 0
    s.need(ok, "rows of TMA copies are multiples of 16 bytes", f"{columns} elements of {stage.name}")
    inner = stage.swizzle // width if stage.swizzle else columns
    last = next((d.size for d in digits if (d.axis, d.stride) == (stage.axes[-1].name, 1)), inner)
    s.need(last % inner == 0, "rows of a box fill whole slabs", f"{last} elements of {stage.name}, not {inner}")
    wide = [(d.axis, d.size) for d in digits if d.axis != stage.axes[-1].name] + [(stage.axes[-1].name, inner)]
    for name, size in wide:
        s.need(size <= BOX, f"boxes have at most {BOX} positions an axis", f"{size} on {name} of {stage.name}")


def tma_load(s: KernelScope, op: TmaLoad) -> None:
    """A TMA load: synchronous or on an mbarrier, for one block or for the whole cluster."""
    stage, _ = _tile(s, op)
    if op.mbar is None:
        s.need(not s.single, "a synchronous TMA load needs all threads of a consumer", stage.name)
        s.need(op.multicast == 1, "a multicast load arrives on an mbarrier", stage.name)
        return
    s.mbar(*op.mbar)
    if op.multicast != 1:
        ok = op.multicast == s.kernel.cluster
        s.need(ok, "a multicast load goes to all blocks of the cluster", f"{op.multicast} of {s.kernel.cluster}")
        ok = multicast_part(stage, op.multicast) is not None
        s.need(ok, "the blocks of a cluster copy equal parts of a multicast load", f"{stage.name} for {op.multicast}")
        back = [x for x in walk_ops(s.kernel.body) if isinstance(x, MbarArrive) and x.cluster]
        s.need(bool(back), "stages of multicast loads are released to all blocks of the cluster", stage.name)


def tma_store(s: KernelScope, op: TmaStore) -> None:
    """A TMA store writes an output or temp."""
    _, buffer = _tile(s, op)
    s.need(buffer.space is not Space.INPUT, "inputs are not written", op.buffer)


def tma_commit(s: KernelScope, op: TmaCommit) -> None:
    """A commit of the stores of this thread."""
    _engines(s)


def tma_wait(s: KernelScope, op: TmaWait) -> None:
    """A number of groups."""
    _engines(s)
    s.need(op.pending >= 0, "the number of pending groups is in range", str(op.pending))


def mbar_init(s: KernelScope, op: MbarInit) -> None:
    """``verify.mbarriers`` checks its place."""
    _threads(s)


def mbar_arrive(s: KernelScope, op: MbarArrive) -> None:
    """The mbarrier is declared; arrivals are those of threads or warps, and in other blocks only of a cluster."""
    s.mbar(op.mbar, op.stage)
    ok = op.each == "thread" or (op.each == "warp" and not s.single)
    s.need(ok, "threads arrive, or the warps of a consumer", op.each)
    s.need(not op.cluster or s.kernel.cluster > 1, "clusters are declared", op.mbar)
    s.need(
        len(s.arrivals[op.mbar]) == 1, "all arrivals on a barrier come from the cluster, or all from the block", op.mbar
    )


def mbar_wait(s: KernelScope, op: MbarWait) -> None:
    """The mbarrier is declared; the parity is the same for all threads, and 0 or 1."""
    s.mbar(op.mbar, op.stage)
    s.uniform(op.parity, "the parity")
    if isinstance(op.parity, Const):
        s.need(op.parity.value in (0, 1), "parities are 0 or 1", str(op.parity.value))


def mbar_expect(s: KernelScope, op: MbarExpect) -> None:
    """The expected bytes are in the range of the mbarrier."""
    _engines(s)
    s.mbar(op.mbar, op.stage)
    ok = 0 < op.bytes < 1 << 20 and op.bytes % 16 == 0
    s.need(ok, "an mbarrier expects a multiple of 16 bytes below 1 MiB", str(op.bytes))


# -- threads ----------------------------------------------------------------------------------


def named_barrier(s: KernelScope, number: Expr, threads: int) -> None:
    """A named barrier of whole warps."""
    _threads(s)
    s.uniform(number, "the barrier's number")
    if isinstance(number, Const):
        last = NAMED_BARRIERS - 1
        s.need(0 <= number.value <= last, f"barriers are numbered 0 to {last}", str(number.value))
    block = 32 * s.kernel.warps
    free = number != Const(0, DType.I32) or threads == block
    s.need(free, "barrier 0 is the barrier of the whole block", f"{threads} of {block} threads")
    ok = threads % 32 == 0 and 32 * s.warps <= threads <= block
    s.need(ok, "barriers count whole warps of the block", f"{threads} of {block}")


def named_arrive(s: KernelScope, op: NamedArrive) -> None:
    """An arrival at a named barrier where other threads wait."""
    named_barrier(s, op.number, op.threads)
    more = op.threads > 32 * s.warps
    s.need(more, "some threads wait at a named barrier", f"all {op.threads} threads only arrive")
    s.need(op.number != Const(0, DType.I32), "barrier 0 is the barrier of the whole block", "0")


def st_matrix(s: KernelScope, op: MatrixStore) -> None:
    """stmatrix stores a 16-bit accumulator fragment to a swizzled stage, with rows along the contiguous axis."""
    _group(s)
    layout, t, buffer = s.use(op.value), op.value.type, s.slot(op.slot)
    ok = t.dtype.bytes == 2 and buffer.dtype is t.dtype
    s.need(ok, "stmatrix moves 16-bit elements", f"{t.dtype} to {buffer.dtype}")
    axes = [(a.name, a.size) for a in buffer.axes if a.size > 1]
    whole = len(axes) == 2 and set(axes) == {(a.name, a.size) for a in t.axes if a.size > 1}
    s.need(whole, "an access moves a whole stage", f"axes of {buffer.name} and of the fragment differ")
    m, n = axes
    ok = _is_accumulator(layout, m, n)
    s.need(ok, "fragments are in the instruction's layout", f"%{op.value.name} is no accumulator with columns {n[0]}")
    s.need(buffer.swizzle != 0, "stmatrix writes swizzled stages", buffer.name)


def fence_proxy(s: KernelScope, op: ProxyFence) -> None:
    """A proxy fence of the threads of a role."""
    _engines(s)
    _threads(s)


# -- MMA --------------------------------------------------------------------------------------


def _is_accumulator(layout: FragLayout, m: tuple[str, int], n: tuple[str, int]) -> bool:
    if m[1] % 64 or n[1] % 8:
        return False
    return same_map(layout, wg_acc_layout(m[0], n[0], m[1], n[1]))


def wgmma(s: KernelScope, op: MmaOp, a: TileType, b: TileType, layout: FragLayout, depth: int) -> None:
    """Shapes, types and layouts of ``wgmma``; the caller has checked the axes."""
    _group(s)
    instr = WGMMA[op.instr]
    ok = has_types(instr, a.dtype, b.dtype, op.result.type.dtype)
    types = f"{a.dtype}, {b.dtype}: {op.result.type.dtype}"
    s.need(ok, "operand and accumulator types are those of the instruction", types)
    s.need(op.ahead == 0, "wgmma has no prefetched k-steps", f"ahead {op.ahead}")
    free = [[(x.name, x.size) for x in t.axes if x.name != op.over and x.size > 1] for t in (a, b)]
    ok = len(free[0]) == 1 and len(free[1]) == 1 and free[0] != free[1] and depth % instr.k == 0
    s.need(ok, "an MMA multiplies two matrices of whole k-steps", f"{op.over} is {depth} deep, a k-step {instr.k}")
    ok = op.terms is None or (0 < op.terms <= depth and op.terms % instr.k == 0)
    s.need(ok, "the terms of an MMA are whole k-steps of its axis", f"{op.terms} of {depth}")
    m, n = free[0][0], free[1][0]
    s.need(m[1] in (64, 128), "a consumer computes 64 or 128 rows of a wgmma result", f"{m[1]} of {m[0]}")
    ok = n[1] % instr.n_step == 0
    rule = "columns of a wgmma result are a multiple of the instruction's step"
    s.need(ok, rule, f"{n[1]} of {n[0]}, no multiple of {instr.n_step}")
    ok = _is_accumulator(layout, m, n)
    s.need(ok, "fragments are in the instruction's layout", f"%{op.result.name} is no accumulator")
    if isinstance(op.a, Frag):
        ok = same_map(s.layout(op.a.layout), wg_a_layout(op.instr, m[0], op.over, m[1], depth))
        s.need(ok, "fragments are in the instruction's layout", f"%{op.a.name} is no operand")
    else:
        _operand(s, op.a, op.over, m[0], instr)
    if isinstance(op.b, Frag):
        s.fail("operand b of wgmma is in shared memory", f"%{op.b.name}")
    _operand(s, op.b, op.over, n[0], instr)


def _operand(s: KernelScope, slot: Slot, over: str, free: str, instr: WgInstr) -> None:
    """A shared operand is swizzled, and contiguous along ``over``, or along ``free`` if the instruction reads that."""
    b = _engine_stage(s, slot)
    s.need(b.swizzle != 0, "shared operands of wgmma are swizzled", b.name)
    order = [a.name for a in b.axes if a.size > 1]
    ok = order == [free, over] or (instr.both_majors and order == [over, free])
    s.need(ok, "shared operands have a major order that the instruction reads", f"{b.name} is [{', '.join(order)}]")
    rows = b.layout().rows
    s.need(rows % 8 == 0, "operands have whole groups of 8 rows", f"{b.name} has {rows}")


def wg_mark(s: KernelScope, op: WgFence | WgCommit) -> None:
    """A fence or commit of a warpgroup."""
    _group(s)


def wg_wait(s: KernelScope, op: WgWait) -> None:
    """A wait has a number of groups, and results that are defined."""
    _group(s)
    s.need(0 <= op.pending < 8, "the number of pending groups is in range", str(op.pending))
    for frag in op.ready:
        s.use(frag)


# -- control ----------------------------------------------------------------------------------


def let(s: KernelScope, op: LetOp) -> None:
    """A ``let`` defines a new variable."""
    s.uniform(op.expr, f"let {op.var}", reads=True)
    s.variable(op.var, op.expr.dtype)
    s.lets[op.var] = op.expr


def advance(s: KernelScope, op: AdvanceOp) -> None:
    """An advance moves a declared pipeline by a number of stages that is not negative."""
    s.need(op.pipeline in s.pipelines, "pipelines are declared", op.pipeline)
    if op.by is not None:
        s.uniform(op.by, "the number of stages")
        back = isinstance(op.by, Const) and int(op.by.value) < 0
        s.need(not back, "a pipeline advances forwards", "backwards")


def cluster_mark(s: KernelScope, op: ClusterArrive | ClusterWait) -> None:
    """All threads of a block in a cluster execute it; ``check_cluster`` checks its place in the kernel."""
    _engines(s)
    s.need(s.kernel.cluster > 1, "clusters are declared", f"kernel {s.kernel.name} has none")
    ok = s.role is None and s.consumers == 1
    s.need(ok, "all threads of a block execute the cluster barrier", s.role or f"{s.consumers} consumers")


WARPGROUP_RULES: Mapping[type, Callable[..., None]] = {
    LetOp: let, AdvanceOp: advance, TmaLoad: tma_load, TmaStore: tma_store,
    TmaCommit: tma_commit, TmaWait: tma_wait, NamedArrive: named_arrive,
    MbarInit: mbar_init, MbarArrive: mbar_arrive, MbarWait: mbar_wait, MbarExpect: mbar_expect,
    MatrixStore: st_matrix, ProxyFence: fence_proxy, WgFence: wg_mark, WgCommit: wg_mark, WgWait: wg_wait,
    ClusterArrive: cluster_mark, ClusterWait: cluster_mark, **TILE_SCHEDULER_RULES,
}  # fmt: skip
