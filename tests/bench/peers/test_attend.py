"""Recognition of specs that a fused call computes, and the parts of the call."""

from __future__ import annotations

import pytest

from nautilus.bench.contenders import NotApplicable
from nautilus.bench.peers.attend import Operand, mask_function, mask_kind, match, score_function
from nautilus.frontend.semantics.check import load_spec, load_text
from nautilus.frontend.spec import Spec
from tests.shipped import SPECS

HEAD = """dim B = 2, H = 6, M = {m}, N = 32, D = 8
input Q: f16[B, H, M, D]
input K: f16[B, {kv}, N, D]
input V: f16[B, {kv}, N, D]
input slope: f32[H]
input bias: f32[H, M, N]
output O: f16[B, H, M, D]
"""
WHOLE = """S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, {g}, j, d]) / sqrt(D)
P[b, h, i, j] = {p}
O[b, h, i, d] = sum[j](P[b, h, i, j] * V[b, {g}, j, d])
"""


def spec_of(p: str, m: int = 32, kv: str = "H", g: str = "h") -> Spec:
    return load_text(HEAD.format(m=m, kv=kv) + WHOLE.format(p=p, g=g))


@pytest.mark.parametrize(
    ("weights", "m", "kind"),
    [
        ("softmax[j](S[b, h, i, j])", 32, "none"),
        ("softmax[j | j <= i](S[b, h, i, j])", 32, "causal"),
        ("softmax[j | j - i <= N - M](S[b, h, i, j])", 20, "causal"),
        ("softmax[j | j - i <= N - M](S[b, h, i, j])", 1, "none"),
        ("softmax[j | j <= i](S[b, h, i, j])", 20, "other"),  # aligned to the first row
        ("softmax[j | j < i](S[b, h, i, j])", 32, "other"),
        ("softmax[j | j <= i and i - j < 5](S[b, h, i, j])", 32, "other"),
        ("softmax[j | j <= i or h == 3](S[b, h, i, j])", 32, "other"),
    ],
)
def test_masks(weights: str, m: int, kind: str) -> None:
    a = match(spec_of(weights, m))
    assert mask_kind(a) == kind
    assert a.scale == pytest.approx(8**-0.5)
    assert score_function(a, {}) is None


@pytest.mark.parametrize(
    ("x", "scale", "body"),
    [
        ("S[b, h, i, j] * 2", 2 / 8**0.5, None),
        ("-S[b, h, i, j]", 1 / 8**0.5, "(-score)"),
        ("S[b, h, i, j] + slope[h] * (j - i)", 1 / 8**0.5, "(score + (t0[h] * (j - i)))"),
        ("softcap(S[b, h, i, j], 20)", 1 / 8**0.5 / 20, "(20.0 * torch.tanh(score))"),
        ("S[b, h, i, j] + bias[h, i, j]", 1 / 8**0.5, "(score + t0[h, i, j])"),
        ("max(S[b, h, i, j], 0)", 1 / 8**0.5, "torch.clamp(score, min=0.0)"),
    ],
)
def test_score_functions(x: str, scale: float, body: str | None) -> None:
    a = match(spec_of(f"softmax[j | j <= i]({x})"))
    found = score_function(a, {})
    assert a.scale == pytest.approx(scale)
    assert (found is None) == (body is None)
    if found is not None:
        assert f"return {body}\n" in found.text and "def mod(score, b, h, i, j):" in found.text
    mask = mask_function(a, {})
    assert mask is not None and "return (j <= i)\n" in mask.text


def test_heads_in_groups() -> None:
    a = match(spec_of("softmax[j](S[b, h, i, j])", kv="2", g="h // 3"))
    assert (a.q, a.k, a.v) == (
        Operand("Q", (0, 1, 2, 3)), Operand("K", (0, 1, 2, 3), 3), Operand("V", (0, 1, 2, 3), 3),
    )  # fmt: skip


def test_other_layouts_and_orders_are_views() -> None:
    text = """dim B = 2, H = 3, M = 16, N = 24, D = 8
input Q: bf16[B, M, H, D]
input K: bf16[B, N, D]
input V: bf16[B, N, D]
output O: bf16[B, M, H, D]
O[b, i, h, d] = sum[j](V[b, j, d] * softmax[j](sum[e](K[b, j, e] * Q[b, i, h, e])))
"""
    a = match(load_text(text))
    assert a.q == Operand("Q", (0, 2, 1, 3))
    assert a.k == Operand("K", (0, None, 1, 2), 3) and a.v == Operand("V", (0, None, 1, 2), 3)
    assert a.output == (0, 2, 1, 3) and (a.rows, a.columns, a.scale) == (16, 24, 1.0)


def test_softmax_written_out_by_hand_is_the_same() -> None:
    text = """dim M = 16, N = 24, D = 8
input Q: f16[M, D]
input K: f16[N, D]
input V: f16[N, D]
output O: f16[M, D]
S[i, j] = sum[d](Q[i, d] * K[j, d])
m[i] = max[j](S[i, j])
O[i, d] = sum[j](exp(S[i, j] - m[i]) / sum[k: N](exp(S[i, k] - m[i])) * V[j, d])
"""
    a = match(load_text(text))
    assert (a.scores.batch, a.scores.head, a.scores.row) == (None, None, "i")
    assert a.output == (2, 3)


@pytest.mark.parametrize(
    ("p", "why"),
    [
        ("exp(S[b, h, i, j])", "weighted by a softmax"),
        ("softmax[j](S[b, h, i, j] + sum[d](Q[b, h, i, d] * Q[b, h, i, d]))", "one contraction"),
        ("softmax[j](S[b, h, i, j] - max[d](f32(Q[b, h, i, d])))", "not a contraction"),
        ("softmax[j](bias[h, i, j] + 0 * Q[b, h, i, 0])", "one contraction"),
        ("softmax[i](S[b, h, i, j])", "weighted by a softmax"),
    ],
)
def test_what_is_no_attention(p: str, why: str) -> None:
    with pytest.raises(NotApplicable, match=why):
        match(spec_of(p))


def test_every_shipped_attention_matches_and_nothing_else() -> None:
    for path in SPECS:
        spec = load_spec(path)
        if path.parent.name == "attention":
            assert match(spec).k.name == "K", path
        else:
            with pytest.raises(NotApplicable):
                match(spec)
