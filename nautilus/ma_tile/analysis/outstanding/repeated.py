"""Waits of copies that later waits repeat, commits left out, and whether a body has lost nothing but waits by that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

from nautilus.ma_tile.ir.ops import AsyncCommit, AsyncWait, Barrier, ForOp, IfOp, MemOp, walk_ops
from nautilus.ma_tile.ir.traverse import rebuild


def repeated(body: tuple[MemOp, ...], loop: tuple[MemOp, ...] = ()) -> Iterator[MemOp]:
    """The ops behind a wait and a barrier whose groups another wait covers later.

    ``loop``: what follows ``body``, which is the body of a loop once more.
    """
    for n, op in enumerate(body):
        if isinstance(op, AsyncWait) and n + 2 < len(body) and isinstance(body[n + 1], Barrier):
            behind = [x for x in walk_ops((*body[n + 2 :], *loop)) if isinstance(x, AsyncCommit | AsyncWait)]
            commits = next((k for k, x in enumerate(behind) if isinstance(x, AsyncWait)), len(behind))
            following = behind[commits] if commits < len(behind) else op
            if isinstance(following, AsyncWait) and following is not op and following.pending <= op.pending + commits:
                yield body[n + 2]
        elif isinstance(op, ForOp | IfOp):
            yield from repeated(op.body, op.body if isinstance(op, ForOp) else ())


def commits_of(body: tuple[MemOp, ...]) -> int:
    """The number of commits in ``body``."""
    return sum(isinstance(op, AsyncCommit) for op in walk_ops(body))


def without_commit(body: tuple[MemOp, ...], n: int) -> tuple[MemOp, ...]:
    """``body`` without its commit number ``n`` in program order."""
    numbers = count()
    return rebuild(body, lambda op: () if isinstance(op, AsyncCommit) and next(numbers) == n else (op,))


def has_fewer_waits(new: Sequence[MemOp], old: Sequence[MemOp], begins: bool = False) -> bool:
    """Whether ``new`` is ``old`` without some of its waits; ``begins``: or may become that with ops behind it."""
    left = iter(new)
    op = next(left, None)
    for x in old:
        if begins and op is None:
            return True
        same = op == x
        if not same and isinstance(op, ForOp | IfOp) and isinstance(x, type(op)):
            same = replace(x, body=op.body) == op and has_fewer_waits(op.body, x.body)
        if same:
            op = next(left, None)
        elif not isinstance(x, AsyncWait):
            return False
    return op is None
