"""The lock of a device."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nautilus.runtime.exclusive import exclusive, lock_path
from nautilus.tune.workers.pool import Limit, Pool, Service
from tests.shipped import ROOT

HOLD = """
import sys, time
from pathlib import Path
from nautilus.runtime.exclusive import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holder(path: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(path), str(seconds)]
    found = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert found.stdout is not None and found.stdout.readline() == "held\n"
    return found


def test_names_are_apart() -> None:
    assert lock_path("0") != lock_path("1")
    assert "/" not in lock_path("GPU-12/34").name


def test_it_is_waited_for_and_free_again_when_its_holder_is_killed(tmp_path: Path) -> None:
    path, waited = tmp_path / "lock", []

    @contextmanager
    def waiting() -> Iterator[None]:
        waited.append("begin")
        os.kill(other.pid, signal.SIGKILL)
        yield
        waited.append("end")

    with exclusive(path, waiting):
        assert waited == []  # the lock was free
    other = holder(path, 100.0)
    with exclusive(path, waiting):
        assert waited == ["begin", "end"]
    other.wait()


def test_waiting_for_the_gpu_is_not_the_jobs_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    pool: Pool[str] = Pool([Service("tests.tune.workers.services:locked", (str(path),))], Limit(0.2, 0.8))
    try:
        other = holder(path, 2.0)
        pool.begin("job", None)
        done: list[str] = []
        end = time.monotonic() + 60.0
        while not done and time.monotonic() < end:
            done = [outcome.kind for _, outcome in pool.finished()]
            time.sleep(0.01)
        assert done == ["done"]
        other.wait()
    finally:
        pool.close()
