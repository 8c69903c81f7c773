"""Data types of the tuner: settings, task, candidate, progress, result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.tune.database.rows import Key, Row
from nautilus.tune.search.study import Sample
from nautilus.tune.workers.measure import Machine


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a search.

    ``trials`` is the number of candidates to build, counted over all processes of the study.  ``timeout`` is in
    seconds; 0 means no limit.  With ``scratch`` the search uses no prior knowledge: it neither tries nor varies the
    default schedule and the schedules of the database.  It starts from the top candidates of the cost model and times
    the default schedule only in the final series.
    """

    trials: int = 64
    timeout: float = 0.0
    seed: int = 0
    measure: str = "gpu"
    repeats: int = 7
    prefiltered: int = 1024  # points that the cost model ranks before the first measurement
    scratch: bool = False


@dataclass(frozen=True)
class Task:
    """The spec to tune and the database that receives the rows.

    ``known``: schedules of the database for the same key, the best first.  ``neighbours``: the best rows of other
    sizes.
    """

    name: str
    key: Key
    database: Path
    machine: Machine
    nvrtc: str
    known: Sequence[Row] = ()
    neighbours: Sequence[Row] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule to build and measure.

    ``schedule`` None stands for the default schedule.  ``sample`` is the Optuna trial, None where Optuna did not
    propose the schedule.
    """

    origin: str
    schedule: Schedule | None
    hash: str
    values: Mapping[str, Any] = field(default_factory=dict)
    sample: Sample | None = None


@dataclass
class Progress:
    """The state of a running search; times are in seconds."""

    trials: int
    done: int = 0
    best: float | None = None
    rules: float | None = None
    refused: int = 0
    duplicates: int = 0
    failed: int = 0
    phase: str = ""


class ProgressListener(Protocol):
    """A display of the progress of a search."""

    def update(self, progress: Progress) -> None:
        """Show ``progress``."""
        ...


@dataclass
class SearchResult:
    """The result of a search.

    ``best`` is None where no candidate is usable.  ``failures`` counts candidates by failure reason.  ``startup`` is
    the part of ``seconds`` before the first trial can begin.
    """

    best: Row | None
    rules: Row | None
    stopped: str
    progress: Progress
    failures: Counter[str]
    seconds: float
    startup: float = 0.0
