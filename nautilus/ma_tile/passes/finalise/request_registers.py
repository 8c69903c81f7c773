"""``request-registers``: says whether the threads of a role take registers or give some up.

The launch allocates the same number of registers to each thread.  A role with a larger budget takes more
(``setmaxnreg.inc``) and blocks until the others have given theirs up (``setmaxnreg.dec``).
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.records import dataclass
from nautilus.ma_tile.ir.ops import DECREASE, INCREASE, MemKernel, MemModule, MemOp, Role, RolesOp
from nautilus.ma_tile.ir.traverse import each_kernel
from nautilus.targets.limits import Limits, limits


@dataclass(frozen=True, slots=True)
class RequestRegisters:
    """The pass ``request-registers``, which has no options."""

    name = "request-registers"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose roles take or release registers."""
        target = limits(module.target)
        return each_kernel(module, lambda k: _kernel(k, target))


def _kernel(kernel: MemKernel, target: Limits) -> MemKernel:
    launched = target.registers_at_launch(32 * kernel.warps, kernel.min_blocks)

    def decided(role: Role) -> Role:
        if role.registers is None:
            return role
        return replace(role, change=DECREASE if role.registers < launched else INCREASE)

    def rule(op: MemOp) -> MemOp:
        return replace(op, roles=tuple(map(decided, op.roles))) if isinstance(op, RolesOp) else op

    return replace(kernel, body=tuple(map(rule, kernel.body)))
