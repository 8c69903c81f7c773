"""Which commits and waits of TMA stores, and barriers, order nothing: each access is still ordered without them.

A store reads its stage until a ``tma.wait`` that covers its group.  A thread may write to the stage after a barrier
that follows this wait, and a warp may release the stage after the wait itself.  At its end a role has waited for all of
its stores.  Between two tiles of a persistent block the ops of the first one are followed by those of the next one.

What orders a store and a later op are therefore three ops in a row: a commit, a wait and, for a write, a barrier.
Commits are left out from the last to the first, and waits from the first to the last, as long as each pair of a store
and a later op that is ordered so stays ordered.  A wait then covers stores that were issued long before it.  A pair
that is not ordered so is ordered by mbarriers, which stay as they are.

Barriers of the threads of one consumer follow, from the first to the last: one is left out if each access of a thread
to shared memory and each later one that clashes with it still have a barrier between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Var, free_vars
from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.access import affine
from nautilus.ma_tile.ir.async_ops import CONSUMER, AdvanceOp, TmaCommit, TmaStore, TmaWait
from nautilus.ma_tile.ir.ops import (
    Barrier,
    IfOp,
    MbarArrive,
    MemKernel,
    MemOp,
    MmaOp,
    ReduceOp,
    Role,
    ScanOp,
    Slot,
    Smem,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import Ops, deep_touch, touch

_GROUPS = (TmaStore, TmaCommit, TmaWait)


@dataclass(frozen=True, slots=True)
class StoreGroups:
    """The groups of stores of each consumer of a ``role``; ``addressed``: the buffers whose stage a variable gives."""

    role: Role
    smem: Mapping[str, Smem]
    addressed: Mapping[str, frozenset[str]]

    @property
    def threads(self) -> int:
        """The number of threads of one consumer."""
        return 32 * (self.role.last_warp - self.role.first_warp) // self.role.consumers

    def idle(self, body: Ops, iteration: str | None = None) -> frozenset[int]:
        """The identities of the commits and waits of ``body`` that order nothing.

        ``iteration``: the variable that numbers the tiles, of which ``body`` computes one; without it ``body`` is that
        of a role.
        """
        ops = _in_line(body, iteration)
        if ops is None or len({id(op) for op in ops}) < len(ops):
            return frozenset()
        ordered = {*self._ordered(ops, iteration is not None)}
        commits = [op for op in reversed(ops) if isinstance(op, TmaCommit)]
        waits = [op for op in ops if isinstance(op, TmaWait)]
        for op in (*commits, *waits):
            fewer = [x for x in ops if x is not op]
            if ordered <= {*self._ordered(fewer, iteration is not None)}:
                ops = fewer
        left = {id(op) for op in ops}
        return frozenset(id(op) for op in (*commits, *waits) if id(op) not in left)

    def idle_barriers(self, body: Ops, iteration: str) -> frozenset[int]:
        """The identities of the barriers of one consumer in ``body``, that of a tile, that order no two accesses."""
        ops = _in_line(body, iteration) or []
        waits_inside = any(isinstance(x, ReduceOp | ScanOp) and x.scratch is not None for x in walk_ops(body))
        mine = [op for op in ops if isinstance(op, Barrier) and op.threads == self.threads]
        if waits_inside or not mine:
            return frozenset()
        stores, met = {*self._ordered(ops, True)}, self._met(ops)
        if met is None:
            return frozenset()
        out = set[int]()
        for barrier in mine:
            fewer = [x for x in ops if x is not barrier]
            if stores <= {*self._ordered(fewer, True)} and met <= (self._met(fewer) or set()):
                ops = fewer
                out.add(id(barrier))
        return frozenset(out)

    def _met(self, ops: Sequence[MemOp]) -> set[tuple[int, int]] | None:
        """The positions of two accesses that clash, by identities, with a barrier between them, from tile to tile too.

        None where one of them is an MMA's, which goes on behind barriers.
        """
        out = set[tuple[int, int]]()
        touched = [(deep_touch(op), op) for op in ops]
        for n, (first, op) in enumerate(touched):
            met = moved = False
            for k, (second, later) in enumerate((*touched[n + 1 :], *touched[: n + 1])):
                met |= isinstance(later, Barrier) and (later.threads is None or later.threads >= self.threads)
                moved |= isinstance(later, AdvanceOp) or k >= len(ops) - n - 1
                pairs = ((first.writes, second.all), (first.reads, (*second.writes, *second.copies)))
                if any(not self._distinct(a, b, moved) for xs, ys in pairs for a in xs for b in ys):
                    if any(isinstance(x, MmaOp) for x in walk_ops((op, later))):
                        return None
                    if met:
                        out.add((id(op), id(later)))
        return out

    def _ordered(self, ops: Sequence[MemOp], again: bool) -> Iterator[tuple[int, int, bool]]:
        """The pairs of a store and a later op, by their identities, that are ordered; whether that is in the next tile.

        The end of a role or of a tile, which is 0, needs the wait or the commit.
        """
        for n, store in enumerate(ops):
            if not isinstance(store, TmaStore):
                continue
            done, moved = 0, False  # of commit, wait and barrier
            for k, op in enumerate((*ops[n + 1 :], None, *(ops[:n] if again else ()))):
                tile = k >= len(ops) - n
                match op:
                    case None:
                        if done >= (1 if again else 2):
                            yield id(store), 0, tile
                    case TmaCommit():
                        done = max(done, 1)
                    case TmaWait():
                        done = max(done, 2) if done else 0
                    case Barrier(threads=threads) if threads is None or threads >= self.threads:
                        done = 3 if done >= 2 else done
                    case AdvanceOp():
                        moved = True
                    case _:
                        released = any(self._releases(x, store.slot) for x in walk_ops((op,)))
                        written = self._overwrites(store, op, moved or tile)
                        if (released and done >= 2) or (written and done == 3):
                            yield id(store), id(op), tile

    def _releases(self, op: MemOp, stored: Slot) -> bool:
        """Whether ``op`` is an arrival that may release the bytes of ``stored``."""
        if not isinstance(op, MbarArrive):
            return False
        found = frozenset[str]().union(*(self.addressed.get(v, ()) for v in free_vars(op.stage)))
        return not found or any(self.smem[stored.buffer].overlaps(self.smem[b]) for b in found)

    def _overwrites(self, store: TmaStore, op: MemOp, moved: bool) -> bool:
        """Whether ``op`` may write to what ``store`` reads; ``moved``: variables may have other values there."""
        found = deep_touch(op)
        return any(not self._distinct(store.slot, slot, moved) for slot in (*found.writes, *found.copies))

    def _distinct(self, a: Slot, b: Slot, moved: bool) -> bool:
        """Whether two stages share no bytes, of any two consumers."""
        own, other = self.smem[a.buffer], self.smem[b.buffer]
        if own != other:
            return not own.overlaps(other)
        return self._apart(a.stage, b.stage, own.stages, moved)

    def _apart(self, a: Expr, b: Expr, stages: int, moved: bool) -> bool:
        """Whether two stages of a buffer of any two consumers are not the same one."""
        if moved and not (free_vars(a) | free_vars(b)) <= {CONSUMER}:
            return False
        difference, others = affine(a) - affine(b), range(1 - self.role.consumers, self.role.consumers)
        each = affine(a).slope(CONSUMER)
        return not difference.terms and all((difference.const + each * n) % stages for n in others)


def store_groups(kernel: MemKernel, role: Role) -> StoreGroups:
    """The groups of the stores of ``role``."""
    addressed: dict[str, frozenset[str]] = {}
    for slot in (s for op in walk_ops(kernel.body) for s in touch(op).all):
        for name in free_vars(slot.stage) - {CONSUMER}:
            addressed[name] = addressed.get(name, frozenset()) | {slot.buffer}
    return StoreGroups(role, {s.name: s for s in kernel.smem}, addressed)


def _in_line(body: Ops, iteration: str | None) -> list[MemOp] | None:
    """The ops of ``body`` in a row; None where groups end under conditions or in loops, or waits leave some.

    What only a later tile does is in the row if it stands in front of all stores: it then follows the tile before.
    """
    out: list[MemOp] = []
    for op in body:
        later = iteration is not None and isinstance(op, IfOp) and op.cond == calc("gt", Var(iteration), 0)
        if later and isinstance(op, IfOp) and not any(isinstance(x, TmaStore) for x in walk_ops((*out, *op.body))):
            out += op.body
        elif not isinstance(op, _GROUPS) and any(isinstance(x, _GROUPS) for x in walk_ops((op,))):
            return None
        else:
            out.append(op)
    whole = all(op.pending == 0 and op.read for op in out if isinstance(op, TmaWait))
    return out if whole else None
