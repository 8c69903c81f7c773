"""Timelines as a trace in the format of Chrome, which https://ui.perfetto.dev opens.

A kernel is a process, and a track is one of its threads.  Times are microseconds from the start of the block; kernels
follow each other.  The format is "Trace Event Format": metadata events (``M``) give names, complete events (``X``) have
a start and a duration.

Events of a thread must be apart or nested.  Copies that are outstanding at the same time therefore get threads of their
own, which the viewer shows as ``copies``, ``copies 2``.  Starts and ends are rounded to steps of 10 picoseconds, and a
duration is their difference, so that events which follow each other do not overlap.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from nautilus.report.timeline.slices import Slice, Timeline

_STEPS = 1e5  # steps in a microsecond


def trace(timelines: Sequence[Timeline], about: dict[str, Any]) -> str:
    """The JSON text; ``about``: what the file says of itself."""
    events = [event for n, t in enumerate(timelines) for event in _events(n, t, _start(timelines[:n]))]
    whole = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}
    return json.dumps(whole, separators=(",", ":")) + "\n"


def _start(before: Sequence[Timeline]) -> float:
    return sum(1e6 * t.cycles / t.clock for t in before)


def _events(process: int, t: Timeline, start: float) -> Iterator[dict[str, Any]]:
    each = 1e6 / t.clock
    yield _named("process_name", process, 0, f"{t.kernel}, block {t.block} (predicted)")
    yield {"name": "process_sort_index", "ph": "M", "pid": process, "tid": 0, "args": {"sort_index": process}}
    threads = _threads(t.slices, t.tracks)
    for number, (track, n) in enumerate(threads):
        yield _named("thread_name", process, number, track if n == 0 else f"{track} {n + 1}")
    for number, slices in enumerate(threads.values()):
        for s in slices:
            args = {"cycles": round(s.end - s.start)} | ({"line": s.span.line} if s.span.line > 0 else {})
            first, last = (round(_STEPS * (start + each * at)) for at in (s.start, s.end))
            yield {
                "name": s.name, "cat": s.kind, "ph": "X", "pid": process, "tid": number,
                "ts": first / _STEPS, "dur": (last - first) / _STEPS, "args": args,
            }  # fmt: skip


def _threads(slices: Sequence[Slice], tracks: Sequence[str]) -> dict[tuple[str, int], list[Slice]]:
    """The slices of each thread, in the order of the tracks; a track has as many threads as slices that overlap."""
    threads: dict[tuple[str, int], list[Slice]] = {}
    for track in tracks:
        threads[track, 0] = []
        open_: list[list[float]] = [[]]  # of each thread of the track, the ends of slices that are not over
        for s in sorted((x for x in slices if x.track == track), key=lambda x: (x.start, -x.end)):
            for ends in open_:
                while ends and ends[-1] <= s.start:
                    ends.pop()
            free = next((n for n, ends in enumerate(open_) if not ends or s.end <= ends[-1]), len(open_))
            if free == len(open_):
                open_.append([])
            open_[free].append(s.end)
            threads.setdefault((track, free), []).append(s)
    return threads


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
