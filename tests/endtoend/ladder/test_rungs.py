"""Random specs on each rung of the ladder of fallbacks: every level is right, and the last rung never fails."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nautilus.check.levels import Trace
from nautilus.core.errors import ScheduleError, each_or_failures
from nautilus.core.fallbacks import PLAIN, SMALLER, UNFUSED, Fallbacks
from nautilus.driver import Request, Result, compile_file
from nautilus.passes.manager import Record
from tests.endtoend import fuzz, fuzz_products
from tests.endtoend.support import Compilation, compiled, complaints

SEEDS = range(int(os.environ.get("NAUTILUS_FUZZ", "4")))
EXCESS = {SMALLER: 16.0, UNFUSED: 4.0, PLAIN: 0.0}  # of the planted failures


@dataclass
class Down:
    """An instrument that refuses each kernel until it is on ``rung``, and shrinks it there by ``EXCESS``."""

    rung: int
    asked: set[str] = field(default_factory=set)

    def after(self, record: Record) -> None:
        if (record.stage.name, record.base) != ("ma-tile", "lower"):
            return
        assert record.context.schedule is not None
        names, fallbacks = [k.name for k in record.context.schedule.kernels], record.context.fallbacks
        if self.rung > SMALLER:  # there many kernels take many steps, so all are refused at once, as passes refuse them
            each_or_failures(lambda name: self.refuse(name, fallbacks), names)
            return
        for name in names:
            self.refuse(name, fallbacks)

    def refuse(self, name: str, fallbacks: Fallbacks) -> None:
        """Raise ScheduleError where kernel ``name`` is not on the rung yet."""
        step = fallbacks.steps(name)
        if step < self.rung:
            self.asked.add(name)
            raise ScheduleError("planted", kernel=name, excess=EXCESS[self.rung] if step == SMALLER - 1 else 0.0)


def descended(text: str, rung: int, arch: str) -> Compilation:
    """``text`` with every kernel on ``rung``."""
    trace, down = Trace(), Down(rung)
    result = compile_file(Request(Path("given.naut"), arch, text=text), [trace, down])
    assert down.asked
    return Compilation(result, tuple(trace.levels))


def loops_alone(result: Result) -> bool:
    """Whether no kernel uses shared memory or products of tiles."""
    module = result.modules["ma-tile"]
    return all(k.smem_bytes == 0 for k in module.kernels) and "mma" not in result.cuda_module.code


#: Products of single elements, and those apart from what follows, take the interpreter up to a minute, so few run.
CASES = [
    (seed, make, rung)
    for seed in SEEDS
    for make in (fuzz.program, fuzz_products.program)
    for rung in (SMALLER, UNFUSED, PLAIN)
    if make is fuzz.program or rung == SMALLER or seed % 4 == 1 or (seed % 4 == 3 and rung == UNFUSED)
]


@pytest.mark.parametrize("seed, make, rung", CASES)
def test_every_rung_is_right(seed: int, make, rung: int) -> None:  # type: ignore[no-untyped-def]
    text = make(seed)
    made = descended(text, rung, ("sm_80", "sm_90a", "sm_89")[seed % 3])
    wrong = complaints(made)
    assert not wrong, "\n".join([*wrong, text])
    assert rung < PLAIN or loops_alone(made.result)
    if seed % 4 == 0:
        compiled(made)
