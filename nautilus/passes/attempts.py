"""What follows a compilation that failed: the request of the next attempt, and when there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from nautilus.core.errors import ScheduleError, SpillError, UnsupportedError
from nautilus.core.schedule import Schedule, recomputed
from nautilus.cost.registers import kernel_fault
from nautilus.cuda.module import CudaModule
from nautilus.ma_tile.analysis.code_size import check_code_size
from nautilus.passes.compilation import Request, Result
from nautilus.passes.manager import Record
from nautilus.passes.pipelines import MA_TILE, SCALAR
from nautilus.targets.limits import limits

_PLANNED = SCALAR.decisions[-1]  # the pass before which the schedule is complete
#: Bytes a thread that a kernel may spill without a smaller plan: they are few accesses, which the L1 cache has.
_SPILLED = 64
_SMALLER = 1.5  # the least factor by which a plan shrinks because it spills


class Resources(Protocol):
    """What an assembler says of a kernel: its symbol, registers a thread, bytes a thread stored by spills."""

    @property
    def kernel(self) -> str: ...
    @property
    def registers(self) -> int: ...
    @property
    def spill_stores(self) -> int: ...


@dataclass
class Repeated:
    """An instrument that ends an attempt whose schedule is the one that failed before, with the same failure."""

    schedule: Schedule | None = None
    error: ScheduleError | UnsupportedError | None = None
    planned: Schedule | None = None

    def after(self, record: Record) -> None:
        if record.base != _PLANNED:
            return
        self.planned = record.context.schedule
        if self.error is not None and self.planned == self.schedule:
            raise self.error


def check_resources(request: Request, result: Result) -> None:
    """Raise ScheduleError for a kernel of the rules that is too long to compile or certain to spill many registers.

    A kernel on the last rung of the ladder, one whose spills are accepted, and one that computes tiles again are kept.
    """
    module, target = result.modules[MA_TILE.name], limits(result.context.arch)
    check_code_size(module, request.fallbacks.last)
    kept = request.fallbacks.last | request.fallbacks.spilling
    for k in () if result.tuned else module.kernels:
        again = recomputed(k.name, result.context.schedule) != k.name
        if k.name not in kept and not again and (found := kernel_fault(k, target)) is not None:
            raise ScheduleError(found[1], kernel=k.name)


def next_request(
    request: Request, tuned: bool, error: ScheduleError | UnsupportedError, again: bool = False,
    schedule: Schedule | None = None,
) -> Request:  # fmt: skip
    """``request`` after its schedule failed with ``error``. Raises ``error`` where nothing else is to be tried.

    A schedule from the tuning database (``tuned``) is replaced by the default rules.  These have a ladder of
    conservative fallbacks for each kernel (:mod:`nautilus.core.fallbacks`).  What the user gave is kept.  ``again``:
    the last fallback has left the schedule as it was.  ``schedule``: the one that failed.  A kernel that computes tiles
    of another one again has the plan of that one.
    """
    if tuned:
        return replace(request, lookup=None)
    kernel, known = recomputed(error.kernel, schedule), request.fallbacks
    if isinstance(error, SpillError):
        return replace(request, fallbacks=known.after_spill(kernel, error.excess, again))
    if not kernel or request.gives_kernels or known.exhausted(kernel):
        raise error
    excess = error.excess if isinstance(error, ScheduleError) else 0.0
    return replace(request, fallbacks=known.after(kernel, excess, again))


def note_spills(request: Request, result: Result, module: CudaModule, resources: Sequence[Resources]) -> None:
    """Put spilled registers into ``result``. Raises SpillError where a smaller plan of the rules may spill less."""
    spilling = [(module.kernels.get(r.kernel, r.kernel), r) for r in resources if r.spill_stores]
    result.spills = tuple((name, r.spill_stores) for name, r in spilling)
    for name, r in spilling:
        accepted = name in result.context.fallbacks.spilling or recomputed(name, result.context.schedule) != name
        ours = not (request.gives_kernels or result.tuned or accepted)
        if ours and r.spill_stores > _SPILLED:
            excess = max(_SMALLER, 1 + r.spill_stores / (4 * max(r.registers, 1)))
            raise SpillError(f"{r.spill_stores} bytes of registers are spilled", kernel=name, excess=excess)
