"""``chunk-matrix-states`` on random, infinite and missing numbers. What it makes: ``chunk_matrix_states.scalar``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest

from nautilus.check.certificates.rules import check
from nautilus.check.inputs import generate
from nautilus.core.numerics import Array
from nautilus.core.types import DType
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.recurrences.chunk_matrix_states import ChunkMatrixStates, matrix_recurrence
from nautilus.scalar.passes.recurrences.members.join_recurrences import JoinRecurrences
from nautilus.scalar.passes.recurrences.tile_recurrences import TileRecurrences
from nautilus.scalar.rewriting.states import chunks
from nautilus.scalar.rewriting.states.chunks import short_type
from tests.scalar.expect import sound
from tests.scalar.passes.recurrences.test_chunk_recurrences import spoilt
from tests.scalar.programs.specs import agree

GATE = """
dim H = 2, T = 50, D = 4, E = 3
input q: f32[H, T, D], k: f32[H, T, D], v: f32[H, T, E], g: f32[H, T]
output Y: f32[H, T, E]
recur {
  S[h, t, d, e] = sigmoid(g[h, t]) * (S[h, t - 1, d, e] if t > 0 else 0) + k[h, t, d] * v[h, t, e]
  Y[h, t, e] = sum[d](q[h, t, d] * S[h, t, d, e])
}
"""
BACK = GATE.replace("t - 1", "t + 1").replace("t > 0", "t < T - 1")
PREVIOUS = GATE.replace("q[h, t, d] * S[h, t, d, e]", "q[h, t, d] * (S[h, t - 1, d, e] if t > 0 else 0)")
STABILISED = GATE.replace(
    "recur {", "recur m[h, t] = max(g[h, t] / 4 + m[h, t - 1], q[h, t, 0]) if t > 0 else q[h, 0, 0]\nrecur {"
).replace("sigmoid(g[h, t])", "exp(g[h, t] / 4 + (m[h, t - 1] if t > 0 else 0) - m[h, t])")
ROWS = GATE.replace("sigmoid(g[h, t])", "exp(-exp(g[h, t] + k[h, t, d]))")
COLUMNS = GATE.replace("sigmoid(g[h, t])", "sigmoid(g[h, t] * v[h, t, e])")
BOTH = GATE.replace("sigmoid(g[h, t])", "exp(-exp(g[h, t] + k[h, t, d]) + min(v[h, t, e], 0))")
DELTA = """
dim H = 2, T = 50, D = 4, E = 3
input q: f32[H, T, D], k: f32[H, T, D], v: f32[H, T, E], g: f32[H, T], beta: f32[H, T]
output Y: f32[H, T, E]
assume abs(k[h, t, d]) < inf
recur {
  r[h, t, e] = sigmoid(g[h, t]) * sum[d](k[h, t, d] * S[h, t - 1, d, e]) if t > 0 else 0
  w[h, t, e] = sigmoid(beta[h, t]) * (v[h, t, e] - r[h, t, e])
  S[h, t, d, e] = (sigmoid(g[h, t]) * S[h, t - 1, d, e] if t > 0 else 0) + k[h, t, d] * w[h, t, e]
  Y[h, t, e] = sum[d](q[h, t, d] * S[h, t, d, e])
}
"""
DELTA_INSIDE = """
dim H = 2, T = 50, D = 4, E = 3
input q: f32[H, T, D], k: f32[H, T, D], v: f32[H, T, E], g: f32[H, T], beta: f32[H, T]
output Y: f32[H, T, E]
assume abs(k[h, t, d]) < inf
recur {
  r[h, t, e] = sigmoid(g[h, t]) * sum[d](k[h, t, d] * (S[h, t - 1, d, e] if t > 0 else 0))
  S[h, t, d, e] = sigmoid(g[h, t]) * (S[h, t - 1, d, e] if t > 0 else 0)
    + k[h, t, d] * (sigmoid(beta[h, t]) * (v[h, t, e] - r[h, t, e]))
  Y[h, t, e] = sum[d](q[h, t, d] * S[h, t, d, e])
}
""".replace("\n    +", " +")
DELTA_BACK = DELTA.replace("t - 1", "t + 1").replace("t > 0", "t < T - 1")
DELTA_ROWS = """
dim H = 2, T = 50, D = 4, E = 3
input q: f32[H, T, D], k: f32[H, T, D], v: f32[H, T, E], g: f32[H, T, D], beta: f32[H, T]
output Y: f32[H, T, E]
assume abs(k[h, t, d]) < inf
recur {
  r[h, t, e] = sum[d](k[h, t, d] * (sigmoid(g[h, t, d]) * S[h, t - 1, d, e] if t > 0 else 0))
  w[h, t, e] = sigmoid(beta[h, t]) * (v[h, t, e] - r[h, t, e])
  S[h, t, d, e] = sigmoid(g[h, t, d]) * (S[h, t - 1, d, e] if t > 0 else 0) + k[h, t, d] * w[h, t, e]
  Y[h, t, e] = sum[d](q[h, t, d] * S[h, t, d, e])
}
"""
BESIDE = """
dim H = 2, T = 50, D = 4, E = 3
input q: f32[H, T, D], k: f32[H, T, D], v: f32[H, T, E], g: f32[H, T], w: f32[H, D]
output Y: f32[H, T, E]
recur {
  Y[h, t, e: E] = sum[d](q[h, t, d] * ((S[h, t - 1, d, e] if t > 0 else 0) + w[h, d] * k[h, t, d] * v[h, t, e])) / 2
  S[h, t, d, e] = exp(-exp(g[h, t])) * (S[h, t - 1, d, e] if t > 0 else 0) - k[h, t, d] * v[h, t, e]
}
"""
CORRECTED = {
    "a delta rule": DELTA,
    "a delta rule, downwards": DELTA_BACK,
    "a delta rule without a gate": DELTA.replace("sigmoid(g[h, t]) * ", "").replace(", g: f32[H, T]", ""),
    "a delta rule without a factor": DELTA.replace("sigmoid(beta[h, t]) * ", "0.3 *").replace(", beta: f32[H, T]", ""),
    "a delta rule, and the state before": DELTA.replace(
        "q[h, t, d] * S[h, t, d, e]", "q[h, t, d] * (S[h, t - 1, d, e] if t > 0 else 0)"
    ),
    "a delta rule whose errors are a result": DELTA.replace(
        "output Y: f32[H, T, E]", "output Y: f32[H, T, E], w: f32[H, T, E]"
    ),
    "a delta rule with a negative decay": DELTA.replace("sigmoid(g[h, t])", "tanh(g[h, t])"),
    "a delta rule with a decay that may be 0, downwards": DELTA_BACK.replace(
        "sigmoid(g[h, t])", "tanh(max(g[h, t], 0))"
    ),
    "a delta rule with a constant decay": DELTA.replace("sigmoid(g[h, t])", "0.9").replace(", g: f32[H, T]", ""),
    "a delta rule of each row": DELTA_ROWS,
    "a delta rule of each row, downwards": DELTA_ROWS.replace("t - 1", "t + 1").replace("t > 0", "t < T - 1"),
    "a delta rule with two keys": DELTA.replace("+ k[h, t, d] * w", "+ tanh(q[h, t, d]) * w"),
    "a delta rule of all heads": """
dim T = 50, D = 4, E = 3
input q: f32[T, D], k: f32[T, D], v: f32[T, E], beta: f32[T]
output Y: f32[T, E]
assume abs(k[t, d]) < inf
assume 0 <= beta[t] <= 1
recur {
  r[t, e] = sum[d](k[t, d] * S[t - 1, e, d]) if t > 0 else 0
  S[t, e, d] = (S[t - 1, e, d] if t > 0 else 0) + (v[t, e] - r[t, e]) * beta[t] * k[t, d]
  Y[t, e] = sum[d](q[t, d] * S[t, e, d])
}
""",
}
LAST = {
    f"{name}, and the last state": text.replace("output Y: f32[H, T, E]", "output Y: f32[H, T, E], F: f32[H, E, D]")
    + f"F[h, e, d] = 2 * S[h, {last}, d, e] + 1\n"
    for name, text, last in (
        ("a gate", GATE, "T - 1"),
        ("downwards", BACK, "0"),
        ("no decay", GATE.replace("sigmoid(g[h, t]) *", "").replace(", g: f32[H, T]", ""), "T - 1"),
        ("a constant decay", GATE.replace("sigmoid(g[h, t])", "0.9").replace(", g: f32[H, T]", ""), "T - 1"),
        ("a negative decay", GATE.replace("sigmoid(g[h, t])", "tanh(g[h, t])"), "T - 1"),
        ("a decay of each row", ROWS, "T - 1"),
        ("a decay of each column", COLUMNS, "T - 1"),
        (
            "a decay of each row and each column, downwards",
            BOTH.replace("t - 1", "t + 1").replace("t > 0", "t < T - 1"),
            "0",
        ),
        ("a delta rule", DELTA, "T - 1"),
        ("a delta rule, downwards", DELTA_BACK, "0"),
        ("a delta rule of each row", DELTA_ROWS, "T - 1"),
    )
}
INITIAL = {
    f"{name}, and a state before the first step": text.replace("output Y: f32", "input I: f32[H, D, E]\noutput Y: f32")
    .replace("* (S[h, t - 1, d, e] if t > 0 else 0)", "* (S[h, t - 1, d, e] if t > 0 else I[h, d, e])")
    .replace("* (S[h, t + 1, d, e] if t < T - 1 else 0)", "* (S[h, t + 1, d, e] if t < T - 1 else I[h, d, e])")
    .replace("= (S[h, t - 1, d, e] if t > 0 else 0)", "= (S[h, t - 1, d, e] if t > 0 else I[h, d, e])")
    for name, text in (
        ("a gate", GATE),
        ("a number", GATE.replace("if t > 0 else 0", "if t > 0 else 1")),
        ("downwards", BACK),
        ("no decay", GATE.replace("sigmoid(g[h, t]) *", "").replace(", g: f32[H, T]", "")),
        ("the state before", PREVIOUS),
        ("a negative decay", GATE.replace("sigmoid(g[h, t])", "tanh(g[h, t])")),
        ("a decay of each row", ROWS),
        ("a decay of each column", COLUMNS),
        ("a decay of each row and each column", BOTH),
        ("the last state", LAST["a gate, and the last state"]),
        ("a delta rule", DELTA_INSIDE),
        (
            "a delta rule, and the last state",
            DELTA_INSIDE.replace("Y: f32[H, T, E]", "Y: f32[H, T, E], F: f32[H, D, E]")
            + "F[h, d, e] = S[h, T - 1, d, e]\n",
        ),
        ("a delta rule, downwards", DELTA_INSIDE.replace("t - 1", "t + 1").replace("t > 0", "t < T - 1")),
        (
            "a delta rule of each row",
            DELTA_ROWS.replace(
                "(sigmoid(g[h, t, d]) * S[h, t - 1, d, e] if t > 0 else 0)",
                "sigmoid(g[h, t, d]) * (S[h, t - 1, d, e] if t > 0 else 0)",
            ),
        ),
    )
}
#: Operands that are rows of 16 bits, each times a number: those of normalised queries and keys.
NORMALISED = """
kn[h, t, d] = k[h, t, d] * rsqrt(sum[i: D](k[h, t, i] * k[h, t, i]) + 0.01)
qn[h, t, d] = q[h, t, d] / sqrt(sum[i: D](q[h, t, i] * q[h, t, i]) + 0.01)
recur {"""
SCALED = {
    f"{name}, with normalised queries and keys of 16 bits": text.replace("q: f32", "q: bf16")
    .replace("k: f32", "k: bf16").replace("v: f32", "v: bf16")
    .replace("k[h, t, d] * v", "kn[h, t, d] * v").replace("k[h, t, d] * w", "kn[h, t, d] * w")
    .replace("sum[d](k[h, t, d]", "sum[d](kn[h, t, d]").replace("sum[d](q[h, t, d]", "sum[d](qn[h, t, d]")
    .replace("w[h, d] * k[h, t, d]", "w[h, d] * kn[h, t, d]")
    .replace("\nrecur {", NORMALISED)
    for name, text in (
        ("a gate", GATE),
        ("a scale", GATE.replace("+ k[h, t, d]", "- g[h, t] * k[h, t, d]")),
        ("a factor of the sum", GATE.replace("S[h, t, d, e])\n", "S[h, t, d, e]) * g[h, t]\n")),
        ("a sum beside the state", BESIDE),
        ("a delta rule", DELTA),
        ("a delta rule, and a state before the first step", INITIAL["a delta rule, and a state before the first step"]),
    )
}  # fmt: skip
_SHORT = SCALED["a gate, with normalised queries and keys of 16 bits"]
SCALED |= {
    "a number of a row that is a sum": _SHORT.replace(
        "kn[h, t, d] = k[h, t, d] * rsqrt(sum[i: D](k[h, t, i] * k[h, t, i]) + 0.01)",
        "c[h, t] = sum[i: D](k[h, t, i] * k[h, t, i])\nkn[h, t, d] = k[h, t, d] * c[h, t]",
    ),
    "keys that are rounded": _SHORT.replace("kn[h, t, d] = ", "kn: f16[h, t, d] = "),
}
CASES = {
    **CORRECTED,
    **SCALED,
    **LAST,
    **INITIAL,
    "a gate": GATE,
    "a gate relative to a running maximum": STABILISED,
    "the gate of the step before": GATE.replace("sigmoid(g[h, t])", "sigmoid(g[h, t - 1] if t > 0 else 0)"),
    "the state and the query of the step before": PREVIOUS.replace(
        "sum[d](q[h, t, d] * (S[h, t - 1, d, e] if t > 0 else 0))",
        "sum[d](q[h, t - 1, d] * S[h, t - 1, d, e]) if t > 0 else 0",
    ),
    "a delta rule with the strength of the step before": DELTA.replace(
        "r[h, t, e] = sigmoid(g[h, t]) *", "r[h, t, e] = sigmoid(g[h, t - 1]) *"
    ),
    "an operand that is never infinite": GATE + "assume abs(q[h, t, d]) < inf\n",
    "downwards": BACK,
    "no decay": GATE.replace("sigmoid(g[h, t]) *", "").replace(", g: f32[H, T]", ""),
    "the state before": PREVIOUS,
    "the state before, downwards": BACK.replace(
        "q[h, t, d] * S[h, t, d, e]", "q[h, t, d] * (S[h, t + 1, d, e] if t < T - 1 else 0)"
    ),
    "a first step of its own": GATE.replace(
        "* (S[h, t - 1, d, e] if t > 0 else 0) + k[h, t, d] * v[h, t, e]",
        "* S[h, t - 1, d, e] + k[h, t, d] * v[h, t, e] if t > 0 else k[h, 0, d] * v[h, 0, e]",
    ),
    "a decay that may be 0": GATE.replace("sigmoid(g[h, t])", "tanh(max(g[h, t], 0))"),
    "a decay that may be negative": GATE.replace("sigmoid(g[h, t])", "tanh(g[h, t])"),
    "a decay that may be negative, and the state before": PREVIOUS.replace("sigmoid(g[h, t])", "tanh(2 * g[h, t])"),
    "a promise": GATE.replace("sigmoid(g[h, t])", "g[h, t]") + "assume 0 <= g[h, t] <= 1\n",
    "a promise of each head": GATE.replace("sigmoid(g[h, t])", "w[h]").replace("g: f32[H, T]", "w: f32[H]")
    + "assume abs(w[h]) <= 1\n",
    "a decay that may be 0, downwards": BACK.replace("sigmoid(g[h, t])", "tanh(max(g[h, t], 0))"),
    "a decay of each row": ROWS,
    "a decay of each row, downwards": BACK.replace("sigmoid(g[h, t])", "sigmoid(g[h, t] * k[h, t, d])"),
    "a decay of each row, and the state before": PREVIOUS.replace("sigmoid(g[h, t])", "sigmoid(g[h, t] * k[h, t, d])"),
    "a decay of each column": COLUMNS,
    "a decay of each column, downwards": COLUMNS.replace("t - 1", "t + 1").replace("t > 0", "t < T - 1"),
    "a decay of each column, and the state before": PREVIOUS.replace("sigmoid(g[h, t])", "sigmoid(v[h, t, e])"),
    "a decay of each step and each column": GATE.replace("sigmoid(g[h, t])", "tanh(g[h, t]) * exp(-exp(v[h, t, e]))"),
    "a decay of each row and each column": BOTH,
    "a decay of each row and each column, downwards": BOTH.replace("t - 1", "t + 1").replace("t > 0", "t < T - 1"),
    "a promise of each column": GATE.replace("sigmoid(g[h, t])", "w[h, e]").replace("g: f32[H, T]", "w: f32[H, E]")
    + "assume 0.125 <= w[h, e] <= 1\n",
    "a decay of each column that is a tensor": COLUMNS.replace(
        "recur {", "a[h, t, e] = 1 - sigmoid(v[h, t, e])\nrecur {"
    )
    .replace("sigmoid(g[h, t] * v[h, t, e])", "a[h, t, e]")
    .replace("* v[h, t, e]\n", "* (1 - a[h, t, e])\n")
    .replace(", g: f32[H, T]", ""),
    "a promise of each row": GATE.replace("sigmoid(g[h, t])", "w[h, d]").replace("g: f32[H, T]", "w: f32[H, D]")
    + "assume 0 <= w[h, d] <= 1\n",
    "a decay of each head": GATE.replace("sigmoid(g[h, t])", "exp(-softplus(g[h, 0]))"),
    "a constant decay, and a scale": GATE.replace("sigmoid(g[h, t])", "0.9").replace("+ k", "- g[h, t] * k"),
    "a sum beside the state": BESIDE,
    "rows and columns exchanged, and shared by heads": """
dim B = 2, T = 50, H = 2, P = 3, N = 4
input x: f32[B, T, H, P], a: f32[B, T, H], dt: f32[B, T, H], K: f32[B, T, N], C: f32[B, T, N], s: f32[H]
output y: f32[B, T, H, P]
assume abs(C[b, t, n]) < inf
u[b, t, k, p] = dt[b, t, k] * x[b, t, k, p]
w[b, t, k] = -softplus(a[b, t, k])
recur h[b, t, k, p, n] = exp(w[b, t, k]) * (h[b, t - 1, k, p, n] if t > 0 else 0) + u[b, t, k, p] * K[b, t, n]
y[b, t, k, p] = sum[n](h[b, t, k, p, n] * C[b, t, n]) * sigmoid(x[b, t, k, p]) + s[k] * x[b, t, k, p]
""",
}
#: recurrences that stay as they are
OTHERS = {
    "an operand that may be infinite, in a sum of its own": GATE.replace(
        "S[h, t, d, e])\n", "S[h, t, d, e] + g[h, t])\n"
    ),
    "a decay of any size": GATE.replace("sigmoid(g[h, t])", "g[h, t]"),
    "a gate relative to the maximum of others": STABILISED.replace("max(g[h, t] / 4 +", "max(g[h, t] / 8 +"),
    "a gate relative to a minimum": STABILISED.replace("max(g[h, t]", "min(g[h, t]"),
    "a decay of each column that may be 0": GATE.replace("sigmoid(g[h, t])", "max(tanh(v[h, t, e]), 0)"),
    "a product of decays of which one may be above 1": GATE.replace(
        "sigmoid(g[h, t])", "(1 + sigmoid(k[h, t, d])) * (0.5 - sigmoid(v[h, t, e]) / 2)"
    ),
    "a decay of each element": GATE.replace("sigmoid(g[h, t])", "sigmoid(k[h, t, d] + v[h, t, e])"),
    "a step that forgets the state": GATE.replace("if t > 0 else", "if t > 0 and g[h, t] > 0 else"),
    "a state in the middle": LAST["a gate, and the last state"].replace("T - 1, d, e] + 1", "T - 2, d, e] + 1"),
    "two states before the first step": PREVIOUS.replace("if t > 0 else 0)", "if t > 0 else 1)", 1),
    "a first step that adds more": GATE.replace(
        "+ k[h, t, d] * v[h, t, e]", "+ (1 if t > 0 else 2) * k[h, t, d] * v[h, t, e]"
    ),
    "a factor twice beside the state, and once in another term": GATE.replace(
        "q[h, t, d] * S[h, t, d, e]", "q[h, t, d] * (q[h, t, d] * S[h, t, d, e] + k[h, t, d])"
    ),
    "a sum of the state and an input": GATE.replace("* v[h, t, e]", "+ v[h, t, e]"),
    "the state itself": GATE.replace("Y[h, t, e] = sum[d](q[h, t, d] * S[h, t, d, e])", "Y[h, t, e] = S[h, t, 0, e]"),
    "a square of the state": GATE.replace("* S[h, t, d, e])", "* S[h, t, d, e] * S[h, t, d, e])"),
    "sums over either axis": GATE.replace("output Y: f32[H, T, E]", "output Y: f32[H, T, E], Z: f32[H, T, D]").replace(
        "\n}", "\n  Z[h, t, d] = sum[e](S[h, t, d, e])\n}"
    ),
}


def chunked(spec: Spec, length: int = 16, certified: bool = True) -> tuple[Program, Program]:
    """The program before and after the pass; ``certified``: its certificates hold."""
    before = JoinRecurrences().apply(lower(spec))
    after, certificates = ChunkMatrixStates(spec, length=length).derive(before)
    assert not certified or all(check(c).ok for c in certificates)
    return before, after


@cache
def drawn(name: str) -> tuple[Spec, Mapping[str, Array]]:
    """The spec ``name``, and inputs of it."""
    spec = load_text(CASES[name])
    return spec, generate(spec, "random").arrays


@pytest.mark.parametrize(
    "name, length", [(name, length) for n, name in enumerate(CASES) for length in (16, (25, 64)[n % 2])]
)
def test_chunks_are_the_recurrence(name: str, length: int) -> None:
    """A last chunk that is not full, and alternately two full ones or a single one that the steps do not fill.

    The certificates, whose check takes half of the time, are those of two steps and the same for all lengths.
    """
    spec, inputs = drawn(name)
    before, after = chunked(spec, length, certified=length == 16)
    assert after is not before
    sound(after)
    agree(spec, after, inputs, 1e-5)
    tiled = TileRecurrences().apply(after)
    sound(tiled)
    agree(spec, tiled, inputs, 1e-5)


@pytest.mark.parametrize("name", [n for n in SCALED if n != "keys that are rounded"])
def test_rows_of_16_bits_are_factors_of_the_products(name: str) -> None:
    spec = load_text(SCALED[name])
    program = JoinRecurrences().apply(lower(spec))
    (found,) = (f for k in program.kernels if (f := matrix_recurrence(program, k, spec)) is not None)
    beside = "a sum beside" in name  # a number of a row that may be infinite is a factor of that sum too
    assert short_type(found.state) is (None if beside else DType.BF16)


@pytest.mark.parametrize(
    "name", ["a gate", "downwards", "the state before", "a sum beside the state", "a delta rule, downwards"]
)
def test_products_of_pairs_are_stored_beside_many_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "TOGETHER", 2)
    spec, inputs = drawn(name)
    _, after = chunked(spec)
    assert any(b.name.endswith("_weights") for b in after.buffers)
    sound(after)
    agree(spec, after, inputs, 1e-5)


@pytest.mark.parametrize(
    ("operands", "output", "short"),
    [
        ("silu", "bf16", True),
        ("silu", "f32", False),
        ("softmax[d]", "bf16", True),
        ("f32", "bf16", True),
    ],
)
def test_operands_that_are_computed_have_16_bits_before_outputs_of_16_bits(
    operands: str, output: str, short: bool
) -> None:
    made = "k[h, t, d] = silu(key[h, t, d])\nv[h, t, e] = silu(value[h, t, e])\nrecur {"
    text = GATE.replace("q: f32", "query: bf16").replace("k: f32", "key: bf16").replace("v: f32", "value: bf16")
    text = text.replace("recur {", f"q[h, t, d] = {operands}(query[h, t, d])\n{made}")
    spec = load_text(text.replace("Y: f32", f"Y: {output}"))
    program = JoinRecurrences().apply(lower(spec))
    (found,) = (f for k in program.kernels if (f := matrix_recurrence(program, k, spec)) is not None)
    assert (found.short is DType.BF16) is short
    assert found.state.readers[0].finite is operands.startswith("softmax")


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay_as_they_are(name: str) -> None:
    before, after = chunked(load_text(OTHERS[name]))
    assert after is before


@pytest.mark.parametrize(
    "name",
    [
        "a gate",
        "downwards",
        "the state before",
        "a sum beside the state",
        "an operand that is never infinite",
        "a decay that may be 0",
        "a decay of each row",
        "a decay of each row, downwards",
        "a decay of each column",
        "a decay of each column, downwards",
        "a decay of each row and each column",
        "a delta rule",
        "a delta rule, downwards",
        "a delta rule with two keys",
        "a delta rule of each row",
        "a gate, and a state before the first step",
        "a delta rule, and a state before the first step",
    ],
)
@pytest.mark.parametrize("seed", (1, 2, 3))  # each tensor has infinities and NaN in one of them
def test_what_the_recurrence_defines_is_the_same_beside_inf_and_nan(name: str, seed: int) -> None:
    """Where the recurrence has NaN, such as inf - inf of two rows, the products may have another number."""
    spec = load_text(CASES[name])
    before, after = chunked(spec)
    drawn = generate(spec, "random", seed)
    given = spoilt(drawn, seed)
    arrays = dict(given.arrays)
    if never := "q" if name == "an operand that is never infinite" else "k" if "delta" in name else "":
        arrays[never] = np.where(np.isinf(arrays[never]), drawn.arrays[never], arrays[never])
    want, got = (run_program(p, arrays, {}, "typed")["Y"] for p in (before, TileRecurrences().apply(after)))
    a, b = np.asarray(want, np.float64), np.asarray(got, np.float64)
    known = ~np.isnan(a)
    assert known.mean() > 0.05
    assert (~known).any()
    np.testing.assert_array_equal(np.where(np.isinf(a), a, 0)[known], np.where(np.isinf(b), b, 0)[known])
    good = np.isfinite(a)
    np.testing.assert_allclose(b[good], a[good], atol=1e-5 * np.abs(a[good]).max(initial=0.0))


def test_the_state_of_infinite_elements_alone_says_the_sign() -> None:
    """The other elements of the row meet a state that is much larger."""
    spec, inputs = drawn("a gate")
    before, after = chunked(spec, certified=False)
    q, k = (np.array(inputs[n]) for n in ("q", "k"))
    q[:, 41] = q[:, 40]
    q[:, 40, 2], q[:, 41, 2], k[:, 40, 1] = np.inf, -np.inf, 1e37
    want, got = (run_program(p, {**inputs, "q": q, "k": k}, {}, "typed")["Y"][:, 40:42] for p in (before, after))
    assert np.isinf(want).all()
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "decay",
    [
        "sigmoid(g[h, t])",
        "sigmoid(50 * g[h, t])",
        "exp(-exp(3 * g[h, t]))",
        "tanh(9 + g[h, t])",
        "tanh(max(g[h, t], 0))",
    ],
)
def test_products_of_decays_are_as_accurate_as_those_of_steps(decay: str) -> None:
    spec = load_text(GATE.replace("T = 50", "T = 600").replace("sigmoid(g[h, t])", decay))
    inputs = generate(spec, "random").arrays
    exact = run_spec(spec, inputs)["Y"]
    before, after = chunked(spec, 512)
    errors = [np.abs(run_program(p, inputs, {}, "typed")["Y"] - exact).max() for p in (before, after)]
    assert errors[1] < 4 * errors[0]


def test_long_recurrences_of_large_states_are_cut_and_short_ones_are_not() -> None:
    for t, d, cut in ((4096, 64, True), (64, 64, False), (4096, 4, False)):
        before, after = chunked(load_text(GATE.replace("T = 50, D = 4, E = 3", f"T = {t}, D = {d}, E = {d}")), 0)
        assert (after is not before) is cut


@pytest.mark.parametrize(
    ("dtype", "e", "cut"), [("bf16", 64, True), ("f32", 64, False), ("bf16", 192, True), ("bf16", 320, False)]
)
def test_rows_with_different_decays_are_cut_where_pairs_of_steps_have_a_kernel(dtype: str, e: int, cut: bool) -> None:
    text = GATE.replace("T = 50, D = 4, E = 3", f"T = 8192, D = 64, E = {e}").replace("sigmoid(g[h, t])", "sigmoid(w)")
    text = text.replace("q: f32", f"q: {dtype}").replace("k: f32", f"k: {dtype}").replace("v: f32", f"v: {dtype}")
    before, after = chunked(load_text(text.replace("sigmoid(w)", "sigmoid(g[h, t] * k[h, t, d])")), 0)
    assert (after is not before) is cut


@pytest.mark.parametrize(("d", "e", "cut"), [(64, 64, True), (48, 64, False), (64, 40, False)])
def test_delta_rules_are_cut_where_matrix_units_carry_the_state(d: int, e: int, cut: bool) -> None:
    text = DELTA.replace("T = 50, D = 4, E = 3", f"T = 16384, D = {d}, E = {e}").replace("k: f32", "k: bf16")
    text = text.replace("q: f32", "q: bf16").replace("v: f32", "v: bf16")
    before, after = chunked(load_text(text), 0)
    assert (after is not before) is cut
