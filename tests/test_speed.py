"""The command line is quick: processor time of whole processes, the best of three."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shipped import ROOT

#: A fixed piece of work of the interpreter, the unit of the limits; it took 1.2 to 2.0 s where they were set.
YARDSTICK = "found = {}\nfor n in range(9_000_000):\n    found[n & 1023] = n\n"


def seconds(*command: str) -> float:
    """Seconds of processor time, user and system; unlike wall time it hardly minds a busy machine."""
    before = os.times()
    subprocess.run([sys.executable, *command], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def cost(*arguments: str) -> float:
    """Processor time of the command line in units of the yardstick, which runs in turn, because machines differ."""
    runs = [(seconds("-m", "nautilus", *arguments), seconds("-c", YARDSTICK)) for _ in range(3)]
    return min(own for own, _ in runs) / min(unit for _, unit in runs)


def test_help() -> None:
    assert cost("--help") < 0.3


LIMIT = 2.75


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attention/window_prefill", "attention/softcap_prefill", "matmul/swiglu"])
def test_spec_to_cuda(name: str, tmp_path: Path) -> None:
    assert cost(f"specs/{name}.naut", "--arch", "sm_90", "-o", str(tmp_path / "kernel.cu")) < LIMIT
