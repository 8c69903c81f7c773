"""Recurrences: filters, gates, best paths, states of matrices, counters; upwards and downwards."""

from __future__ import annotations

import random
from dataclasses import dataclass

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


#: factors of the earlier state, with the input that they read
_DECAYS = (
    ("", "1"), ("g: f32[B, T]", "sigmoid(g[b, t])"), ("g: f32[B, T]", "exp(-abs(g[b, t]))"), ("", "0.9"), ("", "-0.5"),
    ("g: f32[B, T, D]", "sigmoid(g[b, t, d])"), ("g: f32[D]", "exp(-exp(g[d]))"),
    ("keep: bool[B, T]", "(1 if keep[b, t] else 0)"),
    ("g: f32[B, T, E]", "sigmoid(g[b, t, e])"), ("g: f32[B, T, E]", "sigmoid(k[b, t, d]) * exp(-abs(g[b, t, e]))"),
    ("g: f32[B]", "tanh(g[b])"), ("g: f32[B, T]", "(0 if t % 7 == 3 else sigmoid(g[b, t]))"),
)  # fmt: skip


@dataclass(frozen=True)
class _MatrixState:
    """What recurrences of a matrix state ``S[b, t, d, e]`` begin with, the type of the inputs, and the step before.

    ``given``: the declaration of the input that ``decay`` reads, if any.  ``before``, ``exists``: the index of the step
    before, and the condition that there is one.
    """

    lines: tuple[str, ...]
    d: int
    dtype: str
    given: str
    decay: str
    before: str
    exists: str


def _matrix_state(r: random.Random, sizes: tuple[int, ...]) -> _MatrixState:
    """Random sizes (of ``d``: one of ``sizes``), types, decay and direction of a recurrence of a matrix state."""
    dtype, (given, decay) = r.choice(("f32", "f16", "bf16", "bf16")), r.choice(_DECAYS)
    t, b = r.choice((1, 3, 8, 17, 40)), r.choice((1, 2, 3))
    d, e = r.choice(sizes), r.choice((1, 5, 16, 24))
    before, exists = ("t + 1", "t + 1 < T") if r.random() < 0.2 else ("t - 1", "t > 0")
    dims = f"dim B = {b}, T = {t}, D = {d}, E = {e}"
    return _MatrixState((dims, *(f"input {x}: {dtype}[B, T, D]" for x in "qk")), d, dtype, given, decay, before, exists)


def states(r: random.Random) -> str:
    """Recurrences whose state is a matrix, of which sums over its rows are read."""
    m = _matrix_state(r, (1, 4, 16, 17))
    dtype, given, decay, before, exists = m.dtype, m.given, m.decay, m.before, m.exists
    lines = [*m.lines]
    lines += [f"input v: {dtype}[B, T, E]"] + [f"input {given}"] * bool(given)
    x = r.choice(("k[b, t, d] * v[b, t, e]", "k[b, t, d] * v[b, t, e] / 4", "f32(k[b, t, d]) * (v[b, t, e] * 0.5)"))
    first = r.choice((x, x, "0", "k[b, 0, d]"))
    q, before_it = r.choice(("q[b, t, d]", "q[b, t, d]", "relu(q[b, t, d])")), r.random() < 0.2
    state = f"S[b, {before}, d, e] if {exists} else 0" if before_it else "S[b, t, d, e]"
    lines.append(f"output y: {r.choice(('f32', 'f32', dtype))}[B, T, E]")
    body = [f"recur S[b: B, t: T, d: D, e: E] = {decay} * S[b, {before}, d, e] + {x} if {exists} else {first}"]
    body.append(f"y[b, t, e] = sum[d: D]({q} * ({state})) / 4")
    if r.random() < 0.25:
        lines.append("output z: f32[B, T, E]")
        body.append("z[b, t, e] = sum[d: D](S[b, t, d, e])")
    if r.random() < 0.15:
        lines.append("output n: f32[B, T]")
        body += [f"recur N[b: B, t: T, d: D] = N[b, {before}, d] + k[b, t, d] if {exists} else k[b, t, d]"]
        body += ["n[b, t] = sum[d: D](q[b, t, d] * N[b, t, d])"]
    return "\n".join([*lines, *body])


def deltas(r: random.Random) -> str:
    """Delta rules: what a step adds is corrected by what the state gives for its key."""
    m = _matrix_state(r, (1, 4, 16, 32))
    dtype, given, decay, before, exists = m.dtype, m.given, m.decay, m.before, m.exists
    lines = [*m.lines]
    lines += [f"input v: {dtype}[B, T, E]", "input f: f32[B, T]"] + [f"input {given}"] * bool(given)
    key = r.choice(("k[b, t, d]", "k[b, t, d]", "tanh(k[b, t, d])", "(k[b, t, d] / 4)"))
    seen = f"sum[d: D]({key} * {r.choice(('', decay + ' * ')) if '[d]' not in decay else ''}S[b, {before}, d, e])"
    weight = r.choice((f"sigmoid(f[b, t]) / {2 * m.d}", f"0.5 / {m.d}"))
    lines.append(f"output y: {r.choice(('f32', 'f32', dtype))}[B, T, E]")
    lines += [f"assume abs({x}) < inf" for x in ("k[b, t, d]", "f[b, t]") if r.random() < 0.7]
    body = [
        f"w[b: B, t: T, e: E] = {weight} * (v[b, t, e] - ({seen} if {exists} else 0))",
        f"S[b: B, t: T, d: D, e: E] = ({decay} * S[b, {before}, d, e] if {exists} else 0) + {key} * w[b, t, e]",
    ]
    q = r.choice(("q[b, t, d]", "q[b, t, d]", "relu(q[b, t, d])"))
    read = f"y[b: B, t: T, e: E] = sum[d: D]({q} * S[b, t, d, e]) / 4"
    inside = r.random() < 0.5
    lines += ["recur {", *(f"  {x}" for x in (*body, *[read] * inside)), "}", *[read] * (not inside)]
    if r.random() < 0.2:
        lines.insert(-1 - len(body) - 3, "output z: f32[B, D, E]")
        lines.append(f"z[b: B, d: D, e: E] = S[b, {'T - 1' if before == 't - 1' else '0'}, d, e]")
    return "\n".join(lines)
