"""``repeat-waits``: repeats the last ``mbar.wait`` of a block of ops right before a volatile ``wg.wait``.

The phase has completed, so the second wait ends at once.  Its loop starts a basic block, and the assembler moves no
``wgmma.wait_group`` across the start of a basic block.  A wait is not repeated after the pipeline whose stage or phase
it names has advanced, because it would wait for another phase.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.expr.nodes import free_vars
from nautilus.core.ops import declaration, map_regions
from nautilus.core.records import dataclass
from nautilus.ma_tile.ir.ops import AdvanceOp, MbarWait, MemKernel, MemModule, MemOp, WgWait
from nautilus.ma_tile.ir.traverse import each_kernel


@dataclass(frozen=True, slots=True)
class RepeatWaits:
    """The pass ``repeat-waits``, which has no options."""

    name = "repeat-waits"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` with repeated waits."""
        return each_kernel(module, _kernel)


def _kernel(kernel: MemKernel) -> MemKernel:
    states = {c.name: {c.stage, c.phase} for c in kernel.pipelines}

    def block(ops: tuple[MemOp, ...]) -> tuple[MemOp, ...]:
        out, passed = list[MemOp](), None
        for op in ops:
            match op:
                case MbarWait():
                    passed = op
                case WgWait(volatile=True) if passed is not None and out[-1] != passed:
                    out.append(passed)
                case AdvanceOp(pipeline=name) if passed is not None:
                    if states[name] & (free_vars(passed.stage) | free_vars(passed.parity)):
                        passed = None
                case _ if declaration(type(op)).regions:
                    passed = None
            out.append(map_regions(op, block))
        return tuple(out)

    return replace(kernel, body=block(kernel.body))
