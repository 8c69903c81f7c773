"""``split-positions``: computes functions of tile positions from a term of the thread and a term of the register.

The pass marks every ``index`` op of a tile position in a kernel whose consumers are warpgroups, where a thread has many
registers: the term of the thread is computed once, and the term of a register is a constant.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.expr.nodes import free_vars
from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.consumers import has_warpgroups
from nautilus.ma_tile.ir.ops import IndexOp, MemKernel, MemModule, MemOp
from nautilus.ma_tile.ir.traverse import each_kernel, rebuild


@dataclass(frozen=True, slots=True)
class SplitPositions:
    """The pass ``split-positions``, which has no options."""

    name = "split-positions"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` with functions of positions in two terms."""
        return each_kernel(module, _kernel)


def _kernel(kernel: MemKernel) -> MemKernel:
    if not has_warpgroups(kernel):
        return kernel

    def rule(op: MemOp) -> tuple[MemOp, ...]:
        if isinstance(op, IndexOp) and free_vars(op.expr) & set(kernel.layouts[op.result.layout].axes):
            return (replace(op, split=True),)
        return (op,)

    return replace(kernel, body=rebuild(kernel.body, rule))
