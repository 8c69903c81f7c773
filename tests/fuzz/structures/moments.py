"""Moments about means: variances, covariances, normalisations and what is made of them, over one axis or two."""

from __future__ import annotations

import random


def program(r: random.Random) -> str:
    """The text of a spec."""
    m, n, h = r.choice((1, 3, 8)), r.choice((1, 17, 77, 300, 1000)), r.choice((1, 4, 9))
    dtype = r.choice(("f32", "f32", "f16", "bf16"))
    over, sizes, at = r.choice((
        ("j: N", "M, N", "i, j"), ("j: N", "N, M", "j, i"), ("j: N, k: H", "M, N, H", "i, j, k"),
    ))  # fmt: skip
    guard = r.choice(("", "", "", " | keep[j]", " | j % 2 == 0", " | j < len[i]"))
    count = "N * H" if "k" in over else "N"
    moment = f"sum[{over}{guard}]((X[{at}] - mu[i]) ** {r.choice((2, 2, 3))}) / ({count})"
    joint = f"sum[{over}{guard}]((X[{at}] - mu[i]) * (Y[{at}] - nu[i])) / ({count})"
    body = r.choice((moment, moment, joint, f"{joint} / sqrt({moment} + 1)" if "** 2" in moment else joint,
                     f"clamp(max[{over}{guard}](abs(X[{at}] - mu[i])), 0, 99)"))  # fmt: skip
    lines = [f"dim M = {m}, N = {n}, H = {h}", f"input X: {dtype}[{sizes}]"]
    lines += [f"input Y: {dtype}[{sizes}]"] * ("Y[" in body) + ["input keep: bool[N]"] * ("keep" in guard)
    lines += ["input len: i32[M]"] * ("len" in guard) + ["output V: f32[M]"]
    made = [f"mu[i: M] = sum[{over}{guard}](X[{at}]) / ({count})", f"V[i: M] = {body}"]
    if "nu[i]" in body:
        made.append(f"nu[i: M] = sum[{over}{guard}](Y[{at}]) / ({count})")
    if r.random() < 0.3:
        lines.append(f"output Z: {r.choice(('f32', 'f16'))}[{sizes}]")
        places = at.replace("i", "i: M").replace("j", "j: N").replace("k", "k: H")
        made.append(f"Z[{places}] = (X[{at}] - mu[i]) / (1 + abs(V[i]))")
    return "\n".join([*lines, *made])


def counts(r: random.Random) -> str:
    """Means over windows, which end at the borders of an image, and quotients that decide about integers."""
    h, w, c = r.choice((1, 5, 12, 33)), r.choice((3, 7, 16)), r.choice((1, 3, 8))
    taps, step = r.choice((1, 2, 3, 5)), r.choice((1, 1, 2))
    pad, dtype = r.randint(0, taps), r.choice(("f32", "f16", "i8"))
    y, x = f"{step} * y + r - {pad}", f"x + s - {pad}"
    inside = r.choice((f"0 <= {y} < H and 0 <= {x} < W", f"0 <= {y} < H and {x} >= 0", f"{y} >= 0 and {x} < W"))
    read = f"X[{y}, {x}, c]" if "H and 0" in inside else "X[y, x, c]"
    total = f"sum[r: {taps}, s: {taps} | {inside}](f32({read}))"
    count = f"sum[r: {taps}, s: {taps} | {inside}]({r.choice(('1', '1', '0.5', '3'))})"
    value = r.choice((f"{total} / max({count}, 1)", f"{total} + {count}", f"{total} * {count} / 16"))
    if r.random() < 0.4:
        n = r.choice((3, 7, 10, 14, 127, 0.1))
        exact = r.choice(("f32(I[x, c])", "f32(I[x, c])", count))
        value = f"f32({r.choice(('round', 'floor', 'ceil'))}({exact} / {n}))"
    rows = f"(H + {step} - 1) // {step}"
    lines = [f"dim H = {h}, W = {w}, C = {c}", f"input X: {dtype}[H, W, C]", f"output Y: f32[{rows}, W, C]"]
    lines += [f"input I: {r.choice(('i8', 'i32', 'i16'))}[W, C]"] * ("I[" in value)
    return "\n".join([*lines, f"Y[y: {rows}, x: W, c: C] = {value}"])
