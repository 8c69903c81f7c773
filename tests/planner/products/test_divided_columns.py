"""Chains of products with many columns: which of the two products is the first."""

from __future__ import annotations

from pathlib import Path

from nautilus.core.schedule import AxisPlan
from nautilus.driver import Request, compile_file

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
    made = compile_file(Request(Path("packed.naut"), text=PACKED, until="scalar")).context.schedule
    assert made is not None
    (plan,) = made.kernels
    assert plan.mapping.engine == "warpgroup"
    assert plan.axis("j") == AxisPlan("j", "loop", 128)
