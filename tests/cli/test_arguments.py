"""Words that are no files and no options."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.cli.main import main

SPEC = "dim N = 8\ninput X: f32[N]\noutput Y: f32[N]\nY[i] = X[i]\n"


@pytest.mark.parametrize(
    ("command", "word", "message"),
    [
        ("compile", "N=4", "'N=4' is no file; a size is given by --dim N=4"),
        ("run", "N=4", "'N=4' is no file; a size is given by --dim N=4"),
        ("run", "X=x.npy", "'X=x.npy' is no file; an input is given by --input X=x.npy"),
        ("explain", "more", "'more' is one word too many; the words are [OPTIONS] SPEC"),
    ],
)
def test_values_without_their_option(
    command: str, word: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "t.naut"
    spec.write_text(SPEC)
    assert main([command, str(spec), word]) == 2
    assert message in capsys.readouterr().err


def test_a_file_may_have_an_equals_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("n=8.naut").write_text(SPEC)
    assert main(["check", "n=8.naut", "--arch", "sm_80", "-q"]) == 0
