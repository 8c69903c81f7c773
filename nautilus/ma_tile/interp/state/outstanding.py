"""Outstanding asynchronous operations of a consumer: MMAs, their results, TMA stores.

An outstanding result is an :class:`Outstanding` in place of registers; a read before a ``wg.wait`` lists it is an
error.  An MMA that accumulates into it reuses its registers.  Numpy arrays identify registers and are never
changed in place: ``written`` contains those that threads wrote since the last ``wg.fence``.
"""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.ma_tile.interp.state.shared_memory import PendingRead
from nautilus.ma_tile.interp.state.values import Fault


@dataclass(slots=True, eq=False)
class Outstanding:
    """Registers that a pending MMA writes. ``roots``: the fragments that have these registers."""

    value: Array
    roots: frozenset[str]
    op: int
    retired: bool = False
    ready: bool = False
    spent: bool = False

    def read(self, name: str) -> Array:
        """The registers, once a wait has listed them. Raises Fault."""
        if self.spent:
            raise Fault("outstanding", f"%{name} is read, but a later MMA accumulates into its registers")
        if not self.ready:
            raise Fault("outstanding", f"%{name} is read before a wg.wait lists it")
        return self.value


@dataclass(slots=True, eq=False)
class Undefined:
    """Registers without a value."""


#: what the name of a fragment stands for
Value: TypeAlias = Array | Outstanding | Undefined


@dataclass(slots=True, eq=False)
class PendingMma:
    """A pending MMA: its reads of shared memory, the fragments that it reads, its result."""

    op: int
    pending_reads: list[PendingRead]
    reads: frozenset[str]
    result: Outstanding


@dataclass(slots=True)
class Engines:
    """Issued operations of one consumer: the open groups and the committed ones, oldest first."""

    mmas: list[PendingMma] = field(default_factory=list)
    mma_groups: list[list[PendingMma]] = field(default_factory=list)
    stores: list[PendingRead] = field(default_factory=list)
    store_groups: list[list[PendingRead]] = field(default_factory=list)
    written: dict[int, Array] = field(default_factory=dict)
    fenced: bool = False

    def reader(self, name: str) -> PendingMma | None:
        """A pending MMA that reads the fragment ``name``."""
        for group in (*self.mma_groups, self.mmas):
            for p in group:
                if name in p.reads:
                    return p
        return None

    def unfinished(self) -> int | None:
        """The number of a pending op; None if there is none."""
        for group in (*self.mma_groups, self.mmas):
            for p in group:
                return p.op
        for reads in (*self.store_groups, self.stores):
            for read in reads:
                return read.op
        return None
