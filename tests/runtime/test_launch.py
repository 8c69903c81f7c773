"""Loading and launching on a GPU, and its failures."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from nautilus.core.errors import ToolchainError
from nautilus.core.numerics import storage_array
from nautilus.core.types import DType
from nautilus.runtime.device import open_device
from nautilus.runtime.launch import Argument, Launch, Plan, Session, run_plan
from nautilus.runtime.nvrtc import compile_cuda

TEXT = """
extern "C" __global__ void scale(const float* x, float* y, float* t, float k) {
    extern __shared__ float s[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = x[i];
    t[i] = s[threadIdx.x] * k;
}
extern "C" __global__ void shift(const float* x, float* y, float* t, float k) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i != 7) y[i] = t[i] + 1;
}
extern "C" __global__ void wild(float* y) { y[1ull << 40] = 1; }
"""
NAMES = ("x", "y", "t", "k")
SIZE = (64,)


def plan(*launches: Launch) -> Plan:
    roles = [("x", "input"), ("y", "output"), ("t", "temp")]
    arguments = [Argument(n, DType.F32, SIZE, r) for n, r in roles]
    return Plan((*arguments, Argument("k", DType.F32, (), "scalar")), launches)


TWO = plan(Launch("scale", (2, 1, 1), (32, 1, 1), 96 * 1024, NAMES), Launch("shift", (2, 1, 1), (32, 1, 1), 0, NAMES))


@pytest.mark.gpu
def test_two_kernels_and_poison() -> None:
    arch = open_device().arch
    x = np.arange(64, dtype=np.float32)
    out = run_plan(compile_cuda(TEXT, arch).data, TWO, arch, {"x": x}, {"k": 2.0})["y"]
    assert np.isnan(out[7])
    assert np.array_equal(np.delete(out, 7), np.delete(2 * x + 1, 7))


@pytest.mark.gpu
def test_timing() -> None:
    arch = open_device().arch
    with Session(compile_cuda(TEXT, arch).data, TWO, arch) as session:
        session.upload({"x": np.zeros(64)}, {"k": 1})
        assert all(0 < t < 1 for t in session.seconds(5))


@pytest.mark.gpu
def test_wrong_architecture_is_said_before_launch() -> None:
    other = "sm_80" if not open_device().arch.startswith("sm_8") else "sm_90"
    with pytest.raises(ToolchainError, match="the kernel is for"):
        run_plan(compile_cuda(TEXT, other).data, TWO, other, {"x": np.zeros(64)}, {"k": 1})


def test_no_driver_is_a_toolchain_error() -> None:
    try:
        open_device()
    except ToolchainError as error:
        assert error.exit_code == 3


class Memory:
    """A driver that notes what is copied to which buffer, without a GPU."""

    def __init__(self) -> None:
        self.copied: dict[str, bytes] = {}

    def cuMemcpyHtoD(self, buffer: str, address: int, count: int) -> tuple[int, None]:
        self.copied[buffer] = ctypes.string_at(address, count)
        return 0, None


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16, DType.F8E4M3, DType.I32, DType.BOOL])
def test_an_input_without_axes_is_one_element(dtype: DType) -> None:
    session = object.__new__(Session)
    memory = Memory()
    session._shared, session._buffers = {}, {"t": "t"}
    object.__setattr__(session, "driver", memory)
    session.plan = Plan((Argument("t", dtype, (), "input"),), ())
    for value in (storage_array(np.asarray(1), dtype), np.asarray(storage_array(np.asarray(1), dtype))):
        session.upload({"t": value}, {})
        assert memory.copied["t"] == np.asarray(value).tobytes()
    with pytest.raises(ToolchainError, match=r"t has shape \(1,\) instead of \(\)"):
        session.upload({"t": np.zeros(1)}, {})
