"""The driver through ctypes, on a library with the declarations of ``cuda.h``."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from nautilus.core.buffers import TensorMap
from nautilus.core.errors import ToolchainError
from nautilus.core.types import FORMATS, DType
from nautilus.runtime import cuda_driver
from nautilus.runtime.cuda_driver import CAPTURE_GLOBAL, MAP_TYPES, NON_BLOCKING, Driver
from nautilus.runtime.device import check
from nautilus.runtime.launch import encode


@pytest.fixture
def driver(stand_in: ctypes.CDLL) -> Driver:
    return Driver(stand_in)


def test_every_function_is_one_of_the_driver(driver: Driver) -> None:
    for name in cuda_driver._FUNCTIONS:
        assert callable(getattr(driver, name)), name
    with pytest.raises(AttributeError, match="cuMemAllocManaged"):
        driver.cuMemAllocManaged(16)


def test_results_follow_the_status(driver: Driver) -> None:
    assert driver.cuInit(0) == (0,)
    assert driver.cuDriverGetVersion() == (0, 13000)
    assert driver.cuDeviceTotalMem(0) == (0, 5 << 30)
    assert driver.cuEventElapsedTime(1, 1) == (0, 2.5)
    assert driver.device_name(0) == "a stand-in"


def test_memory_goes_there_and_back(driver: Driver) -> None:
    given, found = np.arange(64, dtype=np.uint32), np.zeros(64, dtype=np.uint32)
    first, second = (check(driver, driver.cuMemAlloc(256)) for _ in range(2))
    check(driver, driver.cuMemcpyHtoD(first, given.ctypes.data, 256))
    check(driver, driver.cuMemcpyDtoDAsync(second, first, 256, 0))
    check(driver, driver.cuMemsetD8(second, 0xFF, 8))
    check(driver, driver.cuMemsetD32(second + 8, 7, 1))
    check(driver, driver.cuMemcpyDtoH(found.ctypes.data, second, 256))
    assert found.tolist() == [0xFFFFFFFF, 0xFFFFFFFF, 7, *range(3, 64)]
    assert [driver.cuMemFree(p) for p in (first, second)] == [(0,), (0,)]


def test_an_error_has_its_name_and_a_hint(driver: Driver) -> None:
    with pytest.raises(ToolchainError, match=r"opening: CUDA_ERROR_INVALID_VALUE: a launch parameter is outside"):
        check(driver, driver.cuDeviceGet(3), "opening")
    with pytest.raises(ToolchainError, match="CUDA error 12345"):
        check(driver, (12345,))


def test_work_is_captured(driver: Driver) -> None:
    stream = check(driver, driver.cuStreamCreate(NON_BLOCKING))
    check(driver, driver.cuStreamBeginCapture(stream, CAPTURE_GLOBAL))
    graph = check(driver, driver.cuGraphInstantiate(check(driver, driver.end_capture(stream)), 0))
    assert (stream, graph, driver.cuGraphLaunch(graph, stream)) == (4, 1, (0,))


def test_a_launch(driver: Driver, capfd: pytest.CaptureFixture[str]) -> None:
    value = np.array([77], dtype=np.uint64)
    pointers = np.array([value.ctypes.data], dtype=np.uint64)
    assert driver.cuLaunchKernel(9, 1, 2, 3, 4, 5, 6, 7, 8, pointers.ctypes.data, 0) == (0,)
    driver.library.fflush(None)
    assert capfd.readouterr().out == "launch 9 grid 1 2 3 block 4 5 6 shared 7 stream 8 first 77\n"


def test_a_tensor_map(driver: Driver, capfd: pytest.CaptureFixture[str]) -> None:
    made = encode(driver, TensorMap("m", "A", DType.BF16, (128, 16), (256,), (64, 8), 128), 4096)
    driver.library.fflush(None)
    said = "map 9 4096 swizzle 3 promotion 3 steps 1: 128/64 16/8 +256\n"
    assert capfd.readouterr().out == said
    assert made.ctypes.data % 64 == 0 and made.tobytes() == b"\7" * 128
    assert {f.tensor_map for f in FORMATS.values()} <= {*MAP_TYPES}
