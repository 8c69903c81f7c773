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
import re
import socket
import sqlite3
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from nautilus.core.errors import InputError
from nautilus.core.schedule import Schedule
from nautilus.tune.database.store import data_folder
from nautilus.tune.space.choices import SearchSpace

_LOST = 1800.0  # seconds after which a running trial of another host counts as lost
_UNSAID = _LOST + 26 * 3600.0  # the same where only Optuna's local time says when it began, of whatever time zone
_AWAY = 60.0  # seconds that a database server may be away, to be started again for example
#: drivers by what a URL begins with, the one that is taken first in front; and what pip calls them
_DRIVERS = {
    "postgresql": ("psycopg", "psycopg2"),
    "mysql": ("pymysql", "MySQLdb"),
    "mariadb": ("pymysql", "MySQLdb"),
}
_PACKAGES = {
    "psycopg": "'psycopg[binary]'",
    "psycopg2": "psycopg2-binary",
    "pymysql": "pymysql",
    "MySQLdb": "mysqlclient",
}
#: so that a host that does not answer is an error within seconds, not minutes: of libpq (seconds, but
#: tcp_user_timeout in ms), and of MySQL's drivers
_LIBPQ = {
    "connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}  # fmt: skip
_MYSQL = {"connect_timeout": 10, "read_timeout": 30, "write_timeout": 30}
_TIMEOUTS: dict[str, dict[str, int]] = {"psycopg": _LIBPQ, "psycopg2": _LIBPQ, "pymysql": _MYSQL, "mysqldb": _MYSQL}
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
        return _server(o, url)
    except InputError:
        raise
    except Exception as error:  # drivers of databases raise their own
        raise InputError(f"--storage {_shown(url)}: {_said(error)}") from error


def _shown(url: str) -> str:
    """``url`` without its password."""
    return re.sub(r"(://[^:/]*):.*@", r"\1:***@", url)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).split(chr(10), 1)[0]}"


def _server(o: Any, url: str) -> Any:
    """A database server's storage; what it refuses at first it refuses at once."""
    from sqlalchemy import create_engine, make_url

    try:
        address = make_url(url)
    except Exception as error:
        raise InputError(f"--storage {_shown(url)}: not a URL (in a password, @ is %40 and : is %3A)") from error
    if address.drivername in _DRIVERS:
        modules = _DRIVERS[address.drivername]
        module = next((m for m in modules if find_spec(m) is not None), "")
        if not module:
            packages = " or ".join(_PACKAGES[m] for m in modules)
            raise InputError(f"--storage {_shown(url)}: its driver is not installed: pip install {packages}")
        address = address.set(drivername=f"{address.drivername}+{module.lower()}")
    driver = address.drivername.rpartition("+")[2]
    timeouts = {n: v for n, v in _TIMEOUTS.get(driver, {}).items() if n not in address.query}
    more = {"pool_pre_ping": True, "connect_args": timeouts}
    try:
        engine = create_engine(address, **more)
    except ImportError as error:
        package = next((p for m, p in _PACKAGES.items() if m.lower() == driver), "")
        hint = f": pip install {package}" if package else ""
        raise InputError(f"--storage {_shown(url)}: its driver is not installed ({error}){hint}") from error
    with engine.connect():
        pass
    engine.dispose()
    plain = address.render_as_string(hide_password=False)
    # two processes may make the tables at once
    return _again(lambda: o.storages.RDBStorage(plain, engine_kwargs=more), away=0.0)


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


def _again(action: Callable[[], T], away: float = _AWAY) -> T:
    """``action``, repeated where a storage that others use refuses it (a locked file, a race, a lost connection).

    Raises InputError where a database server does not come back within ``away`` seconds.
    """
    end = time.monotonic() + away
    pauses = [0.1, 0.3, 1.0, 3.0]
    while True:
        try:
            return action()
        except Exception as error:
            lost = _lost(error)
            if not pauses and (lost is None or time.monotonic() > end):
                if lost is None or not away:
                    raise
                raise InputError(f"--storage: lost ({_said(lost)}); the same --study, or --resume, goes on") from error
        time.sleep((pauses.pop(0) if pauses else 3.0) * (0.5 + random.random()))


def _lost(error: BaseException) -> BaseException | None:
    """What a database server, or the way to it, is to blame for in ``error``; None where that is nothing."""
    from sqlalchemy.exc import InterfaceError, OperationalError

    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OperationalError | InterfaceError):
            return None if isinstance(found.orig, sqlite3.Error) else found
        found = found.__cause__ or found.__context__
    return None


def study_name(storage: Any, wanted: str, label: str, resume: bool) -> str:
    """``wanted-label`` (to be joined), else the next number of ``tune-label``, or with ``resume`` the last one."""
    if wanted:
        return f"{wanted}-{label}"
    prefix = f"tune-{label}-"
    studies = _again(storage.get_all_studies)
    taken = [s.study_name for s in studies if s.study_name.startswith(prefix)]
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
        self._schedules: dict[str, Schedule] = {}  # by hash
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
        about = trial.user_attrs.get(CANDIDATE, {})
        host, _, pid = str(about.get("owner", "")).rpartition(":")
        if host == socket.gethostname() and pid.isdigit():
            return _runs(int(pid))
        if "began" in about:
            return time.time() - float(about["began"]) < _LOST
        began = trial.datetime_start
        return began is not None and time.time() - began.timestamp() < _UNSAID

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
                found.append((str(c["hash"]), self._schedule(c), t.user_attrs.get(ESTIMATE), seconds))
        return found

    def best(self, count: int) -> list[tuple[float, Schedule, dict[str, Any]]]:
        """Seconds, schedule and values of the ``count`` best that were measured, by any process."""
        done = sorted(self._complete(), key=lambda t: (t.value, t.user_attrs[CANDIDATE]["hash"]))[:count]
        found = [(float(t.value), t.user_attrs[CANDIDATE]) for t in done]
        return [(v, self._schedule(c), dict(c["values"])) for v, c in found]

    def _schedule(self, candidate: Mapping[str, Any]) -> Schedule:
        """The schedule of a trial's candidate; each is read once, for all of them are asked for again and again."""
        own = str(candidate["hash"])
        if own not in self._schedules:
            self._schedules[own] = Schedule.from_json(json.dumps(candidate["schedule"]))
        return self._schedules[own]

    def enqueue(self, values: Mapping[str, Any]) -> None:
        """Have ``values`` sampled soon."""
        _again(lambda: self._study.enqueue_trial(self.space.encode(values), skip_if_exists=True))

    def ask(self) -> Asked:
        """A sample."""
        trial = _again(lambda: self._study.ask(self._distributions))
        return Asked(trial, self.space.decode(trial.params))

    def spend(self, asked: Asked, schedule: Schedule, hash_: str) -> bool:
        """Say that the sample is being built; False where another process said so of an earlier sample like it.

        Each says it first and looks then, so that of two that drew the same one the later gives way.
        """
        about = {"hash": hash_, "schedule": asdict(schedule), "values": dict(asked.values), "owner": self._owner}
        self._mark(asked, CANDIDATE, about | {"began": time.time()})
        mine = asked.trial.number
        if self._first(mine, hash_):
            return True
        _again(lambda: self._study.tell(mine, state=self._o.trial.TrialState.FAIL, skip_if_finished=True))
        self.refresh()
        return False

    def _first(self, mine: int, hash_: str) -> bool:
        """No other process builds it.

        A later one that said so, too, either gives way in a moment or looked before there was anything to see; then
        it has begun, and the earlier one gives way.
        """
        running = self._o.trial.TrialState.RUNNING
        for pause in (0.1, 0.2, 0.4, 0.8, 0.0):
            self.refresh()
            others = [t for t in self._begun() if t.number != mine and t.user_attrs[CANDIDATE]["hash"] == hash_]
            if not others:
                return True
            if any(t.number < mine or t.state != running for t in others):
                return False
            time.sleep(pause)
        return False

    def _mark(self, asked: Asked, name: str, value: Any) -> None:
        """Keep something with the trial, unless another process took that for lost and ended it."""

        def mark() -> None:
            with suppress(RuntimeError):  # Optuna: the trial is finished
                asked.trial.set_user_attr(name, value)

        _again(mark)

    def tell(self, asked: Asked, seconds: float, estimate: float | None = None) -> None:
        """The seconds that the sample took."""
        if estimate is not None:
            self._mark(asked, ESTIMATE, estimate)
        self._tell(asked, seconds)

    def refuse(self, asked: Asked, why: str) -> None:
        """The sample has no time."""
        self._mark(asked, TROUBLE, why[:500])
        self._tell(asked, None)

    def withdraw(self, asked: Asked, why: str) -> None:
        """The sample was never compiled: it is refused, and does not count as one of the trials."""
        self._mark(asked, WITHDRAWN, True)
        self.refuse(asked, why)

    def _tell(self, asked: Asked, seconds: float | None) -> None:
        state = self._o.trial.TrialState.PRUNED if seconds is None else None
        _again(lambda: self._study.tell(asked.trial, seconds, state=state, skip_if_finished=True))
        self.refresh()

    def remember(self, name: str, value: Any) -> None:
        """Keep something with the study itself."""
        _again(lambda: self._study.set_user_attr(name, value))

    def recall(self, name: str) -> Any:
        return _again(lambda: self._study.user_attrs).get(name)


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
