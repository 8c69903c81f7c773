"""The host functions of printed files: names, headers, and several kernels in one program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from nautilus.cli.main import main
from nautilus.driver import Request, Result, compile_file
from nautilus.export.header_file import contract, header_file
from nautilus.runtime.nvrtc import compile_cuda
from tests.simulation.simulate import MACHINE, MISSING
from tests.simulation.translate import translate

GXX = shutil.which("g++")
SOFTMAX = "dim M = 8, N = 64\ninput X: f16[M, N]\noutput Y: f16[M, N]\nY[i, j] = softmax[j](X[i, j])\n"
PRODUCT = (
    "dim M = 256, N = 256, K = 128\ninput stream: f16[M, K]\ninput workspace: f16[N, K]\noutput plan: f32[M, N]\n"
    "T[i, j] = sum[k](stream[i, k] * workspace[j, k])\nplan[i, j] = T[i, j] / (1 + sum[k: M](abs(T[k, j])))\n"
)


def compiled(folder: Path, text: str, arch: str, name: str = "") -> Result:
    path = folder / "spec.naut"
    path.write_text(text)
    return compile_file(Request(path, arch, name=name))


def run(*command: object) -> None:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_two_files_are_one_unit_for_nvrtc(tmp_path: Path) -> None:
    texts = [compiled(tmp_path, text, "sm_90a", f"k{n}").cuda for n, text in enumerate((SOFTMAX, PRODUCT))]
    assert all("pack_f16" in text or "typedef" in text for text in texts)
    compile_cuda("\n".join(texts), "sm_90a", "ptx")


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_two_files_and_their_headers_are_one_unit_for_a_host_compiler(tmp_path: Path) -> None:
    (tmp_path / "k0.h").write_text("")
    unit = ""
    for n, text in enumerate((SOFTMAX, PRODUCT)):
        result = compiled(tmp_path, text, "sm_90a", f"k{n}")
        module = result.modules["ma-tile"]
        (tmp_path / f"k{n}.h").write_text(header_file(contract({"sm_90a": result.cuda_module}, module), module, 4096))
        unit = f'#include "k{n}.h"\n{unit}' + translate(result.cuda)
    source = tmp_path / "unit.cpp"
    source.write_text(
        unit + "\nint main() { k1_plan plan; return k0_workspace() + k1_launch_prepared(&plan, nullptr); }\n"
    )
    run(GXX, "-std=c++17", "-fsyntax-only", "-w", "-I", MACHINE, "-I", tmp_path, source)


@pytest.mark.skipif(GXX is None, reason="g++ is not on PATH")
@pytest.mark.parametrize("language", ["c", "c++"])
def test_headers_are_c_and_cpp(language: str, tmp_path: Path) -> None:
    path, header = tmp_path / "softmax.naut", tmp_path / "s.h"
    path.write_text(SOFTMAX.replace("M = 8", "M = runtime").replace("f16[M, N]\noutput", "f16[M, N] strided\noutput"))
    assert main([str(path), "-o", str(header), "--arch", "sm_80", "--name", "rows", "-q"]) == 0
    text = header.read_text()
    assert "int rows_launch(const void* X, void* Y, int M, long long X_stride0, void* workspace, cudaStream_t" in text
    assert "multiples of 16 bytes.\n// The addresses of X are multiples of the size of an element only." in text
    assert "// error   Y " in text and "// schedule" not in text and "// input   X: f16[M, 64]" in text
    (tmp_path / "user").write_text('#include "s.h"\n#include "s.h"\nsize_t f(void) { return sizeof(rows_plan); }\n')
    run(GXX, "-x", language, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", tmp_path, tmp_path / "user")


def test_a_header_says_what_each_architecture_has_of_its_own(tmp_path: Path) -> None:
    path, header = tmp_path / "s.naut", tmp_path / "s.h"
    path.write_text(PRODUCT)
    assert main([str(path), "-o", str(header), "--arch", "sm_80,sm_90a", "-q"]) == 0
    shared, hopper, ampere = (
        header.read_text().split("#ifndef")[0].replace("// on sm_80", "// on sm_90a").split("// on sm_90a\n")
    )
    assert "for sm_90a, sm_80, precision fast." in shared and "// sizes   M = 256" in shared
    assert "kernel  s__" in hopper and "kernel  s__" in ampere and "kernel  s__" not in shared and hopper != ampere


def test_a_name_is_an_identifier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "softmax.naut"
    path.write_text(SOFTMAX)
    assert main([str(path), "--name", "a b"]) == 2
    assert "'a b' is no name in C" in capsys.readouterr().err


def test_tensors_have_the_names_of_the_launchers_parameters(tmp_path: Path) -> None:
    text = compiled(tmp_path, PRODUCT, "sm_80").cuda
    assert "spec_launch(const void* stream, const void* workspace, void* plan_, void* workspace_2, cudaStream_t" in text
