"""Shared libraries and object files, on a stand-in for the driver that writes down its calls."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import pytest

from nautilus.cli import compiling
from nautilus.cli.main import main
from nautilus.driver import Request, compile_checked
from nautilus.export.host_compiler import compile_library, find
from nautilus.runtime.execute import plan_of
from nautilus.runtime.nvrtc import include_paths

GXX = shutil.which("g++")
SPEC = (
    "dim M = runtime, N = 2048, K = 1024\nassume M % 8 == 0\ninput A: f16[M, K]\ninput B: f16[N, K]\nscalar s: f32\n"
    "output C: f32[M, N]\nC[i, j] = sum[k](A[i, k] * B[j, k]) * s\n"
)
USER = """#include "k.h"
#include <stdio.h>
#include <stdlib.h>
int main(int count, char** words) {
    k_plan plan;
    const int M = atoi(words[1]);
    void* A = (void*)(size_t)atoi(words[2]);
    const int status = k_prepare(&plan, A, (void*)4096, (void*)8192, 2.0f, M, (void*)16384, (cudaStream_t)5);
    if (status) return status;
    printf("prepared\\n");
    return k_launch_prepared(&plan, (cudaStream_t)5) + k_launch_prepared(&plan, (cudaStream_t)6);
}
"""

needs_compiler = pytest.mark.skipif(GXX is None or not include_paths(), reason="needs g++ and the headers of CUDA")


def run(*command: object, **env: str) -> subprocess.CompletedProcess[str]:
    words = [str(c) for c in command]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | env)


def built(*command: object) -> None:
    done = run(*command)
    assert done.returncode == 0, done.stderr


def once(build: Callable[..., Any]) -> Callable[..., Any]:
    """``build``, which makes the kernels of each architecture and number of variants once."""
    known = dict[tuple[str, int], Any]()

    def built(request: Request, *more: Any) -> Any:
        key = request.arch, request.variants
        if key not in known:
            known[key] = build(request, *more)
        return known[key]

    return built


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a library, an object file, their header, programs that use them, and the driver."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "k.naut").write_text(SPEC)
    with pytest.MonkeyPatch.context() as patch:  # the header is that of the library
        patch.setattr(compiling, "run_and_build", once(compiling.run_and_build))
        for name, archs, most in (("libk.so", "sm_80,sm_90a", 3), ("k.o", "sm_90a", 1), ("k.h", "sm_90a,sm_80", 3)):
            options = ["--arch", archs, "-q", "--variants", str(most)]
            assert main([str(folder / "k.naut"), "-o", str(folder / name), *options]) == 0
    programs(folder, USER, "libk.so", "k.o")
    return folder


def programs(folder: Path, user: str, library: str, objects: str = "") -> None:
    """Build in ``folder`` the program ``user`` (C) with a library and with an object file, if any, and the driver."""
    (folder / "user.c").write_text(user)
    include = [f"-I{p}" for p in include_paths()]
    built(GXX, "-shared", "-fPIC", *include, Path(__file__).parent / "driver.cpp", "-o", folder / "libcuda.so.1")
    gcc = shutil.which("gcc") or GXX
    built(gcc, "-std=c11", "-Wall", "-Werror", folder / "user.c", folder / library, "-o", folder / "shared")
    if objects:
        built(gcc, "-std=c11", folder / "user.c", folder / objects, "-ldl", "-lpthread", "-o", folder / "static")


def calls(folder: Path, program: str, version: str, *words: str, **env: str) -> list[str]:
    done = run(folder / program, *words, LD_LIBRARY_PATH=str(folder), VERSION=version, **env)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs_compiler
@pytest.mark.parametrize("program", ["shared", "static"])
def test_launches_of_a_plan_do_nothing_else(made: Path, program: str) -> None:
    lines = calls(made, program, "90", "128", "64")
    prepared = lines.index("prepared")
    assert lines[0] == "load ELF" and lines[1].startswith("kernel 1 k_")
    maps = [line for line in lines if line.startswith("map ")]
    assert any(" 64 swizzle" in m and " 1024/64 128/" in m and m.endswith("+2048") for m in maps)
    rest = lines[prepared + 1 :]
    half = len(rest) // 2
    assert rest and all(line.startswith("launch ") for line in rest)
    assert [line.replace("stream 6", "stream 5") for line in rest[half:]] == rest[:half]
    assert all("stream 5" in line and line.endswith("first 64") for line in rest[:half])


@needs_compiler
def test_the_device_chooses_the_architecture(made: Path) -> None:
    on_ampere = calls(made, "shared", "86", "128", "64")
    assert not any(line.startswith("map ") for line in on_ampere) and any("launch" in line for line in on_ampere)
    done = run(made / "shared", "128", "64", LD_LIBRARY_PATH=str(made), VERSION="75")
    assert done.returncode == 209
    assert "the library has kernels for sm_90a, sm_80, but the GPU is sm_75" in done.stderr


@needs_compiler
def test_the_sizes_choose_the_variant(made: Path) -> None:
    result = compile_checked(Request(made / "k.naut", "sm_90a", variants=3))
    assert result.variants is not None and len(result.variants.all) > 1
    names = set[tuple[str, ...]]()
    for m in (8, 128, 4096):
        lines = calls(made, "shared", "90", str(m), "64")
        symbols = dict(line.split()[1:] for line in lines if line.startswith("kernel "))
        launched = [(symbols[w[1]], int(w[3])) for line in lines if (w := line.split())[0] == "launch"]
        wanted = plan_of(result.launched({"M": m}), {"M": m, "s": 2.0}).launches
        assert launched == 2 * [(x.kernel, x.grid[0]) for x in wanted]
        names.add(tuple(x.kernel for x in wanted))
    assert len(names) > 1


@needs_compiler
def test_errors_name_the_tensor_and_the_fact(made: Path) -> None:
    done = run(made / "shared", "128", "72", LD_LIBRARY_PATH=str(made), VERSION="90")
    assert done.returncode == 716 % 256 and "k: the address of A is no multiple of 16 bytes" in done.stderr
    done = run(made / "shared", "100", "64", LD_LIBRARY_PATH=str(made), VERSION="90")
    assert done.returncode == 1 and "assume M % 8 == 0" in done.stderr
    done = run(made / "shared", "-8", "64", LD_LIBRARY_PATH=str(made), VERSION="90")
    assert done.returncode == 1 and "k: M is -8; allowed are 0 to 2146435072" in done.stderr
    assert [line for line in calls(made, "shared", "90", "0", "64") if line.startswith("launch")] == []


@needs_compiler
def test_without_a_driver_the_library_says_so(made: Path) -> None:
    if find_library("cuda"):
        pytest.skip("there is a driver")
    done = run(made / "shared", "128", "64", LD_LIBRARY_PATH="")
    assert done.returncode == 35 and "the CUDA driver is missing: libcuda.so.1" in done.stderr


def test_a_missing_compiler_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "k.naut"
    spec.write_text("dim M = 4\ninput X: f32[M]\noutput Y: f32[M]\nY[i] = X[i] + 1\n")
    assert main([str(spec), "-o", str(tmp_path / "k.so"), "--arch", "sm_80", "--host-compiler", "no-such-cxx"]) == 3
    said = capsys.readouterr().err
    assert "'no-such-cxx' is not found" in said and "apt install g++" in said and not (tmp_path / "k.so").exists()
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Exception, match="none of c\\+\\+, g\\+\\+, clang\\+\\+ is on PATH"):
        find()


@needs_compiler
@pytest.mark.parametrize("form", ["so", "o"])
def test_equal_texts_give_equal_bytes(form: str) -> None:
    text = 'extern "C" int f() { return __LINE__; }\n'
    assert compile_library(text, form) == compile_library(text, form) != compile_library("\n" + text, form)


def test_several_architectures_need_a_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "k.naut"
    spec.write_text("dim M = 4\ninput X: f32[M]\noutput Y: f32[M]\nY[i] = X[i] + 1\n")
    assert main([str(spec), "-o", str(tmp_path / "k.cu"), "--arch", "sm_80,sm_90a"]) == 2
    assert "one architecture, but got sm_80,sm_90a; several: h, torch" in capsys.readouterr().err


@needs_compiler
def test_the_example_compiles(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    header = tmp_path / "softmax.h"
    assert main([str(root / "specs/rowwise/softmax.naut"), "-o", str(header), "--arch", "sm_80", "-q"]) == 0
    source = root / "specs/examples/softmax.cpp"
    built(GXX, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", tmp_path, source)
