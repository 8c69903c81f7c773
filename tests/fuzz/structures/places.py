"""Positions, counts and values of extrema, elements that positions choose, and what comes after the largest element."""

from __future__ import annotations

import random

_DOMAINS = (
    "", "", "", "keep[j]", "j <= 40 * i", "j % 3 != 1", "j < len[i]", "from[i] <= j < len[i]", "j >= 7 or keep[j]",
    "i != j",
)  # fmt: skip


def program(r: random.Random) -> str:
    """The text of a spec."""
    m, n = r.choice((1, 3, 5, 9, 33)), r.choice((1, 3, 17, 64, 77, 130, 300, 1000))
    dtype, domain, op = r.choice(("f32", "f32", "f16", "bf16", "f8e5m2", "i8", "i32")), r.choice(_DOMAINS), "max"
    late, across = r.random() < 0.15, r.random() < 0.25
    if r.random() < 0.4:
        op = "min"
    x = "X[j, i]" if across else "X[i, j]"
    size = f"runtime <= {n}" if late else n
    lines = [f"dim M = {m}, N = {size}", f"input X: {dtype}[{'N, M' if across else 'M, N'}]"]
    lines += [f"input {t}" for t in ("keep: bool[N]", "len: i32[M]", "from: i32[M]") if f"{t.split(':')[0]}[" in domain]
    given = f" | {domain}" if domain else ""
    also = f"{domain} and " if domain and " or " not in domain else f"({domain}) and " if domain else ""
    chosen = x.replace("j", "A[i]")
    far = "99" if op == "min" else "-99"
    forms = {
        "A": ("i32", f"arg{op}[j{given}]({x})"),
        "B": ("i32", f"arg{op}[j | {also}j != A[i]]({x})"),
        "C": ("i32", f"sum[j | {also}{x} == G[i]](1)"),
        "L": ("i32", f"max[j | {also}{x} == G[i]](j)"),
        "V": ("f32", f"{chosen} if A[i] < N else 0"),
        "S": ("f32", f"{'max' if op == 'min' else 'min'}({op}[j | {also}j != A[i]](f32({x})), {far})"),
        "W": ("f32", f"sum[j{given}](exp(-abs(f32({x}) - G[i]))) / 8"),
    }
    outputs = r.sample(sorted(forms), r.randint(1, 3))
    if {"B", "V", "S"} & {*outputs} and "A" not in outputs:
        outputs.append("A")
    body = [f"{name}[i: M] = {forms[name][1]}" for name in outputs]
    if any("G[i]" in line for line in body):
        body.append(f"G[i: M] = {op}[j{given}]({x if dtype == 'i8' or dtype == 'i32' else f'f32({x})'})")
    return "\n".join([*lines, *(f"output {name}: {forms[name][0]}[M]" for name in outputs), *body])


def distances(r: random.Random) -> str:
    """Short sums for each pair of points, which reductions over the pairs read."""
    m, n, c = r.choice((1, 5, 33, 100)), r.choice((1, 17, 64, 130)), r.choice((1, 2, 3, 4))
    dtype = r.choice(("f32", "f32", "f16", "i8", "i32"))
    near = r.choice(("(P[i, c] - Q[j, c]) ** 2", "abs(P[i, c] - Q[j, c])", "P[i, c] * Q[j, c]"))
    op = r.choice(("sum", "sum", "sum", "max"))
    lines = [f"dim M = {m}, N = {n}, C = {c}", f"input P: {dtype}[M, C]", f"input Q: {dtype}[N, C]"]
    guard = r.choice(("", "", " | j != i", " | j <= i", " | D[i, j] < 2"))
    exact = dtype[0] == "i"
    forms = {
        "A": ("i32", f"argmin[j{guard}](D[i, j])" if exact else "argmin[j](Q[j, 0])"),
        "K": ("f32", f"sum[j{guard}](exp(-abs(f32(D[i, j])))) / 8"),
        "F": ("f32", f"clamp(min[j{guard}](f32(D[i, j])), -99, 99)"),
        "G": ("f32", f"sum[j{guard if 'D' not in guard or exact else ''}](f32(D[i, j])) / 64"),
    }  # fmt: skip
    if not exact and "D[" in guard:
        forms = {"G": forms["G"]}
    names = r.sample(sorted(forms), r.randint(1, min(2, len(forms))))
    body = [f"D[i: M, j: N] = {op}[c: C]({near})", *(f"{n}[i: M] = {forms[n][1]}" for n in names)]
    return "\n".join([*lines, *(f"output {n}: {forms[n][0]}[M]" for n in names), *body])
