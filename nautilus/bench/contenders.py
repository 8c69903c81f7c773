"""The contenders of a benchmark: our kernel, peers and ceilings; and the conditions for a ratio between two of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from nautilus.bench.protocol import Run, Timing
from nautilus.core.errors import NautilusError
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass

OURS = "ours"


class NotApplicable(Exception):
    """Raised where a peer has no call for the spec; the message gives the reason."""


@dataclass(frozen=True)
class Contender:
    """An implementation to time.

    ``run`` enqueues one evaluation.  ``result`` fills the outputs with NaN, runs once and returns raw storage arrays.
    A ceiling has no ``result`` and has its own ``flops`` and ``bytes``.
    """

    name: str
    run: Run
    result: Callable[[], Mapping[str, Array]] | None = None
    note: str = ""
    flops: float | None = None
    bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Absent:
    """A peer without a call for the spec, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of checking a contender.  ``error`` and ``allowed``: relative Frobenius norms of the worst output."""

    ok: bool
    error: float
    allowed: float
    detail: str = ""


@dataclass(frozen=True)
class Row:
    """One contender with its verdict and times.  ``cool`` is None without a time; ``failure`` gives the reason."""

    name: str
    note: str = ""
    verdict: Verdict | None = None
    cool: Timing | None = None
    sustained: Timing | None = None
    flops: float = 0.0
    bytes: float = 0.0
    failure: str = ""
    is_ceiling: bool = field(default=False)


def ratio(ours: Row, peer: Row, kind: str, limit: float) -> float | str:
    """The speedup of ours over ``peer`` (``kind``: cool or sustained), or the reason why there is none."""
    for row in (ours, peer):
        who = "ours" if row is ours else peer.name
        if row.verdict is None:
            return f"{who} was not checked" + (f": {row.failure}" if row.failure else "")
        if not row.verdict.ok:
            return f"{who} is wrong: {row.verdict.detail}"
        timing: Timing | None = getattr(row, kind)
        if timing is None:
            return f"{who} was not timed" + (f": {row.failure}" if row.failure else "")
        if timing.spread > limit:
            return f"the times of {who} have a spread of {timing.spread:.0%}, above the limit of {limit:.0%}"
    mine: Timing = getattr(ours, kind)
    theirs: Timing = getattr(peer, kind)
    return theirs.median / mine.median


def reason_of(error: BaseException) -> str:
    """The first line of an error, for a table."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = isinstance(error, (NotApplicable, NautilusError))
    parts = [*([] if named else [type(error).__name__]), *lines[:1]]
    return ": ".join(parts)[:200]
