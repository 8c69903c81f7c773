"""Specs with products that no shipped file has, at sizes for which warpgroup MMAs are planned."""

from __future__ import annotations

_ATTENTION = """
        dim B = 1, H = 2, M = 150, N = 203, D = 64
        input Q: f16[B, H, M, D]
        input K: f16[B, H, N, D]
        input V: f16[B, H, N, D]
"""

_SCORES = "S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)"


def _attention(body: str, m: int = 150, n: int = 203) -> str:
    sized = _ATTENTION.replace("M = 150", f"M = {m}").replace("N = 203", f"N = {n}")
    return sized + body.replace("{S}", _SCORES)


def _product(body: str) -> str:
    return _PRODUCT + body


_PRODUCT = """
        dim M = 200, N = 136, K = 160
        input A: f16[M, K]
        input B: f16[K, N]
"""

#: every kernel with products is planned with warpgroup MMAs
PRODUCTS = {
    "elementwise work with several inputs": _product("""
        input G: f16[M, N]
        input r: f32[M]
        input c: f32[N]
        scalar s: f32 = 0.5
        output Y: f16[M, N]
        Y[i, j] = gelu(sum[k](A[i, k] * B[k, j]) * r[i] / 8 + c[j]) * sigmoid(G[i, j]) + s"""),
    "residual": _product("""
        input R: f16[M, N]
        output Y: f16[M, N]
        Y[i, j] = R[i, j] + sum[k](A[i, k] * B[k, j]) / 8"""),
    "scale of rows and bias of columns": _product("""
        input r: f32[M]
        input c: f16[N]
        output Y: f32[M, N]
        Y[i, j] = sum[k](A[i, k] * B[k, j]) * r[i] + c[j]"""),
    "a gate beside what it scales": """
        dim M = 200, K = 160, F = 136
        const F2 = 2 * F
        input X: f16[M, K]
        input W: f16[F2, K]
        output H: f16[M, F]
        Y[m, f] = sum[k](X[m, k] * W[f, k])
        H[m, f: F] = Y[m, f] * sigmoid(Y[m, f + F])""",
    "a gate at another position of an axis": """
        dim M = 200, K = 160, F = 136
        input X: f16[M, K]
        input W: f16[F, 2, K]
        output H: f16[M, F]
        Y[m, c, f] = sum[k](X[m, k] * W[f, c, k])
        H[m, f] = Y[m, 1, f] * sigmoid(Y[m, 0, f])""",
    "two outputs of one product": _product("""
        input c: f32[N]
        output Y: f16[M, N]
        output Z: f32[M, N]
        Y[i, j] = relu(sum[k](A[i, k] * B[k, j]) + c[j])
        Z[i, j] = sum[k](A[i, k] * B[k, j]) * 0.5"""),
    "a sum of two long products": """
        dim M = 200, N = 136, K = 328
        input A: f16[M, K]
        input B: f16[K, N]
        input C: f16[M, K]
        input D: f16[K, N]
        output Y: f16[M, N]
        Y[i, j] = sum[k](A[i, k] * B[k, j] - C[i, k] * D[k, j])""",
    "two products of one operand": _product("""
        input C: f16[K, N]
        output Y: f16[M, N]
        Y[i, j] = silu(sum[k](A[i, k] * B[k, j]) / 8) * sum[k](A[i, k] * C[k, j])"""),
    "batched, right operand shared": """
        dim B = 3, M = 130, N = 72, K = 136
        input X: bf16[B, M, K]
        input W: bf16[N, K]
        output Y: bf16[B, M, N]
        Y[b, i, j] = sum[k](X[b, i, k] * W[j, k])""",
    "heads in the middle": """
        dim M = 130, H = 2, N = 72, K = 136
        input X: f16[M, H, K]
        input W: f16[H, K, N]
        output Y: f16[M, H, N]
        Y[i, h, j] = sum[k](X[i, h, k] * W[h, k, j])""",
    "rows first on the left": """
        dim M = 136, N = 200, K = 130
        input A: f16[K, M]
        input B: f16[K, N]
        output Y: f16[M, N]
        Y[i, j] = sum[k](A[k, i] * B[k, j])""",
    "rows first on the left, columns last on the right": """
        dim M = 136, N = 77, K = 136
        input A: f16[K, M]
        input B: f16[N, K]
        output Y: f32[M, N]
        Y[i, j] = sum[k](A[k, i] * B[j, k])""",
    "a transposed result": _product("""
        output Y: f16[N, M]
        Y[j, i] = sum[k](A[i, k] * B[k, j])"""),
    "an odd number of columns": """
        dim M = 131, N = 93, K = 136
        input A: f16[M, K]
        input B: f16[N, K]
        output Y: f16[M, N]
        Y[i, j] = sum[k](A[i, k] * B[j, k])""",
    "a sum of rows of a product": _product("""
        output y: f32[M]
        y[i] = sum[j](square(sum[k](A[i, k] * B[k, j]) / 8))"""),
    "lower triangle of a product": _product("""
        output Y: f16[M, N]
        Y[i, j] = sum[k](A[i, k] * B[k, j]) if j <= i else 0"""),
    "a window of an operand": """
        dim M = 150, N = 136, K = 160
        input A: f16[M + 3, K]
        input B: f16[K, N]
        output Y: f16[M, N]
        Y[i, j] = sum[k](A[i + 3, k] * B[k, j])""",
    "a square of a matrix": """
        dim N = 136
        input A: f16[N, N]
        output Y: f16[N, N]
        output Z: f16[N, N]
        Y[i, j] = sum[k](A[i, k] * A[k, j])
        Z[i, j] = sum[k](A[i, k] * A[j, k])""",
    "an operand that is computed": """
        dim M = 150, N = 136, K = 160
        input A: f16[M, K]
        input g: f32[K]
        input B: f16[K, N]
        output Y: f16[M, N]
        Y[i, j] = sum[k](relu(A[i, k]) * g[k] * B[k, j])""",
    "chained": """
        dim M = 150, K = 64, L = 203, N = 64
        input A: f16[M, K]
        input B: f16[L, K]
        input C: f16[L, N]
        output Y: f16[M, N]
        T[i, l] = sum[k](A[i, k] * B[l, k]) / 8
        Y[i, j] = sum[l](T[i, l] * C[l, j]) / 8""",
}

ATTENTION = {
    "sinks": _attention("""
        input sink: f32[H]
        output O: f16[B, H, M, D]
        {S}
        m[b, h, i] = max(max[j](S[b, h, i, j]), sink[h])
        l[b, h, i] = sum[j](exp(S[b, h, i, j] - m[b, h, i])) + exp(sink[h] - m[b, h, i])
        O[b, h, i, d] = sum[j](exp(S[b, h, i, j] - m[b, h, i]) * V[b, h, j, d]) / l[b, h, i]"""),
    "relative bias": _attention("""
        input bias: f16[H, M, N]
        output O: f16[B, H, M, D]
        {S}
        O[b, h, i, d] = sum[j](softmax[j](S[b, h, i, j] + bias[h, i, j]) * V[b, h, j, d])"""),
    "relative bias by distance": _attention("""
        input bias: f32[H, M + N]
        output O: f16[B, H, M, D]
        {S}
        O[b, h, i, d] = sum[j](softmax[j](S[b, h, i, j] + bias[h, i - j + N]) * V[b, h, j, d])"""),
    "a mask as an input": _attention("""
        input mask: bool[B, M, N]
        output O: f16[B, H, M, D]
        {S}
        O[b, h, i, d] = sum[j](softmax[j | mask[b, i, j]](S[b, h, i, j]) * V[b, h, j, d])"""),
    "log of the sum": _attention("""
        output O: f16[B, H, M, D]
        output L: f32[B, H, M]
        {S}
        O[b, h, i, d] = sum[j](softmax[j](S[b, h, i, j]) * V[b, h, j, d])
        L[b, h, i] = logsumexp[j](S[b, h, i, j])"""),
    "more queries than keys, causal": _attention(
        """
        output O: f16[B, H, M, D]
        {S}
        O[b, h, i, d] = sum[j](softmax[j | j - i <= N - M](S[b, h, i, j]) * V[b, h, j, d])""",
        280,
        150,
    ),
    "a sliding window": _attention(
        """
        output O: f16[B, H, M, D]
        {S}
        O[b, h, i, d] = sum[j](softmax[j | -40 < j - i - (N - M) <= 0](S[b, h, i, j]) * V[b, h, j, d])""",
        150,
        330,
    ),
    "caps of the caller's choice": _attention("""
        scalar cap: f32 = 12.0
        output O: f16[B, H, M, D]
        {S}
        O[b, h, i, d] = sum[j](softmax[j | j <= i](softcap(S[b, h, i, j], cap)) * V[b, h, j, d])"""),
    "groups of queries, brain floats": """
        dim B = 1, Hq = 4, Hkv = 2, M = 140, N = 203, D = 128
        const G = Hq // Hkv
        input Q: bf16[B, Hq, M, D]
        input K: bf16[B, Hkv, N, D]
        input V: bf16[B, Hkv, N, D]
        output O: bf16[B, Hq, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h // G, j, d]) / sqrt(D)
        O[b, h, i, d] = sum[j](softmax[j](S[b, h, i, j]) * V[b, h // G, j, d])""",
    "sequence before heads, wide values": """
        dim H = 2, M = 150, N = 203, D = 64, E = 128
        input Q: f16[M, H, D]
        input K: f16[N, H, D]
        input V: f16[N, H, E]
        output O: f16[M, H, E]
        S[h, i, j] = sum[d](Q[i, h, d] * K[j, h, d]) / sqrt(D)
        O[i, h, e] = sum[j](softmax[j](S[h, i, j]) * V[j, h, e])""",
    "keys and values transposed": """
        dim H = 2, M = 150, N = 208, D = 64
        input Q: f16[H, M, D]
        input K: f16[H, D, N]
        input V: f16[H, D, N]
        output O: f16[H, M, D]
        S[h, i, j] = sum[d](Q[h, i, d] * K[h, d, j]) / sqrt(D)
        O[h, i, d] = sum[j](softmax[j](S[h, i, j]) * V[h, d, j])""",
    "a gate and a residual": _attention("""
        input G: f16[B, H, M, D]
        input R: f16[B, H, M, D]
        output O: f16[B, H, M, D]
        {S}
        O[b, h, i, d] = sigmoid(G[b, h, i, d]) * sum[j](softmax[j](S[b, h, i, j]) * V[b, h, j, d]) + R[b, h, i, d]"""),
    "the difference of two softmaxes": """
        dim H = 2, M = 150, D = 64, E = 128
        scalar s: f32 = 0.35
        input Q: f16[M, H, 2, D]
        input K: f16[M, H, 2, D]
        input V: f16[M, H, E]
        output O: f16[M, H, E]
        S[h, c, i, j] = sum[d](Q[i, h, c, d] * K[j, h, c, d]) / sqrt(D)
        P[h, c, i, j] = softmax[j | j <= i](S[h, c, i, j])
        O[i, h, e] = sum[j]((P[h, 0, i, j] - s * P[h, 1, i, j]) * V[j, h, e])""",
    "one key for every head": _attention("""
        input k: f16[N, D]
        output O: f16[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * k[j, d]) / sqrt(D)
        O[b, h, i, d] = sum[j](softmax[j](S[b, h, i, j]) * V[b, h, j, d])"""),
    "a head of 40": """
        dim H = 2, M = 150, N = 203, D = 40
        input Q: f16[H, M, D]
        input K: f16[H, N, D]
        input V: f16[H, N, D]
        output O: f16[H, M, D]
        S[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(D)
        O[h, i, d] = sum[j](softmax[j](S[h, i, j]) * V[h, j, d])""",
    "squares instead of a softmax": _attention("""
        output O: f16[B, H, M, D]
        {S}
        O[b, h, i, d] = sum[j](relu(S[b, h, i, j]) ** 2 * V[b, h, j, d]) / N"""),
    "values' gradient": _attention("""
        input G: f16[B, H, M, D]
        input L: f32[B, H, M]
        output dV: f16[B, H, N, D]
        P[b, h, i, j] = exp(sum[d](Q[b, h, i, d] * K[b, h, j, d]) / 8 - abs(L[b, h, i]) - 4)
        dV[b, h, j, d] = sum[i](P[b, h, i, j] * G[b, h, i, d])"""),
    "lengths": _attention("""
        input len: i32[B]
        output O: f16[B, H, M, D]
        {S}
        O[b, h, i, d] = sum[j](softmax[j | j < len[b]](S[b, h, i, j]) * V[b, h, j, d])"""),
    "scores of integers with scales": """
        dim H = 2, M = 150, N = 203, D = 64
        input Q: i8[H, M, D]
        input K: i8[H, N, D]
        input V: f16[H, N, D]
        input qs: f32[H, M]
        input ks: f32[H, N]
        output O: f16[H, M, D]
        S[h, i, j] = f32(sum[d](i32(Q[h, i, d]) * i32(K[h, j, d]))) * tanh(qs[h, i]) * tanh(ks[h, j]) / 10000
        O[h, i, d] = sum[j](softmax[j](S[h, i, j]) * V[h, j, d])""",
    "latent keys of many heads": """
        dim H = 64, N = 150, R = 272, P = 32
        input Ql: f16[H, R]
        input Qp: f16[H, P]
        input C: f16[N, R]
        input Kp: f16[N, P]
        output O: f16[H, R]
        S[h, j] = (sum[r](Ql[h, r] * C[j, r]) + sum[p](Qp[h, p] * Kp[j, p])) * 0.06
        O[h, r] = sum[j](softmax[j](S[h, j]) * C[j, r])""",
    "latent keys in bytes with scales of groups": """
        dim H = 64, N = 150, R = 384, P = 32, G = 128
        input Ql: bf16[H, R]
        input Qp: bf16[H, P]
        input C: f8e4m3[N, R]
        input Cs: f32[N, R // G]
        input Kp: bf16[N, P]
        input len: i32[1]
        assume 1 <= len[b] <= N
        output O: bf16[H, R]
        L: bf16[j, r] = C[j, r] * Cs[j, r // G]
        S[h, j] = (sum[r](Ql[h, r] * L[j, r]) + sum[p](Qp[h, p] * Kp[j, p])) * 0.06
        O[h, r] = sum[j](softmax[j | j < len[0]](S[h, j]) * L[j, r])""",
    "sinks and a window that a scalar bounds": """
        dim H = 2, M = runtime <= 4096, D = 64
        input Q: bf16[M, H, D]
        input K: bf16[M, D]
        input V: bf16[M, D]
        scalar win: i32 = 60
        output O: bf16[M, H, D]
        S[h, i, j] = sum[d](Q[i, h, d] * K[j, d]) / 8
        P[h, i, j] = softmax[j | j <= i and (i - j < win or j < 4)](S[h, i, j])
        O[i, h, d] = sum[j](P[h, i, j] * V[j, d])""",
    "a stored product feeds another": """
        dim M = 150, K = 160, L = 136, N = 72
        input A: f16[M, K]
        input B: f16[K, L]
        input C: f16[N, L]
        output T: f16[M, L]
        output Y: f16[M, N]
        T[i, l] = sum[k](A[i, k] * B[k, l]) / 8
        Y[i, j] = sum[l](T[i, l] * C[j, l]) / 8""",
    "two maps of scores": _attention("""
        input Q2: f16[B, H, M, D]
        input K2: f16[B, H, N, D]
        scalar lam: f32 = 0.3
        output O: f16[B, H, M, D]
        {S}
        T[b, h, i, j] = sum[d](Q2[b, h, i, d] * K2[b, h, j, d]) / sqrt(D)
        O[b, h, i, d] = sum[j]((softmax[j](S[b, h, i, j]) - lam * softmax[j](T[b, h, i, j])) * V[b, h, j, d])"""),
}

#: kernels that keep the general plan: by a rule of the default schedule, or because a level refuses the other
PLAIN = {
    "smaller than a tile": """
        dim M = 40, N = 24, K = 136
        input A: f16[M, K]
        input B: f16[K, N]
        output Y: f16[M, N]
        Y[i, j] = sum[k](A[i, k] * B[k, j])""",
    "one row": """
        dim M = 1, N = 200, K = 136
        input A: f16[M, K]
        input B: f16[K, N]
        output Y: f16[M, N]
        Y[i, j] = sum[k](A[i, k] * B[k, j])""",
    "one column": """
        dim M = 200, N = 1, K = 136
        input A: f16[M, K]
        input B: f16[K, N]
        output Y: f16[M, N]
        Y[i, j] = sum[k](A[i, k] * B[k, j])""",
    "rows of 2-byte alignment": """
        dim M = 150, N = 136, K = 133
        input A: f16[M, K]
        input B: f16[N, K]
        output Y: f16[M, N]
        Y[i, j] = sum[k](A[i, k] * B[j, k])""",
    "rows of 2-byte alignment on the right": """
        dim M = 150, N = 133, K = 136
        input A: f16[M, K]
        input B: f16[K, N]
        output Y: f16[M, N]
        Y[i, j] = sum[k](A[i, k] * B[k, j])""",
    "a short contraction": """
        dim M = 150, N = 136, K = 8
        input A: f16[M, K]
        input B: f16[K, N]
        output Y: f16[M, N]
        Y[i, j] = sum[k](A[i, k] * B[k, j])""",
    "single precision": """
        dim M = 150, N = 136, K = 160
        input A: f32[M, K]
        input B: f32[K, N]
        output Y: f32[M, N]
        Y[i, j] = sum[k](A[i, k] * B[k, j])""",
    "operands of two types": """
        dim M = 150, N = 136, K = 160
        input A: f16[M, K]
        input B: f32[K, N]
        output Y: f32[M, N]
        Y[i, j] = sum[k](A[i, k] * B[k, j])""",
    "an operand through a table": """
        dim M = 150, N = 136, K = 160, R = 300
        input A: f16[R, K]
        input row: i32[M]
        input B: f16[K, N]
        output Y: f16[M, N]
        Y[i, j] = sum[k](A[row[i], k] * B[k, j])""",
    "rows read backwards": """
        dim M = 150, N = 136, K = 160
        input A: f16[M, K]
        input B: f16[K, N]
        output Y: f16[M, N]
        Y[i, j] = sum[k](A[M - 1 - i, k] * B[k, j])""",
    "every second row": """
        dim M = 150, N = 136, K = 160
        input A: f16[2 * M, K]
        input B: f16[K, N]
        output Y: f16[M, N]
        Y[i, j] = sum[k](A[2 * i, k] * B[k, j])""",
    "a head of 36": """
        dim H = 2, M = 150, N = 203, D = 36
        input Q: f16[H, M, D]
        input K: f16[H, N, D]
        input V: f16[H, N, D]
        output O: f16[H, M, D]
        S[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(D)
        O[h, i, d] = sum[j](softmax[j](S[h, i, j]) * V[h, j, d])""",
    "one query": """
        dim H = 2, N = 203, D = 64
        input Q: f16[H, D]
        input K: f16[H, N, D]
        input V: f16[H, N, D]
        output O: f16[H, D]
        O[h, d] = sum[j](softmax[j](sum[e: D](Q[h, e] * K[h, j, e]) / 8) * V[h, j, d])""",
    "a sum of two products": _product("""
        input C: f16[M, K]
        input D: f16[K, N]
        output Y: f16[M, N]
        Y[i, j] = sum[k](A[i, k] * B[k, j]) + sum[k](C[i, k] * D[k, j])"""),
    "a banded left operand": _product("""
        output Y: f16[M, N]
        Y[i, j] = sum[k | k <= i](A[i, k] * B[k, j])"""),
    "weights behind a mask, a ragged head": """
        dim H = 2, M = 64, N = 330, D = 24
        input Q: f16[H, M, D]
        input K: f16[H, N, D]
        input V: f16[H, N, D]
        input mask: bool[M, N]
        output O: f32[H, M, D]
        S[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(D)
        P[h, i, j] = S[h, i, j] / N if mask[i, j] else 0
        O[h, i, e] = sum[j](P[h, i, j] * V[h, j, e])""",
}

#: products of operands that other axes of the product shift
SHIFTED = {
    "taps that leave the tensor": """
        dim C = 64, F = 136, N = 150, R = 3
        input X: f16[N, C]
        input W: f16[R, F, C]
        output Y: f16[N, F]
        Y[i, f] = sum[r, c](W[r, f, c] * (X[i + r - 1, c] if 0 <= i + r - 1 < N else 0))""",
    "three taps": """
        dim B = 2, L = 134, M = 132, C = 64, K = 72
        input X: f16[B, L, C]
        input F: f16[3, C, K]
        output Y: f16[B, M, K]
        Y[b, l, k] = sum[r, c](X[b, l + r, c] * F[r, c, k])""",
    "dilated taps of few channels": """
        dim B = 2, L = 138, M = 132, C = 48, K = 72
        input X: f16[B, L, C]
        input F: f16[3, K, C]
        output Y: f16[B, M, K]
        Y[b, l, k] = sum[r, c](X[b, l + 3 * r, c] * F[r, k, c])""",
    "a padded image": """
        dim B = 3, H = 7, W = 9, C = 64, K = 72
        input X: f16[B, H, W, C]
        input F: f16[3, 3, C, K]
        input bias: f32[K]
        output Y: f16[B, H, W, K]
        Z[b, y: H, x: W, k] = sum[r, s, c | 0 <= y + r - 1 < H and 0 <= x + s - 1 < W](
          X[b, y + r - 1, x + s - 1, c] * F[r, s, c, k])
        Y[b, y, x, k] = relu(Z[b, y, x, k] + bias[k])""",
    "lines as long as a tile": """
        dim H = 3, W = 128, C = 64, K = 64
        input X: f16[H, W, C]
        input F: f16[2, 2, C, K]
        output Y: f16[H, W, K]
        Y[y, x, k] = sum[r, s, c | y + r < H and x + s < W](X[y + r, x + s, c] * F[r, s, c, k])""",
    "channels first": """
        dim B = 2, H = 4, W = 40, C = 64, K = 136
        input X: f16[B, C, H, W]
        input F: f16[3, K, C]
        output Y: f16[B, K, H, W]
        Y[b, k, y, x] = sum[r, c | 0 <= y + r - 1 < H](X[b, c, y + r - 1, x] * F[r, k, c])""",
    "channels and taps last": """
        dim B = 2, H = 4, W = 40, C = 64, K = 136
        input X: f16[B, C, H, W]
        input F: f16[K, C, 3]
        output Y: f16[B, K, H, W]
        Y[b, k, y, x] = sum[c, r | 0 <= y + r - 1 < H](X[b, c, y + r - 1, x] * F[k, c, r])""",
}

#: bf16 needs no scale
ATTENTION |= {
    f"{name}, brain floats": (PRODUCTS | ATTENTION | PLAIN)[name].replace("f16", "bf16")
    for name in ("chained", "squares instead of a softmax", "sinks", "values' gradient")
}

#: whose registers only ptxas counts, which fall back where it spills; and whose operands only large products store
CLOSE = frozenset({
    "relative bias", "relative bias by distance", "a mask as an input", "a gate and a residual",
    "sequence before heads, wide values", "sinks, brain floats",
    "two products of one operand", "channels and taps last", "the difference of two softmaxes",
})  # fmt: skip
