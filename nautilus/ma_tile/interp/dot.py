"""``mma`` of the physical interpreter: matrix instructions and the scalar ``fma``.

``fma``: each thread computes the result elements it holds; a register operand must hold, in that
thread, the element of every position along the summed axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from nautilus.core.numerics import Array
from nautilus.core.types import DType
from nautilus.ma_tile.interp.mma import (
    a_matrix,
    a_registers,
    b_matrix,
    b_registers,
    c_matrix,
    c_registers,
    free_axis,
    instruction,
    matrix_addresses,
    multiply,
    warp_tile,
)
from nautilus.ma_tile.interp.state.shared_memory import MANY
from nautilus.ma_tile.interp.state.values import Fault, addresses, coords, decode, register_type
from nautilus.ma_tile.interp.wgmma import wgmma
from nautilus.ma_tile.ir.instruction_tables import MMA, WGMMA, MmaInstr
from nautilus.ma_tile.ir.layout import FragLayout, Ints
from nautilus.ma_tile.ir.ops import Frag, MatrixLoad, MmaOp, Slot, Smem
from nautilus.targets.limits import WARP

if TYPE_CHECKING:
    from nautilus.ma_tile.interp.block import BlockRun
    from nautilus.ma_tile.interp.state.machine import Context


def dot(run: BlockRun, ctx: Context, op: MmaOp) -> None:
    """``result = acc + a . b``."""
    if op.instr in WGMMA:
        wgmma(run, ctx, op)
    else:
        (_fma if op.instr == "fma" else _matrix)(run, ctx, op)


def _names(run: BlockRun, operand: Frag | Slot) -> tuple[str, ...]:
    if isinstance(operand, Frag):
        return operand.type.names
    return tuple(a.name for a in run.machine.smem(operand.buffer).axes)


def _depth(run: BlockRun, operand: Frag | Slot, over: str) -> int:
    axes = operand.type.axes if isinstance(operand, Frag) else run.machine.smem(operand.buffer).axes
    for a in axes:
        if a.name == over:
            return a.size
    raise Fault("layout", f"an operand has no axis {over}")


# -- matrix instructions ----------------------------------------------------------------------


def _matrix(run: BlockRun, ctx: Context, op: MmaOp) -> None:
    dtype, k = run.type_of(op.a), _depth(run, op.a, op.over)
    instr = instruction(op.instr, dtype, run.type_of(op.b))
    if _depth(run, op.b, op.over) != k or k % instr.k:
        raise Fault("layout", f"{op.instr} cannot multiply these operands over {op.over}")
    layout, result = run.machine.layout(op.result.layout), op.result.type
    run.shape(ctx, layout)
    left, right = _names(run, op.a), _names(run, op.b)
    m = free_axis(left, op.over, result.names, right)
    n = free_axis(right, op.over, result.names, left)
    row0, col0, rows, cols = warp_tile(layout, result, m, n)
    if isinstance(op.a, Frag):
        a = a_matrix(run.get(ctx, op.a), instr, k // instr.k)
    else:
        a = _tiles(_shared_matrix(run, ctx, op, op.a, m, op.over), row0, rows)
    if isinstance(op.b, Frag):
        b = b_matrix(run.get(ctx, op.b), instr, k // instr.k)
    else:
        b = _tiles(_shared_matrix(run, ctx, op, op.b, n, op.over), col0, cols).transpose(0, 2, 1)
    if a.shape[1] != rows or b.shape[2] != cols:
        got = f"{a.shape[1]}x{b.shape[2]}"
        raise Fault("layout", f"the operands give {got} a warp, the result has {rows}x{cols}")
    _accumulate(run, ctx, op, instr, multiply(a, b, dtype, instr.acc))


def _accumulate(run: BlockRun, ctx: Context, op: MmaOp, instr: MmaInstr, d: Array) -> None:
    acc = None if op.acc is None else run.get(ctx, op.acc)
    if op.result.type.dtype is not instr.acc or (acc is not None and acc.dtype != register_type(instr.acc)):
        raise Fault("layout", f"{op.instr} accumulates {instr.acc}")
    with np.errstate(all="ignore"):
        d = np.broadcast_to(d, (ctx.actor.warps, *d.shape[1:]))
        if acc is not None:
            if acc.size != d.size:
                raise Fault("layout", "the accumulator's registers are not the result's")
            d = c_matrix(acc, d.shape[1], d.shape[2]) + d
    run.put(ctx, op.result, c_registers(d))


def _shared_matrix(run: BlockRun, ctx: Context, op: MmaOp | MatrixLoad, slot: Slot, free: str, over: str) -> Array:
    """Byte addresses of the elements [free, over] of a stage, for the instructions that read it."""
    matrix = _matrix_addresses(run, ctx, op, slot, free, over)
    return _read_matrix(run, ctx, op, slot, matrix)


def _matrix_addresses(run: BlockRun, ctx: Context, op: MmaOp | MatrixLoad, slot: Slot, free: str, over: str) -> Ints:
    buffer = run.machine.smem(slot.buffer)
    base = run.base(ctx, slot)
    if base % 16:
        raise Fault("misaligned", f"the stage of {buffer.name} starts at {base}, no multiple of 16")
    key = f"matrix {slot.buffer}"
    out: Ints = run.machine.cached(op, key, lambda: matrix_addresses(buffer, slot.swizzle, free, over)) + base
    return out


def _read_matrix(run: BlockRun, ctx: Context, op: MmaOp | MatrixLoad, slot: Slot, address: Ints) -> Array:
    """Elements at ``address``, read by many threads."""
    dtype = run.machine.smem(slot.buffer).dtype
    thread = np.asarray(MANY, np.int32)
    bits = run.shared.load(ctx.actor.clock, address, dtype.bytes, thread, run.op_number(op))
    return decode(bits, dtype)


def matrix_load(run: BlockRun, ctx: Context, op: MatrixLoad) -> None:
    """``ld.matrix``: the operand fragments that ldmatrix delivers, which need not agree with the declared layout.

    Raises Fault.
    """
    layout, result = run.machine.layout(op.result.layout), op.result.type
    run.shape(ctx, layout)
    free = free_axis(result.names, op.axis, result.names)
    depth = next(a.size for a in result.axes if a.name == op.axis)
    instr = next((i for i in MMA.values() if result.dtype in i.operands and i.pack == 2), None)
    if instr is None or depth % instr.k or len(layout.reg) < 2:
        raise Fault("unsupported", f"ldmatrix does not give a {result.dtype} operand {depth} deep")
    if run.machine.smem(op.slot.buffer).dtype is not result.dtype:
        raise Fault("layout", f"{op.slot.buffer} does not hold {result.dtype}")
    address = _matrix_addresses(run, ctx, op, op.slot, free, op.axis)[:, op.start : op.start + depth]
    if address.shape[1] != depth or op.start % 8:
        where = f"{depth} positions from {op.start} on {op.axis}"
        raise Fault("out-of-bounds", f"{op.slot.buffer} has no {where}")
    first = coords(layout, free)[:, 0, 0]
    is_a = layout.reg[1].axis != op.axis
    count = layout.registers // (depth // instr.k * (8 if is_a else 4)) * (16 if is_a else 8)
    tiles = _tiles(_read_matrix(run, ctx, op, op.slot, address), first, count)
    tiles = np.broadcast_to(tiles, (layout.warps, *tiles.shape[1:]))
    registers = a_registers(tiles, instr) if is_a else b_registers(tiles.transpose(0, 2, 1), instr)
    run.put(ctx, op.result, registers)


def _tiles(matrix: Array, first: Ints, count: int) -> Array:
    """[warp, count, k]: the rows from ``first[warp]`` on; a single copy if all warps read the same rows."""
    if int(first.max()) + count > matrix.shape[0]:
        raise Fault("out-of-bounds", f"a warp reads rows past the {matrix.shape[0]} of an operand")
    if not first.any():
        return matrix[None, :count]
    return np.stack([matrix[f : f + count] for f in first])


# -- fma --------------------------------------------------------------------------------------


def _fma(run: BlockRun, ctx: Context, op: MmaOp) -> None:
    layout, dtype = run.machine.layout(op.result.layout), op.result.type.dtype
    shape, k = run.shape(ctx, layout), _depth(run, op.a, op.over)
    if _depth(run, op.b, op.over) != k:
        raise Fault("layout", f"the operands differ in depth along {op.over}")
    wide = np.int64 if dtype.is_int else (np.float64 if dtype is DType.F64 else np.float32)
    a, ra = _fma_operand(run, ctx, op, op.a, layout, k)
    b, rb = _fma_operand(run, ctx, op, op.b, layout, k)
    a, b = a.astype(wide), b.astype(wide)
    with np.errstate(all="ignore"):
        product = np.matmul(a, b.swapaxes(2, 3))  # [warp, lane, registers of a, registers of b]
        d = product[:, :, ra, rb].astype(register_type(dtype))
        if op.acc is not None:
            d = (run.get(ctx, op.acc) + d).astype(register_type(dtype))
    run.put(ctx, op.result, np.broadcast_to(d, shape))


def _fma_operand(
    run: BlockRun, ctx: Context, op: MmaOp, operand: Frag | Slot, layout: FragLayout, k: int
) -> tuple[Array, Ints]:
    """Operand values [warp, lane, operand register, k], and the operand register of each result register."""
    names = _names(run, operand)
    free = tuple(x for x in op.result.type.names if x in names)
    own, entries = _projected(layout, free)
    what = "a" if operand is op.a else "b"
    if isinstance(operand, Slot):
        buffer = run.machine.smem(operand.buffer)
        relative = run.machine.cached(
            op, f"fma {what}", lambda: _fma_addresses(buffer, operand.swizzle, own, free, op.over, k)
        )
        address = relative + run.base(ctx, operand)
        bits = run.shared.load(ctx.actor.clock, address, buffer.dtype.bytes, ctx.threads[..., None], run.op_number(op))
        return decode(bits, buffer.dtype), entries
    held = run.machine.layout(operand.layout)
    where = _fma_registers(held, own, free, op.over, k)
    x = run.get(ctx, operand)
    if x.shape != run.shape(ctx, held):
        raise Fault("layout", f"%{operand.name} does not have the registers of its layout")
    return np.take_along_axis(x, where.reshape(*x.shape[:2], -1), axis=2).reshape(where.shape), entries


def _fma_addresses(buffer: Smem, swizzle: int, own: FragLayout, free: tuple[str, ...], over: str, k: int) -> Ints:
    """Stage-relative addresses [warp, lane, register, k]."""

    def places() -> Iterator[Ints]:
        for a in buffer.axes:
            if a.size > 1 and a.name != over and a.name not in free:
                raise Fault("unsupported", f"axis {a.name} of {buffer.name} is neither summed nor in the result")
            yield np.arange(k, dtype=np.int64) if a.name == over else coords(own, a.name)[..., None]

    return addresses(buffer, swizzle, places(), (own.warps, WARP, own.registers, 1))


@lru_cache(maxsize=1024)
def _projected(layout: FragLayout, axes: tuple[str, ...]) -> tuple[FragLayout, Ints]:
    """``layout`` along ``axes`` only, and the register there of each of its registers."""
    return layout.project(axes), np.asarray(layout.register_map(axes), np.int64)


@lru_cache(maxsize=256)
def _fma_registers(held: FragLayout, own: FragLayout, free: tuple[str, ...], over: str, k: int) -> Ints:
    """Register of ``held`` [warp, lane, register, k] in the same thread. Raises Fault if another thread has it."""
    if held.warps != own.warps:
        raise Fault("layout", "an operand of fma belongs to another role")
    keys = coords(held, over)
    wanted: Array = np.arange(k, dtype=np.int64)
    scale = k
    for x in free:
        keys = keys + coords(held, x) * scale
        wanted = wanted + coords(own, x)[..., None] * scale
        scale *= max(held.extent(x), own.extent(x))
    wanted = np.broadcast_to(wanted, (own.warps, 32, own.registers, k))
    order = np.argsort(keys, axis=2, kind="stable")
    out = np.zeros(wanted.shape, np.int64)
    for w, lane in np.ndindex(own.warps, 32):
        line, want = keys[w, lane][order[w, lane]], wanted[w, lane]
        at = np.minimum(np.searchsorted(line, want), len(line) - 1)
        if not np.array_equal(line[at], want):
            raise Fault("layout", "an operand of fma is not in the registers of the thread that needs it")
        out[w, lane] = order[w, lane][at]
    return out


#: op class -> what runs it in one thread block
TABLE: Mapping[type, Callable[[BlockRun, Context, Any], None]] = {
    MmaOp: dot,
    MatrixLoad: matrix_load,
}
