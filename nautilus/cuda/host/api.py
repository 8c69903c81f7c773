"""How the host text calls CUDA: through the runtime API in a ``.cu`` file, through the driver API in a library."""

from __future__ import annotations

from collections.abc import Callable

from nautilus.core.records import dataclass
from nautilus.cuda.host.co_residency import RUNTIME as RUNTIME_CO_RESIDENCY
from nautilus.cuda.host.co_residency import CoResidency
from nautilus.cuda.host.encode import LOOK_UP
from nautilus.ma_tile.ir.ops import MemKernel
from nautilus.targets.limits import SMEM_WITHOUT_OPT_IN

#: attributes of a launch -> their name in the runtime API after ``cudaLaunchAttribute``, the field of their value, and
#: their number in the driver API
ATTRIBUTES = {
    "programmatic": ("ProgrammaticStreamSerialization", "programmaticStreamSerializationAllowed", 6),
    "cooperative": ("Cooperative", "cooperative", 2),
}


def attribute_of(k: MemKernel) -> str:
    """The attribute of the launch of ``k``: it may begin early, or all its blocks run at the same time."""
    return "cooperative" if k.team > 1 else "programmatic" if k.pdl else ""


@dataclass(frozen=True, slots=True)
class Start:
    """A launch: number and symbol of the kernel, C text of blocks, arguments and stream, threads, shared bytes.

    ``attribute``: its name in :data:`ATTRIBUTES`; empty: it has none.
    """

    number: int
    kernel: str
    blocks: str
    threads: int
    shared: int
    attribute: str
    arguments: tuple[str, ...]
    stream: str


@dataclass(frozen=True, slots=True)
class Api:
    """``plan_fields`` and ``open``: what a plan holds besides, and the lines that fill it.

    ``co_residency``: whether a device runs all blocks of a launch at the same time.
    """

    find_encode: str
    allow_shared: Callable[[str, int], list[str]]
    launch: Callable[[Start], list[str]]
    co_residency: CoResidency
    plan_fields: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


def _allow_shared(kernel: str, size: int) -> list[str]:
    if size <= SMEM_WITHOUT_OPT_IN:
        return []
    return [
        f"    status = cudaFuncSetAttribute({kernel}, cudaFuncAttributeMaxDynamicSharedMemorySize, {size});",
        "    if (status != cudaSuccess) return status;",
    ]


def _launch(s: Start) -> list[str]:
    given = ", ".join(s.arguments)
    if s.attribute:
        return _launch_with(s, given)
    return [
        f"    {s.kernel}<<<{s.blocks}, {s.threads}, {s.shared}, {s.stream}>>>({given});",
        "    status = cudaGetLastError();",
    ]


def _launch_with(s: Start, given: str) -> list[str]:
    """A launch with an attribute (CUDA Runtime API, cudaLaunchKernelEx)."""
    name, value, _ = ATTRIBUTES[s.attribute]
    return [
        "    {",
        "        cudaLaunchAttribute attribute = {};",
        f"        attribute.id = cudaLaunchAttribute{name};",
        f"        attribute.val.{value} = 1;",
        "        cudaLaunchConfig_t config = {};",
        f"        config.gridDim = {s.blocks};",
        f"        config.blockDim = {s.threads};",
        f"        config.dynamicSmemBytes = {s.shared};",
        f"        config.stream = {s.stream};",
        "        config.attrs = &attribute;",
        "        config.numAttrs = 1;",
        f"        status = cudaLaunchKernelEx(&config, {s.kernel}, {given});",
        "    }",
    ]


RUNTIME = Api(LOOK_UP, _allow_shared, _launch, RUNTIME_CO_RESIDENCY)
