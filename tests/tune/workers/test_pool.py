"""Workers: jobs that hang, crash and fail; nothing outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from nautilus.tune.workers.pool import (
    DIED,
    DONE,
    ERROR,
    INTERNAL,
    TIMEOUT,
    Limit,
    Outcome,
    Pool,
    Service,
    Worker,
    pause,
)
from tests.shipped import ROOT

OBEDIENT = Service("tests.tune.workers.services:obedient")


def result(worker: Worker, job: Any, limit: float = 30.0) -> Outcome:
    worker.begin(job, limit)
    while (outcome := worker.finish()) is None:
        time.sleep(0.005)
    return outcome


@pytest.fixture
def worker() -> Any:
    made = Worker(OBEDIENT)
    yield made
    made.close()


def test_jobs_share_a_process(worker: Worker) -> None:
    first, second = result(worker, ("pid", 0)), result(worker, ("pid", 0))
    assert first.kind == second.kind == DONE and first.value == second.value != os.getpid()


@pytest.mark.parametrize(
    ("job", "kind", "reason"),
    [
        (("refuse", "no room"), ERROR, "no room"),
        (("raise", "x"), INTERNAL, "ZeroDivisionError: x"),
        (("kill", signal.SIGSEGV), DIED, "the worker process died (SIGSEGV)"),
        (("kill", signal.SIGKILL), DIED, "the worker process died (SIGKILL)"),
        (("exit", 3), DIED, "the worker process died (exit code 3)"),
        (("poison", "illegal address"), DIED, "illegal address"),
    ],
)
def test_a_failure_has_a_reason_and_the_next_job_runs(worker: Worker, job: Any, kind: str, reason: str) -> None:
    before = result(worker, ("pid", 0)).value
    found = result(worker, job)
    assert (found.kind, found.reason) == (kind, reason)
    after = result(worker, ("pid", 0)).value
    assert (after == before) is (kind in (ERROR, INTERNAL))


@pytest.mark.parametrize("job", [("sleep", 100.0), ("deaf", 100.0)])
def test_a_hang_is_killed(worker: Worker, job: Any) -> None:
    pid = result(worker, ("pid", 0)).value
    found = result(worker, job, limit=0.3)
    assert found.kind == TIMEOUT and found.seconds < 5.0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert result(worker, ("echo", 7)).value == 7


def test_a_service_that_cannot_be_made(worker: Worker) -> None:
    bad = Worker(Service("tests.tune.workers.services:broken"))
    try:
        assert result(bad, 1).reason == "cannot be made"
    finally:
        bad.close()


def test_a_pool_runs_jobs_and_adapts_its_limit() -> None:
    pool: Pool[int] = Pool([OBEDIENT, OBEDIENT], Limit(floor=0.5, ceiling=30.0, factor=4.0))
    try:
        todo, done = list(range(8)), {}
        while todo or pool.busy:
            while todo and pool.free:
                n = todo.pop()
                pool.begin(n, ("echo", n * n))
            pause([pool], 0.5)
            done.update({n: o.value for n, o in pool.finished()})
        assert done == {n: n * n for n in range(8)}
        assert pool.limit.seconds == 0.5
    finally:
        pool.close()


def test_the_limit_follows_slow_jobs() -> None:
    limit = Limit(floor=1.0, ceiling=100.0, factor=4.0)
    assert limit.seconds == 100.0
    for seconds in (1.0, 2.0, 3.0):
        limit.observe(seconds)
    assert limit.seconds == 8.0
    for _ in range(40):
        limit.observe(0.01)
    assert limit.seconds == 1.0
    for _ in range(400):
        limit.observe(90.0)
    assert limit.seconds == 100.0


def test_workers_die_with_their_parent() -> None:
    code = (
        "import time\n"
        "from nautilus.tune.workers.pool import *\n"
        "w = Worker(Service('tests.tune.workers.services:obedient'))\n"
        "w.begin(('pid', 0), 30.0)\n"
        "while (o := w.finish()) is None: time.sleep(0.01)\n"
        "w.begin(('sleep', 1000.0), 2000.0)\n"
        "print(o.value, flush=True)\n"
        "time.sleep(1000.0)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    for _ in range(200):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the worker is still there")
