"""The history of a compilation: what each pass changed, as differences of the printed texts."""

from __future__ import annotations

from dataclasses import field
from difflib import unified_diff

from nautilus.core.records import dataclass
from nautilus.passes.instruments import text_of
from nautilus.passes.manager import Record
from nautilus.passes.pipelines import CUDA

_MOST = 400  # lines of one difference; a longer one is cut


@dataclass(frozen=True, slots=True)
class Change:
    """What pass ``name`` of ``stage`` changed. ``lines``: a unified difference, without its head."""

    stage: str
    name: str
    milliseconds: float
    lines: tuple[str, ...]


@dataclass
class History:
    """An instrument that keeps the difference of every pass of the last attempt that changed the module."""

    changes: list[Change] = field(default_factory=list)
    steps: int = 0
    _last: str = ""

    def after(self, record: Record) -> None:
        """Keep the difference that the step ``record`` made."""
        if record.number == 0:
            self.changes, self.steps = [], 0
        self.steps += 1
        if record.stage is CUDA or not (record.changed or record.spec is None):
            return
        before, self._last = self._last, text_of(record)
        if record.spec is not None:
            found = list(unified_diff(before.split("\n"), self._last.split("\n"), lineterm="", n=2))[2:]
            if len(found) > _MOST:
                found = [*found[:_MOST], f"... ({len(found) - _MOST} more lines)"]
            self.changes.append(Change(record.stage.name, record.name, 1e3 * record.seconds, tuple(found)))
