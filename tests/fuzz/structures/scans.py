"""Running results over prefixes and suffixes, moved and with conditions; sums over rectangles; weights that decay."""

from __future__ import annotations

import random

_FORMS = (
    "u <= t", "u < t", "u >= t", "u > t", "u <= t - 3", "u + 2 <= t", "u <= t + 1", "u <= t and u >= 4",
    "u <= t and t > 7", "u <= t and keep[u]", "t - 40 < u <= t", "u // 8 <= t // 8", "u <= t and u // 64 == t // 64",
    "u <= N - 1 - t", "u <= 2 * t",
)  # fmt: skip


def program(r: random.Random) -> str:
    """The text of a spec."""
    return r.choice((_running, _running, _running, _rectangle, _weights))(r)


def _running(r: random.Random) -> str:
    n, op = r.choice((5, 64, 130, 200, 1000, 3000)), r.choice(("sum", "sum", "sum", "max", "min", "prod"))
    dtype, across = r.choice(("f32", "f32", "f16", "bf16", "i32", "f8e5m2")), r.random() < 0.4
    rows, form = r.choice((1, 3, 8, 33)) if n < 500 else r.choice((1, 2)), r.choice(_FORMS)
    x = "X[u, b]" if across else "X[b, u]"
    if dtype != "i32":
        x = f"(1 + {x} / 64)" if op == "prod" else r.choice((x, x, f"exp(-abs({x}))", f"({x} * {x})", f"relu({x})"))
    result = "i32" if dtype == "i32" else r.choice(("f32", "f16"))
    body = f"{op}[u: N | {form}]({x})"
    if op in ("max", "min"):
        body = f"max(min({body}, 99), -99)"  # of no elements, an infinity
    elif result == "f16":
        body += " / 64"
    lines = [f"dim N = {n}, B = {rows}"] + ["input keep: bool[N]"] * ("keep" in form)
    shape, index = ("N, B", "t, b") if across else ("B, N", "b, t")
    return "\n".join([*lines, f"input X: {dtype}[{shape}]", f"output Y: {result}[{shape}]", f"Y[{index}] = {body}"])


def _rectangle(r: random.Random) -> str:
    lines = [f"dim N = {r.choice((5, 64, 130, 200))}, M = {r.choice((5, 17, 40))}"]
    lines.append(f"input X: {r.choice(('f32', 'f16'))}[N, M]")
    less = r.choice(("<=", "<=", "<"))
    value = f"sum[u: N, v: M | u <= t and v {less} s](X[u, v]) / 16"
    return "\n".join([*lines, "output Y: f32[N, M]", f"Y[t, s] = {value}"])


def _weights(r: random.Random) -> str:
    """Linear attention: each position reads all earlier ones, at weights that decay."""
    dtype, decay = r.choice(("f16", "bf16")), r.choice(("", " * exp(-f32(t - u) / 8)", " * exp(-0.01 * abs(t - u))"))
    lines = [f"dim N = {r.choice((5, 64, 130, 200))}, D = {r.choice((8, 16, 40))}"]
    lines += [f"input {t}: {dtype}[N, D]" for t in "QKV"]
    body = f"A[t: N, u: N] = sum[d](Q[t, d] * K[u, d]){decay} if u <= t else 0"
    return "\n".join([*lines, "output Y: f32[N, D]", body, "Y[t, e] = sum[u](A[t, u] * V[u, e]) / N"])
