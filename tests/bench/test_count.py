"""Operations and bytes of specs."""

from __future__ import annotations

import pytest

from nautilus.bench.count import flops, fraction, total_bytes
from nautilus.core.expr.nodes import Const, Op, Var
from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from tests.shipped import SPECS


def count(text: str) -> float:
    return flops(load_text(text), {})


PRODUCT = "dim M = 6, N = 10, K = 4\ninput A: f16[M, K]\ninput B: f16[K, N]\noutput C: f16[M, N]\n"


def test_a_product() -> None:
    spec = load_text(PRODUCT + "C[i, j] = sum[k](A[i, k] * B[k, j])\n")
    assert flops(spec, {}) == 2 * 6 * 10 * 4
    assert total_bytes(spec, {}) == 2 * (6 * 4 + 4 * 10 + 6 * 10)


def test_elementwise_work_and_plain_sums_do_not_count() -> None:
    assert count(PRODUCT + "C[i, j] = gelu(sum[k](A[i, k] * B[k, j]))\n") == 2 * 6 * 10 * 4
    assert count("dim M = 6, N = 10\ninput X: f16[M, N]\noutput Y: f16[M]\nY[i] = sum[j](exp(X[i, j]))\n") == 0


def test_a_constant_is_no_factor() -> None:
    assert count("dim M = 6, N = 10\ninput X: f16[M, N]\noutput Y: f16[M]\nY[i] = sum[j](2 * X[i, j])\n") == 0


def test_a_masked_sum_counts_where_the_mask_holds() -> None:
    text = "dim N = 8\ninput A: f16[N, N]\ninput B: f16[N, N]\noutput C: f16[N, N]\n"
    assert count(text + "C[i, j] = sum[k | k <= i](A[i, k] * B[k, j])\n") == 2 * 8 * sum(i + 1 for i in range(8))


ATTENTION = """dim H = 3, N = 32, D = 4
input Q: f16[H, N, D]
input K: f16[H, N, D]
input V: f16[H, N, D]
output O: f16[H, N, D]
S[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d])
P[h, i, j] = softmax[j | {mask}](S[h, i, j])
O[h, i, d] = sum[j](P[h, i, j] * V[h, j, d])
"""


@pytest.mark.parametrize(
    ("mask", "kept"),
    [
        ("j <= i", sum(i + 1 for i in range(32))),
        ("j <= i and i - j < 5", sum(min(i + 1, 5) for i in range(32))),
        ("j >= 0", 32 * 32),
    ],
)
def test_both_products_of_masked_attention_count_what_the_mask_keeps(mask: str, kept: int) -> None:
    assert count(ATTENTION.format(mask=mask)) == 2 * 2 * 3 * 4 * kept


def test_a_definition_read_everywhere_too_is_needed_everywhere() -> None:
    both = ATTENTION.format(mask="j <= i").replace(
        "D]\nS[", "D]\noutput T: f32[H, N, N]\nT[h, i, j] = S[h, i, j]\nS[", 1
    )
    assert count(both) == 2 * 3 * 4 * (32 * 32 + sum(i + 1 for i in range(32)))


def test_a_large_space_is_sampled() -> None:
    i, j = Var("i"), Var("j")
    causal = Op("le", (j, i), DType.BOOL)
    assert fraction(causal, {"i": 16384, "j": 16384}) == pytest.approx(0.5, abs=1e-4)
    window = Op(
        "and", (causal, Op("lt", (Op("sub", (i, j), DType.I32), Const(4096, DType.I32)), DType.BOOL)), DType.BOOL
    )
    assert fraction(window, {"i": 16384, "j": 16384}) == pytest.approx(0.25 - 0.125 * 0.25, abs=1e-4)


def test_shipped_specs_have_work_that_is_finite() -> None:
    for path in SPECS:
        spec = load_text(path.read_text())
        assert 0 <= flops(spec, {}) < 1e15, path
        assert total_bytes(spec, {}) > 0, path
