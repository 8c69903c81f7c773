"""``dead``: temps that nobody reads leave the program, with the kernels that only compute such temps."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nautilus.core.buffers import Space
from nautilus.core.expr.nodes import loads
from nautilus.scalar.ir import Kernel, Program, statements


@dataclass(frozen=True, slots=True)
class Dead:
    """Remove dead temps, and what then is dead."""

    name = "dead"

    def apply(self, program: Program) -> Program:
        """The program without dead kernels; the same object where there are none."""
        while True:
            read = {name for k in program.kernels for name in reads(k)}
            dead = {b.name for b in program.buffers if b.space is Space.TEMP and b.name not in read}
            if not dead:
                return program
            kernels = tuple(k for k in program.kernels if not _globals(program, k) <= dead)
            alive = {name for k in kernels for name in _globals(program, k)}
            buffers = tuple(b for b in program.buffers if b.name not in dead or b.name in alive)
            if len(buffers) == len(program.buffers):
                return program  # a kernel writes a dead temp beside one that is read
            program = replace(program, buffers=buffers, kernels=kernels)


def reads(k: Kernel) -> frozenset[str]:
    """The buffers that ``k`` reads, those it only combines into apart."""
    found: set[str] = set()
    for _, s in statements(k.body):
        for e in (*s.index, s.value, *([] if s.guard is None else [s.guard])):
            found |= {ld.buffer for ld in loads(e)}
    return frozenset(found)


def _globals(program: Program, k: Kernel) -> frozenset[str]:
    """The buffers in global memory that ``k`` writes."""
    names = {b.name for b in program.buffers}
    return frozenset(s.buffer for _, s in statements(k.body)) & names
