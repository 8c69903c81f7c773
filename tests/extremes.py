"""Compiled specs and their outputs at every level above the machine, for tests of numbers at the edge of a range."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nautilus.driver import compile_file
from nautilus.passes.compilation import Request, Result
from nautilus.scalar.interp.program import run_program
from nautilus.vr_tile.interp import run_module

_RUNNERS: Mapping[str, Callable[..., Mapping[str, Any]]] = {"scalar": run_program, "vr-tile": run_module}


def compiled(text: str, arch: str = "sm_90a", precision: str = "fast", until: str = "vr-tile") -> Result:
    """The modules of a spec down to the IR ``until``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.naut")
        path.write_text(text, encoding="utf-8")
        return compile_file(Request(path=path, arch=arch, precision=precision, until=until))


def outputs_at(r: Result, inputs: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    """Output ``name`` of the Scalar and the VR-tile IR over the reals and with the rounding of every operation."""
    for stage, run in _RUNNERS.items():
        for mode in ("real", "typed"):
            yield f"{stage} {mode}", run(r.modules[stage], inputs, mode=mode)[name]


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Normal numbers that every 16-bit float type holds."""
    return np.round(rng.standard_normal(shape) * 32) / 32
