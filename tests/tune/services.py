"""Services for tests of workers: what a job says, happens."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nautilus.core.errors import ScheduleError
from nautilus.tune.exclusive import exclusive
from nautilus.tune.workers import Poisoned, waiting


def obedient(start: float = 0.0) -> Callable[[Any], Any]:
    time.sleep(start)

    def serve(job: Any) -> Any:
        what, value = job
        if what == "sleep":
            time.sleep(value)
        if what == "kill":
            os.kill(os.getpid(), value)
        if what == "exit":
            sys.exit(value)
        if what == "refuse":
            raise ScheduleError(value)
        if what == "raise":
            raise ZeroDivisionError(value)
        if what == "poison":
            raise Poisoned(value)
        if what == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(value)
        return os.getpid() if what == "pid" else value

    return serve


def locked(path: str) -> Callable[[Any], Any]:
    def serve(job: Any) -> Any:
        with exclusive(Path(path), waiting):
            return job

    return serve


def broken() -> Any:
    raise ScheduleError("cannot be made")
