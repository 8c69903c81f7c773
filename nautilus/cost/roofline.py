"""The roofline: the least time of a program's matrix instructions, special functions and bytes."""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.buffers import Space
from nautilus.core.index.sizes import nominal, volume
from nautilus.core.records import dataclass
from nautilus.cost.model import Estimate
from nautilus.scalar.ir import Program
from nautilus.targets.rates import machine


@dataclass(frozen=True, slots=True)
class Roofline:
    """Lower bounds in seconds by resource, and the share of the highest bound in the predicted time.

    ``unit``: the unit that binds in the prediction, with its share of the predicted time (:func:`binding_unit`).
    """

    floors: Mapping[str, float]
    share: float
    unit: str = ""
    unit_share: float = 0.0

    @property
    def bound(self) -> str:
        """The resource with the highest floor."""
        return max(self.floors, key=lambda f: self.floors[f])


def roofline(program: Program, found: Estimate, arch: str) -> Roofline:
    """The lower bounds of ``program``'s MMA and special-function work, and of moving inputs and outputs once.

    Compute bounds hold at the nominal clock of ``arch``.  Of an input that the kernels do not read whole, such as a
    table from which they gather rows, only what they read counts.
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
        "memory": min(read + written, found.bytes) / rate,
    }
    share = max(floors.values()) / found.seconds if found.seconds > 0 else 0.0
    return Roofline(floors, share, *binding_unit(found.parts, found.seconds))


#: Part of an estimate -> the unit of the GPU that takes so long, if it works alone.
UNITS = {
    "mma": "matrix units",
    "special": "special-function units",
    "issue": "instruction issue",
    "shared": "shared memory",
    "l1": "L1 cache",
    "l2": "L2 cache",
    "dram": "memory",
    "launch": "launches",
}
DEPENDENT = "dependent work on the multiprocessors"
_FEW = 0.5  # share of the on-chip time below which no unit of a multiprocessor is busy enough to bind


def binding_unit(parts: Mapping[str, float], seconds: float) -> tuple[str, float]:
    """The unit that takes the longest part of ``seconds``, and its share.

    Where no unit is busy for half of the time that the multiprocessors take, their dependent work binds.
    """
    if seconds <= 0:
        return "", 0.0
    name = max(UNITS, key=lambda p: parts.get(p, 0.0))
    on_chip = parts.get("multiprocessors", 0.0)
    if parts[name] < _FEW * on_chip:
        return DEPENDENT, min(1.0, on_chip / seconds)
    return UNITS[name], min(1.0, parts[name] / seconds)
