"""Positions are computed where they are first used.

An index or a constant costs nothing to compute late, and registers if it is early: a mask that is computed
before a wait is live across it, and no longer prints in one register loop with what reads it.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.records import dataclass
from nautilus.ma_tile.ir.ops import IndexOp, MemModule, MemOp, walk_ops
from nautilus.ma_tile.ir.traverse import each_kernel, reads
from nautilus.ma_tile.rewriting.renaming import each_block


@dataclass(frozen=True, slots=True)
class SinkIndices:
    """The pass ``sink-indices``, which has no options."""

    name = "sink-indices"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose positions are computed at their first use."""
        return each_kernel(module, lambda k: replace(k, body=each_block(k.body, sink)))


def sink(body: tuple[MemOp, ...]) -> tuple[MemOp, ...]:
    """``body`` with every index op right before the first op that reads it (or holds an op that does)."""
    out: list[MemOp] = []
    waiting: dict[str, IndexOp] = {}

    def release(names: set[str]) -> None:
        for name in [n for n in waiting if n in names]:
            op = waiting.pop(name, None)
            if op is not None:
                release(set(reads(op)))
                out.append(op)

    for op in body:
        if isinstance(op, IndexOp):
            waiting[op.result.name] = op
            continue
        release({name for x in walk_ops((op,)) for name in reads(x)})
        out.append(op)
    release(set(waiting))
    return tuple(out)
