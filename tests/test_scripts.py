"""The shell script beside the specs, the Makefile's help, and the CI script's syntax."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shipped import ROOT

SCRIPT = ROOT / "specs" / "compile_all.sh"
GOOD = "dim M = 3, N = 5\ninput X: f32[M, N]\noutput Y: f32[M]\nY[i] = sum[j](X[i, j])\n"


def run(script: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(script), *arguments], capture_output=True, text=True, check=False, env=os.environ | env
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the script with two specs of its own, one of them wrong."""
    (tmp_path / "some specs" / "family").mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "some specs")
    (tmp_path / "some specs" / "family" / "good.naut").write_text(GOOD)
    (tmp_path / "some specs" / "family" / "wrong.naut").write_text(GOOD.replace("X[i", "Z[i"))
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\ncd "{ROOT}" && exec "{sys.executable}" -m nautilus "$@"\n')
    compiler.chmod(0o755)
    return tmp_path


def test_one_line_a_spec_and_failure_at_the_end(folder: Path) -> None:
    script, out = folder / "some specs" / "compile_all.sh", folder / "out put"
    done = run(script, str(out), "--arch", "sm_80", NAUTILUSC=str(folder / "compiler"))
    assert done.stdout.splitlines() == ["ok      family/good", "FAILED  family/wrong (exit code 1)"]
    assert done.returncode == 1 and "wrong.naut" in done.stderr
    assert "for sm_80" in (out / "family" / "good.cu").read_text()
    assert not (out / "family" / "wrong.cu").exists()


def test_another_form_and_success(folder: Path) -> None:
    (folder / "some specs" / "family" / "wrong.naut").unlink()
    script, out = folder / "some specs" / "compile_all.sh", folder / "out"
    done = run(script, str(out), "json", "--arch", "sm_80", NAUTILUSC=str(folder / "compiler"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok      family/good\n", "")
    assert (out / "family" / "good.json").read_text().startswith("{")


def test_usage() -> None:
    assert run(SCRIPT, "out", NAUTILUSC="/nowhere/nautilusc").returncode == 3
    assert "OUTPUT_DIR" in run(SCRIPT, "--help").stdout
    assert run(SCRIPT).returncode == 2 and run(SCRIPT, "--arch", "sm_80").returncode == 2


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not on PATH")
def test_make_describes_itself() -> None:
    done = subprocess.run(["make", "-C", str(ROOT), "--no-print-directory"], capture_output=True, text=True, check=True)
    told = {line.split()[1] for line in done.stdout.splitlines()}
    assert {"demo", "test", "lint", "types", "coverage", "gpu-test", "wheel", "clean"} <= told


def test_hooks_and_hosted_ci_run_what_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    hooks = re.findall(r"entry: make --silent (\S+)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert len(hooks) == 3 and set(hooks) <= targets
    hosted = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert "run: .ci/run" in hosted and 'python: ["3.11", "3.x"]' in hosted


def test_ci_is_a_script() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK) and "make test" in script.read_text()
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_a_python_that_is_a_single_file_is_found_before_one_in_a_shared_library(tmp_path: Path) -> None:
    def interpreter(folder: str, version: str, code: int) -> str:
        path = tmp_path / folder / version
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\nexit {code}\n")
        path.chmod(0o755)
        return str(path)

    def found(*folders: str) -> str:
        path = ":".join(str(tmp_path / f) for f in folders)
        return run(ROOT / ".ci" / "find_python", PATH=path).stdout.strip()

    shared, newer = interpreter("shared", "python3.12", 3), interpreter("newer", "python3.13", 0)
    single = interpreter("single", "python3.12", 0)
    interpreter("unusable", "python3.11", 127)
    assert found("unusable", "newer", "shared", "single") == single
    assert found("unusable", "newer", "shared") == shared
    assert found("newer") == newer and found("unusable") == ""
