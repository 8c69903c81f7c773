"""The wheel holds grammar and prelude and works outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_wheel_works_outside_the_checkout(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="the wheel is built without build isolation")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("nautilusc-*.whl")
    names = set(ZipFile(wheel).namelist())
    assert {"nautilus/grammar/naut.lark", "nautilus/grammar/prelude.naut", "nautilus/cli/main.py"} <= names
    assert "nautilus/tune/database/shipped.jsonl" in names
    assert {"nautilus/specs/attention/causal_prefill.naut", "nautilus/grammar/README.md"} <= names
    assert not any(n.startswith(("tests/", "specs/")) for n in names)

    site = tmp_path / "site"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(site), str(wheel)], check=True)
    spec = tmp_path / "s.naut"
    spec.write_text("dim M = 2, N = 7\ninput X: f32[M, N]\noutput Y: f32[M, N]\nY[i, j] = softmax[j](X[i, j])\n")
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PYTHONPATH": str(site)}
    command = [sys.executable, "-m", "nautilus", "run", str(spec), "-v"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Y[2, 7]: mean 0.142857")
