"""Schedules that the planner makes of specs."""

from __future__ import annotations

from pathlib import Path

from nautilus.core.schedule import Schedule
from nautilus.driver import Request, compile_file
from nautilus.targets.records import DEFAULT_TARGET


def schedule_of(text: str, arch: str = DEFAULT_TARGET, given: Schedule | None = None) -> Schedule:
    """The schedule of the spec ``text`` after the Scalar IR; ``given``: decisions that stay."""
    result = compile_file(Request(Path("given.naut"), arch, schedule=given, text=text, until="scalar"))
    assert result.context.schedule is not None
    return result.context.schedule
