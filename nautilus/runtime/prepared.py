"""Launches that are ready: kernels, grids and arguments are fixed, and a launch is one call of the driver.

The structures are those of cuda.h (CUDA Driver API, CUlaunchConfig and CUlaunchAttribute).  They are filled once, and
the driver is called through ctypes, so that a launch allocates, encodes and looks up nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nautilus.core.errors import ToolchainError
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.runtime.cuda_driver import Driver
from nautilus.runtime.device import check

if TYPE_CHECKING:
    from nautilus.runtime.launch import Launch

_PROGRAMMATIC = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_COOPERATIVE = 2  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16)]


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """One launch. ``keep``: what the addresses in ``config`` and ``pointers`` point to."""

    kernel: str
    config: LaunchConfig
    function: int
    pointers: Any
    keep: tuple[Any, ...]


class Prepared:
    """All launches of a kernel, in order."""

    def __init__(self, steps: Sequence[Step], library: Any = None) -> None:
        """``library``: the driver, for ctypes; None: libcuda. Raises ToolchainError without a driver."""
        self.steps = tuple(steps)
        try:
            self._driver = Driver(library)
            self._call: Callable[..., int] = self._driver.library.cuLaunchKernelEx
        except OSError as error:
            raise ToolchainError("CUDA driver", f"no driver on this machine ({error})") from error
        self._ready = [(s.config, ctypes.byref(s.config), ctypes.c_void_p(s.function), s.pointers) for s in steps]

    def launch(self, stream: int = 0) -> None:
        """Enqueue all kernels in ``stream`` (its handle; 0: the legacy default stream). Raises ToolchainError."""
        for n, (config, reference, function, pointers) in enumerate(self._ready):
            config.stream = stream
            status = self._call(reference, function, pointers, None)
            if status:
                check(self._driver, (status,), f"launching {self.steps[n].kernel}")


def step(launch: Launch, function: int, cells: Sequence[Array]) -> Step:
    """``launch`` of the kernel with the handle ``function``; each of ``cells`` holds the bytes of an argument."""
    config = LaunchConfig(launch.grid, launch.block, launch.smem, 0, 0, 0)
    attribute = LaunchAttribute(_COOPERATIVE if launch.cooperative else _PROGRAMMATIC, 0, (ctypes.c_int * 16)(1))
    if launch.programmatic or launch.cooperative:
        config.attributes, config.count = ctypes.addressof(attribute), 1
    pointers = (ctypes.c_void_p * max(1, len(cells)))(*(c.ctypes.data for c in cells))
    return Step(launch.kernel, config, function, pointers, (attribute, *cells))


def cells_of(
    launch: Launch,
    address: Mapping[str, int],
    scalars: Mapping[str, Array],
    maps: Mapping[str, Array],
    counter: int = 0,
) -> list[Array]:
    """The arguments of ``launch``: addresses of buffers, values of scalars (arrays of one element), tensor maps."""
    cells = [scalars[n] if n in scalars else np.array([address[n]], dtype=np.uint64) for n in launch.args]
    cells += [maps[m.name] for m in launch.maps]
    return [*cells, *([np.array([counter], dtype=np.uint64)] if launch.counter else [])]
