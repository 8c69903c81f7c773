"""Counts of work: of one consumer by hardware unit, and of a whole kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from nautilus.core.records import dataclass
from nautilus.cost.latency import Waits
from nautilus.cost.reads import Access

#: counts of a block that a cluster divides among its blocks
_SHARED = (
    "special", "issue", "integer", "special_under", "issue_under", "integer_under", "sectors", "finds", "shared",
    "read",
)  # fmt: skip


#: The time of a barrier of a team, in barriers of a cluster: stores reach L2, and then the arrivals of all blocks.
TEAM_SYNC = 3.0


@dataclass(slots=True)
class Counts:
    """Work for each tile of one consumer: a warpgroup, a warp of a split-K block, or a block without warp roles.

    Cycles are those of a multiprocessor without other work.
    """

    wgmma: Any = 0.0  # cycles of the tensor cores at the rate of wgmma
    warp_mma: Any = 0.0  # the same for mma.sync
    special: Any = 0.0  # results of the special-function unit, exposed
    issue: Any = 0.0  # warp instructions, exposed
    integer: Any = 0.0  # how many of them the integer unit executes, exposed
    special_under: Any = 0.0  # special-function results covered by outstanding MMAs
    issue_under: Any = 0.0  # warp instructions covered by outstanding MMAs
    integer_under: Any = 0.0  # how many of them the integer unit executes
    sectors: Any = 0.0  # sectors of memory that stores write in part, those of each instruction by themselves
    finds: Any = 0.0  # cycles in which L1 looks up the lines of loads
    meets: Any = 0.0  # atomic operations on each line of memory, which follow each other
    shared: Any = 0.0  # bytes that warps read and write in shared memory
    drains: Any = 0.0  # waits for the last outstanding MMA
    barriers: Any = 0.0  # barriers of all threads of the block
    cluster_syncs: Any = 0.0  # cluster barriers after stores into another block's shared memory
    lane_reductions: Any = 0.0  # shuffle reductions in loops, whose latency no work of the same consumer hides
    chain: Any = 0.0  # cycles in which iterations wait for each other's results
    waits: Any = 0.0  # iterations that wait for copies of their own
    stalls: Any = 0.0  # loads in loops of MMAs for whose time a warp waits
    read: Any = 0.0  # bytes loaded
    row_overhead: Any = 0.0  # bytes that memory would load in the time in which it begins short rows
    lines: Any = 0.0  # rows of shared memory that TMA loads fill
    flops: Any = 0.0

    def instructions(self, slots: Any, integer: Any, special: Any, covered: bool) -> None:
        """Add warp instructions, how many of them are of the integer unit, and results of the special-function unit."""
        if covered:
            self.issue_under = self.issue_under + slots
            self.integer_under = self.integer_under + integer
            self.special_under = self.special_under + special
        else:
            self.issue = self.issue + slots
            self.integer = self.integer + integer
            self.special = self.special + special

    def meet(self, barriers: Any, team: bool) -> None:
        """Add barriers of the block; ``team``: of all blocks of a team."""
        self.barriers = self.barriers + barriers
        self.cluster_syncs = self.cluster_syncs + (TEAM_SYNC * barriers if team else 0.0)

    def spread(self, blocks: int) -> None:
        """Make these the counts of one of ``blocks`` blocks of a cluster that share the work.

        Each barrier waits until what the others stored is in the L2 cache, and until it is loaded from there.
        """
        if blocks > 1:
            for name in _SHARED:
                setattr(self, name, np.asarray(getattr(self, name)) / blocks)
            self.cluster_syncs, self.barriers = 2.0 * np.asarray(self.barriers), 0.0


@dataclass(slots=True)
class Work:
    """The work of a kernel.

    ``consumer``: that of a consumer warpgroup, or a warp of a split-K block.  ``loads``: what tiles read, by buffer.
    """

    tiles: int
    consumer: Counts
    loads: dict[tuple[str, int], Access]
    consumers: int
    warps: int  # warps of one consumer
    separate_tiles: bool  # each consumer works on a tile of its own (CUTLASS: pingpong)
    order: str  # assignment of tiles to blocks: none | static | snake | dynamic
    specialised: bool
    ordered: bool  # an ordered barrier alternates the MMAs of consumers (ping-pong)
    pipeline_bytes: float  # most outstanding bytes of a block
    pipelines: dict[str, tuple[int, bool]]  # shared buffer loaded in a loop -> (stages, released one iteration late)
    stage_bytes: float  # bytes that one iteration loads, over all pipelines
    evaluated: int  # tiles counted one by one
    cluster: int  # blocks that share loads by multicast
    waits: Waits  # of a warp for plain loads
    stored: frozenset[str] = field(default_factory=frozenset)
    moved: Mapping[str, float] = field(default_factory=dict)  # bytes of sectors that plain loads of a tile move
    gathered: Mapping[str, float] = field(default_factory=dict)  # those of elements whose places are read
    anywhere: Mapping[str, float] = field(default_factory=dict)  # whole sectors of elements that lie alone
    combines: bool = False  # independent warps compute partial results that their block combines (split-K)

    @property
    def plain(self) -> bool:
        """Whether there are neither MMAs nor pipelines of copies."""
        return not self.pipelines and not np.any(self.consumer.flops)
