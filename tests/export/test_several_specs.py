"""Several specs in one library: those that share names of tensors, sizes and kernels launch their own kernels."""

from __future__ import annotations

import ast
import builtins
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from nautilus.cli.main import main
from nautilus.export.built import names_in
from nautilus.export.frameworks.python_function import BUILTINS
from tests.export.frameworks.test_torch_module import TORCH
from tests.export.test_library import GXX, built, calls, needs_compiler, programs, run

SPEC = "dim M = runtime, N = 64\ninput X: f32[M, N]\noutput Y: f32[M, N]\nY[i, j] = {}\n"
BODIES = {"twice": "X[i, j] * 2", "rows": "X[i, j] - max[k](X[i, k])", "twice_launch": "X[i, j] * 3"}
USER = """#include "all.h"
int main(void) {
    void* X = (void*)4096; void* Y = (void*)8192;
    return twice_launch(X, Y, 8, 0, (cudaStream_t)5) + rows_launch(X, Y, 16, 0, (cudaStream_t)6) +
           twice_launch_launch(X, Y, 24, 0, (cudaStream_t)7);
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with specs, one library, object file and header for all of them, and the driver."""
    place = tmp_path_factory.mktemp("several")
    for name, body in BODIES.items():
        (place / f"{name}.naut").write_text(SPEC.format(body))
    specs = [str(place / f"{name}.naut") for name in BODIES]
    for output in ("liball.so", "all.o", "all.h"):
        assert main([*specs, "-o", str(place / output), "--arch", "sm_80", "-q", "--variants", "1"]) == 0
    programs(place, USER, "liball.so", "all.o")
    built(GXX, "-fsyntax-only", "-Wall", "-Werror", "-x", "c++", place / "all.h")
    return place


@needs_compiler
@pytest.mark.parametrize("program", ["shared", "static"])
def test_each_spec_launches_its_own_kernel(folder: Path, program: str) -> None:
    lines = calls(folder, program, "80")
    symbols = dict(line.split()[1:3] for line in lines if line.startswith("kernel "))
    launched = [line.split() for line in lines if line.startswith("launch ")]
    assert [symbols[words[1]] for words in launched] == ["twice__Y", "rows__Y", "twice_launch__Y"]
    assert [f"stream {n}" in " ".join(words) for n, words in zip((5, 6, 7), launched, strict=True)] == [True] * 3


@needs_compiler
def test_a_library_exports_the_functions_of_the_specs_alone(folder: Path) -> None:
    named = [line.split()[-1] for line in run("nm", "-D", "--defined-only", folder / "liball.so").stdout.splitlines()]
    parts = ("launch", "workspace", "prepare", "launch_prepared", "plan_size")
    assert sorted(named) == sorted(f"{spec}_{part}" for spec in BODIES for part in parts)


@needs_compiler
def test_one_file_has_the_operators_of_several_specs(folder: Path) -> None:
    specs = [str(folder / f"{name}.naut") for name in BODIES]
    assert main([*specs, "-o", str(folder / "ops.py"), "--arch", "sm_80", "-q", "--variants", "1"]) == 0
    (folder / "torch.py").write_text(TORCH)
    user = "import torch, ops\nX = torch.Tensor(4096, (8, 64), torch.float32)\n"
    user += "print([f(X).shape for f in (ops.twice, ops.rows, ops.twice_launch)])"
    env = os.environ | {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(folder), "VERSION": "80"}
    done = subprocess.run([sys.executable, "-c", user], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "[(8, 64), (8, 64), (8, 64)]" in done.stdout, done.stderr
    symbols = dict(line.split()[1:3] for line in done.stdout.splitlines() if line.startswith("kernel "))
    launched = [symbols[line.split()[1]] for line in done.stdout.splitlines() if line.startswith("launch ")]
    assert launched == ["twice__Y", "rows__Y", "twice_launch__Y"]
    used = {n.id for n in ast.walk(ast.parse((folder / "ops.py").read_text())) if isinstance(n, ast.Name)}
    assert used & set(dir(builtins)) <= BUILTINS


@pytest.mark.parametrize("form", ["torch", "jax"])
def test_functions_have_no_names_of_python_that_the_file_uses(form: str) -> None:
    assert names_in(form, ["max", "int", "tuple", "rows"]) == ["max_", "int_", "tuple_", "rows"]


@needs_compiler
@pytest.mark.parametrize(("form", "package"), [("jax", "jaxlib"), ("tvm-ffi", "tvm_ffi")])
def test_one_library_of_a_framework_has_the_functions_of_several_specs(folder: Path, form: str, package: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"needs {package}")
    specs, file = [str(folder / f"{name}.naut") for name in ("twice", "rows")], folder / f"f_{package}"
    file = file.with_suffix(".py" if form == "jax" else ".so")
    assert main([*specs, "--emit", form, "-o", str(file), "--arch", "sm_80", "-q", "--variants", "1"]) == 0
    library = file.with_suffix(".kernels.so") if form == "jax" else file
    named = {line.split()[-1] for line in run("nm", "-D", "--defined-only", library).stdout.splitlines()}
    assert {"twice_jax", "rows_jax"} <= named or {"__tvm_ffi_twice", "__tvm_ffi_rows"} <= named
    if form == "jax":
        functions = [n.name for n in ast.parse(file.read_text()).body if isinstance(n, ast.FunctionDef)]
        assert functions == ["twice", "rows"]


def test_specs_of_one_name_and_options_of_one_spec_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sub").mkdir()
    names = ["a.naut", "sub/a.naut", "b.naut", "wrong.naut"]
    for name in names:
        (tmp_path / name).write_text(SPEC.format("X[i, j]" if name != "wrong.naut" else "Z[i, j]"))
    a, again, b, wrong = (str(tmp_path / name) for name in names)
    library = str(tmp_path / "lib.so")
    assert main([a, again, "-o", library, "--arch", "sm_80"]) == 2
    assert "would both define the function a_launch" in capsys.readouterr().err
    for option in ("--name", "--report", "--trace", "--dump-dir"):
        assert main([a, b, "-o", library, option, "x", "--arch", "sm_80"]) == 2
        assert f"{option} is for one spec, and 2 are given" in capsys.readouterr().err
    assert main([wrong, a, "-o", str(tmp_path / "all.h"), "--arch", "sm_80"]) == 1
    assert "wrong.naut:4" in capsys.readouterr().err and not (tmp_path / "all.h").exists()
