"""``nautilusc run``: inputs of every kind, scalars, seeds, stages, outputs, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.cli.main import main
from nautilus.core.errors import ToolchainError
from nautilus.runtime.device import open_device

SPEC = """
dim M = 3, N = 5
input X: f16[M, N]
input I: i32[M]
input B: bool[N]
input Z: bf16[N]
scalar eps: f32 = 1e-5
scalar n: i32 = 3
scalar flag: bool = true
output Y: f16[M]
output A: bf16[M]
output S: f32[]
output C: i32[M]
Y[i] = sum[j](X[i, j] * Z[j] if B[j] else 0) + eps
A[i] = X[i, 0] * n
S[] = sum[i, j](X[i, j])
C[i] = I[i] + (1 if flag else 0)
"""
STAGES = ("spec", "scalar", "vr-tile", "ma-tile")
GRID = np.arange(15.0).reshape(3, 5)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "mixed.naut"
    path.write_text(SPEC)
    return path


def outputs(spec: Path, *arguments: str) -> dict[str, Any]:
    """What was written, by output name."""
    folder = spec.parent / "out"
    assert main(["run", str(spec), "--output-dir", str(folder), *arguments]) == 0
    return {p.stem: np.load(p) for p in folder.iterdir()}


@pytest.mark.parametrize("stage", STAGES)
def test_types_and_shapes_of_outputs(spec: Path, stage: str) -> None:
    found = outputs(spec, "--stage", stage)
    kinds = {n: (a.dtype.name, a.shape) for n, a in found.items()}
    assert kinds == {"Y": ("float16", (3,)), "A": ("float32", (3,)), "S": ("float32", ()), "C": ("int32", (3,))}


def test_stages_agree(spec: Path) -> None:
    found = [outputs(spec, "--stage", s, "--set", "eps=0.5", "--seed", "7") for s in STAGES]
    for other in found[1:]:
        for name, array in found[0].items():
            assert np.allclose(array, other[name], rtol=1e-2, atol=1e-3), name


@pytest.mark.parametrize(
    "array", [GRID, np.asfortranarray(GRID), GRID.astype(">f4"), GRID.astype(np.int8), GRID[::-1][::-1]]
)
def test_arrays_of_any_order_and_type(spec: Path, array: Any) -> None:
    np.save(spec.parent / "x.npy", array)
    found = outputs(spec, "--input", f"X={spec.parent / 'x.npy'}")
    assert found["S"] == 105 and found["A"].tolist() == [0, 15, 30]


def test_npz_scalars_and_nan(spec: Path) -> None:
    path = spec.parent / "all.npz"
    np.savez(path, X=np.full((3, 5), np.nan), I=np.array([1, 2, 3]), other=np.ones(1))
    found = outputs(spec, "--input", f"X={path}", "--input", f"I={path}", "--set", "flag=false", "--set", "n=-2")
    assert np.isnan(found["S"]) and found["C"].tolist() == [1, 2, 3]


def test_random_inputs_depend_on_seed_and_name_alone(spec: Path) -> None:
    first = outputs(spec, "--seed", "5")
    np.save(spec.parent / "b.npy", np.ones(5, bool))
    second = outputs(spec, "--seed", "5", "--input", f"B={spec.parent / 'b.npy'}")
    assert first["S"] == second["S"] and outputs(spec, "--seed", "6")["S"] != first["S"]


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("X", np.ones((5, 3)), "has shape [5, 3]; X needs [3, 5]"),
        ("X", np.ones(15), "has shape [15]"),
        ("X", np.ones((0, 5)), "has shape [0, 5]"),
        ("X", np.ones((3, 5), complex), "has elements of type complex128, which are not numbers"),
        ("X", np.full((3, 5), "a"), "has elements of type <U1, which are not numbers"),
        ("X", np.zeros((3, 5), "M8[s]"), "not numbers"),
        ("X", np.full((3, 5), None, dtype=object), "it is no .npy or .npz file of numbers"),
        ("I", np.array([1.5, 2, 3]), "contains 1.5, which is not a value of type i32"),
        ("I", np.array([1, 2, 2**40]), "contains 1099511627776, which is not a value of type i32"),
        ("I", np.array([1, np.nan, 3]), "contains nan, which is not a value of type i32"),
        ("B", np.array([0, 1, 2, 1, 0]), "contains 2, which is not a value of type bool"),
    ],
)
def test_arrays_that_do_not_fit(
    spec: Path, name: str, array: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = spec.parent / "a.npy"
    np.save(path, array, allow_pickle=True)
    assert main(["run", str(spec), "--input", f"{name}={path}"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("nautilusc: error: ") and message in said and said.count("\n") == 1


@pytest.mark.parametrize("content", [b"", b"1 2 3", b"\x93NUMPY\x00junk", b"PK\x03\x04junk", b"\x93NUMPY\x01\x00"])
def test_files_that_are_no_arrays(spec: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path = spec.parent / "a.npy"
    path.write_bytes(content)
    assert main(["run", str(spec), "--input", f"X={path}"]) == 2
    assert f"cannot read {path}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "n=1.5"], "--set n=1.5: not a value of type i32"),
        (["--set", "n=9999999999"], "not a value of type i32"),
        (["--set", "n=nan"], "not a value of type i32"),
        (["--set", "eps=abc"], "not a value of type f32"),
        (["--set", "flag=2"], "not a value of type bool"),
        (["--set", "q=1"], "unknown scalar 'q'; scalars: eps, n, flag"),
        (["--input", "Y=a.npy"], "unknown input 'Y'; inputs: X, I, B, Z"),
        (["--input", "X=/"], "cannot read /: Is a directory"),
        (["--seed", "-1"], "'--seed'"),
        (["--stage", "cuda"], "'--stage'"),
        (["--device", "cuda", "--stage", "spec"], "--stage requires --device cpu"),
    ],
)
def test_arguments_that_are_refused(
    spec: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(spec), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_scalar_without_default_must_be_given(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec.write_text(SPEC.replace("i32 = 3", "i32"))
    for stage in STAGES:
        assert main(["run", str(spec), "--stage", stage]) == 2, stage
        assert "scalar 'n' has no value and no default; give one with --set n=VALUE" in capsys.readouterr().err


def test_sizes_known_at_launch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "launch.naut"
    path.write_text("dim M = runtime <= 16, N = 5\ninput X: f32[M, N]\noutput Y: f32[M]\nY[i] = sum[j](X[i, j])\n")
    np.save(tmp_path / "x.npy", np.ones((7, 5)))
    assert outputs(path, "--set", "M=4")["Y"].shape == (4,)
    for stage in ("spec", "scalar"):
        assert outputs(path, "--stage", stage, "--input", f"X={tmp_path / 'x.npy'}")["Y"].tolist() == [5.0] * 7
    for bad in ([], ["--set", "M=-1"], ["--set", "M=17"], ["--set", "M=3", "--input", f"X={tmp_path / 'x.npy'}"]):
        assert main(["run", str(path), *bad]) == 2
    assert main(["run", str(path), "--dim", "M=17"]) == 1
    assert "dim 'M' is 17; allowed are 0 to 16" in capsys.readouterr().err
    for stage in STAGES:
        assert outputs(path, "--stage", stage, "--dim", "M=0")["Y"].shape == (0,)


def test_dim_fixes_a_size_for_a_compilation_alone(tmp_path: Path) -> None:
    path = tmp_path / "launch.naut"
    path.write_text("dim M = runtime\ninput X: f32[M]\noutput Y: f32[M]\nY[i] = X[i] * 2\n")
    for arguments, launcher in (([], "int M, void* workspace"), (["--dim", "M=5"], "void* Y, void* workspace")):
        assert main([str(path), *arguments, "-o", str(tmp_path / "launch.cu")]) == 0
        assert launcher in (tmp_path / "launch.cu").read_text()


def test_eight_bit_floats_need_instructions_that_convert_them(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec.write_text(SPEC.replace("output A: bf16", "output A: f8e4m3"))
    want = outputs(spec, "--stage", "scalar")["A"]
    assert want.dtype == np.float32
    assert np.array_equal(outputs(spec, "--stage", "ma-tile")["A"], want)
    assert main([str(spec), "--arch", "sm_90"]) == 0 and main([str(spec), "--arch", "sm_80"]) == 4
    assert "8-bit floating point (f8e4m3) on sm_80" in capsys.readouterr().err


def test_an_index_beyond_its_tensor_is_the_inputs_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gather.naut"
    path.write_text("dim M = 2, N = 5\ninput X: f32[N]\ninput I: i32[M]\noutput Y: f32[M]\nY[i] = X[I[i]]\n")
    np.save(tmp_path / "i.npy", np.array([1, 99]))
    assert main(["run", str(path), "--stage", "scalar", "--input", f"I={tmp_path / 'i.npy'}"]) == 1
    said = capsys.readouterr().err
    assert "X has extent 5, accessed at 99" in said and "internal" not in said


def test_without_a_gpu_cuda_is_exit_3(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        open_device()
    except ToolchainError:
        assert main(["run", str(spec), "--device", "cuda", "--diagnostics", "json"]) == 3
        said = json.loads(capsys.readouterr().err)
        assert said["exit_code"] == 3 and said["message"].startswith("CUDA driver: ")


def test_outputs_that_cannot_be_written(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(spec), "--output-dir", str(spec)]) == 2
    assert "cannot create" in capsys.readouterr().err
