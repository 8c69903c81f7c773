"""The roofline: the least time of a program's matrix instructions, special functions and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nautilus.core.buffers import Space
from nautilus.core.index.sizes import nominal, volume
from nautilus.cost.model import Estimate
from nautilus.scalar.ir import Program
from nautilus.targets.rates import machine


@dataclass(frozen=True, slots=True)
class Roofline:
    """Lower bounds in seconds by resource, and the share of the highest bound in the predicted time."""

    floors: Mapping[str, float]
    share: float

    @property
    def bound(self) -> str:
        """The resource with the highest floor."""
        return max(self.floors, key=lambda f: self.floors[f])


def roofline(program: Program, found: Estimate, arch: str) -> Roofline:
    """The lower bounds of ``program``'s MMA and special-function work, and of moving inputs and outputs once.

    Compute bounds hold at the nominal clock of ``arch``.
    """
    m = machine(arch)
    read, written = (
        sum(b.dtype.bytes * nominal(volume(b.shape)) for b in program.buffers if b.space is s)
        for s in (Space.INPUT, Space.OUTPUT)
    )
    rate = m.dram_read if written < 0.1 * (read + written) else m.dram
    floors = {
        "mma": sum(k.parts["mma"] * k.clock for k in found.kernels) / m.clock,
        "special functions": sum(k.parts["special"] * k.clock for k in found.kernels) / m.clock,
        "memory": (read + written) / rate,
    }
    return Roofline(floors, max(floors.values()) / found.seconds if found.seconds > 0 else 0.0)
