"""Kernels that ptxas serialises or spills are planned again, or reported if the user gave them, for every output."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from nautilus.cli.main import main
from nautilus.core.errors import MissingToolError, ToolchainError
from nautilus.core.fallbacks import SMALLER
from nautilus.driver import Request, Result, build_cubin, compile_file
from nautilus.ma_tile.text import format as format_memory
from nautilus.runtime import nvrtc
from tests.endtoend.collection.warpgroups import ATTENTION

#: The rules' first choice, three warpgroups for so many heads, has too few registers, which only ptxas finds out.
TEXT = dedent(ATTENTION["sinks"]).lstrip().replace("H = 2", "H = 132")
CAUSAL = Path(__file__).parents[2] / "specs" / "attention" / "causal_prefill.naut"
PLAIN = "dim M = 3, N = 5\ninput X: f16[M, N]\noutput Y: f16[M]\nY[i] = sum[j](X[i, j])\n"


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spec") / "masked.naut"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def built(spec: Path) -> Result:
    return build_cubin(Request(spec))[0]


@pytest.fixture(scope="module")
def first(spec: Path) -> Result:
    """The compilation before ptxas has seen its kernels."""
    return compile_file(Request(spec))


@pytest.fixture
def no_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise MissingToolError("NVRTC", "not available: no wheel")

    monkeypatch.setattr(nvrtc, "_library", missing)


def schedule(result: Result) -> str:
    assert result.context.schedule is not None
    return result.context.schedule.to_json()


def test_the_first_choice_is_another(built: Result, first: Result) -> None:
    assert first.context.fallbacks.taken == () and built.context.fallbacks.taken == (("O", 1),)
    assert schedule(first) != schedule(built)


def test_text_and_schedule_are_of_the_kernel_in_the_cubin(
    spec: Path, built: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for form in ("cu", "json", "ptx"):
        assert main([str(spec), "--arch", "sm_90a", "-o", str(tmp_path / f"k.{form}")]) == 0
    assert (tmp_path / "k.cu").read_text() == built.cuda
    assert (tmp_path / "k.json").read_text() == schedule(built)
    assert (tmp_path / "k.ptx").read_bytes() == nvrtc.compile_cuda(built.cuda, "sm_90a", "ptx").data
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("form", ["scalar", "vr", "ma"])
def test_so_is_every_level(spec: Path, built: Result, form: str, tmp_path: Path) -> None:
    path = tmp_path / f"k.{form}"
    assert main([str(spec), "--arch", "sm_90a", "-o", str(path)]) == 0
    assert compile_file(Request(path, until="ma-tile")).modules["ma-tile"] == built.modules["ma-tile"]


def test_what_is_dumped_is_of_that_kernel_alone(
    spec: Path, built: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "ir"
    assert main([str(spec), "--arch", "sm_90a", "--dump-ir", "ma-tile", "--dump-dir", str(folder)]) == 0
    title, text = capsys.readouterr().err.split("\n", 1)
    assert title.startswith("; ---- ma-tile after approximate")
    assert text.strip() == format_memory(built.modules["ma-tile"]).strip()
    (last,) = folder.glob("*.cu")
    assert last.read_text() == built.cuda


def test_a_given_schedule_is_kept_and_warned_of(
    spec: Path, first: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, out = tmp_path / "s.json", tmp_path / "k.cu"
    given.write_text(schedule(first))
    command = [str(spec), "--arch", "sm_90a", "--schedule", str(given)]
    assert main([*command, "-o", str(out)]) == 0
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"nautilusc: warning: {spec}: kernel O: ptxas ") and out.read_text() == first.cuda
    assert main([*command, "-o", str(tmp_path / "k.cubin")]) == 4
    assert "error: kernel O: ptxas " in capsys.readouterr().err and not (tmp_path / "k.cubin").exists()


def test_so_is_a_dump(first: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump, out = tmp_path / "k.ma", tmp_path / "k.cu"
    dump.write_text(format_memory(first.modules["ma-tile"]))
    assert main([str(dump), "-o", str(out), "--diagnostics", "json"]) == 0
    said = json.loads(capsys.readouterr().err)
    assert said["severity"] == "warning" and "kernel O: ptxas " in said["message"] and out.exists()


def test_without_nvrtc_a_line_says_so(
    spec: Path, first: Result, tmp_path: Path, no_nvrtc: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "k.cu"
    assert main([str(spec), "--arch", "sm_90a", "-o", str(out)]) == 0
    said = f"nautilusc: note: {spec}: ptxas did not check the wgmma instructions (NVRTC: not available: no wheel)\n"
    assert capsys.readouterr() == ("", said)
    assert out.read_text() == first.cuda
    assert main([str(spec), "--arch", "sm_90a", "-o", str(out), "-q"]) == 0
    assert capsys.readouterr() == ("", "")


def test_kernels_without_such_products_need_no_nvrtc(
    tmp_path: Path, no_nvrtc: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.naut").write_text(PLAIN)
    assert main([str(tmp_path / "rows.naut"), "--arch", "sm_90a", "-o", str(tmp_path / "k.cu")]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_text_that_does_not_compile_does_not_leave(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ToolchainError("NVRTC", "the text does not compile for sm_90a", "kernel.cu(1): error")

    monkeypatch.setattr(nvrtc, "compile_cuda", broken)
    assert main([str(spec), "--arch", "sm_90a", "-o", str(tmp_path / "k.cu")]) == 3
    assert "does not compile" in capsys.readouterr().err and not (tmp_path / "k.cu").exists()


#: A product of f16 with so many elements a thread that its registers spill; a smaller tile has room.
SPILLING = """\
dim M = 4096, N = 4096, K = 1000
input A: f16[M, K]
input B: f16[K, N]
output C: f16[M, N]
C[i, j] = sum[k](A[i, k] * B[k, j])
"""


def spilled(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Let ptxas spill registers of the first ``times`` modules; returns the number of modules that it has seen."""
    real, asked = nvrtc.parse_resources, [0]

    def parse(log: str) -> tuple[nvrtc.Resources, ...]:
        asked[0] += 1
        return tuple(replace(r, spill_stores=800 if asked[0] <= times else 0) for r in real(log))

    monkeypatch.setattr(nvrtc, "parse_resources", parse)
    return asked


def test_a_kernel_that_spills_has_a_smaller_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.naut"
    path.write_text(SPILLING)
    asked = spilled(monkeypatch, 1)
    result, _ = build_cubin(Request(path, "sm_80"))
    assert result.context.fallbacks.taken == (("C", SMALLER),) and not result.spills and asked == [2]


def test_spills_that_stay_are_a_warning_that_names_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "c.naut", tmp_path / "c.cubin"
    path.write_text(SPILLING)
    asked = spilled(monkeypatch, 99)
    assert main([str(path), "--arch", "sm_80", "-o", str(out)]) == 0
    assert "warning" in (text := capsys.readouterr().err) and "kernel C spills 800 bytes" in text
    assert asked[0] <= 5  # each attempt is compiled
    assert main(["-q", str(path), "--arch", "sm_80", "-o", str(out)]) == 0
    assert not capsys.readouterr().err


def test_ptxas_sees_the_kernels_in_doubt_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, shown = nvrtc.compile_cuda, list[str]()

    def compiled(text: str, *given: Any, **more: Any) -> nvrtc.Compiled:
        shown.append(text)
        return real(text, *given, **more)

    monkeypatch.setattr(nvrtc, "compile_cuda", compiled)
    assert main([str(CAUSAL), "--arch", "sm_90a", "-o", str(tmp_path / "k.cu")]) == 0
    (text,) = shown
    assert "causal_prefill__O(" in text and "causal_prefill__O_masked(" not in text
    assert "causal_prefill__O_masked(" in (tmp_path / "k.cu").read_text()
