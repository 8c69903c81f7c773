"""Which part of a loop body runs an iteration ahead: found by dependence.

The *level* of an MMA is the number of other MMAs on the longest path to it through the ops of
one iteration; values carried from the iteration before do not count, and neither does an MMA that
only passes on its accumulator.  An MMA of level 1 or more needs elementwise work on another MMA's
result, and the matrix unit idles while that is done, unless it has the next iteration's level-0
MMAs to work on.  So the body is cut in two stages:

* stage 1: MMAs of level >= 1, what depends on them, and what only they need and no level-0 MMA
  gives (their loads);
* stage 0: the rest: level-0 MMAs, their loads, the elementwise work on their results.

This is a modulo schedule of two stages (Lam, "Software Pipelining", PLDI 1988) whose initiation
interval is one body.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nautilus.core.ops import declaration
from nautilus.core.records import dataclass
from nautilus.ma_tile.ir.async_ops import TmaLoad
from nautilus.ma_tile.ir.instruction_tables import WGMMA
from nautilus.ma_tile.ir.ops import (
    ConstOp,
    ConvertOp,
    ForOp,
    Frag,
    GlobalLoad,
    IndexOp,
    MapOp,
    MatrixLoad,
    MatrixStore,
    MemOp,
    MmaOp,
    ParamOp,
    ReduceOp,
    ScanOp,
    SharedLoad,
    SharedStore,
    SliceOp,
    StackOp,
    UndefinedOp,
    UnpackOp,
)
from nautilus.ma_tile.ir.traverse import defined, reads, touch

#: what may change places with other ops as far as fragments and shared buffers allow
_MOVABLE = (
    ConstOp, IndexOp, ParamOp, UndefinedOp, MapOp, ReduceOp, ScanOp, ConvertOp, SliceOp, StackOp, GlobalLoad,
    SharedLoad, MatrixLoad, SharedStore, MatrixStore, MmaOp, TmaLoad, UnpackOp,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a loop body: 0 is ``ahead`` (level-0 MMAs and what they need), then ``rest``; 1 is ``second``."""

    ahead: tuple[MemOp, ...]
    rest: tuple[MemOp, ...]
    second: tuple[MemOp, ...]
    slots: tuple[bool, ...]  # which carried values stage 1 updates
    crossing: tuple[str, ...]  # stage-0 values that stage 1 reads, in order of first use

    @property
    def first(self) -> tuple[MemOp, ...]:
        """Stage 0, in order."""
        return (*self.ahead, *self.rest)


def is_wgmma(op: MemOp) -> bool:
    """A warpgroup MMA."""
    return isinstance(op, MmaOp) and op.instr in WGMMA


def operands_from(body: tuple[MemOp, ...]) -> frozenset[str]:
    """The fragments from which ``body`` makes what it stores to shared memory, such as computed operands of MMAs.

    The fragments from which it makes left operands in registers are included, if no result of an MMA is among them.
    """
    made = {d.name: x for x in body for d in defined(x)}

    def sources(name: str) -> frozenset[str]:
        found, todo = set[str](), [name]
        while todo:
            name = todo.pop()
            if name in made and name not in found:
                found.add(name)
                todo += reads(made[name])
        return frozenset(found)

    stored = [sources(x.value.name) for x in body if isinstance(x, SharedStore)]
    held = [sources(x.a.name) for x in body if isinstance(x, MmaOp) and is_wgmma(x) and isinstance(x.a, Frag)]
    held = [names for names in held if not any(isinstance(made[n], MmaOp) for n in names)]
    return frozenset().union(*stored, *held)


def chains(body: tuple[MemOp, ...]) -> list[list[int]]:
    """Positions of loops that run as one: those of one chain, or a loop alone."""
    groups: dict[object, list[int]] = {}
    for n, op in enumerate(body):
        if isinstance(op, ForOp):
            groups.setdefault(op.chain if op.chain is not None else n, []).append(n)
    return list(groups.values())


def split(loop: ForOp, late_rescale: bool) -> Stages | None:
    """The two stages of ``loop``'s body; None where there is but one, or ops that must not change places."""
    body = loop.body
    if not all(_movable(op) for op in body):
        return None
    needs = dependences(body)
    levels = _levels(body, needs)
    second = {n for n, op in enumerate(body) if is_wgmma(op) and levels[n] > 0}
    if not second:
        return None
    users = _users(needs)
    second = _closure(second, users)
    slots = _slots(loop, second)
    if slots is None:
        return None
    top = [n for n, op in enumerate(body) if is_wgmma(op) and levels[n] == 0]
    tainted = _closure(top, users)
    kept = {y.name for y, late in zip(loop.yields, slots, strict=True) if not late}
    mine = {arg.name for (arg, _), late in zip(loop.carried, slots, strict=True) if late}
    _pull(body, users, second, tainted, kept)
    if late_rescale:
        _pull_rescale(body, needs, users, second, kept, mine)
        _pull(body, users, second, tainted, kept)
    ahead = _closure(top, needs) - second
    if any(mine & set(reads(body[n])) for n in ahead) or _shared_by_stages(body, second):
        return None
    rest = [n for n in range(len(body)) if n not in ahead and n not in second]
    late_ops = tuple(body[n] for n in sorted(second))
    early_ops = (*(body[n] for n in sorted(ahead)), *(body[n] for n in rest))
    own = {d.name for op in early_ops for d in defined(op)}
    own |= {arg.name for (arg, _), late in zip(loop.carried, slots, strict=True) if not late}
    crossing = tuple(dict.fromkeys(name for op in late_ops for name in reads(op) if name in own))
    return Stages(early_ops[: len(ahead)], early_ops[len(ahead) :], late_ops, slots, crossing)


def _movable(op: MemOp) -> bool:
    return isinstance(op, _MOVABLE) and not (isinstance(op, TmaLoad) and op.mbar is not None) and not _pending(op)


def _pending(op: MemOp) -> bool:
    return isinstance(op, MmaOp) and op.is_async


def _buffers(op: MemOp) -> tuple[set[str], set[str]]:
    """(read, written) shared buffers; scratch is both."""
    t = touch(op)
    scratch = set(declaration(type(op)).scratch(op))
    return {s.buffer for s in t.reads} | scratch, {s.buffer for s in (*t.writes, *t.copies)} | scratch


def dependences(body: Sequence[MemOp]) -> list[set[int]]:
    """For each op, the earlier ops of the same iteration that it has to follow."""
    made: dict[str, int] = {}
    readers: dict[str, set[int]] = {}
    writers: dict[str, set[int]] = {}
    out: list[set[int]] = []
    for n, op in enumerate(body):
        needs = {made[name] for name in reads(op) if name in made}
        read, written = _buffers(op)
        for b in read | written:
            needs |= writers.get(b, set())
        for b in written:
            needs |= readers.get(b, set())
        for b in read:
            readers.setdefault(b, set()).add(n)
        for b in written:
            writers.setdefault(b, set()).add(n)
        made.update((d.name, n) for d in defined(op))
        out.append(needs)
    return out


def _levels(body: Sequence[MemOp], needs: Sequence[set[int]]) -> list[int]:
    levels: list[int] = []
    for op, before in zip(body, needs, strict=True):
        levels.append(max((levels[d] + _counts(body[d], op) for d in before), default=0))
    return levels


def _counts(mma: MemOp, op: MemOp) -> int:
    """1 where the way from ``mma`` to ``op`` leaves the matrix unit."""
    if not (isinstance(mma, MmaOp) and is_wgmma(mma)):
        return 0
    if not isinstance(op, MmaOp) or not is_wgmma(op) or op.acc is None:
        return 1
    return 0 if op.acc == mma.result and mma.result not in (op.a, op.b) else 1


def _users(needs: Sequence[set[int]]) -> list[set[int]]:
    users: list[set[int]] = [set() for _ in needs]
    for n, before in enumerate(needs):
        for d in before:
            users[d].add(n)
    return users


def _closure(start: Iterable[int], edges: Sequence[set[int]]) -> set[int]:
    found, stack = set(start), list(start)
    while stack:
        for n in edges[stack.pop()] - found:
            found.add(n)
            stack.append(n)
    return found


def _slots(loop: ForOp, second: set[int]) -> tuple[bool, ...] | None:
    """Which carried values stage 1 makes: each the result of its own op there, or of nothing in the loop's stage 1."""
    made = {d.name for n in second for d in defined(loop.body[n])}
    slots = tuple(y.name in made for y in loop.yields)
    late = [y.name for y, s in zip(loop.yields, slots, strict=True) if s]
    args = {arg.name for (arg, _), s in zip(loop.carried, slots, strict=True) if s}
    if len(set(late)) != len(late) or any(y.name in args for y in loop.yields):
        return None
    return slots


def _pull(
    body: Sequence[MemOp], users: Sequence[set[int]], second: set[int], tainted: set[int], kept: set[str]
) -> None:
    """Add to stage 1 what only it uses and what no level-0 MMA feeds."""
    for n in reversed(range(len(body))):
        if n in tainted or n in second or not users[n] or not users[n] <= second:
            continue
        if not any(d.name in kept for d in defined(body[n])):
            second.add(n)


def _pull_rescale(
    body: Sequence[MemOp], needs: Sequence[set[int]], users: Sequence[set[int]],
    second: set[int], kept: set[str], mine: set[str],
) -> None:  # fmt: skip
    """Add to stage 1 the elementwise work between its carried values and its MMAs' accumulators."""
    fed: set[int] = set()
    for n, op in enumerate(body):
        if isinstance(op, MapOp | ConvertOp) and (mine & set(reads(op)) or needs[n] & fed):
            fed.add(n)
    for n in sorted(fed, reverse=True):
        if n in second or not users[n] or any(d.name in kept for d in defined(body[n])):
            continue
        if all(u in second and (u in fed or _accumulates(body[u], body[n])) for u in users[n]):
            second.add(n)


def _accumulates(mma: MemOp, op: MemOp) -> bool:
    """``op`` makes nothing but the accumulator of ``mma``."""
    if not (isinstance(mma, MmaOp) and is_wgmma(mma)):
        return False
    (made,) = defined(op)
    return mma.acc == made and made not in (mma.a, mma.b)


def _shared_by_stages(body: Sequence[MemOp], second: set[int]) -> bool:
    """Some buffer that the loop writes is used by both stages: an iteration apart, one would see the other's data."""
    used: dict[str, set[bool]] = {}
    written: set[str] = set()
    for n, op in enumerate(body):
        read, write = _buffers(op)
        written |= write
        for b in read | write:
            used.setdefault(b, set()).add(n in second)
    return any(len(used[b]) == 2 for b in written)
