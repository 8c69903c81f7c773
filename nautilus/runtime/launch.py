"""Loads a cubin, uploads arrays, launches the kernels, and downloads the results.

A :class:`Plan` describes arguments and launches independently of any IR.  Outputs and temps start as 0xFF bytes (NaN in
every float type), so elements without a store are visible.  Every CUDA error becomes a ToolchainError (exit code 3)
that names the failed action.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from itertools import pairwise
from math import prod
from types import TracebackType
from typing import Any

import numpy as np

from nautilus.core.buffers import TensorMap
from nautilus.core.errors import ToolchainError
from nautilus.core.index.sizes import Extent
from nautilus.core.index.strides import places, span, spread
from nautilus.core.numerics import Array, storage_array, storage_numpy
from nautilus.core.records import dataclass
from nautilus.core.types import FORMATS, DType
from nautilus.runtime.cuda_driver import MAP_PROMOTIONS, MAP_SWIZZLES, MAP_TYPES, MAX_DYNAMIC_SHARED
from nautilus.runtime.device import Device, bindings, check, co_resident_blocks, open_device, runs_on
from nautilus.runtime.prepared import Prepared, cells_of, step
from nautilus.targets.limits import SMEM_WITHOUT_OPT_IN


@dataclass(frozen=True, slots=True)
class Argument:
    """A buffer (``role`` input, output or temp) or a scalar (``shape`` empty); row-major without ``strides``."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    role: str
    strides: tuple[int, ...] | None = None

    @property
    def bytes(self) -> int:
        """Bytes of the buffer, gaps between its rows included."""
        count = prod(self.shape) if self.strides is None else span(self.shape, self.strides)
        return count * self.dtype.bytes


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch. ``smem``: dynamic shared memory in bytes; ``args``: names, in order, then ``maps``."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem: int
    args: tuple[str, ...]
    maps: tuple[TensorMap, ...] = ()
    cluster: int = 1  # blocks in a cluster (an attribute of the kernel); divides the grid
    counter: bool = False  # the last argument is the tile counter: 0 before and after every launch
    programmatic: bool = False  # programmatic dependent launch: may start before the previous kernel ends
    cooperative: bool = False  # all blocks run at the same time, or the launch fails


@dataclass(frozen=True, slots=True)
class Plan:
    """All arguments, and all launches in order."""

    arguments: tuple[Argument, ...]
    launches: tuple[Launch, ...]

    def by_role(self, *roles: str) -> tuple[Argument, ...]:
        """The arguments of ``roles``, in order."""
        return tuple(a for a in self.arguments if a.role in roles)


class Session:
    """A loaded cubin with its buffers on the GPU; a context manager.

    ``shared``: device memory of inputs that the caller owns and fills; :meth:`upload` does not write it.
    """

    def __init__(
        self, cubin: bytes, plan: Plan, arch: str, ordinal: int = 0, shared: Mapping[str, Any] | None = None
    ) -> None:
        self.plan = plan
        self._shared = dict(shared or {})
        self.driver = bindings()
        self.device: Device = open_device(ordinal)
        if not runs_on(arch, self.device):
            message = f"the kernel is for {arch}, but the GPU {self.device.name} has {self.device.arch}"
            raise ToolchainError("CUDA driver", message)
        self._buffers: dict[str, Any] = {}
        self._scalars: dict[str, Array] = {}
        self._maps: dict[tuple[str, str], Array] = {}
        self._module: Any = None
        self._ordinal = ordinal
        self._functions: dict[str, Any] = {}
        self._prepared: Prepared | None = None
        d = self.driver
        self._handle = check(d, d.cuDeviceGet(ordinal), "opening the GPU")
        context = check(d, d.cuDevicePrimaryCtxRetain(self._handle), "opening a context")
        check(d, d.cuCtxSetCurrent(context), "opening a context")
        try:
            self._open(cubin)
        except ToolchainError:
            self.close()
            raise

    def _open(self, cubin: bytes) -> None:
        d = self.driver
        self._module = check(d, d.cuModuleLoadData(cubin), "loading the kernel")
        for launch in self.plan.launches:
            name, limit = launch.kernel, self.device.shared_per_block
            if launch.smem > limit:
                message = f"{name} needs {launch.smem} bytes of shared memory; the GPU has {limit}"
                raise ToolchainError("CUDA driver", message)
            function = self._functions[name] = _function(d, self._module, launch)
            if launch.cooperative:
                self._check_co_resident(launch, int(function))
        self._buffers.update({a.name: self._shared[a.name] for a in self.plan.arguments if a.name in self._shared})
        for a in self.plan.by_role("input", "output", "temp"):
            if a.name in self._shared:
                continue
            self._buffers[a.name] = check(d, d.cuMemAlloc(max(a.bytes, 16)), f"allocating {a.name} ({a.bytes} bytes)")
        for launch in self.plan.launches:
            if launch.counter:
                self._buffers[launch.kernel] = check(d, d.cuMemAlloc(16), "allocating a counter of tiles")
                check(d, d.cuMemsetD8(self._buffers[launch.kernel], 0, 16), "clearing a counter of tiles")
            for m in launch.maps:
                self._maps[(launch.kernel, m.name)] = encode(d, m, int(self._buffers[m.buffer]))
        self.poison()

    def _check_co_resident(self, launch: Launch, function: int) -> None:
        """Raise ToolchainError where the device does not run all blocks of ``launch`` at the same time."""
        found = co_resident_blocks(self.driver, self._ordinal, function, prod(launch.block), launch.smem)
        if prod(launch.grid) > found:
            need = f"{launch.kernel} needs all of its {prod(launch.grid)} blocks at the same time"
            raise ToolchainError("CUDA driver", f"{need}; the GPU runs {found}")

    def poison(self) -> None:
        """Fill outputs and temps with 0xFF bytes."""
        d = self.driver
        for a in self.plan.by_role("output", "temp"):
            if a.bytes:
                check(d, d.cuMemsetD8(self._buffers[a.name], 0xFF, a.bytes), f"clearing {a.name}")

    def upload(self, inputs: Mapping[str, Array], scalars: Mapping[str, int | float | bool]) -> None:
        """Set inputs (raw storage arrays) and scalars.  Raises ToolchainError for a wrong shape or a missing scalar."""
        d = self.driver
        self._prepared = None
        for a in self.plan.by_role("input"):
            if a.name in self._shared:
                continue
            raw = np.asarray(inputs[a.name], dtype=storage_numpy(a.dtype), order="C")  # keeps a shape without axes
            if raw.shape != a.shape:
                raise ToolchainError("launch", f"{a.name} has shape {raw.shape} instead of {a.shape}")
            if a.strides is not None:
                raw = spread(raw, a.shape, a.strides)
            if a.bytes:
                check(d, d.cuMemcpyHtoD(self._buffers[a.name], raw.ctypes.data, a.bytes), f"copying {a.name}")
        for a in self.plan.by_role("scalar"):
            if a.name not in scalars:
                raise ToolchainError("launch", f"scalar {a.name} has no value")
            self._scalars[a.name] = storage_array(np.asarray(scalars[a.name]), a.dtype).reshape(1)

    def address(self, name: str) -> int:
        """The device address of buffer ``name``; valid until :meth:`close`."""
        return int(self._buffers[name])

    def launch(self, stream: Any = 0) -> None:
        """Enqueue all kernels in order, in ``stream`` (a CUstream; 0: the legacy default stream)."""
        if self._prepared is None:
            self._prepared = self._prepare()
        self._prepared.launch(int(stream))

    def _prepare(self) -> Prepared:
        """The launches with the scalars of the last :meth:`upload`."""
        address = {name: int(pointer) for name, pointer in self._buffers.items()}
        steps = []
        for launch in self.plan.launches:
            maps = {m.name: self._maps[(launch.kernel, m.name)] for m in launch.maps}
            counter = address.get(launch.kernel, 0) if launch.counter else 0
            cells = cells_of(launch, address, self._scalars, maps, counter)
            steps.append(step(launch, int(self._functions[launch.kernel]), cells))
        return Prepared(steps)

    def wait(self) -> None:
        """Wait for the kernels.  Raises ToolchainError after a fault in a kernel."""
        names = ", ".join(k.kernel for k in self.plan.launches)
        check(self.driver, self.driver.cuCtxSynchronize(), f"running {names}")

    def download(self) -> dict[str, Array]:
        """The outputs as raw storage arrays."""
        self.wait()
        d = self.driver
        out: dict[str, Array] = {}
        for a in self.plan.by_role("output"):
            raw = np.empty(a.bytes // a.dtype.bytes, dtype=storage_numpy(a.dtype))
            if a.bytes:
                check(d, d.cuMemcpyDtoH(raw.ctypes.data, self._buffers[a.name], a.bytes), f"copying {a.name}")
            out[a.name] = raw.reshape(a.shape) if a.strides is None else places(raw, a.shape, a.strides).copy()
        return out

    def seconds(self, repeats: int = 10, warmup: int = 3) -> list[float]:
        """Seconds of each of ``repeats`` runs of all kernels by CUDA events, after ``warmup`` runs."""
        d = self.driver
        for _ in range(warmup):
            self.launch()
        self.wait()
        marks = [check(d, d.cuEventCreate(0)) for _ in range(repeats + 1)]
        check(d, d.cuEventRecord(marks[0], 0))
        for mark in marks[1:]:
            self.launch()
            check(d, d.cuEventRecord(mark, 0))
        self.wait()
        times = [1e-3 * float(check(d, d.cuEventElapsedTime(a, b))) for a, b in pairwise(marks)]
        for mark in marks:
            d.cuEventDestroy(mark)
        return times

    def close(self) -> None:
        """Free all memory and the module; errors are ignored, because nothing can be freed after a fault."""
        d = self.driver
        for name, pointer in self._buffers.items():
            if name not in self._shared:
                d.cuMemFree(pointer)
        self._buffers.clear()
        if self._module is not None:
            d.cuModuleUnload(self._module)
            self._module = None
        d.cuDevicePrimaryCtxRelease(self._handle)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _function(d: Any, module: Any, launch: Launch) -> Any:
    """The handle of the kernel of ``launch``, with its shared memory allowed."""
    name = launch.kernel
    found = check(d, d.cuModuleGetFunction(module, name.encode()), f"looking up {name}")
    if launch.smem > SMEM_WITHOUT_OPT_IN:
        check(d, d.cuFuncSetAttribute(found, MAX_DYNAMIC_SHARED, launch.smem), f"preparing {name}")
    return found


def runs_all_blocks(cubin: bytes, plan: Plan, ordinal: int = 0) -> bool:
    """Whether the GPU runs all blocks of each cooperative launch of ``plan`` at the same time (or ToolchainError)."""
    d, limit = bindings(), open_device(ordinal).shared_per_block
    handle = check(d, d.cuDeviceGet(ordinal), "opening the GPU")
    check(d, d.cuCtxSetCurrent(check(d, d.cuDevicePrimaryCtxRetain(handle), "opening a context")), "opening a context")
    module = check(d, d.cuModuleLoadData(cubin), "loading the kernels")

    def runs(launch: Launch) -> bool:
        if launch.smem > limit:
            return False
        function = int(_function(d, module, launch))
        return prod(launch.grid) <= co_resident_blocks(d, ordinal, function, prod(launch.block), launch.smem)

    try:
        return all(runs(x) for x in plan.launches if x.cooperative)
    finally:
        d.cuModuleUnload(module)
        d.cuDevicePrimaryCtxRelease(handle)


def encode(driver: Any, m: TensorMap, base: int) -> Array:
    """The 128 bytes of a tensor map, 64-byte aligned (CUDA Driver API, cuTensorMapEncodeTiled).

    Raises ToolchainError where the driver rejects the parameters.
    """
    rank = len(m.sizes)
    sizes, strides = ((ctypes.c_uint64 * rank)(*map(_known, e)) for e in (m.sizes, m.strides))
    box, unit = (ctypes.c_uint32 * rank)(*m.box), (ctypes.c_uint32 * rank)(*(1,) * rank)
    room = np.zeros(24, dtype=np.uint64)
    first = -(room.ctypes.data // 8) % 8
    made: Array = room[first : first + 16]
    kind, promotion = MAP_TYPES.index(FORMATS[m.dtype].tensor_map), MAP_PROMOTIONS.index(m.promotion)
    status = driver.cuTensorMapEncodeTiled(
        made.ctypes.data, kind, rank, base, sizes, strides, box, unit, 0, MAP_SWIZZLES[m.swizzle], promotion, 0
    )
    check(driver, status, f"encoding the tensor map {m.name}")
    return made


def _known(extent: Extent) -> int:
    assert isinstance(extent, int), extent  # sizes of a launch are known
    return extent


def run_plan(
    cubin: bytes,
    plan: Plan,
    arch: str,
    inputs: Mapping[str, Array],
    scalars: Mapping[str, int | float | bool],
) -> dict[str, Array]:
    """Outputs (raw storage arrays) of one run.  Raises ToolchainError after a CUDA error."""
    with Session(cubin, plan, arch) as session:
        session.upload(inputs, scalars)
        session.launch()
        return session.download()
