"""The study behind a search: Optuna's storages, samplers and trials, as few of them as it takes.

One study is one spec at one set of sizes over one space; its name says so, so that several processes,
on several hosts, that are started with the same command work on the same one.  A trial that was built
carries the hash of its schedule and the schedule itself: a process never repeats what another one
did, and can time another one's winner.

What Optuna is told: seconds of a candidate that was measured (the same again for a duplicate); *pruned* for one
that was refused or failed, which its samplers take as worse than any number; *failed* for one that
was lost with its process, which they ignore.
"""

from __future__ import annotations

import json
import os
import random
import socket
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from nautilus.core.errors import InputError
from nautilus.core.schedule import Schedule
from nautilus.tune.database import data_folder
from nautilus.tune.searchspace import SearchSpace

_LOST = 1800.0  # seconds after which a running trial of another host counts as lost
#: names of a trial's attributes. CANDIDATE: hash, schedule, values and owner of one that is or was built;
#: WITHDRAWN: nothing was compiled, so it is not one of the trials that were asked for
CANDIDATE, TROUBLE, ESTIMATE, WITHDRAWN = "candidate", "trouble", "estimate", "withdrawn"
T = TypeVar("T")


def optuna() -> Any:
    """Optuna, imported when first needed. Raises InputError where it is missing."""
    try:
        import optuna as found
    except ImportError as error:
        raise InputError(f"tuning needs optuna, which is not installed: {error}") from error
    found.logging.set_verbosity(found.logging.WARNING)
    warnings.filterwarnings("ignore", category=found.exceptions.ExperimentalWarning)
    return found


def open_storage(url: str) -> Any:
    """Optuna's storage for ``--storage``; empty: an SQLite file in nautilusc's data folder.

    ``sqlite:///file``, ``postgresql://...`` and ``mysql://...`` are Optuna's own; ``journal:file`` is its journal
    file (the one for several processes on a network file system), ``memory`` keeps nothing.
    Raises InputError.
    """
    o = optuna()
    try:
        if url == "memory":
            return o.storages.InMemoryStorage()
        if url.startswith("journal:"):
            path = url.removeprefix("journal:").removeprefix("//")
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            return o.storages.JournalStorage(o.storages.journal.JournalFileBackend(path))
        if not url:
            folder = data_folder()
            folder.mkdir(parents=True, exist_ok=True)
            url = f"sqlite:///{folder / 'studies.sqlite'}"
        if "://" not in url:
            raise InputError(
                f"--storage {url}: not a URL (sqlite:///FILE, journal:FILE, postgresql://..., mysql://...)"
            )
        if url.startswith("sqlite"):
            return _sqlite(o, url)
        return o.storages.RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
    except InputError:
        raise
    except Exception as error:  # drivers of databases raise their own
        first = str(error).split("\n", 1)[0]
        raise InputError(f"--storage {url}: {type(error).__name__}: {first}") from error


def _sqlite(o: Any, url: str) -> Any:
    """SQLite in WAL mode: a trial is some twenty commits, and several processes write."""
    from sqlalchemy import event

    def make() -> Any:
        return o.storages.RDBStorage(url, engine_kwargs={"connect_args": {"timeout": 60}})

    storage = _again(make)  # two processes may make the tables at once

    def connected(connection: Any, record: Any) -> None:
        del record
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    event.listen(storage.engine, "connect", connected)
    storage.engine.dispose()
    return storage


def _again(action: Callable[[], T]) -> T:
    """``action``, repeated where a storage that others use refuses it (a locked file, a race, a lost connection)."""
    for pause in (0.1, 0.3, 1.0, 3.0):
        try:
            return action()
        except Exception:
            time.sleep(pause * (0.5 + random.random()))
    return action()


def study_name(storage: Any, wanted: str, label: str, resume: bool) -> str:
    """``wanted-label`` (to be joined), else the next number of ``tune-label``, or with ``resume`` the last one."""
    if wanted:
        return f"{wanted}-{label}"
    prefix = f"tune-{label}-"
    taken = [s.study_name for s in storage.get_all_studies() if s.study_name.startswith(prefix)]
    numbers = [int(n) for name in taken if (n := name.removeprefix(prefix)).isdigit()]
    last = max(numbers, default=0)
    return f"{prefix}{last if resume and last else last + 1}"


@dataclass(frozen=True, slots=True)
class Asked:
    """One sample: Optuna's trial, and what it means."""

    trial: Any
    values: Mapping[str, Any]


class Study:
    """A view of one Optuna study; :meth:`refresh` takes in what other processes did."""

    def __init__(self, storage: Any, name: str, space: SearchSpace, seed: int, startup: int) -> None:
        self._o = optuna()
        self.name, self.space = name, space
        self._distributions = _distributions(self._o, space)
        self._study = _again(lambda: self._o.create_study(storage=storage, study_name=name, load_if_exists=True))
        self._trials: list[Any] = []
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self.refresh()
        sampler = self._o.samplers.TPESampler(
            seed=seed + 1_000_003 * len(self._trials), n_startup_trials=startup, multivariate=True, constant_liar=True
        )
        self._study.sampler = sampler
        self._drop_lost()

    def refresh(self) -> None:
        self._trials = _again(lambda: self._study.get_trials(deepcopy=False))

    def _drop_lost(self) -> None:
        """Trials of processes that are gone: what they sampled may be sampled again."""
        state = self._o.trial.TrialState
        for t in self._trials:
            if t.state == state.RUNNING and not self._alive(t):
                with suppress(Exception):  # another process was quicker
                    self._study.tell(t.number, state=state.FAIL)
        self.refresh()

    def _alive(self, trial: Any) -> bool:
        host, _, pid = str(trial.user_attrs.get(CANDIDATE, {}).get("owner", "")).rpartition(":")
        if host == socket.gethostname() and pid.isdigit():
            return _runs(int(pid))
        began = trial.datetime_start
        return began is not None and time.time() - began.timestamp() < _LOST

    def _begun(self) -> list[Any]:
        """Trials that were or are being built somewhere, also those that came to nothing."""
        fail = self._o.trial.TrialState.FAIL
        return [t for t in self._trials if CANDIDATE in t.user_attrs and t.state != fail]

    def _complete(self) -> list[Any]:
        """Trials that were measured; duplicates of one have its value, but are not among them."""
        complete = self._o.trial.TrialState.COMPLETE
        return [t for t in self._trials if t.state == complete and CANDIDATE in t.user_attrs]

    @property
    def spent(self) -> int:
        """Candidates of this study that were built, or are being built somewhere."""
        return sum(WITHDRAWN not in t.user_attrs for t in self._begun())

    def measured(self) -> dict[str, float]:
        """Seconds by hash of every schedule that was measured."""
        return {t.user_attrs[CANDIDATE]["hash"]: float(t.value) for t in self._complete()}

    def tried(self) -> set[str]:
        """Hashes of all schedules that were built, are being built, or were given up before."""
        return {t.user_attrs[CANDIDATE]["hash"] for t in self._begun()}

    def history(self) -> list[float]:
        """Seconds of the candidates that were measured, in order."""
        return [float(t.value) for t in self._complete()]

    def points(self) -> list[tuple[dict[str, Any], float]]:
        """Values and seconds of the candidates that were measured, in order."""
        return [(dict(t.user_attrs[CANDIDATE]["values"]), float(t.value)) for t in self._complete()]

    def estimates(self) -> list[tuple[float, float]]:
        """The model's seconds and the measured ones of every candidate that has both."""
        return [(float(t.user_attrs[ESTIMATE]), float(t.value)) for t in self._complete() if ESTIMATE in t.user_attrs]

    def outcomes(self) -> list[tuple[str, Schedule, float | None, float | None]]:
        """Hash, schedule, the model's seconds and the measured ones of every candidate.

        No measured seconds: it failed. No estimate and 0.0 seconds: it is being built or measured.
        """
        state = self._o.trial.TrialState
        found = []
        for t in self._begun():
            if WITHDRAWN not in t.user_attrs:
                c = t.user_attrs[CANDIDATE]
                seconds = None if t.state == state.PRUNED else float(t.value or 0.0)
                schedule = Schedule.from_json(json.dumps(c["schedule"]))
                found.append((str(c["hash"]), schedule, t.user_attrs.get(ESTIMATE), seconds))
        return found

    def best(self, count: int) -> list[tuple[float, Schedule, dict[str, Any]]]:
        """Seconds, schedule and values of the ``count`` best that were measured, by any process."""
        done = sorted(self._complete(), key=lambda t: (t.value, t.user_attrs[CANDIDATE]["hash"]))[:count]
        found = [(float(t.value), t.user_attrs[CANDIDATE]) for t in done]
        return [(v, Schedule.from_json(json.dumps(c["schedule"])), dict(c["values"])) for v, c in found]

    def enqueue(self, values: Mapping[str, Any]) -> None:
        """Have ``values`` sampled soon."""
        _again(lambda: self._study.enqueue_trial(self.space.encode(values), skip_if_exists=True))

    def ask(self) -> Asked:
        """A sample."""
        trial = _again(lambda: self._study.ask(self._distributions))
        return Asked(trial, self.space.decode(trial.params))

    def spend(self, asked: Asked, schedule: Schedule, hash_: str) -> bool:
        """Say that the sample is being built; False where another process said so of an earlier sample like it.

        Each says it first and looks then, so that of two that drew the same one only the later gives way.
        """
        about = {"hash": hash_, "schedule": asdict(schedule), "values": dict(asked.values), "owner": self._owner}
        _again(lambda: asked.trial.set_user_attr(CANDIDATE, about))
        self.refresh()
        mine = asked.trial.number
        if not any(t.number < mine and t.user_attrs[CANDIDATE]["hash"] == hash_ for t in self._begun()):
            return True
        _again(lambda: self._study.tell(mine, state=self._o.trial.TrialState.FAIL))
        self.refresh()
        return False

    def tell(self, asked: Asked, seconds: float, estimate: float | None = None) -> None:
        """The seconds that the sample took."""
        if estimate is not None:
            _again(lambda: asked.trial.set_user_attr(ESTIMATE, estimate))
        self._tell(asked, seconds)

    def refuse(self, asked: Asked, why: str) -> None:
        """The sample has no time."""
        _again(lambda: asked.trial.set_user_attr(TROUBLE, why[:500]))
        self._tell(asked, None)

    def withdraw(self, asked: Asked, why: str) -> None:
        """The sample was never compiled: it is refused, and does not count as one of the trials."""
        _again(lambda: asked.trial.set_user_attr(WITHDRAWN, True))
        self.refuse(asked, why)

    def _tell(self, asked: Asked, seconds: float | None) -> None:
        state = self._o.trial.TrialState.PRUNED if seconds is None else None
        _again(lambda: self._study.tell(asked.trial, seconds, state=state, skip_if_finished=True))
        self.refresh()

    def remember(self, name: str, value: Any) -> None:
        """Keep something with the study itself."""
        self._study.set_user_attr(name, value)

    def recall(self, name: str) -> Any:
        return self._study.user_attrs.get(name)


def _distributions(o: Any, space: SearchSpace) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, texts in space.texts.items():
        if name in space.ordered:
            made[name] = o.distributions.IntDistribution(0, len(texts) - 1)
        else:
            made[name] = o.distributions.CategoricalDistribution(texts)
    return made


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
