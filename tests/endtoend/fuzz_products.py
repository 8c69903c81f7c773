"""Random valid specs with matrix products, at sizes close to those of tiles. A seed always gives the same spec.

There are two families: a GEMM with an epilogue and further elementwise work, and back-to-back GEMMs (scores, weights,
a weighted sum).  Layouts, types, masks, groups and further outputs are random.
"""

from __future__ import annotations

import random

_ROWS = (1, 33, 64, 77, 128, 130, 136, 192, 200, 264)
_DEPTHS = (8, 24, 40, 64, 72, 96, 128, 136, 160)
_TYPES = ("f16", "f16", "f16", "bf16", "bf16", "tf32", "f8e4m3", "i8")
_OUTPUTS = {"tf32": ("f32", "f16"), "i8": ("i32",)}


def program(seed: int) -> str:
    """The text of a spec."""
    r = random.Random(seed)
    return _product(r) if r.random() < 0.5 else _chain(r)


def _product(r: random.Random) -> str:
    dtype = r.choice(_TYPES)
    m, n = r.choice(_ROWS), r.choice(_ROWS)
    k = r.choice([8 * x if dtype != "tf32" else 4 * x for x in (1, 9, 16, 17, 20, 33)] + [77])
    batch = r.random() < 0.3
    b, at = ("B, ", "b, ") if batch else ("", "")
    lead, place = r.choice([("M, K", "i, k"), ("K, M", "k, i")]), r.choice([("K, N", "k, j"), ("N, K", "j, k")])
    shared = batch and r.random() < 0.4
    head = [f"dim B = {r.choice((2, 3))}, M = {m}, N = {n}, K = {k}"]
    head += [f"input A: {dtype}[{b}{lead[0]}]", f"input W: {dtype}[{'' if shared else b}{place[0]}]"]
    dot = f"sum[k](A[{at}{lead[1]}] * W[{'' if shared else at}{place[1]}])"
    out = r.choice(_OUTPUTS.get(dtype, ("f16", "bf16", "f32")))
    if dtype == "i8":
        return "\n".join([*head, f"output Y: i32[{b}M, N]", f"Y[{at}i, j] = {dot}"])
    body, needs = _elementwise(r, f"{dot} / 8", b, at)
    turned = r.random() < 0.15
    shape, index = (f"{b}N, M", f"{at}j, i") if turned else (f"{b}M, N", f"{at}i, j")
    lines = [*head, *needs, f"output Y: {out}[{shape}]"]
    rest = [f"Y[{index}] = {body}"]
    if r.random() < 0.2:
        lines.append(f"output Z: f32[{b}M, N]")
        rest.append(f"Z[{at}i, j] = {dot} * 0.5")
    if r.random() < 0.15:
        lines.append(f"output z: f32[{b}M]")
        rest.append(f"z[{at}i] = max[j](abs({dot}))")
    return "\n".join(lines + rest)


def _elementwise(r: random.Random, body: str, b: str, at: str) -> tuple[str, list[str]]:
    """``body`` with up to three further operations, and the inputs that these need."""
    needs: dict[str, str] = {}
    for _ in range(r.randint(0, 3)):
        match r.randrange(9):
            case 0:
                needs["c"], body = f"input c: {r.choice(('f16', 'f32'))}[N]", f"({body} + c[j])"
            case 1:
                needs["r"], body = "input r: f32[M]", f"({body} * r[i])"
            case 2:
                needs["R"], body = f"input R: f16[{b}M, N]", f"({body} + R[{at}i, j])"
            case 3:
                body = f"{r.choice(('relu', 'gelu', 'silu', 'tanh'))}({body})"
            case 4:
                body = f"({body} if {r.choice(('j <= i', 'i + j < N', '2 * i < M'))} else 0)"
            case 5:
                needs["m"], body = "input m: bool[M, N]", f"({body} if m[i, j] else -1)"
            case 6:
                needs["s"], body = "scalar s: f32 = 0.5", f"({body} * s)"
            case 7:
                needs["G"], body = f"input G: bf16[{b}M, N]", f"({body} * sigmoid(G[{at}i, j]))"
            case 8:
                body = f"clamp({body}, -1, 1)"
    return body, list(needs.values())


_MASKS = (
    "",
    "",
    " | j <= i",
    " | j - i <= N - M",
    " | -20 < j - i <= 20",
    " | j < len[{h}]",
    " | mask[i, j]",
    " | j >= i",
)


def _chain(r: random.Random) -> str:
    dtype, d = r.choice(("f16", "f16", "bf16")), r.choice(_DEPTHS)
    e = d if r.random() < 0.7 else r.choice(_DEPTHS)
    m, n = r.choice(_ROWS), r.choice((*_ROWS, 260, 330))
    group = r.choice((1, 1, 2))
    key = "h" if group == 1 else f"h // {group}"
    layouts = {"Q": "H, M, D" if r.random() < 0.7 else "M, H, D"}
    layouts["K"] = r.choice(("G, N, D", "G, N, D", "N, G, D", "G, D, N"))
    layouts["V"] = r.choice(("G, N, E", "G, N, E", "N, G, E", "G, E, N"))
    layouts["O"] = r.choice(("H, M, E", "M, H, E"))
    names = {"H": "h", "M": "i", "D": "d", "G": key, "N": "j", "E": "e"}
    at = {t: ", ".join(names[x] for x in s.split(", ")) for t, s in layouts.items()}
    other = {t: s.replace("d", "e") for t, s in at.items()}
    sizes = {"H": 2, "G": 2 // group, "M": m, "N": n, "D": d, "E": e}
    if group == 1:
        layouts = {t: s.replace("G", "H") for t, s in layouts.items()}
    if d == e:
        layouts = {t: s.replace("E", "D") for t, s in layouts.items()}
    used = {x for s in layouts.values() for x in s.split(", ")}
    lines = ["dim " + ", ".join(f"{x} = {size}" for x, size in sizes.items() if x in used)]
    lines += [f"input {t}: {dtype}[{layouts[t]}]" for t in "QKV"]
    score = f"sum[d](Q[{at['Q']}] * K[{at['K']}]) / sqrt(D)"
    if r.random() < 0.25:
        lines.append("input bias: f16[H, M, N]")
        score = f"({score} + bias[h, i, j])"
    if r.random() < 0.15:
        score = f"softcap({score}, 5)"
    mask = r.choice(_MASKS).format(h="h")
    lines += ["input len: i32[H]"] * ("len" in mask) + ["input mask: bool[M, N]"] * ("mask[" in mask)
    weights = r.choice(("softmax", "softmax", "softmax", "relu", "sigmoid", "plain"))
    lines.append(f"output O: {r.choice((dtype, 'f32'))}[{layouts['O']}]")
    rest = [f"S[h, i, j] = {score}"]
    if weights == "softmax":
        rest.append(f"P[h, i, j] = softmax[j{mask}](S[h, i, j])")
    else:
        value = {"relu": "relu(S[h, i, j]) ** 2", "sigmoid": "sigmoid(S[h, i, j])", "plain": "S[h, i, j]"}[weights]
        rest.append(f"P[h, i, j] = {value} / N" + (f" if {mask.removeprefix(' | ')} else 0" if mask else ""))
    end = " + 0.5 * Q[" + other["Q"] + "]" if d == e and r.random() < 0.15 else ""
    rest.append(f"O[{at['O']}] = sum[j](P[h, i, j] * V[{at['V']}]){end}")
    if weights == "softmax" and r.random() < 0.2:
        lines.append("output L: f32[H, M]")
        rest.append(f"L[h, i] = logsumexp[j{mask}](S[h, i, j])")
    return "\n".join(lines + rest)
