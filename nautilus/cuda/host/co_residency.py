"""Whether a device runs all blocks of a launch at the same time, as kernels with teams need.

Such blocks are co-resident, which a cooperative launch demands (CUDA C++ Programming Guide, "Cooperative Groups").

Each variant with such kernels has a function ``co_resident``, which asks the device once::

    static bool co_resident() {
        static signed char known[64];  // of each device: 1, it runs them; -1, it does not
        ...
        const bool found = is_co_resident((const void*)NAME__h, device, 128, 256, 36864);
        ...
    }

A device with fewer multiprocessors, such as a part of one, launches another variant, which always runs; where there is
none, ``prepare`` refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nautilus.core.errors import InternalError
from nautilus.core.index.sizes import as_extent
from nautilus.core.records import dataclass
from nautilus.cuda.names import module_names
from nautilus.ma_tile.ir import ops as ma

CO_RESIDENT = "co_resident"
TOO_LARGE = 720  # cudaErrorCooperativeLaunchTooLarge


@dataclass(frozen=True, slots=True)
class CoResidency:
    """How an API asks: for the current device, and whether the device runs a kernel.

    ``helper``: lines of the function that asks.  ``handles``: lines before the first question.  ``kernel``: the C text
    of a kernel, by its number and its symbol.
    """

    device: str
    helper: str
    kernel: Callable[[int, str], str]
    handles: str = ""


def waiting(module: ma.MemModule) -> tuple[ma.MemKernel, ...]:
    """The kernels of ``module`` whose blocks wait for each other, so that all of them run at the same time."""
    return tuple(k for k in module.kernels if k.team > 1)


def blocks_of(k: ma.MemKernel) -> int:
    """The number of blocks of a kernel with teams."""
    blocks = as_extent(k.launched)
    if not isinstance(blocks, int):
        raise InternalError(f"the number of blocks of {k.name}, which wait for each other, is not known")
    return blocks


def need(module: ma.MemModule) -> str:
    """What ``module`` needs of a device, in words; empty where every device runs it."""
    symbols = module_names(module).kernels
    return " and ".join(f"all {blocks_of(k)} blocks of {symbols[k.name]} at the same time" for k in waiting(module))


def co_resident_function(module: ma.MemModule, api: CoResidency) -> Iterator[str]:
    """Lines of ``co_resident`` and of what it calls; none where every device runs the module."""
    kernels = [(n, k) for n, k in enumerate(module.kernels) if k.team > 1]
    if not kernels:
        return
    symbols = module_names(module).kernels
    asked = [
        f"is_co_resident({api.kernel(n, symbols[k.name])}, device, {blocks_of(k)}, {k.threads}, {k.smem_bytes})"
        for n, k in kernels
    ]
    yield from api.helper.splitlines()
    yield ""
    yield "// Whether the current device runs all blocks of kernels whose blocks wait for each other at the same time."
    yield f"static bool {CO_RESIDENT}() {{"
    yield "    static signed char known[64];  // of each device: 1, it runs them; -1, it does not"
    yield "    int device = 0;"
    yield f"    if ({api.device}(&device) != cudaSuccess || device >= 64) return false;"
    yield "    const signed char before = __atomic_load_n(&known[device], __ATOMIC_RELAXED);"
    yield "    if (before) return before > 0;"
    yield from api.handles.splitlines()
    yield f"    const bool found = {' && '.join(asked)};"
    yield "    __atomic_store_n(&known[device], found ? 1 : -1, __ATOMIC_RELAXED);"
    yield "    return found;"
    yield "}"
    yield ""


def co_resident_check(module: ma.MemModule, said: str) -> Iterator[str]:
    """Lines of ``prepare`` that refuse a device which does not run the module. ``said``: the name in messages."""
    if needed := need(module):
        yield f"    if (!{CO_RESIDENT}()) {{"
        yield f'        fprintf(stderr, "{said}: the device does not run {needed}\\n");'
        yield f"        return static_cast<cudaError_t>({TOO_LARGE});"
        yield "    }"


RUNTIME = CoResidency(
    "cudaGetDevice",
    """static bool is_co_resident(const void* kernel, int device, int blocks, int threads, size_t shared) {
    int supported = 0, multiprocessors = 0, each = 0;
    cudaError_t status = cudaDeviceGetAttribute(&supported, cudaDevAttrCooperativeLaunch, device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (status == cudaSuccess)
        status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (status == cudaSuccess)
        status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, shared);
    if (status != cudaSuccess) return cudaGetLastError(), false;  // which forgets the error
    return supported && (long long)each * multiprocessors >= blocks;
}""",
    lambda number, symbol: f"(const void*){symbol}",
)
