"""The command line is quick: processor time of whole processes, the best of at most three."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shipped import ROOT

#: A fixed piece of work of the interpreter, the unit of the limits; it took 1.2 to 2.0 s where they were set.
YARDSTICK = "found = {}\nfor n in range(9_000_000):\n    found[n & 1023] = n\n"
#: The share of a limit below which one run is enough.
CLEAR = 0.8


def seconds(*command: str) -> float:
    """Seconds of processor time, user and system, which depend less than wall time on what else the machine runs."""
    keeps = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # else Python compiles each time
    before = os.times()
    subprocess.run([sys.executable, *command], check=True, cwd=ROOT, stdout=subprocess.DEVNULL, env=keeps)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def cost(*arguments: str, limit: float) -> float:
    """Processor time of the command line in units of the yardstick, which runs between, because machines differ.

    It is measured again only where it is not far below ``limit``.
    """
    runs: list[tuple[float, float]] = []
    while True:
        runs.append((seconds("-m", "nautilus", *arguments), seconds("-c", YARDSTICK)))
        found = min(own for own, _ in runs) / min(unit for _, unit in runs)
        if len(runs) == 3 or found < CLEAR * limit:
            return found


def test_help() -> None:
    assert cost("--help", limit=0.3) < 0.3


LIMIT = 2.75


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attention/window_prefill", "attention/softcap_prefill", "matmul/swiglu"])
def test_spec_to_cuda(name: str, tmp_path: Path) -> None:
    found = cost(f"specs/{name}.naut", "--arch", "sm_90", "-o", str(tmp_path / "kernel.cu"), limit=LIMIT)
    assert found < LIMIT
