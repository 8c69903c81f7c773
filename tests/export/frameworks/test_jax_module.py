"""Functions of JAX: the handler with the headers of jaxlib, on stand-ins for XLA and for the driver."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from nautilus.cli.main import main
from nautilus.core.errors import ToolchainError
from nautilus.driver import Request, compile_file
from nautilus.export.frameworks.jax_module import headers, jax_function, jax_prelude
from nautilus.export.library import Part
from nautilus.runtime.nvrtc import include_paths
from tests.export.frameworks.test_tvm_ffi import SPEC

GXX = shutil.which("g++")
needs_tools = pytest.mark.skipif(
    GXX is None or not include_paths() or find_spec("jaxlib") is None,
    reason="needs g++, the headers of CUDA and jaxlib",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, here = tmp_path_factory.mktemp("jax"), Path(__file__).parent
    (folder / "k.naut").write_text(SPEC)
    assert main([str(folder / "k.naut"), "--emit", "jax", "-q", "--arch", "sm_90a,sm_80"]) == 0
    cuda, xla = [f"-I{p}" for p in include_paths()], headers()
    shared = ["-shared", "-fPIC", *cuda]
    subprocess.run([GXX or "", *shared, here.parent / "driver.cpp", "-o", folder / "libcuda.so.1"], check=True)
    subprocess.run([GXX or "", *xla, here / "xla.cpp", "-ldl", "-o", folder / "xla"], check=True)
    return folder


def call(folder: Path, wrong: str = "") -> list[str]:
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder), "VERSION": "90"}
    command = [str(folder / "xla"), str(folder / "k.kernels.so"), wrong]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout.splitlines()


@needs_tools
def test_the_handler_launches_in_the_stream(made: Path) -> None:
    lines = call(made)
    launches = [line for line in lines if line.startswith("launch ")]
    assert lines[-1] == "done" and launches and all("stream 77" in line for line in launches)
    maps = [line for line in lines if line.startswith("map ")]
    assert not maps or any(" 4096 swizzle" in m and "+256" in m for m in maps)


@needs_tools
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("type", "3 given has another element type"), ("rank", "3 given has 1 axes instead of 2"),
        ("shape", "3 axis 1 of C has 128 elements instead of 256"), ("count", "3 k: another number of arrays"),
    ],
)  # fmt: skip
def test_the_handler_refuses_wrong_arrays(made: Path, wrong: str, said: str) -> None:
    assert call(made, wrong) == [said]


@needs_tools
@pytest.mark.skipif(find_spec("jax") is None, reason="needs jax")
def test_jax_traces_the_function(made: Path) -> None:
    code = (
        "import jax, jax.numpy as jnp, k\n"
        "f = jax.jit(lambda a, b: k.k(a, b, 2.5, 7) + 1)\n"
        "a, b = jax.ShapeDtypeStruct((24, 128), jnp.float16), jax.ShapeDtypeStruct((256, 128), jnp.float16)\n"
        "print(jax.eval_shape(f, a, b))\n"
        "print(f.trace(a, b).lower(lowering_platforms=('cuda',)).as_text())\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(made), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment, cwd=made
    )
    assert done.returncode == 0, done.stderr
    assert "shape=(24, 256), dtype=float32" in done.stdout
    assert "@nautilus_k" in done.stdout and "flag = 7 : i32" in done.stdout and "code = 2.5" in done.stdout


def test_the_file_is_python() -> None:
    result = compile_file(Request(Path("k.naut"), "sm_90a", text=SPEC))
    text = jax_function([Part("sm_90a", result.choice, b"")], ["// the contract"])
    ast.parse(jax_prelude(["spec"]) + text)
    assert text.startswith("# the contract\n")
    assert "def spec(shape: jax.Array, given: jax.Array, code: float, flag: int) -> jax.Array:\n" in text
    assert "    M = shape.shape[0]\n" in text
    assert (
        "jax.ShapeDtypeStruct((M, 256,), jax.numpy.float32), jax.ShapeDtypeStruct((LIBRARY.spec_workspace(M),)," in text
    )


def test_scalars_may_have_names_of_python_and_keep_their_types() -> None:
    text = "dim N = 8\ninput X: f32[N]\nscalar class: f32, k: i8\noutput Y: f32[N]\nY[i] = X[i] * class + k\n"
    code = jax_function([Part("sm_80", compile_file(Request(Path("x.naut"), "sm_80", text=text)).choice, b"")], [])
    ast.parse(code)
    assert 'call(X, **{"class": numpy.float32(class_)}, k=numpy.int32(numpy.int8(k)))' in code


def test_missing_headers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nautilus.export.frameworks.jax_module.find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match="pip install jax"):
        headers()
