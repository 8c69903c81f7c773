"""The two services of an evaluation, each in processes of its own: one compiles cases, one measures them on the GPU."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from nautilus.bench.bench import Settings, arguments, bench
from nautilus.bench.count import flops
from nautilus.bench.rows import Row
from nautilus.bench.table import as_dict
from nautilus.core.errors import ToolchainError, first_line
from nautilus.core.records import dataclass
from nautilus.driver import Request, Result, build_cubin
from nautilus.evaluation.cases import Case
from nautilus.evaluation.rows import measured, predicted
from nautilus.tune.database.lookup import tuned_schedule
from nautilus.tune.workers.pool import WorkerUnusable

if TYPE_CHECKING:
    from nautilus.runtime.nvrtc import Compiled

#: operations up to which all elements are compared with an evaluation in float64; beyond it, sampled rows
COMPARED = 4e12

Kernel: TypeAlias = "tuple[Result, Compiled]"


@dataclass(frozen=True)
class Compiler:
    """The service that compiles: a case to the row's part from the compiler, and the kernel."""

    specs: str
    arch: str

    def __call__(self, case: Case) -> tuple[Row, Kernel]:
        """Raises what the compilation raises."""
        path = Path(self.specs) / f"{case.spec}.naut"
        kernel = build_cubin(Request(path, self.arch, dict(case.dims), lookup=tuned_schedule))
        return predicted(kernel[0]), kernel


@dataclass(frozen=True)
class Measurer:
    """The service that measures: a kernel to the row's part from the GPU.  Inputs are random; scalars have defaults."""

    settings: Settings

    def __call__(self, kernel: Kernel) -> Row:
        """Raises WorkerUnusable for a failure of the GPU, after which the process must not be used again."""
        result, cubin = kernel
        few = flops(result.modules["spec"], {}) <= COMPARED
        given, scalars = arguments(result, {}, {}, self.settings.seed)
        try:
            return measured(as_dict(bench(result, replace(self.settings, elements=few), given, scalars, cubin)))
        except ToolchainError as error:
            raise WorkerUnusable(first_line(error)) from error
        finally:
            _release()


def _release() -> None:
    """Give memory that the allocator of torch holds back to the GPU."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
