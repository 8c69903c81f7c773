"""Specs from networks: products, norms, attention, routing, losses."""

# ruff: noqa: E501 (lines of specs)

SPECS = {
    "products with monarch matrices": """
        dim B = 48, P = 16, Q = 32
        input X: bf16[B, P * Q], L: bf16[P, Q, Q], R: bf16[Q, P, P]
        output Y: bf16[B, P * Q]
        u[b, p, q] = sum[r: Q](L[p, q, r] * X[b, p * Q + r])
        v[b, q, p] = sum[s: P](R[q, p, s] * u[b, s, q])
        Y[b, n] = v[b, n % Q, n // Q]""",
    "products with monarch matrices, whose intermediate is an output": """
        dim B = 24, P = 16, Q = 16
        input X: f16[B, P, Q], L: f16[P, Q, Q], R: f16[Q, P, P]
        output U: f16[B, P, Q], Y: f16[B, Q, P]
        U[b, p, r] = sum[q](X[b, p, q] * L[p, q, r])
        Y[b, r, s] = sum[p](U[b, p, r] * R[r, p, s])""",
    "matrix vector": """
        dim M = 130, N = 77
        input A: f16[M, N]
        input x: f16[N]
        output y: f16[M]
        y[i] = sum[j](A[i, j] * x[j])""",
    "vector matrix": """
        dim M = 77, N = 130
        input A: f16[M, N]
        input x: f16[M]
        output y: f32[N]
        y[j] = sum[i](A[i, j] * x[i])""",
    "dot product": """
        dim N = 333
        input x: f16[N]
        input y: f16[N]
        output s: f32
        s = sum[i](x[i] * y[i])""",
    "matrix products in every type": """
        dim M = 33, N = 20, K = 24
        input A: f32[M, K]
        input B: f32[K, N]
        input C: f64[M, K]
        input D: f64[K, N]
        input E: bf16[M, K]
        input F: bf16[K, N]
        input G: i8[M, K]
        input H: i8[N, K]
        input I: i32[M, K]
        input J: i32[K, N]
        output P: f32[M, N]
        output Q: f64[M, N]
        output R: bf16[M, N]
        output S: i32[M, N]
        output T: i32[M, N]
        P[i, j] = sum[k](A[i, k] * B[k, j])
        Q[i, j] = sum[k](C[i, k] * D[k, j])
        R[i, j] = sum[k](E[i, k] * F[k, j])
        S[i, j] = sum[k](G[i, k] * H[j, k])
        T[i, j] = sum[k](I[i, k] * J[k, j])""",
    "tf32 product": """
        dim M = 40, N = 48, K = 36
        input A: tf32[M, K]
        input B: tf32[K, N]
        output C: f32[M, N]
        C[i, j] = sum[k](A[i, k] * B[k, j])""",
    "mixed products": """
        dim M = 33, N = 20, K = 24
        input A: f16[M, K]
        input B: f32[K, N]
        input D: bf16[K, N]
        input E: u8[M, K]
        input F: i8[K, N]
        output P: f32[M, N]
        output Q: f32[M, N]
        output R: i32[M, N]
        P[i, j] = sum[k](A[i, k] * B[k, j])
        Q[i, j] = sum[k](A[i, k] * D[k, j])
        R[i, j] = sum[k](E[i, k] * F[k, j])""",
    "gram matrix": """
        dim M = 77, N = 33
        input A: f16[M, N]
        output G: f32[N, N]
        G[i, j] = sum[k](A[k, i] * A[k, j])""",
    "matrix times its transpose": """
        dim M = 33, N = 77
        input A: f16[M, N]
        output G: f16[M, M]
        G[i, j] = sum[k](A[i, k] * A[j, k])""",
    "chained products": """
        dim M = 33, N = 40, K = 24, L = 20
        input A: f16[M, K]
        input B: f16[K, N]
        input C: f16[N, L]
        output D: f16[M, L]
        T[i, j] = sum[k](A[i, k] * B[k, j])
        D[i, l] = sum[j](T[i, j] * C[j, l])""",
    "chained products of typed intermediates": """
        dim M = 33, N = 40, K = 24, L = 20
        input A: f16[M, K]
        input B: f16[K, N]
        input C: f16[N, L]
        output D: f16[M, L]
        T: f16[i, j] = sum[k](A[i, k] * B[k, j])
        D[i, l] = sum[j](T[i, j] * C[j, l])""",
    "batched product, transposed": """
        dim B = 3, H = 2, M = 17, N = 20, K = 24
        input X: f16[B, M, H, K]
        input W: f16[H, N, K]
        output Y: f16[B, H, N, M]
        Y[b, h, n, m] = sum[k](X[b, m, h, k] * W[h, n, k])""",
    "bilinear form": """
        dim B = 9, M = 17, N = 20
        input x: f32[B, M]
        input W: f32[M, N]
        input y: f32[B, N]
        output s: f32[B]
        s[b] = sum[i, j](x[b, i] * W[i, j] * y[b, j])""",
    "product of three matrices at once": """
        dim M = 9, N = 12, K = 10, L = 7
        input A: f32[M, K]
        input B: f32[K, L]
        input C: f32[L, N]
        output D: f32[M, N]
        D[i, j] = sum[k, l](A[i, k] * B[k, l] * C[l, j])""",
    "low rank update": """
        dim M = 33, N = 40, K = 24, R = 4
        input X: f16[M, K]
        input W: f16[K, N]
        input A: f16[K, R]
        input B: f16[R, N]
        output Y: f16[M, N]
        Y[i, j] = sum[k](X[i, k] * W[k, j]) + 0.5 * sum[r](sum[k](X[i, k] * A[k, r]) * B[r, j])""",
    "quantised product": """
        dim M = 33, N = 40, K = 64
        input X: i8[M, K]
        input W: i8[N, K]
        input sx: f32[M]
        input sw: f32[N]
        input b: f32[N]
        output Y: f16[M, N]
        Y[i, j] = sum[k](X[i, k] * W[j, k]) * sx[i] * sw[j] + b[j]""",
    "dequantised weights": """
        dim M = 33, N = 40, K = 64, G = 16
        input X: f16[M, K]
        input W: i8[K, N]
        input s: f16[K // G, N]
        output Y: f16[M, N]
        Y[i, j] = sum[k](X[i, k] * (W[k, j] * s[k // G, j]))""",
    "four bits to a byte": """
        dim M = 17, N = 40, K = 32
        input X: f16[M, K]
        input W: u8[K // 2, N]
        input s: f32[N]
        output Y: f16[M, N]
        Y[i, j] = s[j] * sum[k](X[i, k] * (W[k // 2, j] % 16 - 8 if k % 2 == 0 else W[k // 2, j] // 16 - 8))""",
    "quantisation of rows": """
        dim M = 9, N = 77
        input X: f16[M, N]
        output Q: i8[M, N]
        output s: f32[M]
        s[i] = max[j](abs(X[i, j])) / 127
        Q[i, j] = i8(clamp(round(X[i, j] / s[i]), -127, 127)) if s[i] > 0 else 0""",
    "gated mlp": """
        dim M = 17, D = 24, F = 40
        input X: f16[M, D]
        input W: f16[D, F]
        input V: f16[D, F]
        input U: f16[F, D]
        output Y: f16[M, D]
        H[m, f] = silu(sum[d](X[m, d] * W[d, f])) * sum[d](X[m, d] * V[d, f])
        Y[m, e] = sum[f](H[m, f] * U[f, e])""",
    "mlp with a norm in front and a residual": """
        dim M = 17, D = 24, F = 40
        input X: f16[M, D]
        input g: f16[D]
        input W: f16[D, F]
        input U: f16[F, D]
        output Y: f16[M, D]
        N[m, d] = rms_norm[d](X[m, d], 1e-5) * g[d]
        H[m, f] = gelu_tanh(sum[d](N[m, d] * W[d, f]))
        Y[m, e] = X[m, e] + sum[f](H[m, f] * U[f, e])""",
    "softmax over two axes": """
        dim M = 5, N = 33
        input X: f32[M, N]
        output Y: f32[M, N]
        output Z: f32[M, N]
        Y[i, j] = softmax[i](X[i, j])
        Z[i, j] = softmax[j](softmax[i](X[i, j]))""",
    "log softmax": """
        dim M = 5, N = 77
        input X: bf16[M, N]
        output Y: bf16[M, N]
        Y[i, j] = log_softmax[j](X[i, j])""",
    "softmax of the first axis": """
        dim M = 77, N = 33
        input X: f32[M, N]
        output Y: f32[M, N]
        Y[i, j] = softmax[i](X[i, j])""",
    "group norm": """
        dim B = 2, C = 12, G = 3, H = 5, W = 6
        const S = C // G
        input X: f16[B, C, H, W]
        input g: f32[C]
        input b: f32[C]
        output Y: f16[B, C, H, W]
        mu[n, q: G] = mean[c: S, y: H, x: W](X[n, q * S + c, y, x])
        var[n, q: G] = mean[c: S, y: H, x: W](square(X[n, q * S + c, y, x] - mu[n, q]))
        Y[n, c, y, x] = (X[n, c, y, x] - mu[n, c // S]) * rsqrt(var[n, c // S] + 1e-5) * g[c] + b[c]""",
    "batch norm": """
        dim B = 6, C = 12, H = 5
        input X: f32[B, C, H]
        input g: f32[C]
        output Y: f32[B, C, H]
        mu[c] = mean[n, y](X[n, c, y])
        var[c] = mean[n, y](square(X[n, c, y] - mu[c]))
        Y[n, c, y] = (X[n, c, y] - mu[c]) * rsqrt(var[c] + 1e-5) * g[c]""",
    "layer norm of long rows": """
        dim M = 2, N = 3001
        input X: f16[M, N]
        input g: f16[N]
        output Y: f16[M, N]
        Y[i, j] = layer_norm[j](X[i, j], 1e-5) * g[j]""",
    "layer norm of short rows": """
        dim M = 130, N = 7
        input X: f32[M, N]
        output Y: f32[M, N]
        Y[i, j] = layer_norm[j](X[i, j], 1e-5)""",
    "l2 norm and cosine similarity": """
        dim M = 17, N = 20, D = 12
        input X: f32[M, D]
        input Y: f32[N, D]
        output S: f32[M, N]
        A[i, d] = l2_norm[d](X[i, d], 1e-6)
        B[j, d] = l2_norm[d](Y[j, d], 1e-6)
        S[i, j] = sum[d](A[i, d] * B[j, d])""",
    "rotary embedding": """
        dim T = 17, H = 3, D = 16
        const E = D // 2
        input X: f16[T, H, D]
        input p: i32[T]
        output Y: f16[T, H, D]
        angle[t, k: E] = p[t] * exp2(-13.28 * k / E)
        Y[t, h, d] = X[t, h, d] * cos(angle[t, d % E]) + (-X[t, h, d + E] if d < E else X[t, h, d - E]) * sin(angle[t, d % E])""",
    "rotary embedding, interleaved": """
        dim T = 17, H = 3, D = 16
        input X: f32[T, H, D]
        input C: f32[T, D // 2]
        input S: f32[T, D // 2]
        output Y: f32[T, H, D]
        Y[t, h, d] = X[t, h, d] * C[t, d // 2] + (X[t, h, d - 1] * S[t, d // 2] if d % 2 == 1 else -X[t, h, d + 1] * S[t, d // 2])""",
    "cross entropy": """
        dim N = 9, V = 130
        input X: f16[N, V]
        input label: i32[N]
        output loss: f32[N]
        output total: f32
        loss[n] = logsumexp[v](X[n, v]) - X[n, label[n]]
        total = mean[n](loss[n])""",
    "cross entropy with smoothing and ignored labels": """
        dim N = 9, V = 130
        input X: f32[N, V]
        input label: i32[N]
        scalar eps: f32 = 0.1
        output total: f32
        L[n] = (logsumexp[v](X[n, v]) - (1 - eps) * X[n, label[n]] - eps * mean[v](X[n, v])) if label[n] != 3 else 0
        total = sum[n](L[n]) / max(sum[n](i32(label[n] != 3)), 1)""",
    "top-1 routing": """
        dim T = 20, D = 16, E = 5
        input X: f16[T, D]
        input R: f16[D, E]
        input W: f16[E, D, D]
        output Y: f16[T, D]
        G[t, e] = softmax[e](sum[d](X[t, d] * R[d, e]))
        best[t] = argmax[e](G[t, e])
        Y[t, f] = G[t, best[t]] * sum[d](X[t, d] * W[best[t], d, f])""",
    "top-2 routing weights": """
        dim T = 20, E = 8
        input G: f32[T, E]
        output a: i32[T]
        output b: i32[T]
        output w: f32[T]
        a[t] = argmax[e](G[t, e])
        b[t] = argmax[e | e != a[t]](G[t, e])
        w[t] = sigmoid(G[t, a[t]] - G[t, b[t]])""",
    "grouped product": """
        dim T = 33, D = 16, E = 4, F = 24
        input X: f16[T, D]
        input e: i32[T]
        input W: f16[E, D, F]
        output Y: f16[T, F]
        Y[t, f] = sum[d](X[t, d] * W[e[t], d, f])""",
    "contrastive loss": """
        dim N = 20, D = 16
        input X: f16[N, D]
        input Y: f16[N, D]
        output L: f32
        S[i, j] = sum[d](X[i, d] * Y[j, d]) / sqrt(D)
        L = -mean[i](S[i, i] - logsumexp[j](S[i, j]))""",
    "moments and a standardised output": """
        dim M = 9, N = 77
        input X: f32[M, N]
        output m: f32[M]
        output v: f32[M]
        output skew: f32[M]
        m[i] = mean[j](X[i, j])
        v[i] = variance[j](X[i, j])
        skew[i] = mean[j](((X[i, j] - m[i]) * rsqrt(v[i] + 1e-6)) ** 3)""",
    "user functions": """
        dim M = 9, N = 40
        input X: f32[M, N]
        output Y: f32[M, N]
        output Z: f32[M]
        def swish(x, b) = x * sigmoid(b * x)
        def center[j | c](x) = x - mean[j | c](x) if c else 0
        def powmean[j](x, p) = mean[j](abs(x) ** p) ** (1 / p)
        Y[i, j] = swish(center[j | j <= i + 5](X[i, j]), 1.5)
        Z[i] = powmean[j](X[i, j], 3)""",
    "prelude functions": """
        dim M = 9, N = 40
        input X: f32[M, N]
        output Y: f32[M, N]
        Y[i, j] = relu(X[i, j]) + leaky_relu(X[i, j], 0.1) + silu(X[i, j]) + gelu(X[i, j]) + softplus(X[i, j]) + elu(X[i, j], 0.5) + clamp(X[i, j], -1, 1) + softcap(X[i, j], 5)""",
    "a matrix state, a vector and their reference in one block": """
        dim B = 1, H = 2, T = 9, D = 16
        input q: bf16[B, H, T, D], k: bf16[B, H, T, D], v: bf16[B, H, T, D], i: bf16[B, H, T], f: bf16[B, H, T]
        output o: bf16[B, H, T, D]
        recur {
          m[b, h, t] = max(f32(i[b, h, t]), m[b, h, t - 1] - softplus(-f32(f[b, h, t]))) if t > 0 else f32(i[b, h, 0])
          C[b, h, t, d: D, e: D] = (exp(m[b, h, t - 1] - softplus(-f32(f[b, h, t])) - m[b, h, t]) * C[b, h, t - 1, d, e] if t > 0 else 0) + exp(i[b, h, t] - m[b, h, t]) * k[b, h, t, d] * v[b, h, t, e]
          n[b, h, t, d: D] = (exp(m[b, h, t - 1] - softplus(-f32(f[b, h, t])) - m[b, h, t]) * n[b, h, t - 1, d] if t > 0 else 0) + exp(i[b, h, t] - m[b, h, t]) * k[b, h, t, d]
        }
        o[b, h, t, e] = sum[d](q[b, h, t, d] * C[b, h, t, d, e]) / max(abs(sum[d](q[b, h, t, d] * n[b, h, t, d])), exp(-m[b, h, t]))""",
    "linear recurrence with gates": """
        dim T = 20, D = 7, N = 5
        input X: f32[T, D]
        input A: f32[D, N]
        input B: f32[T, N]
        input C: f32[T, N]
        input dt: f32[T, D]
        output Y: f32[T, D]
        step[t, d] = softplus(dt[t, d])
        P[t: T, d] = sum[s | s <= t](step[s, d])
        Y[t, d] = sum[n](C[t, n] * sum[s: T | s <= t](exp(-abs(A[d, n]) * (P[t, d] - P[s, d])) * step[s, d] * B[s, n] * X[s, d]))""",
    "adam step": """
        dim N = 333
        input w: f32[N]
        input g: f16[N]
        input m: f32[N]
        input v: f32[N]
        scalar lr: f32 = 0.001
        scalar step: i32 = 3
        output w1: f32[N]
        output m1: f32[N]
        output v1: f32[N]
        m1[i] = 0.9 * m[i] + 0.1 * g[i]
        v1[i] = 0.999 * abs(v[i]) + 0.001 * square(g[i])
        w1[i] = w[i] - lr * (m1[i] / (1 - 0.9 ** step)) / (sqrt(v1[i] / (1 - 0.999 ** step)) + 1e-8)""",
    "mean squared error and its gradient": """
        dim M = 20, N = 33, K = 16
        input X: f16[M, K]
        input W: f16[K, N]
        input T: f32[M, N]
        output loss: f32
        output dW: f32[K, N]
        R[i, j] = sum[k](X[i, k] * W[k, j]) - T[i, j]
        loss = mean[i, j](square(R[i, j]))
        dW[k, j] = sum[i](X[i, k] * R[i, j]) * 2 / (M * N)""",
    "a grouped convolution with a gate, channels numbered through": """
        dim B = 2, T = 37, C = 64, G = 4
        const D = C // G
        input X: bf16[B, T, C]
        input W: bf16[2 * C, 3, D]
        input b: bf16[2 * C]
        output Y: bf16[B, T, C]
        Z[n, t: T, o] = b[o] + sum[k, c](W[o, k, c] * X[n, t + 2 * k - 2, o % C // D * D + c] if 0 <= t + 2 * k - 2 < T else 0)
        Y[n, t, o: C] = Z[n, t, o + 0] * sigmoid(Z[n, t, o + C])""",
    "a product by groups whose channels alternate": """
        dim M = 37, C = 96, G = 3
        input X: f16[M, C]
        input W: f16[C, C // G]
        output Y: f16[M, C]
        Y[m, o] = sum[c](W[o, c] * X[m, c * G + o % G])""",
    "sparse blocks times a matrix, scaled": """
        dim M = 64, N = 40, Z = 7, BS = 16
        input ptr: i32[M // BS + 1], col: i32[Z], val: f16[Z, BS, BS], s: f32[Z], X: f16[M, N]
        assume 0 <= col[z] < M // BS
        assume abs(s[z]) < 100
        assume ptr[r] <= ptr[r + 1]
        assume 0 <= ptr[r] <= Z
        output Y: f16[M, N], V: f16[M, N]
        Y[i: M, n] = sum[z: ptr[i // BS] .. ptr[i // BS + 1], k: BS](val[z, i % BS, k] * X[col[z] * BS + k, n])
        V[i: M, n] = sum[z: ptr[i // BS] .. ptr[i // BS + 1]](s[z] * sum[k: BS](val[z, i % BS, k] * X[col[z] * BS + k, n]))""",
}
