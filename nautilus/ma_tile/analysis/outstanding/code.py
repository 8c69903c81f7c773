"""Parts of a program that the analysis of outstanding copies looks at: what comes next, and loops one after another."""

from __future__ import annotations

from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.outstanding.states import State
from nautilus.ma_tile.ir.ops import ForOp, MemOp


@dataclass(slots=True)
class Frame:
    """The code that runs from position ``at`` of a block on, and the loop whose next iteration follows it."""

    body: tuple[MemOp, ...]
    at: int
    loop: ForOp | None


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop, its ``body`` with waits and barriers, and the state in which each of its iterations may begin."""

    op: ForOp
    body: tuple[MemOp, ...]
    head: State


@dataclass(frozen=True, slots=True)
class Chain:
    """Loops of which each begins where the one before it ends, without accesses between them.

    ``before``: the ops in front of them, which begin in ``start``; ``entry``: the state after these.
    """

    before: tuple[MemOp, ...]
    start: State
    entry: State
    loops: tuple[Loop, ...] = ()

    def goes_on(self, op: ForOp) -> bool:
        """Whether ``op`` begins where the last loop ends."""
        return bool(self.loops) and self.loops[-1].op.hi == op.lo
