"""``dead``: temps without readers are removed, with the kernels that only compute such temps."""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.definitions import read_by_supports, reads_of, writes_of
from nautilus.scalar.ir import Program


@dataclass(frozen=True, slots=True)
class Dead:
    """Remove dead temps, and what then is dead."""

    name = "dead"

    def apply(self, program: Program) -> Program:
        """The program without dead kernels; the same object where there are none."""
        while True:
            read = {name for k in program.kernels for name in reads_of(k)} | read_by_supports(program.buffers)
            dead = {b.name for b in program.buffers if b.space is Space.TEMP and b.name not in read}
            if not dead:
                return program
            kernels = tuple(k for k in program.kernels if not writes_of(k) <= dead)
            alive = {name for k in kernels for name in writes_of(k)}
            buffers = tuple(b for b in program.buffers if b.name not in dead or b.name in alive)
            if len(buffers) == len(program.buffers):
                return program  # a kernel writes a dead temp beside one that is read
            program = replace(program, buffers=buffers, kernels=kernels)
