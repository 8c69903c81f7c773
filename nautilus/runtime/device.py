"""Architectures, and the GPU of this machine if there is one."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from nautilus.core.errors import ToolchainError
from nautilus.core.records import dataclass
from nautilus.runtime.cuda_driver import DEVICE_ATTRIBUTES, SUCCESS, Driver
from nautilus.targets.records import DEFAULT_TARGET, NAMES, version

DEFAULT_ARCH = DEFAULT_TARGET
_HINTS = {
    "NO_DEVICE": "no CUDA device is visible (see nvidia-smi and CUDA_VISIBLE_DEVICES)",
    "SYSTEM_DRIVER_MISMATCH": "the driver and its library have different versions",
    "OUT_OF_MEMORY": "the device has not enough free memory for these sizes",
    "NO_BINARY_FOR_GPU": "the kernel was compiled for another architecture; change or omit --arch",
    "INVALID_IMAGE": "the kernel was compiled for another architecture; change or omit --arch",
    "UNSUPPORTED_PTX_VERSION": "the driver is older than the toolchain",
    "ILLEGAL_ADDRESS": "the kernel read or wrote outside its buffers",
    "MISALIGNED_ADDRESS": "the kernel made a misaligned access",
    "LAUNCH_OUT_OF_RESOURCES": "the kernel needs more registers or threads than the device has",
    "INVALID_VALUE": "a launch parameter is outside the device's limits",
    "LAUNCH_TIMEOUT": "the display watchdog stopped the kernel",
    "ILLEGAL_INSTRUCTION": "the kernel executed an instruction that the device does not support",
    "LAUNCH_FAILED": "the kernel failed during execution",
}


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU: its name, ``arch`` as the compiler spells it, and limits (bytes, counts)."""

    name: str
    arch: str
    multiprocessors: int
    shared_per_block: int
    memory: int


def runs_on(arch: str, device: Device) -> bool:
    """Whether a cubin for ``arch`` runs on ``device``.

    The major versions must agree and the minor version must not exceed the device's; an ``a`` target must match
    exactly.
    """
    want, have = version(arch), version(device.arch)
    if arch.endswith("a"):
        return want == have
    return want // 10 == have // 10 and want <= have


def default_arch() -> str:
    """The architecture of the GPU of this machine, else :data:`DEFAULT_ARCH`; never raises."""
    if not any(os.path.exists(p) for p in ("/dev/nvidiactl", "/dev/dxg")):
        return DEFAULT_ARCH  # avoids loading the driver
    try:
        arch = open_device().arch
    except ToolchainError:
        return DEFAULT_ARCH
    return arch if arch in NAMES else DEFAULT_ARCH


def bindings() -> Driver:
    """The initialised driver.  Raises ToolchainError without a driver."""
    try:
        driver = _driver()
    except OSError as error:
        raise ToolchainError("CUDA driver", "no driver on this machine (libcuda is not found)") from error
    check(driver, driver.cuInit(0))
    return driver


@lru_cache(maxsize=1)
def _driver() -> Driver:
    return Driver()


def check(driver: Any, result: tuple[Any, ...], doing: str = "") -> Any:
    """The value of a driver call.  Raises ToolchainError with the action ``doing``, the error and a hint."""
    status = result[0]
    if status == SUCCESS:
        return result[1] if len(result) == 2 else result[1:]
    name: str = driver.error_name(status)
    hint = _HINTS.get(name.removeprefix("CUDA_ERROR_"))
    what = f"{doing}: " if doing else ""
    raise ToolchainError("CUDA driver", f"{what}{name}" + (f": {hint}" if hint else ""))


def co_resident_blocks(driver: Driver, ordinal: int, function: int, threads: int, shared: int) -> int:
    """How many blocks of a kernel device ``ordinal`` runs at the same time, in a cooperative launch; 0: none.

    ``function``: its handle, after its shared memory was allowed.  Raises ToolchainError.
    """
    device = check(driver, driver.cuDeviceGet(ordinal), "opening the GPU")

    def get(name: str) -> int:
        return int(check(driver, driver.cuDeviceGetAttribute(DEVICE_ATTRIBUTES[name], device)))

    if not get("COOPERATIVE_LAUNCH"):
        return 0
    found = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, shared)
    return int(check(driver, found, "asking for the blocks of a multiprocessor")) * get("MULTIPROCESSOR_COUNT")


def open_device(ordinal: int = 0) -> Device:
    """The description of GPU ``ordinal``.  Raises ToolchainError without such a device."""
    driver = bindings()
    handle = check(driver, driver.cuDeviceGet(ordinal), "opening the GPU")

    def get(name: str) -> int:
        return int(check(driver, driver.cuDeviceGetAttribute(DEVICE_ATTRIBUTES[name], handle)))

    major, minor = get("COMPUTE_CAPABILITY_MAJOR"), get("COMPUTE_CAPABILITY_MINOR")
    return Device(
        driver.device_name(handle),
        f"sm_{major}{minor}" + ("a" if (major, minor) == (9, 0) else ""),
        get("MULTIPROCESSOR_COUNT"),
        get("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        int(check(driver, driver.cuDeviceTotalMem(handle))),
    )
