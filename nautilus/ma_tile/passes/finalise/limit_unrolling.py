"""``limit-unrolling``: says how far the C++ compiler unrolls loops, where its own choice costs registers or code size.

* Loops of a kernel whose consumers are warpgroups are not unrolled.  Their registers are budgeted, and copies of a
  body would need more of them.
* The loop of an ``fma`` MMA with two shared operands has :data:`SHARED_STEPS` steps in its body.  An MMA with an
  operand in registers has all of them, because the number of a register is a constant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from nautilus.ma_tile.analysis.consumers import has_warpgroups
from nautilus.ma_tile.ir.ops import ForOp, MemKernel, MemModule, MemOp, MmaOp, Slot
from nautilus.ma_tile.ir.traverse import each_kernel, rebuild

#: k-steps of an ``fma`` MMA in one iteration: enough to overlap the loads of a step with earlier multiplications
SHARED_STEPS = 4


@dataclass(frozen=True, slots=True)
class LimitUnrolling:
    """No options."""

    name = "limit-unrolling"

    def apply(self, module: MemModule) -> MemModule:
        return each_kernel(module, _kernel)


def _kernel(kernel: MemKernel) -> MemKernel:
    rolled = has_warpgroups(kernel)

    def rule(op: MemOp) -> tuple[MemOp, ...]:
        match op:
            case ForOp(unroll=None) if rolled:
                return (replace(op, unroll=1),)
            case MmaOp(instr="fma", a=Slot(), b=Slot(), unroll=None):
                return (replace(op, unroll=SHARED_STEPS),)
        return (op,)

    return replace(kernel, body=rebuild(kernel.body, rule))
