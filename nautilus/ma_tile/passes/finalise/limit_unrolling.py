"""``limit-unrolling``: says how far the C++ compiler unrolls loops, where its own choice costs registers or code size.

* Loops of a kernel whose consumers are warpgroups are not unrolled.  Their registers are budgeted, and copies of a
  body would need more of them.
* The loop of an ``fma`` MMA with two shared operands has :data:`SHARED_STEPS` steps in its body.  An MMA with an
  operand in registers has all of them, because the number of a register is a constant.
* A loop of *steps* carries values from which each iteration stores results, such as the state of a recurrence.  Its
  loads do not wait for these values, so several iterations are unrolled together: their loads are outstanding at the
  same time.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.ops import declaration
from nautilus.core.records import dataclass
from nautilus.core.tiles import floor_pow2
from nautilus.ma_tile.analysis.consumers import has_warpgroups
from nautilus.ma_tile.ir.ops import (
    ConstOp,
    ConvertOp,
    ForOp,
    GlobalLoad,
    GlobalStore,
    IndexOp,
    MapOp,
    MemKernel,
    MemModule,
    MemOp,
    MmaOp,
    ParamOp,
    ReduceOp,
    SliceOp,
    Slot,
    StackOp,
)
from nautilus.ma_tile.ir.traverse import each_kernel, rebuild

#: k-steps of an ``fma`` MMA in one iteration: enough to overlap the loads of a step with earlier multiplications
SHARED_STEPS = 4
#: registers of a thread for the loads of all steps in one iteration of a loop of steps
LOADED = 64
#: registers of the results of all ops in one iteration of a loop of steps, which bound its code
COMPUTED = 2048
_MOST = 32  # steps
#: the ops of a loop of steps: no barriers, and no exchange through shared memory
_PLAIN = (ConstOp, ConvertOp, GlobalLoad, GlobalStore, IndexOp, MapOp, ParamOp, ReduceOp, SliceOp, StackOp)


@dataclass(frozen=True, slots=True)
class LimitUnrolling:
    """The pass ``limit-unrolling``, which has no options."""

    name = "limit-unrolling"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose loops say how far they are unrolled."""
        return each_kernel(module, _kernel)


def _kernel(kernel: MemKernel) -> MemKernel:
    rolled = has_warpgroups(kernel)

    def rule(op: MemOp) -> tuple[MemOp, ...]:
        match op:
            case ForOp(unroll=None) if rolled:
                return (replace(op, unroll=1),)
            case ForOp(unroll=None) if (steps := _steps(kernel, op)) > 1:
                return (replace(op, unroll=steps),)
            case MmaOp(instr="fma", a=Slot(), b=Slot(), unroll=None):
                return (replace(op, unroll=SHARED_STEPS),)
        return (op,)

    return replace(kernel, body=rebuild(kernel.body, rule))


def _steps(kernel: MemKernel, loop: ForOp) -> int:
    """How many iterations of a loop of steps are unrolled together; 1 for any other loop."""
    loads = [op for op in loop.body if isinstance(op, GlobalLoad)]
    stores = [op for op in loop.body if isinstance(op, GlobalStore) and op.combiner is None]
    plain = all(isinstance(op, _PLAIN) and getattr(op, "scratch", None) is None for op in loop.body)
    if not (loop.carried and loads and stores and plain) or any(s.buffer == x.buffer for s in stores for x in loads):
        return 1
    words = sum(kernel.layouts[x.result.layout].registers * x.result.type.dtype.bytes / 4 for x in loads)
    made = sum(kernel.layouts[v.layout].registers for op in loop.body for v in declaration(type(op)).results(op))
    most = min(_MOST, LOADED / words, COMPUTED / made)
    return floor_pow2(int(most))
