"""Specs of different classes, at small sizes, which together reach every pass that changes the maths."""

SPECS = {
    "running maximum": """
dim M = 33, N = 77, D = 16
input Q: f16[M, D]
input K: f16[N, D]
input V: f16[N, D]
output O: f16[M, D]
S[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(D)
P[i, j] = softmax[j | j <= i + 40](S[i, j])
O[i, d] = sum[j](P[i, j] * V[j, d])
""",
    "rows": """
dim M = 5, N = 77
input X: f16[M, N]
input W: f16[N]
output Y: f16[M, N]
scalar eps: f32 = 1e-5
S[i] = mean[j](X[i, j] * X[i, j])
Y[i, j] = X[i, j] * rsqrt(S[i] + eps) * W[j]
""",
    "integers": """
dim M = 40, N = 33
input X: i8[M, N]
input P: i32[M]
output Y: i32[M]
output Z: i32[M]
Y[i] = sum[j | j % 3 == 1](X[P[i], j] * (j // 2))
Z[i] = argmax[j](X[i, j])
""",
    "gates": """
dim M = 17, N = 20, K = 40
input A: bf16[M, K]
input B: bf16[K, N]
output C: bf16[M, N]
G[i, j] = sum[k](A[i, k] * B[k, j])
C[i, j] = G[i, j] * sigmoid(1.702 * G[i, j]) + tanh(G[i, j] / 3) + max(G[i, j], 0.5)
""",
    "one long row": """
dim N = 30000
input X: f32[N]
output Y: f32[N]
Y[i] = softmax[i](X[i])
""",
    "grouped decoding": """
dim B = 1, Hq = 4, Hkv = 2, M = 1, N = 2048, D = 16
const G = Hq // Hkv
input Q: f16[B, Hq, M, D]
input K: f16[B, Hkv, N, D]
input V: f16[B, Hkv, N, D]
output O: f16[B, Hq, M, D]
S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h // G, j, d]) / sqrt(D)
P[b, h, i, j] = softmax[j | j - i <= N - M](tanh(S[b, h, i, j] / 30) * 30)
O[b, h, i, d] = sum[j](P[b, h, i, j] * V[b, h // G, j, d])
""",
    "square": """
dim M = 192, N = 192, D = 32
input Q: f16[M, D]
input K: f16[N, D]
input V: f16[N, D]
output O: f16[M, D]
S[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(D)
P[i, j] = softmax[j | j <= i](S[i, j])
O[i, d] = sum[j](P[i, j] * V[j, d])
""",
    "moments": """
dim M = 6, N = 150
input X: f16[M, N]
input W: f16[N]
input B: f16[N]
output Y: f16[M, N]
output mu: f32[M]
mu[i] = mean[j](X[i, j])
V[i] = mean[j]((X[i, j] - mu[i]) ** 2)
Y[i, j] = (X[i, j] - mu[i]) / sqrt(V[i] + 1e-5) * W[j] + B[j]
""",
    "labels": """
dim M = 13, N = 200
input X: f32[M, N]
input label: i32[M]
output L: f32[M]
L[i] = log(sum[j](exp(X[i, j] - max[k: N](X[i, k])))) + max[k: N](X[i, k]) - X[i, label[i]]
""",
    "neighbours": """
dim M = 20, N = 45, K = 5
input X: f32[M, N]
input F: f32[K]
output Y: f32[M, N]
output Z: f32[M]
Y[i, j] = sum[k](F[k] * (X[i, j + k - 2] if j + k >= 2 and j + k < N + 2 else 0))
Z[i] = max[j | (i + j) % 3 == 1](abs(X[i, j]))
""",
    "two gates": """
dim M = 18, N = 21, K = 50
input A: f16[M, K]
input W: f16[K, N]
input V: f16[K, N]
output C: f16[M, N]
G[i, j] = sum[k](A[i, k] * W[k, j])
U[i, j] = sum[k](A[i, k] * V[k, j])
C[i, j] = G[i, j] / (1 + exp(-G[i, j])) * U[i, j]
""",
}
