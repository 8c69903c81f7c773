"""What a search is given, what it hands around, and what it tells: settings, subject, candidates, progress, result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from nautilus.core.schedule import Schedule
from nautilus.tune.database.rows import Key, Row
from nautilus.tune.search.study import Asked
from nautilus.tune.workers.measure import Machine


@dataclass(frozen=True, slots=True)
class Settings:
    """``trials``: candidates to build, of all processes of the study together; ``timeout`` in seconds, 0: none.

    ``scratch``: nothing is known: neither the rules' schedule nor the database's is tried or varied, the model's
    favourites come first, and the rules' schedule is only timed beside the best in the end.
    """

    trials: int = 64
    timeout: float = 0.0
    seed: int = 0
    measure: str = "gpu"
    repeats: int = 7
    screened: int = 1024  # points that the model ranks before anything is measured
    scratch: bool = False


@dataclass(frozen=True)
class Subject:
    """What is tuned, and where its rows go. ``known``: schedules of the database, the best first."""

    name: str
    key: Key
    database: Path
    machine: Machine
    nvrtc: str
    known: Sequence[Row] = ()
    neighbours: Sequence[Row] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule (None: what rules make) on its way. ``asked`` None: it is not Optuna's."""

    origin: str
    schedule: Schedule | None
    hash: str
    values: Mapping[str, Any] = field(default_factory=dict)
    asked: Asked | None = None


@dataclass
class Progress:
    """What a search tells of itself while it runs."""

    trials: int
    done: int = 0
    best: float | None = None
    rules: float | None = None
    refused: int = 0
    duplicates: int = 0
    failed: int = 0
    phase: str = ""


class Watcher(Protocol):
    def update(self, progress: Progress) -> None: ...


@dataclass
class Finished:
    """What came out. ``best`` None: nothing that may be used was found."""

    best: Row | None
    rules: Row | None
    stopped: str
    progress: Progress
    troubles: Counter[str]
    seconds: float
    startup: float = 0.0  # of them: until the first trial could begin
