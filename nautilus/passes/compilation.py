"""Data types of a compilation: what to compile, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from nautilus.core.fallbacks import NO_FALLBACKS, Fallbacks
from nautilus.core.schedule import Schedule
from nautilus.cuda.module import CudaModule
from nautilus.passes.dumps import stage_of
from nautilus.passes.manager import Context
from nautilus.passes.pipelines import SPEC
from nautilus.targets.records import DEFAULT_TARGET

Lookup: TypeAlias = Callable[[Any, Context], Schedule | None]  # of a Spec


@dataclass(frozen=True)
class Request:
    """What to compile, and how. ``until`` names the last stage.

    ``schedule`` None: the one that ``lookup`` (of a tuning database) finds for the Spec, else by rules.
    """

    path: Path
    arch: str = DEFAULT_TARGET
    dims: dict[str, int] = field(default_factory=dict)
    schedule: Schedule | None = None
    precision: str = "fast"
    until: str = "cuda"
    text: str | None = None  # instead of the file's
    fallbacks: Fallbacks = NO_FALLBACKS
    explicit: frozenset[str] = frozenset()  # of "arch", "precision": wins over what a dump says
    lookup: Lookup | None = None

    @property
    def is_spec(self) -> bool:
        """Whether the input is a spec, not a dump."""
        return stage_of(self.path) is SPEC

    @property
    def gives_kernels(self) -> bool:
        """Whether the kernels' plans are the user's own: in a schedule, or in a dump."""
        return not self.is_spec or (self.schedule is not None and bool(self.schedule.kernels))


@dataclass
class Result:
    """Modules by stage name (each after its last pass), and the context they were made in.

    ``tuned``: the schedule is the one that ``lookup`` found; ``lookup_failure``: why that one did not serve.
    ``unchecked``: why ptxas was not asked about warpgroup MMAs; ``ptxas_failure``: what it has against those of a
    schedule or a dump that was given.
    """

    context: Context
    modules: dict[str, Any] = field(default_factory=dict)
    tuned: bool = False
    lookup_failure: str = ""
    unchecked: str = ""
    ptxas_failure: str = ""

    @property
    def cuda_module(self) -> CudaModule:
        """The CUDA C++ text with its symbols. Raises KeyError where the compilation stopped earlier."""
        module: CudaModule = self.modules["cuda"]
        return module

    @property
    def cuda(self) -> str:
        """The CUDA C++ text. Raises KeyError where the compilation stopped earlier."""
        return self.cuda_module.text
