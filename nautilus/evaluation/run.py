"""The run of an evaluation: processes compile cases while one process alone measures what is compiled.

Every finished case is a line of the file at once, so a run that was interrupted, or that was asked for some seconds
only, goes on where it stopped.  A case that fails to compile, faults, or takes too long is a row with the reason, and
the process that it ran in is replaced.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nautilus.bench.rows import Row, append
from nautilus.core.records import dataclass
from nautilus.evaluation.cases import Case
from nautilus.evaluation.rows import started
from nautilus.evaluation.services import Kernel
from nautilus.tune.workers.pool import DONE, Outcome, Pool, pause

AHEAD = 4  # compiled kernels that wait for the GPU


@dataclass(frozen=True)
class Plan:
    """``file`` gets the rows.  ``seconds``: after them no case is begun; 0 for no limit.  ``arch`` is noted in rows."""

    file: Path
    arch: str
    seconds: float = 0.0


def run(plan: Plan, cases: Sequence[Case], compilers: Pool[Case], measurers: Pool[Case]) -> Iterator[Row]:
    """Compile and measure ``cases``, and yield each row when it is written."""
    stop = time.monotonic() + plan.seconds if plan.seconds else float("inf")
    ready: list[tuple[Case, Kernel]] = []
    left, ahead = list(cases), AHEAD + len(compilers.workers)
    found: dict[str, Row] = {c.key: started(c, plan.arch) for c in cases}
    while left or ready or compilers.busy or measurers.busy:
        late = time.monotonic() > stop
        if late and not measurers.busy:
            return
        while not late and ready and measurers.free:
            case, kernel = ready.pop(0)
            measurers.begin(case, kernel)
        while not late and left and compilers.free and len(ready) + len(compilers.busy) < ahead:
            compilers.begin(left[0], left.pop(0))
        pause([compilers, measurers], 1.0)
        for case, outcome in compilers.finished():
            if outcome.kind == DONE:
                found[case.key] |= outcome.value[0]
                ready.append((case, outcome.value[1]))
            else:
                yield _written(plan, found[case.key] | _failed("compilation", outcome))
        for case, outcome in measurers.finished():
            done = outcome.value if outcome.kind == DONE else _failed("measurement", outcome)
            yield _written(plan, found[case.key] | done | {"seconds": round(outcome.seconds, 1)})


def _failed(what: str, outcome: Outcome) -> dict[str, Any]:
    return {"failure": f"{what}: {outcome.reason}"}


def _written(plan: Plan, row: Row) -> Row:
    append(plan.file, row)
    return row
