"""The number of instructions that a kernel is printed as, which bounds the time that NVRTC needs for it.

The planner's schedules keep it below :data:`MOST`.  All loops over registers are unrolled in the emitted text, so that
the code of an op grows with the registers of its fragments.  Loops of the kernel count once.  The numbers are
estimates: for each arithmetic operation of an element the issue slots of ``core.functions``, and for each access the
operations of its index expressions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.nodes import Expr, Op, free_vars, walk
from nautilus.core.functions import FUNCTIONS
from nautilus.core.functions.parts import DEPTH
from nautilus.core.records.memo import by_identity
from nautilus.core.types import DType
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.instruction_tables import MMA
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.scan import levels_of, state_matrix

#: The most instructions of a kernel that the planner's schedules have.  NVRTC compiles that many in less than 10 s; at
#: 25,000, of which most spill, it takes more than 30 s (sm_90a, NVRTC 13.0).
MOST = 10_000

_SHUFFLES = 5  # steps of a reduction over the lanes of a warp
_ROLLED = 4  # steps of a scalar dot from shared memory that are unrolled
_DOUBLE = 16  # instructions of an elementary function in f64 for one in f32


def code_size(kernel: ma.MemKernel, ops: tuple[ma.MemOp, ...] | None = None) -> int:
    """Instructions of ``ops`` of ``kernel``, of all where there are none, estimated."""
    return round(_Sizes(kernel).body(kernel.body if ops is None else ops))


@by_identity(256)  # kernels that trials have in common
def _whole_size(kernel: ma.MemKernel) -> int:
    return code_size(kernel)


def check_code_size(module: ma.MemModule, exempt: Collection[str] = ()) -> None:
    """Raise ScheduleError for a kernel that NVRTC would compile for too long, unless its name is ``exempt``."""
    for k in module.kernels:
        size = _whole_size(k)
        if size > MOST and k.name not in exempt:
            reason = f"about {size} instructions take too long to compile; a kernel may have {MOST}"
            raise ScheduleError(reason, kernel=k.name, excess=size / MOST)


class _Sizes:
    """The sizes of the ops of one kernel."""

    def __init__(self, kernel: ma.MemKernel) -> None:
        self.kernel = kernel
        self.smem = {s.name: s for s in kernel.smem}

    def body(self, ops: tuple[ma.MemOp, ...]) -> float:
        """Instructions of ``ops`` and of all ops in them."""
        return sum(self.op(op) for op in ma.walk_ops(ops))

    def layout(self, frag: ma.Frag) -> FragLayout:
        return self.kernel.layouts[frag.layout]

    def registers(self, frag: ma.Frag) -> int:
        """Elements of ``frag`` that a thread has."""
        return self.layout(frag).registers

    def op(self, op: ma.MemOp) -> float:
        """Instructions of ``op`` itself."""
        match op:
            case ma.MapOp(result=result, op=name):
                return self.registers(result) * _slots(name, result.type.dtype)
            case ma.IndexOp(result=result, expr=e):
                return _operations([e], self.layout(result).axes, self.registers(result))
            case (
                ma.ConvertOp(result=result)
                | ma.SliceOp(result=result)
                | ma.StackOp(result=result)
                | ma.WindowOp(result=result)
            ):
                return self.registers(result)
            case ma.UnpackOp(result=result):
                return self.registers(result) * op.slots
            case ma.GlobalLoad(result=frag, index=index, mask=mask, vec=vec):
                return _accesses(self._accesses(frag, vec), index, mask, self.layout(frag)) + self.registers(frag)
            case ma.GlobalStore(value=frag, index=index, mask=mask, vec=vec):
                return _accesses(self._accesses(frag, vec), index, mask, self.layout(frag)) + self.registers(frag)
            case ma.SharedLoad(result=frag, vec=vec) | ma.SharedStore(value=frag, vec=vec):
                return self._accesses(frag, vec) * 4 + self.registers(frag)
            case ma.AsyncCopy(index=index, mask=mask, vec=vec, threads=threads):
                of = self.kernel.layouts[threads]
                count = of.registers // max(1, vec)
                return _accesses(count, index, mask, of) + 2 * count
            case ma.RowStore(index=index, mask=mask, threads=threads):
                of = self.kernel.layouts[threads]
                return 3 * _accesses(of.registers // 8, index, mask, of) + of.registers // 8 * 40
            case ma.ReduceOp():
                return self._reduction(op)
            case ma.ScanOp():
                return self._scan(op)
            case ma.MmaOp():
                return self._mma(op)
            case ma.ForOp(carried=carried):
                return sum(self.registers(a) for a, _ in carried)
        return 4.0

    def _accesses(self, frag: ma.Frag, vec: int) -> int:
        return -(-self.registers(frag) // max(1, vec))

    def _reduction(self, op: ma.ReduceOp) -> float:
        steps = sum(m.axis in op.axes for m in self.layout(op.arg).lane) and _SHUFFLES
        out = self.registers(op.result)
        scratch = 4 * out if op.scratch is not None else 0
        wide = 2 if op.arg.type.dtype.bytes == 8 else 1
        return wide * (self.registers(op.arg) + 3 * steps * out + scratch)

    def _scan(self, op: ma.ScanOp) -> float:
        levels = levels_of(op, self.layout(op.arg))
        assert levels is not None
        steps = levels.lanes.size.bit_length() + 1
        wide = 2 if op.arg.type.dtype.bytes == 8 else 1
        if op.states is not None:
            size = state_matrix(op).size
            return wide * size * (8 * self.registers(op.arg) + levels.totals * 20 * size * (steps + 4))
        if op.by is not None:
            return wide * (16 * self.registers(op.arg) + levels.totals * (12 * steps + 16 * levels.warps.size))
        return wide * (2 * self.registers(op.arg) + levels.totals * (3 * steps + 4 * levels.warps.size))

    def _mma(self, op: ma.MmaOp) -> float:
        out = self.registers(op.result)
        depth = self._extent(op, op.over)
        if op.instr == "fma":
            rolled = isinstance(op.a, ma.Slot) and isinstance(op.b, ma.Slot)
            return out * min(depth, _ROLLED if rolled else depth) * (1.5 if op.result.type.dtype.bytes < 8 else 3)
        if op.instr not in MMA:
            return out + 16.0  # warpgroup MMAs are few; their accumulators are operands of each
        instr = MMA[op.instr]
        if instr.parts > 1:  # three MMAs for each k-step of a short sum, and scalar ones
            return min(depth, DEPTH) / instr.k * out * 2 + 4 * out
        return depth // instr.k * out / 4 * 2

    def _extent(self, op: ma.MmaOp, axis: str) -> int:
        for x in (op.a, op.b):
            axes = x.type.axes if isinstance(x, ma.Frag) else self.smem[x.buffer].axes
            for a in axes:
                if a.name == axis:
                    return a.size
        return 1


def _slots(name: str, dtype: DType) -> float:
    function = FUNCTIONS[name]
    if dtype.bytes < 8:
        return max(1.0, function.slots + function.special)
    return _DOUBLE * max(1.0, function.slots) if function.elementary else 2.0 * max(1.0, function.slots)


def _accesses(count: int, index: Iterable[Expr], mask: Expr | None, of: FragLayout) -> float:
    """Instructions of the addresses and masks of ``count`` accesses of a thread to a tile that lies as ``of`` says."""
    return 2 * count + _operations([*index, *([] if mask is None else [mask])], of.axes, count)


def _operations(exprs: Iterable[Expr], axes: Collection[str], count: int) -> float:
    """Operations of index expressions for ``count`` registers, equal ones once.

    Those that no axis of the tile enters are computed once, and half of the others do not depend on the register.
    """
    found = {n for e in exprs for n in walk(e) if isinstance(n, Op)}
    own = sum(not free_vars(n).isdisjoint(axes) for n in found)
    return count * (1 + own / 2) + (len(found) - own)
