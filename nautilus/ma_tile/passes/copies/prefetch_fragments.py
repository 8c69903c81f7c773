"""Read shared operands of matrix instructions some k-steps before they are used.

Only MMAs whose two operands both come from shared memory gain: with one in registers the loads
are half as many.  ``ahead`` fragments cost registers; 1 is double buffering.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, WarpPlan
from nautilus.ma_tile.ir.instruction_tables import MMA
from nautilus.ma_tile.ir.ops import MemKernel, MemModule, MemOp, MmaOp, Slot
from nautilus.ma_tile.ir.traverse import each_planned_kernel, rebuild


@dataclass(frozen=True, slots=True)
class PrefetchFragments:
    """``prefetch_fragments``: k-steps between the load of a fragment and its use; None: as the schedule says."""

    schedule: Schedule | None = None
    prefetch_fragments: int | None = None
    name = "prefetch-fragments"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose fragments are loaded some k-steps before their use."""

        def one(k: MemKernel, plan: WarpPlan) -> MemKernel:
            def rule(op: MemOp) -> tuple[MemOp]:
                if isinstance(op, MmaOp) and op.instr in MMA and isinstance(op.a, Slot) and isinstance(op.b, Slot):
                    return (replace(op, ahead=plan.prefetch_fragments),)
                return (op,)

            return replace(k, body=rebuild(k.body, rule))

        return each_planned_kernel(module, self, WarpPlan, one)
