"""Definitions that are stored by the cost model: which ones are looked at, and that what is given stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.core.schedule import Schedule
from nautilus.cost.model import estimate
from nautilus.driver import Request, compile_file
from nautilus.passes.selection.inline_choice import AGAIN, candidates
from nautilus.scalar.passes.inline import default_inline
from nautilus.scalar.rewriting import find_defs
from nautilus.tune.search.trial_lowering import trials_of

GATED = """
dim M = 2048, D = 1024, F = 2048
input X: bf16[M, D]
input Wg: bf16[F, D]
input Wu: bf16[F, D]
input Wd: bf16[D, F]
output Y: bf16[M, D]
H{type}[i, f] = silu(sum[k](X[i, k] * Wg[f, k])) * sum[k](X[i, k] * Wu[f, k])
Y[i, j] = sum[f](H[i, f] * Wd[j, f])
"""
ATTENTION = """
dim M = 1024, N = 1024, D = 64
input Q: bf16[M, D]
input K: bf16[N, D]
input V: bf16[N, D]
output O: bf16[M, D]
P: bf16[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]))
O[i, d] = sum[j](P[i, j] * V[j, d])
"""
COPY = """
dim M = 1024, N = 1024, K = 1024
input A: f32[M, K]
input B: bf16[N, K]
output C: f32[M, N]
T: bf16[i, k] = A[i, k]
C[i, j] = sum[k](T[i, k] * B[j, k])
"""
TYPED = GATED.replace("{type}", ": bf16")


def request(text: str, schedule: Schedule | None = None) -> Request:
    return Request(Path("given.naut"), "sm_90a", text=text, schedule=schedule, until="ma-tile")


@pytest.mark.parametrize(
    ("text", "expected"), [(TYPED, ("H",)), (GATED.replace("{type}", ""), ()), (ATTENTION, ()), (COPY, ())]
)
def test_candidates_are_small_computed_and_read_often(text: str, expected: tuple[str, ...]) -> None:
    origin = trials_of(request(text, Schedule(inline=())))[0].origin
    assert origin is not None
    found = candidates(find_defs(origin.before), default_inline(origin.before))
    assert found == expected
    assert AGAIN > 256  # the widest head, so that scores are never stored


def test_an_operand_is_stored_where_that_is_faster() -> None:
    stored = compile_file(request(TYPED))
    again = compile_file(request(TYPED, Schedule(inline=("H",))))
    assert stored.context.schedule is not None and stored.context.schedule.inline == ()
    assert [k.ops for k in stored.context.schedule.kernels] == [("H_sum", "H_sum_2", "H"), ("Y_acc", "Y")]
    seconds = [estimate(r.modules["ma-tile"], "sm_90a").seconds for r in (stored, again)]
    assert seconds[0] < 0.9 * seconds[1]
    assert again.context.schedule is not None and again.context.schedule.inline == ("H",)
