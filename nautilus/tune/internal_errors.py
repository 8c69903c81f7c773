"""Internal errors in a search: bugs of the compiler, never illegal schedules.

One candidate with an internal error does not end a search of hours.  Each error is kept with a line that reproduces
it, is shown when the search ends, and makes its exit code 70.
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from nautilus.core.errors import first_line
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.passes.compilation import Request


@dataclass
class InternalErrors:
    """``command`` compiles what is tuned; ``reproducers``: reason -> the line that reproduces its first case."""

    command: str = "nautilusc compile SPEC"
    reproducers: dict[str, str] = field(default_factory=dict)

    def record(self, reason: str, schedule: Schedule | None, values: Mapping[str, Any]) -> None:
        """Note an internal error of ``schedule``; None: the point ``values`` of the space has none yet."""
        if reason in self.reproducers:
            return
        if schedule is not None:
            self.reproducers[reason] = f"{self.command} --schedule {_written(schedule)}"
        elif values:
            self.reproducers[reason] = f"{self.command} (at the point {json.dumps(dict(values))} of the space)"
        else:
            self.reproducers[reason] = self.command

    def data(self) -> list[dict[str, str]]:
        """One record for each reason."""
        return [{"reason": reason, "reproducer": line} for reason, line in self.reproducers.items()]


def compile_command(request: Request) -> str:
    """The command line that compiles ``request``, up to its schedule."""
    words = ["nautilusc", "compile", str(request.path), "--arch", request.arch, "--precision", request.precision]
    for name, size in request.dims.items():
        words += ["--dim", f"{name}={size}"]
    return shlex.join(words)


def described(error: Exception) -> str:
    """The kind of ``error``, its first line, and the pass that it left."""
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {first_line(error)}{notes}"


def _written(schedule: Schedule) -> str:
    handle, name = tempfile.mkstemp(prefix="nautilusc-bug-", suffix=".json")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(schedule.to_json())
    return name
