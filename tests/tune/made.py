"""Rows for tests, and what is wrong with a file of rows."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from nautilus.core.schedule import Schedule
from nautilus.tune.database.rows import COMPILER, Key, Row, parse, schedule_hash

KEY = Key("f" * 16, {"M": 8, "N": 16}, "sm_80", "fast")


def row(key: Key = KEY, schedule: Schedule | None = None, **changes: Any) -> Row:
    """A usable row."""
    schedule = schedule or Schedule(inline=())
    standard: dict[str, Any] = {
        "key": key.hash, "name": "spec", "family": key.family, "sizes": dict(key.sizes), "arch": key.arch,
        "precision": key.precision, "device": "GPU", "driver": "13.0", "compiler": COMPILER, "nvrtc": "13.0",
        "measure": "gpu", "state": "ok", "checked": True, "schedule_hash": schedule_hash(schedule),
        "schedule": asdict(schedule), "samples": (1e-3, 2e-3, 3e-3),
    }  # fmt: skip
    return Row(**{**standard, **changes})


def damaged(path: Path) -> int:
    """The number of lines of the file that are not rows."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return sum(1 for line in lines if line.strip() and parse(line) is None)
