"""Shared bytes, and tensors in global memory, that ops touch as accesses; and which accesses have bytes in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field

from nautilus.core.index.linear import ZERO, Linear
from nautilus.core.ops import declaration
from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.outstanding.states import NONE, Access, Accesses, access, stage_number
from nautilus.ma_tile.ir.async_ops import TmaLoad
from nautilus.ma_tile.ir.ops import (
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    ForOp,
    GlobalLoad,
    GlobalStore,
    IfOp,
    MemOp,
    ReduceOp,
    ScanOp,
    SharedLoad,
    SharedStore,
    Slot,
    Smem,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import Touch, deep_touch, touch

_ORDERING = (ForOp, TmaLoad, AsyncCommit, AsyncWait, Barrier)  # they matter whatever they touch


@dataclass(slots=True)
class Touched:
    """What ops of a kernel touch. Keys are identities; an entry holds its object, so that no other has its identity.

    ``exchanged``: the tensors in global memory that the kernel both stores to and loads from.  ``own``: buffers of
    which each byte is written by one thread alone.
    """

    smem: Mapping[str, Smem]
    exchanged: frozenset[str]
    own: frozenset[str]
    _accesses: dict[int, tuple[MemOp, tuple[Accesses, Accesses, Accesses]]] = field(init=False, default_factory=dict)
    _active: dict[int, tuple[tuple[MemOp, ...], Sequence[tuple[int, MemOp]]]] = field(init=False, default_factory=dict)
    _tma: dict[int, tuple[MemOp, bool]] = field(init=False, default_factory=dict)
    _same: dict[tuple[int, int], tuple[Access, Access, bool]] = field(init=False, default_factory=dict)

    _overlap: dict[tuple[Accesses, Accesses], bool] = field(init=False, default_factory=dict)

    @property
    def stages(self) -> dict[str, int]:
        """The number of stages of each buffer, and of each tensor in global memory."""
        return {name: s.stages for name, s in self.smem.items()} | {_global(n): 1 for n in self.exchanged}

    @property
    def elsewhere(self) -> Accesses:
        """Accesses to the exchanged tensors in global memory."""
        return frozenset(access(_global(n), ZERO) for n in self.exchanged)

    def active(self, body: tuple[MemOp, ...]) -> Sequence[tuple[int, MemOp]]:
        """The ops of ``body`` that order accesses or touch anything, which few do, with their positions."""
        found = self._active.get(id(body))
        if found is None:
            ops = [(n, op) for n, op in enumerate(body) if isinstance(op, _ORDERING) or any(self.of(op))]
            found = self._active[id(body)] = (body, ops)
        return found[1]

    def of(self, op: MemOp) -> tuple[Accesses, Accesses, Accesses]:
        """(read, written, copied to) by ``op``; the body of a condition counts as if it runs."""
        found = self._accesses.get(id(op))
        if found is None:
            found = self._accesses[id(op)] = (op, self._own(op))
        return found[1]

    def loads_by_tma(self, op: MemOp) -> bool:
        """Whether ``op`` or an op inside of it is a load by TMA."""
        found = self._tma.get(id(op))
        if found is None:
            found = self._tma[id(op)] = (op, any(isinstance(x, TmaLoad) for x in walk_ops((op,))))
        return found[1]

    def _own(self, op: MemOp) -> tuple[Accesses, Accesses, Accesses]:
        if isinstance(op, ReduceOp | ScanOp) and op.scratch is not None:
            return NONE, frozenset({access(op.scratch, ZERO)}), NONE
        t: Touch = deep_touch(op) if isinstance(op, IfOp) else touch(op)
        reads, writes, copies = (frozenset(map(self._access, slots)) for slots in (t.reads, t.writes, t.copies))
        if isinstance(op, SharedLoad | SharedStore) and op.start is not None:
            part = op.start, op.start + self._rows(op)
            reads, writes = (frozenset(access(x.buffer, x.at, part) for x in xs) for xs in (reads, writes))
        inside = tuple(walk_ops((op,))) if self.exchanged else ()
        loaded = {x.buffer for x in inside if isinstance(x, GlobalLoad)} & self.exchanged
        stored = {x.buffer for x in inside if isinstance(x, GlobalStore)} & self.exchanged
        reads |= {access(_global(n), ZERO) for n in loaded}
        writes |= {access(_global(n), ZERO) for n in stored}
        return reads, writes, copies

    def _rows(self, op: SharedLoad | SharedStore) -> int:
        """The positions that ``op`` accesses along the first axis of its buffer."""
        first, frag = self.smem[op.slot.buffer].axes[0], op.result if isinstance(op, SharedLoad) else op.value
        return next((a.size for a in frag.type.axes if a.name == first.name), 1)

    def _access(self, slot: Slot) -> Access:
        stages = self.smem[slot.buffer].stages
        if stages == 1:
            return access(slot.buffer, ZERO)
        return access(slot.buffer, stage_number(slot.stage, stages))

    def overlap(self, xs: Accesses, ys: Accesses) -> bool:
        """Whether any of ``xs`` has a byte in common with any of ``ys``."""
        if not xs or not ys:
            return False
        found = self._overlap.get((xs, ys))
        if found is None:
            found = self._overlap[xs, ys] = any(self._same_bytes(x, y) for x in xs for y in ys)
        return found

    def overwrites(self, xs: Accesses, ys: Accesses) -> bool:
        """Whether bytes of the writes ``xs`` may be written by another thread in ``ys``."""
        return any(self._same_bytes(x, y) for x in xs for y in ys if x.buffer != y.buffer or x.buffer not in self.own)

    def _same_bytes(self, x: Access, y: Access) -> bool:
        key = id(x), id(y)
        if key not in self._same:
            self._same[key] = (x, y, self._meet(x, y))
        return self._same[key][2]

    def _meet(self, x: Access, y: Access) -> bool:
        if x.buffer not in self.smem or y.buffer not in self.smem:
            return x.buffer == y.buffer
        a, b = self.smem[x.buffer], self.smem[y.buffer]
        if a.name != b.name:
            (begin, end), (start, stop) = _bytes(a, x.at), _bytes(b, y.at)
            return begin < stop and start < end
        gap = x.at - y.at
        if x.part is not None and y.part is not None and (x.part[1] <= y.part[0] or y.part[1] <= x.part[0]):
            return False
        return bool(gap.terms) or gap.const % a.stages == 0


def copied_once(body: tuple[MemOp, ...]) -> frozenset[str]:
    """Buffers to which one ``cp.async`` of ``body`` writes, and no other op."""
    ops = [op for op in walk_ops(body) if not declaration(type(op)).regions]
    written = Counter(s.buffer for op in ops for t in (touch(op),) for s in (*t.writes, *t.copies))
    return frozenset(op.slot.buffer for op in ops if isinstance(op, AsyncCopy) and written[op.slot.buffer] == 1)


def _bytes(s: Smem, at: Linear) -> tuple[int, int]:
    """The first byte of stage ``at`` of ``s`` and the one after its last; of all stages where it is not constant."""
    if at.terms:
        return s.offset, s.offset + s.bytes
    begin = s.offset + at.const % s.stages * s.stage_bytes
    return begin, begin + s.stage_bytes


def _global(name: str) -> str:
    """The name of a tensor in global memory among those of shared buffers."""
    return f"global {name}"
