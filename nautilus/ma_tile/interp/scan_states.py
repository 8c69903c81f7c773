"""A ``scan`` of states that need each other in the physical interpreter.

A map of steps is the matrix and the vector that they make of the states before them.  In step 3 of
:mod:`nautilus.ma_tile.ir.scan`, warp w writes the numbers of its totals to elements ``w * exchanged ..`` of the scratch
buffer, those of one total after those of the one before: the matrix, unless all steps have one, and the vector.  When
all states are computed, each warp writes to its last element whether it met a number that is not finite, or too large
an element of a matrix, and after a second barrier it reads those of all warps.  Where one did, the steps follow again
one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from nautilus.core.common_ops import LARGEST_FACTOR
from nautilus.core.numerics import Array
from nautilus.core.types import DType
from nautilus.ma_tile.interp.data import agree, element_numbers, linear
from nautilus.ma_tile.interp.state.values import Fault, apply, decode, encode, spread
from nautilus.ma_tile.ir.layout import Ints
from nautilus.ma_tile.ir.scan import Digit, ScanLevels, ScanOp, StateMatrix, state_levels, state_matrix

if TYPE_CHECKING:
    from nautilus.ma_tile.interp.block import BlockRun
    from nautilus.ma_tile.interp.state.machine import Context

_Map: TypeAlias = tuple[Array, Array]  # matrices [.., row, column] and vectors [.., row]


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

    def follow(self, first: _Map, second: _Map) -> _Map:
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
        before, total = _lanes(s, total, levels.lanes, op.reverse, none)
    if levels.warps.size > 1:
        before, total = _warps(run, ctx, op, levels, s, before, total, none)
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
    large = ~(np.abs(total[0]) <= LARGEST_FACTOR).all() | ~(np.abs(before[0]) <= LARGEST_FACTOR).all()
    odd = np.asarray([bool(large) or not np.isfinite(made[w]).all() for w in range(shape[0])])
    if levels.warps.size > 1:
        _write(run, ctx, op, odd.astype(made.dtype)[:, None], s.matrix.exchanged(shape[2]) - 1)
        found = _read(run, ctx, op, levels, s.matrix.exchanged(shape[2]) - 1, 1)[0]
        odd = np.stack([f[..., 0] != 0 for f in found])
    return made, bool(odd.any())


def _place(numbers: Ints, digit: Digit, reverse: bool) -> Ints:
    place = numbers // digit.step % digit.size
    return digit.size - 1 - place if reverse else place


def _lanes(s: _Steps, total: _Map, digit: Digit, reverse: bool, none: _Map) -> tuple[_Map, _Map]:
    """The map before each lane, and that of all lanes."""
    lane = np.arange(32)
    place, by = _place(lane, digit, reverse), (-digit.step if reverse else digit.step)

    def earlier(x: _Map, distance: int) -> _Map:
        at = np.clip(lane - distance * by, 0, 31)
        return x[0][:, at], x[1][:, at]

    distance = 1
    while distance < digit.size:
        total = _chosen(place >= distance, s.follow(earlier(total, distance), total), total)
        distance *= 2
    last = lane + (digit.size - 1 - place) * by
    return _chosen(place >= 1, earlier(total, 1), none), (total[0][:, last], total[1][:, last])


def _chosen(lanes: Array, a: _Map, b: _Map) -> _Map:
    return (
        np.where(lanes[None, :, None, None, None], a[0], b[0]),
        np.where(lanes[None, :, None, None], a[1], b[1]),
    )


def _warps(
    run: BlockRun, ctx: Context, op: ScanOp, levels: ScanLevels, s: _Steps, before: _Map, total: _Map, none: _Map
) -> tuple[_Map, _Map]:
    """The map before each lane, also in the warps before its own, and that of all warps."""
    shape, size = total[1].shape, s.matrix.size
    parts = [total[1]] if s.matrix.steady else [total[0].reshape(*shape[:3], -1), total[1]]
    numbers = np.concatenate(parts, axis=-1)[:, 0].reshape(shape[0], -1)
    _write(run, ctx, op, numbers, 0)
    found, place = _read(run, ctx, op, levels, 0, numbers.shape[1])
    maps = []
    for part in found:
        part = part.reshape(shape[0], 1, shape[2], -1)
        matrix = total[0] if s.matrix.steady else part[..., :-size].reshape(*part.shape[:3], size, size)
        maps.append((np.broadcast_to(matrix, total[0].shape), np.broadcast_to(part[..., -size:], shape)))
    distance = 1
    while distance < len(maps):
        maps = [s.follow(maps[n - distance], m) if n >= distance else m for n, m in enumerate(maps)]
        distance *= 2
    earlier = none
    for n, m in enumerate(maps):
        here = (place == n + 1)[:, None, None]
        earlier = np.where(here[..., None, None], m[0], earlier[0]), np.where(here[..., None], m[1], earlier[1])
    return s.follow(earlier, before), maps[-1]


def _write(run: BlockRun, ctx: Context, op: ScanOp, numbers: Array, at: int) -> None:
    """Lane 0 of each warp writes its ``numbers`` from element ``at`` of the warp on; all threads meet."""
    address = _address(run, ctx, op, np.arange(len(numbers)), at, numbers.shape[1])
    bits = encode(numbers[:, None], op.result.type.dtype)
    run.shared.store(ctx.actor.clock, address, bits, ctx.threads[:, :1], run.op_number(op))
    run.barriers.complete([ctx.actor])


def _read(run: BlockRun, ctx: Context, op: ScanOp, levels: ScanLevels, at: int, count: int) -> tuple[list[Array], Ints]:
    """The numbers of the warps in the order of the scan, for each warp, and its place in it."""
    dtype, digit = op.result.type.dtype, levels.warps
    warp = np.arange(len(ctx.threads))
    place = _place(warp, digit, op.reverse)
    first, out = warp - warp // digit.step % digit.size * digit.step, list[Array]()
    for n in range(digit.size):
        other = first + (digit.size - 1 - n if op.reverse else n) * digit.step
        address = _address(run, ctx, op, other, at, count)
        bits = run.shared.load(ctx.actor.clock, address, dtype.bytes, ctx.threads[:, :1], run.op_number(op))
        out.append(np.asarray(decode(bits, dtype))[:, 0])
    return out, place


def _address(run: BlockRun, ctx: Context, op: ScanOp, warp: Ints, at: int, count: int) -> Ints:
    if op.scratch is None:
        raise Fault("layout", "warps split a scanned axis and there is no scratch buffer")
    found = state_levels(run.machine.layout(op.arg.layout), op.axis, op.states or "")
    assert found is not None
    each, buffer = state_matrix(op).exchanged(found[0].totals), run.machine.smem(op.scratch)
    element = warp[:, None, None] * each + at + np.arange(count)
    return run.origin(ctx) + buffer.offset + linear(buffer, element)


def _one_by_one(op: ScanOp, levels: ScanLevels, s: _Steps) -> Array:
    """The states of one step after another; the first step has no state before it."""
    made = np.empty_like(s.rests)
    lane, warp = np.arange(32), np.arange(len(s.rests))
    place = _place(warp, levels.warps, op.reverse)[:, None], _place(lane, levels.lanes, op.reverse)[None, :]
    by = [-d.step if op.reverse else d.step for d in (levels.warps, levels.lanes)]
    for t in range(s.rests.shape[2]):
        if t % levels.high.size == 0:
            carry: Array | None = None
        for w in range(levels.warps.size):
            for n in range(levels.lanes.size):
                state, here = carry, (place[0] == w) & (place[1] == n)
                for k in range(s.rests.shape[3]):
                    after = s.rests[:, :, t, k] if state is None else s.after(t, k, state, s.rests.shape[4])
                    made[:, :, t, k] = np.where(here[..., None], after, made[:, :, t, k])
                    state = after[..., : s.matrix.size]
                assert state is not None
                at = warp[:, None] + (w - place[0]) * by[0], lane[None, :] + (n - place[1]) * by[1]
                carry = state[at[0], at[1]]
    return made
