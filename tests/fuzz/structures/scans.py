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


def windows(r: random.Random) -> str:
    """Windows that move with a result, along one axis or two, and running sums relative to running extremes."""
    return r.choice((_window, _window, _neighbourhood, _relative, _relative))(r)


def _window(r: random.Random) -> str:
    n, w, b = r.choice((5, 64, 130, 400, 1000)), r.choice((1, 2, 3, 8, 16, 25, 64, 100)), r.choice((1, 3))
    op = r.choice(("sum", "sum", "max", "min", "prod", "any"))
    dtype = r.choice(("f32", "f16", "bf16", "i32", "u8", "f64"))
    form = r.choice((
        f"t - {w} < u <= t", f"t <= u < t + {w}", f"t - {w} < u < t", f"t - {w} <= u and u < t and keep[u]",
        f"2 * t <= u < 2 * t + {w}", f"N - t - {w} <= u < N - t", f"t - {w} < u <= t and u != t - 1",
        f"t - {w} < u <= t and t % 3 != 1", f"t - {w} < u and u <= t + {w} and u >= 2", "t // 4 * 4 <= u <= t",
        f"t - {w} < u <= min(t, {n // 2})", f"abs(t - u) <= {w // 2}", f"s[t] <= u < s[t] + {w}", "t - v < u <= t",
    ))  # fmt: skip
    across = r.random() < 0.3
    x = "X[u, b]" if across else "X[b, u]"
    if dtype not in ("i32", "u8"):
        x = r.choice((x, x, f"exp(-abs({x}))", f"({x} if u % 5 != 0 else 0)"))
        x = f"(1 + {x} / 64)" if op == "prod" else x
    x = f"{x} == 1" if op == "any" else x
    result = {"any": "bool"}.get(op, r.choice((dtype, dtype, "i32" if dtype in ("i32", "u8") else "f32")))
    shape, index = ("N, B", "t: N, b: B") if across else ("B, N", "b: B, t: N")
    span = f"u: {n}" if r.random() < 0.2 else "u: N"
    body = f"{op}[{span} | {form}]({x})"
    if op in ("max", "min"):
        body = f"clamp({body}, -99, 99)" if result[0] in "fb" else f"min(max({body}, -99), 99)"
    lines = [f"dim N = {n}, B = {b}", f"input X: {dtype}[{shape}]", f"output Y: {result}[{shape}]"]
    lines += ["input keep: bool[N]"] * ("keep" in form) + ["input s: i32[N]"] * ("s[" in form)
    lines += [f"scalar v: i32 = {w}"] * ("- v" in form)
    body = f"Y[{index}] = {body}"
    if r.random() < 0.4:  # by the distance
        places = r.choice(("t + u", "t - u", "t + 2 * u", f"t + u - {w // 2}", "3 * t + u"))
        if "s[" not in form and "keep" not in form:
            x = x.replace("[u,", f"[{places},").replace("u]", f"{places}]")
        if places in x:
            body = f"Y[{index}] = {op}[u: {w} | 0 <= {places} < N]({x})"
    return "\n".join([*lines, body])


def _neighbourhood(r: random.Random) -> str:
    n, m, w, h = r.choice((5, 40, 70)), r.choice((5, 33, 64)), r.choice((1, 3, 7, 16)), r.choice((1, 2, 7, 20))
    op, dtype = r.choice(("sum", "sum", "max", "min")), r.choice(("f32", "f16", "i32", "u8"))
    lines = [f"dim N = {n}, M = {m}", f"input X: {dtype}[N, M]", f"output Y: {r.choice((dtype, dtype, 'f32'))}[N, M]"]
    if dtype in ("i32", "u8"):
        lines[-1] = "output Y: i32[N, M]"
    form = r.choice((
        f"abs(u - t) <= {w} and abs(v - s) <= {h}", f"t - {w} < u <= t and s <= v < s + {h}",
        f"t - {w} < u <= t and v <= s", f"abs(u - t) <= {w} and abs(v - s) <= {h} and (u != t or v != s)",
        f"abs(u - t) + abs(v - s) <= {w}",
    ))  # fmt: skip
    value = f"{op}[u: N, v: M | {form}](X[u, v])"
    if r.random() < 0.4:
        value = f"{op}[u: {2 * w + 1}, v: {h} | 0 <= t + u - {w} < N and s + v < M](X[t + u - {w}, s + v])"
    if op != "sum":
        value = f"min(max({value}, -99), 99)"
    return "\n".join([*lines, f"Y[t: N, s: M] = {value}"])


def _relative(r: random.Random) -> str:
    n, b, dtype = r.choice((1, 5, 33, 64, 130, 300)), r.choice((1, 3, 9)), r.choice(("f32", "f32", "f16", "f64"))
    form = r.choice(("u <= t", "u <= t", "u <= t", "u < t", "u >= t", "u <= t and keep[u]", "u <= t and u != 2"))
    across, op = r.random() < 0.3, r.choice(("max", "max", "max", "min"))
    x = "X[u, b]" if across else "X[b, u]"
    x = r.choice((x, x, f"({x} * 3)", f"({x} if u % 4 != 1 else -inf)", f"({x} - u / 9)", f"({x} if u > 9 else -inf)"))
    sign = "" if op == "max" else "-"
    at = "t, b" if across else "b, t"
    term = f"exp({sign}({x} - m[{at}]))"
    z = r.choice((term, term, f"{term} * {x}", f"{term} * w[u]", f"{term} ** 2"))
    lines = [f"dim N = {n}, B = {b}", f"input X: {dtype}[{'N, B' if across else 'B, N'}]", "input w: f32[N]"]
    lines += ["input keep: bool[N]"] * ("keep" in form) + [f"output Y: f32[{'N, B' if across else 'B, N'}]"]
    shape = "t: N, b: B" if across else "b: B, t: N"
    body = [f"m[{shape}] = {op}[u: N | {form}]({x})", f"z[{shape}] = sum[u: N | {form}]({z})"]
    last = r.choice((f"z[{at}]", f"log(abs(z[{at}])) + m[{at}]", f"z[{at}] / sum[u: N | {form}]({term})"))
    if r.random() < 0.3:
        return "\n".join([*lines, f"Y[{at}] = logsumexp[u: N | {form}]({x})"])
    if r.random() < 0.3:
        lines.append(f"output Z: f32[{'N, B' if across else 'B, N'}]")
        body.append(f"Z[{at}] = m[{at}]")
    return "\n".join([*lines, *body, f"Y[{at}] = {last}"])
