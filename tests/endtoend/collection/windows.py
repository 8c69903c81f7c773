"""Specs with convolutions whose windows are stored."""

from __future__ import annotations

#: taps shift the contiguous axis, along which copies of boxes start at multiples of 16 bytes: windows are stored
WINDOWS = {
    "channels first, taps of each": """
        dim B = 2, H = 3, W = 40, C = 64, K = 136
        input X: f16[B, C, H, W]
        input F: f16[2, 3, K, C]
        output Y: f16[B, K, H, W]
        Y[b, k, y, x] = sum[r, s, c | y + r < H and 0 <= x + s - 1 < W](X[b, c, y + r, x + s - 1] * F[r, s, k, c])""",
    "channels first, taps last": """
        dim B = 2, H = 3, W = 40, C = 64, K = 136
        input X: f16[B, C, H, W]
        input F: f16[K, C, 2, 3]
        output Y: f16[B, K, H, W]
        Y[b, k, y, x] = sum[c, r, s | y + r < H and 0 <= x + s - 1 < W](X[b, c, y + r, x + s - 1] * F[k, c, r, s])""",
}
