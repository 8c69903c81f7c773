"""Results of rows and columns: losses, gates beside what they scale, experts of rows, gradients that heads share."""

from __future__ import annotations

import random


def program(r: random.Random) -> str:
    """The text of a spec."""
    return r.choice((_loss, _loss, _gate, _logits, _logits, _experts, _shared, _totals))(r)


def _loss(r: random.Random) -> str:
    """A reduction over rows, and along them, of what the statistics of a row scale."""
    b, n, dtype = r.choice((1, 3, 17, 130)), r.choice((1, 5, 32, 77, 200)), r.choice(("f32", "f32", "f16", "bf16"))
    late = "runtime <= " * (r.random() < 0.2)
    guard = r.choice(("", "", " | keep[i, j]", " | j < len[i]", " | j != i", " | row[i]"))
    lines = [f"dim M = {late}{b}, N = {n}", f"input X: {dtype}[M, N]"]
    tables = {"keep[": "keep: bool[M, N]", "len[": "len: i32[M]", "row[": "row: bool[M]"}
    lines += [f"input {t}" for read, t in tables.items() if read in guard]
    op, x = r.choice(("sum", "sum", "max", "min")), "f32(X[i, j])"
    body = [f"m[i: M] = max(max[j{guard}]({x}), -90)", f"z[i: M] = sum[j{guard}](exp({x} - m[i]))"]
    value = r.choice((
        f"exp({x} - m[i]) * {x} / (z[i] + 1)", f"({x} - m[i]) ** 2", f"({x} - m[i] if j % 3 != 0 else z[i])",
        f"{x} / (1 + z[i])", f"min(z[i], {x})",
    ))  # fmt: skip
    lines.append("output L: f32")
    body.append(f"L = clamp({op}[i: M, j: N{guard}]({value}), -1e4, 1e4)")
    if r.random() < 0.4:
        lines.append("output C: bool")
        body.append(f"C = {r.choice(('any', 'all'))}[i: M, j: N{guard}]({x} > m[i] - 1)")
    if r.random() < 0.4:
        lines.append("output Z: f32[M]")
        body.append("Z[i: M] = z[i]")
    return "\n".join([*lines, *body])


def _matrix(r: random.Random) -> tuple[list[str], str, str]:
    """Sizes and inputs of a product, and its two factors."""
    m, f, k = r.choice((1, 17, 64, 130)), r.choice((8, 16, 40, 64)), r.choice((16, 40, 64, 96))
    dtype, turned = r.choice(("f16", "f16", "bf16", "f32", "f64")), r.random() < 0.6
    lines = [f"dim M = {m}, F = {f}, K = {k}", f"input X: {dtype}[M, K]"]
    lines.append(f"input W: {dtype}[{'2 * F, K' if turned else 'K, 2 * F'}]")
    return lines, "X[i, k]", "W[f, k]" if turned else "W[k, f]"


def _gate(r: random.Random) -> str:
    """Two columns of one product for each result."""
    lines, x, w = _matrix(r)
    bias = "input z: f32[2 * F]" if r.random() < 0.4 else ""
    rounds = r.choice(("", "", ": f16", ": bf16"))
    body = [f"Y{rounds}[i: M, f: 2 * F] = sum[k]({x} * {w}) / 8" + " + z[f]" * bool(bias)]
    first, second = r.choice((("f", "f + F"), ("f + F", "f"), ("2 * f", "2 * f + 1"), ("F - 1 - f", "f + F")))
    gate = r.choice(("gelu", "silu", "tanh", "relu")) + f"(Y[i, {first}])"
    if r.random() < 0.25:
        gate = f"({gate} if f % 3 == 1 else 0)"
    lines += [bias] * bool(bias) + [f"output H: {r.choice(('f32', 'f16', 'bf16'))}[M, F]"]
    body.append(f"H[i: M, f: F] = {gate} * Y[i, {second}]")
    if r.random() < 0.3:
        lines.append("output R: f32[M]")
        body.append("R[i: M] = sum[f: F](H[i, f])")
    return "\n".join([*lines, *body])


def _logits(r: random.Random) -> str:
    """Reductions over the columns of a product that is not stored, and single elements of it."""
    lines, x, w = _matrix(r)
    guard = r.choice(("", "", "", " | f != y[i]", " | f < len[i]", " | f % 2 == 0"))
    lines += [f"input {t}" for t in ("y: i32[M]", "len: i32[M]") if t.split(":")[0] + "[" in guard]
    body = [f"Y[i: M, f: 2 * F] = sum[k]({x} * {w}) / 8"]
    forms = {
        "E": ("f32", f"clamp(logsumexp[f: 2 * F{guard}](Y[i, f]), -99, 99)"),
        "S": ("f32", f"sum[f: 2 * F{guard}](Y[i, f]) / 8"),
        "G": ("f32", f"clamp(max[f: 2 * F{guard}](Y[i, f]), -99, 99)"),
        "Q": ("f32", f"sum[f: 2 * F{guard}](Y[i, f] ** 2) / 8"),
        "P": ("f32", "Y[i, t[i]]"),
        "D": ("f32", "Y[i, i % F]"),
        "V": ("f32", f"sum[f: 2 * F{guard}](softmax[f: 2 * F{guard}](Y[i, f]) * f) / F"),
    }
    names = r.sample(sorted(forms), r.randint(1, 3))
    lines += ["input t: i32[M]"] * ("P" in names) + [f"output {n}: {forms[n][0]}[M]" for n in names]
    body += [f"{n}[i: M] = {forms[n][1]}" for n in names]
    if r.random() < 0.3:
        lines.append("output T: f32")
        body.append("T = mean[i: M](logsumexp[f: 2 * F](Y[i, f]))")
    return "\n".join([*lines, *body])


def _experts(r: random.Random) -> str:
    """Rows whose matrices an index names."""
    t, e, top = r.choice((1, 5, 33, 64)), r.choice((1, 2, 5, 8)), r.choice((1, 2))
    n, k, dtype = r.choice((8, 24, 64)), r.choice((16, 40, 64)), r.choice(("f16", "f16", "bf16", "f8e4m3"))
    lines = [f"dim T = {t}, E = {e}, R = {top}, N = {n}, K = {k}"]
    lines += [f"input X: {dtype}[T, K]", f"input W: {dtype}[E, {'N, K' if (turned := r.random() < 0.5) else 'K, N'}]"]
    index = r.choice(("expert[t, r]", "expert[t, r]", "(expert[t, r] + t) % E", "E - 1 - expert[t, r]"))
    lines += ["input expert: i32[T, R]", "input g: f32[T, R]"]
    w = f"W[{index}, {'n, k' if turned else 'k, n'}]"
    after = r.choice(("", "", "relu", "f16", "bf16"))
    body = [f"Y[t: T, r: R, n: N] = {after}(sum[k]({r.choice(('X[t, k]', 'X[t, k]', 'relu(X[t, k])'))} * {w}) / 8)"]
    if r.random() < 0.5:
        lines.append("output O: f32[T, N]")
        body.append("O[t: T, n: N] = sum[r: R](g[t, r] * Y[t, r, n])")
    else:
        lines.append("output O: f32[T, R, N]")
        body.append("O[t: T, r: R, n: N] = Y[t, r, n] * g[t, r]")
    return "\n".join([*lines, *body])


def _shared(r: random.Random) -> str:
    """Gradients of keys and values that the heads of a group share."""
    g, h, m, d = r.choice((1, 2)), r.choice((1, 2, 3, 4)), r.choice((5, 16, 33, 64)), r.choice((16, 24, 64))
    dtype = r.choice(("f16", "bf16"))
    guard = r.choice(("j <= i", "j <= i", "j < i", "i - 9 < j <= i", "j % 3 != i % 3"))
    lines = [f"dim G = {g}, R = {h}, M = {m}, D = {d}"]
    lines += [f"input {t}: {dtype}[G, R, M, D]" for t in ("Q", "dO")] + [f"input {t}: {dtype}[G, M, D]" for t in "KV"]
    lines.append("input L: f32[G, R, M]")
    body = ["S[g, r, i, j] = sum[d](Q[g, r, i, d] * K[g, j, d]) / D"]
    body.append(f"P[g, r, i, j] = exp(S[g, r, i, j] - abs(L[g, r, i])) if {guard} else 0")
    body.append("dP[g, r, i, j] = sum[d](dO[g, r, i, d] * V[g, j, d]) / D")
    made = {
        "A": ("G, M, D", f"A[g, j, d: D] = sum[r: R, i: M | {guard}](P[g, r, i, j] * dO[g, r, i, d]) / 16"),
        "B": ("G, M, D", f"B[g, j, d: D] = sum[r: R, i: M | {guard}]("
              "P[g, r, i, j] * (dP[g, r, i, j] - L[g, r, i]) * Q[g, r, i, d]) / 16"),
        "C": ("G, R, M, D", f"C[g, r, i: M, d: D] = sum[j: M | {guard}]("
              "P[g, r, i, j] * dP[g, r, i, j] * K[g, j, d]) / 16"),
        "T": ("R", f"T[r: R] = sum[g: G, i: M, j: M | {guard}](P[g, r, i, j] * dP[g, r, i, j] * (j - i)) / 64"),
    }  # fmt: skip
    names = r.sample(sorted(made), r.randint(1, 3))
    lines += [f"output {n}: {r.choice(('f32', 'f16'))}[{made[n][0]}]" for n in names]
    return "\n".join([*lines, *body, *(made[n][1] for n in names)])


def _totals(r: random.Random) -> str:
    """One reduction over all axes of a chain, of which another product reduces one."""
    m, n, d, dtype = r.choice((5, 33, 64)), r.choice((7, 32, 64, 100)), r.choice((16, 40)), r.choice(("f16", "bf16"))
    guard = r.choice(("", " | j <= i", " | keep[j]"))
    lines = [f"dim M = {m}, N = {n}, D = {d}"] + ["input keep: bool[N]"] * ("keep" in guard)
    lines += [f"input Q: {dtype}[M, D]", f"input K: {dtype}[N, D]", f"input V: {dtype}[N, D]"]
    lines += ["output O: f32[M, D]", "output T: f32", "output B: f32[N]"]
    body = ["S[i: M, j: N] = sum[d](Q[i, d] * K[j, d]) / D"]
    body.append(f"O[i, d: D] = sum[j: N{guard}](tanh(S[i, j]) * V[j, d]) / 8")
    body.append(f"T = {r.choice(('sum', 'max'))}[i: M, j: N{guard}](tanh(S[i, j]) * (1 + abs(j - i)))")
    body.append(f"B[j: N] = sum[i: M{guard}](tanh(S[i, j]))")
    return "\n".join([*lines, *body])
