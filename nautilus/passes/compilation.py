"""Data types of a compilation: request and result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, TypeAlias

from nautilus.core.errors import AssemblerError
from nautilus.core.fallbacks import NO_FALLBACKS, Fallbacks
from nautilus.core.records import dataclass
from nautilus.core.schedule import KernelPlan, Schedule
from nautilus.core.schedule.dispatch import Dispatch, SizeFact, chosen, leaves
from nautilus.core.types import DType
from nautilus.cuda.host.choice import Choice
from nautilus.cuda.host.co_residency import need, waiting
from nautilus.cuda.module import CudaModule
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.passes.dumps import stage_of
from nautilus.passes.instruments import Verify, VerifyLater, VerifyStages
from nautilus.passes.manager import Context, Instrument
from nautilus.passes.pipelines import SPEC
from nautilus.targets.records import DEFAULT_TARGET

Lookup: TypeAlias = Callable[[Any, Context], Schedule | None]  # of a Spec


@dataclass(frozen=True)
class Refusal:
    """A plan of a kernel that ptxas refused, whatever the order of its tiles is."""

    plan: KernelPlan
    error: AssemblerError


@dataclass(frozen=True)
class Request:
    """The input and the options of a compilation. ``until`` names the last stage.

    ``keep_runtime``: a runtime dim in ``dims`` stays one, and its value there is where tools run the kernel.
    ``name``: of the C functions, instead of the name of the file.
    ``schedule`` None: the schedule that ``lookup`` finds for the Spec in a tuning database, else one by rules.
    ``variants``: the most schedules among which the launcher chooses by runtime sizes; with more than one, a variant
    for tensors that are not aligned, and one that needs no blocks at the same time, join them.  ``unaligned``: strides
    that are given at launch, and the addresses of their tensors, are not promised to be multiples of 16 bytes.
    ``noncooperative``: no kernel needs all its blocks at the same time.  ``assumed``: facts about runtime sizes beside
    those of the spec.  ``verified``: the verifier runs after every pass; not where the schedule alone is the result.
    ``verified_later``: it runs after the last one, and after the others when the result is used.  ``verified_stages``:
    it runs after the last pass of each stage, and after the others where it refuses that or a pass fails.  ``refused``:
    plans that ptxas refused, which are not tried again.  ``unpriced``: passes that run wherever they may, whatever they
    predict about the time; those with the option ``always`` do.  ``decided``: choices of an earlier attempt that stay;
    what a user gives is ``schedule``.
    """

    path: Path
    arch: str = DEFAULT_TARGET
    dims: dict[str, int] = field(default_factory=dict)
    schedule: Schedule | None = None
    precision: str = "fast"
    until: str = "cuda"
    text: str | None = None  # replaces the contents of the file
    fallbacks: Fallbacks = NO_FALLBACKS
    explicit: frozenset[str] = frozenset()  # of "arch", "precision": options that override a dump's header
    lookup: Lookup | None = None
    keep_runtime: bool = False
    name: str = ""
    variants: int = 1
    unaligned: bool = False
    noncooperative: bool = False
    assumed: tuple[SizeFact, ...] = ()
    verified: bool = True
    verified_later: bool = False
    verified_stages: bool = False
    refused: tuple[Refusal, ...] = ()
    unpriced: frozenset[str] = frozenset()
    decided: Schedule | None = None

    @property
    def is_spec(self) -> bool:
        """Whether the input is a spec, not a dump."""
        return stage_of(self.path) is SPEC

    @property
    def gives_kernels(self) -> bool:
        """Whether the user gives the plans of kernels, in a schedule or in a dump."""
        return not self.is_spec or (self.schedule is not None and bool(self.schedule.kernels))

    @property
    def context(self) -> Context:
        """The context with which the compilation begins."""
        known = self.decided if self.schedule is None else self.schedule
        return Context(
            self.arch, self.precision, dict(self.dims), known, fallbacks=self.fallbacks,
            keep_runtime=self.keep_runtime, unaligned=self.unaligned, noncooperative=self.noncooperative,
            assumed=tuple(f.text for f in self.assumed), unpriced=self.unpriced,
        )  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """The whole spec under one schedule, for every size at which the facts ``assumed`` hold.

    ``name``: the sizes for which the planner made the schedule; the module has it in its own name.
    """

    name: str
    schedule: Schedule
    module: MemModule
    assumed: tuple[SizeFact, ...] = ()


@dataclass(frozen=True)
class Prediction:
    """Predicted seconds at ``sizes``: of every variant, and of the schedule of a compilation without variants.

    They are infinite for a variant whose facts do not hold, or that was slower at sizes next to these.
    """

    sizes: Mapping[str, int]
    seconds: tuple[float, ...]
    general: float


#: Whether the device runs all blocks of each cooperative launch of a module at the same time.
CoResident: TypeAlias = Callable[[MemModule], bool]


@dataclass(frozen=True)
class Variants:
    """What the launcher chooses from. ``dispatch`` numbers ``sized``; ``points``: the predictions that it rests on.

    ``unaligned``: the variant for strides and addresses that are not multiples of 16 bytes;
    None where no tensor has such strides.  ``noncooperative``: the variant whose blocks do not wait for each other;
    None where those of no variant do.
    """

    sized: tuple[Variant, ...]
    dispatch: Dispatch
    points: tuple[Prediction, ...]
    unaligned: Variant | None = None
    noncooperative: Variant | None = None

    @property
    def all(self) -> tuple[Variant, ...]:
        """All variants, those for unaligned inputs and without teams last."""
        return (*self.sized, *(v for v in (self.unaligned, self.noncooperative) if v is not None))

    def text(self) -> list[str]:
        """A line for each leaf of the dispatch, and for the variant of unaligned tensors: the variant and when."""
        found = [(self.sized[x.variant].name, x.condition) for x in leaves(self.dispatch)]
        lines = [f"{name} {f'where {condition}' if condition else 'always'}" for name, condition in found]
        if self.unaligned is not None:
            lines.insert(0, f"{self.unaligned.name} where a stride or an address is not a multiple of 16 bytes, else")
        needs = [need(v.module) for v in self.all]
        if self.noncooperative is not None:
            where = " or ".join(dict.fromkeys(filter(None, needs)))
            lines.insert(0, f"{self.noncooperative.name} where the device does not run {where}, else")
        return lines

    def launched(self, numbers: Mapping[str, Any], co_resident: CoResident | None = None) -> MemModule:
        """The module that the launcher chooses for aligned addresses and ``numbers``, which are sizes and strides.

        ``co_resident``: what the device answers; None: it runs every variant.
        """
        strides = [p for p in self.sized[0].module.params if p.dtype is DType.I64 and p.multiple > 1]
        if self.unaligned is not None and any(int(numbers[p.name]) % p.multiple for p in strides):
            found = self.unaligned.module
        else:
            found = self.sized[chosen(self.dispatch, numbers)].module
        if self.noncooperative is None or co_resident is None or not waiting(found) or co_resident(found):
            return found
        return self.noncooperative.module


@dataclass
class Result:
    """Modules by stage name (each after its last pass), and the context of the compilation.

    ``tuned``: ``lookup`` found the schedule.  ``lookup_failure``: the reason why the schedule that it found was not
    used.  ``unchecked``: the reason why ptxas did not check the warpgroup MMAs.  ``ptxas_failure``: the failure of the
    warpgroup MMAs of a given schedule or dump in ptxas.  ``spills``: the kernels that spill registers, as far as
    ptxas assembled them, with the bytes a thread.  ``refused``: plans of the attempts before that ptxas refused.
    ``later``: the verifiers that are still to run.
    ``variants``: what the CUDA text holds instead of the MA-tile module alone.
    """

    context: Context
    modules: dict[str, Any] = field(default_factory=dict)
    tuned: bool = False
    lookup_failure: str = ""
    unchecked: str = ""
    ptxas_failure: str = ""
    spills: tuple[tuple[str, int], ...] = ()
    refused: tuple[Refusal, ...] = ()
    later: VerifyLater | None = None
    variants: Variants | None = None

    @property
    def printed(self) -> tuple[MemModule, ...]:
        """The MA-tile modules that the CUDA text holds."""
        return (self.modules["ma-tile"],) if self.variants is None else tuple(v.module for v in self.variants.all)

    @property
    def choice(self) -> Choice:
        """The variants for the host functions; one module where there are none."""
        whole, found = self.modules["ma-tile"], self.variants
        if found is None:
            return Choice.of(whole)
        unaligned, noncooperative = (None if v is None else v.module for v in (found.unaligned, found.noncooperative))
        return Choice(tuple(v.module for v in found.sized), found.dispatch, whole, unaligned, noncooperative)

    def launched(self, sizes: Mapping[str, Any], co_resident: CoResident | None = None) -> MemModule:
        """The MA-tile module that the launcher chooses at ``sizes``, which has strides too.

        ``co_resident``: as for :meth:`Variants.launched`.
        """
        if self.variants is None:
            module: MemModule = self.modules["ma-tile"]
            return module
        return self.variants.launched(sizes, co_resident)

    @property
    def cuda_module(self) -> CudaModule:
        """The CUDA C++ text with its symbols. Raises KeyError where the compilation stopped earlier."""
        module: CudaModule = self.modules["cuda"]
        return module

    @property
    def cuda(self) -> str:
        """The CUDA C++ text. Raises KeyError where the compilation stopped earlier."""
        return self.cuda_module.text


def verifiers(request: Request) -> list[Instrument]:
    """The instrument that verifies the modules of ``request``; those of a dump, which people write, at each step."""
    if not request.verified:
        return []
    if request.verified_later:
        return [VerifyLater()]
    return [VerifyStages() if request.verified_stages and request.is_spec else Verify()]
