"""The arithmetic of a kernel in words: types and sums of its MMAs, and the roundings of computed values.

The header of an emitted file has a line for each kernel with MMAs.  All of it is read from the MA-tile module, so that
it says what was used where, whatever ``--precision`` permits.
"""

from __future__ import annotations

from collections.abc import Iterator

from nautilus.core.types import DType
from nautilus.ma_tile.ir.instruction_tables import MMA, WGMMA
from nautilus.ma_tile.ir.ops import Frag, MapOp, MemKernel, MmaOp, Slot, walk_ops


def arithmetic(kernel: MemKernel) -> str:
    """What the matrix units multiply and add in ``kernel``; empty where they do nothing."""
    ops = list(walk_ops(kernel.body))
    found = dict.fromkeys(_mma(kernel, op) for op in ops if isinstance(op, MmaOp) and op.instr != "fma")
    if not found:
        return ""
    rounded = dict.fromkeys(str(op.result.type.dtype) for op in ops if isinstance(op, MapOp) and op.op == "narrow")
    more = [f"computed values rounded to {' and '.join(rounded)} before"] if rounded else []
    return "; ".join([*found, *more])


def _mma(kernel: MemKernel, op: MmaOp) -> str:
    instr = WGMMA[op.instr] if op.instr in WGMMA else MMA[op.instr]
    types = dict.fromkeys(str(_type(kernel, x)) for x in (op.a, op.b))
    text = f"MMAs of {' and '.join(types)} with sums in {instr.acc}"
    if op.instr in MMA and MMA[op.instr].parts > 1:
        text = f"MMAs of f32 in {MMA[op.instr].parts} parts of tf32 with sums in f32"
    return f"{text}, of which each {_depth(kernel, op)} terms are a short sum" if instr.short else text


def _type(kernel: MemKernel, operand: Frag | Slot) -> DType:
    if isinstance(operand, Frag):
        return operand.type.dtype
    return next(s.dtype for s in kernel.smem if s.name == operand.buffer)


def _depth(kernel: MemKernel, op: MmaOp) -> int:
    return next(size for x in (op.a, op.b) for name, size in _axes(kernel, x) if name == op.over)


def _axes(kernel: MemKernel, operand: Frag | Slot) -> Iterator[tuple[str, int]]:
    axes = (
        operand.type.axes
        if isinstance(operand, Frag)
        else next(s.axes for s in kernel.smem if s.name == operand.buffer)
    )
    return ((a.name, a.size) for a in axes)
