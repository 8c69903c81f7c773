"""Assembly by ptxas: the kernels in doubt, and the plans that ptxas has refused before.

Kernels without wgmma instructions that need few registers are not assembled to find out whether they are fast.  A plan
that ptxas has refused is not assembled again under another order of tiles, which decides about a few index registers:
compilations of the same spec at other sizes begin with what the general one ended with.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from typing import Any

from nautilus.core.errors import AssemblerError, SpillError
from nautilus.core.records import dataclass
from nautilus.core.schedule import KernelPlan, Schedule, recomputed
from nautilus.cost.registers import may_spill
from nautilus.cuda.module import CudaModule
from nautilus.cuda.names import kernel_symbols
from nautilus.cuda.variants import lower_kernels
from nautilus.ma_tile.analysis.consumers import uses_wgmma
from nautilus.ma_tile.ir.ops import MemKernel, MemModule
from nautilus.passes.compilation import Refusal
from nautilus.passes.manager import Record
from nautilus.passes.pipelines import PLANNED
from nautilus.targets.limits import limits


def doubtful(module: MemModule, arch: str, spills: bool = True) -> tuple[MemKernel, ...]:
    """The kernels of ``module`` that only ptxas can judge; without ``spills``, those with wgmma instructions alone."""
    target = limits(arch)
    return tuple(k for k in module.kernels if uses_wgmma(k) or (spills and may_spill(k, target)))


def text_of(module: MemModule, kernels: tuple[MemKernel, ...], spec: Any) -> CudaModule:
    """``kernels`` of ``module`` with nothing that launches them; errors name them as the schedule does.

    ``spec``: the Spec of ``module``, or None.
    """
    return CudaModule(lower_kernels([(module, kernels)], spec).code, kernel_symbols(module, kernels))


def refusal(error: Exception, schedule: Schedule | None) -> tuple[Refusal, ...]:
    """The refusal that ``error`` is, where it is one by ptxas of a kernel of ``schedule``."""
    if not isinstance(error, AssemblerError) or schedule is None:
        return ()
    kernel = recomputed(error.kernel, schedule)
    return tuple(Refusal(_in_any_order(k), error) for k in schedule.kernels if k.name == kernel)


def without_accepted(refusals: Iterable[Refusal], spilling: frozenset[str]) -> tuple[Refusal, ...]:
    """``refusals`` without those for spills of the kernels ``spilling``, whose spills are accepted after all."""
    return tuple(r for r in refusals if not (isinstance(r.error, SpillError) and r.plan.name in spilling))


def is_refused(schedule: Schedule, refusals: Iterable[Refusal], spilling: frozenset[str] = frozenset()) -> bool:
    """Whether ``schedule`` plans a kernel as ptxas has refused it; ``spilling``: kernels whose spills are accepted."""
    return _found(schedule, refusals, spilling) is not None


@dataclass(frozen=True)
class Refused:
    """An instrument that ends an attempt whose schedule plans a kernel as ptxas has refused it, with that error."""

    refusals: tuple[Refusal, ...]

    def after(self, record: Record) -> None:
        """Raise the error of a kernel that is planned as ptxas has refused it."""
        schedule = record.context.schedule
        if record.base == PLANNED and schedule is not None:
            found = _found(schedule, self.refusals, record.context.fallbacks.spilling)
            if found is not None:
                raise copy(found.error)  # another failure than the one before


def _found(schedule: Schedule, refusals: Iterable[Refusal], spilling: frozenset[str]) -> Refusal | None:
    plans = {_in_any_order(k) for k in schedule.kernels if k.name not in spilling}
    return next((r for r in refusals if r.plan in plans), None)


def _in_any_order(plan: KernelPlan) -> KernelPlan:
    """``plan`` without the numbers that say in which order tiles run."""
    return replace(plan, mapping=replace(plan.mapping, raster_group=1, l2_supertiles=0))
