"""Recurrences: types and ranges that follow from themselves, the values of the steps, the printed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nautilus.core.errors import DiagnosticError
from nautilus.core.types import DType
from nautilus.frontend.interp import run_spec
from nautilus.frontend.needed import needed
from nautilus.frontend.printer import format_spec
from nautilus.frontend.restrict import restrict
from nautilus.frontend.semantics.check import load_text

LSTM = """
dim B = 3, T = 5, H = 4
input Z: f32[B, T, 4, H], U: f16[H, 4, H]
output Y: f16[B, T, H], last: f32[B, H]
recur {
  c[b, t, i] = sigmoid(G[b, t, 0, i]) * tanh(G[b, t, 1, i]) + (sigmoid(G[b, t, 2, i]) * c[b, t - 1, i] if t > 0 else 0)
  h[b, t, i] = sigmoid(G[b, t, 3, i]) * tanh(c[b, t, i])
  G[b, t, g, i] = Z[b, t, g, i] + (sum[j](h[b, t - 1, j] * U[j, g, i]) if t > 0 else 0)
}
Y[b, t, i] = h[b, t, i]
last[b, i] = c[b, T - 1, i]
"""


def values(text: str, seed: int = 0, **sizes: int) -> tuple[dict[str, Any], dict[str, Any]]:
    spec = load_text(text)
    rng = np.random.default_rng(seed)
    shapes = {t.name: tuple(n if isinstance(n, int) else sizes[n.name] for n in t.shape) for t in spec.inputs}
    given = {n: rng.standard_normal(shape).astype(np.float16).astype(np.float64) for n, shape in shapes.items()}
    return given, run_spec(spec, given, sizes=sizes)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


BLOCK = """
dim B = 2, T = 6, D = 3, E = 4
input k: f32[B, T, D], v: f32[B, T, E], i: f32[B, T], f: f32[B, T]
output y: f32[B, T, E]
recur {
  n[b, t, d] = (exp(g[b, t] + m[b, t - 1] - m[b, t]) * n[b, t - 1, d] if t > 0 else 0)
    + exp(i[b, t] - m[b, t]) * k[b, t, d]
  y[b, t, e] = sum[d](k[b, t, d] * C[b, t, d, e]) / max(abs(sum[d](k[b, t, d] * n[b, t, d])), 1)
  C[b, t, d, e] = (exp(g[b, t] + m[b, t - 1] - m[b, t]) * C[b, t - 1, d, e] if t > 0 else 0)
    + exp(i[b, t] - m[b, t]) * k[b, t, d] * v[b, t, e]
  m[b, t] = max(g[b, t] + m[b, t - 1], i[b, t]) if t > 0 else i[b, 0]
  g[b, t] = -softplus(-f[b, t])
}
""".replace("\n    +", " +")


def test_recurrences_of_states_with_different_axes_are_apart() -> None:
    spec = load_text(BLOCK)
    found = {d.name: d.recurrence and d.recurrence.members for d in spec.definitions}
    assert found == {"g": None, "m": ("m",), "n": ("n",), "C": ("C",), "y": None}
    order = list(found)
    assert order.index("g") < order.index("m") < min(order.index("n"), order.index("C"))
    assert load_text(format_spec(spec)).definitions == spec.definitions
    downwards = load_text(
        BLOCK.replace("t - 1", "t + 1").replace("t > 0", "t < T - 1").replace("i[b, 0]", "i[b, T - 1]")
    )
    assert {d.name for d in downwards.definitions if d.recurrence and d.recurrence.reverse} == {"m", "n", "C"}
    given, out = values(BLOCK)
    backwards = {n: x[:, ::-1] for n, x in given.items()}
    np.testing.assert_allclose(run_spec(downwards, backwards)["y"][:, ::-1], out["y"])
    k, v, i, g = given["k"], given["v"], given["i"], -np.log1p(np.exp(-given["f"]))
    m, n, c = i[:, 0], 0, 0
    for t in range(6):
        new = np.maximum(g[:, t] + m, i[:, t]) if t else m
        keep, add = np.exp(g[:, t] + m - new)[:, None] * bool(t), np.exp(i[:, t] - new)[:, None]
        m, n = new, keep * n + add * k[:, t]
        c = keep[..., None] * c + (add * k[:, t])[:, :, None] * v[:, t, None, :]
        want = np.einsum("bd,bde->be", k[:, t], c) / np.maximum(abs((k[:, t] * n).sum(1)), 1)[:, None]
        np.testing.assert_allclose(out["y"][:, t], want, rtol=1e-9)


def test_states_of_equal_axes_stay_together() -> None:
    spec = load_text("""
dim T = 5, D = 3
input x: f32[T, D]
output y: f32[T, D], z: f32[T, D]
recur {
  y[t, d] = 0.5 * (y[t - 1, d] if t > 0 else 0) + x[t, d]
  z[t, d] = 0.25 * (z[t - 1, d] if t > 0 else 0) + y[t, d]
}
""")
    assert all(d.recurrence is not None and d.recurrence.members == ("y", "z") for d in spec.definitions)


def test_lstm() -> None:
    given, out = values(LSTM)
    c, h = np.zeros((3, 4)), np.zeros((3, 4))
    for t in range(5):
        g = given["Z"][:, t] + np.einsum("bj,jgi->bgi", h, given["U"])
        c = sigmoid(g[:, 2]) * c + sigmoid(g[:, 0]) * np.tanh(g[:, 1])
        h = sigmoid(g[:, 3]) * np.tanh(c)
        np.testing.assert_allclose(out["Y"][:, t], h, rtol=1e-12)
    np.testing.assert_allclose(out["last"], c, rtol=1e-12)


def test_the_members_stand_in_the_order_of_a_step() -> None:
    spec = load_text(LSTM)
    assert [d.name for d in spec.definitions] == ["G", "c", "h", "Y", "last"]
    found = spec.definition("h").recurrence
    assert found is not None and found.members == ("G", "c", "h") and found.axis == 1 and not found.reverse


def test_downwards_with_a_size_known_at_launch() -> None:
    text = "dim T = runtime\ninput x: f32[T]\noutput h: f32[T]\n"
    text += "recur h[t] = 0.5 * h[t + 2] + x[t] if t + 2 < T else x[t]\n"
    given, out = values(text, T=7)
    want = given["x"].copy()
    for t in reversed(range(5)):
        want[t] += 0.5 * want[t + 2]
    np.testing.assert_allclose(out["h"], want)


@pytest.mark.parametrize(
    ("definition", "dtype"),
    [
        ("n[t: T] = n[t - 1] + 1 if t > 0 else 0", DType.I32),
        ("n[t] = n[t - 1] or x[t] > 0 if t > 0 else false", DType.BOOL),
        ("n[t] = max(n[t - 1], x[t]) if t > 0 else 0", DType.F32),
        ("n: f16[t] = n[t - 1] + x[t] if t > 0 else 0", DType.F16),
        ("n[t] = n[t - 1] + f64(x[t]) if t > 0 else 0", DType.F64),
    ],
)
def test_types_follow(definition: str, dtype: DType) -> None:
    spec = load_text(f"dim T = 4\ninput x: f32[T]\noutput o: f32[T]\nrecur {definition}\no[t] = f32(n[t]) + x[t]\n")
    assert spec.definition("n").stored is dtype


def test_a_typed_member_is_rounded_at_each_step() -> None:
    text = "dim T = 20\ninput x: f32[T]\noutput o: f32[T]\n"
    text += "recur n: f16[t] = n[t - 1] + x[t] if t > 0 else x[0]\no[t] = n[t]\n"
    given, out = values(text)
    want = np.float16(given["x"][0])
    for t in range(1, 20):
        want = np.float16(float(want) + given["x"][t])
        assert out["o"][t] == float(want)


def test_the_printed_form_parses_to_the_same_spec() -> None:
    spec = load_text(LSTM)
    assert load_text(format_spec(spec)).definitions == spec.definitions


def test_recur_is_a_name_elsewhere() -> None:
    spec = load_text("dim recur = 4\noutput O: f32[recur]\nO[i] = i * recur\n")
    assert spec.outputs[0].shape == (4,)


def test_an_empty_condition_is_no_structural_zero_of_an_element() -> None:
    """The first element is 0, and 0 times NaN is NaN in a sum."""
    text = "dim T = 3\ninput x: f32[T]\noutput o: f32\nrecur h[t: T] = h[t - 1] + 1.0 if t > 0 else 0\n"
    spec = load_text(text + "o = sum[t](h[t] * x[t])\n")
    assert np.isnan(run_spec(spec, {"x": np.array([np.nan, 1.0, 1.0])})["o"])


def test_a_restriction_keeps_all_steps() -> None:
    spec = load_text(LSTM)
    small = restrict(spec, {"Y": {0: np.array([1]), 1: np.array([0, 4]), 2: np.array([2])}, "last": {0: np.array([1])}})
    given, out = values(LSTM)
    part = run_spec(small.spec, small.arrays(given))
    np.testing.assert_allclose(part["Y"], small.cut("Y", out["Y"]))
    np.testing.assert_allclose(part["last"], small.cut("last", out["last"]))
    assert small.spec.definition("h").shape == (1, 5, 4)


def test_all_that_a_recurrence_reads_is_needed() -> None:
    text = "dim T = 4\ninput x: f32[T]\noutput o: f32\n"
    spec = load_text(text + "recur h[t] = h[t - 1] + x[t] if t > 0 else x[0]\no = h[T - 1]\n")
    assert needed(spec, {"x": np.ones(4)}, {}).read["x"].all()


def test_a_cycle_through_the_outside_names_the_block() -> None:
    text = "dim T = 4\ninput x: f32[T]\noutput o: f32[T]\n"
    text += "recur o[t] = x[t] + g[t - 1] if t > 0 else 0\ng[t] = o[t] * 2\n"
    with pytest.raises(DiagnosticError) as caught:
        load_text(text)
    assert "recur { ... }" in str(caught.value)


def test_members_of_different_types() -> None:
    text = """
dim T = 4
input x: f32[T]
output o: f32[T]
recur {
  count[t] = count[t - 1] + 1 if t > 0 and hit[t] else 0
  hit[t] = (hit[t - 1] if t > 0 else false) or h[t] > 1
  h[t] = x[t] + (0.5 * h[t - 1] if t > 0 else 0)
}
o[t] = h[t] + count[t]
"""
    spec = load_text(text.replace("count[t] =", "count[t: T] ="))
    assert [spec.definition(n).stored for n in ("count", "hit", "h")] == [DType.I32, DType.BOOL, DType.F32]


READ = """
dim B = 2, T = 4, N = 3
input z: f32[B, T], F: f32[N, N]
output x: f32[B, T, N], y: f32[B, T]
recur {
  p[b, t, i] = sum[j](F[i, j] * x[b, t - 1, j]) if t > 0 else 0
  x[b, t, i] = p[b, t, i] + z[b, t]
}
recur w[b, t] = 2 * w[b, t + 1] + z[b, t + 1] if t < T - 1 else 1
y[b, t] = w[b, t] + 1
"""


def test_a_range_follows_from_the_readers_of_a_member() -> None:
    """``p`` reads at ``t - 1`` alone, and ``w`` at ``t + 1``; where readers differ, the range has to be written."""
    given, found = values(READ)
    x, w = np.zeros((2, 4, 3)), np.ones((2, 4))
    for t in range(4):
        x[:, t] = given["z"][:, t, None] + (x[:, t - 1] @ given["F"].T if t else 0)
    for t in (2, 1, 0):
        w[:, t] = 2 * w[:, t + 1] + given["z"][:, t + 1]
    np.testing.assert_allclose(found["x"], x)
    np.testing.assert_allclose(found["y"], w + 1)
    with pytest.raises(DiagnosticError, match="the range of 't' cannot be inferred"):
        load_text(READ.replace("y: f32[B, T]", "y: f32[B, T], v: f32[B, N]") + "v[b, n] = w[b, n]\n")
