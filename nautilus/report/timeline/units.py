"""The units of a multiprocessor that the threads of a block share, and how long an op occupies each of them.

The durations come from the counts of the cost model for one op and the rates of the target.  A unit serves one op
after another.  A copy from memory takes the longest of three times: at the rate of the copy unit, by rows of shared
memory, and at the share of this multiprocessor in the rate of the memory; and the latency after that.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from nautilus.core.records import dataclass
from nautilus.cost.counts import Counts
from nautilus.cost.model import MIXED, PART, instruction_cycles
from nautilus.targets.rates import Machine


def _mean(value: Any) -> float:
    return float(np.mean(value))


@dataclass(frozen=True, slots=True)
class Durations:
    """Cycles of one op by unit; ``after``: latency in which only its own threads wait."""

    issue: float = 0.0
    mma: float = 0.0
    copy: float = 0.0
    after: float = 0.0


def durations(c: Counts | None, m: Machine, memory_share: float) -> Durations:
    """The cycles of an op with the counts ``c``; ``memory_share``: cycles of a byte at the rate of the memory."""
    if c is None:
        return Durations()
    special = (_mean(c.special) + _mean(c.special_under)) / m.special
    slots = float(instruction_cycles(_mean(c.issue) + _mean(c.issue_under), _mean(c.integer), m))
    shared, stores = _mean(c.shared) / m.shared, _mean(c.sectors) * PART
    issue = max(special, slots) + MIXED * min(special, slots) + stores
    rate = m.tensor_half / 4096.0
    read = _mean(c.read)
    return Durations(
        max(issue, shared), _mean(c.wgmma) / rate + _mean(c.warp_mma) / (rate * m.warp_mma),
        max(read / m.tma, _mean(c.lines) * m.tma_row, read * memory_share),
        m.lane_reduction if np.any(c.lane_reductions) else 0.0,
    )  # fmt: skip


@dataclass
class Unit:
    """Serves one op after another."""

    free: float = 0.0

    def serve(self, now: float, cycles: float) -> tuple[float, float]:
        """The start and the end of an op that is ready at ``now``."""
        start = max(now, self.free)
        self.free = start + cycles
        return start, self.free


@dataclass
class Units:
    """The shared units of one block's multiprocessor."""

    issue: Unit = field(default_factory=Unit)
    mma: Unit = field(default_factory=Unit)
    copy: Unit = field(default_factory=Unit)
