"""The modules after every step of a compilation, to run both sides of a step on the same inputs.

A :class:`Level` is the module after one step; :func:`run` runs it on the interpreter of its stage.  Steps without a
change have no level.

An MA-tile module runs only with allocated shared memory and barriers.  A level in the middle of that stage therefore
runs after the remaining passes of :data:`FINISHING`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from nautilus.check.inputs import InputSet
from nautilus.core.numerics import Array, Mode, eval_op
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity
from nautilus.frontend.spec import Spec
from nautilus.passes.loading import load_pass
from nautilus.passes.manager import Context, Record, steps
from nautilus.passes.pipelines import Stage, stage

if TYPE_CHECKING:
    from nautilus.ma_tile.interp.module import Launches

#: passes that an MA-tile module needs before it can run
FINISHING = frozenset({"allocate-shared", "synchronize"})
#: stages that the validator compares, and whose interpreters run at larger sizes: a module of MA-tile IR takes too long
STAGES = ("scalar", "vr-tile")


@dataclass(frozen=True, slots=True)
class Level:
    """``module`` of ``stage`` after ``step``; ``subject`` is the name of the step in a report."""

    stage: str
    step: str
    module: Any
    is_lowering: bool
    subject: str
    context: Context = field(default_factory=Context)
    number: int = 0  # steps of its stage that have run
    reorders: bool = False  # the step changes the order of a sum

    @staticmethod
    def of(stage: Stage, step: str, module: Any, context: Context, number: int) -> Level:
        """The level after pass ``step`` of ``stage``."""
        made = stage.passes[number - 1]
        reorders = bool(getattr(load_pass(made.name, made.target), "reorders", False))
        return Level(stage.name, step, module, False, f"{stage.name}/{step}", context, number, reorders)

    @property
    def check(self) -> str:
        """The name of the check of this step in a report."""
        return "lowering" if self.is_lowering else "pass"


@dataclass
class Trace:
    """An instrument that records the module after every step, of the last attempt where a kernel is planned again."""

    levels: list[Level] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    def after(self, record: Record) -> None:
        """Record the module of ``record`` if it changed."""
        if record.number == 0:
            self.levels.clear()
            self.records.clear()
        own = record.stage.name
        number = sum(r.stage.name == own for r in self.records)
        self.records.append(record)
        if not record.changed or own == "cuda":
            return
        above = self.levels[-1].stage if self.levels else own
        lowers = above != own
        if not lowers and record.spec is not None:
            number = record.stage.step_names.index(record.name) + 1
            self.levels.append(Level.of(record.stage, record.name, record.module, record.context, number))
            return
        subject = f"{above} -> {own}" if lowers else f"{own}/{record.name}"
        self.levels.append(Level(own, record.name, record.module, lowers, subject, record.context, number))


def run(level: Level, given: InputSet, mode: Mode, known: Launches | None = None) -> dict[str, Array]:
    """Outputs of ``level`` by name.  A Spec always runs over the reals, an MA-tile module in its own types.

    ``known``: launches of MA-tile modules on ``given``.  Raises the errors of the interpreter.
    """
    with np.errstate(all="ignore"):
        if level.stage == "ma-tile":
            return _run_memory(runnable(level), given, known)
        return _RUNNERS[level.stage](level.module, given, mode)


def output_types(module: Any) -> list[tuple[str, Any]]:
    """Names and types of the outputs of a module or a Spec."""
    if isinstance(module, Spec):
        return [(t.name, t.dtype) for t in module.outputs]
    return [(b.name, b.dtype) for b in module.buffers if b.space.value == "output"]


@by_identity(4)
def runnable(level: Level) -> Any:
    """The module of ``level`` after the remaining passes of :data:`FINISHING`."""
    if level.stage != "ma-tile":
        return level.module
    module = level.module
    for number, step in enumerate(steps(stage("ma-tile"))):
        if number > level.number and step.name in FINISHING:
            module = step.run(module, level.context)
    return module


def _run_spec(module: Any, given: InputSet, mode: Mode) -> dict[str, Array]:
    from nautilus.frontend.interp import run_spec

    values = run_spec(module, given.arrays, given.scalars, given.sizes)
    return {t.name: eval_op("cast", [values[t.name]], t.dtype) for t in module.outputs}


def _run_scalar(module: Any, given: InputSet, mode: Mode) -> dict[str, Array]:
    from nautilus.scalar.interp.program import run_program

    return _outputs(module, run_program(module, given.arrays, _numbers(given), mode))


def _run_tile(module: Any, given: InputSet, mode: Mode) -> dict[str, Array]:
    from nautilus.vr_tile.interp import run_module

    return _outputs(module, run_module(module, given.arrays, _numbers(given), mode))


def _run_memory(module: Any, given: InputSet, known: Launches | None) -> dict[str, Array]:
    from nautilus.ma_tile.interp.module import run_module

    return _outputs(module, run_module(module, given.arrays, _numbers(given), given.seed, known))


_RUNNERS: Mapping[str, Callable[[Any, InputSet, Mode], dict[str, Array]]] = {
    "spec": _run_spec, "scalar": _run_scalar, "vr-tile": _run_tile,
}  # fmt: skip


def _numbers(given: InputSet) -> dict[str, Any]:
    return {**given.scalars, **given.sizes}


def _outputs(module: Any, found: Mapping[str, Any]) -> dict[str, Array]:
    """The outputs among ``found``, in working form."""
    out: dict[str, Array] = {}
    for b in module.buffers:
        if b.space.value == "output":
            x = np.asarray(found[b.name])
            wide = np.float64 if b.dtype.is_float else np.int64 if b.dtype.is_int else np.bool_
            out[b.name] = x.astype(wide)
    return out
