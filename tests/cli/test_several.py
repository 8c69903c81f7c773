"""Several specs, standard input, outputs without a name, dependency files, and codes that are explained."""

from __future__ import annotations

import io
import json
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from nautilus.cli.help.codes import PAGE, sections
from nautilus.cli.main import main
from nautilus.cli.output import waiting
from nautilus.cli.sizes import read_sizes
from nautilus.frontend.codes import CODES
from nautilus.frontend.syntax.grammar import grammar_file
from nautilus.passes.pipelines import STAGES

TEXT = "dim N = 8\ninput X: f32[N]\noutput Y: f32[N]\nY[i] = X[i] * 2\n"
ARCH = ["--arch", "sm_80"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.naut").write_text(TEXT)
    (tmp_path / "b.naut").write_text(TEXT.replace("* 2", "* 3"))
    return tmp_path


def give(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))


def test_without_a_name_the_output_lies_beside_the_spec(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "c.naut").write_text(TEXT)
    assert main(["a.naut", "sub/c.naut", *ARCH]) == 0
    assert main(["a.naut", "--emit", "json", *ARCH]) == 0
    assert {"a.cu", "a.json"} < {p.name for p in folder.iterdir()} and (folder / "sub" / "c.cu").is_file()
    assert capsys.readouterr() == ("", "")
    assert main(["a.naut", "-o", "a.vr", *ARCH]) == 0 and main(["a.vr", "--emit", "vr", *ARCH]) == 2
    assert "would replace it" in capsys.readouterr().err


def test_a_folder_takes_the_outputs_of_several_specs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["a.naut", "b.naut", "-o", "out/", *ARCH]) == 0
    assert (folder / "out" / "a.cu").read_text().startswith("// a:")
    assert (folder / "out" / "b.cu").read_text().startswith("// b:")
    assert main(["a.naut", "b.naut", "-o", "one.cu", *ARCH]) == 2
    assert "would share the output one.cu" in capsys.readouterr().err


def test_a_wrong_spec_does_not_stop_the_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.naut").write_text("output Y: f32[3]\n")
    assert main(["a.naut", "b.naut", *ARCH]) == 1
    assert (folder / "b.cu").is_file() and not (folder / "a.cu").exists()
    assert "a.naut:1:8: error[N0205]" in capsys.readouterr().err


def test_standard_input_is_a_spec_or_a_dump(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    (folder / "inc.naut").write_text("def twice(x) = 2 * x\n")
    give(monkeypatch, TEXT.replace("X[i] * 2", "twice(X[i])") + 'include "inc.naut"\n')
    assert main(["-", "--emit", "scalar", *ARCH]) == 0
    dump = capsysbinary.readouterr().out.decode()
    assert dump.startswith("; nautilusc dump: scalar")
    give(monkeypatch, dump)
    assert main(["-", *ARCH]) == 0
    assert b"stdin_launch" in capsysbinary.readouterr().out
    give(monkeypatch, "output Y: f32[3]\nY[i] = Z[i]\n")
    assert main(["check", "-"]) == 1
    assert b"<stdin>.naut:2:8: error[N0201]" in capsysbinary.readouterr().err


def test_the_rule_of_dependencies_names_every_read_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "in c.naut").write_text("def twice(x) = 2 * x\n")
    (folder / "a.naut").write_text(TEXT + 'include "in c.naut"\n')
    assert main(["a.naut", "-o", "k.cu", "-MD", *ARCH]) == 0
    assert (folder / "k.d").read_text() == "k.cu: a.naut in\\ c.naut\nin\\ c.naut:\n"
    assert main(["a.naut", "-o", "k.cu", "-MF", "rule.mk", *ARCH]) == 0
    assert (folder / "rule.mk").is_file()
    assert main(["a.naut", "-o", "-", "-MD", *ARCH]) == 2
    assert "-MD needs a file" in capsys.readouterr().err


def test_line_info_is_in_the_cubin(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["a.naut", "-o", "k.cubin", "-lineinfo", *ARCH]) == 0
    assert main(["a.naut", "-o", "plain.cubin", *ARCH]) == 0
    assert b"k.cu\0" in (folder / "k.cubin").read_bytes() and b".debug_line" in (folder / "k.cubin").read_bytes()
    assert b".debug_line" not in (folder / "plain.cubin").read_bytes()
    assert main(["a.naut", "-o", "k.cu", "-lineinfo", *ARCH]) == 2
    assert "-lineinfo" in capsys.readouterr().err


def test_passes_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print-passes", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [s["stage"] for s in found] == [s.name for s in STAGES]
    assert [p["name"] for p in found[1]["passes"]] == [p.name for p in STAGES[1].passes]


def test_a_misspelt_command_has_a_suggestion(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chekc", "a.naut"]) == 2
    assert "did you mean 'check'?" in capsys.readouterr().err


# ---- sizes
@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("N=1e4", {"N": 10000}),
        ("N=2**14, M = N // 3", {"N": 16384, "M": 5461}),
        ("N=0x10,M=-(4096 - 1_000) % 7", {"N": 16, "M": -3096 % 7}),
        ("N=3 * (K + 1) / 2", {"N": 6}),
    ],
)
def test_sizes_are_exact(text: str, sizes: dict[str, int]) -> None:
    assert read_sizes(text, {"K": 3}) == sizes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("N", "is not NAME=INTEGER"),
        ("N=", "is not NAME=INTEGER"),
        ("N=f(1)", "is not NAME=INTEGER"),
        ("N=1e999", "too large"),
        ("N=9**64**9", "exponent"),
        ("N=1/3", "not an integer"),
        ("N=1//0", "divides by zero"),
        ("N=M,M=1", "'M' is no number, and no size that is given before it"),
    ],
)
def test_what_is_no_size_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        read_sizes(text, {})


# ---- codes
def test_every_code_has_its_section() -> None:
    found = sections(grammar_file(PAGE).read_text())
    assert {code: text.partition("\n")[0] for code, text in found.items()} == {c: f"{c}: {CODES[c]}" for c in CODES}
    assert all(len(text.splitlines()) > 2 for text in found.values())


def test_a_code_is_explained(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "n0303"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("N0303: range disagreement\n") and "    hint: " in said and "```" not in said
    assert main(["explain", "N0999"]) == 2
    assert "there is no code N0999" in capsys.readouterr().err
    assert main(["explain", "N0901"]) == 0
    assert capsys.readouterr().out.startswith("N0901: a syntax error in the text of an IR")


# ---- long commands
class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "quiet", "shown"), [(Terminal, False, True), (Terminal, True, False), (io.StringIO, False, False)]
)
def test_a_long_command_says_on_a_terminal_that_it_works(
    stream: type[io.StringIO], quiet: bool, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = stream()
    monkeypatch.setattr("nautilus.cli.output._DELAY", 0.0)
    monkeypatch.setattr("sys.stderr", said)
    with waiting("checking a.naut", quiet):
        for _ in range(1000):
            if not shown or said.getvalue():
                break
            time.sleep(0.01)
    assert ("checking a.naut: 0 s" in said.getvalue()) == shown
    assert said.getvalue().endswith("\r\x1b[K") == shown


def test_a_long_compilation_says_on_a_terminal_that_it_works(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nautilus.cli.output._DELAY", 0.0)
    for options, shown in (([], True), (["--time-passes"], False)):  # which prints itself
        said = Terminal()
        monkeypatch.setattr("sys.stderr", said)
        assert main(["a.naut", "-o", "a.cu", *ARCH, "--no-cache", *options]) == 0
        assert ("compiling a.naut: 0 s" in said.getvalue()) == shown


# ---- machines without a GPU
def test_without_a_gpu_the_exit_code_is_that_of_the_toolchain(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nautilus.check.device.gpu_missing", lambda _: "no driver")
    assert main(["check", "a.naut", "--device", "cuda"]) == 3
    assert capsys.readouterr().err == "nautilusc: error: check: no driver\n"


def test_rows_of_the_database_are_found_by_the_file_of_a_spec(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["db", "ls", "specs/attention/causal_prefill.naut"]) == 0
    named = capsys.readouterr().out
    assert named and all(" causal_prefill [" in line for line in named.splitlines())
    assert main(["db", "show", "elsewhere/causal_prefill.naut", "--count", "1"]) == 0
    assert main(["db", "show", "causal.naut"]) == 2
