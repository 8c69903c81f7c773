"""Small specs of many classes: products of stored and of computed factors, norms, sums that cancel, narrow types."""

from __future__ import annotations

_AB = "dim M = 48, N = 40, K = 64\ninput A: {a}[M, K]\ninput B: {b}[K, N]\noutput Y: {y}[M, N]\n"
_X = "dim M = 33, N = 72\ninput X: {t}[M, N]\noutput Y: {y}[M, N]\n"
_ROW = "dim M = 33, N = 72\ninput X: {t}[M, N]\noutput Y: {y}[M]\n"
_QKV = "dim M = 34, N = 45, D = 16\ninput Q: {t}[M, D]\ninput K: {t}[N, D]\ninput V: {t}[N, D]\noutput O: {y}[M, D]\n"


def _ab(a: str, b: str, y: str, body: str) -> str:
    return _AB.format(a=a, b=b, y=y) + body


def _x(t: str, y: str, body: str) -> str:
    return _X.format(t=t, y=y) + body


def _row(t: str, y: str, body: str) -> str:
    return _ROW.format(t=t, y=y) + body


def _qkv(t: str, y: str, scores: str, weights: str = "softmax[j](S[i, j])") -> str:
    body = f"S[i, j] = {scores}\nP[i, j] = {weights}\nO[i, d] = sum[j](P[i, j] * V[j, d])\n"
    return _QKV.format(t=t, y=y) + body


_DOT = "sum[d](Q[i, d] * K[j, d]) / sqrt(D)"
_NORMAL = "X[i, k] * rsqrt(sum[l](X[i, l] * X[i, l]) / K + 1e-5)"

#: name -> text
SPECS: dict[str, str] = {
    "product f16": _ab("f16", "f16", "f16", "Y[i, j] = sum[k](A[i, k] * B[k, j])\n"),
    "product f16, f32 result": _ab("f16", "f16", "f32", "Y[i, j] = sum[k](A[i, k] * B[k, j])\n"),
    "product bf16": _ab("bf16", "bf16", "bf16", "Y[i, j] = sum[k](A[i, k] * B[k, j])\n"),
    "product f32": _ab("f32", "f32", "f32", "Y[i, j] = sum[k](A[i, k] * B[k, j])\n"),
    "deep product f32": (
        "dim M = 48, N = 40, K = 384\ninput A: f32[M, K]\ninput B: f32[K, N]\noutput Y: f32[M, N]\n"
        "Y[i, j] = sum[k](A[i, k] * B[k, j])\n"
    ),
    "attention f32": _qkv("f32", "f32", _DOT),
    "product tf32": _ab("tf32", "tf32", "f32", "Y[i, j] = sum[k](A[i, k] * B[k, j])\n"),
    "product f32 and f16": _ab("f32", "f16", "f32", "Y[i, j] = sum[k](A[i, k] * B[k, j])\n"),
    "product i8": _ab("i8", "i8", "i32", "Y[i, j] = sum[k](A[i, k] * B[k, j])\n"),
    "stored factors squared": _ab("bf16", "bf16", "f32", "Y[i, j] = sum[k](A[i, k] * A[i, k] * B[k, j])\n"),
    "relu squared": _ab("f16", "f16", "f16", "Y[i, j] = sum[k](max(A[i, k], 0) ** 2 * B[k, j])\n"),
    "activation before a product": _ab("f16", "f16", "f32", "Y[i, j] = sum[k](sigmoid(A[i, k]) * A[i, k] * B[k, j])\n"),
    "activation after a product": _ab("f16", "f16", "f16", "Y[i, j] = tanh(sum[k](A[i, k] * B[k, j]) / 8)\n"),
    "scaled rows and a product": _ab(
        "bf16", "bf16", "bf16", "Y[i, j] = sum[k](A[i, k] * rsqrt(sum[l](A[i, l] * A[i, l]) / K + 1e-5) * B[k, j])\n"
    ),
    "three factors": (
        "dim I = 20, J = 12, K = 10, R = 16\ninput X: f16[I, J, K]\ninput B: f16[J, R]\ninput C: f16[K, R]\n"
        "output A: f32[I, R]\nA[i, r] = sum[j, k](X[i, j, k] * B[j, r] * C[k, r])\n"
    ),
    "low rank update": (
        "dim M = 40, K = 48, N = 32, R = 16\ninput X: bf16[M, K]\ninput W: bf16[K, N]\ninput P: bf16[K, R]\n"
        "input Q: bf16[R, N]\noutput Y: bf16[M, N]\nT[i, r] = sum[k](X[i, k] * P[k, r])\n"
        "Y[i, j] = sum[k](X[i, k] * W[k, j]) + 2 * sum[r](T[i, r] * Q[r, j])\n"
    ),
    "typed intermediate": _ab(
        "f16", "f16", "f32", "H: f16[i, k] = A[i, k] / 3\nY[i, j] = sum[k](H[i, k] * B[k, j])\n"
    ),
    "typed probabilities": (
        "dim M = 20, N = 77, D = 16\ninput S: f32[M, N]\ninput V: f16[N, D]\noutput O: f32[M, D]\n"
        "P: f16[i, j] = softmax[j](S[i, j])\nO[i, d] = sum[j](P[i, j] * V[j, d])\n"
    ),
    "quantised weights": (
        "dim M = 40, K = 64, N = 32\ninput X: f16[M, K]\ninput W: i8[N, K]\ninput s: f16[N]\noutput Y: f16[M, N]\n"
        "Y[i, j] = sum[k](X[i, k] * f16(W[j, k])) * s[j] / 64\n"
    ),
    "quantisation": (
        "dim M = 33, N = 64\ninput X: f16[M, N]\noutput Q: i8[M, N]\noutput s: f32[M]\n"
        "s[i] = max[j](abs(X[i, j])) / 127\nQ[i, j] = i8(round(X[i, j] / max(s[i], 1e-12)))\n"
    ),
    "attention f16": _qkv("f16", "f16", _DOT),
    "attention bf16": _qkv("bf16", "bf16", _DOT),
    "attention f16, f32 result": _qkv("f16", "f32", _DOT),
    "causal attention": _qkv("f16", "f16", _DOT, "softmax[j | j - i <= N - M](S[i, j])"),
    "soft cap": _qkv("f16", "f16", f"20 * tanh({_DOT} / 20)"),
    "normalised queries and keys": _qkv(
        "bf16", "bf16",
        "10 * sum[d](Q[i, d] * K[j, d]) * rsqrt(sum[e](Q[i, e] * Q[i, e]) + 1e-6) "
        "* rsqrt(sum[f](K[j, f] * K[j, f]) + 1e-6)",
    ),
    "normalised sums of exponentials": _qkv("f16", "f16", _DOT, "exp(S[i, j]) / sum[l: N](exp(S[i, l]))"),
    "rotated pairs": _x(
        "bf16", "bf16",
        "Y[i, j] = X[i, j] * cos(i * 0.1) - X[i, j + N // 2] * sin(i * 0.1) if j < N // 2 "
        "else X[i, j] * cos(i * 0.1) + X[i, j - N // 2] * sin(i * 0.1)\n",
    ),
    "softmax f32": _x("f32", "f32", "Y[i, j] = softmax[j](X[i, j])\n"),
    "softmax bf16": _x("bf16", "bf16", "Y[i, j] = softmax[j](X[i, j] * 2)\n"),
    "logarithm of softmax": _x(
        "f32", "f32", "m[i] = max[j](X[i, j])\nY[i, j] = X[i, j] - m[i] - log(sum[k](exp(X[i, k] - m[i])))\n"
    ),
    "logsumexp": _row("f32", "f32", "m[i] = max[j](X[i, j])\nY[i] = m[i] + log(sum[j](exp(X[i, j] - m[i])))\n"),
    "entropy": _row("f32", "f32", "P[i, j] = softmax[j](X[i, j])\nY[i] = -sum[j](P[i, j] * log(P[i, j] + 1e-9))\n"),
    "variance": _row("f32", "f32", "m[i] = mean[j](X[i, j])\nY[i] = mean[j]((X[i, j] - m[i]) ** 2)\n"),
    "variance by moments": _row("f32", "f32", "Y[i] = mean[j](X[i, j] ** 2) - mean[j](X[i, j]) ** 2\n"),
    "sum that cancels": _row("f32", "f32", "Y[i] = sum[j](X[i, j]) - sum[j](X[i, j] * 0.999)\n"),
    "difference of neighbours": _x("f32", "f32", "Y[i, j] = X[i, j] - 0.99 * X[i, j - 1] if j > 0 else X[i, j]\n"),
    "cumulative sum": _x("f32", "f32", "Y[i, j] = sum[k: N | k <= j](X[i, k])\n"),
    "layer norm": _x(
        "f16", "f16",
        "m[i] = mean[j](X[i, j])\nv[i] = mean[j]((X[i, j] - m[i]) ** 2)\n"
        "Y[i, j] = (X[i, j] - m[i]) * rsqrt(v[i] + 1e-5)\n",
    ),
    "root mean square norm, f32": _x("f32", "f32", "Y[i, j] = X[i, j] * rsqrt(mean[k: N](X[i, k] ** 2) + 1e-6)\n"),
    "chain of functions": _x(
        "f32", "f32", "Y[i, j] = log(1 + exp(X[i, j])) * sqrt(abs(X[i, j]) + 1) / (2 + sin(X[i, j]))\n"
    ),
    "exact chain": _x("f16", "f16", "Y[i, j] = max(-X[i, j], 0) if j < 40 else abs(X[i, j])\n"),
    "hardware functions": _x("f16", "f16", "Y[i, j] = 0.5 * X[i, j] * (1 + erf(X[i, j] * 0.7071067811865476))\n"),
    "f8 result": _x("f32", "f8e4m3", "Y[i, j] = X[i, j] * 3\n"),
    "f64": _x("f64", "f64", "Y[i, j] = exp(X[i, j]) / (1 + exp(X[i, j]))\n"),
    "product of elements": _row("f32", "f32", "Y[i] = prod[j](1 + X[i, j] / 16)\n"),
    "column sums": "dim M = 96, N = 40\ninput X: f32[M, N]\noutput Y: f32[N]\nY[j] = sum[i](X[i, j])\n",
}  # fmt: skip
