"""Schedules that the planner makes of specs, and specs of one form at many sizes and types, for its rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nautilus.core.schedule import Schedule
from nautilus.driver import Request, compile_file
from nautilus.targets.records import DEFAULT_TARGET


def schedule_of(text: str, arch: str = DEFAULT_TARGET, given: Schedule | None = None) -> Schedule:
    """The schedule of the spec ``text`` after the Scalar IR; ``given``: decisions that stay."""
    result = compile_file(Request(Path("given.naut"), arch, schedule=given, text=text, until="scalar"))
    assert result.context.schedule is not None
    return result.context.schedule


PRODUCT = """dim M = {m}, N = {n}, K = {k}
input A: {a}[M, K], B: {b}[K, N]
output C: {c}[M, N]
C[i, j] = sum[k](A[i, k] * B[k, j])
"""
ATTENTION = """dim B = {b}, H = 8, M = {m}, N = {n}, D = {d}, E = {e}
input Q: {t}[B, H, M, D], K: {t}[B, H, N, D], V: {t}[B, H, N, E]
output O: {o}[B, H, M, E]
S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
P[b, h, i, j] = softmax[j{cond}](S[b, h, i, j])
O[b, h, i, e] = sum[j](P[b, h, i, j] * V[b, h, j, e])
"""
BEST = """dim M = {m}, N = {n}, K = {k}
input A: f16[M, K], B: f16[N, K]
output Y: i32[M]
S[i, j] = sum[k](A[i, k] * B[j, k])
Y[i] = argmax[j](S[i, j])
"""
ROWS = """dim M = {m}, N = {n}
input X: {t}[M, N]
output Y: {o}
{body}
"""
IMAGES = """dim B = {b}, C = {c}, H = {h}, W = {h}, R = {r}, F = {f}
input X: f16[B, C, H + R - 1, W + R - 1], K: f16[F, C, R, R]
output Y: f16[B, F, H, W]
Y[b, f, y, x] = sum[c, r, s](X[b, c, y + r, x + s] * K[f, c, r, s])
"""
BODIES = {
    "softmax": ("{t}[M, N]", "Y[i, j] = softmax[j](X[i, j])"),
    "sum": ("f32[M]", "Y[i] = sum[j](X[i, j])"),
    "columns": ("f32[N]", "Y[j] = sum[i](X[i, j])"),
    "all": ("f32", "Y = sum[i, j](X[i, j] * X[i, j])"),
    "argmax": ("i32[M]", "Y[i] = argmax[j](X[i, j])"),
    "running": ("f32[M, N]", "Y[i, j] = sum[u: N | u <= j](X[i, u])"),
    "gelu": ("{t}[M, N]", "Y[i, j] = gelu(X[i, j])"),
    "window": ("{t}[M, N]", "Y[i, j] = max[u: 5 | 0 <= j + u - 2 and j + u - 2 < N](X[i, j + u - 2])"),
    "pairs": ("f32[M]", "Y[i] = sum[k: M](exp(-sum[j](abs(X[i, j] - X[k, j]))))"),
}


def specs() -> Iterator[tuple[str, str]]:
    """A name and a spec."""
    for a, c in (("f16", "f16"), ("f32", "f32"), ("i8", "i32"), ("f8e4m3", "f16")):
        for m, n, k in (
            (32, 1024, 2048), (64, 4096, 4096), (96, 4096, 1024), (4096, 4096, 4096), (8192, 8192, 64),
            (4095, 4097, 1023), (4096, 48, 512),
        ):  # fmt: skip
            yield f"product {a} {m} {n} {k}", PRODUCT.format(m=m, n=n, k=k, a=a, b=a, c=c)
    yield "product f16 by f32", PRODUCT.format(m=2048, n=2048, k=1024, a="f16", b="f32", c="f32")
    for d in (16, 32, 64, 80, 96, 128, 160, 192, 256):
        for name, cond in (("all", ""), ("causal", " | j <= i")):
            yield f"attention {name} {d}", ATTENTION.format(b=2, m=4096, n=4096, d=d, e=d, t="f16", o="f16", cond=cond)
    for m, n, d, e in (
        (64, 4096, 128, 128),
        (256, 256, 64, 64),
        (4097, 4095, 128, 128),
        (2048, 2048, 192, 128),
        (1, 8192, 128, 128),
    ):
        yield f"attention {m} {n} {d} {e}", ATTENTION.format(b=2, m=m, n=n, d=d, e=e, t="bf16", o="bf16", cond="")
    for d in (64, 256):
        yield f"attention f8 {d}", ATTENTION.format(b=4, m=4096, n=4096, d=d, e=d, t="f8e4m3", o="bf16", cond="")
    for m, n, k in ((16, 50000, 128), (64, 8192, 64), (65, 8192, 256), (4096, 8192, 128)):
        yield f"best column {m} {n} {k}", BEST.format(m=m, n=n, k=k)
    for name, (o, body) in BODIES.items():
        for m, n in ((4096, 100), (4096, 1024), (1, 1000000)):
            for t in ("f16", "f32"):
                small = name != "pairs" or m * n <= 4096 * 100
                if small and (t == "f32" or name in ("softmax", "sum", "gelu")):
                    yield f"{name} {t} {m} {n}", ROWS.format(m=m, n=n, t=t, o=o.format(t=t), body=body)
    for batch, channels, h, r, f in (
        (8, 64, 56, 3, 64),
        (1, 3, 224, 7, 64),
        (32, 512, 7, 3, 512),
        (8, 256, 14, 1, 1024),
        (4, 16, 128, 5, 16),
    ):
        yield f"convolution {channels} {h} {r} {f}", IMAGES.format(b=batch, c=channels, h=h, r=r, f=f)


SWEEP = dict(specs())
