"""The work of each op of a kernel, run once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nautilus.cost.work import Counter, Counts
from nautilus.ma_tile.ir.ops import MemKernel, MemModule, MemOp


class _Recorder(Counter):
    """Counts every op for itself, as often as it runs in one iteration of its loops: once."""

    def __init__(self, module: MemModule, kernel: MemKernel) -> None:
        super().__init__(module, kernel)
        self.found: dict[int, Counts] = {}

    def leaf(self, op: MemOp, times: Any, env: dict[str, Any]) -> None:
        outer, self.counts = self.counts, Counts()
        super().leaf(op, np.asarray(1.0), env)
        self.found[id(op)], self.counts = self.counts, outer


def work_of_ops(module: MemModule, kernel: MemKernel) -> Mapping[int, Counts]:
    """The counts of each op of ``kernel`` by its identity; none of an op in a loop that no tile enters."""
    recorder = _Recorder(module, kernel)
    recorder.run()
    return recorder.found
