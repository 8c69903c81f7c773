"""Bulk stores of one shape in a row take turns at two stages, with one barrier a store::

    st.matrix to stage n % 2;  fence.proxy;  tma.wait 0 read;  barrier;  tma.store;  tma.commit

The wait is for the store before, from the other stage; behind the barrier all threads know that it has been
read, and the next store may write there.  Rounds (tiles of a persistent block) follow one another likewise, but
where a round has an odd number of stores its first one would write the stage that the last one of the round
before left from: that one waits and meets first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from nautilus.ma_tile.ir.ops import GlobalStore, MemOp
from nautilus.ma_tile.ir.traverse import blocks

Block = tuple[MemOp, ...]


@dataclass(frozen=True, slots=True)
class StoreStage:
    """The ``number``-th store of a row; ``waits``: nobody knows yet that its stage has been read."""

    number: int
    waits: bool


def double_buffered(body: Block, shape: Callable[[GlobalStore], Hashable | None]) -> dict[int, StoreStage]:
    """Turns by the ``id`` of the store; only shapes that one block alone stores, and more than once."""
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
