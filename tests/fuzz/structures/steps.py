"""Recurrences: filters, gates, best paths, states of matrices, counters; upwards and downwards."""

from __future__ import annotations

import random

#: rows of sizes and inputs -> a definition over steps t with the earlier step {u}, which exists where {c}
_FORMS = (
    ("x: {d}[B, T]", "y[b: B, t: T]", "0.75 * y[b, {u}] + x[b, t] if {c} else x[b, t]"),
    ("x: {d}[B, T], a: f32[B, T]", "y[b: B, t: T]", "sigmoid(a[b, t]) * y[b, {u}] + x[b, t] if {c} else x[b, t]"),
    ("x: {d}[B, T], keep: bool[B, T]", "y[b: B, t: T]",
     "x[b, t] / 4 + (0.5 * y[b, {u}] if keep[b, t] else 0) if {c} else x[b, t]"),
    ("x: {d}[B, T]", "y[b: B, t: T]", "max(y[b, {u}] - 0.25, x[b, t]) if {c} else x[b, t]"),
    ("x: {d}[B, T, D], W: {d}[D, D]", "y[b: B, t: T, d: D]",
     "tanh(sum[e: D](W[d, e] * y[b, {u}, e]) / 8 + x[b, t, d]) if {c} else tanh(x[b, t, d])"),
    ("x: {d}[B, T, D], p: i32[D]", "y[b: B, t: T, d: D]", "0.5 * y[b, {u}, p[d]] + x[b, t, d] if {c} else x[b, t, d]"),
    ("x: {d}[T, D], W: f32[D, D]", "y[t: T, d: D]",
     "x[t, d] + max[e: D](y[{u}, e] + W[e, d]) / 4 if {c} else x[t, d]"),
    ("x: {d}[T, D], k: {d}[T, D]", "y[t: T, d: D, e: D]",
     "0.5 * y[{u}, d, e] + x[t, d] * k[t, e] / 8 if {c} else x[t, d] * k[t, e] / 8"),
    ("x: {d}[T, D]", "y[t: T, d: D]", "x[t, d] / (1 + sum[e: D](abs(y[{u}, e]))) if {c} else x[t, d]"),
)  # fmt: skip


def program(r: random.Random) -> str:
    """The text of a spec."""
    given, left, value = r.choice(_FORMS)
    gap, down = r.choice((1, 1, 1, 2, 3)), r.random() < 0.25
    before, exists = (f"t + {gap}", f"t + {gap} < T") if down else (f"t - {gap}", f"t >= {gap}")
    size = f"runtime <= {r.choice((5, 12))}" if r.random() < 0.15 else r.choice((1, 2, 5, 9, 20))
    lines = [f"dim T = {size}, B = {r.choice((1, 3, 33))}, D = {r.choice((1, 5, 16, 40))}"]
    lines.append("input " + given.format(d=r.choice(("f32", "f32", "f16", "bf16"))))
    indices = ", ".join(a.split(":")[0] for a in left[2:-1].split(", "))
    shape = ", ".join(a.split(": ")[1] for a in left[2:-1].split(", "))
    definition = value.format(u=before, c=exists)
    if r.random() < 0.25:  # a typed state, which is no output
        lines.append(f"output z: f32[{shape}]")
        state = r.choice((": f16", ": bf16", ""))
        return "\n".join([*lines, f"recur y{state}{left[1:]} = {definition}", f"z[{indices}] = 2 * y[{indices}] + 1"])
    return "\n".join([*lines, f"output y: {r.choice(('f32', 'f32', 'f16'))}[{shape}]", f"recur {left} = {definition}"])
