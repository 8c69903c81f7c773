"""What elements of integer tensors decide: scatters by keys, and ranges whose ends they are."""

from __future__ import annotations

import random


def program(r: random.Random) -> str:
    """The text of a spec."""
    return r.choice((_scatter, _scatter, _segments, _ends, _product))(r)


def _scatter(r: random.Random) -> str:
    """Terms that are combined into the elements that keys choose, or are counted there."""
    t, e, d = r.choice((1, 7, 64, 130, 300, 700)), r.choice((1, 5, 30, 100)), r.choice((1, 5, 32))
    given = r.choice(("f32", "f32", "f16", "bf16", "i32", "i8"))
    key = r.choice(("K[t]", "K[t]", "K[t] - 1", "K[t] // 2", "K[t] % E"))
    condition = f"{key} == e" + r.choice(("", "", " and keep[t]", " and t > 4", " and K2[t] == d"))
    size = f"runtime <= {t}" if r.random() < 0.25 else t
    lines = [f"dim T = {size}, E = {e}, D = {d}", f"input X: {given}[T, D]"]
    lines.append(f"input K: {r.choice(('i32', 'i32', 'i64', 'i16', 'u8'))}[T]")
    lines += ["input keep: bool[T]"] * ("keep" in condition) + ["input K2: i32[T]"] * ("K2" in condition)
    value = r.choice(("X[t, d]", "X[t, d]", "X[t, d] * 2", "f32(X[t, d]) * f32(t)", "1"))
    op = r.choice(("sum", "sum", "max", "min"))
    result = "i32" if value == "1" or (given[0] == "i" and "f32" not in value) else "f32"
    body = f"{op}[t: T | {condition}]({value})"
    if result == "f32":
        body = f"{body} / 16" if op == "sum" else f"max(min({body}, 99), -99)"
    lines += [f"output Y: {result}[E, D]", f"Y[e: E, d: D] = {body}"]
    if r.random() < 0.3:
        lines += ["output Z: i32[E]", f"Z[e: E] = {r.choice(('sum[t | K[t] == e](1)', 'count[t: T](K[t] == e)'))}"]
    return "\n".join(lines)


def _segments(r: random.Random) -> str:
    """Reductions over the elements between two pointers."""
    n, s, d = r.choice((5, 64, 130, 500)), r.choice((1, 4, 17)), r.choice((1, 8, 40))
    dtype, ends = r.choice(("f32", "f16", "bf16")), "start[s] .. start[s + 1]"
    value = r.choice(("X[j, d]", "X[col[j], d]", "exp(-abs(X[j, d]))", "w[j] * X[j, d]"))
    body = r.choice((f"sum[j: {ends}]({value}) / 8", f"max(max[j: {ends}]({value}), -9)",
                     f"clamp(logsumexp[j: {ends}]({value}), -9, 9)",
                     f"sum[j: {ends}]({value}) / max(1, start[s + 1] - start[s])"))  # fmt: skip
    lines = [
        f"dim N = {n}, S = {s}, D = {d}",
        f"input X: {dtype}[N, D]{r.choice(('', '', ' strided', ' strided(all)'))}",
    ]
    lines += ["input start: i32[S + 1]"] + ["assume start[s] <= start[s + 1]"] * (r.random() < 0.5)
    lines += ["input col: i32[N]"] * ("col" in body) + ["input w: f32[N]"] * ("w[" in body)
    return "\n".join([*lines, "output Y: f32[S, D]", f"Y[s: S, d: D] = {body}"])


def _ends(r: random.Random) -> str:
    """Rows, attention included, whose elements count between ends of their own."""
    m, n = r.choice((1, 5, 33)), r.choice((1, 17, 77, 300))
    ends = r.choice(
        ("0 .. hi[i]", "lo[i] .. N", "lo[i] .. hi[i]", "lo[i] - 3 .. 2 * hi[i]", "hi[i] .. lo[i]", "a .. b")
    )
    body = r.choice((f"sum[j: {ends}](X[i, j]) / 8", f"max(max[j: {ends}](X[i, j]), -9)",
                     f"sum[j: N](softmax[j: {ends}](X[i, j]) * (j + 1)) / N",
                     f"sum[j: {ends}](square(X[i, j] - m[i])) / N", f"argmin[j: {ends}](X[i, j]) / 1e9"))  # fmt: skip
    lines = [f"dim M = {m}, N = {n}", f"input X: {r.choice(('f32', 'f16'))}[M, N]"]
    lines += [f"input {t}: i32[M]" for t in ("lo", "hi") if f"{t}[" in ends]
    lines += ["scalar a: i32 = 2", "scalar b: i32 = 9"] * ("a .." in ends)
    lines += [f"m[i: M] = sum[j: {ends}](X[i, j]) / N"] * ("m[i]" in body)
    return "\n".join([*lines, "output Y: f32[M]", f"Y[i] = {body}"])


def _product(r: random.Random) -> str:
    """A product whose terms, rows or columns end where tensors say."""
    m, n, k = r.choice((1, 30, 70)), r.choice((8, 24, 72)), r.choice((16, 64, 130))
    ends = r.choice(("0 .. e[i]", "e[j] .. K", "e[i] .. f[j]", "0 .. min(e[i], 40)"))
    dtype = r.choice(("f16", "f16", "bf16", "f32"))
    lines = [f"dim M = {m}, N = {n}, K = {k}", f"input A: {dtype}[M, K]", f"input B: {dtype}[K, N]"]
    lines += [f"input e: i32[{'N' if 'e[j]' in ends else 'M'}]"] + ["input f: i32[N]"] * ("f[" in ends)
    return "\n".join([*lines, "output Y: f32[M, N]", f"Y[i, j] = sum[k: {ends}](A[i, k] * B[k, j]) / 8"])


def histograms(r: random.Random) -> str:
    """Sums and counts over images by the value of an element, and sums of edges at their ends."""
    b, t, e = r.choice((1, 2, 5)), r.choice((16, 130, 700)), r.choice((2, 5, 30, 64))
    given = r.choice(("u8", "i32", "i8", "f32"))
    key = {"f32": "i32(floor(X[b, t] * 4 + 2))"}.get(given, "i32(X[b, t])")
    key = r.choice((key, key, f"{key} // 3", f"{key} % E", f"clamp({key}, 0, E - 1)"))
    condition = f"{key} == e" + r.choice(("", "", " and keep[b, t]", " and t % 3 != 1"))
    lines = [f"dim B = {b}, T = {t}, E = {e}", f"input X: {given}[B, T]", "input w: f32[B, T]"]
    lines += ["input keep: bool[B, T]"] * ("keep" in condition)
    over, axes, shape = r.choice((("t: T", "b: B, e: E", "B, E"), ("b: B, t: T", "e: E", "E")))
    op, value = r.choice((("sum", "1"), ("sum", "1"), ("sum", "w[b, t]"), ("max", "w[b, t]"), ("max", "t")))
    body = f"{op}[{over} | {condition}]({value})"
    result = "f32" if "w" in value else "i32"
    if result == "f32":
        body = f"{body} / 8" if op == "sum" else f"clamp({body}, -99, 99)"
    lines += [f"output Y: {result}[{shape}]", f"Y[{axes}] = {body}"]
    if result == "i32" and op == "sum" and r.random() < 0.5:
        index = ", ".join(a.split(":")[0] for a in axes.split(", "))
        lines += [f"output Z: f32[{shape}]", f"Z[{axes}] = Y[{index}] / {t}"]
    return "\n".join(lines)
