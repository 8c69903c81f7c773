"""The op ``scan`` in the physical interpreter, in the four steps of :mod:`nautilus.ma_tile.ir.scan`.

Total g of lane l of warp w is element ``(w * totals + g) * 32 + l`` of the scratch buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from nautilus.core.common_ops import LEAST_FACTOR
from nautilus.core.expr.nodes import COMBINERS, identity
from nautilus.core.numerics import Array
from nautilus.core.types import DType
from nautilus.ma_tile.interp.data import UFUNCS, agree, element_numbers, linear
from nautilus.ma_tile.interp.scans.maps import Map, over_lanes, over_warps, place
from nautilus.ma_tile.interp.scans.states import scan_states
from nautilus.ma_tile.interp.state.values import Fault, apply, decode, encode, spread
from nautilus.ma_tile.ir.layout import Ints
from nautilus.ma_tile.ir.scan import Digit, ScanLevels, ScanOp, scan_levels
from nautilus.ma_tile.ir.values import Frag

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
    if op.states is not None:
        run.put(ctx, op.result, scan_states(run, ctx, op, op.states, x))
        return
    if op.by is not None:
        run.put(ctx, op.result, _stepped(run, ctx, op, op.by, levels, x))
        return
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


def _after(first: Map, second: Map) -> Map:
    """The map of ``first`` and then ``second``."""
    product = first[0] * second[0]
    if _is_float(product):
        tiny = (np.abs(product) < LEAST_FACTOR) & (first[0] != 0) & (second[0] != 0)
        least = LEAST_FACTOR * np.sign(first[0]) * np.sign(second[0])
        forgets = np.isinf(first[0]) | np.isinf(second[0])
        product = np.where(forgets, np.inf, np.where(tiny, least, product)).astype(product.dtype)
    return product, _moved(second, first[1])


def _is_float(x: Array) -> bool:
    return x.dtype.kind == "f"


def _moved(by: Map, state: Array) -> Array:
    """The state after the steps of ``by`` from ``state``."""
    if not _is_float(state):
        return np.asarray(by[0] * state + by[1])
    moved = apply("fma", [by[0], state, by[1]], DType.F64 if state.dtype == np.float64 else DType.F32)
    return np.asarray(np.where(np.isinf(by[0]), by[1], moved), state.dtype)


def _stepped(run: BlockRun, ctx: Context, op: ScanOp, by: Frag, levels: ScanLevels, x: Array) -> Array:
    """The states of a linear recurrence, in the same four steps, with the maps of steps in place of elements."""
    layout, order = run.machine.layout(op.arg.layout), levels.registers(op.reverse)
    with np.errstate(all="ignore"):
        factors = np.broadcast_to(spread(run.get(ctx, by), layout, by.type.names), x.shape)[:, :, order]
        taken = x[:, :, order]
        none = np.ones_like(taken[..., 0]), np.zeros_like(taken[..., 0])
        total = none
        for n in range(taken.shape[-1]):
            total = _after(total, (factors[..., n], taken[..., n]))
        before = none
        if levels.lanes.size > 1:
            before, total = over_lanes(total, levels.lanes, op.reverse, none, _after)
        if levels.warps.size > 1:  # the factors lie before the rests in the scratch of a warp
            parts, at = _exchanged(run, ctx, op, levels, np.concatenate(total, axis=2))
            maps = [(x[..., : levels.totals], x[..., levels.totals :]) for x in parts]
            before, total = over_warps(maps, at, before, none, _after, levels.whole_lanes)
        result, carry = np.empty_like(x), none[1][..., 0]
        for n in range(total[0].shape[-1]):
            carry = np.zeros_like(carry) if n % levels.high.size == 0 else carry
            state = _moved((before[0][..., n], before[1][..., n]), carry)
            for k in range(taken.shape[-1]):
                state = _moved((factors[..., n, k], taken[..., n, k]), state)
                result[:, :, order[n, k]] = state
            carry = _moved((total[0][..., n], total[1][..., n]), carry)
    agree(result, run.machine.cached(op, "element", lambda: element_numbers(layout, op.result.type)), op)
    return result


def _registers(x: Array, start: Array, exclusive: bool, combine: _Combine) -> tuple[Array, Array]:
    """Running results over the last axis, and the totals."""
    out, total = np.empty_like(x), np.broadcast_to(start, x.shape[:-1])
    for n in range(x.shape[-1]):
        after = combine(total, x[..., n])
        out[..., n] = total if exclusive else after
        total = after
    return out, total


def _lanes(total: Array, digit: Digit, reverse: bool, start: Array, combine: _Combine) -> tuple[Array, Array]:
    """The running result before each lane, and the total of all lanes."""
    lane = np.arange(32)
    at = place(lane, digit, reverse)
    by, shape = (-digit.step if reverse else digit.step), (1, 32, 1)

    def earlier(x: Array, distance: int) -> Array:
        return x[:, np.clip(lane - distance * by, 0, 31)]

    distance = 1
    while distance < digit.size:
        total = np.where(at.reshape(shape) >= distance, combine(earlier(total, distance), total), total)
        distance *= 2
    before = np.where(at.reshape(shape) >= 1, earlier(total, 1), start)
    last = lane + (digit.size - 1 - at) * by
    return before, total[:, last]


def _warps(
    run: BlockRun, ctx: Context, op: ScanOp, levels: ScanLevels, before: Array, total: Array, start: Array,
    combine: _Combine,
) -> tuple[Array, Array]:  # fmt: skip
    """The running result before each warp, and that of all warps."""
    parts, at = _exchanged(run, ctx, op, levels, total)
    earlier = every = np.broadcast_to(start, total.shape)
    for n, part in enumerate(parts):
        earlier = np.where((at > n)[:, None, None], combine(earlier, part), earlier)
        every = combine(every, part)
    return combine(earlier, before), every


def _exchanged(run: BlockRun, ctx: Context, op: ScanOp, levels: ScanLevels, total: Array) -> tuple[list[Array], Ints]:
    """The totals of the warps in the order of the scan, and the place of each warp in it.

    Each warp writes its totals to scratch, and after a barrier it reads all.
    """
    dtype, digit = op.result.type.dtype, levels.warps
    if op.scratch is None:
        raise Fault("layout", "warps split a scanned axis and there is no scratch buffer")
    buffer = run.machine.smem(op.scratch)
    if buffer.dtype is not dtype:
        raise Fault("layout", f"{buffer.name} holds {buffer.dtype}, not {dtype}")
    warp = np.arange(total.shape[0])
    own = place(warp, digit, op.reverse)
    first = warp - warp // digit.step % digit.size * digit.step

    def address(w: Ints) -> Ints:
        element = (w[:, None, None] * total.shape[2] + np.arange(total.shape[2])) * 32 + np.arange(32)[:, None]
        return base + linear(buffer, element)

    base, number = run.origin(ctx) + buffer.offset, run.op_number(op)
    run.shared.store(ctx.actor.clock, address(warp), encode(total, dtype), ctx.threads, number)
    run.barriers.complete([ctx.actor])
    out: list[Array] = []
    for n in range(digit.size):
        at = first + (digit.size - 1 - n if op.reverse else n) * digit.step
        bits = run.shared.load(ctx.actor.clock, address(at), dtype.bytes, ctx.threads, number)
        out.append(np.asarray(decode(bits, dtype), total.dtype))
    return out, own


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
