"""Faults for tests: each function returns an MA-tile module with one mistake.

Ops are matched by a predicate on the op; ``nth`` picks among the matches (None: all of them).
Raises LookupError if nothing matches, so that no test passes without its fault.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from nautilus.core.expr.infer import make
from nautilus.core.expr.nodes import Const, Expr
from nautilus.core.types import DType
from nautilus.ma_tile.interp.module import InterpError
from nautilus.ma_tile.ir.async_ops import MatrixStore, TmaLoad, TmaStore
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.ir.ops import (
    AsyncCopy,
    ForOp,
    IfOp,
    MatrixLoad,
    MbarArrive,
    MbarWait,
    MemKernel,
    MemModule,
    MemOp,
    MmaOp,
    RolesOp,
    SharedLoad,
    SharedStore,
    Slot,
)
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp

Predicate = Callable[[MemOp], bool]
Edit = Callable[[Any], tuple[MemOp, ...]]


def assert_found(error: InterpError, kinds: Collection[str], ops: Collection[str]) -> None:
    """``error`` is of one of ``kinds``, and names one of ``ops`` in its text too."""
    assert error.kind in kinds, error
    assert any(op in error.op for op in ops), error
    assert error.op in str(error)


def is_a(*kinds: type, **fields: object) -> Predicate:
    """Ops of ``kinds`` whose fields have the given values."""
    return lambda op: isinstance(op, kinds) and all(getattr(op, k) == v for k, v in fields.items())


def edit_ops(m: MemModule, match: Predicate, edit: Edit, nth: int | None = None) -> MemModule:
    """``m`` with matching ops (program order, over all kernels) replaced by what ``edit`` gives."""
    count = 0

    def block(body: tuple[MemOp, ...]) -> tuple[MemOp, ...]:
        return tuple(new for op in body for new in one(op))

    def one(op: MemOp) -> tuple[MemOp, ...]:
        nonlocal count
        hit = match(op)
        here, count = count, count + hit
        if hit and nth in (None, here):
            return edit(op)
        match op:
            case ForOp() | IfOp() | TileSchedulerOp():
                return (replace(op, body=block(op.body)),)
            case RolesOp():
                return (replace(op, roles=tuple(replace(r, body=block(r.body)) for r in op.roles)),)
        return (op,)

    kernels = tuple(replace(k, body=block(k.body)) for k in m.kernels)
    if count <= (nth or 0):
        raise LookupError(f"{count} ops match, number {nth or 0} is wanted")
    return replace(m, kernels=kernels)


def drop_op(m: MemModule, match: Predicate, nth: int | None = 0) -> MemModule:
    """Remove matching ops, such as a wait, a barrier or an arrival."""
    return edit_ops(m, match, lambda op: (), nth)


def double_op(m: MemModule, match: Predicate, nth: int | None = 0) -> MemModule:
    """Repeat matching ops, such as an arrival."""
    return edit_ops(m, match, lambda op: (op, op), nth)


def edit_slots(m: MemModule, buffer: str, change: Callable[[Slot], Slot], match: Predicate) -> MemModule:
    """Change the slots of ``buffer`` in matching ops."""

    def touches(op: MemOp) -> bool:
        slots = [getattr(op, f, None) for f in ("slot", "a", "b")]
        return match(op) and any(isinstance(s, Slot) and s.buffer == buffer for s in slots)

    def edit(op: MemOp) -> tuple[MemOp, ...]:
        if isinstance(op, MmaOp):
            a, b = ((change(s) if isinstance(s, Slot) and s.buffer == buffer else s) for s in (op.a, op.b))
            return (replace(op, a=a, b=b),)
        assert isinstance(op, SharedLoad | SharedStore | MatrixLoad | AsyncCopy | TmaLoad | TmaStore | MatrixStore)
        return (replace(op, slot=change(op.slot)),)

    return edit_ops(m, touches, edit)


def change_swizzle(m: MemModule, buffer: str, swizzle: int, match: Predicate) -> MemModule:
    """Matching accesses to ``buffer`` use another swizzle than the buffer's."""
    return edit_slots(m, buffer, lambda s: replace(s, swizzle=swizzle), match)


def shift_slot(m: MemModule, buffer: str, by: int, match: Predicate) -> MemModule:
    """Matching accesses to ``buffer`` use the stage ``by`` stages later, modulo the number of stages."""
    stages = next(s.stages for k in m.kernels for s in k.smem if s.name == buffer)

    def shifted(slot: Slot) -> Slot:
        moved = make("add", slot.stage, Const(by, DType.I32))
        return replace(slot, stage=make("mod", moved, Const(stages, DType.I32)))

    return edit_slots(m, buffer, shifted, match)


def change_stage_count(m: MemModule, buffer: str, stages: int) -> MemModule:
    """The buffer ``buffer`` has ``stages`` stages, and every access wraps at that number."""

    def kernel(k: MemKernel) -> MemKernel:
        return replace(k, smem=tuple(replace(s, stages=stages) if s.name == buffer else s for s in k.smem))

    shrunk = replace(m, kernels=tuple(kernel(k) for k in m.kernels))
    wrap = lambda s: replace(s, stage=make("mod", s.stage, Const(stages, DType.I32)))  # noqa: E731
    return edit_slots(shrunk, buffer, wrap, lambda op: True)


def flip_parity(m: MemModule, mbar: str, nth: int | None = None) -> MemModule:
    """Waits on ``mbar`` have the other parity."""

    def edit(op: MemOp) -> tuple[MemOp, ...]:
        assert isinstance(op, MbarWait)
        return (replace(op, parity=make("sub", Const(1, DType.I32), op.parity)),)

    return edit_ops(m, is_a(MbarWait, mbar=mbar), edit, nth)


def shift_mbar(m: MemModule, mbar: str, stage: Callable[[Expr], Expr]) -> MemModule:
    """Arrivals on ``mbar`` go to another of its stages."""

    def edit(op: MemOp) -> tuple[MemOp, ...]:
        assert isinstance(op, MbarArrive)
        return (replace(op, stage=stage(op.stage)),)

    return edit_ops(m, is_a(MbarArrive, mbar=mbar), edit)


def edit_layout(m: MemModule, name: str, change: Callable[[FragLayout], FragLayout]) -> MemModule:
    """Another layout under the name ``name``."""
    hit = False

    def kernel(k: MemKernel) -> MemKernel:
        nonlocal hit
        hit = hit or name in k.layouts
        return replace(k, layouts={n: change(x) if n == name else x for n, x in k.layouts.items()})

    out = replace(m, kernels=tuple(kernel(k) for k in m.kernels))
    if not hit:
        raise LookupError(name)
    return out


def swap_registers(m: MemModule, name: str, first: int = 0, second: int = 1) -> MemModule:
    """Register modes ``first`` and ``second`` of a layout change places: elements are swapped."""

    def change(x: FragLayout) -> FragLayout:
        modes: list[Mode] = list(x.reg)
        modes[first], modes[second] = modes[second], modes[first]
        return FragLayout(tuple(modes), x.lane, x.warp)

    return edit_layout(m, name, change)
