"""Integers and 64-bit numbers: fields of words, shifts, quotients of both signs, wrapping, transposed copies."""

from __future__ import annotations

import random

_TYPES = ("i8", "u8", "i16", "i32", "i32", "i64", "i64")


def program(r: random.Random) -> str:
    """The text of a spec."""
    return r.choice((_elements, _elements, _fields, _running, _copies))(r)


def _value(r: random.Random, deep: int, names: tuple[str, ...]) -> str:
    """An expression of integers."""
    if deep == 0:
        return r.choice((*names, *names, "i", "j", str(r.choice((0, 1, 2, 3, 7, 8, 255, 256, 65535, -1, -5)))))
    a, b = _value(r, deep - 1, names), _value(r, r.randrange(deep), names)
    n = r.choice((1, 2, 3, 4, 7, 8, 15, 16, 64, 100, 256, 1000, 65536))
    shift = r.choice(("0", "1", "3", "7", "15", "31", "32", "40", "63", "j", "(i & 7)", "(4 * (j % 2))", "(j - 2)"))
    kind = r.choice(("i32", "i64", "i16", "i8", "u8"))
    return r.choice((
        f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} // {n})", f"({a} % {n})", f"({a} // -{n})",
        f"({a} % -{n})", f"({a} // 2 ** (j % 8))", f"({a} // 16 ** (j % 2) % 16)", f"({a} % 2 ** (1 + i % 5))",
        f"({a} * 2 ** (j % 3))", f"({a} >> {shift})", f"({a} << {shift})", f"({a} & {b})", f"({a} ^ {b})",
        f"(~{a})", f"abs({a})", f"min({a}, {b})", f"max({a}, {b})", f"sign({a})", f"(-{a})", f"{kind}({a})",
        f"({a} // (1 + abs({b}) % 9))", f"({a} % (1 + abs({b}) % 9))", f"({a} if {b} % 3 == 1 else {b})",
        f"({a} if {a} < {b} else {b})", f"({a} ** {r.choice((0, 1, 2, 3))})", f"i32(any[k: 3]({a} + k == {b}))",
    ))  # fmt: skip


def _head(r: random.Random, result: str) -> list[str]:
    sizes = r.choice(("M = 5, N = 9", "M = 1, N = 1", "M = 33, N = 40", "M = 3, N = runtime <= 70", "M = 16, N = 256"))
    lines = [f"dim {sizes}", f"input A: {r.choice(_TYPES)}[M, N]", f"input B: {r.choice(_TYPES)}[N]"]
    return [*lines, f"output Y: {result}[M, N]"]


def _elements(r: random.Random) -> str:
    lines = _head(r, r.choice(_TYPES))
    body = f"Y[i, j] = {_value(r, r.choice((1, 2, 2, 3)), ('A[i, j]', 'B[j]', 'A[i, N - 1 - j]'))}"
    if r.random() < 0.3:
        lines.append("output Z: i64[M]")
        body += f"\nZ[i] = sum[j](i64(Y[i, j])) + {r.choice(('max', 'min'))}[j](Y[i, j])"
        lines[0] = lines[0].replace("runtime <= ", "")
    return "\n".join([*lines, body])


def _fields(r: random.Random) -> str:
    """Fields of words, which scales and products read."""
    kind, bits = r.choice((("u8", 4), ("u8", 2), ("i32", 4), ("i32", 8), ("i64", 8), ("i16", 4), ("i8", 4)))
    words = {"u8": 8, "i8": 8, "i16": 16, "i32": 32, "i64": 64}[kind] // bits
    n, m = words * r.choice((1, 3, 8, 16)), r.choice((1, 5, 33))
    field = r.choice(
        (
            f"(W[i, j // {words}] // 2 ** ({bits} * (j % {words})) % {2**bits})",
            f"(W[i, j // {words}] >> {bits} * (j % {words}) & {2**bits - 1})",
            f"(W[i, j // {words}] // {2**bits} ** (j % {words}) % {2**bits} - {2 ** (bits - 1)})",
        )
    )
    lines = [f"dim M = {m}, N = {n}", f"input W: {kind}[M, {n // words}]", "input s: f32[M]", "input X: f16[N]"]
    if r.random() < 0.5:
        return "\n".join([*lines, "output Y: f32[M, N]", f"Y[i, j] = {field} * s[i] + X[j]"])
    return "\n".join([*lines, "output Y: f32[M]", f"Y[i] = sum[j](f32({field}) * X[j]) * s[i]"])


def _running(r: random.Random) -> str:
    """Recurrences that only combine integers, in steps of any length and both directions."""
    kind = r.choice(("i32", "i64", "bool", "f32", "f64"))
    ops = ["y[b, {u}] + {x}", "max(y[b, {u}], {x})", "min({x}, y[b, {u}])", "{x} + y[b, {u}]"]
    ops += ["y[b, {u}] * {x}"] * (kind in ("i32", "i64"))
    if kind == "bool":
        ops = ["y[b, {u}] and {x}", "y[b, {u}] or {x}"]
    n, down = r.choice((1, 2, 3, 64, 130, 300)), r.random() < 0.4
    before, there = ("t + 1", "t + 1 < T") if down else ("t - 1", "t >= 1")
    x = r.choice(("X[b, t]", "X[b, t]", "X[b, T - 1 - t]"))
    if kind in ("i32", "i64"):
        x = r.choice((x, f"({x} * 3 + t)", f"({x} if t % 4 != 0 else {1 if r.random() < 0.5 else -1})"))
    first = r.choice((x, "X[b, 0]", "X[0, t]", {"bool": "true", "f32": "-inf", "f64": "inf"}.get(kind, "7")))
    return "\n".join([
        f"dim B = {r.choice((1, 3, 40))}, T = {n}", f"input X: {kind}[B, T]", f"output y: {kind}[B, T]",
        f"recur y[b: B, t: T] = {r.choice(ops).format(u=before, x=x)} if {there} else {first}",
    ])  # fmt: skip


def _copies(r: random.Random) -> str:
    """Elements of 8 bytes, and neighbours of which each is a field of a record."""
    kind, n = r.choice(("i64", "f64", "f32", "f16", "i16", "u8")), r.choice((1, 3, 40, 77, 256))
    x = r.choice(("X[N - 1 - n, c]", "X[n, 3 - c]", "X[n, c]", "X[n // 2, (c + n) % 4]", "X[(n * 7 + 1) % N, c]"))
    lines = [f"dim N = {n}", f"input X: {kind}[N, 4]{r.choice(('', '', ' strided', ' strided(all)'))}"]
    lines += [f"output Y: {kind}[N, 4]", f"output Z: {kind}[N]", f"output A: {kind}[4, N]"]
    z = r.choice(("X[n, 0] - X[n, 2]", "X[n, 1] * X[N - 1 - n, 3]", "max(X[n, 0], X[n, 2])"))
    return "\n".join([*lines, f"Y[n, c] = {x}", f"Z[n] = {z}", "A[c, n] = Y[n, c] + X[n, c]"])
