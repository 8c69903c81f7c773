"""A ``scan`` of states that need each other in the physical interpreter.

A map of steps is the matrix [.., row, column] and the vector [.., row] that they make of the states before them.  In
step 3 of :mod:`nautilus.ma_tile.ir.scan`, warp w writes the numbers of its totals to elements ``w * exchanged ..`` of
the scratch buffer, those of one total after those of the one before: the matrix, unless all steps have one, and the
vector.  Where the lanes of a warp have other elements too, each of these numbers has 32 elements, one for each lane.
When all states are computed, each warp writes to its last element whether it met a number that is not finite, or too
large an element of a matrix, and after a second barrier it reads those of all warps.  Where one did, the steps follow
again one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from nautilus.core.common_ops import largest_factor
from nautilus.core.numerics import Array
from nautilus.core.types import DType
from nautilus.ma_tile.interp.data import agree, element_numbers, linear
from nautilus.ma_tile.interp.scans.maps import Map, over_lanes, over_warps, place
from nautilus.ma_tile.interp.state.values import Fault, apply, decode, encode, spread
from nautilus.ma_tile.ir.layout import Ints
from nautilus.ma_tile.ir.scan import ScanLevels, ScanOp, StateMatrix, state_levels, state_matrix

if TYPE_CHECKING:
    from nautilus.ma_tile.interp.block import BlockRun
    from nautilus.ma_tile.interp.state.machine import Context


def scan_states(run: BlockRun, ctx: Context, op: ScanOp, states: str, x: Array) -> Array:
    """The states of ``op`` from their rests ``x``. Raises Fault."""
    layout = run.machine.layout(op.arg.layout)
    found = state_levels(layout, op.axis, states)
    if found is None:
        raise Fault("layout", f"the states of {op.axis} are not registers of one thread")
    levels, digit = found
    order = levels.registers(op.reverse)
    own = order[..., None] + digit.step * np.arange(digit.size)
    factors = [spread(run.get(ctx, f), layout, f.type.names)[:, :, order] for f in op.factors]
    steps = _Steps(state_matrix(op), x[:, :, own], factors, op.result.type.dtype)
    with np.errstate(all="ignore"):
        made, odd = _combined(run, ctx, op, levels, steps)
        if odd:
            made = _one_by_one(op, levels, steps)
    result = np.empty_like(x)
    result[:, :, own] = made
    agree(result, run.machine.cached(op, "element", lambda: element_numbers(layout, op.result.type)), op)
    return result


class _Steps:
    """The steps of the registers [warp, lane, total, position] of all threads; ``rests`` has the states last."""

    def __init__(self, matrix: StateMatrix, rests: Array, factors: Sequence[Array], dtype: DType) -> None:
        self.matrix, self.rests, self.factors, self.dtype = matrix, rests, factors, dtype

    def after(self, t: int | slice, k: int, before: Array, rows: int) -> Array:
        """The first ``rows`` states of step ``k`` of total ``t`` from those ``before`` it."""
        out = self.rests[:, :, t, k].copy()[..., :rows]
        for row, column, n in self.matrix.entries:
            if row < rows:
                out[..., row] = self.fma(self.factors[n][:, :, t, k], before[..., column], out[..., row])
        return out

    def fma(self, a: Array, b: Array, c: Array) -> Array:
        return np.asarray(apply("fma", [a, b, c], self.dtype), c.dtype)

    def follow(self, first: Map, second: Map) -> Map:
        """The map of ``first`` and then ``second``."""
        matrix, vector = np.zeros_like(second[0]), second[1].copy()
        for column in range(self.matrix.size):
            vector = self.fma(second[0][..., column], first[1][..., column, None], vector)
            matrix = self.fma(second[0][..., column, None], first[0][..., column, None, :], matrix)
        return matrix, vector


def _combined(run: BlockRun, ctx: Context, op: ScanOp, levels: ScanLevels, s: _Steps) -> tuple[Array, bool]:
    """The states where steps are combined in any order, and whether a number says that they must not be."""
    size = s.matrix.size
    shape = s.rests.shape[:3]
    none = (
        np.broadcast_to(np.eye(size, dtype=s.rests.dtype), (*shape, size, size)),
        np.zeros((*shape, size), s.rests.dtype),
    )
    total = none
    every = slice(None)
    for k in range(s.rests.shape[3]):
        columns = [np.zeros_like(total[1]) for _ in range(size)]
        for row, column, n in s.matrix.entries:
            if row < size:
                for j in range(size):
                    columns[j][..., row] = s.fma(
                        s.factors[n][:, :, every, k], total[0][..., column, j], columns[j][..., row]
                    )
        total = np.stack(columns, axis=-1), s.after(every, k, total[1], size)
    before = none
    if levels.lanes.size > 1:
        before, total = over_lanes(total, levels.lanes, op.reverse, none, s.follow)
    if levels.warps.size > 1:
        before, total = over_warps(
            *_of_warps(run, ctx, op, levels, s, total), before, none, s.follow, levels.whole_lanes
        )
    made, high = np.empty_like(s.rests), levels.high.size
    carry = np.zeros_like(total[1][:, :, 0])
    for t in range(shape[2]):
        carry = np.zeros_like(carry) if t % high == 0 else carry
        here = (before[0][:, :, t], before[1][:, :, t])
        state = s.follow((here[0], carry), here)[1]
        for k in range(s.rests.shape[3]):
            made[:, :, t, k] = s.after(t, k, state, s.rests.shape[4])
            state = made[:, :, t, k, :size]
        carry = s.follow((here[0], carry), (total[0][:, :, t], total[1][:, :, t]))[1]
    most = largest_factor(levels.steps)
    large = not all((np.abs(x) <= most).all() for x in (total[0], before[0]))
    odd = np.asarray([large or not np.isfinite(made[w]).all() for w in range(shape[0])])
    if levels.warps.size > 1:
        _write(run, ctx, op, odd.astype(made.dtype)[:, None, None], s.matrix.exchanged(shape[2]) - 1)
        found = _read(run, ctx, op, levels, s.matrix.exchanged(shape[2]) - 1, 1, 1)[0]
        odd = np.stack([f[:, 0, 0] != 0 for f in found])
    return made, bool(odd.any())


def _of_warps(
    run: BlockRun, ctx: Context, op: ScanOp, levels: ScanLevels, s: _Steps, total: Map
) -> tuple[list[Map], Ints]:  # fmt: skip
    """The maps of the warps in the order of the scan, and the place of each warp in it."""
    shape, size = total[1].shape, s.matrix.size
    parts = [total[1]] if s.matrix.steady else [total[0].reshape(*shape[:3], -1), total[1]]
    lanes = 1 if levels.whole_lanes else 32
    numbers = np.concatenate(parts, axis=-1)[:, :lanes].reshape(shape[0], lanes, -1)
    _write(run, ctx, op, numbers, 0)
    found, at = _read(run, ctx, op, levels, 0, numbers.shape[2], lanes)
    maps = []
    for part in found:
        part = part.reshape(shape[0], lanes, shape[2], -1)
        matrix = total[0] if s.matrix.steady else part[..., :-size].reshape(*part.shape[:3], size, size)
        maps.append((np.broadcast_to(matrix, total[0].shape), np.broadcast_to(part[..., -size:], shape)))
    return maps, at


def _write(run: BlockRun, ctx: Context, op: ScanOp, numbers: Array, at: int) -> None:
    """The first lanes of each warp write their ``numbers`` from element ``at`` of the warp on; all threads meet."""
    warps, lanes, count = numbers.shape
    address = _address(run, ctx, op, np.arange(warps), at, count, lanes)
    bits = encode(numbers, op.result.type.dtype)
    run.shared.store(ctx.actor.clock, address, bits, ctx.threads[:, :lanes], run.op_number(op))
    run.barriers.complete([ctx.actor])


def _read(
    run: BlockRun, ctx: Context, op: ScanOp, levels: ScanLevels, at: int, count: int, lanes: int
) -> tuple[list[Array], Ints]:  # fmt: skip
    """The numbers of the warps in the order of the scan, for each warp and its first lanes, and its place in it."""
    dtype, digit = op.result.type.dtype, levels.warps
    warp = np.arange(len(ctx.threads))
    own = place(warp, digit, op.reverse)
    first, out = warp - warp // digit.step % digit.size * digit.step, list[Array]()
    for n in range(digit.size):
        other = first + (digit.size - 1 - n if op.reverse else n) * digit.step
        address = _address(run, ctx, op, other, at, count, lanes)
        bits = run.shared.load(ctx.actor.clock, address, dtype.bytes, ctx.threads[:, :lanes], run.op_number(op))
        out.append(np.asarray(decode(bits, dtype)))
    return out, own


def _address(run: BlockRun, ctx: Context, op: ScanOp, warp: Ints, at: int, count: int, lanes: int) -> Ints:
    if op.scratch is None:
        raise Fault("layout", "warps split a scanned axis and there is no scratch buffer")
    found = state_levels(run.machine.layout(op.arg.layout), op.axis, op.states or "")
    assert found is not None
    each, buffer = state_matrix(op).exchanged(found[0].totals), run.machine.smem(op.scratch)
    element = warp[:, None, None] * each + at + np.arange(count)
    element = element if found[0].whole_lanes else element * 32 + np.arange(lanes)[:, None]
    return run.origin(ctx) + buffer.offset + linear(buffer, element)


def _one_by_one(op: ScanOp, levels: ScanLevels, s: _Steps) -> Array:
    """The states of one step after another; the first step has no state before it."""
    made = np.empty_like(s.rests)
    lane, warp = np.arange(32), np.arange(len(s.rests))
    own = place(warp, levels.warps, op.reverse)[:, None], place(lane, levels.lanes, op.reverse)[None, :]
    by = [-d.step if op.reverse else d.step for d in (levels.warps, levels.lanes)]
    for t in range(s.rests.shape[2]):
        if t % levels.high.size == 0:
            carry: Array | None = None
        for w in range(levels.warps.size):
            for n in range(levels.lanes.size):
                state, here = carry, (own[0] == w) & (own[1] == n)
                for k in range(s.rests.shape[3]):
                    after = s.rests[:, :, t, k] if state is None else s.after(t, k, state, s.rests.shape[4])
                    made[:, :, t, k] = np.where(here[..., None], after, made[:, :, t, k])
                    state = after[..., : s.matrix.size]
                assert state is not None
                at = warp[:, None] + (w - own[0]) * by[0], lane[None, :] + (n - own[1]) * by[1]
                carry = state[at[0], at[1]]
    return made
