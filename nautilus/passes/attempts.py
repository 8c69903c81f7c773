"""What follows a compilation that failed: the request of the next attempt, and when there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Protocol, TypeAlias

from nautilus.core.errors import ScheduleError, SpillError, UnsupportedError, each_or_failures
from nautilus.core.fallbacks import SMALLER, Failure, Fallbacks
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, recomputed, recomputes
from nautilus.cost.model import estimate
from nautilus.cost.registers import kernel_fault
from nautilus.cuda.module import CudaModule
from nautilus.ma_tile.analysis.code_size import check_code_size
from nautilus.ma_tile.ir.ops import MemKernel, MemModule
from nautilus.passes.compilation import Request, Result
from nautilus.passes.manager import Context, Record, prepared, steps
from nautilus.passes.pipelines import MA_TILE, PLANNED, SCALAR
from nautilus.passes.trials.large import kept_choices
from nautilus.targets.limits import limits

#: Bytes a thread that a kernel may spill without a smaller plan: they are few accesses, which the L1 cache has.
SPILLED = 64
_SMALLER = 1.5  # the least factor by which a plan shrinks because it spills
#: The same of a recurrence, which no smaller plan shrinks: the next one is without the blocks that share its steps.
_STEPS_SMALLER = 2.5
#: How much longer the plan after one that spills may take by the cost model, which does not know of spills.
SLOWER = 1.25


#: a result that ends at the stage of this name -> it with the modules down to MA-tile IR; None where no lowering is
Lower: TypeAlias = Callable[[Result, str], Result | None]


class Resources(Protocol):
    """What an assembler says of a kernel: its symbol, registers a thread, bytes a thread stored by spills."""

    @property
    def kernel(self) -> str:
        """The symbol of the kernel."""
        ...

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        ...

    @property
    def spill_stores(self) -> int:
        """Bytes that a thread stores by spills."""
        ...


@dataclass(frozen=True, slots=True)
class Spilled:
    """A plan of the rules that spills at most half of its registers. ``seconds``: its predicted time.

    ``request``: the request that keeps the plan.  A recurrence may spill more, which counts as more time.
    """

    request: Request
    seconds: float


@dataclass
class Repeated:
    """An instrument that ends an attempt whose schedule is the one that failed before, with the same failure.

    A kernel that the schedule leaves out, such as a recurrence, may change without it.
    """

    schedule: Schedule | None = None
    error: ScheduleError | UnsupportedError | None = None
    planned: Schedule | None = None
    before: Record | None = None  # the step in front of the one that the schedule is complete for
    spilled: Spilled | None = None  # the first plan that only spills registers

    def after(self, record: Record) -> None:
        """Raise the earlier failure where the schedule is complete and has not changed."""
        if record.base != PLANNED:
            self.before = record if self.planned is None else self.before
            return
        self.planned = record.context.schedule
        if self.error is not None and self._plans(self.error.kernel) and self.planned == self.schedule:
            raise self.error

    def repeats(self, kernel: str, fallbacks: Fallbacks) -> bool:
        """Whether the schedule of this attempt, in which ``kernel`` failed, is also that of ``fallbacks``.

        The planner chooses the kernels alone again, because its earlier choices of this attempt took most of the time.
        Smaller plans differ, and the planner compares them with others, which takes as long.
        """
        smaller = any(step == SMALLER for _, step in fallbacks.taken)
        if self.before is None or smaller or not self._plans(kernel):
            return False
        context = self.before.context
        context = replace(context, fallbacks=context.fallbacks.joined(fallbacks))
        step = steps(SCALAR, self.before.name)[0]
        try:
            return prepared(step, self.before.module, context).schedule == self.planned
        except (ScheduleError, UnsupportedError):
            return False

    def kept_plan(self, result: Result, accept: Callable[[Result], None] | None, lower: Lower) -> Request | None:
        """The request that keeps the plan that spilled, where ``result`` is predicted to be slower by :data:`SLOWER`.

        None where ``result`` stays.  Raises what ``accept`` raises for it.
        """
        if accept is not None:
            accept(result)
        if self.spilled is None:
            return None
        slower = _seconds(lower(result, self.spilled.request.until)) > SLOWER * self.spilled.seconds
        return self.spilled.request if slower else None

    def _plans(self, kernel: str) -> bool:
        planned = () if self.planned is None else self.planned.kernels
        return any(k.name == recomputed(kernel, self.planned) for k in planned)


def check_resources(module: MemModule, context: Context, tuned: bool = False) -> None:
    """Raise ScheduleError for a kernel of the rules that is too long to compile or certain to spill many registers.

    A kernel on the last rung of the ladder, one whose spills are accepted, and one that computes tiles again are kept.
    A schedule from the tuning database (``tuned``) was measured with the registers that it has, and the registers of
    roles are left to ptxas, which assembles every kernel with warpgroup MMAs.
    """
    check_code_size(module, context.fallbacks.last)
    kept = context.fallbacks.last | context.fallbacks.spilling

    def check(k: MemKernel) -> None:
        accepted = k.name in kept or recomputes(k.name, context.schedule)
        found = None if accepted else kernel_fault(k, limits(context.arch))
        if found is not None and not found[0]:
            raise ScheduleError(found[1], kernel=k.name)

    each_or_failures(check, () if tuned else module.kernels)


def next_rung(
    known: Fallbacks, error: ScheduleError | UnsupportedError, schedule: Schedule | None, again: bool
) -> Fallbacks | None:
    """``known`` after ``schedule`` failed with ``error``; None where no other plan is left.

    ``again``: the last fallback has left the schedule as it was.  A kernel that computes tiles of another one again has
    the plan of that one.  The other kernels that failed in the same step take their next plans too.
    """
    failed: dict[str, ScheduleError | UnsupportedError] = {}
    for e in (error, *_others(error)):
        failed.setdefault(recomputed(e.kernel, schedule), e)
    first = next(iter(failed))
    if not first or known.exhausted(first):
        return None
    for kernel, e in failed.items():
        if kernel and not known.exhausted(kernel):
            noted = known if again else known.noting(_failure(e, kernel, known))
            known = noted.after(kernel, e.excess if isinstance(e, ScheduleError) else 0.0, again)
    return known


def _others(error: ScheduleError | UnsupportedError) -> tuple[ScheduleError, ...]:
    return error.others if isinstance(error, ScheduleError) else ()


def _failure(error: ScheduleError | UnsupportedError, kernel: str, known: Fallbacks) -> Failure:
    """``error`` as data, at the step of ``kernel`` that it refused."""
    if isinstance(error, ScheduleError):
        return Failure(kernel, known.steps(kernel), error.reason, error.span, error.obstacle)
    return Failure(kernel, known.steps(kernel), error.feature, error.span)


def next_request(
    request: Request, tuned: bool, error: ScheduleError | UnsupportedError, again: bool = False,
    schedule: Schedule | None = None,
) -> Request:  # fmt: skip
    """``request`` after its schedule failed with ``error``. Raises ``error`` where nothing else is to be tried.

    A schedule from the tuning database (``tuned``) is replaced by the default rules.  These have a ladder of
    conservative fallbacks for each kernel (:mod:`nautilus.core.fallbacks`).  What the user gave is kept; a schedule
    says nothing about the kernel of a recurrence.  ``again``, ``schedule``: as for :func:`next_rung`.
    """
    if tuned:
        return replace(request, lookup=None)
    if isinstance(error, SpillError):
        kernel = recomputed(error.kernel, schedule)
        known = request.fallbacks if again else request.fallbacks.noting(_failure(error, kernel, request.fallbacks))
        return replace(request, fallbacks=known.after_spill(kernel, error.excess, again))
    ours = not request.gives_kernels or _left_out(request, error.kernel)
    found = next_rung(request.fallbacks, error, schedule, again) if ours else None
    if found is None:
        raise error
    return replace(request, fallbacks=found)


def next_attempt(
    request: Request, result: Result, repeated: Repeated, error: ScheduleError | UnsupportedError, lower: Lower
) -> tuple[Request, Repeated]:
    """The request after the attempt ``result`` failed with ``error``, as :func:`next_request` finds it.

    ``repeated``: the instrument of that attempt; also that of the next one.  Steps of the fallbacks that leave the
    schedule as it is are not compiled.
    """
    again = error is repeated.error  # before the result has a schedule
    kept = repeated.spilled or _spilled(request, result, error, lower)
    schedule = repeated.planned if again else result.context.schedule
    request = next_request(request, result.tuned, error, again, schedule)
    while not (result.tuned or error.kernel in request.fallbacks.spilling):
        if not repeated.repeats(error.kernel, request.fallbacks):
            break
        request = next_request(request, False, error, True, repeated.planned)
    accepted = error.kernel in request.fallbacks.spilling
    if not result.tuned and request.is_spec:
        request = replace(request, decided=request.decided or kept_choices(schedule))
    return request, Repeated() if accepted else Repeated(repeated.planned, error, spilled=kept)


def _spilled(
    request: Request, result: Result, error: ScheduleError | UnsupportedError, lower: Lower
) -> Spilled | None:  # fmt: skip
    """The plan of ``result``, if it failed with ``error`` for a few spilled registers; None for another failure.

    A plan that is known to spill from another compilation has no kernels here, and no time to compare with.
    """
    planned = () if result.context.schedule is None else result.context.schedule.kernels
    own = recomputed(error.kernel, result.context.schedule)
    most = _SMALLER if any(k.name == own for k in planned) else _STEPS_SMALLER
    excess = error.excess if isinstance(error, SpillError) else inf
    if result.tuned or excess > most or {MA_TILE.name, request.until}.isdisjoint(result.modules):
        return None
    known = request.fallbacks
    kept = replace(known, spilling=known.spilling | {own})
    more = max(1.0, excess / _SMALLER) ** 2
    return Spilled(replace(request, fallbacks=kept), more * _seconds(lower(result, request.until)))


def _seconds(result: Result | None) -> float:
    if result is None:
        return inf
    module = result.modules[MA_TILE.name]
    assert isinstance(module, MemModule)
    return estimate(module, module.target).seconds


def _left_out(request: Request, kernel: str) -> bool:
    """Whether the schedule that the user gave has no plan of ``kernel``."""
    plans = () if request.schedule is None else request.schedule.kernels
    return request.is_spec and all(k.name != recomputed(kernel, request.schedule) for k in plans)


def spills(r: Resources) -> bool:
    """Whether a kernel spills so many registers that a smaller plan may be better."""
    return r.spill_stores > SPILLED


def note_spills(request: Request, result: Result, module: CudaModule, resources: Sequence[Resources]) -> None:
    """Put spilled registers into ``result``. Raises SpillError where a smaller plan of the rules may spill less."""
    spilling = [(module.kernels.get(r.kernel, r.kernel), r) for r in resources if r.spill_stores]
    result.spills = tuple((name, r.spill_stores) for name, r in spilling)
    for name, r in spilling:
        accepted = name in result.context.fallbacks.spilling or recomputes(name, result.context.schedule)
        ours = not (request.gives_kernels or result.tuned or accepted)
        if ours and spills(r):
            excess = max(_SMALLER, 1 + r.spill_stores / (4 * max(r.registers, 1)))
            raise SpillError(f"{r.spill_stores} bytes of registers are spilled", kernel=name, excess=excess)
