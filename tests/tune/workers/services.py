"""Services for tests of workers; a job names the behaviour of its worker."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nautilus.core.errors import ScheduleError
from nautilus.runtime.exclusive import exclusive
from nautilus.tune.workers.build import BuildJob, Built
from nautilus.tune.workers.pool import WorkerUnusable, waiting


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
            raise WorkerUnusable(value)
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


def bowl() -> Callable[[BuildJob], Built]:
    """Builds schedules whose ``inline`` holds numbers: the nearer to 5 the faster; a 7 in front is refused."""

    def serve(job: BuildJob) -> Built:
        assert job.schedule is not None and job.schedule.inline is not None
        numbers = [int(text) for text in job.schedule.inline]
        if numbers[0] == 7:
            return Built(job.schedule, None, failure="seven comes first", refused=True)
        return Built(job.schedule, 1.0 + sum((n - 5) ** 2 for n in numbers))

    return serve
