"""Attention, weights and plain reductions under masks of one or several ranges."""

from __future__ import annotations

import random

_SIZES = (64, 77, 130, 200, 300)


def condition(r: random.Random, deep: int = 2) -> str:
    """A condition on positions ``i`` and ``j``: neighbourhoods, blocks, strides, tensors, and combinations."""
    w, b = r.choice((1, 3, 8, 16, 33, 64, 100)), r.choice((2, 3, 5, 16, 32, 48, 64))
    if deep and r.random() < 0.45:
        x, y = condition(r, deep - 1), condition(r, deep - 1)
        return r.choice((f"({x} or {y})", f"({x} or {y})", f"({x} and {y})", f"(not {x})"))
    return r.choice((
        "j <= i", "i <= j", f"j < {w}", f"j >= {w}", f"abs(i - j) <= {w}", f"abs(i - j) >= {w}", "i != j",
        f"i // {b} == j // {b}", f"i // {b} >= j // {b}", f"i // {b} != j // {b}", f"j % {b} == 0",
        f"i % {b} == j % {b}", f"i - {w} < j <= i", f"(i - j) % {b} < {(b + 1) // 2}", f"abs(i % {b} - j % {b}) <= 1",
        f"abs(i // {b} - j // {b}) <= 1", f"abs(i // {b} - j // {b}) <= 1 and abs(i % {b} - j % {b}) <= 1",
        f"max(i, j) < {w}", f"min(i, j) < {w}", f"(i * 2 <= j if i < {w} else j <= i)", f"2 * j <= i + {w}",
        f"abs(2 * i - 3 * j) <= {w}", "j < len[h]", "doc[i] == doc[j]", "mask[i, j]",
    ))  # fmt: skip


def program(r: random.Random) -> str:
    """The text of a spec."""
    mask, dtype = condition(r), r.choice(("f16", "f16", "bf16"))
    square, late = "doc[" in mask, r.random() < 0.15
    m, n = (f"runtime <= {r.choice(_SIZES)}" if late else r.choice(_SIZES) for _ in range(2))
    lines = [f"dim H = 2, M = {m}, D = {r.choice((16, 40, 64, 128))}"] + [f"dim N = {n}"] * (not square)
    tables = {"len[": "len: i32[H]", "mask[": "mask: bool[M, N]", "doc[": "doc: i32[M]"}
    lines += [f"input {t}" for read, t in tables.items() if read in mask]
    kind = r.choice(("softmax", "softmax", "sink", "filled", "linear", "plain"))
    body = _plain(r, mask) if kind == "plain" else ["S[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(D)"]
    if kind == "plain":
        lines = [lines[0].rpartition(",")[0], *lines[1:], f"input X: {dtype}[H, M, N]", "output O: f32[H, M]"]
    else:
        lines += [f"input {t}: {dtype}[H, {rows}, D]" for t, rows in zip("QKV", "MNN", strict=True)]
        lines += [f"output O: {r.choice((dtype, 'f32'))}[H, M, D]"] + ["input sink: f32[H]"] * (kind == "sink")
        body += [*_weights(r, kind, mask), "O[h, i, e] = sum[j](P[h, i, j] * V[h, j, e])"]
    text = "\n".join([*lines, *body])
    return text.replace(", N", ", M") if square else text


def _plain(r: random.Random, mask: str) -> list[str]:
    """A reduction of a tensor's elements."""
    x, j = "X[h, i, j]", f"[j | {mask}]"
    return [f"O[h, i] = {r.choice((f'sum{j}({x}) / 8', f'max(max{j}({x}), -9)', f'sum{j}(exp({x} - 2)) / 8'))}"]


def _weights(r: random.Random, kind: str, mask: str) -> list[str]:
    """Definitions of the weights P of scores S."""
    match kind:
        case "softmax":
            return [f"P[h, i, j] = softmax[j | {mask}](S[h, i, j])"]
        case "sink":
            return [
                f"T[h, i] = max(max[j | {mask}](S[h, i, j]), sink[h])",
                f"Z[h, i] = sum[j | {mask}](exp(S[h, i, j] - T[h, i])) + exp(sink[h] - T[h, i])",
                f"P[h, i, j] = exp(S[h, i, j] - T[h, i]) / Z[h, i] if {mask} else 0",
            ]
        case "filled":
            return [f"P[h, i, j] = softmax[j](S[h, i, j] if {mask} else {r.choice(('-1e4', '-1e9', '-1e30'))})"]
    return [f"P[h, i, j] = S[h, i, j] / 16 if {mask} else 0"]


def documents(r: random.Random) -> str:
    """Attention and products under conditions on memory along the rows or the columns, whose blocks may be empty."""
    m, d, dtype = r.choice((16, 40, 64, 100, 130)), r.choice((16, 32, 64)), r.choice(("f16", "bf16", "f32"))
    near = r.choice((
        "doc[i] == doc[j]", "doc[i] == doc[j] and j <= i", "doc[j] == 3", "doc[i] <= doc[j] and i <= j",
        "keep[j] and j <= i", "near[i] <= j and j <= i", "doc[i] != doc[j]", "near[i] <= j and j < near[i] + 20",
        "(doc[i] == doc[j] or j < 4)", "keep[i] and keep[j]", "doc[i // 2] == doc[j // 3]",
    ))  # fmt: skip
    given = {"doc[": "doc: i32[M]", "keep[": "keep: bool[M]", "near[": "near: i32[M]"}
    lines = [f"dim H = {r.choice((1, 2))}, M = {m}, D = {d}"] + [f"input {x}: {dtype}[H, M, D]" for x in "QKV"]
    lines += [f"input {t}" for read, t in given.items() if read in near]
    if "doc[" in near and r.random() < 0.6:
        lines.append("assume doc[i] <= doc[i + 1]")
    lines.append(f"output O: {r.choice((dtype, 'f32'))}[H, M, D]")
    body = ["S[h, i: M, j: M] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(D)"]
    body.append(r.choice((
        f"P[h, i, j] = softmax[j | {near}](S[h, i, j])", f"P[h, i, j] = tanh(S[h, i, j]) if {near} else 0",
    )))  # fmt: skip
    if r.random() < 0.3:
        lines.append("output L: f32[H, M]")
        body.append(f"L[h, i] = clamp(logsumexp[j | {near}](S[h, i, j]), -99, 99)")
    return "\n".join([*lines, *body, "O[h, i, e: D] = sum[j](P[h, i, j] * V[h, j, e])"])
