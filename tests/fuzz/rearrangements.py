"""Random valid specs of sums whose elements are gathered, shifted, shared or stored elsewhere.

Factors may stand twice or be rounded, conditions may leave out terms, and results may have further readers.  A seed
always gives the same spec.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

_TYPES = ("f16", "f16", "bf16", "f32", "f8e4m3")


def program(seed: int) -> str:
    """The text of a spec."""
    r = random.Random(seed)
    return r.choice(_FAMILIES)(r) + "\n"


def _type(r: random.Random) -> str:
    return r.choice(_TYPES)


def _factor(r: random.Random, e: str, conditions: Sequence[str], share: float = 0.25) -> str:
    """``e``, or what a spec may make of it."""
    if r.random() >= share:
        return e
    made = (f"f16({e})", f"bf16({e})", f"square({e})", f"{e} * {e}", f"-({e})", f"tanh({e})")
    return r.choice((*made, f"({e} if {r.choice(conditions)} else 0)"))


def _where(r: random.Random, conditions: Sequence[str]) -> str:
    return f" | {r.choice(conditions)}" if r.random() < 0.3 else ""


def _gathers(r: random.Random) -> str:
    """Products with a factor that is gathered among a few neighbours."""
    terms, near = r.choice((1, 2, 2, 3)), r.choice((2, 4, 4, 8))
    conditions = ("m % 2 == 0", "n > 0", "g > 0", "z == 0", "g + m < 9", "W[n, g] > 0")
    kind, at = r.choice((("i32", "{}"), ("i32", "i8({})"), ("i8", "{}"), ("u8", "{}"), ("i64", "i32({})")))
    at = at.format("I[n, g, z]")
    at = r.choice((at, at, f"({at} + 1) % {near}", f"min({at}, {near - 1})"))
    x, v = _factor(r, f"X[m, {near} * g + {at}]", conditions), _factor(r, "V[n, g, z]", conditions)
    other = r.choice(("", "", " * W[n, g]", " * V[n, g, 0]"))
    return "\n".join((
        f"dim M = {r.choice((8, 9, 16, 40))}, N = {r.choice((1, 5, 16, 24))}, G = {r.choice((1, 2, 4, 7))}",
        f"input X: {_type(r)}[M, {near} * G], V: {_type(r)}[N, G, {terms}], W: f32[N, G], I: {kind}[N, G, {terms}]",
        f"assume {r.choice((0, 0, 1))} <= I[n, g, z] < {near}",
        "output Y: f32[M, N]",
        f"Y[m, n] = sum[g: G, z: {terms}{_where(r, conditions)}]({x} * {v}{other})",
    ))  # fmt: skip


def _shifts(r: random.Random) -> str:
    """Sums of sums, of which neighbours share the inner ones."""
    step, taps, inner = r.choice((1, 1, 2, 3, -1, -2)), r.choice((2, 3, 4)), r.choice((1, 2, 3, 5))
    rows, columns = r.choice((2, 3, 8, 17)), r.choice((1, 3, 16))
    first = max(0, -step * (rows - 1))
    conditions = ("x % 2 == 0", "r > 0", "y > 0", f"{step} * y + r > 1")
    x = _factor(r, f"X[{step} * y + r + {first}, x + s]", conditions)
    further = r.choice(("", "output Z: f32[A, B]\nZ[y, x] = P[y, R - 1, x] if y > 0 else 0"))
    return "\n".join((
        f"dim A = {rows}, B = {columns}, R = {taps}",
        f"input X: {_type(r)}[{abs(step) * (rows - 1) + taps}, {columns + inner - 1}]",
        f"input h: {_type(r)}[{inner}], w: f32[R]",
        "output Y: f32[A, B]",
        f"P[y: A, r: R, x: B] = sum[s: {inner}{_where(r, conditions)}](h[s] * {x})",
        f"Y[y, x] = sum[r: R{_where(r, ('r > 0', 'y > 0'))}](w[r] * P[y, r, x])",
        further,
    ))  # fmt: skip


def _products(r: random.Random) -> str:
    """A product that its readers move: rows behind others, heads beside each other, halves that are combined."""
    heads, depth = r.choice((1, 2, 4)), r.choice((8, 16))
    conditions = ("p > 3", "p % 2 == 0", "t > 0")
    x, w = _factor(r, "X[t, p]", conditions), _factor(r, "w[p, c]", ("p > 3", "c > 0"))
    t, d = r.choice(("t", "T - 1 - t", "(t + 1) % T")), r.choice(("d", "d", "(d + 8) % D"))
    by = r.choice((1, 2, -1))
    read, inside = f"E[t - {by}, c]".replace("- -", "+ "), f"0 <= t - {by} < T".replace("- -", "+ ")
    reader = r.choice((
        f"output Y: f16[H, T, D]\nY[h, t, d] = {_factor(r, f'E[{t}, D * h + {d}]', ('t > 0',))}",
        f"output Y: f32[T + 1, H * D]\nY[t, c] = {_factor(r, read, ('c > 0',))} if {inside} else first[c]",
        f"output Y: f32[T + 1, H * D]\nY[t, c] = first[c] if t == 0 else {read if by == 1 else 'E[t - 1, c]'}",
        "output Y: f32[T, H * D // 2]\nY[t, f: H * D // 2] = gelu(E[t, f]) * E[t, f + H * D // 2]",
    ))  # fmt: skip
    return "\n".join((
        f"dim T = {r.choice((1, 4, 8, 33))}, H = {heads}, D = {depth}, K = {r.choice((16, 32))}",
        f"input X: {_type(r)}[T, K], w: {_type(r)}[K, H * D], first: f32[H * D]",
        f"E[t: T, c: H * D] = sum[p: K{_where(r, conditions)}]({x} * {w})",
        reader,
        "output Z: f32" + r.choice(("\nZ = first[0]", "\nZ = first[0]", "\nZ = E[0, 0] + first[0]")),
    ))  # fmt: skip


def _segments(r: random.Random) -> str:
    """Scores of which each row reads those of a segment."""
    inside = "ptr[n] <= e < ptr[n + 1]"
    q, k = _factor(r, "Q[n, d]", ("n > 0",)), _factor(r, "K[col[e], d]", ("d > 0",))
    weights = r.choice((f"P[n: N, e: E] = softmax[e | {inside}](S[n, e])", "P[n: N, e: E] = tanh(S[n, e])"))
    return "\n".join((
        f"dim N = {r.choice((4, 8, 16))}, E = {r.choice((16, 40))}, D = {r.choice((8, 16))}",
        f"input ptr: i32[N + 1], col: i32[E], Q: {_type(r)}[N, D], K: {_type(r)}[N, D], V: {_type(r)}[N, D]",
        "assume 0 <= ptr[n] <= E\nassume ptr[n] <= ptr[n + 1]\nassume 0 <= col[e] < N",
        "output O: f32[N, D]",
        f"S[n: N, e: E] = sum[d: D]({q} * {k})",
        weights,
        f"O[n: N, c: D] = sum[e: E | {inside}](P[n, e] * V[col[e], c])",
    ))  # fmt: skip


def _groups(r: random.Random) -> str:
    """Sums of scaled sums, and sums whose terms have the scale of their group, which may be rounded as a whole."""
    kind = r.choice(("i8", "f16", "f8e4m3", "f8e4m3", "bf16"))
    product = "A[i, g, k] * B[j, g, k]"
    whole = f"i8({product})" if kind == "i8" else f"f16({product} * s[i, g])"
    scale = r.choice(("s[i, g]", "s[i, g]", "sigmoid(s[i, g])", "s[i, g] * s[i, g]", "(s[i, g] if g > 0 else 0)"))
    term = r.choice((product, product, whole))
    value = r.choice((
        f"sum[g: G](f32(sum[k: K{_where(r, ('k > 3',))}]({term})) * {scale})",
        f"sum[g: G, k: K](f32({term}) * {scale})",
        f"sum[g: G, k: K](f32({whole}))",
    ))  # fmt: skip
    return "\n".join((
        f"dim M = {r.choice((4, 16))}, N = {r.choice((8, 16))}, G = {r.choice((1, 2, 4))}, K = {r.choice((16, 128))}",
        f"input A: {kind}[M, G, K], B: {kind}[N, G, K], s: f32[M, G]",
        f"output Y: f32[M, N]\nY[i, j] = {value}",
    ))  # fmt: skip


def _decays(r: random.Random) -> str:
    """Matrix states whose rows or columns decay by different factors, and readers with further terms."""
    kind, (before, later) = r.choice(("f32", "bf16", "bf16")), r.choice((("t - 1", "t > 0"), ("t + 1", "t < T - 1")))
    decay = r.choice((
        "sigmoid(c[t, e])", "exp(-abs(c[t, e]))", "sigmoid(b[t, d]) * sigmoid(c[t, e])", "tanh(a[t])",
        "exp(-abs(b[t, d]) - abs(c[t, e]))", "sigmoid(a[t])", "sigmoid(b[t, d])",
    ))  # fmt: skip
    added = f"{_factor(r, 'k[t, d]', ('d > 0',))} * {_factor(r, 'v[t, e]', ('e > 0',))}"
    q = _factor(r, "q[t, d]", ("d > 0",), 0.5)
    state = r.choice(("S[t, d, e]", "S[t, d, e]", f"(S[{before}, d, e] if {later} else 0)"))
    further = r.choice(("", "", f" + {q} * k[t, d]", " + q[t, d] * b[t, d]", " + b[t, d]"))
    return "\n".join((
        f"dim T = {r.choice((3, 8, 9))}, D = {r.choice((4, 16))}, E = {r.choice((4, 16))}",
        f"input q: {kind}[T, D], k: {kind}[T, D], v: {kind}[T, E], a: f32[T], b: f32[T, D], c: f32[T, E]",
        f"output y: {r.choice(('f32', 'bf16'))}[T, E]",
        f"recur {{\n  S[t: T, d: D, e: E] = {decay} * (S[{before}, d, e] if {later} else 0) + {added}",
        f"  y[t, e] = sum[d: D]({q} * {state}{further})\n}}",
    ))  # fmt: skip


_FAMILIES: tuple[Callable[[random.Random], str], ...] = (
    _gathers, _gathers, _shifts, _products, _products, _segments, _groups, _decays,
)  # fmt: skip
