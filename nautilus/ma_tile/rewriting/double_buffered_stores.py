"""Double-buffered TMA stores: consecutive stores of one shape alternate between two stages, one barrier per store::

    st.matrix to stage n % 2;  fence.proxy;  tma.wait 0 read;  barrier;  tma.store;  tma.commit

The wait covers the previous store, which reads the other stage.  After the barrier all threads know that this stage
has been read, and the next store may write to it.  The tiles of a persistent block follow one another likewise.  If a
tile has an odd number of stores, its first store writes the stage that the previous tile's last store reads.  That
first store has a wait and a barrier before it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from nautilus.core.records import dataclass
from nautilus.ma_tile.ir.ops import GlobalStore
from nautilus.ma_tile.ir.traverse import Ops, blocks


@dataclass(frozen=True, slots=True)
class StoreStage:
    """The ``number``-th of consecutive stores; ``waits``: it must first wait until its stage has been read."""

    number: int
    waits: bool


def double_buffered(body: Ops, shape: Callable[[GlobalStore], Hashable | None]) -> dict[int, StoreStage]:
    """Stages by the ``id`` of the store, for shapes that exactly one block of ops stores, more than once."""
    rows: dict[Hashable, list[list[GlobalStore]]] = {}
    for block in blocks(body):
        here: dict[Hashable, list[GlobalStore]] = {}
        for op in block:
            key = shape(op) if isinstance(op, GlobalStore) else None
            if isinstance(op, GlobalStore) and key is not None:
                here.setdefault(key, []).append(op)
        for key, ops in here.items():
            rows.setdefault(key, []).append(ops)
    return {
        id(op): StoreStage(n, n == 0 and len(found[0]) % 2 == 1)
        for found in rows.values()
        if len(found) == 1 and len(found[0]) > 1
        for n, op in enumerate(found[0])
    }
