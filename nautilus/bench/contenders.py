"""Who takes part: our kernel, peers, ceilings; and when a ratio between two of them may be printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nautilus.bench.protocol import Run, Timing
from nautilus.core.errors import NautilusError
from nautilus.core.numerics import Array

OURS = "ours"


class NotApplicable(Exception):
    """A peer has no call for this spec; the message says why."""


@dataclass(frozen=True)
class Contender:
    """``run`` enqueues one evaluation; ``result`` poisons the outputs, runs once and gives raw storage arrays.

    A ceiling has no ``result`` and brings its own ``flops`` and ``bytes``.
    """

    name: str
    run: Run
    result: Callable[[], Mapping[str, Array]] | None = None
    note: str = ""
    flops: float | None = None
    bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Absent:
    """A peer that does not take part."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What checking one contender gave. ``error`` and ``allowed``: relative Frobenius norms, the worst output."""

    ok: bool
    error: float
    allowed: float
    detail: str = ""


@dataclass(frozen=True)
class Row:
    """One contender with all that was found about it; ``cool`` None: it was not timed, ``trouble`` says why."""

    name: str
    note: str = ""
    verdict: Verdict | None = None
    cool: Timing | None = None
    sustained: Timing | None = None
    flops: float = 0.0
    bytes: float = 0.0
    trouble: str = ""
    is_ceiling: bool = field(default=False)


def ratio(ours: Row, peer: Row, kind: str, limit: float) -> float | str:
    """How many times as fast ours is (``kind``: cool, sustained), or why that is not said."""
    for row in (ours, peer):
        who = "ours" if row is ours else peer.name
        if row.verdict is None:
            return f"{who} was not checked" + (f": {row.trouble}" if row.trouble else "")
        if not row.verdict.ok:
            return f"{who} is wrong: {row.verdict.detail}"
        timing: Timing | None = getattr(row, kind)
        if timing is None:
            return f"{who} was not timed" + (f": {row.trouble}" if row.trouble else "")
        if timing.spread > limit:
            return f"{who} spreads by {timing.spread:.0%}, more than {limit:.0%}"
    mine: Timing = getattr(ours, kind)
    theirs: Timing = getattr(peer, kind)
    return theirs.median / mine.median


def reason_of(error: BaseException) -> str:
    """The first line of an error, for a table."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = isinstance(error, (NotApplicable, NautilusError))
    parts = [*([] if named else [type(error).__name__]), *lines[:1]]
    return ": ".join(parts)[:200]
