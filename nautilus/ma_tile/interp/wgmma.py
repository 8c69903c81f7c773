"""wgmma of the physical interpreter, with the addresses and fragment maps of the hardware.

PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".  A shared operand is addressed as by the tensor core:
slabs of ``swizzle`` bytes, rows of one slab after another, the 16-byte chunk number xor-ed with
bits of the *address*.  A stage that does not start at a multiple of the pattern is therefore read incorrectly.
Registers, least significant first: operand A is as in ``interp.mma`` with blocks of 64 rows, of which warp w has the
16 rows from 16 w on; the accumulator likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nautilus.core.numerics import Array
from nautilus.ma_tile.interp.mma import free_axis, multiply
from nautilus.ma_tile.interp.state.outstanding import Outstanding, PendingMma, Undefined
from nautilus.ma_tile.interp.state.shared_memory import MANY, PendingRead
from nautilus.ma_tile.interp.state.values import Fault, decode, encode, register_type
from nautilus.ma_tile.ir.async_ops import GROUP_WARPS, MatrixStore, ProxyFence, WgCommit, WgFence, WgWait
from nautilus.ma_tile.ir.instruction_tables import WGMMA, WgInstr, has_types
from nautilus.ma_tile.ir.layout import Ints
from nautilus.ma_tile.ir.ops import Frag, MmaOp, Slot, Smem

if TYPE_CHECKING:
    from nautilus.ma_tile.interp.block import BlockRun
    from nautilus.ma_tile.interp.state.machine import Context

# -- maps -------------------------------------------------------------------------------------


def engine_addresses(buffer: Smem, swizzle: int, base: int) -> Ints:
    """Address of every element [row, column] of the stage at ``base``, as TMA and wgmma compute it."""
    layout, width = buffer.layout(), buffer.dtype.bytes
    rows = np.arange(layout.rows, dtype=np.int64)[:, None]
    byte = np.arange(layout.cols, dtype=np.int64)[None, :] * width
    if not swizzle:
        return base + rows * (layout.cols * width) + byte
    plain = base + byte // swizzle * (layout.rows * swizzle) + rows * swizzle + byte % swizzle
    return np.asarray(plain ^ ((plain >> 3) & (swizzle - 16)))


def a_matrix(x: Array, instr: WgInstr, depth: int) -> Array:
    """A-operand registers [4, 32, R] as [rows, depth]. Raises Fault."""
    p = instr.pack
    steps = depth // instr.k
    if x.shape[0] != GROUP_WARPS or x.shape[2] % (4 * p * steps):
        raise Fault("layout", f"{x.shape[2]} registers are no A operand of {steps} k-steps")
    y = x.reshape(GROUP_WARPS, 8, 4, -1, steps, 2, 2, p)  # warp, group, member, block, step, k half, row half, pack
    return y.transpose(3, 0, 6, 1, 4, 5, 2, 7).reshape(-1, depth)


def c_matrix(x: Array, rows: int, cols: int) -> Array:
    """Accumulator registers [4, 32, R] as [rows, cols]; 16-bit results of it likewise. Raises Fault."""
    if x.shape[0] != GROUP_WARPS or rows % 64 or cols % 8 or x.shape[2] * 128 != rows * cols:
        raise Fault("layout", f"{x.shape[2]} registers of {x.shape[0]} warps are no accumulators of {rows}x{cols}")
    y = x.reshape(GROUP_WARPS, 8, 4, rows // 64, cols // 8, 2, 2)  # warp, group, member, block, tile, row half, pair
    return y.transpose(3, 0, 5, 1, 4, 2, 6).reshape(rows, cols)


def c_registers(d: Array) -> Array:
    """The inverse of :func:`c_matrix`."""
    rows, cols = d.shape
    y = d.reshape(rows // 64, GROUP_WARPS, 2, 8, cols // 8, 4, 2)
    return y.transpose(1, 3, 5, 0, 4, 2, 6).reshape(GROUP_WARPS, 32, -1)


# -- MMA --------------------------------------------------------------------------------------


def _group(ctx: Context) -> None:
    actor = ctx.actor
    if actor.warps != GROUP_WARPS or actor.first_warp % GROUP_WARPS or actor.single:
        raise Fault("unsupported", f"{actor.warps} warps from warp {actor.first_warp} are no warpgroup")


def wgmma(run: BlockRun, ctx: Context, op: MmaOp) -> None:
    """Issue an MMA; a synchronous one completes at once. Raises Fault."""
    _group(ctx)
    instr, engines = WGMMA[op.instr], ctx.actor.engines
    if not op.is_async:
        engines.written.clear()
        engines.fenced = True
    elif not engines.fenced:
        raise Fault("missing-fence", "no wg.fence stands at the start of a group of asynchronous MMAs")
    m, n = (free_axis(run.axes_of(x), op.over, op.result.type.names) for x in (op.a, op.b))
    pending: list[PendingRead] = []
    a = _left(run, ctx, op, instr, m, pending)
    if not isinstance(op.b, Slot):
        raise Fault("unsupported", "operand b of wgmma is in shared memory")
    b = _stage(run, ctx, op, op.b, n, instr, pending)
    depth = a.shape[1]
    if b.shape[1] != depth or depth % instr.k or b.shape[0] % instr.n_step or a.shape[0] % 64:
        raise Fault("layout", f"{op.instr} cannot multiply {a.shape[0]}x{depth} and {depth}x{b.shape[0]}")
    dtype = run.type_of(op.a)
    if not has_types(instr, dtype, run.type_of(op.b), instr.acc):
        raise Fault("unsupported", f"{op.instr} takes no {dtype} and {run.type_of(op.b)}")
    d = multiply(a[:, : op.terms], b[:, : op.terms].T, dtype, instr.acc)
    if run.machine.layout(op.result.layout).registers * 128 != d.size or op.result.type.dtype is not instr.acc:
        raise Fault("layout", f"the result has other registers than {d.shape[0]}x{d.shape[1]} of {instr.acc}")
    acc, roots = _accumulator(run, ctx, op, d.shape, register_type(instr.acc))
    if acc is not None:
        with np.errstate(all="ignore"):
            d = acc + d
    _issue(run, ctx, op, c_registers(d), roots, pending)


def _issue(
    run: BlockRun, ctx: Context, op: MmaOp, value: Array, roots: frozenset[str], pending: list[PendingRead]
) -> None:
    engines, memory, clock = ctx.actor.engines, run.shared, ctx.actor.clock
    if not op.is_async:
        for h in pending:
            memory.release(clock, h)
        engines.mma_groups.append(engines.mmas)
        engines.mmas = []
        _retire(run, ctx, 0)
        run.put(ctx, op.result, value)
        engines.written.clear()
        return
    number = run.op_number(op)
    result = Outstanding(value, roots | {op.result.name}, number)
    reads = frozenset({op.a.name}) if isinstance(op.a, Frag) else frozenset[str]()
    engines.mmas.append(PendingMma(number, pending, reads, result))
    run.put_raw(ctx, op.result, result)


def _left(run: BlockRun, ctx: Context, op: MmaOp, instr: WgInstr, m: str, pending: list[PendingRead]) -> Array:
    if isinstance(op.a, Slot):
        return _stage(run, ctx, op, op.a, m, instr, pending)
    x = run.get(ctx, op.a)
    _fenced(ctx, op.a, x)
    depth = next((a.size for a in op.a.type.axes if a.name == op.over), 0)
    return a_matrix(x, instr, depth)


def _stage(
    run: BlockRun, ctx: Context, op: MmaOp, slot: Slot, free: str, instr: WgInstr, pending: list[PendingRead]
) -> Array:
    """A shared operand as [free, over]."""
    buffer = run.machine.smem(slot.buffer)
    order = [a.name for a in buffer.axes if a.size > 1 or a.name in (free, op.over)]
    across = order == [op.over, free]
    if (order != [free, op.over] and not across) or (across and not instr.both_majors) or not slot.swizzle:
        raise Fault("unsupported", f"{op.instr} does not read {buffer.name} over {op.over} with swizzle {slot.swizzle}")
    address = run.engine_addresses(ctx, slot)
    thread = np.asarray(MANY, np.int32)
    bits, pending_read = run.shared.fetch(ctx.actor.clock, address, buffer.dtype.bytes, thread, run.op_number(op))
    pending.append(pending_read)
    x = decode(bits, buffer.dtype)
    return x.T if across else x


def _fenced(ctx: Context, frag: Frag, x: Array) -> None:
    if id(x) in ctx.actor.engines.written:
        raise Fault("missing-fence", f"%{frag.name} was written by threads since the last wg.fence")


def _accumulator(
    run: BlockRun, ctx: Context, op: MmaOp, shape: tuple[int, ...], dtype: type
) -> tuple[Array | None, frozenset[str]]:
    """The initial value of the sum, and the fragments whose registers the result reuses."""
    if op.acc is None:
        return None, frozenset()
    zero = op.zero_init is not None and bool(run.integer(ctx, op.zero_init, "the start of the accumulator"))
    x = run.raw(ctx, op.acc)
    roots = frozenset({op.acc.name})
    if isinstance(x, Outstanding):
        if x.spent:
            x.read(op.acc.name)
        roots |= x.roots
        x.spent = x.spent or not x.ready
        value = x.value
    elif isinstance(x, Undefined):
        if not zero:
            raise Fault("undefined-fragment", f"%{op.acc.name} has no value to start from")
        return None, roots
    else:
        _fenced(ctx, op.acc, x)
        value = x
    if zero:
        return None, roots
    if value.dtype != dtype:
        raise Fault("layout", f"{op.instr} accumulates {dtype.__name__}")
    return c_matrix(value, shape[0], shape[1]), roots


# -- order ------------------------------------------------------------------------------------


def wg_fence(run: BlockRun, ctx: Context, op: WgFence) -> None:
    """MMAs after the fence may use the registers that threads wrote before it."""
    _group(ctx)
    ctx.actor.engines.written.clear()
    ctx.actor.engines.fenced = True


def wg_commit(run: BlockRun, ctx: Context, op: WgCommit) -> None:
    """Close a group of the MMAs since the last commit."""
    _group(ctx)
    engines = ctx.actor.engines
    engines.mma_groups.append(engines.mmas)
    engines.mmas, engines.fenced = [], False


def _retire(run: BlockRun, ctx: Context, pending: int) -> None:
    groups = ctx.actor.engines.mma_groups
    while len(groups) > pending:
        for p in groups.pop(0):
            p.result.retired = True
            for h in p.pending_reads:
                run.shared.release(ctx.actor.clock, h)


def wg_wait(run: BlockRun, ctx: Context, op: WgWait) -> None:
    """Complete all but the youngest groups; the listed results become readable. Raises Fault."""
    _group(ctx)
    _retire(run, ctx, op.pending)
    for frag in op.ready:
        x = run.raw(ctx, frag)
        if isinstance(x, Outstanding):
            if not x.retired:
                raise Fault("outstanding", f"%{frag.name} is listed, but its group may be outstanding")
            x.ready = True


def fence_proxy(run: BlockRun, ctx: Context, op: ProxyFence) -> None:
    """TMA and wgmma may read, after a barrier, what these threads wrote to shared memory."""
    run.shared.fence(ctx.actor.clock)


def st_matrix(run: BlockRun, ctx: Context, op: MatrixStore) -> None:
    """``stmatrix``: accumulator registers to rows of 16 bytes, whatever the declared layout says. Raises Fault."""
    _group(ctx)
    buffer, value = run.machine.smem(op.slot.buffer), run.get(ctx, op.value)
    layout = buffer.layout(op.slot.swizzle)
    if buffer.dtype.bytes != 2 or buffer.dtype is not op.value.type.dtype:
        raise Fault("layout", f"stmatrix moves no {op.value.type.dtype} to {buffer.name}")
    matrix = c_matrix(value, layout.rows, layout.cols)
    place = np.arange(matrix.size, dtype=np.int64).reshape(matrix.shape)
    owner = c_matrix(np.broadcast_to(ctx.threads, value.shape), layout.rows, layout.cols)
    row, col = place // layout.cols, place % layout.cols
    address = run.base(ctx, op.slot) + layout.address(row, col // 8 * 8) + 2 * (col % 8)
    bits = encode(matrix, buffer.dtype)
    run.shared.store(ctx.actor.clock, address, bits, owner, run.op_number(op))


#: op class -> what runs it in one thread block
TABLE: Mapping[type, Callable[[BlockRun, Context, Any], None]] = {
    MatrixStore: st_matrix,
    ProxyFence: fence_proxy,
    WgFence: wg_fence,
    WgCommit: wg_commit,
    WgWait: wg_wait,
}
