"""Chains of products with many columns: which of the two products is the first."""

from __future__ import annotations

import pytest

from nautilus.core.schedule import AxisPlan
from tests.planner.plans import schedule_of

PACKED = """\
dim B = 2, H = 4, M = 512, N = 384, D = 64
input Q: f16[B, H, M, D]
input KV: f16[B, N, 2, H, D]
output O: f16[B, H, M, D]
S[b, h, i, j] = sum[d](Q[b, h, i, d] * KV[b, j, 0, h, d])
O[b, h, i, d] = sum[j](softmax[j](S[b, h, i, j]) * KV[b, j, 1, h, d])
"""


def test_keys_and_values_in_one_tensor_have_the_plan_of_two_tensors() -> None:
    """The contraction of the scores and the columns of the result are one axis then; no product follows along it."""
    made = schedule_of(PACKED)
    (plan,) = made.kernels
    assert plan.mapping.engine == "warpgroup"
    assert plan.axis("j") == AxisPlan("j", "loop", 128)


LATENT = """\
dim B = 32, H = {heads}, N = 4096, R = {deep}, P = 64, D = 128
input Ql: bf16[B, H, R]
input Qp: bf16[B, H, P]
input C: bf16[B, N, R]
input Kp: bf16[B, N, P]
input Wv: bf16[H, R, D]
output O: bf16[B, H, D]
S[b, h, j] = sum[r](Ql[b, h, r] * C[b, j, r]) + sum[p](Qp[b, h, p] * Kp[b, j, p])
A: bf16[b, h, r] = sum[j](softmax[j](S[b, h, j]) * C[b, j, r])
O[b, h, d] = sum[r](A[b, h, r] * Wv[h, r, d])
"""


def latent(heads: int, deep: int) -> dict[str, tuple[tuple[str, ...], str]]:
    """Definitions and engine of each kernel."""
    text = LATENT.format(heads=heads, deep=deep)
    made = schedule_of(text)
    return {k.name: (k.ops, k.mapping.engine) for k in made.kernels}


@pytest.mark.parametrize(("heads", "engine"), [(16, "warp"), (128, "warpgroup")])
def test_scores_of_two_products_are_contracted_side_by_side(heads: int, engine: str) -> None:
    """The result in chunks is combined by a kernel of its own, which has more blocks than the last product."""
    kernels = latent(heads, 512)
    assert kernels["A_acc_part"] == (("S_sum", "S_sum_2", "A_max_part", "A_sum_part", "A_acc_part"), engine)
    combined = ("A_max", "A_sum", "A_acc", "A")
    assert kernels["A"][0] == combined and kernels["O"][0] == ("O_acc", "O")


def test_shared_memory_holds_576_contracted_elements_in_all() -> None:
    assert "S_sum" in latent(128, 528)
    assert "S_sum" in latent(16, 528)  # eight warps do not divide 528 columns


POOLING = """\
dim B = 512, N = 256, D = {columns}
input X: f16[B, N, D]
input w: f16[{vector}]
output Y: f16[B, D]
s[b, n] = sum[d](X[b, n, d] * w[{place}])
Y[b, d] = sum[n](softmax[n](s[b, n]) * X[b, n, d])
"""


@pytest.mark.parametrize(("columns", "step"), [(768, 64), (1024, 32)])
@pytest.mark.parametrize(("vector", "place"), [("D", "d"), ("B, D", "b, d")])
def test_rows_of_one_vector_stream_up_to_1024_columns_in_two_stages(
    columns: int, step: int, vector: str, place: str
) -> None:
    text = POOLING.format(columns=columns, vector=vector, place=place)
    made = schedule_of(text)
    (plan,) = made.kernels
    assert plan.axis("n") == AxisPlan("n", "loop", step) and plan.mapping.stages == 2
