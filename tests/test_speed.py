"""The command line does little work: calls of functions in whole processes, imports included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shipped import ROOT

#: Runs the command line and prints the number of calls; the process is cold, as that of a user is.
PROGRAM = """
import sys
from tests.runtime.work import calls
def run():
    from nautilus.__main__ import entry
    try:
        entry()
    except SystemExit as stop:
        assert not stop.code, stop.code
print(calls(run), file=sys.stderr)
"""

#: Calls up to the CUDA C++, half as many again as when the limits were set.
LIMITS = {"attention/window_prefill": 8_000_000, "attention/softcap_prefill": 5_000_000, "matmul/swiglu": 1_900_000}


def work(*arguments: str) -> int:
    """The calls of one run of the command line."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], check=True, cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return int(done.stderr.splitlines()[-1])


def test_help() -> None:
    assert work("--help") < 120_000


@pytest.mark.slow
@pytest.mark.parametrize(("name", "limit"), LIMITS.items())
def test_spec_to_cuda(name: str, limit: int, tmp_path: Path) -> None:
    assert work(f"specs/{name}.naut", "--arch", "sm_90", "-o", str(tmp_path / "kernel.cu")) < limit
