"""Split-K reductions and packed heads in the whole pipeline: every level, the text through NVRTC, equal bits."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from nautilus.check.inputs import InputSet, generate
from nautilus.check.levels import Trace, run
from nautilus.core.schedule import PackPlan, Schedule, SplitPlan
from nautilus.driver import Request, compile_file
from nautilus.frontend.semantics.check import load_spec
from nautilus.planner import cuts as plan_cuts
from tests.endtoend.support import Compilation, complaints
from tests.shipped import SPECS

DECODE = [p for p in SPECS if "decode" in p.name]

ROWS = """
dim M = 3, N = 700
input  X: f16[M, N]
output Y: f32[M]
Y[i] = log(sum[j](exp(X[i, j] - max[k](X[i, k])))) + max[k](X[i, k])
"""
COLUMNS = """
dim M = 700, N = 40
input  X: f16[M, N]
output Y: f32[N]
Y[j] = sum[i](X[i, j] * X[i, j])
"""
PLACE = """
dim M = 3, N = 700
input  X: f16[M, N]
output Y: i32[M]
Y[i] = argmax[j](X[i, j])
"""
NORM = """
dim M = 3, N = 700
input  X: f16[M, N]
output Y: f16[M, N]
Y[i, j] = X[i, j] / sqrt(sum[k](X[i, k] * X[i, k]) / N + 1e-5)
"""


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default rules split reductions of a few hundred elements."""
    monkeypatch.setattr(plan_cuts, "COMBINE", 0.0)
    monkeypatch.setattr(plan_cuts, "CHUNK", 64)
    monkeypatch.setattr(plan_cuts, "STEPS", 1)


def compiled(request: Request) -> Compilation:
    trace = Trace()
    return Compilation(compile_file(request, [trace]), tuple(trace.levels))


def grouped(path: Path) -> bool:
    return path.stem in ("gqa_decode", "softcap_decode")


def sizes(path: Path, batch: int, n: int = 333) -> dict[str, int]:
    heads = {"Hq": 8, "Hkv": 2} if grouped(path) else {"H": 2}
    return {"B": batch, "N": n, "D": 32, **heads}


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("path", DECODE, ids=lambda p: p.stem)
def test_decoding_in_chunks(path: Path, arch: str) -> None:
    made = compiled(Request(path, arch, sizes(path, 1)))
    schedule = made.result.context.schedule
    assert schedule is not None and schedule.splits and len(schedule.kernels) == 2
    assert (schedule.packs is not None) == (path.stem in ("gqa_decode", "softcap_decode"))
    assert made.result.cuda_module.code.count("__global__") == 2
    wrong = complaints(made)
    assert not wrong, "\n".join(wrong)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("text", [ROWS, COLUMNS, PLACE], ids=["rows", "columns", "place"])
def test_long_rows_in_chunks(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nautilus.planner.kernel.MAX_ROW", 128)  # otherwise a row would be a tile
    made = compiled(Request(Path("given.naut"), "sm_80", text=dedent(text).lstrip()))
    schedule = made.result.context.schedule
    assert schedule is not None and schedule.splits
    wrong = complaints(made)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("splits", [2, 9])
def test_a_normalised_row_in_chunks(splits: int) -> None:
    """There are three kernels or two: the row is written after the sums are combined."""
    schedule = Schedule(splits=(SplitPlan("Y_sum", "k", splits, 64),))
    made = compiled(Request(Path("given.naut"), "sm_80", text=dedent(NORM).lstrip(), schedule=schedule))
    assert len(made.result.context.schedule.kernels) in (2, 3)  # type: ignore[union-attr]
    wrong = complaints(made)
    assert not wrong, "\n".join(wrong)


def first_sequence(path: Path, arch: str, given: InputSet, batch: int) -> Any:
    """The result of the kernels' threads for the first of ``batch`` sequences, whose inputs are ``given``."""
    made = compiled(Request(path, arch, sizes(path, batch, 200), Schedule(batch_invariant=True)))
    assert len(made.result.context.schedule.splits or ()) == 3  # type: ignore[union-attr]
    several = generate(made.result.modules["spec"], "random", 100 + batch)
    for name, x in given.arrays.items():
        several.arrays[name][: len(x)] = x
    return run(made.last("ma-tile"), several, "typed")["O"][0]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "path, batch", zip(DECODE, (2, 3, 5, 3), strict=True), ids=lambda x: x.stem if isinstance(x, Path) else str(x)
)
def test_equal_bits_for_every_batch_size(path: Path, batch: int) -> None:
    given = generate(load_spec(path, dims=sizes(path, 1, 200)), "random", 5)
    want = first_sequence(path, "sm_90a", given, 1)
    assert np.abs(want).max() > 0
    np.testing.assert_array_equal(first_sequence(path, "sm_90a", given, batch), want)


@pytest.mark.parametrize("kind", ["random", "large-logits", "one-hot"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_chunks_that_hold_nothing(arch: str, kind: str) -> None:
    """Four tiles of keys in seven chunks: the last three blocks of a head store identities."""
    path = next(p for p in DECODE if p.stem == "gqa_decode")
    names = (("P_max", "j"), ("P_sum", "j"), ("O_acc", "j"))
    schedule = Schedule(packs=(PackPlan("S_sum", "h", 4),), splits=tuple(SplitPlan(*n, 7, 64) for n in names))
    made = compiled(Request(path, arch, sizes(path, 1, 200), schedule))
    wrong = complaints(made, kind=kind)
    assert not wrong, "\n".join(wrong)
