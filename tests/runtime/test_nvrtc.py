"""NVRTC without a GPU: cubins, PTX, resources, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nautilus.core.errors import MissingToolError, ScheduleError, ToolchainError
from nautilus.cuda.module import CudaModule
from nautilus.runtime import nvrtc
from nautilus.runtime.device import Device, default_arch, runs_on
from nautilus.runtime.nvrtc import check, compile_cuda, keep_results, parse_resources, refuse_serialised
from nautilus.runtime.nvrtc_library import NvrtcLibrary
from tests.runtime.kept import kept

OUT_OF_MEMORY = 1  # a status of NVRTC

TEXT = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void first(const __half* a, float* b) { b[threadIdx.x] = __half2float(a[threadIdx.x]); }
extern "C" __global__ void __launch_bounds__(32)
second(float* b) {
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
    with pytest.raises(ToolchainError, match="does not support sm_12"):
        compile_cuda(TEXT, "sm_12")


def test_a_check_is_left_out_only_where_nvrtc_never_serves_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    text = CudaModule(TEXT + "// checked", {})
    reason, resources = check(text, "sm_12")
    assert reason.endswith("does not support sm_12") and resources == ()
    monkeypatch.setattr(NvrtcLibrary, "compile", lambda *_: OUT_OF_MEMORY)
    with pytest.raises(ToolchainError, match="NVRTC_ERROR_OUT_OF_MEMORY") as error:
        check(text, "sm_80")
    assert not isinstance(error.value, MissingToolError)


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


PRODUCTS = """
__device__ __forceinline__ void wgmma_m64n64_f16_ss() { asm volatile("wgmma.mma_async"); }
extern "C" __global__ void __launch_bounds__(384, 1)
two__softmax(float* b) {
    b[0] = 1;
}
extern "C" __global__ void __launch_bounds__(384, 1)
two__out(float* b) {
    wgmma_m64n64_f16_ss();
}
"""


KERNELS = {"two__softmax": "softmax", "two__out": "out"}


def said(kernel: str, stores: int = 0, registers: int = 168) -> str:
    """What ptxas -v writes about one kernel."""
    return (
        f"ptxas info    : Compiling entry function '{kernel}' for 'sm_90a'\n"
        f"ptxas info    : Function properties for {kernel}\n"
        f"ptxas         .     {stores} bytes stack frame, {stores} bytes spill stores, {stores} bytes spill loads\n"
        f"ptxas info    : Used {registers} registers, used 1 barriers\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        "info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to the presence "
        "of Extern calls in the function 'two__out'",
        "info    : (C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient "
        "register resources for the wgmma pipeline in the function 'two__out'",
        "info    : (C7513) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non wgmma "
        "instructions defining accumulator registers of a wgmma between start and end of the pipeline stage in the "
        "function 'two__out'",
    ],
)
def test_serialised_products_are_refused(line: str) -> None:
    with pytest.raises(ScheduleError, match=r"serialises wgmma instructions \(C751\d") as error:
        refuse_serialised(PRODUCTS, f"ptxas {line}\n{said('two__softmax')}{said('two__out')}", KERNELS)
    assert error.value.kernel == "out"


def test_a_line_about_no_kernel_of_the_file_is_refused_too() -> None:
    with pytest.raises(ScheduleError) as error:
        refuse_serialised(
            PRODUCTS, "ptxas info : (C7510) wgmma.mma_async instructions are serialized\n" + said("two__out"), KERNELS
        )
    assert error.value.kernel == ""


def test_spills_around_products_are_refused_elsewhere_not() -> None:
    with pytest.raises(ScheduleError, match=r"too few registers .*168 registers, 8 bytes spilled") as error:
        refuse_serialised(PRODUCTS, said("two__softmax") + said("two__out", 8), KERNELS)
    assert error.value.kernel == "out"
    refuse_serialised(PRODUCTS, said("two__softmax", 8) + said("two__out"), KERNELS)
    refuse_serialised(PRODUCTS.replace("wgmma", "mma"), said("two__softmax") + said("two__out", 8), KERNELS)
    variants = PRODUCTS.replace("    wgmma_m64n64_f16_ss();", "    b[0] = 2;") + PRODUCTS.replace("two__", "other__")
    refuse_serialised(variants, said("two__out", 8), KERNELS)  # its text ends before the helpers of the next variant


@pytest.fixture
def own_store() -> Iterator[dict[tuple[object, ...], bytes]]:
    """The results from now on, without those of earlier runs of the tests."""
    results = dict[tuple[object, ...], bytes]()

    def store(key: tuple[object, ...], make: Callable[[], bytes]) -> bytes:
        if key not in results:
            results[key] = make()
        return results[key]

    keep_results(store)
    yield results
    keep_results(kept)


def noted_compilations(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The options of each compilation from now on."""
    options, compiled = list[list[str]](), NvrtcLibrary.compile

    def noted(self: NvrtcLibrary, program: Any, given: list[str]) -> int:
        options.append(given)
        return compiled(self, program, given)

    monkeypatch.setattr(NvrtcLibrary, "compile", noted)
    return options


@pytest.mark.usefixtures("own_store")
def test_nvrtc_keeps_nothing_that_has_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    options, text = noted_compilations(monkeypatch), TEXT + "// of the cache of NVRTC\n"
    assert len(compile_cuda(text, "sm_90a").resources) == 2
    monkeypatch.setattr(NvrtcLibrary, "version", lambda _: (12, 8))  # has no cache, and refuses the option
    assert len(compile_cuda(text, "sm_90a").resources) == 2
    assert ["--no-cache" in given for given in options] == [True, False]


def test_a_text_is_compiled_once_for_each_target_and_form(
    own_store: dict[tuple[object, ...], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    options, text = noted_compilations(monkeypatch), TEXT + "// compiled once for each target and form\n"
    made = [compile_cuda(text, arch, form) for arch in ("sm_80", "sm_90a") for form in ("cubin", "ptx", "cubin")]
    assert len(options) == 4 and made[0] == made[2] != made[1]
    for _ in range(2):
        with pytest.raises(ToolchainError, match="does not compile"):
            compile_cuda(text + "}", "sm_80")
    assert len(options) == 6 and len(own_store) == 4  # an error is not kept
    nvrtc._run.cache_clear()  # as in another process
    assert compile_cuda(text, "sm_80") == made[0] and len(options) == 6


def test_a_result_is_kept_wherever_the_headers_are(
    own_store: dict[tuple[object, ...], bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options, text = noted_compilations(monkeypatch), 'extern "C" __global__ void k() {}\n'
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder, content in zip(folders, ("1", "2", "345"), strict=True):
        folder.mkdir()
        (folder / "cuda_fp16.h").write_text(content)
    for folder in folders:
        monkeypatch.setattr(nvrtc, "include_paths", lambda folder=folder: (str(folder),))
        compile_cuda(text, "sm_80")
    assert len(options) == len(own_store) == 2  # the headers of the last one differ
    for folder in folders[:2]:
        monkeypatch.setattr(nvrtc, "include_paths", lambda folder=folder: (str(folder),))
        compile_cuda(text, "sm_80", more=("--generate-line-info",))
    assert len(options) == len(own_store) == 4  # line information names the files
