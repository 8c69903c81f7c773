"""Variants of attention that are not shipped."""

# ruff: noqa: E501 (lines of specs)

_HEAD = """
        dim B = 2, H = 3, M = 33, N = 77, D = 16
        input Q: f16[B, H, M, D]
        input K: f16[B, H, N, D]
        input V: f16[B, H, N, D]
"""


def _variant(body: str, head: str = _HEAD) -> str:
    return head + body


SPECS = {
    "sinks": _variant("""
        input sink: f32[H]
        output O: f16[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
        m[b, h, i] = max(max[j](S[b, h, i, j]), sink[h])
        l[b, h, i] = sum[j](exp(S[b, h, i, j] - m[b, h, i])) + exp(sink[h] - m[b, h, i])
        O[b, h, i, d] = sum[j](exp(S[b, h, i, j] - m[b, h, i]) * V[b, h, j, d]) / l[b, h, i]"""),
    "bias tensor": _variant("""
        input bias: f16[H, M, N]
        output O: f16[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D) + bias[h, i, j]
        O[b, h, i, d] = sum[j](softmax[j](S[b, h, i, j]) * V[b, h, j, d])"""),
    "mask tensor": _variant("""
        input mask: bool[B, M, N]
        output O: f16[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
        O[b, h, i, d] = sum[j](softmax[j | mask[b, i, j]](S[b, h, i, j]) * V[b, h, j, d])"""),
    "alibi": _variant("""
        input slope: f32[H]
        output O: f16[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D) + slope[h] * (j - i)
        O[b, h, i, d] = sum[j](softmax[j | j <= i + N - M](S[b, h, i, j]) * V[b, h, j, d])"""),
    "local and global": _variant("""
        output O: f16[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
        O[b, h, i, d] = sum[j](softmax[j | j < 4 or -8 < j - i <= 0](S[b, h, i, j]) * V[b, h, j, d])"""),
    "blocks of a sparse pattern": _variant("""
        output O: f16[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
        O[b, h, i, d] = sum[j](softmax[j | j // 8 % 2 == i // 8 % 2 and j <= i](S[b, h, i, j]) * V[b, h, j, d])"""),
    "lengths": _variant("""
        input len: i32[B]
        output O: f16[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
        O[b, h, i, d] = sum[j](softmax[j | j < len[b]](S[b, h, i, j]) * V[b, h, j, d])"""),
    "documents": _variant("""
        input doc: i32[B, N]
        output O: f16[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
        O[b, h, i, d] = sum[j](softmax[j | j <= i and doc[b, i + N - M] == doc[b, j]](S[b, h, i, j]) * V[b, h, j, d])"""),
    "query and key norms": _variant("""
        input g: f32[D]
        output O: f16[B, H, M, D]
        q[b, h, i, d] = rms_norm[d](Q[b, h, i, d], 1e-6) * g[d]
        k[b, h, j, d] = rms_norm[d](K[b, h, j, d], 1e-6)
        S[b, h, i, j] = sum[d](q[b, h, i, d] * k[b, h, j, d])
        O[b, h, i, d] = sum[j](softmax[j](S[b, h, i, j]) * V[b, h, j, d])"""),
    "gated output": _variant("""
        input G: f16[B, H, M, D]
        output O: f16[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
        O[b, h, i, d] = sigmoid(G[b, h, i, d]) * sum[j](softmax[j](S[b, h, i, j]) * V[b, h, j, d])"""),
    "log-sum-exp output": _variant("""
        output O: f16[B, H, M, D]
        output L: f32[B, H, M]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
        O[b, h, i, d] = sum[j](softmax[j](S[b, h, i, j]) * V[b, h, j, d])
        L[b, h, i] = logsumexp[j](S[b, h, i, j])"""),
    "probabilities as an output": _variant("""
        output O: f16[B, H, M, D]
        output P: f16[B, H, M, N]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
        P[b, h, i, j] = softmax[j](S[b, h, i, j])
        O[b, h, i, d] = sum[j](P[b, h, i, j] * V[b, h, j, d])"""),
    "relu": _variant("""
        output O: f16[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
        O[b, h, i, d] = sum[j](relu(S[b, h, i, j]) ** 2 * V[b, h, j, d]) / N"""),
    "sigmoid": _variant("""
        output O: f16[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D) - log(N)
        O[b, h, i, d] = sum[j](sigmoid(S[b, h, i, j]) * V[b, h, j, d])"""),
    "linear": _variant("""
        output O: f16[B, H, M, D]
        def phi(x) = elu(x, 1) + 1
        KV[b, h, d, e] = sum[j](phi(K[b, h, j, d]) * V[b, h, j, e])
        Z[b, h, d] = sum[j](phi(K[b, h, j, d]))
        O[b, h, i, e] = sum[d](phi(Q[b, h, i, d]) * KV[b, h, d, e]) / sum[d](phi(Q[b, h, i, d]) * Z[b, h, d])"""),
    "causal linear with decay": """
        dim H = 2, N = 40, D = 16
        input Q: f16[H, N, D]
        input K: f16[H, N, D]
        input V: f16[H, N, D]
        input g: f32[H]
        output O: f16[H, N, D]
        S[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) * exp(-abs(g[h]) * (i - j)) if j <= i else 0
        O[h, i, d] = sum[j](S[h, i, j] * V[h, j, d])""",
    "minus max only": _variant("""
        output O: f16[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
        O[b, h, i, d] = sum[j](exp(S[b, h, i, j] - max[j](S[b, h, i, j])) * V[b, h, j, d])"""),
    "sum of squares normaliser": _variant("""
        output O: f16[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
        m[b, h, i] = max[j](S[b, h, i, j])
        E[b, h, i, j] = exp(S[b, h, i, j] - m[b, h, i])
        O[b, h, i, d] = sum[j](E[b, h, i, j] * V[b, h, j, d]) * rsqrt(sum[j](square(E[b, h, i, j])))"""),
    "two softmaxes, subtracted": _variant("""
        input Q2: f16[B, H, M, D]
        input K2: f16[B, H, N, D]
        scalar lam: f32 = 0.3
        output O: f16[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
        T[b, h, i, j] = sum[d](Q2[b, h, i, d] * K2[b, h, j, d]) / sqrt(D)
        A[b, h, i, j] = softmax[j](S[b, h, i, j]) - lam * softmax[j](T[b, h, i, j])
        O[b, h, i, d] = sum[j](A[b, h, i, j] * V[b, h, j, d])"""),
    "hard": _variant("""
        output O: f16[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d])
        best[b, h, i] = argmax[j](S[b, h, i, j])
        O[b, h, i, d] = V[b, h, best[b, h, i], d]"""),
    "paged decode with groups": """
        dim B = 2, Hq = 4, Hkv = 2, S = 40, P = 8, PAGES = 12, D = 16
        const G = Hq // Hkv
        input Q: f16[B, Hq, D]
        input K: f16[PAGES, P, Hkv, D]
        input V: f16[PAGES, P, Hkv, D]
        input page: i32[B, S // P]
        input len: i32[B]
        output O: f16[B, Hq, D]
        A[b, h, j: S] = sum[d](Q[b, h, d] * K[page[b, j // P], j % P, h // G, d]) / sqrt(D)
        W[b, h, j] = softmax[j | j < len[b]](A[b, h, j])
        O[b, h, d] = sum[j](W[b, h, j] * V[page[b, j // P], j % P, h // G, d])""",
    "latent keys": """
        dim H = 4, M = 17, N = 33, D = 16, R = 8, C = 32
        input Q: f16[H, M, C]
        input Qr: f16[H, M, R]
        input KV: f16[N, C]
        input Kr: f16[N, R]
        output O: f16[H, M, C]
        S[h, i, j] = (sum[c](Q[h, i, c] * KV[j, c]) + sum[r](Qr[h, i, r] * Kr[j, r])) / sqrt(C + R)
        O[h, i, c] = sum[j](softmax[j | j <= i + N - M](S[h, i, j]) * KV[j, c])""",
    "gradients of queries and of slopes": """
        dim B = 2, H = 2, M = 70, D = 16
        input Q: bf16[B, H, M, D]
        input K: bf16[B, H, M, D]
        input V: bf16[B, H, M, D]
        input G: bf16[B, H, M, D]
        input L: f32[B, H, M]
        input slope: f32[H]
        output dQ: bf16[B, H, M, D]
        output ds: f32[H]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / 4 + tanh(slope[h]) * (j - i) / 8
        P[b, h, i, j] = exp(S[b, h, i, j] - abs(L[b, h, i]) - 4) if j <= i and i - j < 20 else 0
        dS[b, h, i, j] = P[b, h, i, j] * sum[d](G[b, h, i, d] * V[b, h, j, d])
        dQ[b, h, i, d] = sum[j](dS[b, h, i, j] * K[b, h, j, d]) / 4
        ds[h] = sum[b, i, j](dS[b, h, i, j] * (j - i))""",
    "eight-bit keys with scales": """
        dim H = 2, M = 17, N = 40, D = 32
        input Q: f16[H, M, D]
        input K: i8[H, N, D]
        input ks: f32[H, N]
        input V: i8[H, N, D]
        input vs: f32[H, N]
        output O: f16[H, M, D]
        S[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) * ks[h, j] / 64
        O[h, i, d] = sum[j](softmax[j](S[h, i, j]) * (V[h, j, d] * vs[h, j]))""",
    "single precision": """
        dim H = 2, M = 17, N = 40, D = 16
        input Q: f32[H, M, D]
        input K: f32[H, N, D]
        input V: f32[H, N, D]
        output O: f32[H, M, D]
        S[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(D)
        O[h, i, d] = sum[j](softmax[j](S[h, i, j]) * V[h, j, d])""",
    "double precision": """
        dim H = 2, M = 9, N = 20, D = 8
        input Q: f64[H, M, D]
        input K: f64[H, N, D]
        input V: f64[H, N, D]
        output O: f64[H, M, D]
        S[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(D)
        O[h, i, d] = sum[j](softmax[j](S[h, i, j]) * V[h, j, d])""",
    "brain floats, keys first": """
        dim H = 2, M = 33, N = 40, D = 24, E = 40
        input Q: bf16[M, H, D]
        input K: bf16[H, D, N]
        input V: bf16[N, H, E]
        output O: bf16[M, H, E]
        S[h, i, j] = sum[d](Q[i, h, d] * K[h, d, j]) * 0.2
        O[i, h, e] = sum[j](softmax[j](S[h, i, j]) * V[j, h, e])""",
    "axial over rows and columns": """
        dim H = 6, W = 9, D = 16
        input Q: f16[H, W, D]
        input K: f16[H, W, D]
        input V: f16[H, W, D]
        output R: f16[H, W, D]
        output C: f16[H, W, D]
        A[y, x, k: W] = softmax[k](sum[d](Q[y, x, d] * K[y, k, d]) / 4)
        R[y, x, d] = sum[k](A[y, x, k] * V[y, k, d])
        B[y, x, k: H] = softmax[k](sum[d](Q[y, x, d] * K[k, x, d]) / 4)
        C[y, x, d] = sum[k](B[y, x, k] * V[k, x, d])""",
    "backward of the values": """
        dim H = 2, M = 33, N = 40, D = 16
        input Q: f16[H, M, D]
        input K: f16[H, N, D]
        input G: f16[H, M, D]
        input L: f32[H, M]
        output dV: f16[H, N, D]
        P[h, i, j] = exp(sum[d](Q[h, i, d] * K[h, j, d]) / 4 - abs(L[h, i]) - 6) if j <= i + N - M else 0
        dV[h, j, d] = sum[i](P[h, i, j] * G[h, i, d])""",
    "head dimension three": """
        dim H = 2, M = 7, N = 13, D = 3
        input Q: f16[H, M, D]
        input K: f16[H, N, D]
        input V: f16[H, N, D]
        output O: f16[H, M, D]
        O[h, i, d] = sum[j](softmax[j](sum[d](Q[h, i, d] * K[h, j, d])) * V[h, j, d])""",
    "temperature and cap as arguments": _variant("""
        scalar tau: f32 = 0.7
        scalar cap: f32 = 30.0
        scalar window: i32 = 9
        output O: f16[B, H, M, D]
        S[b, h, i, j] = softcap(sum[d](Q[b, h, i, d] * K[b, h, j, d]) * tau, cap)
        O[b, h, i, d] = sum[j](softmax[j | abs(i - j) <= window](S[b, h, i, j]) * V[b, h, j, d])"""),
}
