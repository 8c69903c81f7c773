"""NVRTC without a GPU: cubins, PTX, resources, errors."""

from __future__ import annotations

import pytest

from nautilus.core.errors import ToolchainError
from nautilus.runtime.device import Device, default_arch, runs_on
from nautilus.runtime.nvrtc import compile_cuda, parse_resources

TEXT = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void first(const __half* a, float* b) { b[threadIdx.x] = __half2float(a[threadIdx.x]); }
extern "C" __global__ void second(float* b) {
    __shared__ float s[32]; s[threadIdx.x] = b[0]; __syncthreads(); b[1] = s[31]; }
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_120"])
def test_cubin(arch: str) -> None:
    built = compile_cuda(TEXT, arch)
    assert built.data.startswith(b"\x7fELF")
    assert [r.kernel for r in built.resources] == ["first", "second"]
    assert all(0 < r.registers < 64 and r.spill_stores == 0 for r in built.resources)
    assert built.resources[1].shared_bytes == 128


def test_ptx() -> None:
    built = compile_cuda(TEXT, "sm_80", "ptx")
    assert b".target sm_80" in built.data and b"\0" not in built.data


def test_errors_carry_the_log() -> None:
    with pytest.raises(ToolchainError, match="does not compile for sm_80") as error:
        compile_cuda("__global__ void f() { nope(); }", "sm_80")
    assert "kernel.cu(1)" in error.value.log and error.value.exit_code == 3
    with pytest.raises(ToolchainError, match="does not know sm_12"):
        compile_cuda(TEXT, "sm_12")


def test_parse_resources() -> None:
    log = """ptxas info    : Compiling entry function 'k' for 'sm_80'
ptxas info    : Function properties for k
ptxas         .     16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 128 bytes smem, 372 bytes cmem[0]
"""
    (r,) = parse_resources(log)
    assert (r.registers, r.stack_bytes, r.spill_stores, r.spill_loads, r.shared_bytes) == (255, 16, 8, 12, 128)


def test_which_cubin_runs_where() -> None:
    def gpu(arch: str) -> Device:
        return Device("x", arch, 1, 1, 1)

    assert runs_on("sm_80", gpu("sm_86")) and not runs_on("sm_86", gpu("sm_80"))
    assert runs_on("sm_90", gpu("sm_90a")) and runs_on("sm_90a", gpu("sm_90a"))
    assert not runs_on("sm_80", gpu("sm_90a")) and not runs_on("sm_90a", gpu("sm_120"))


def test_default_arch_never_fails() -> None:
    assert default_arch().startswith("sm_")
