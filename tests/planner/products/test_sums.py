"""Operands of products that are reductions of other terms are stored by a kernel of their own."""

from __future__ import annotations

import pytest

from nautilus.core.schedule import KernelPlan, WarpgroupPlan
from nautilus.scalar.passes.operands import store_operands
from tests.endtoend.support import complaints, travel

GATHERED = """
    dim N = {n}, K = 4, C = 128
    input h: f16[N, C]
    input at: i32[N, K]
    input W: f16[C, C]
    input b: f32[C]
    assume -1 <= at[n, k] < N
    output Y: f16[N, C]
    s[n, c] = sum[k | at[n, k] >= 0](h[at[n, k], c])
    Y[n, e] = tanh(sum[c](s[n, c] * W[c, e]) + b[e])
"""

NORMS = """
    dim B = 16, N = 4096, R = {r}, D = 64
    input K: bf16[B, N, D]
    input V: bf16[B, N, D]
    input W: bf16[R, D]
    output O: f32[B, R, D]
    k2[b, j] = sum[d](f32(K[b, j, d]) ** 2)
    O[b, r, e] = sum[j](exp(sum[d](W[r, d] * K[b, j, d]) - k2[b, j]) * V[b, j, e])
"""


def plans(text: str) -> list[KernelPlan]:
    schedule = travel(text, "sm_90a", until="scalar").result.context.schedule
    assert schedule is not None
    return list(schedule.kernels)


def test_sums_of_gathered_rows_are_stored() -> None:
    first, product = plans(GATHERED.format(n=1 << 16))
    assert first.ops == ("s", "Y_sum_left") and isinstance(product.mapping, WarpgroupPlan)


def test_norms_beside_columns_are_stored() -> None:
    norms, weights, whole = plans(NORMS.format(r=256))
    assert norms.ops == ("k2",) and whole.ops == ("O",)
    assert weights.ops == ("O_sum", "O_part") and isinstance(weights.mapping, WarpgroupPlan)


def test_norms_for_few_rows_are_not_stored() -> None:
    assert all(k.ops != ("k2",) for k in plans(NORMS.format(r=16)))


def test_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_operands, "TERMS_APART", 1)
    made = travel(GATHERED.format(n=100), "sm_90a")
    assert len(made.result.modules["ma-tile"].kernels) == 2 and complaints(made) == []


MONARCH = """
    dim B = {b}, P = 32, Q = 32
    input X: bf16[B, P, Q], L: bf16[P, Q, Q], R: bf16[Q, P, P]
    output Y: bf16[B, Q, P]
    u: bf16[b, p, r] = sum[q](X[b, p, q] * L[p, q, r])
    Y[b, r, s] = sum[p](u[b, p, r] * R[r, p, s])
"""


def test_what_is_read_across_matrices_is_rounded_where_it_is_computed() -> None:
    first, second = plans(MONARCH.format(b=8192))
    assert first.ops == ("u_acc", "u") and second.ops == ("Y_acc", "Y")


def test_a_copy_in_another_order_is_apart_from_both_products() -> None:
    first, copy, second = plans(MONARCH.format(b=8191))
    assert first.ops == ("u_acc", "u") and second.ops == ("Y_acc", "Y")
    assert copy.ops == ("u_turned",)


def test_elements_at_computed_positions_are_read_across_nothing() -> None:
    text = """
        dim I = 512, J = 512, K = 256, R = 64
        input T: f16[I, J, K], B: f16[J, R], C: f16[K, R]
        output A: f32[I, R]
        A[i, r] = sum[j, k](T[i, j, k] * B[j, r] * C[k, r])
    """
    assert len(plans(text)) > 1


def test_sums_of_rows_are_apart_where_a_product_and_what_reads_it_are_one_kernel() -> None:
    text = """
        dim M = 4096, K = 1024, N = 4096
        input X: i8[M, K], W: i8[N, K], zx: i32[M], zw: i32[N], s: f32[N]
        output Y: i8[M, N]
        A[m, n] = sum[k]((i32(X[m, k]) - zx[m]) * (i32(W[n, k]) - zw[n]))
        Y[m, n] = i8(clamp(round_even(A[m, n] * s[n]), -128, 127))
    """
    *sums, product = plans(text)
    assert [len(k.ops) for k in sums] == [1, 1] and product.ops == ("A", "Y")
    assert isinstance(product.mapping, WarpgroupPlan)


FEED_FORWARD = """
    dim T = {t}, H = 1024, F = 4096
    input x: f32[T, H], n: bf16[T, H], W: bf16[F, H], c: bf16[F], V: bf16[H, F], g: f32[H]
    output y: f32[T, H], z: bf16[T, H]
    a[t, f] = gelu(sum[h](n[t, h] * W[f, h]) + c[f])
    y[t, h] = x[t, h] + sum[f](a[t, f] * V[h, f])
    z[t, h] = layer_norm[h](y[t, h], 1e-5) * g[h]
"""


def test_an_activation_is_the_epilogue_of_its_product_and_a_norm_one_kernel_with_its_statistics() -> None:
    first, second, rows = plans(FEED_FORWARD.format(t=4096))
    assert first.ops == ("a_sum", "y_sum_left") and second.ops == ("y_sum",)
    assert {"y", "z"} < set(rows.ops) and rows.axes[-1].tile == 1024


def test_rows_that_share_keys_are_apart_from_those_with_keys_of_their_own() -> None:
    """Both sets of scores have one softmax: the prefix is a product of 8 rows, what follows it one of a row each."""
    made = plans("""
        dim B = 8, P = 4096, N = 256, D = 64
        input Q: f16[B, D], E: f16[P, D], F: f16[P, D], K: f16[B, N, D], V: f16[B, N, D]
        output O: f16[B, D]
        S[b, p] = sum[d](Q[b, d] * E[p, d])
        T[b, j] = sum[d](Q[b, d] * K[b, j, d])
        m[b] = max(max[p](S[b, p]), max[j](T[b, j]))
        Z[b] = sum[p](exp(S[b, p] - m[b])) + sum[j](exp(T[b, j] - m[b]))
        O[b, d] = (sum[p](exp(S[b, p] - m[b]) * F[p, d]) + sum[j](exp(T[b, j] - m[b]) * V[b, j, d])) / Z[b]
    """)
    assert [k.ops for k in made if "S" in k.ops] == [("S", "m_max_part", "Z_sum_part", "O_sum_part")]
