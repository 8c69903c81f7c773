"""The bits of one sequence in batches of several sizes, beside several neighbours, on the simulated GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nautilus.check.inputs import generate
from nautilus.core.schedule import Schedule
from nautilus.driver import Request
from tests.simulation.compared import compiled, prepare
from tests.simulation.simulate import MISSING, execute

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "a compiler")

PAGED = """
dim B = runtime <= 16, Hq = 2, Hkv = 1, N = 256, D = 32, P = 16, Pages = 64
const G = Hq // Hkv
input  Q: bf16[B, Hq, D]
input  K: bf16[Pages, P, Hkv, D]
input  V: bf16[Pages, P, Hkv, D]
input  page: i32[B, N // P]
input  len: i32[B]
output O: bf16[B, Hq, D]
assume 0 <= len[b] <= N
S[b, h, j: N] = sum[d](Q[b, h, d] * K[page[b, j // P], j % P, h // G, d]) / sqrt(D)
A[b, h, j] = softmax[j | j < len[b]](S[b, h, j])
O[b, h, d] = sum[j](A[b, h, j] * V[page[b, j // P], j % P, h // G, d])
"""
RAGGED = """
dim T = runtime <= 500, H = 1, D = 32
input Q: f16[T, H, D]
input K: f16[T, H, D]
input V: f16[T, H, D]
input start: i32[T]
output O: f16[T, H, D]
S[h, i, j] = sum[d](Q[i, h, d] * K[j, h, d]) / sqrt(D)
A[h, i, j] = softmax[j | start[i] <= j and j <= i](S[h, i, j])
O[i, h, d] = sum[j](A[h, i, j] * V[j, h, d])
"""


def test_a_row_has_equal_bits_in_every_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same sequence, at several places of batches of several sizes, over the same pages."""
    monkeypatch.setattr("nautilus.planner.cuts.CHUNK", 64)
    monkeypatch.setattr("nautilus.planner.streaming.SHORTEST", 64)
    case = prepare(Request(Path("given.naut"), "sm_80", text=PAGED.lstrip(), schedule=Schedule(batch_invariant=True)))
    schedule, spec = case.result.context.schedule, case.result.modules["spec"]
    assert schedule is not None and schedule.splits
    program, pages = compiled(case, tmp_path), ("K", "V")
    row = generate(spec, "random", 5, sizes={"B": 1})
    found = []
    for seed, (count, place) in enumerate([(1, 0), (2, 1), (7, 0), (7, 6), (16, 3)]):
        several = generate(spec, "random", 100 + seed, sizes={"B": count})
        arrays = {n: row.arrays[n] if n in pages else x.copy() for n, x in several.arrays.items()}
        for name in ("Q", "page", "len"):
            arrays[name][place] = row.arrays[name][0]
        (got,) = execute(program, replace(several, arrays=arrays), [seed])
        found.append(got["O"][place])
    assert np.abs(found[0]).max() > 0
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_a_ragged_sequence_has_equal_bits_behind_any_neighbours(tmp_path: Path) -> None:
    """The sequence lies at positions 40 to 59; what lies before and behind it has other lengths and contents."""
    request = Request(Path("given.naut"), "sm_80", text=RAGGED.lstrip(), schedule=Schedule(batch_invariant=True))
    case = prepare(request)
    program, spec = compiled(case, tmp_path), case.result.modules["spec"]
    own = generate(spec, "random", 5, sizes={"T": 20})
    found = []
    for seed, starts in enumerate([(0, 60), (0, 10, 60, 70), (0, 39, 60), (0, 1, 2, 3, 60, 61, 100)]):
        length = 60 if seed == 0 else 130
        several = generate(spec, "random", 100 + seed, sizes={"T": length})
        arrays = {n: x.copy() for n, x in several.arrays.items()}
        for name in ("Q", "K", "V"):
            arrays[name][40:60] = own.arrays[name]
        begins = sorted({*starts, 40})
        arrays["start"] = np.array([max(s for s in begins if s <= i) for i in range(length)], arrays["start"].dtype)
        (got,) = execute(program, replace(several, arrays=arrays), [seed])
        found.append(got["O"][40:60])
    assert np.abs(found[0]).max() > 0
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
