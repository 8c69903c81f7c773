"""What a consumer has under way with the engines: warpgroup products, their results, bulk stores.

A result in flight is an :class:`InFlight` in place of registers: whoever reads it before a ``wg.wait``
lists it gets an error.  A product that accumulates into it takes its registers over.  Registers are told
apart by their numpy arrays, which are never changed in place: ``written`` holds those that threads wrote
since the last ``wg.fence``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from nautilus.ma_tile.interp.state.shared_memory import PendingRead
from nautilus.ma_tile.interp.state.values import Array, Fault


@dataclass(slots=True, eq=False)
class InFlight:
    """Registers that a product writes. ``roots``: fragments whose registers these are."""

    value: Array
    roots: frozenset[str]
    op: int
    retired: bool = False
    ready: bool = False
    spent: bool = False

    def read(self, name: str) -> Array:
        """The registers, once a wait has listed them. Raises Fault."""
        if self.spent:
            raise Fault("in-flight", f"%{name} is read, but a later MMA accumulates into its registers")
        if not self.ready:
            raise Fault("in-flight", f"%{name} is read before a wg.wait lists it")
        return self.value


@dataclass(slots=True, eq=False)
class Undefined:
    """Registers that nobody wrote."""


#: what the name of a fragment stands for
Value: TypeAlias = Array | InFlight | Undefined


@dataclass(slots=True, eq=False)
class PendingMma:
    """A pending product: its pending_reads on shared memory, the fragments it reads, its result."""

    op: int
    pending_reads: list[PendingRead]
    reads: frozenset[str]
    result: InFlight


@dataclass(slots=True)
class Engines:
    """Work of one consumer that was issued: the open group and the committed ones, oldest first."""

    mmas: list[PendingMma] = field(default_factory=list)
    mma_groups: list[list[PendingMma]] = field(default_factory=list)
    stores: list[PendingRead] = field(default_factory=list)
    store_groups: list[list[PendingRead]] = field(default_factory=list)
    written: dict[int, Array] = field(default_factory=dict)
    fenced: bool = False

    def reader(self, name: str) -> PendingMma | None:
        """A product in flight that reads the fragment ``name``."""
        for group in (*self.mma_groups, self.mmas):
            for p in group:
                if name in p.reads:
                    return p
        return None

    def unfinished(self) -> int | None:
        """Number of an op that nobody waited for."""
        for products in (*self.mma_groups, self.mmas):
            for p in products:
                return p.op
        for pending_reads in (*self.store_groups, self.stores):
            for h in pending_reads:
                return h.op
        return None
