"""Rules of shared memory: placement, alignment, sharing of bytes, the target's limit."""

from __future__ import annotations

from nautilus.core.errors import VerifyError
from nautilus.memory.ops import (
    AsyncCopy,
    ForOp,
    IfOp,
    MatrixLoad,
    MemKernel,
    MemOp,
    MmaOp,
    ReduceOp,
    RolesOp,
    SharedLoad,
    SharedStore,
    Slot,
    Smem,
)
from nautilus.memory.targets import Limits

Interval = tuple[int, int]


def check_smem(k: MemKernel, target: Limits) -> None:
    """Raise VerifyError unless the kernel's shared buffers and mbarriers are legal."""

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
        align = 1024 if s.swizzle == 128 else 16
        need(s.offset >= 0 and s.offset % align == 0, "offsets are aligned", s.name, f"{s.offset} % {align}")
    for b in k.mbars:
        need(b.stages >= 1 and b.arrivals >= 1, "mbarriers expect arrivals", b.name, f"{b.arrivals}")
        need(b.offset >= 0 and b.offset % 8 == 0, "offsets are aligned", b.name, f"{b.offset} % 8")
    _overlaps(k, need)
    size, limit = k.smem_bytes, target.smem_block
    need(size <= limit, "shared memory of a block", f"kernel {k.name}", f"{size} bytes of at most {limit}")


def _overlaps(k: MemKernel, need) -> None:  # type: ignore[no-untyped-def]
    live = live_ranges(k.body)
    parts = [(s.name, s.offset, s.offset + s.bytes, live.get(s.name)) for s in k.smem]
    whole = (0, 1 << 60)
    parts += [(b.name, b.offset, b.offset + 8 * b.stages, whole) for b in k.mbars]
    for n, (a, a0, a1, ra) in enumerate(parts):
        for b, b0, b1, rb in parts[:n]:
            if a0 < b1 and b0 < a1 and ra is not None and rb is not None:
                apart = ra[1] < rb[0] or rb[1] < ra[0]
                need(apart, "buffers that share bytes are not live together", f"{b}, {a}", f"at {max(a0, b0)}")


def slots_of(op: MemOp) -> tuple[tuple[str, bool], ...]:
    """(buffer, written first) for each shared buffer that ``op`` touches itself."""
    match op:
        case SharedLoad(slot=slot) | MatrixLoad(slot=slot):
            return ((slot.buffer, False),)
        case SharedStore(slot=slot) | AsyncCopy(slot=slot):
            return ((slot.buffer, True),)
        case MmaOp(a=a, b=b):
            return tuple((x.buffer, False) for x in (a, b) if isinstance(x, Slot))
        case ReduceOp(scratch=str(name)):
            return ((name, True),)
        case _:
            return ()


def live_ranges(body: tuple[MemOp, ...]) -> dict[str, Interval]:
    """Buffer -> first and last op number at which its bytes matter.

    A buffer that a loop uses matters throughout the loop, unless only that loop uses it and each
    iteration writes it, unconditionally, before anything else.
    """
    uses: dict[str, list[int]] = {}
    loops: list[tuple[int, int, frozenset[str]]] = []
    count = 0

    def scan(ops: tuple[MemOp, ...]) -> None:
        nonlocal count
        for op in ops:
            at, count = count, count + 1
            for name, _ in slots_of(op):
                uses.setdefault(name, []).append(at)
            match op:
                case ForOp(body=inner) | IfOp(body=inner):
                    scan(inner)
                case RolesOp(roles=roles):
                    for role in roles:
                        scan(role.body)
            if isinstance(op, ForOp):
                loops.append((at, count - 1, _written_first(op.body)))
            elif isinstance(op, RolesOp):  # roles run side by side
                loops.append((at, count - 1, frozenset()))

    scan(body)
    out: dict[str, Interval] = {}
    for name, at in uses.items():
        lo, hi = at[0], at[-1]
        for first, last, fresh in loops:  # inner before outer
            inside = any(first <= x <= last for x in at)
            alone = all(first <= x <= last for x in at)
            if inside and not (alone and name in fresh):
                lo, hi = min(lo, first), max(hi, last)
        out[name] = (lo, hi)
    return out


def _written_first(body: tuple[MemOp, ...]) -> frozenset[str]:
    fresh: dict[str, bool] = {}

    def scan(ops: tuple[MemOp, ...], sure: bool) -> None:
        for op in ops:
            for name, writes in slots_of(op):
                fresh.setdefault(name, writes and sure)
            match op:
                case ForOp(body=inner) | IfOp(body=inner):
                    scan(inner, False)
                case RolesOp(roles=roles):
                    for role in roles:
                        scan(role.body, False)

    scan(body, True)
    return frozenset(name for name, first in fresh.items() if first)


def element_count(s: Smem) -> int:
    """Elements of one stage."""
    layout = s.layout()
    return layout.rows * layout.cols
