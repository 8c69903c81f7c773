"""``matrix-units``: products that scalar instructions compute, or single warps where warpgroups would.

The first kind is read off the emitted kernels: a product whose instruction is ``fma``.  The second kind is known from
the failure that took the warpgroup MMAs from a kernel (:class:`~nautilus.core.fallbacks.Failure`).  A product of few
terms takes no time and has no remark, and neither has a kernel that computes tiles again where a result is NaN.
"""

from __future__ import annotations

from collections.abc import Iterator

from nautilus.core.errors import Cause, Obstacle
from nautilus.core.fallbacks import PLAIN, WITHOUT
from nautilus.core.schedule import recomputes
from nautilus.core.source import NO_SPAN, Span
from nautilus.core.types import DType
from nautilus.ma_tile.ir.instruction_tables import MMA
from nautilus.ma_tile.ir.ops import MemKernel, MmaOp, Slot, walk_ops
from nautilus.remarks.remark import Facts, Kind, Remark

LARGE = 1 << 26  # terms of a product that takes microseconds with scalar instructions
_FMA = "fma"
_FULL = {DType.F32}


def remarks(facts: Facts) -> Iterator[Remark]:
    """The remarks on products of the compilation."""
    yield from _scalar(facts)
    yield from _single_warps(facts)


def _scalar(facts: Facts) -> Iterator[Remark]:
    seen: set[Span] = set()
    for kernel in facts.module.kernels:
        if recomputes(kernel.name, facts.result.context.schedule):
            continue
        for op in walk_ops(kernel.body):
            if isinstance(op, MmaOp) and op.instr == _FMA and op.span not in seen and facts.work(op.span) >= LARGE:
                seen.add(op.span)
                types = tuple(_dtype(kernel, x) for x in (op.a, op.b))
                yield _without_units(op.span, types, facts)


def _without_units(span: Span, types: tuple[DType, ...], facts: Facts) -> Remark:
    names = " and ".join(str(t) for t in dict.fromkeys(types))
    exact = set(types) == _FULL and facts.result.context.strict
    if not exact and any(set(types) <= i.operands for i in MMA.values()):
        return Remark(Kind.MATRIX_UNITS, f"this product of {names} does not use the matrix units", span)
    message = f"this product does not use the matrix units: no matrix instruction multiplies {names}"
    if exact:
        hint = "precision fast multiplies f32 on matrix units in parts, with an error near that of f32"
        return Remark(Kind.MATRIX_UNITS, f"{message} exactly, as precision strict asks", span, hint)
    if DType.F64 in types:
        return Remark(Kind.MATRIX_UNITS, message, span, "use f32 where its 24 bits suffice: f32(...) of both factors")
    if all(t.is_int for t in types):
        hint = "where the factors fit in 8 bits, declare them as i8 or u8, or convert both: i8(...)"
        return Remark(Kind.MATRIX_UNITS, message, span, hint)
    return Remark(Kind.MATRIX_UNITS, message, span)


def _dtype(kernel: MemKernel, x: object) -> DType:
    if isinstance(x, Slot):
        return next(s.dtype for s in kernel.smem if s.name == x.buffer)
    dtype: DType = x.dtype  # type: ignore[attr-defined]
    return dtype


def _single_warps(facts: Facts) -> Iterator[Remark]:
    fallbacks = facts.result.context.fallbacks
    for kernel, step in fallbacks.taken:
        failed = [f for f in fallbacks.failures if f.kernel == kernel and f.step < WITHOUT]
        if not (WITHOUT <= step < PLAIN) or not failed or failed[-1].obstacle is None:
            continue
        f = failed[-1]
        assert f.obstacle is not None
        span = f.span if f.span != NO_SPAN else facts.span(kernel)
        if facts.work(span) >= LARGE:
            message = f"this product uses MMAs of single warps instead of warpgroups: {f.obstacle.reason}"
            yield Remark(Kind.MATRIX_UNITS, message, span, _advice(f.obstacle, facts))


def _advice(o: Obstacle, facts: Facts) -> str | None:
    """The advice what to write instead; None where the tensor is not the user's."""
    if o.buffer not in {t.name for t in facts.spec.inputs}:
        return None
    if o.cause is Cause.ROWS:
        rows = f"declare {o.buffer} as strided and give it rows that start at multiples of {o.elements} elements"
        return f"make the last size of {o.buffer} a multiple of {o.elements}, or {rows}"
    if o.cause is Cause.ORDER:
        return f"store {o.buffer} with {o.axis} as its last axis"
    return None
