"""Lower bounds of a program's arithmetic, by the structure of its reductions."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from nautilus.cost.model import estimate
from nautilus.cost.roofline import roofline
from nautilus.driver import Request, compile_file
from nautilus.remarks.remarks import Watch
from nautilus.targets.rates import machine

ARCH = "sm_90a"

HEAD = "dim M = 1024, N = 1024, K = 1024\ninput A: {0}[M, K], B: {0}[K, N]\noutput C: {0}[M, N]\n"
M = machine(ARCH)
TERMS = 1024**3 / (M.multiprocessors * M.clock)  # seconds of a term in each cycle and multiprocessor


@cache
def arithmetic(text: str) -> float:
    """The lower bound of the arithmetic of the reductions of ``text``, in seconds."""
    watch = Watch()
    result = compile_file(Request(Path("<spec>.naut"), ARCH, until="ma-tile", text=text), [watch])
    assert watch.whole is not None
    return roofline(watch.whole, estimate(result.modules["ma-tile"], ARCH), ARCH).floors["arithmetic"]


@pytest.mark.parametrize(
    ("dtype", "term", "cycles"),
    [
        ("f32", "max[k](A[i, k] + B[k, j])", 1 / 64),  # a maximum may contain the sum; the integer unit takes it
        ("f32", "sum[k](abs(A[i, k] - B[k, j]))", 1 / 128),
        ("f32", "max[k](min(A[i, k] + B[k, j], A[i, k] - B[k, j]))", 3 / 128),
        ("i32", "min[k](A[i, k] + B[k, j])", 0.75 / 64),  # three quarters of extrema are those of the integer unit
        ("f32", "min[k: K | k <= i](A[i, k] + B[k, j])", 0),  # a loop may leave out terms
        ("f16", "sum[k](A[i, k] * B[k, j])", 0),  # matrix units may compute it
    ],
)
def test_a_term_of_a_reduction_has_an_instruction(dtype: str, term: str, cycles: float) -> None:
    text = HEAD.format(dtype) + f"C[i, j] = {term}\n"
    assert arithmetic(text) == pytest.approx(TERMS * cycles, rel=1e-6)


def test_what_two_reductions_compute_of_the_same_tensors_counts_once() -> None:
    head = HEAD.format("f32").replace("output C: f32[M, N]", "output C: f32[M, N], D: f32[M, N]")
    body = "min(A[i, k] + B[k, j], A[i, k] - B[k, j])"
    both = f"{head}C[i, j] = max[k]({body})\nD[i, j] = min[k]({body})\n"
    assert arithmetic(both) == pytest.approx(TERMS * (3 / 128 + 1 / 64), rel=1e-6)


def test_neighbours_share_what_they_reduce_of_a_window() -> None:
    text = "dim N = 65536, W = 64\ninput X: f32[65599]\noutput C: f32[N]\nC[i] = max[k: W](X[i + k] + 1)\n"
    assert arithmetic(text) == 0
