"""``pair-fragments``: reads the fragments of two neighbouring column tiles of a right operand by one ldmatrix.

The instruction reads four 8 x 8 blocks of 16-bit elements, and a column tile of one k-step has two of them.  Fragments
of several k-steps stay single, because the blocks of two column tiles are then apart in the fragment.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.records import dataclass
from nautilus.ma_tile.ir.instruction_tables import MMA
from nautilus.ma_tile.ir.ops import MatrixLoad, MemKernel, MemModule, MemOp, MmaOp, Slot
from nautilus.ma_tile.ir.traverse import each_kernel, rebuild


@dataclass(frozen=True, slots=True)
class PairFragments:
    """The pass ``pair-fragments``, which has no options."""

    name = "pair-fragments"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` with one ldmatrix for two neighbouring fragments."""
        return each_kernel(module, _kernel)


def _kernel(kernel: MemKernel) -> MemKernel:
    halves = {s.name for s in kernel.smem if s.dtype.bytes == 2}

    def rule(op: MemOp) -> tuple[MemOp, ...]:
        match op:
            case MmaOp(b=Slot(buffer=name)) if op.instr in MMA and name in halves:
                return (replace(op, paired=kernel.layouts[op.result.layout].reg[2].size > 1),)
            case MatrixLoad():
                registers = kernel.layouts[op.result.layout].reg
                right = registers[1].axis == op.axis
                return (replace(op, paired=right and registers[2].size == 1 and registers[-1].size > 1),)
        return (op,)

    return replace(kernel, body=rebuild(kernel.body, rule))
