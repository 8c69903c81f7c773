"""Instructions of elementwise operations, of reductions and of scans, and the ops that cost nothing.

Issue slots and special-function results of elementwise operations are for each register of the result.
``core.functions`` states both for f32 (its docstring names the source); conversions and skipped multiplications have
rules here.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from nautilus.core.expr.nodes import COMBINERS, Const, Expr, Op, Var, free_vars, walk
from nautilus.core.functions import FUNCTIONS
from nautilus.core.index.linear import linear
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.scan import ScanLevels, levels_of, state_matrix
from nautilus.ma_tile.ir.traverse import reads

#: results of the special-function unit
SPECIAL: Mapping[str, float] = {f.name: f.special for f in FUNCTIONS.values() if f.special}
_INTEGER: Mapping[str, float] = {f.name: f.integer for f in FUNCTIONS.values()}
_ADDITIONS = frozenset({"add", "sub", "mul"})  # their instructions change signs of operands
#: share of warps that execute an operation which is skipped while all second operands of the warp are neutral
SKIPPED: Mapping[str, float] = {"mul_unless_one": 0.4}
assert {f.name for f in FUNCTIONS.values() if f.skips is not None} == SKIPPED.keys()
ROUND_TF32 = 4.0  # a comparison, an addition, and two selections by bits (instructions of sm_90)
#: ops that cost nothing, because they only order others or have no instructions; :mod:`.work` counts all other ones
FREE: frozenset[type] = frozenset({
    ma.ConstOp, ma.ParamOp, ma.ConvertOp, ma.SliceOp, ma.StackOp, ma.WindowOp, ma.UndefinedOp, ma.QueuePush,
    ma.QueuePop, ma.AdvanceOp, ma.TmaCommit, ma.TmaWait, ma.MbarInit,
    ma.MbarExpect, ma.MbarArrive, ma.MbarWait, ma.NamedArrive,
    ma.ProxyFence, ma.WgFence, ma.AsyncCommit, ma.AsyncWait, ma.ClusterWait,
    ma.GridWait, ma.GridLaunchDependents, ma.BreakOp, ma.TileFirst, ma.TileFetch, ma.TileReset,
})  # fmt: skip
MODIFIER = "modifier"  # a sign or a magnitude that the instruction of the reader applies to its operand
LAZY = 0.05  # the same share under lazy rescaling: after the first steps, factors other than 1 are rare


def issue_slots(op: str, source: DType, result: DType) -> float:
    """Issue slots of ``op`` for a register of the result; ``op`` may be :data:`MODIFIER`."""
    if op == MODIFIER:
        return 0.0
    if op in ("cast", "narrow"):
        narrow = min(source.bytes, result.bytes)
        if narrow == 1 and result.is_float and not source.is_float:
            return 2.0  # a permutation of bytes and a subtraction
        if result is DType.TF32 and source is DType.F32:
            return ROUND_TF32
        return 0.0 if source is result else 0.5 if narrow == 2 else 1.0
    if op in SKIPPED:
        return SKIPPED[op]
    factor = 2.0 if result.bytes == 8 else 1.0  # 64-bit values take two registers, and f64 units are rare
    return factor * FUNCTIONS[op].instructions


#: Of an operation on integers, the share of its instructions that the integer unit executes, where it is not all.  The
#: unit for multiply-adds multiplies, and adds half of the sums; one instruction has three operands; and instructions
#: have conditions of their own.
_SHARES: Mapping[str, float] = {
    **dict.fromkeys(("mul", "fma", "ctpop", "and", "or", "not", "implied"), 0.0),
    **dict.fromkeys(("add", "sub", "neg", "bit_not", "shift_left", "floordiv", "mod"), 0.5),
    **dict.fromkeys(("bit_and", "bit_or", "bit_xor", "min", "max", "select"), 0.75),
}
_SUMS: Mapping[str, float] = {"add": 0.5, "sub": 0.5, "mul": 0.0}  # the same of index expressions
SHIFTED = 6.0  # instructions of a vector that is made from two
_QUOTIENT = 3.0  # a high product, a shift, and the correction for negative numbers
#: instructions of operations of index expressions; comparisons take conjunctions, and magnitudes as ranges of two sides
_OF_INDEX: Mapping[str, float] = {
    "floordiv": _QUOTIENT, "mod": _QUOTIENT + 1.0, "and": 0.0, "or": 0.5, "not": 0.0, "abs": 0.0, "neg": 0.0,
}  # fmt: skip


def integer_slots(op: str, source: DType, result: DType, slots: float) -> float:
    """The number of the ``slots`` of ``op`` that are instructions of the integer unit."""
    if op == MODIFIER:
        return 0.0
    if op in ("cast", "narrow"):
        return 0.0 if source is DType.F16 else slots
    return _INTEGER[op] if source.is_float or result.is_float else slots * _SHARES.get(op, 1.0)


#: a multiply-add by scalar instructions with the loads of its operands, by whether these have 64 bits, and the sum
_MULTIPLY_ADDS: Mapping[tuple[bool, DType], float] = {
    (True, DType.I64): 4.2,  # three products of 32 bits, one of which has a sum of 64
    (False, DType.I64): 2.2,
    (True, DType.F64): 2.2,
}


def multiply_adds(number: float, source: DType, total: DType) -> tuple[float, float]:
    """Issue slots of so many scalar multiply-adds of a warp, and those at half the rate: all that are of integers."""
    slots = number * _MULTIPLY_ADDS.get((source.bytes == 8, total), 1.2)
    return slots, slots if source.is_int else 0.0


def index_slots(e: Expr, layout: FragLayout, repeats: int) -> tuple[float, float]:
    """Issue slots of a thread for the function of positions ``e`` in all registers of ``layout``.

    Second, how many of them are instructions of the integer unit.  A part of ``e`` is computed once for all registers
    that have the same positions along its axes.  ``repeats``: how many neighbouring registers hold one value.
    """
    slots = integer = 0.0
    axes = frozenset(layout.axes)
    for x in {x: None for x in walk(e) if isinstance(x, Op) and free_vars(x) & axes}:
        values = prod(m.size for m in layout.reg if m.axis in free_vars(x)) / repeats
        found = _index_instructions(x, layout)
        slots += values * found
        integer += values * (min(found, 1.0) if x.op in ("floordiv", "mod") else found * _SUMS.get(x.op, 1.0))
    return slots, integer


def load_slots(op: ma.GlobalLoad, layout: FragLayout, registers: float) -> tuple[float, float]:
    """Issue slots of a thread for the load ``op`` of so many ``registers``, and those of the integer unit.

    A position that is no sum of axes, such as a clamped one, is computed for each element, and so is its address; the
    offsets of other elements are constants of the instruction.
    """
    slots, integer = registers * (1.0 if op.shift is None else SHIFTED) / max(1, op.vec) + 4, 0.0
    axes = set(layout.axes)
    for e in op.index:
        if any(not isinstance(a, Var) and free_vars(a) & axes for a in linear(e).terms):
            own, whole = index_slots(e, layout, max(1, op.vec))
            address = prod(m.size for m in layout.reg if m.axis in free_vars(e)) / max(1, op.vec)
            slots, integer = slots + own + address, integer + whole + address
    return slots, integer


def _index_instructions(e: Op, layout: FragLayout) -> float:
    """Instructions of the operation ``e`` itself; constants are parts of the terms of a thread."""
    if e.op in ("floordiv", "mod") and isinstance(e.args[1], Const):
        if isinstance(e.args[0], Var) and layout.is_digit(e.args[0].name, int(e.args[1].value)):
            return 0.0
        if int(e.args[1].value).bit_count() == 1:
            return 1.0
    if e.op in ("add", "sub", "mul"):
        varied = [a for a in e.args if free_vars(a) & set(layout.axes)]
        return 1.0 if len(varied) > 1 else 0.0
    return _OF_INDEX.get(e.op, 1.0)


@dataclass(frozen=True, slots=True)
class Forms:
    """Values of a kernel that are the constant 2, and signs and magnitudes that only additions and products read."""

    twos: frozenset[str]
    modifiers: frozenset[str]


def forms(kernel: ma.MemKernel) -> Forms:
    """The facts about ``kernel`` on which the instructions of its operations depend."""
    ops = list(ma.walk_ops(kernel.body))
    twos = frozenset(op.result.name for op in ops if isinstance(op, ma.ConstOp) and op.value == 2)
    signs = {op.result.name for op in ops if isinstance(op, ma.MapOp) and _is_modifier(op)}
    apart = (name for op in ops if not _takes_modifiers(op) for name in reads(op)) if signs else ()
    return Forms(twos, frozenset(signs.difference(apart)))


def _is_modifier(op: ma.MapOp) -> bool:
    return op.result.type.dtype is DType.F32 and op.op in ("abs", "neg")


def _takes_modifiers(op: ma.MemOp) -> bool:
    return (isinstance(op, ma.MapOp) and op.op in _ADDITIONS) or (
        isinstance(op, ma.ReduceOp) and op.combiner == "sum" and op.times is None
    )


def operation(op: ma.MapOp, found: Forms) -> str:
    """The operation of ``op``: a power whose exponent is 2 is one product, and a sign may be a :data:`MODIFIER`."""
    if op.result.name in found.modifiers:
        return MODIFIER
    return "mul" if op.op == "pow" and op.args[1].name in found.twos else op.op


@dataclass(frozen=True, slots=True)
class Combining:
    """Of a reduction or scan: instructions of a warp, those among them of the integer unit and the steps between lanes,
    barriers of the block.
    """

    slots: float
    integer: float
    shuffles: int
    barriers: float


def combining(op: ma.ReduceOp | ma.ScanOp, layouts: Mapping[str, FragLayout]) -> Combining:
    """The work of ``op``. A barrier counts twice, because the next use of the scratch needs another one."""
    barriers = 2.0 if op.scratch is not None else 0.0
    layout = layouts[op.arg.layout]
    dtype, step = op.arg.type.dtype, COMBINERS[op.combiner].binary
    integer = integer_slots(step, dtype, dtype, 1.0)
    if isinstance(op, ma.ReduceOp):
        lanes = prod(x.size for x in layout.lane if x.axis in op.axes)
        shuffles = 0 if op.into is not None else max(0, lanes.bit_length() - 1)
        results = float(shuffles * layouts[op.result.layout].registers)
        combined = layout.registers + results
        return Combining(combined + 2.0 * results, integer * combined, shuffles, barriers)
    levels = levels_of(op, layout)
    assert levels is not None
    steps = levels.lanes.size.bit_length() + 1 if levels.lanes.size > 1 else 0
    exchanged = 3.0 * steps + (3.0 * levels.warps.size if levels.warps.size > 1 else 0.0)
    if op.states is not None:
        return _of_states(op, layout.registers, levels, steps, barriers)
    if op.by is not None:  # a map is two numbers, and a product of factors is checked
        between = 0 if levels.warps.size == 1 else (levels.warps.size - 1).bit_length() + 1
        if op.axis not in op.by.type.names:  # powers of one factor
            slots = 3.0 * layout.registers + 6.0 * (steps + between) * levels.totals
            return Combining(slots, integer * slots, steps + between, barriers)
        slots = 12.0 * layout.registers + 11.0 * (steps + between) * levels.totals
        return Combining(slots, integer * slots, 2 * (steps + between), barriers)
    slots = 2.0 * layout.registers + exchanged * levels.totals
    return Combining(slots, integer * slots, steps, barriers)


def _of_states(op: ma.ScanOp, registers: int, levels: ScanLevels, steps: int, barriers: float) -> Combining:
    """The work of a scan of states: a map is a matrix, which all steps may share, and a vector."""
    m, between = state_matrix(op), 0 if levels.warps.size == 1 else (levels.warps.size - 1).bit_length() + 1
    rows, terms = next(a.size for a in op.arg.type.axes if a.name == op.states), len(m.entries)
    positions, moved = registers / rows, float(sum(r < m.size for r, _, _ in m.entries))
    exchanged = m.size * (1 if m.steady else m.size + 1)
    level = m.size * exchanged
    each = positions * (terms + moved * (1 if m.steady else m.size + 1))
    slots = each + (steps + between) * levels.totals * (2.0 * exchanged + level)
    return Combining(slots, 0.0, exchanged * (steps + between), barriers)


def rescales_lazily(kernel: ma.MemKernel) -> bool:
    """Whether a loop carries a reference that it replaces only conditionally (lazy rescaling)."""
    for loop in (op for op in ma.walk_ops(kernel.body) if isinstance(op, ma.ForOp)):
        carried = {f.name for f, _ in loop.carried}
        next_ = {f.name for f in loop.yields}
        for op in loop.body:
            kept = isinstance(op, ma.MapOp) and op.op == "select" and op.result.name in next_
            if kept and any(a.name in carried for a in op.args):  # type: ignore[union-attr]
                return True
    return False


def mma_rate(dtype: DType) -> float:
    """MMA operations a cycle and multiprocessor for elements of ``dtype``, relative to 4096 for 16-bit elements.

    Those of f64 take what single warps reach of a 10th part: 67 TFLOP/s on an H200, by its data sheet.
    """
    return 4096.0 / 10 if dtype is DType.F64 else 4096.0 * 2 / max(dtype.bytes, 1)
