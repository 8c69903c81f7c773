"""The time that a launch takes on the host, beside that of a kernel which is empty.

    python -m nautilus.api.launch_time specs/rowwise/softmax.naut specs/attention/causal_prefill.naut

Every spec becomes a shared library.  Its plan is prepared once, and a loop in C++ launches it in batches that are
smaller than the queue of the driver, waits for the device after each batch, and divides the time of a batch by its
launches.  The empty kernel is launched by the same loop with ``cuLaunchKernel`` and nothing else, so its time is that
of the driver.  The table has the median and the least batch, for each kernel that a plan launches.  The last column is
the launch of a prepared kernel of the Python interface.
"""

from __future__ import annotations

import ctypes
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import click

from nautilus.api.memory import DeviceArray
from nautilus.cli.compiling import table
from nautilus.core.errors import InputError
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.cuda.names import module_names
from nautilus.driver import Request, build_cubin
from nautilus.export.host_compiler import compile_library
from nautilus.export.library import Part, library_text
from nautilus.export.manifest import manifest
from nautilus.runtime.device import bindings, check, default_arch
from nautilus.runtime.nvrtc import compile_cuda

_BATCH = 64  # launches of a batch; the queue of the driver holds 1024
_BATCHES = 200
_EMPTY = 'extern "C" __global__ void empty() {}'
_LOOP = """
#include <chrono>
using Size = unsigned;
using Call = int (*)(void*, Size, Size, Size, Size, Size, Size, Size, void* stream, void**, void**);
struct Plan { Call call; void* function; };
extern "C" __attribute__((visibility("default"))) int launch_empty(const void* plan, void* stream) {
    const Plan* p = static_cast<const Plan*>(plan);
    return p->call(p->function, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr);
}
// Nanoseconds of a batch of launches; -1 - the status where one fails.
extern "C" __attribute__((visibility("default"))) double batch(
    int (*launch)(const void*, void*), const void* plan, void* stream, int count) {
    const auto start = std::chrono::steady_clock::now();
    for (int n = 0; n < count; ++n)
        if (const int status = launch(plan, stream)) return -1.0 - status;
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
}
"""
Batch = Callable[[], float]  # nanoseconds of _BATCH launches


@dataclass(frozen=True, slots=True)
class HostTime:
    """Nanoseconds of each of the ``kernels`` of a plan: the median and the least batch, and those from Python."""

    name: str
    kernels: int
    middle: float
    least: float
    python: float | None = None

    def row(self) -> dict[str, Any]:
        """The cells of the table, in microseconds."""
        python = "" if self.python is None else f"{self.python / 1e3:.2f}"
        times = {"median us": f"{self.middle / 1e3:.2f}", "least us": f"{self.least / 1e3:.2f}", "python us": python}
        return {"launch": self.name, "kernels": self.kernels, **times}


def measured(batch: Batch, wait: Callable[[], object], kernels: int) -> tuple[float, float]:
    """The median and the least time of a launched kernel in nanoseconds; ``wait``: for the device after a batch.

    Raises InputError where a launch fails.
    """
    times = []
    for n in range(_BATCHES + 8):
        spent = batch()
        wait()
        if spent < 0:
            raise InputError(f"the launch fails with CUDA error {-1 - spent:.0f}")
        if n >= 8:  # the first ones load code and fill caches
            times.append(spent / _BATCH / kernels)
    return median(times), min(times)


class Host:
    """The loop, loaded into this process, and the driver with a context."""

    def __init__(self, folder: Path) -> None:
        self.driver = bindings()
        device = check(self.driver, self.driver.cuDeviceGet(0), "opening the GPU")
        context = check(self.driver, self.driver.cuDevicePrimaryCtxRetain(device), "opening a context")
        check(self.driver, self.driver.cuCtxSetCurrent(context), "opening a context")
        self.loop = loaded(compile_library(_LOOP, "so"), folder / "loop.so")
        self.loop.batch.restype = ctypes.c_double

    def wait(self) -> None:
        """Wait until the device has finished all work.  Raises ToolchainError after a fault."""
        check(self.driver, self.driver.cuCtxSynchronize(), "running")

    def time(self, launch: Any, plan: Any, kernels: int) -> tuple[float, float]:
        """As :func:`measured`, for a C function that launches ``plan``."""
        return measured(lambda: float(self.loop.batch(launch, plan, None, _BATCH)), self.wait, kernels)

    def empty(self) -> HostTime:
        """The time of a kernel without arguments and work."""
        cubin = compile_cuda(_EMPTY, default_arch()).data
        module = check(self.driver, self.driver.cuModuleLoadData(cubin), "loading a kernel")
        function = check(self.driver, self.driver.cuModuleGetFunction(module, b"empty"))
        call = ctypes.cast(self.driver.library.cuLaunchKernel, ctypes.c_void_p)
        plan = (ctypes.c_void_p * 2)(call.value, int(function))
        return HostTime("an empty kernel", 1, *self.time(self.loop.launch_empty, plan, 1))


def loaded(library: bytes, path: Path) -> ctypes.CDLL:
    """The library, which is written to ``path`` first."""
    path.write_bytes(library)
    return ctypes.CDLL(str(path))


def of_spec(host: Host, path: Path, folder: Path) -> HostTime:
    """The time of the launches of a spec, whose sizes are all known.  Raises InputError where one is not."""
    arch = default_arch()
    result, cubin = build_cubin(Request(path, arch))
    about = manifest(result.choice, cubin.data)
    if any(s["size"] for s in about["scalars"]):
        raise InputError(f"{path}: give each size a value")
    part = Part(arch, result.choice, cubin.data)
    library = loaded(compile_library(library_text([part], ""), "so"), folder / f"{path.stem}.so")
    names = module_names(part.module)
    size, scratch = (getattr(library, name) for name in (names.plan_size, names.workspace))
    size.restype = scratch.restype = ctypes.c_size_t
    arrays = [DeviceArray(tuple(t["shape"]), DType(t["dtype"]), host.driver) for t in about["tensors"]]
    workspace = DeviceArray((max(16, scratch()),), DType.U8, host.driver)
    for array in (*arrays, workspace):
        check(host.driver, host.driver.cuMemsetD8(_address(array), 0, max(1, array.bytes)), "filling a tensor")
    room = (ctypes.c_uint64 * (size() // 8 + 8))()
    plan = ctypes.c_void_p(-(-ctypes.addressof(room) // 64) * 64)
    given = [*(ctypes.c_void_p(_address(x)) for x in arrays), *_numbers(about["scalars"])]
    status = getattr(library, names.prepare)(plan, *given, ctypes.c_void_p(_address(workspace)), None)
    if status:
        raise InputError(f"{path}: the preparation fails with CUDA error {status}")
    kernels = len(about["variants"][0]["launches"])
    middle, least = host.time(getattr(library, names.launch_prepared), plan, kernels)
    return HostTime(path.stem, kernels, middle, least, _python(host, about, cubin.data, arrays, kernels))


def _python(host: Host, about: Any, cubin: bytes, arrays: Sequence[DeviceArray], kernels: int) -> float:
    """The median time of a launched kernel in nanoseconds from Python."""
    from nautilus.api.kernel import Kernel

    kernel = Kernel(about, cubin, host.driver)
    ready = kernel.prepare(*arrays[: len(kernel.inputs)], out=arrays[len(kernel.inputs) :], stream=0)

    def batch() -> float:
        start = time.perf_counter_ns()
        for _ in range(_BATCH):
            ready.launch()
        return float(time.perf_counter_ns() - start)

    return measured(batch, host.wait, kernels)[0]


def _address(array: DeviceArray) -> int:
    return int(array.__cuda_array_interface__["data"][0])


def _numbers(scalars: Sequence[Any]) -> Iterator[Any]:
    """The scalars as arguments of C, each with its default or 1."""
    kinds = {"f32": ctypes.c_float, "f64": ctypes.c_double, "i64": ctypes.c_int64, "bool": ctypes.c_bool}
    for s in scalars:
        value = 1 if s["default"] is None else s["default"]
        yield kinds.get(s["dtype"], ctypes.c_int)(value)


@click.command()
@click.argument("specs", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
def main(specs: tuple[Path, ...]) -> None:
    """Print the host time of the launches of SPECS."""
    with tempfile.TemporaryDirectory(prefix="nautilusc-") as made:
        host = Host(Path(made))
        times = [host.empty(), *(of_spec(host, path, Path(made)) for path in specs)]
        click.echo(table([t.row() for t in times]), nl=False)


if __name__ == "__main__":
    main()
