"""``nvcc kernel.cu`` compiles the file with its host launcher and needs no other file. Skipped without nvcc."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from nautilus.cuda.emit import emit_module
from nautilus.driver import Request, compile_file
from tests.ir_files import cases_in, output_of
from tests.runtime.kept import identity, kept
from tests.shipped import ROOT

NVCC = shutil.which("nvcc")

#: One of each kind: masks and a loop, a dequantised product, several outputs, a scalar argument.
CHOSEN = ["attention/causal_prefill", "matmul/i8_i32", "matmul/f16", "rowwise/argmax", "attention/gqa_decode"]

#: Names that mean something else to a C compiler; several kernels with scratch memory between them.
AWKWARD = """
dim M = 4096, N = 4096
input double: f32[M, N]
input lane: f32[N]
scalar warp: f32
output int: f32[N]
output smem: f32[N]
smem[j] = sum[i](double[i, j] * lane[j]) * warp
block[i] = sum[j](double[i, j] * smem[j])
int[j] = sum[i](double[i, j] * block[i])
"""


def nvcc(text: str, folder: Path, arch: str = "sm_80") -> None:
    """Compile ``text`` to an object file; warnings are errors."""
    assert NVCC is not None
    source = folder / "kernel.cu"
    source.write_text(text)
    target = f"-gencode=arch={arch.replace('sm', 'compute')},code={arch}"
    command = [NVCC, target, "-std=c++17", "-Werror", "all-warnings", "-c", str(source), "-o", f"{source}.o"]

    def make() -> bytes:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return b""

    kept((text, *command[1:-3], *identity(NVCC)), make)


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="nvcc is not on PATH")
@pytest.mark.parametrize("name", CHOSEN)
def test_shipped(name: str, tmp_path: Path) -> None:
    arch = ("sm_90a", "sm_80")[CHOSEN.index(name) % 2]
    nvcc(compile_file(Request(ROOT / "specs" / f"{name}.naut", arch)).cuda, tmp_path, arch)


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="nvcc is not on PATH")
def test_awkward_names(tmp_path: Path) -> None:
    spec = tmp_path / "main.naut"
    spec.write_text(AWKWARD)
    text = compile_file(Request(spec, "sm_80")).cuda_module.code
    assert text.count("__global__") > 1
    nvcc(text, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="nvcc is not on PATH")
@pytest.mark.parametrize(
    "name", ["warp roles", "dynamic tiles", "outstanding MMAs", "8-bit floats that threads convert"]
)
def test_tensor_maps_are_encoded_by_the_host(name: str, tmp_path: Path) -> None:
    text = emit_module(output_of(cases_in(Path(__file__).parent / "printed" / "warpgroup.ma")[name]))
    assert "cudaGetDriverEntryPointByVersion" in text
    nvcc(text, tmp_path, "sm_90a")


#: Two kernels that read one buffer in tiles of one shape.
TWICE = """
dim M = 256
input A: f16[M, M]
output Y: f16[M, M]
output Z: f16[M, M]
Y[i, j] = sum[k](A[i, k] * A[k, j])
Z[i, j] = sum[k](A[i, k] * A[j, k])
"""


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="nvcc is not on PATH")
def test_each_launch_has_maps_of_its_own(tmp_path: Path) -> None:
    spec = tmp_path / "twice.naut"
    spec.write_text(TWICE)
    text = compile_file(Request(spec, "sm_90a")).cuda_module.code
    assert text.count("TensorMap map_A") > len({line for line in text.splitlines() if "    TensorMap map_A" in line})
    nvcc(text, tmp_path, "sm_90a")
