"""Rules of shared memory: placement, alignment, sharing of bytes, the target's limit."""

from __future__ import annotations

from collections.abc import Callable

from nautilus.core.errors import TargetLimitError, VerifyError
from nautilus.core.ops import declaration
from nautilus.core.records import dataclass
from nautilus.ma_tile.ir import traverse
from nautilus.ma_tile.ir.async_ops import TmaLoad, TmaStore, TmaWait, WgWait
from nautilus.ma_tile.ir.ops import (
    AsyncCopy,
    ForOp,
    IfOp,
    MbarWait,
    MemKernel,
    MemOp,
    MmaOp,
    RolesOp,
    Smem,
    walk_ops,
)
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp
from nautilus.targets.limits import Limits


def check_smem(k: MemKernel, target: Limits) -> None:
    """Raise VerifyError unless the kernel's shared buffers and mbarriers are legal.

    Raises TargetLimitError where they need more bytes than a block of ``target`` has.
    """

    def need(ok: bool, rule: str, node: str, detail: str) -> None:
        if not ok:
            raise VerifyError("ma-tile", rule, node, detail, k.span)

    for s in k.smem:
        row = (s.axes[-1].size if s.axes else 1) * s.dtype.bytes
        need(s.stages >= 1 and all(a.size >= 1 for a in s.axes), "shared buffers have elements", s.name, "none")
        need(s.swizzle in (0, 32, 64, 128), "swizzles are 0, 32, 64 or 128", s.name, str(s.swizzle))
        if s.swizzle:
            fits = row % s.swizzle == 0 and s.pad == 0
            need(fits, "swizzled rows fill their slabs", s.name, f"{row} bytes a row, pad {s.pad}")
        need(s.pad >= 0 and s.pad % s.dtype.bytes == 0, "padding keeps elements aligned", s.name, str(s.pad))
        align = 1024 if s.swizzle == 128 else max(16, s.swizzle)  # ldmatrix flips bits of whole addresses
        need(s.offset >= 0 and s.offset % align == 0, "offsets are aligned", s.name, f"{s.offset} % {align}")
        if s.over is not None:
            base = next((x for x in k.smem if x.name == s.over and x.over is None), None)
            inside = base is not None and base.offset == s.offset and s.bytes <= base.bytes
            need(inside, "a buffer over another lies inside it", s.name, f"over {s.over}")
    for b in k.mbars:
        need(b.stages >= 1 and b.arrivals >= 1, "mbarriers expect arrivals", b.name, f"{b.arrivals}")
        need(b.offset >= 0 and b.offset % 8 == 0, "offsets are aligned", b.name, f"{b.offset} % 8")
    _overlaps(k, need)
    size, limit = k.smem_bytes, target.smem_block
    if size > limit:
        detail = f"{size} bytes of at most {limit}"
        raise TargetLimitError("ma-tile", "shared memory of a block", k.name, detail, k.span, excess=size / limit)


def _overlaps(k: MemKernel, need: Callable[[bool, str, str, str], None]) -> None:
    together = interference(k)
    parts = [(s.name, s.offset, s.offset + s.bytes) for s in k.smem]
    bars = [(b.name, b.offset, b.offset + 8 * b.stages) for b in k.mbars]
    always = {b.name for b in k.mbars}
    meant = {(s.name, s.over) for s in k.smem}
    meant |= {(s.name, x.name) for s in k.smem for x in k.smem if s.over is not None and s.over == x.over}
    both = parts + bars
    for n, (a, a0, a1) in enumerate(both):
        for b, b0, b1 in both[:n]:
            if a0 < b1 and b0 < a1 and (a, b) not in meant and (b, a) not in meant:
                apart = a not in always and b not in always and frozenset({a, b}) not in together
                need(apart, "buffers that share bytes are not live at the same time", f"{b}, {a}", f"at {max(a0, b0)}")


@dataclass(frozen=True, slots=True)
class Touch:
    """Shared buffers that one op reads and writes itself."""

    reads: frozenset[str]
    writes: frozenset[str]


def touch(op: MemOp) -> Touch:
    """Shared buffers that ``op`` reads and writes.

    Scratch is written, then read; scratch of an op with a body is in use throughout the op.
    """
    t = traverse.touch(op)
    reads, writes = {x.buffer for x in t.reads}, {x.buffer for x in (*t.writes, *t.copies)}
    scratch = declaration(type(op)).scratch(op)
    writes.update(scratch)
    if declaration(type(op)).regions:
        reads.update(scratch)
    return Touch(frozenset(reads), frozenset(writes))


class _Asynchronous:
    """Buffers that TMA and wgmma use until a wait."""

    def __init__(self, k: MemKernel) -> None:
        self.stored, self.multiplied = set[str](), set[str]()
        self.arriving: dict[str, set[str]] = {}
        self.known: dict[int, Touch] = {}  # by the identity of an op of the kernel: loops are visited several times
        for op in walk_ops(k.body):
            match op:
                case TmaStore(slot=slot):
                    self.stored.add(slot.buffer)
                case MmaOp(is_async=True):
                    self.multiplied.update(x.buffer for x in traverse.touch(op).reads)
                case TmaLoad(slot=slot, mbar=(name, _)) | AsyncCopy(slot=slot, mbar=(name, _)):
                    self.arriving.setdefault(name, set()).add(slot.buffer)

    def touch(self, op: MemOp) -> Touch:
        """:func:`touch`; a wait counts as the last use of the buffers that it may wait for."""
        found = self.known.get(id(op))
        if found is None:
            found = self.known[id(op)] = self._touch(op)
        return found

    def _touch(self, op: MemOp) -> Touch:
        t = touch(op)
        match op:
            case TmaWait():
                return Touch(t.reads | self.stored, t.writes)
            case WgWait():
                return Touch(t.reads | self.multiplied, t.writes)
            case MbarWait(mbar=name):
                return Touch(t.reads | self.arriving.get(name, set()), t.writes)
        return t


def interference(k: MemKernel) -> frozenset[frozenset[str]]:
    """Pairs of buffers of which one is written while the other is live.

    Liveness is computed backwards over the structure.  A write to a buffer of one stage ends the liveness of its old
    contents; a write to one of several stages does not.  Buffers that several roles use are live together.
    """
    single = frozenset(s.name for s in k.smem if s.stages == 1)
    pairs: set[frozenset[str]] = set()
    asynchronous = _Asynchronous(k)

    def back(body: tuple[MemOp, ...], live: frozenset[str]) -> frozenset[str]:
        for op in reversed(body):
            match op:
                case IfOp(body=inner):
                    live = live | back(inner, live)
                case ForOp(body=inner) | TileSchedulerOp(body=inner):
                    live = live | touch(op).reads
                    while (new := live | back(inner, live)) != live:
                        live = new
                case RolesOp(roles=roles):
                    used = frozenset[str]().union(*(_used(r.body) for r in roles))
                    pairs.update(frozenset({a, b}) for a in used for b in used | live if a != b)
                    live = live | used
                case _:
                    t = asynchronous.touch(op)
                    pairs.update(frozenset({a, b}) for a in t.writes for b in live if a != b)
                    live = (live - (t.writes & single)) | t.reads
        return live

    back(k.body, frozenset())
    pairs.update(frozenset({a, s.name}) for a in traverse.combined(k) for s in k.smem if s.name != a)
    return frozenset(pairs)


def _used(body: tuple[MemOp, ...]) -> frozenset[str]:
    touched = [touch(op) for op in walk_ops(body)]
    return frozenset[str]().union(*(t.reads | t.writes for t in touched))


def element_count(s: Smem) -> int:
    """Elements of one stage."""
    layout = s.layout()
    return layout.rows * layout.cols
