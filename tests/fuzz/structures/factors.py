"""Products of computed factors: elementwise, normalised, scaled in groups, gathered, of tensors, under conditions."""

from __future__ import annotations

import random

_GUARDS = ("k <= i", "k <= j", "abs(i - k) <= 20", "k % 3 != 1", "k < 20 or k >= 40")
_LEFT = ("k <= i", "k % 2 == 0", "k >= 9")
_TYPES = ("f16", "bf16", "f32", "f8e4m3", "tf32", "i8")
_AFTER = ("rsqrt(mean[k](square(f32(A[i, k]))) + 1)", "sigmoid(f32(i) / 64)")
_SECOND = ("sum[j](abs(Y[i, j])) / 64", "max[k](abs(f32(A[i, k])))", "logsumexp[j](Y[i, j])")


def program(r: random.Random) -> str:
    """The text of a spec."""
    m, n, k = r.choice((1, 33, 64, 130, 200)), r.choice((8, 64, 72, 130, 256)), r.choice((16, 64, 72, 128, 200))
    left = r.choice(_TYPES)
    right = r.choice((left, left, left, "f16", "f8e4m3", "i8", "f32", "i4", "u4", "f4e2m1"))
    turned = r.random() < 0.5
    a = "f32(A[i, k])" if left == "i8" else "A[i, k]"
    w = "W[j, k]" if turned else "W[k, j]"
    needs, body, guard, a, w = _computed(r, a, f"f32({w})" if right in ("i8", "i4", "u4") else w)
    late = "runtime <= " * (r.random() < 0.2 and "token" not in a)
    value = f"sum[k{guard}]({a} * {w}) / 8" + (f" * {r.choice(_AFTER)}" if r.random() < 0.3 else "")
    lines = [f"dim M = {late}{m}, N = {n}, K = {k}", f"input A: {left}[M, K]"]
    lines += [f"input W: {right}[{'N, K' if turned else 'K, N'}]", *needs]
    lines += [f"output Y: {r.choice(('f32', 'f16', 'bf16'))}[M, N]"]
    body.append(f"Y[i, j] = {value}")
    if r.random() < 0.25:
        lines.append("output Z: f32[M]")
        body.append(f"Z[i] = {r.choice(_SECOND)}")
    return "\n".join([*lines, *body])


def _computed(r: random.Random, a: str, w: str) -> tuple[list[str], list[str], str, str, str]:
    """Inputs, definitions and a condition that the factors need, and the factors."""
    match r.randrange(12):
        case 0:
            return [], [], "", f"tanh({a})", w
        case 1:
            return ["input g: f32[K]"], [], "", r.choice((f"rms_norm[k]({a}, 1e-3) * g[k]", f"({a} * g[k])")), w
        case 2:
            return ["input s: f32[N]"], [], "", a, f"({w} * s[j])"
        case 3:
            return ["input s: f32[N, 1 + (K - 1) // 16]"], [], "", a, f"({w} * s[j, k // 16])"
        case 4:
            return ["input B: f16[M, K]"], [], "", f"({a} * B[i, k])", w
        case 5:
            return ["input token: i32[M]"], [], "", a.replace("A[i", "A[token[i]"), w
        case 6:
            return [], [], f" | {r.choice(_GUARDS)}", a, w
        case 7:
            return [], [], "", f"({a} if {r.choice(_LEFT)} else 0)", f"relu({w})"
        case 8:
            return [], [f"T[i: M, k] = relu({a}) ** 2"], "", "T[i, k]", w
        case 9:
            return [], [f"T: f16[i: M, k] = silu({a})"], "", "T[i, k]", w
        case 10:
            return ["input B: f16[M, K]"], [], "", f"(silu({a}) * B[i, k])", f"({w} * 0.5)"
    return [], [], "", a, w
