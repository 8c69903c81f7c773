"""The study of a search: adapts Optuna's storages, samplers and trials.

One study covers one spec at one set of sizes over one space.  The name of the study contains all three, so processes on
several hosts that start with the same command share one study.  A trial that was built carries the hash of its schedule
and the schedule itself; no process therefore repeats the work of another, and any process can time the best schedules
of all.

A trial gets one of three results.  A measured candidate has its seconds, and a duplicate has the same seconds.  A
refused or failed candidate is *pruned*, which Optuna's samplers rank below any number.  A candidate whose process died
is *failed*, which the samplers ignore.
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
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from nautilus.core.errors import InputError, ToolchainError
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.tune.database.store import data_folder
from nautilus.tune.space.choices import SearchSpace

_ORPHANED = 1800.0  # seconds after which a running trial of another host counts as orphaned
_ORPHANED_LOCAL_TIME = _ORPHANED + 26 * 3600.0  # the limit where the start is local time of an unknown time zone
_RECONNECT = 60.0  # seconds within which a lost database server must answer again
#: Python drivers by URL scheme in the order of preference, and their packages on PyPI
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
#: connection timeouts, so that an unreachable host is an error within seconds: of libpq (in seconds, but
#: tcp_user_timeout in ms) and of the MySQL drivers (in seconds)
_LIBPQ = {
    "connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}  # fmt: skip
_MYSQL = {"connect_timeout": 10, "read_timeout": 30, "write_timeout": 30}
_TIMEOUTS: dict[str, dict[str, int]] = {"psycopg": _LIBPQ, "psycopg2": _LIBPQ, "pymysql": _MYSQL, "mysqldb": _MYSQL}
#: names of a trial's attributes. CANDIDATE: hash, schedule, values and owner of a trial that is or was built;
#: FAILURE: the failure reason; ESTIMATE: seconds by the cost model; WITHDRAWN: nothing was compiled, so the trial does
#: not count against the requested number of trials
CANDIDATE, FAILURE, ESTIMATE, WITHDRAWN = "candidate", "failure", "estimate", "withdrawn"
T = TypeVar("T")


def optuna() -> Any:
    """The module ``optuna``, imported on first use. Raises ToolchainError where it is not installed."""
    try:
        import optuna as found
    except ImportError as error:
        raise ToolchainError("tune", f"{error}; pip install 'nautilusc[tune]'") from error
    found.logging.set_verbosity(found.logging.WARNING)
    warnings.filterwarnings("ignore", category=found.exceptions.ExperimentalWarning)
    return found


def open_storage(url: str) -> Any:
    """The Optuna storage for the URL of ``--storage``; empty selects an SQLite file in nautilusc's data folder.

    ``sqlite:///file``, ``postgresql://...`` and ``mysql://...`` are Optuna's own URLs.  ``journal:file`` is Optuna's
    journal file, which several processes may share on a network file system.  ``memory`` keeps the study in memory.
    Raises InputError where the URL is malformed, its driver is missing or the storage does not open.
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
    except Exception as error:  # drivers of databases raise their own errors
        raise InputError(f"--storage {_without_password(url)}: {_summary(error)}") from error


def _without_password(url: str) -> str:
    """``url`` without its password."""
    return re.sub(r"(://[^:/]*):.*@", r"\1:***@", url)


def _summary(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).split(chr(10), 1)[0]}"


def _server(o: Any, url: str) -> Any:
    """The storage on a database server.  A first connection that fails raises at once, without retries."""
    from sqlalchemy import create_engine, make_url

    try:
        address = make_url(url)
    except Exception as error:
        raise InputError(
            f"--storage {_without_password(url)}: not a URL (in a password, @ is %40 and : is %3A)"
        ) from error
    if address.drivername in _DRIVERS:
        modules = _DRIVERS[address.drivername]
        module = next((m for m in modules if find_spec(m) is not None), "")
        if not module:
            packages = " or ".join(_PACKAGES[m] for m in modules)
            raise InputError(
                f"--storage {_without_password(url)}: the driver is not installed (pip install {packages})"
            )
        address = address.set(drivername=f"{address.drivername}+{module.lower()}")
    driver = address.drivername.rpartition("+")[2]
    timeouts = {n: v for n, v in _TIMEOUTS.get(driver, {}).items() if n not in address.query}
    more = {"pool_pre_ping": True, "connect_args": timeouts}
    try:
        engine = create_engine(address, **more)
    except ImportError as error:
        package = next((p for m, p in _PACKAGES.items() if m.lower() == driver), "")
        hint = f" (pip install {package})" if package else ""
        raise InputError(f"--storage {_without_password(url)}: the driver is not installed: {error}{hint}") from error
    with engine.connect():
        pass
    engine.dispose()
    plain = address.render_as_string(hide_password=False)
    # two processes may create the tables at the same time
    return _retry(lambda: o.storages.RDBStorage(plain, engine_kwargs=more), reconnect=0.0)


def _sqlite(o: Any, url: str) -> Any:
    """A storage on SQLite in WAL mode, because a trial is some twenty commits, and several processes write."""
    from sqlalchemy import event

    def make() -> Any:
        return o.storages.RDBStorage(url, engine_kwargs={"connect_args": {"timeout": 60}})

    storage = _retry(make)  # two processes may make the tables at once

    def connected(connection: Any, record: Any) -> None:
        del record
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    event.listen(storage.engine, "connect", connected)
    storage.engine.dispose()
    return storage


def _retry(action: Callable[[], T], reconnect: float = _RECONNECT) -> T:
    """The result of ``action``, retried after transient storage errors (a locked file, a race, a lost connection).

    Raises InputError where a database server does not answer again within ``reconnect`` seconds.
    """
    end = time.monotonic() + reconnect
    pauses = [0.1, 0.3, 1.0, 3.0]
    while True:
        try:
            return action()
        except Exception as error:
            lost = _connection_error(error)
            if not pauses and (lost is None or time.monotonic() > end):
                if lost is None or not reconnect:
                    raise
                raise InputError(
                    f"--storage: connection lost ({_summary(lost)}); repeat the command with the same --study, "
                    "or with --resume, to continue"
                ) from error
        time.sleep((pauses.pop(0) if pauses else 3.0) * (0.5 + random.random()))


def _connection_error(error: BaseException) -> BaseException | None:
    """The error of the database server or its connection that caused ``error``; None where there is none."""
    from sqlalchemy.exc import InterfaceError, OperationalError

    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OperationalError | InterfaceError):
            return None if isinstance(found.orig, sqlite3.Error) else found
        found = found.__cause__ or found.__context__
    return None


def study_name(storage: Any, wanted: str, label: str, resume: bool) -> str:
    """The name of the study: ``wanted-label`` if ``wanted`` is given, else ``tune-label-N``.

    N is the next free number; with ``resume`` it is the last one used.
    """
    if wanted:
        return f"{wanted}-{label}"
    prefix = f"tune-{label}-"
    studies = _retry(storage.get_all_studies)
    taken = [s.study_name for s in studies if s.study_name.startswith(prefix)]
    numbers = [int(n) for name in taken if (n := name.removeprefix(prefix)).isdigit()]
    last = max(numbers, default=0)
    return f"{prefix}{last if resume and last else last + 1}"


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: Optuna's trial and the values of the space that it stands for."""

    trial: Any
    values: Mapping[str, Any]


class Study:
    """A view of one Optuna study; :meth:`refresh` reads the trials of other processes."""

    def __init__(self, storage: Any, name: str, space: SearchSpace, seed: int, startup: int) -> None:
        self._o = optuna()
        self.name, self.space = name, space
        self._distributions = _distributions(self._o, space)
        self._study = _retry(lambda: self._o.create_study(storage=storage, study_name=name, load_if_exists=True))
        self._trials: list[Any] = []
        self._schedules: dict[str, Schedule] = {}  # by hash
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self.refresh()
        sampler = self._o.samplers.TPESampler(
            seed=seed + 1_000_003 * len(self._trials), n_startup_trials=startup, multivariate=True, constant_liar=True
        )
        self._study.sampler = sampler
        self._release_orphans()

    def refresh(self) -> None:
        """Read the trials of all processes."""
        self._trials = _retry(lambda: self._study.get_trials(deepcopy=False))

    def _release_orphans(self) -> None:
        """End the trials of processes that no longer run, so that their points may be sampled again."""
        state = self._o.trial.TrialState
        for t in self._trials:
            if t.state == state.RUNNING and not self._alive(t):
                with suppress(Exception):  # another process ended it
                    self._study.tell(t.number, state=state.FAIL)
        self.refresh()

    def _alive(self, trial: Any) -> bool:
        about = trial.user_attrs.get(CANDIDATE, {})
        host, _, pid = str(about.get("owner", "")).rpartition(":")
        if host == socket.gethostname() and pid.isdigit():
            return _is_running(int(pid))
        if "began" in about:
            return time.time() - float(about["began"]) < _ORPHANED
        began = trial.datetime_start
        return began is not None and time.time() - began.timestamp() < _ORPHANED_LOCAL_TIME

    def _begun(self) -> list[Any]:
        """Trials that were built or are being built by any process, including those that failed or were refused."""
        fail = self._o.trial.TrialState.FAIL
        return [t for t in self._trials if CANDIDATE in t.user_attrs and t.state != fail]

    def _complete(self) -> list[Any]:
        """Measured trials; duplicates of a measured trial have its value but are not included."""
        complete = self._o.trial.TrialState.COMPLETE
        return [t for t in self._trials if t.state == complete and CANDIDATE in t.user_attrs]

    @property
    def spent(self) -> int:
        """The number of candidates of this study that were built or are being built by any process."""
        return sum(WITHDRAWN not in t.user_attrs for t in self._begun())

    def measured(self) -> dict[str, float]:
        """Seconds of every measured schedule by its hash."""
        return {t.user_attrs[CANDIDATE]["hash"]: float(t.value) for t in self._complete()}

    def tried(self) -> set[str]:
        """Hashes of all schedules that were built, are being built, or were withdrawn."""
        return {t.user_attrs[CANDIDATE]["hash"] for t in self._begun()}

    def history(self) -> list[float]:
        """Seconds of the measured candidates in order."""
        return [float(t.value) for t in self._complete()]

    def points(self) -> list[tuple[dict[str, Any], float]]:
        """Values and seconds of the measured candidates in order."""
        return [(dict(t.user_attrs[CANDIDATE]["values"]), float(t.value)) for t in self._complete()]

    def estimates(self) -> list[tuple[float, float]]:
        """Estimated and measured seconds of every candidate that has both."""
        return [(float(t.user_attrs[ESTIMATE]), float(t.value)) for t in self._complete() if ESTIMATE in t.user_attrs]

    def outcomes(self) -> list[tuple[str, Schedule, float | None, float | None]]:
        """Hash, schedule, estimated seconds and measured seconds of every candidate.

        Measured seconds are None for a failed candidate.  A candidate that is being built or measured has no estimate
        and 0.0 measured seconds.
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
        """Seconds, schedule and values of the ``count`` fastest candidates of all processes."""
        done = sorted(self._complete(), key=lambda t: (t.value, t.user_attrs[CANDIDATE]["hash"]))[:count]
        found = [(float(t.value), t.user_attrs[CANDIDATE]) for t in done]
        return [(v, self._schedule(c), dict(c["values"])) for v, c in found]

    def _schedule(self, candidate: Mapping[str, Any]) -> Schedule:
        """The schedule of a trial's candidate; each is parsed once and cached."""
        own = str(candidate["hash"])
        if own not in self._schedules:
            self._schedules[own] = Schedule.from_json(json.dumps(candidate["schedule"]))
        return self._schedules[own]

    def enqueue(self, values: Mapping[str, Any]) -> None:
        """Enqueue ``values`` as one of the next samples."""
        _retry(lambda: self._study.enqueue_trial(self.space.encode(values), skip_if_exists=True))

    def ask(self) -> Sample:
        """The next sample."""
        trial = _retry(lambda: self._study.ask(self._distributions))
        return Sample(trial, self.space.decode(trial.params))

    def claim(self, sample: Sample, schedule: Schedule, hash_: str) -> bool:
        """Claim the schedule for this process; False where another process claimed it with an earlier sample.

        Every process writes its claim before it reads the claims of others, so of two equal samples only the earlier
        one is built.
        """
        about = {"hash": hash_, "schedule": asdict(schedule), "values": dict(sample.values), "owner": self._owner}
        self._mark(sample, CANDIDATE, about | {"began": time.time()})
        own = sample.trial.number
        if self._claimed_first(own, hash_):
            return True
        _retry(lambda: self._study.tell(own, state=self._o.trial.TrialState.FAIL, skip_if_finished=True))
        self.refresh()
        return False

    def _claimed_first(self, own: int, hash_: str) -> bool:
        """Whether no other process builds the schedule.

        A later claim is normally withdrawn within a moment.  If it persists, its process read the claims before this
        one was visible and has started to build, so this process withdraws instead.
        """
        running = self._o.trial.TrialState.RUNNING
        for pause in (0.1, 0.2, 0.4, 0.8, 0.0):
            self.refresh()
            others = [t for t in self._begun() if t.number != own and t.user_attrs[CANDIDATE]["hash"] == hash_]
            if not others:
                return True
            if any(t.number < own or t.state != running for t in others):
                return False
            time.sleep(pause)
        return False

    def _mark(self, sample: Sample, name: str, value: Any) -> None:
        """Set an attribute of the trial, unless another process ended the trial as orphaned."""

        def mark() -> None:
            with suppress(RuntimeError):  # Optuna: the trial is finished
                sample.trial.set_user_attr(name, value)

        _retry(mark)

    def tell(self, sample: Sample, seconds: float, estimate: float | None = None) -> None:
        """Record the measured seconds of the sample, and its estimate if given."""
        if estimate is not None:
            self._mark(sample, ESTIMATE, estimate)
        self._tell(sample, seconds)

    def refuse(self, sample: Sample, why: str) -> None:
        """End the sample without a time, with the failure reason ``why``."""
        self._mark(sample, FAILURE, why[:500])
        self._tell(sample, None)

    def withdraw(self, sample: Sample, why: str) -> None:
        """Refuse a sample that was never compiled; it does not count against the number of trials."""
        self._mark(sample, WITHDRAWN, True)
        self.refuse(sample, why)

    def _tell(self, sample: Sample, seconds: float | None) -> None:
        state = self._o.trial.TrialState.PRUNED if seconds is None else None
        _retry(lambda: self._study.tell(sample.trial, seconds, state=state, skip_if_finished=True))
        self.refresh()

    def set_attribute(self, name: str, value: Any) -> None:
        """Set an attribute of the study."""
        _retry(lambda: self._study.set_user_attr(name, value))

    def attribute(self, name: str) -> Any:
        """The attribute ``name`` of the study; None where it is not set."""
        return _retry(lambda: self._study.user_attrs).get(name)


def _distributions(o: Any, space: SearchSpace) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, texts in space.texts.items():
        if name in space.ordered:
            made[name] = o.distributions.IntDistribution(0, len(texts) - 1)
        else:
            made[name] = o.distributions.CategoricalDistribution(texts)
    return made


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
