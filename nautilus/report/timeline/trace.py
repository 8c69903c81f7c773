"""Timelines as a trace in the format of Chrome, which https://ui.perfetto.dev opens.

A kernel is a process, and a track is one of its threads.  Times are microseconds from the start of the block; kernels
follow each other.  The format is "Trace Event Format": metadata events (``M``) give names, complete events (``X``) have
a start and a duration.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from nautilus.report.timeline.slices import Timeline


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
    for number, track in enumerate(t.tracks):
        yield _named("thread_name", process, number, track)
    lanes = {track: n for n, track in enumerate(t.tracks)}
    for s in t.slices:
        args = {"cycles": round(s.end - s.start)} | ({"line": s.span.line} if s.span.line > 0 else {})
        yield {
            "name": s.name, "cat": s.kind, "ph": "X", "pid": process, "tid": lanes[s.track],
            "ts": round(start + each * s.start, 5), "dur": round(each * (s.end - s.start), 5), "args": args,
        }  # fmt: skip


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
