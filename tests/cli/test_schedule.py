"""Schedules on the command line: written, replayed byte for byte, edited, refused; and stable output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nautilus.cli.main import main

ROOT = Path(__file__).parents[2]
SPECS = ROOT / "specs"


def output(tmp_path: Path, spec: Path | str, replay: Path | None = None, *more: str) -> str:
    """The CUDA text of a compilation."""
    path = tmp_path / "out.cu"
    given = [*more] if replay is None else [*more, "--schedule", str(replay)]
    assert main([str(spec), *given, "-o", str(path)]) == 0
    return path.read_text()


def schedule(spec: Path, tmp_path: Path, arch: str = "sm_90a", *more: str) -> dict[str, Any]:
    path = tmp_path / "s.json"
    assert main([str(spec), "--arch", arch, *more, "-o", str(path)]) == 0
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize(
    "name", ["attention/causal_prefill", "attention/alibi_decode", "matmul/swiglu", "rowwise/cross_entropy"]
)
def test_a_schedule_replays_byte_for_byte(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = SPECS / f"{name}.naut"
    found = schedule(spec, tmp_path)
    assert found["inline"] is not None and found["kernels"]
    assert output(tmp_path, spec) == output(tmp_path, spec, tmp_path / "s.json")
    assert main([str(spec), "--emit", "json", "-o", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == found


def test_the_schedule_records_what_was_inlined(tmp_path: Path) -> None:
    found = schedule(SPECS / "attention/causal_prefill.naut", tmp_path, "sm_90a", "-O1")  # the rules' schedule
    assert found["inline"] == ["S", "P"]


def test_nothing_inlined_and_choices_left_open(tmp_path: Path) -> None:
    spec, path = str(SPECS / "attention/causal_prefill.naut"), tmp_path / "p.json"
    default = output(tmp_path, spec, None, "-O1")
    path.write_text('{"version": 2}')
    assert output(tmp_path, spec, path) == default
    path.write_text('{"version": 2, "inline": []}')
    assert output(tmp_path, spec, path) != default
    assert '"inline": []' in (tmp_path / "out.cu").read_text()


def edit(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Set ``kernels.0.mapping.stages`` and the like."""

    def apply(raw: Any) -> None:
        *parents, last = path.split(".")
        for key in parents:
            raw = raw[int(key)] if key.isdigit() else raw[key]
        raw[int(last) if last.isdigit() else last] = value

    return apply


@pytest.fixture(scope="module")
def gemm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The schedule of a product, as a file has it."""
    return json.dumps(schedule(SPECS / "matmul/f16.naut", tmp_path_factory.mktemp("gemm"), "sm_80"))


MAPPING, AXES = "kernels.0.mapping.", "kernels.0.axes."


@pytest.mark.parametrize(
    ("path", "value", "code", "message"),
    [
        (AXES + "0.tile", 64, 0, ""),
        (AXES + "0.tile", 5, 0, ""),
        (MAPPING + "stages", 0, 0, ""),
        (MAPPING + "stages", 1, 0, ""),
        (MAPPING + "stages", 2, 0, ""),
        (MAPPING + "warps", [2, 1], 0, ""),
        (MAPPING + "raster_order", "natural", 0, ""),
        ("factor", False, 0, ""),
        (MAPPING + "stages", 60, 4, "bytes of shared memory are needed, but a block may have"),
        (MAPPING + "stages", -1, 4, "kernel C: mapping: stages is -1, not 0 to 64"),
        (MAPPING + "warps", [0, 1], 4, "warps is 0 x 1, not 1 or more"),
        (MAPPING + "warps", [64, 1], 4, "warps are 64 x 1"),
        (MAPPING + "min_blocks", 0, 4, "min_blocks is 0, not 1 to 32"),
        (MAPPING + "raster_group", 0, 4, "raster_group is 0"),
        (MAPPING + "raster_order", "random", 4, "raster_order is 'random', not one of natural, longest-first, grouped"),
        (MAPPING + "epilogue", "fast", 4, "epilogue is 'fast', not one of shared, direct"),
        (MAPPING + "vector_bytes", 5, 4, "vector_bytes is 5"),
        (AXES + "0.tile", 0, 4, "kernel C: axis i: tile is 0, not 1 to 1048576"),
        (AXES + "0.role", "lop", 4, "kernel C: axis i: role is 'lop', not one of grid, loop, tile"),
        (AXES + "0.name", "z", 4, "no axis 'z'"),
        (AXES + "0.name", "k", 4, "'k' is listed twice"),
        ("kernels.0.name", "a b", 4, "'a b' is not a name"),
        ("inline", ["C"], 4, "'C' is not an elementwise temp"),
        ("inline", ["Z"], 4, "'Z' is not an elementwise temp"),
        (MAPPING + "stage", 3, 2, "unknown field kernels[0].mapping.stage; did you mean 'stages'?"),
        ("tiles", 3, 2, "unknown field tiles"),
        (
            MAPPING + "bulk_copies",
            True,
            2,
            "unknown field kernels[0].mapping.bulk_copies; it is called tma_loads since",
        ),
        (MAPPING + "warpgroups", 2, 2, "kernels[0].mapping.warpgroups is a field of engine warpgroup, not of warp"),
        (MAPPING + "engine", "tensor", 2, 'kernels[0].mapping.engine is "tensor", not one of warp, warpgroup'),
        (MAPPING[:-1], {}, 2, "no field kernels[0].mapping.engine; it is one of warp, warpgroup"),
        (MAPPING + "stages", "3", 2, 'kernels[0].mapping.stages is "3", not an integer'),
        (MAPPING + "stages", True, 2, "stages is true, not an integer"),
        (MAPPING + "warps", [1], 2, "warps has 1 entries, not 2"),
        ("kernels.0", 3, 2, "kernels[0] is 3, not an object"),
        ("version", 3, 2, "schedule version 3 is not 2"),
    ],
)
def test_edited_schedules(
    path: str, value: object, code: int, message: str, gemm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = SPECS / "matmul/f16.naut"
    raw = json.loads(gemm)
    edit(path, value)(raw)
    edited = tmp_path / "e.json"
    edited.write_text(json.dumps(raw))
    command = [str(spec), "--arch", "sm_80", "--schedule", str(edited), "-o", str(tmp_path / "k.cu")]
    assert main(command) == code
    said = capsys.readouterr().err
    assert message in said and "internal" not in said
    assert (tmp_path / "k.cu").exists() == (code == 0)


@pytest.mark.parametrize("text", ["", "[]", "3", "{", "\0", "[" * 100_000, '{"version": 2, "kernels": {}}'])
def test_files_that_are_no_schedule(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    assert main([str(SPECS / "matmul/f16.naut"), "--schedule", str(path)]) == 2
    assert f"cannot read schedule {path}: " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["attention/gqa_decode", "rowwise/layer_norm"])
def test_output_does_not_depend_on_the_hash_seed(name: str) -> None:
    texts = set()
    for seed in ("0", "1", "4242"):
        command = [sys.executable, "-m", "nautilus", str(SPECS / f"{name}.naut"), "-o", "-", "--dump-ir", "all"]
        seeded = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(command, capture_output=True, cwd=ROOT, env=seeded, check=True)
        texts.add(done.stdout + done.stderr)
    assert len(texts) == 1


def test_two_runs_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nautilus", str(SPECS / "rowwise/softmax.naut"), "-o", str(tmp_path / "k.cu")]
    running = [subprocess.Popen(command, cwd=ROOT) for _ in range(3)]
    assert [p.wait(timeout=60) for p in running] == [0, 0, 0]
    assert os.listdir(tmp_path) == ["k.cu"]
    assert (tmp_path / "k.cu").read_text() == output(tmp_path, SPECS / "rowwise/softmax.naut")


def test_a_batch_invariant_schedule_is_the_rule_of_the_planner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = SPECS / "attention/gqa_decode.naut"
    found = schedule(spec, tmp_path, "sm_90a", "--batch-invariant")
    assert found["batch_invariant"] and found["splits"]
    other = schedule(spec, tmp_path, "sm_90a", "--batch-invariant", "-D", "B=64")
    assert other["splits"] == found["splits"]
    assert main([str(spec), "--batch-invariant", "--schedule", str(tmp_path / "s.json"), "-o", "-"]) == 2
    assert "--schedule gives the plans of kernels" in capsys.readouterr().err
