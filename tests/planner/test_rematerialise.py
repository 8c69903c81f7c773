"""Which definitions may be computed again by their readers, and how the readers share copies."""

from __future__ import annotations

import pytest

from nautilus.core.schedule import CopyPlan
from nautilus.frontend.semantics.check import load_text
from nautilus.planner import rematerialise
from nautilus.planner.rematerialise import copies, stored_bytes
from nautilus.scalar.analysis.definitions import read_defs
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower

INPUTS = """
dim N = {n}, D = 64
input X: f16[N, D]
input Y: f16[N, D]
S[i, j] = sum[d](X[i, d] * Y[j, d])
"""
TWO_SIDES = """
output A: f32[N, D]
output B: f32[N, D]
A[i, d] = sum[j](S[i, j] * Y[j, d])
B[j, d] = sum[i](S[i, j] * X[i, d])
"""
ONE_SIDE = """
output A: f32[N, D]
output B: f32[N, D]
A[i, d] = sum[j](S[i, j] * Y[j, d])
B[i, d] = sum[j](S[i, j] * X[j, d])
"""


def program(body: str, n: int | str = 2048) -> Program:
    return lower(load_text(INPUTS.format(n=n) + body))


def test_each_kernel_of_readers_has_its_own() -> None:
    assert copies(program(TWO_SIDES)) == (CopyPlan("S", ("B",)),)


def test_readers_that_share_a_kernel_need_no_copy() -> None:
    assert copies(program(ONE_SIDE)) == ()


def test_what_needs_a_statistic_of_all_elements_computes_them_again() -> None:
    text = """
    dim T = 8192, G = 64, R = 64
    input X: bf16[T, G, R]
    input H: bf16[R, R]
    output Q: f16[T, G, R]
    y[t, g, r] = sum[c](X[t, g, c] * H[c, r])
    p[t, g] = max[r](abs(y[t, g, r]))
    m[t] = max[g](p[t, g])
    Q[t, g, r] = y[t, g, r] / m[t]
    """
    assert copies(lower(load_text(text))) == (CopyPlan("y", ("Q",)),)


def test_the_best_and_the_second_best_of_a_row_compute_its_scores_each() -> None:
    text = """
    output I: i32[N]
    output J: i32[N]
    I[i] = argmax[j](S[i, j])
    J[i] = argmax[j | j != I[i]](S[i, j])
    """
    assert copies(program(text)) == (CopyPlan("S", ("J_max", "J")),)


def test_small_definitions_are_stored() -> None:
    assert copies(program(TWO_SIDES, 512)) == ()
    assert copies(program(TWO_SIDES, "runtime")) == ()


def test_a_reader_that_cannot_be_fused_keeps_the_stored_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rematerialise, "_fuses", lambda _, plan, __: plan.readers == ("A",))
    assert copies(program(TWO_SIDES)) == (CopyPlan("S", ("A",)),)
    monkeypatch.setattr(rematerialise, "_fuses", lambda *_: False)
    assert copies(program(TWO_SIDES)) == ()


def test_outputs_have_no_bytes_of_their_own() -> None:
    defs = read_defs(program(TWO_SIDES))
    assert stored_bytes(defs["S"]) == 4 * 2048**2
    assert stored_bytes(defs["A"]) == 0
