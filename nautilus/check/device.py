"""Runs the kernel of a compilation twice on the GPU with outputs filled with NaN, and compares the bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from nautilus.check.inputs import InputSet
from nautilus.core.errors import ToolchainError, first_line
from nautilus.core.numerics import Array, from_storage, storage_array
from nautilus.driver import Result
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.runtime.capacity import at_capacity, at_sizes

if TYPE_CHECKING:
    from nautilus.runtime.nvrtc import Compiled


def gpu_missing(arch: str) -> str:
    """The reason why a kernel for ``arch`` cannot run on this machine; empty if it can."""
    from nautilus.runtime.device import open_device, runs_on

    try:
        device = open_device()
    except ToolchainError as error:
        return first_line(error)
    return "" if runs_on(arch, device) else f"the GPU is {device.arch}, the kernel is for {arch}"


class Runner:
    """A loaded kernel; :meth:`run` runs it twice on one input set."""

    def __init__(self, session: Any, plan: Any, module: MemModule) -> None:
        self.session, self.plan, self.module = session, plan, module

    def run(self, given: InputSet) -> tuple[dict[str, Array], bool]:
        """Outputs by name, and whether two launches have bitwise equal results.

        Raises ToolchainError after a fault.
        """
        arrays = at_capacity(self.module, given.arrays, given.sizes)
        raw = {a.name: storage_array(arrays[a.name], a.dtype) for a in self.plan.by_role("input")}
        self.session.upload(raw, {**given.scalars, **given.sizes})
        found: list[Mapping[str, Array]] = []
        for _ in range(2):
            self.session.poison()
            self.session.launch()
            found.append(self.session.download())
        first, second = found
        same = all(np.array_equal(_bits(first[n]), _bits(second[n])) for n in first)
        dtypes = {a.name: a.dtype for a in self.plan.by_role("output")}
        made = {n: from_storage(x, dtypes[n]) for n, x in first.items()}
        return at_sizes(self.module, made, given.sizes), same


def _bits(x: Array) -> Array:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


@contextmanager
def opened(result: Result, cubin: Compiled | None = None, sizes: Mapping[str, int] | None = None) -> Iterator[Runner]:
    """The loaded kernel of ``result`` at the runtime sizes ``sizes``; without ``cubin`` NVRTC compiles it.

    Raises ToolchainError if that fails.
    """
    from nautilus.runtime.execute import launched_here, plan_of
    from nautilus.runtime.launch import Session
    from nautilus.runtime.nvrtc import build

    built = cubin or build(result.cuda_module, result.context.arch)
    module = launched_here(result, sizes or {}, built)
    plan = plan_of(module, sizes)
    with Session(built.data, plan, result.context.arch) as session:
        yield Runner(session, plan, module)
