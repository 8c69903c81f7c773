"""Completion in each shell that is installed, by the script that the shell sources; and the manual page."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nautilus.cli.help.completion import completed, script
from nautilus.cli.main import cli, main

ROOT = Path(__file__).parents[2]

#: how a shell shows what completes the last word of a line, given the words as shell text
BASH = """
compopt() {{ :; }}
source <(nautilusc completion bash)
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_nautilusc_completion nautilusc
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
compdef() {{ :; }}
source <(nautilusc completion zsh)
compadd() {{ while [[ $1 != -a ]]; do shift; done; print -l -- ${{(P)2}}; }}
_describe() {{ while [[ $1 == -* ]]; do shift; done; shift; print -l -- ${{${{(P)1}}%%:*}}; }}
_path_files() {{ print -l -- $PREFIX*(N); }}
words=({words}); CURRENT=${{#words}}; PREFIX=$words[CURRENT]
_nautilusc_completion
"""
FISH = """
nautilusc completion fish | source
complete --do-complete "{line}" | string split -f 1 \\t
"""


def completions(shell: str, line: str, folder: Path) -> set[str]:
    program = folder / "bin" / "nautilusc"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m nautilus "$@"\n')
    program.chmod(0o755)
    words = " ".join(f"'{word}'" for word in line.split(" "))
    text = {"bash": BASH, "zsh": ZSH, "fish": FISH}[shell].format(words=words, line=line)
    env = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    done = subprocess.run([shell, "-c", text], capture_output=True, text=True, cwd=folder, env=env, check=False)
    assert done.stderr == ""
    return {line.strip() for line in done.stdout.splitlines()}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_options_and_sizes_are_completed(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "s.naut").write_text("dim Batch = 2, Mass = 3  # sizes\ndim Most = 4\n")
    assert "check" in completions(shell, "nautilusc che", tmp_path)
    assert {"check", "man"} <= completions(shell, "nautilusc ", tmp_path)
    assert "--arch" in completions(shell, "nautilusc --ar", tmp_path)
    assert {"sm_80", "sm_90a"} <= completions(shell, "nautilusc s.naut --arch sm_", tmp_path)
    assert {"s.naut", "schedule"} <= completions(shell, "nautilusc s", tmp_path), "a spec or a command"
    assert {"Mass=", "Most="} == completions(shell, "nautilusc check s.naut -D M", tmp_path)


def test_fish_reads_a_line_for_each_completion(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("_NAUTILUSC_COMPLETE", "fish_complete"), ("COMP_WORDS", "nautilusc ch"), ("COMP_CWORD", "ch")):
        monkeypatch.setenv(name, text)
    assert completed(cli) == 0
    assert any(line.startswith("plain\tcheck\t") for line in capsys.readouterr().out.splitlines())
    assert "string split \\t" in script("fish")


def test_the_manual_has_every_command_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["man"]) == 0
    page = capsys.readouterr().out
    options = {o for c in cli.commands.values() for p in c.params if p.param_type_name == "option" for o in p.opts}
    assert [name for name in cli.commands if f"nautilusc {name}" not in page] == []
    assert [o for o in options if o.replace("-", r"\-") not in page] == []
    if shutil.which("groff") is not None:
        done = subprocess.run(
            ["groff", "-man", "-ww", "-Tutf8"], input=page, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 and done.stderr == "" and "no legal schedule" in done.stdout
