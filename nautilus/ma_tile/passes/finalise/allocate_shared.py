"""Assign an offset to every shared buffer; buffers that are never live at the same time may share bytes.

* A buffer is live from its first to its last use.  A buffer that is used in a loop is live for the whole loop, unless
  all its uses are in that loop and each iteration writes it before it reads it.
* Buffers of several stages, and buffers whose first write is conditional, are live from the start of the kernel to
  the end of every loop around their uses, because no single write replaces all their bytes.  The verifier
  (:mod:`nautilus.ma_tile.verify.shared`) has the same rule.
* Buffers of TMA copies are live in the whole kernel, because the copies continue after their ops, and so are those in
  which a block combines what it scatters.  Buffers of concurrent roles are live at the same time.
* A buffer that lies ``over`` another has the offset of that one.
* The scratch of a reduction does not share bytes if it is small.  Two consecutive reductions then need no barrier.

``synchronize`` inserts the barriers that shared bytes need, because it compares bytes and not names.

Raises ScheduleError when a kernel needs more shared memory than a block of the target may have.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.errors import ScheduleError
from nautilus.core.ops import declaration, regions
from nautilus.core.records import dataclass
from nautilus.ma_tile.ir.async_ops import TmaLoad, TmaStore
from nautilus.ma_tile.ir.ops import ForOp, IfOp, MemKernel, MemModule, MemOp, ReduceOp, RolesOp, ScanOp, Smem, walk_ops
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp
from nautilus.ma_tile.ir.traverse import buffers_of, combined, each_kernel, touch
from nautilus.targets.limits import Limits, limits


@dataclass(frozen=True, slots=True)
class AllocateShared:
    """``limit`` overrides the target's bytes a block."""

    limit: int | None = None
    name = "allocate-shared"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` with offsets.  Raises ScheduleError where the buffers exceed the limit."""
        limit = self.limit if self.limit is not None else limits(module.target).smem_block
        return each_kernel(module, lambda k: checked(allocate(k), limit))


def allocate(kernel: MemKernel) -> MemKernel:
    """``kernel`` with an offset for each buffer, without the buffers that no op uses."""
    ranges = _with_guests(kernel, live_ranges(kernel))
    scratch = _small_scratch(kernel)
    placed: dict[str, Smem] = {}
    for s in sorted((s for s in kernel.smem if s.name in ranges and s.over is None), key=lambda s: -s.bytes):
        taken = sorted(
            (p.offset, p.offset + p.bytes)
            for p in placed.values()
            if _together(ranges[p.name], ranges[s.name]) or {p.name, s.name} <= scratch
        )
        offset, step = 0, alignment(s)
        for first, end in taken:
            if offset + s.bytes <= first:
                break
            offset = max(offset, -(-end // step) * step)
        placed[s.name] = replace(s, offset=offset)
    for s in kernel.smem:
        if s.name in ranges and s.over is not None:
            placed[s.name] = replace(s, offset=placed[s.over].offset)
    return place_mbars(replace(kernel, smem=tuple(placed[s.name] for s in kernel.smem if s.name in placed)))


def _with_guests(kernel: MemKernel, ranges: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """``ranges``, where the range of a buffer includes the ranges of the buffers that lie over it."""
    out = dict(ranges)
    for s in kernel.smem:
        if s.over is not None and s.name in out:
            (low, high), (first, last) = out[s.name], out.get(s.over, out[s.name])
            out[s.over] = (min(low, first), max(high, last))
    return out


def place_mbars(kernel: MemKernel) -> MemKernel:
    """``kernel`` with the offsets of its mbarriers after those of its shared buffers."""
    top = max((s.offset + s.bytes for s in kernel.smem), default=0)
    mbars = []
    for m in kernel.mbars:
        top = -(-top // 8) * 8
        mbars.append(replace(m, offset=top))
        top += 8 * m.stages
    return replace(kernel, mbars=tuple(mbars))


def _together(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _small_scratch(kernel: MemKernel) -> frozenset[str]:
    """Scratch of reductions that is small, so that separate bytes are cheaper than a barrier."""
    used = {op.scratch for op in walk_ops(kernel.body) if isinstance(op, ReduceOp | ScanOp)}
    return frozenset(s.name for s in kernel.smem if s.name in used and s.bytes <= 4096)


def reallocate(kernel: MemKernel, target: Limits) -> MemKernel:
    """``kernel`` with new offsets. Raises ScheduleError if it needs more shared memory than ``target`` has."""
    return checked(allocate(kernel), target.smem_block)


def alignment(s: Smem) -> int:
    """Bytes: a swizzle pattern repeats after eight of its rows."""
    return max(128, 8 * s.swizzle)


def live_ranges(kernel: MemKernel) -> dict[str, tuple[int, int]]:
    """Buffer name -> numbers of the first and the last op, in program order, at which it is live (module docstring)."""
    out: dict[str, tuple[int, int]] = {}
    bulk = {op.slot.buffer for op in walk_ops(kernel.body) if isinstance(op, TmaLoad | TmaStore)} | combined(kernel)
    early = _conditional(kernel.body) | {s.name for s in kernel.smem if s.stages > 1} | bulk
    end = _scan(kernel.body, 0, out, early)
    return {n: (0 if n in early else low, end if n in bulk else high) for n, (low, high) in out.items()}


def _conditional(body: tuple[MemOp, ...]) -> frozenset[str]:
    """Buffers first used under a condition."""
    seen: dict[str, bool] = {}
    inside: set[int] = set()
    for op in walk_ops(body):
        if isinstance(op, IfOp):
            inside |= {id(x) for x in walk_ops(op.body)}
        for name in buffers_of(op):
            seen.setdefault(name, id(op) in inside)
    return frozenset(n for n, under in seen.items() if under)


def _scan(body: tuple[MemOp, ...], at: int, out: dict[str, tuple[int, int]], early: frozenset[str]) -> int:
    """Number the ops of ``body`` from ``at``; returns the number after the last.

    No write ends the liveness of the buffers ``early``: in a loop they are live from one iteration to the next.
    """
    for op in body:
        first = at
        for name in buffers_of(op):
            low, _ = out.get(name, (at, at))
            out[name] = (low, at)
        at += 1
        match op:
            case IfOp(body=inner):
                at = _scan(inner, at, out, early)
            case ForOp(body=inner):
                before = dict(out)
                at = _scan(inner, at, out, early)
                written_first = _written_first(inner) - early
                for name, (low, high) in out.items():
                    used = high >= first
                    if used and (name in before or name not in written_first):
                        out[name] = (min(low, first), at)
            case RolesOp() | TileSchedulerOp():
                for part in regions(op):
                    at = _scan(part, at, out, early)
                out.update({n: (min(lo, first), at) for n, (lo, hi) in out.items() if hi >= first})
        at += 1
    return at


def _written_first(body: tuple[MemOp, ...]) -> frozenset[str]:
    """Buffers whose first use in ``body`` is an unconditional write at its top level.

    Or they are used in loops alone, each iteration of which writes them first.
    """
    seen: dict[str, bool] = {}
    in_loops: set[str] = set()  # buffers that only loops have used so far
    for op in body:
        if declaration(type(op)).regions:
            inner: dict[str, tuple[int, int]] = {}
            _scan((op,), 0, inner, frozenset())
            first = _written_first(op.body) if isinstance(op, ForOp) else frozenset[str]()
            in_loops |= {name for name in inner if name not in seen}
            for name in inner:
                seen[name] = seen.get(name, True) and (name in first or name not in in_loops)
            continue
        reads = {s.buffer for s in touch(op).reads}
        for name in buffers_of(op):
            seen[name] = seen.get(name, name not in reads) and not (name in reads and name in in_loops)
    return frozenset(n for n, first in seen.items() if first)


def checked(kernel: MemKernel, limit: int) -> MemKernel:
    """``kernel``, if it needs no more than ``limit`` bytes of shared memory. Raises ScheduleError."""
    if kernel.smem_bytes > limit:
        parts = ", ".join(f"{s.name} {s.bytes}" for s in sorted(kernel.smem, key=lambda s: -s.bytes))
        raise ScheduleError(
            f"{kernel.smem_bytes} bytes of shared memory are needed, but a block may have {limit} ({parts})",
            kernel=kernel.name,
            excess=kernel.smem_bytes / limit,
        )
    return kernel
