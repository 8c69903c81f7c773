"""Specs of the type system: every element type, operator, function and reduction."""

# ruff: noqa: E501 (lines of specs)

SPECS = {
    "halves of bytes and bytes of words by division": """
        dim M = 20, N = 24, K = 48
        input A: f16[M, K]
        input W: u8[N, K // 2]
        input Z: i32[K // 4, N]
        output C: f32[M, N]
        output D: f32[M, N]
        w: f16[j, k: K] = f32(i32(W[j, k // 2]) // (16 if k % 2 == 1 else 1) % 16 - 8)
        z: f16[k: K, j] = f32(Z[k // 4, j] // 256 ** (k % 4) % 256 - 128) / 16
        C[i, j] = sum[k](A[i, k] * w[j, k])
        D[i, j] = sum[k](A[i, k] * z[k, j])""",
    "every float type": """
        dim M = 5, N = 33
        input A: f64[M, N]
        input B: f32[M, N]
        input C: tf32[M, N]
        input D: f16[M, N]
        input E: bf16[M, N]
        output a: f64[M, N]
        output b: f32[M, N]
        output c: tf32[M, N]
        output d: f16[M, N]
        output e: bf16[M, N]
        a[i, j] = A[i, j] * 3 + B[i, j]
        b[i, j] = B[i, j] + C[i, j]
        c[i, j] = C[i, j] * D[i, j]
        d[i, j] = D[i, j] - E[i, j]
        e[i, j] = E[i, j] / 3""",
    "every integer type": """
        dim M = 3, N = 77
        input A: i64[M, N]
        input B: i32[M, N]
        input C: i16[M, N]
        input D: i8[M, N]
        input E: u8[M, N]
        input F: bool[M, N]
        output a: i64[M, N]
        output b: i32[M, N]
        output c: i16[M, N]
        output d: i8[M, N]
        output e: u8[M, N]
        output f: bool[M, N]
        a[i, j] = A[i, j] * 3 + B[i, j]
        b[i, j] = B[i, j] - C[i, j]
        c[i, j] = C[i, j] * D[i, j]
        d[i, j] = D[i, j] - E[i, j]
        e[i, j] = E[i, j] // 3
        f[i, j] = not F[i, j] or E[i, j] > 100""",
    "products of integers in more bits": """
        dim M = 18, N = 20, K = 33
        input A: i16[M, K]
        input B: i16[N, K]
        input C: i32[N, K]
        output x: i64[M, N]
        output y: i64[M, N]
        x[i, j] = sum[k](i64(A[i, k]) * B[j, k])
        y[i, j] = sum[k](i64(A[i, k]) * C[j, k])""",
    "integer division and remainder of all signs": """
        dim M = 7, N = 130
        input A: i32[M, N]
        input B: i16[M, N]
        output q: i32[M, N]
        output r: i32[M, N]
        output s: i32[M, N]
        output t: i64[M, N]
        output u: i32[M, N]
        q[i, j] = A[i, j] // 7
        r[i, j] = A[i, j] % -7
        s[i, j] = (A[i, j] // B[i, j] + A[i, j] % B[i, j]) if B[i, j] != 0 else 0
        t[i, j] = (i64(A[i, j]) * 100000000007 + 3) // 97 + i64(A[i, j]) % 1000
        u[i, j] = (i - 3) // 2 * (j - 60) % 5""",
    "integer functions": """
        dim M = 7, N = 40
        input A: i32[M, N]
        output p: i32[M, N]
        output q: i32[M, N]
        output r: i32[M, N]
        output s: i64[M, N]
        output t: i32[M, N]
        p[i, j] = (A[i, j] % 5) ** 3 + (A[i, j] % 3) ** (j % 4)
        q[i, j] = abs(A[i, j]) * sign(A[i, j]) + floor(A[i, j]) + ceil(A[i, j]) - round(A[i, j])
        r[i, j] = min(A[i, j], j) + max(A[i, j], i)
        s[i, j] = -i64(A[i, j]) * i64(A[i, j]) + abs(i64(A[i, j])) + sign(i64(A[i, j])) + min(i64(j), i64(3))
        t[i, j] = pow(2, i)""",
    "float functions": """
        dim N = 130
        input X: f32[N]
        output a: f32[N]
        output b: f32[N]
        output c: f32[N]
        output d: f32[N]
        output e: f32[N]
        output f: f32[N]
        output g: f32[N]
        output h: f32[N]
        a[i] = exp(X[i]) + exp2(X[i]) + log(1 + abs(X[i])) + log2(2 + abs(X[i]))
        b[i] = sqrt(abs(X[i])) + rsqrt(1 + X[i] * X[i])
        c[i] = sin(X[i]) * cos(X[i]) + tanh(X[i])
        d[i] = sigmoid(X[i]) + erf(X[i])
        e[i] = sign(X[i]) * floor(4 * X[i]) + ceil(3 * X[i]) - round(5 * X[i])
        f[i] = min(X[i], 0.5) + max(X[i], -0.5) + abs(X[i])
        g[i] = pow(abs(X[i]), 1.5) + (1 + abs(X[i])) ** X[i] + X[i] ** 3 + (2 + abs(X[i])) ** -2
        h[i] = (3 * X[i]) // 1 + (X[i] * 5) % 3 - (X[i] * 5) % -3""",
    "double functions": """
        dim N = 77
        input X: f64[N]
        output a: f64[N]
        output b: f64[N]
        output c: f64[N]
        output d: f64
        a[i] = exp(X[i]) + exp2(X[i]) + log(1 + abs(X[i])) + log2(2 + abs(X[i])) + sqrt(abs(X[i])) + rsqrt(1 + X[i] * X[i])
        b[i] = sin(X[i]) * cos(X[i]) + tanh(X[i]) + sigmoid(X[i]) + erf(X[i]) + sign(X[i]) * floor(4 * X[i]) + ceil(3 * X[i]) - round(5 * X[i])
        c[i] = min(X[i], 0.5) + max(X[i], -0.5) + pow(abs(X[i]), 1.5) + X[i] // 0.25 + X[i] % 0.3
        d = sum[i](X[i]) + max[i](X[i])""",
    "casts between everything": """
        dim N = 77
        input X: f32[N]
        input K: i32[N]
        input D: f64[N]
        output a: f32[N]
        output b: i32[N]
        output c: f32[N]
        output d: f32[N]
        output e: bool[N]
        output f: i32[N]
        output g: f64[N]
        output h: i64[N]
        a[i] = f16(X[i]) + bf16(X[i]) + tf32(X[i])
        b[i] = i32(X[i] * 100) + i8(K[i] * 7) + u8(K[i] * 5) + i16(K[i] * 1000)
        c[i] = f32(K[i]) / 3 + f16(K[i]) + f32(i8(X[i] * 10)) + f32(bool(K[i]))
        d[i] = f32(X[i] > 0) + f32(u8(abs(X[i]) * 30))
        e[i] = bool(K[i]) != bool(i32(X[i]))
        f[i] = i32(X[i] > 0.5) + i32(bool(K[i] % 2))
        g[i] = f64(X[i]) + D[i] + f64(K[i])
        h[i] = i64(X[i] * 10) + i64(D[i] * 10) + i64(K[i]) + i64(X[i] > 0)""",
    "typed intermediates of every type": """
        dim M = 6, N = 40
        input X: f32[M, N]
        input K: i32[M, N]
        output Y: f32[M, N]
        output Z: i32[M, N]
        A: f16[i, j] = X[i, j] * 1.001
        B: bf16[i, j] = X[i, j] * 1.001
        C: tf32[i, j] = X[i, j] * 1.001
        D: f64[i, j] = X[i, j] * 1.001
        E: i8[i, j] = K[i, j] * 3
        F: u8[i, j] = K[i, j] * 3
        G: i16[i, j] = K[i, j] * 3001
        H: i64[i, j] = K[i, j]
        I: bool[i, j] = K[i, j] > 3
        Y[i, j] = A[i, j] + B[i, j] + C[i, j] + f32(D[i, j])
        Z[i, j] = E[i, j] + F[i, j] + G[i, j] + i32(H[i, j]) + i32(I[i, j])""",
    "typed intermediates after reductions": """
        dim M = 6, N = 40
        input X: f32[M, N]
        input K: i32[M, N]
        output Y: f32[M]
        output Z: i32[M]
        A: f16[i] = sum[j](X[i, j])
        B: bf16[i] = max[j](X[i, j])
        E: i8[i] = sum[j](K[i, j])
        F: u8[i] = max[j](K[i, j])
        G: bool[i] = any[j](K[i, j] > 90)
        Y[i] = A[i] + B[i] + sum[j](X[i, j] * A[i])
        Z[i] = E[i] + F[i] + i32(G[i])""",
    "every reduction of floats": """
        dim M = 7, N = 77
        input X: f32[M, N]
        output a: f32[M]
        output b: f32[M]
        output c: f32[M]
        output d: f32[M]
        output e: f32[M]
        output f: i32[M]
        output g: i32[M]
        output h: bool[M]
        output k: bool[M]
        a[i] = sum[j](X[i, j])
        b[i] = prod[j](1 + X[i, j] / 8)
        c[i] = max[j](X[i, j])
        d[i] = min[j](X[i, j])
        e[i] = mean[j](X[i, j])
        f[i] = argmax[j](X[i, j])
        g[i] = argmin[j](X[i, j])
        h[i] = any[j](X[i, j] > 2)
        k[i] = all[j](X[i, j] < 2)""",
    "every reduction of integers": """
        dim M = 7, N = 77
        input X: i32[M, N]
        input Y: i8[M, N]
        input Z: i64[M, N]
        output a: i32[M]
        output b: i64[M]
        output c: i32[M]
        output d: i64[M]
        output e: f32[M]
        output f: i32[M]
        output g: i32[M]
        output h: i32[M]
        output k: i64[M]
        a[i] = sum[j](X[i, j])
        b[i] = prod[j](Z[i, j] % 3)
        c[i] = max[j](X[i, j])
        d[i] = min[j](Z[i, j])
        e[i] = mean[j](X[i, j])
        f[i] = argmax[j](Y[i, j])
        g[i] = argmin[j](X[i, j])
        h[i] = sum[j](Y[i, j] * Y[i, j])
        k[i] = max[j](Z[i, j]) + sum[j](Z[i, j])""",
    "reductions with conditions": """
        dim M = 7, N = 77
        input X: f32[M, N]
        input K: bool[M, N]
        input len: i32[M]
        output a: f32[M]
        output b: f32[M]
        output c: f32[M]
        output d: i32[M]
        output e: bool[M]
        output f: bool[M]
        output g: f32[M]
        a[i] = sum[j | K[i, j]](X[i, j])
        b[i] = max[j | j < len[i]](X[i, j])
        c[i] = mean[j | j % 3 == i % 3](X[i, j])
        d[i] = argmax[j | K[i, j] and j > 2](X[i, j])
        e[i] = any[j | j > i](X[i, j] > 1)
        f[i] = all[j | 2 <= j - i < 9 or not K[i, j]](X[i, j] < 1)
        g[i] = prod[j | j < 5](X[i, j])""",
    "chains of comparisons": """
        dim M = 9, N = 33
        input X: f32[M, N]
        output A: f32[M, N]
        output B: bool[M, N]
        A[i, j] = X[i, j] if 0 <= j - i < 5 != 3 else -X[i, j]
        B[i, j] = (-1 < X[i, j] <= 1) == (i < j) or (i == j and not X[i, j] > 0)""",
    "infinities in the text": """
        dim M = 5, N = 33
        input X: f32[M, N]
        output A: f32[M]
        output B: f32[M, N]
        A[i] = max[j](X[i, j] if X[i, j] < 0.5 else -inf)
        B[i, j] = exp(-inf if j > i else X[i, j]) + (1 / inf)""",
    "empty domains": """
        dim M = 6, N = 5
        input X: f16[M, N]
        output Y: f16[M, N]
        output S: f32[M]
        output T: f32[M]
        output U: f32[M]
        output V: f32[M]
        Y[i, j] = softmax[j | j > i](X[i, j])
        S[i] = max[j | j > i](X[i, j])
        T[i] = prod[j | j > i + 9](X[i, j])
        U[i] = sum[j | j > 99](X[i, j])
        V[i] = logsumexp[j | j > i](X[i, j])""",
    "scalar arguments of every kind": """
        dim M = 6, N = 40
        input X: f32[M, N]
        input K: i32[M, N]
        scalar a: f32 = 0.5
        scalar b: i32 = 3
        scalar c: f64 = 0.25
        scalar d: i64 = 5
        scalar e: bool = true
        scalar f: f16 = 2
        output Y: f32[M, N]
        output Z: i64[M, N]
        output W: f64[M]
        Y[i, j] = X[i, j] * a * f + b if e else 0
        Z[i, j] = K[i, j] * b + d
        W[i] = sum[j | j < b](X[i, j] * c)""",
    "rank 0": """
        dim N = 130
        input X: f16[N]
        input s: f32
        input k: i32
        output a: f32
        output b: f16
        output c: i32
        output d: bool
        a = sum[i](X[i] * X[i]) * s
        b = s * 2
        c = k + 1
        d = any[i](X[i] > s)""",
    "sizes of one": """
        dim A = 1, B = 1, C = 3, N = 1
        input X: f32[A, B, C, N]
        input W: f16[N, N]
        input V: f16[A, N]
        output Y: f32[A, C]
        output Z: f32[A, B, C, N]
        output P: f16[A, N]
        Y[a, c] = sum[b, n](X[a, b, c, n])
        Z[a, b, c, n] = softmax[n](X[a, b, c, n]) + softmax[b](X[a, b, c, n])
        P[a, m] = sum[n](V[a, n] * W[n, m])""",
    "hash": """
        dim N = 333
        input K: i32[N]
        output H: i32[N]
        output L: i64[N]
        H[i] = ((K[i] % 1009) * 31 + i * 17) % 257 - ((-K[i]) // 3) % 5
        L[i] = (i64(K[i]) * 2654435761 + 12345) % 4294967296""",
    "bools compared and reduced": """
        dim M = 5, N = 40
        input A: bool[M, N]
        input B: bool[M, N]
        output C: bool[M, N]
        output D: bool[M]
        output E: i32[M]
        output F: f32[M]
        C[i, j] = A[i, j] == B[i, j] and (A[i, j] != B[i, j] or A[i, j])
        D[i] = all[j](A[i, j] or B[i, j]) or any[j](A[i, j] and B[i, j])
        E[i] = count[j](A[i, j])
        F[i] = mean[j](f32(A[i, j]))""",
    "a value of the index alone": """
        dim M = 9, N = 33
        output A: f32[M, N]
        output B: i32[M, N]
        output C: bool[M, N]
        A[i, j] = exp(-abs(i - j) / 4)
        B[i, j] = (i * 7 + j) % 5 - j // 3
        C[i, j] = i <= j""",
    "place of the least of equal constants": """
        dim D = 1, F = 40, E = 17
        output T: i32[D, F]
        C = tanh(0.5 * 1.25) * 1.25
        T[d: D, f: F] = argmin[e: E](C)""",
    "reductions of computed tiles": """
        dim F = 77, B = 40, C = 40
        output P: f32
        output K: i32[F]
        P = prod[f: F, b: B](1 + 1.25 / 2048)
        K[f] = argmax[c: C](P)""",
    "a sum over one element for every other, in double": """
        dim B = 5, F = 17, D = 5, C = 130
        input X: tf32[B, F]
        input Y: f32[C, D]
        output S: f64[B]
        output T: f16[F, D]
        output U: f16[C, B]
        R[c: C, b: B] = sum[d: D](Y[c, d] * (d / 16))
        S[b: B] = sin((max(b / 16, b / 16) - b / 16) / 2)
        T[f: F, d: D] = sum[b: B](X[b, f] * S[b]) * 0.125 + sin(0.5)
        U[c: C, b: B] = sum[d: D](R[c, b] * R[c, b]) * 0.125 + (S[b] + R[c, b])""",
    "constants": """
        dim M = 5, N = 12
        const C = M * N + 2
        output A: f32[M, N]
        output B: i8[N]
        output Z: f32
        A[i, j] = 1.5
        B[i] = 3
        Z = C""",
}
