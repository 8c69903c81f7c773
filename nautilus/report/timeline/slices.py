"""A timeline as data."""

from __future__ import annotations

from nautilus.core.records import dataclass
from nautilus.core.source import NO_SPAN, Span

#: the kinds of slices, with what they are
KINDS = {
    "elementwise": "instructions of threads",
    "mma": "matrix instructions",
    "copy": "copies between memories",
    "wait": "waits",
}


@dataclass(frozen=True, slots=True)
class Slice:
    """Something that takes from ``start`` to ``end`` cycles on ``track``. ``span``: the statement of the spec."""

    track: str
    start: float
    end: float
    kind: str
    name: str
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True)
class Timeline:
    """The slices of a block of ``kernel`` by their starts, and the tracks in the order in which they are shown.

    ``block``: its number in the launch.  ``clock``: cycles a second.  ``whole``: the block ends, else the timeline is
    cut after many slices.
    """

    kernel: str
    block: int
    tracks: tuple[str, ...]
    slices: tuple[Slice, ...]
    clock: float
    whole: bool

    @property
    def cycles(self) -> float:
        """The end of the last slice."""
        return max((s.end for s in self.slices), default=0.0)

    def busy(self, track: str) -> dict[str, float]:
        """Cycles of each kind on a track."""
        out: dict[str, float] = {}
        for s in self.slices:
            if s.track == track:
                out[s.kind] = out.get(s.kind, 0.0) + s.end - s.start
        return out
