"""The op ``scan`` in the physical interpreter, in the four steps of :mod:`nautilus.ma_tile.ir.scan`.

Total g of lane l of warp w is element ``(w * totals + g) * 32 + l`` of the scratch buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from nautilus.core.expr.nodes import COMBINERS, identity
from nautilus.core.numerics import Array
from nautilus.ma_tile.interp.data import UFUNCS, agree, element_numbers, linear
from nautilus.ma_tile.interp.state.values import Fault, decode, encode
from nautilus.ma_tile.ir.layout import Ints
from nautilus.ma_tile.ir.scan import Digit, ScanLevels, ScanOp, scan_levels

if TYPE_CHECKING:
    from nautilus.ma_tile.interp.block import BlockRun
    from nautilus.ma_tile.interp.state.machine import Context

_Combine: TypeAlias = Callable[[Array, Array], Array]


def scan(run: BlockRun, ctx: Context, op: ScanOp) -> None:
    """Combine low registers, lanes, warps and high registers in order. Raises Fault."""
    layout = run.machine.layout(op.arg.layout)
    levels = scan_levels(layout, op.axis)
    if levels is None:
        raise Fault("layout", f"#{op.arg.layout} does not have the digits of {op.axis} in the order of a scan")
    x = run.get(ctx, op.arg)
    if x.shape != run.shape(ctx, layout):
        raise Fault("layout", f"%{op.arg.name} does not have the registers of its layout")
    ufunc = UFUNCS[COMBINERS[op.combiner].binary]

    def combine(a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(ufunc(a, b), x.dtype)

    start = np.full((), identity(op.combiner, op.result.type.dtype).value, x.dtype)
    order = levels.registers(op.reverse)
    taken = x[:, :, order]
    out, total = _registers(taken, start, op.exclusive, combine)
    before = np.broadcast_to(start, total.shape)
    if levels.lanes.size > 1:
        before, total = _lanes(total, levels.lanes, op.reverse, start, combine)
    if levels.warps.size > 1:
        before, total = _warps(run, ctx, op, levels, before, total, start, combine)
    result = np.empty_like(x)
    result[:, :, order] = _finished(out, before, total, levels.high.size, start, combine)
    renamed = layout.renamed(op.axis, op.into)
    agree(result, run.machine.cached(op, "element", lambda: element_numbers(renamed, op.result.type)), op)
    run.put(ctx, op.result, result)


def _registers(x: Array, start: Array, exclusive: bool, combine: _Combine) -> tuple[Array, Array]:
    """Running results over the last axis, and the totals."""
    out, total = np.empty_like(x), np.broadcast_to(start, x.shape[:-1])
    for n in range(x.shape[-1]):
        after = combine(total, x[..., n])
        out[..., n] = total if exclusive else after
        total = after
    return out, total


def _place(numbers: Ints, digit: Digit, reverse: bool) -> Ints:
    """The place of each of ``numbers`` in the order of the scan."""
    place = numbers // digit.step % digit.size
    return digit.size - 1 - place if reverse else place


def _lanes(total: Array, digit: Digit, reverse: bool, start: Array, combine: _Combine) -> tuple[Array, Array]:
    """The running result before each lane, and the total of all lanes."""
    lane = np.arange(32)
    place = _place(lane, digit, reverse)
    by, shape = (-digit.step if reverse else digit.step), (1, 32, 1)

    def earlier(x: Array, distance: int) -> Array:
        return x[:, np.clip(lane - distance * by, 0, 31)]

    distance = 1
    while distance < digit.size:
        total = np.where(place.reshape(shape) >= distance, combine(earlier(total, distance), total), total)
        distance *= 2
    before = np.where(place.reshape(shape) >= 1, earlier(total, 1), start)
    last = lane + (digit.size - 1 - place) * by
    return before, total[:, last]


def _warps(
    run: BlockRun, ctx: Context, op: ScanOp, levels: ScanLevels, before: Array, total: Array, start: Array,
    combine: _Combine,
) -> tuple[Array, Array]:  # fmt: skip
    """The running result before each warp: each writes its totals to scratch, and after a barrier it reads all."""
    dtype, digit = op.result.type.dtype, levels.warps
    if op.scratch is None:
        raise Fault("layout", "warps split a scanned axis and there is no scratch buffer")
    buffer = run.machine.smem(op.scratch)
    if buffer.dtype is not dtype:
        raise Fault("layout", f"{buffer.name} holds {buffer.dtype}, not {dtype}")
    warp = np.arange(total.shape[0])
    place = _place(warp, digit, op.reverse)
    first = warp - warp // digit.step % digit.size * digit.step

    def address(w: Ints) -> Ints:
        element = (w[:, None, None] * total.shape[2] + np.arange(total.shape[2])) * 32 + np.arange(32)[:, None]
        return base + linear(buffer, element)

    base, number = run.origin(ctx) + buffer.offset, run.op_number(op)
    run.shared.store(ctx.actor.clock, address(warp), encode(total, dtype), ctx.threads, number)
    run.barriers.complete([ctx.actor])
    earlier = every = np.broadcast_to(start, total.shape)
    for n in range(digit.size):
        at = first + (digit.size - 1 - n if op.reverse else n) * digit.step
        bits = run.shared.load(ctx.actor.clock, address(at), dtype.bytes, ctx.threads, number)
        part = np.asarray(decode(bits, dtype), total.dtype)
        earlier = np.where((place > n)[:, None, None], combine(earlier, part), earlier)
        every = combine(every, part)
    return combine(earlier, before), every


def _finished(out: Array, before: Array, total: Array, high: int, start: Array, combine: _Combine) -> Array:
    """The elements with what lanes, warps and earlier high registers have before them."""
    shape = (*total.shape[:2], -1, high)
    before, total = before.reshape(shape), total.reshape(shape)
    parts = out.reshape(*shape, out.shape[-1]).copy()
    carry = np.broadcast_to(start, total.shape[:-1])
    for n in range(high):
        parts[..., n, :] = combine(combine(carry, before[..., n])[..., None], parts[..., n, :])
        carry = combine(carry, total[..., n])
    return parts.reshape(out.shape)


#: op class -> what runs it in one thread block
TABLE: Mapping[type, Callable[[BlockRun, Context, Any], None]] = {ScanOp: scan}
