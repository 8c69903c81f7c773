"""Specs of data movement and reductions: shapes, conditional reads, gathers, scans."""

# ruff: noqa: E501 (lines of specs)

SPECS = {
    "padding": """
        dim M = 5, N = 30
        input X: f32[M, N]
        output Y: f32[M + 4, N + 6]
        Y[i, j] = X[i - 2, j - 3] if 2 <= i < M + 2 and 3 <= j < N + 3 else 0""",
    "one dimensional convolution": """
        dim B = 2, C = 5, F = 6, N = 77, K = 3
        input X: f16[B, C, N]
        input W: f16[F, C, K]
        output Y: f16[B, F, N]
        Y[b, f, i] = sum[c, k](W[f, c, k] * (X[b, c, i + k - 1] if 0 <= i + k - 1 < N else 0))""",
    "two dimensional convolution": """
        dim B = 2, C = 4, F = 5, H = 9, W = 11, R = 3
        input X: f16[B, H, W, C]
        input K: f16[R, R, C, F]
        input b: f32[F]
        output Y: f16[B, H, W, F]
        Y[n, y, x, f] = relu(sum[r, s, c](K[r, s, c, f] * (X[n, y + r - 1, x + s - 1, c] if 0 <= y + r - 1 < H and 0 <= x + s - 1 < W else 0)) + b[f])""",
    "strided convolution": """
        dim C = 3, F = 4, N = 40, K = 4
        input X: f32[C, N]
        input W: f32[F, C, K]
        output Y: f32[F, N // 2 - 1]
        Y[f, i] = sum[c, k](W[f, c, k] * X[c, 2 * i + k])""",
    "depthwise convolution": """
        dim C = 20, N = 33, K = 4
        input X: bf16[N, C]
        input W: bf16[C, K]
        output Y: bf16[N, C]
        Y[t, c] = silu(sum[k](W[c, k] * (X[t + k - 3, c] if t + k - 3 >= 0 else 0)))""",
    "max pooling": """
        dim C = 3, H = 14, W = 10
        input X: f16[C, H, W]
        output Y: f16[C, H // 2, W // 2]
        output Z: f16[C, H // 2, W // 2]
        Y[c, y, x] = max[r: 2, s: 2](X[c, 2 * y + r, 2 * x + s])
        Z[c, y, x] = mean[r: 2, s: 2](X[c, 2 * y + r, 2 * x + s])""",
    "upsampling": """
        dim C = 3, H = 5, W = 7
        input X: f16[C, H, W]
        output Y: f16[C, 2 * H, 3 * W]
        Y[c, y, x] = X[c, y // 2, x // 3]""",
    "embedding": """
        dim V = 50, T = 33, D = 40
        input E: f16[V, D]
        input P: f32[T, D]
        input token: i32[T]
        output O: f16[T, D]
        O[t, d] = E[token[t], d] * sqrt(D) + P[t, d]""",
    "embedding bag": """
        dim V = 50, T = 9, L = 7, D = 40
        input E: bf16[V, D]
        input token: i64[T, L]
        input len: i32[T]
        output O: f32[T, D]
        O[t, d] = sum[l | l < len[t]](E[token[t, l], d])""",
    "gather of a gather": """
        dim N = 40, M = 30, K = 20
        input X: f32[N]
        input a: i32[M]
        input b: i32[K]
        output Y: f32[K]
        Y[k] = X[a[b[k]]]""",
    "bounded gather": """
        dim N = 40, M = 30
        input X: f32[N]
        input a: i32[M]
        output Y: f32[M]
        Y[k] = X[a[k] - 5] if 5 <= a[k] < N + 5 else -1""",
    "cumulative sum": """
        dim M = 5, N = 77
        input X: f32[M, N]
        output Y: f32[M, N]
        Y[i, j] = sum[k | k <= j](X[i, k])""",
    "cumulative maximum, backwards and exclusive": """
        dim M = 5, N = 40
        input X: f32[M, N]
        output Y: f32[M, N]
        output Z: f32[M, N]
        Y[i, j] = max[k | k >= j](X[i, k])
        Z[i, j] = sum[k | k < j](X[i, k])""",
    "scan by formula": """
        dim M = 3, N = 40
        input A: f32[M, N]
        input X: f32[M, N]
        output H: f32[M, N]
        L[i, t: N] = sum[s | s <= t](-abs(A[i, s]) / 4)
        H[i, t] = sum[s | s <= t](exp(L[i, t] - L[i, s]) * X[i, s])""",
    "moving average": """
        dim M = 5, N = 77, W = 5
        input X: f16[M, N]
        output Y: f16[M, N]
        Y[i, j] = mean[k: N | j - W < k <= j](X[i, k])""",
    "transpose": """
        dim M = 77, N = 33
        input X: f16[M, N]
        output Y: f16[N, M]
        Y[j, i] = X[i, j]""",
    "permutation of five axes": """
        dim A = 2, B = 3, C = 4, D = 5, E = 6
        input X: f16[A, B, C, D, E]
        output Y: f16[E, C, A, D, B]
        Y[e, c, a, d, b] = X[a, b, c, d, e]""",
    "six axes": """
        dim A = 2, B = 3, C = 2, D = 3, E = 2, F = 5
        input X: f32[A, B, C, D, E, F]
        input W: f32[B, D, F]
        output Y: f32[A, C, E]
        output Z: f32[A, B, C, D, E, F]
        Y[a, c, e] = sum[b, d, f](X[a, b, c, d, e, f] * W[b, d, f])
        Z[a, b, c, d, e, f] = X[a, b, c, d, e, f] + W[b, d, f]""",
    "reversal and rotation": """
        dim N = 77
        input X: f32[N]
        output Y: f32[N]
        output Z: f32[N]
        Y[i] = X[N - 1 - i]
        Z[i] = X[(i + 5) % N]""",
    "reshape by division": """
        dim M = 6, N = 20
        input X: f32[M, N]
        output Y: f32[M * N]
        output Z: f32[M, N // 4, 4]
        Y[i] = X[i // N, i % N]
        Z[i, j, k] = X[i, 4 * j + k]""",
    "concatenation and slices": """
        dim M = 7, N = 20
        input X: f32[M, N]
        input Y: f32[M, N]
        output Z: f32[M, 2 * N]
        output S: f32[M, 5]
        Z[i, j] = X[i, j % N] if j < N else Y[i, j - N]
        S[i, j] = X[i, 3 * j + 1]""",
    "triangle and diagonal": """
        dim N = 33
        input X: f32[N, N]
        output L: f32[N, N]
        output D: f32[N]
        output T: f32
        L[i, j] = X[i, j] if j <= i else 0
        D[i] = X[i, i]
        T = sum[i](X[i, i])""",
    "outer product": """
        dim M = 77, N = 33
        input X: f16[M]
        input Y: f16[N]
        output Z: f16[M, N]
        Z[i, j] = X[i] * Y[j]""",
    "histogram": """
        dim N = 130, K = 10
        input X: i32[N]
        output H: i32[K]
        output F: f32[K]
        H[i] = sum[j](i32(X[j] % 10 == i))
        F[i] = mean[j](f32(X[j] % 10 == i))""",
    "rank by counting": """
        dim M = 3, N = 40
        input X: f32[M, N]
        output R: i32[M, N]
        R[i, j] = sum[k](i32(X[i, k] > X[i, j] or (X[i, k] == X[i, j] and k < j)))""",
    "sort by counting": """
        dim N = 33
        input X: f32[N]
        output Y: f32[N]
        R[j] = sum[k](i32(X[k] < X[j] or (X[k] == X[j] and k < j)))
        Y[i] = sum[j: N](X[j] if R[j] == i else 0)""",
    "distance matrix": """
        dim M = 33, N = 20, D = 12
        input X: f32[M, D]
        input Y: f32[N, D]
        output Z: f32[M, N]
        output near: i32[M]
        Z[i, j] = sqrt(sum[d](square(X[i, d] - Y[j, d])))
        near[i] = argmin[j](sum[d](square(X[i, d] - Y[j, d])))""",
    "distance by products": """
        dim M = 33, N = 20, D = 16
        input X: f16[M, D]
        input Y: f16[N, D]
        output Z: f32[M, N]
        Z[i, j] = sum[d](X[i, d] * X[i, d]) + sum[d](Y[j, d] * Y[j, d]) - 2 * sum[d](X[i, d] * Y[j, d])""",
    "manhattan distance": """
        dim M = 17, N = 20, D = 12
        input X: f32[M, D]
        input Y: f32[N, D]
        output Z: f32[M, N]
        Z[i, j] = sum[d](abs(X[i, d] - Y[j, d]))""",
    "min-plus product": """
        dim M = 20, N = 17, K = 19
        input A: f32[M, K]
        input B: f32[K, N]
        output C: f32[M, N]
        C[i, j] = min[k](A[i, k] + B[k, j])""",
    "or-and product": """
        dim M = 20, N = 17, K = 19
        input A: bool[M, K]
        input B: bool[K, N]
        output C: bool[M, N]
        C[i, j] = any[k](A[i, k] and B[k, j])""",
    "vector functions over two axes": """
        dim B = 3, M = 7, N = 11
        input X: f32[B, M, N]
        output Y: f32[B, M, N]
        output Z: f32[B]
        m[b] = max[i, j](X[b, i, j])
        s[b] = sum[i, j](exp(X[b, i, j] - m[b]))
        Y[b, i, j] = exp(X[b, i, j] - m[b]) / s[b]
        Z[b] = log(s[b]) + m[b]""",
    "nested domains": """
        dim N = 20
        input X: f32[N, N]
        output Y: f32[N]
        Y[i] = max[j | j <= i](sum[k: N | k >= j and k <= i](X[j, k]))""",
    "all pairs in one number": """
        dim N = 33, D = 5
        input X: f32[N, D]
        output E: f32
        E = sum[i: N, j: N | i < j](1 / (0.1 + sum[d](square(X[i, d] - X[j, d]))))""",
    "stencil": """
        dim H = 20, W = 33
        input U: f32[H, W]
        output V: f32[H, W]
        V[y, x] = U[y, x] + 0.1 * (U[y - 1, x] + U[y + 1, x] + U[y, x - 1] + U[y, x + 1] - 4 * U[y, x]) if 0 < y < H - 1 and 0 < x < W - 1 else U[y, x]""",
    "outputs that read each other": """
        dim M = 7, N = 40
        input X: f32[M, N]
        output A: f16[M, N]
        output B: f32[M]
        output C: f16[M, N]
        output D: i32[M]
        A[i, j] = X[i, j] * 3
        B[i] = sum[j](A[i, j])
        C[i, j] = A[i, j] / (1 + abs(B[i]))
        D[i] = argmax[j](C[i, j])""",
    "page table with an offset": """
        dim B = 2, S = 24, P = 4, PAGES = 9, D = 16
        input K: f16[PAGES, P, D]
        input page: i32[B, S // P]
        input start: i32[B]
        output O: f16[B, S, D]
        O[b, j, d] = K[page[b, (j + start[b]) // P], (j + start[b]) % P, d] if j + start[b] < S else 0""",
    "one-hot": """
        dim N = 20, K = 33
        input label: i32[N]
        output H: f16[N, K]
        H[n, k] = 1 if label[n] == k else 0""",
    "scatter by comparison": """
        dim N = 20, K = 15, D = 9
        input X: f32[N, D]
        input to: i32[N]
        output Y: f32[K, D]
        Y[k, d] = sum[n | to[n] == k](X[n, d])""",
    "segment maximum": """
        dim N = 40, K = 5
        input X: f32[N]
        input seg: i32[N]
        output Y: f32[K]
        Y[k] = max[n | seg[n] == k](X[n])""",
    "windows by distance": """
        dim H = 11, W = 20, N = 40
        input X: f16[H, W]
        input Z: f32[N]
        input m: bool[N]
        output Y: f32[H, W]
        output V: f32[N]
        Y[i, j: W] = sum[y, x | abs(y - i) <= 1 and abs(x - j) <= 2](X[y, x])
        V[i] = max[j | i - 6 < j and j <= i and m[j]](Z[j])""",
    "running log-sum-exp": """
        dim B = 3, N = 260
        input X: f32[B, N]
        output Y: f32[B, N]
        Y[b, i] = logsumexp[j | j <= i](X[b, j])""",
    "any by a key": """
        dim N = 40, K = 5
        input b: bool[N]
        input seg: i32[N]
        output Y: bool[K]
        Y[k] = any[n | seg[n] == k](b[n])""",
    "means of windows without the padding": """
        dim C = 3, H = 11, W = 37
        input X: f16[C, H, W]
        output Y: f16[C, H, W]
        output P: f32[W]
        Y[c, y, x] = mean[r: 3, s: 5 | 0 <= y + r - 1 and y + r - 1 < H and 0 <= x + s - 2 and x + s - 2 < W](X[c, y + r - 1, x + s - 2])
        P[i] = mean[j | i - 4 <= j and j <= i + 2](X[0, 0, j])""",
    "packed rows as columns": """
        dim N = 70, K = 272
        input W: i4[N, K]
        input s: f16[N, K // 8]
        output Y: f16[K, N]
        Y[k, n] = W[n, k] * s[n, k // 8]""",
    "angles that heads share": """
        dim T = 5, H = 6, D = 32
        input q: f16[T, H * D]
        input p: i64[T]
        output Y: f16[T, H, D]
        a[t, i: D // 2] = p[t] * exp2(-i / 4.0)
        Y[t, h, d] = q[t, h * D + d] * cos(a[t, d % 16]) + (-q[t, h * D + d + 16] if d < 16 else q[t, h * D + d - 16]) * sin(a[t, d % 16])""",
    "a linear layer by heads, one in reverse, and windows of a rolled image": """
        dim T = 37, H = 2, D = 16, P = 24
        dim B = 3, S = 12, R = 4, C = 24
        input X: f16[T, P], W: f16[P, 3 * H * D]
        input I: f16[B, S // R, R, P], A: f16[P, C], Z: f16[B, S, C]
        output Q: f16[H, T, D], K: f16[H, T, D], V: f16[T, H * D], U: f16[B, S, C]
        E[t, c] = sum[p](X[t, p] * W[p, c])
        Q[h, t, d] = E[t, h * D + d] * t
        K[h, t, d] = E[t, H * D + h * D + d]
        V[t, c: H * D] = E[T - 1 - t, 2 * H * D + c]
        F[b, i, u, c] = sum[p](I[b, i, u, p] * A[p, c])
        U[b, y, c] = Z[b, y, c] + F[b, (y + 10) % S // R, (y + 10) % S % R, c]""",
    "a value and its position among sixteen neighbours": """
        dim M = 18, N = 24, G = 3
        input X: f16[M, 16 * G], V: f16[N, 2 * G], I: u4[N, 2 * G]
        output Y: f16[M, N]
        Y[m, n] = sum[g: 2 * G](X[m, g // 2 * 16 + I[n, g]] * V[n, g])""",
    "rows of a product behind another row, and norms of two tensors one after the other": """
        dim B = 2, T = 9, U = 7, C = 24, P = 16
        input X: f16[B, T - 1, P], W: f16[P, C], cls: f16[C], pos: f16[T, C]
        input L: f16[B, T, C], R: f16[B, U, C]
        output Y: f16[B, T, C], Z: f16[B, T + U, C]
        E[b, t, c] = sum[p](X[b, t, p] * W[p, c])
        Y[b, t, c] = (cls[c] if t == 0 else E[b, t - 1, c]) + pos[t, c]
        m[b, t] = mean[c](f32(L[b, t, c]) ** 2)
        q[b, t] = mean[c](f32(R[b, t, c]) ** 2)
        Z[b, t: T + U, c] = L[b, t, c] * rsqrt(m[b, t] + 1e-6) if t < T else R[b, t - T, c] * rsqrt(q[b, t - T] + 1e-6)""",
}
