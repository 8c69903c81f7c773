"""What a consumer has under way with the engines: warpgroup products, their results, bulk stores.

A result in flight is an :class:`InFlight` in place of registers: whoever reads it before a ``wg.wait``
lists it gets an error.  A product that accumulates into it takes its registers over.  Registers are told
apart by their numpy arrays, which are never changed in place: ``written`` holds those that threads wrote
since the last ``wg.fence``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from nautilus.ma_tile.interp.state.shared_memory import Hold
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
            raise Fault("in-flight", f"%{name} is read, but a later product accumulates into its registers")
        if not self.ready:
            raise Fault("in-flight", f"%{name} is read before a wg.wait lists it")
        return self.value


@dataclass(slots=True, eq=False)
class Undefined:
    """Registers that nobody wrote."""


#: what the name of a fragment stands for
Value: TypeAlias = Array | InFlight | Undefined


@dataclass(slots=True, eq=False)
class Product:
    """A pending product: its holds on shared memory, the fragments it reads, its result."""

    op: int
    holds: list[Hold]
    reads: frozenset[str]
    result: InFlight


@dataclass(slots=True)
class Engines:
    """Work of one consumer that was issued: the open group and the committed ones, oldest first."""

    products: list[Product] = field(default_factory=list)
    product_groups: list[list[Product]] = field(default_factory=list)
    stores: list[Hold] = field(default_factory=list)
    store_groups: list[list[Hold]] = field(default_factory=list)
    written: dict[int, Array] = field(default_factory=dict)
    fenced: bool = False

    def reader(self, name: str) -> Product | None:
        """A product in flight that reads the fragment ``name``."""
        for group in (*self.product_groups, self.products):
            for p in group:
                if name in p.reads:
                    return p
        return None

    def unfinished(self) -> int | None:
        """Number of an op that nobody waited for."""
        for products in (*self.product_groups, self.products):
            for p in products:
                return p.op
        for holds in (*self.store_groups, self.stores):
            for h in holds:
                return h.op
        return None
