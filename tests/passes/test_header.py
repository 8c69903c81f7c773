"""The leading comment of an emitted file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nautilus.core.schedule import Schedule
from nautilus.driver import Request, Result, compile_file
from nautilus.frontend.spec import Spec
from nautilus.passes.header import compact, header
from nautilus.runtime.nvrtc import build
from tests.shipped import IDS, SPECS

SPEC = """
dim M = 96, N = 300
input X: f16[M, N]
scalar eps: f32 = 1e-5
scalar gain: f32
output Y: f16[M, N]
output A: i32[M]
Y[i, j] = rms_norm[j](X[i, j], eps) * gain
A[i] = argmax[j](X[i, j])
"""


def compiled(dims: dict[str, int] | None = None) -> Result:
    return compile_file(Request(Path("rows.naut"), "sm_80", dims or {}, text=SPEC))


def test_says_what_the_file_computes(tmp_path: Path) -> None:
    path = tmp_path / "rows.naut"
    path.write_text(SPEC)
    lines = compile_file(Request(path, "sm_80")).context.header()
    assert lines[0].startswith("rows: made by nautilusc ") and lines[0].endswith(" for sm_80, precision fast.")
    for line in [
        "sizes   M = 96, N = 300",
        "input   X: f16[96, 300]",
        "output  Y: f16[96, 300]",
        "output  A: i32[96]",
        "scalar  eps: f32 = 1e-05",
        "scalar  gain: f32",
    ]:
        assert line in lines
    (error,) = [line for line in lines if line.startswith("error")]
    assert "Y " in error and "e-04" in error and "A exact" in error


def test_says_how_every_kernel_is_launched() -> None:
    result = compiled()
    told = [line for line in result.context.header() if line.startswith("kernel")]
    kernels = result.modules["ma-tile"].kernels
    assert len(told) == len(kernels) >= 1
    for line, kernel in zip(told, kernels, strict=True):
        threads = 32 * kernel.warps
        assert f"__{kernel.name}: {kernel.blocks.value} blocks of {threads} threads, {kernel.smem_bytes} bytes" in line
        symbol = line.split()[1].rstrip(":")
        assert f"{symbol}<<<{kernel.blocks.value}, {threads}, {kernel.smem_bytes}, stream>>>" in result.cuda


def test_the_error_bound_is_found_when_the_text_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cubin is made of the code, which has no header."""
    asked: list[str] = []

    def counted(spec: Spec, *_: object) -> str:
        asked.append(spec.name)
        return "Y 1.0e-03"

    monkeypatch.setattr("nautilus.passes.header._bounds", counted)
    result = compiled()
    assert build(result.cuda_module, "sm_80").resources and not asked
    comment = result.cuda.removesuffix(result.cuda_module.code)
    assert comment == "".join(f"// {line}".rstrip() + "\n" for line in result.context.header()) + "\n"
    assert len(asked) == 1 and "// error   Y 1.0e-03" in comment


def test_sizes_are_those_of_this_compilation() -> None:
    assert "sizes   M = 32, N = 300" in compiled({"M": 32}).context.header()


@pytest.mark.parametrize("spec", SPECS, ids=IDS)
def test_the_schedule_in_it_replays(spec: Path) -> None:
    schedule = compile_file(Request(spec, "sm_90", until="scalar")).context.schedule
    assert schedule is not None
    lines = list(compact(schedule))
    assert Schedule.from_json("\n".join(lines)) == schedule
    assert len(lines) <= 3 + 12 * len(schedule.kernels)


def test_the_comment_in_the_file_is_the_schedule() -> None:
    result = compiled()
    comment = [line.removeprefix("// ") for line in result.cuda.splitlines() if line.startswith("// ")]
    text = "\n".join(comment)
    found, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
    assert Schedule.from_json(json.dumps(found)) == result.context.schedule


def test_without_kernels_the_schedule_is_whole() -> None:
    assert json.loads("\n".join(compact(Schedule(inline=(), kernels=()))))["kernels"] == []


def test_a_dump_has_no_spec(tmp_path: Path) -> None:
    from nautilus.cli.main import main

    spec = tmp_path / "rows.naut"
    spec.write_text(SPEC)
    assert main(["compile", str(spec), "--arch", "sm_80", "-o", str(tmp_path / "rows.ma")]) == 0
    lines = compile_file(Request(tmp_path / "rows.ma", "sm_80")).context.header()
    assert "input   X: f16[96, 300]" in lines and "scalar  eps: f32" in lines
    assert not any(line.startswith(("sizes", "error")) for line in lines)


def test_a_name_stays_in_its_line() -> None:
    result = compiled()
    spec = replace(result.modules["spec"], name='a\\\nint main() { "\u2028')
    first = header(result.modules["ma-tile"], "sm_80", "fast", None, spec)[0]
    assert first.startswith('a__int main() { "_: made by')


def test_long_sizes_are_broken(tmp_path: Path) -> None:
    path = tmp_path / "product_of_many_axes_with_a_long_name.naut"
    path.write_text(
        "dim BATCH = runtime, ROWS = runtime, COLUMNS = runtime, TERMS = runtime\ninput A: f16[BATCH, ROWS, TERMS]\n"
        "input X: f16[BATCH, TERMS, COLUMNS]\noutput R: f32[BATCH, ROWS, COLUMNS]\n"
        "R[b, i, j] = sum[k](A[b, i, k] * X[b, k, j])\n"
    )
    lines = compile_file(Request(path, arch="sm_80")).cuda.splitlines()
    header = lines[: next(n for n, line in enumerate(lines) if not line.startswith("//"))]
    assert sum("BATCH" in line for line in header) > 2 and max(map(len, header)) <= 116
