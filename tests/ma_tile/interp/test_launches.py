"""Launches of equal kernels on equal memory are repeated from what an earlier run wrote."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from nautilus.ma_tile.interp import module as interpreter
from nautilus.ma_tile.interp.module import Launches, run_module
from nautilus.ma_tile.interp.state.machine import Machine
from nautilus.ma_tile.ir.ops import MemModule
from tests.endtoend.support import travel

SPEC = """
dim M = 32
input X: f32[M, M], Z: f32[M]
output A: f32[M], B: f32[M], C: f32[M]
A[i] = max[j](X[i, j])
B[i] = sum[j](cos(A[i] + A[j]))
C[i] = sum[j](cos(Z[i] - Z[j]))
"""


def module(text: str) -> MemModule:
    found = travel(text).last("ma-tile").module
    assert isinstance(found, MemModule)
    assert {k.name for k in found.kernels} == {"A", "B", "C"}
    return found


@pytest.fixture(name="launched")
def fixture_launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that were launched."""
    found: list[str] = []
    launch = interpreter._launch

    def noted(machine: Machine, seed: int, blocks: Iterable[int] | None = None) -> None:
        found.append(machine.kernel.name)
        launch(machine, seed, blocks)

    monkeypatch.setattr(interpreter, "_launch", noted)
    return found


def test_only_what_differs_is_launched_again(launched: list[str]) -> None:
    rng = np.random.default_rng(0)
    inputs = {"X": rng.standard_normal((32, 32)), "Z": rng.standard_normal(32)}
    first, other = module(SPEC), module(SPEC.replace("max[j]", "min[j]"))
    same = replace(first, kernels=tuple(replace(k, min_blocks=2) if k.name == "A" else k for k in first.kernels))
    known = Launches()
    for m, again in ((first, "ABC"), (first, ""), (same, "A"), (other, "ABC"), (first, "ABC")):
        launched.clear()
        want = run_module(m, inputs)
        launched.clear()
        found = run_module(m, inputs, known=known)
        assert sorted(launched) == list(again)
        assert all(np.array_equal(found[name], want[name]) for name in want)


def test_a_kernel_on_other_tensors_is_launched_again(launched: list[str]) -> None:
    known, inputs = Launches(), {"X": np.ones((32, 32)), "Z": np.zeros(32)}
    first = module(SPEC)
    run_module(first, inputs, known=known)
    launched.clear()
    run_module(replace(first, buffers=first.buffers[::-1]), inputs, known=known)
    assert len(launched) == 3
