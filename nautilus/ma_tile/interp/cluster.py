"""The barrier of a cluster (PTX ISA, ``barrier.cluster``) or of a team, and stores from one block into another.

A store into another block is an error before a cluster wait has confirmed that the block runs, and after the block
has ended.  The end of a block is an error while a store into it may be outstanding.
"""

from __future__ import annotations

import numpy as np

from nautilus.ma_tile.interp.state.shared_memory import OpFault, SharedMemory
from nautilus.ma_tile.interp.state.sync import Actor
from nautilus.ma_tile.interp.state.values import Fault


class ClusterBarrier:
    """``components``: of threads in each of ``ranks`` blocks, of ``threads`` threads and ``span`` bytes."""

    def __init__(self, memory: SharedMemory, ranks: int, components: int, threads: int, span: int) -> None:
        self.memory, self.ranks, self.components, self.threads, self.span = memory, ranks, components, threads, span
        n = len(memory.time)
        self.open_vc, self.done_vc = np.zeros(n, np.int32), np.zeros(n, np.int32)
        self.phase, self.arrived = 0, set[int]()
        self.pending: dict[int, int] = {}  # block -> the phase that it has arrived in and not waited for
        self.waited, self.ended = set[int](), set[int]()

    def arrive(self, actor: Actor, relaxed: bool) -> bool:
        """All threads of the block arrive, releasing what they did unless ``relaxed``. Raises Fault.

        Whether they are the last ones.
        """
        if actor.threads != self.threads:
            raise Fault("barrier", f"{actor.threads} of a block's {self.threads} threads arrive")
        if actor.rank in self.pending:
            raise Fault("barrier", "a block arrives twice without a wait between the arrivals")
        if not relaxed:
            own = slice(actor.rank * self.components, (actor.rank + 1) * self.components)
            self.memory.time[own] += 1  # the threads of all roles
            np.maximum(self.open_vc, actor.clock.vc, out=self.open_vc)
            self.open_vc[own] = self.memory.time[own]
        self.pending[actor.rank] = self.phase
        self.arrived.add(actor.rank)
        if len(self.arrived) == self.ranks:
            np.maximum(self.done_vc, self.open_vc, out=self.done_vc)
            self.phase, self.arrived = self.phase + 1, set()
        return not self.arrived

    def awaited(self, actor: Actor) -> int:
        """The phase that ``actor`` waits for. Raises Fault where it has not arrived."""
        if actor.rank not in self.pending:
            raise Fault("barrier", "a block waits at a cluster barrier without an arrival")
        return self.pending[actor.rank]

    def observe(self, actor: Actor) -> None:
        """``actor`` has waited: all blocks run, and it sees what they released."""
        del self.pending[actor.rank]
        self.waited.add(actor.rank)
        actor.clock.vc = np.maximum(actor.clock.vc, self.done_vc)

    def reach(self, actor: Actor, rank: int) -> int:
        """Offset from the memory of ``actor`` to that of block ``rank``. Raises Fault if ``actor`` may not write it."""
        if not 0 <= rank < self.ranks:
            raise Fault("out-of-bounds", f"block {rank} is outside a cluster of {self.ranks}")
        if rank != actor.rank and actor.rank not in self.waited:
            raise Fault("cluster", f"block {rank} may not run yet")
        if rank in self.ended:
            raise Fault("cluster", f"block {rank} may have ended")
        return (rank - actor.rank) * self.span

    def end(self, actor: Actor) -> None:
        """The block of ``actor`` ends. Raises OpFault if a store into its memory may be outstanding."""
        self.ended.add(actor.rank)
        if self.ranks == 1:
            return
        memory, n = self.memory, self.components
        here = slice(actor.rank * self.span // memory.granule, (actor.rank + 1) * self.span // memory.granule)
        by, stored = memory.component[here], (memory.writer[here] >= 0) & ~memory.pending[here]
        foreign = stored & (by < self.ranks * n) & (by // n != actor.rank)
        late = foreign & (memory.written[here] >= actor.clock.vc[by])
        if late.any():
            op = memory.writer_op[here][late][0]
            what = f"block {actor.rank} ends before a store into it is known to be complete"
            raise OpFault("cluster", what, op, "of")
