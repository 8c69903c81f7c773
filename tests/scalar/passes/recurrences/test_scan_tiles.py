"""``scan-tiles`` at all levels: the states of steps one after another, inf and NaN where these have them.

What it makes: ``scan_tiles.scalar``.
"""

from __future__ import annotations

import pytest

from nautilus.check.inputs import InputSet, generate
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec
from nautilus.ma_tile.interp.module import run_module as run_memory
from nautilus.ma_tile.lowering.lower import lower_module
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.recurrences.scan_tiles import ScanTiles
from nautilus.scalar.passes.recurrences.tile_recurrences import TileRecurrences
from nautilus.vr_tile.interp import run_module as run_tiles
from nautilus.vr_tile.lowering.lower import lower as lower_tiles
from tests.scalar.passes.recurrences.test_chunk_recurrences import same_special_values, spoilt

GATE = """
dim B = 3, T = {T}
input x: f32[B, T], g: f32[B, T]
output h: f32[B, T]
recur h[b, t] = sigmoid(g[b, t]) * h[b, t - 1] + x[b, t] if t > 0 else x[b, 0]
"""
CASES = {
    "lanes and registers": GATE.format(T=150),
    "warps and high registers": GATE.format(T=1100).replace("B = 3", "B = 1"),
    "several rows": GATE.format(T=64),
    "resets, from the last step on": """
dim B = 3, T = 150
input x: f32[B, T], d: bool[B, T]
output h: f32[B, T]
recur h[b, t] = x[b, t] + (0 if d[b, t] else 0.9 * h[b, t + 1]) if t < T - 1 else x[b, T - 1]
""",
    "a running extreme beside a sum, from the last step on": """
dim B = 3, T = 150
input x: f32[B, T]
output h: f32[B, T]
recur {
    m[b, t] = min(m[b, t + 1], x[b, t]) if t < T - 1 else x[b, t]
    h[b, t] = 0.9 * (h[b, t + 1] if t < T - 1 else 0) + exp(min(m[b, t], 0))
}
""",
    "products of factors that underflow": """
dim B = 2, T = 300
input x: f32[B, T], g: f32[B, T]
output h: f32[B, T]
recur h[b, t] = -1e-3 * sigmoid(g[b, t]) * h[b, t - 1] + x[b, t] if t > 0 else x[b, 0]
""",
}
COUPLED = {
    "lanes and registers, and what follows from the states": """
dim B = 3, T = 150
input x: f32[B, T], a: f32[B]
output h: f32[B, T], y: f16[B, T]
recur {
    h[b, t] = (0.8 * h[b, t - 1] - a[b] * g[b, t - 1] if t > 0 else 0) + x[b, t]
    g[b, t] = 0.1 * h[b, t] + (0.3 * g[b, t - 1] if t > 0 else 1)
}
y[b, t] = h[b, t] + 2 * g[b, t]
""",
    "warps and high registers, a filter from the last step on": """
dim B = 1, T = 1100
input x: f32[B, T]
output y: f32[B, T]
recur y[b, t] = 0.2 * x[b, t] + (1.5 * y[b, t + 1] if t < T - 1 else 0) - (0.7 * y[b, t + 2] if t < T - 2 else 0)
""",
    "matrices of each step, several rows": """
dim B = 4, T = 64
input z: f32[B, T], a: f32[B, T]
output p: f32[B, T]
recur {
    p[b, t] = sigmoid(a[b, t]) * p[b, t - 1] + 0.5 * v[b, t - 1] + z[b, t] if t > 0 else z[b, 0]
    v[b, t] = cos(a[b, t]) * p[b, t - 1] + 0.1 * v[b, t - 1] if t > 0 else 0
}
""",
    "a value of earlier states that no step reads": """
dim B = 2, T = 300
input x: f32[B, T], a: f32[B]
output y: f32[B, T]
recur {
    y[b, t] = 2 * x[b, t] + (s[b, t - 1] if t > 0 else 0)
    s[b, t] = x[b, t] - a[b] * y[b, t] + (r[b, t - 1] if t > 0 else 0)
    r[b, t] = 0.5 * x[b, t] - 0.3 * y[b, t]
}
""",
}


#: in tiles of 8 or 32 steps, one after another: rows, and columns across contiguous memory
REPEATED = {
    "a row, the last tile of which has 5 steps": (8, GATE.format(T=21)),
    "resets of columns, from the last step on, of which the last tile has 5": (
        8,
        """
dim B = 2, T = 21, D = 5
input x: f32[B, T, D], d: bool[B, T, D]
output h: f32[B, T, D]
recur h[b, t, n] = x[b, t, n] + (0 if d[b, t, n] else 0.9 * h[b, t + 1, n]) if t < T - 1 else x[b, T - 1, n]
""",
    ),
    "columns of 16 bits under a factor that the first step has not, in several warps": (
        16,
        """
dim T = 37, D = 34
input x: f16[T, D], g: f32[T]
output y: f16[T, D]
recur h: f32[t, n] = (sin(g[t]) * h[t - 1, n] + x[t, n]) if t > 0 else 2 * x[0, n]
y[t, n] = h[t, n] * x[t, n]
""",
    ),
    "states of columns that need each other, with matrices of their own": (
        8,
        """
dim B = 2, T = 21, D = 3
input x: f32[B, T, D], a: f32[D]
output y: f32[B, T, D]
recur {
    p[b, t, d] = 0.8 * p[b, t - 1, d] - 0.5 * sin(a[d]) * q[b, t - 1, d] + x[b, t, d] if t > 0 else x[b, 0, d]
    q[b, t, d] = 0.5 * sin(a[d]) * p[b, t - 1, d] + 0.8 * q[b, t - 1, d] if t > 0 else 0
}
y[b, t, d] = p[b, t, d] + q[b, t, d]
""",
    ),
    "running sums of one another": (
        8,
        """
dim B = 2, T = 21
input x: f32[B, T]
output z: f32[B, T]
recur {
    y[b, t] = x[b, t] + y[b, t + 1] if t < T - 1 else x[b, T - 1]
    z[b, t] = (z[b, t + 1] if t < T - 1 else 0) + y[b, t] / (t + 1)
}
""",
    ),
    "running extremes of columns, one of which reads the other, from the last step on": (
        8,
        """
dim B = 2, T = 21, D = 5
input x: f32[B, T, D], n: i32[B, T, D]
output l: f32[B, T, D], k: i32[B, T, D]
recur {
    h[b, t, d] = max(x[b, t, d], h[b, t + 1, d]) if t < T - 1 else -3
    l[b, t, d] = min(h[b, t, d] * x[b, t, d], l[b, t + 1, d] if t < T - 1 else x[b, t, d])
    k[b, t, d] = max(n[b, t, d] + i32(h[b, t, d] > 0), k[b, t + 1, d]) if t < T - 1 else n[b, t, d]
}
""",
    ),
    "sums of columns relative to a running maximum, which they read at the step before, from the last step on": (
        8,
        """
dim B = 2, T = 21, D = 5
input x: f32[B, T, D], v: f16[B, T, D]
output s: f32[B, T, D], w: f32[B, T, D]
recur {
    m[b, t, d] = max(m[b, t + 1, d], x[b, t, d]) if t < T - 1 else x[b, T - 1, d]
    s[b, t, d] = (s[b, t + 1, d] * exp(min(m[b, t + 1, d] - m[b, t, d], 0)) if t < T - 1 else 0) + exp(-m[b, t, d])
    w[b, t, d] = (w[b, t + 1, d] * (0.5 if m[b, t + 1, d] == m[b, t, d] else 0.1) if t < T - 1 else 0) + v[b, t, d]
}
""",
    ),
    "a row with a running minimum, which is read at the step before": (
        8,
        """
dim B = 1, T = 21
input x: f32[B, T]
output y: f32[B, T], l: f32[B, T]
recur {
    l[b, t] = min(l[b, t - 1], x[b, t]) if t > 0 else x[b, t]
    y[b, t] = 0.9 * y[b, t - 1] + (l[b, t - 1] - 2 * l[b, t]) if t > 0 else l[b, t]
}
""",
    ),
    "a filter of columns from the last step on, in several warps": (
        16,
        """
dim T = 37, D = 16
input x: f32[T, D]
output y: f32[T, D]
recur y[t, d] = 0.2 * x[t, d] + (1.5 * y[t + 1, d] if t < T - 1 else 0) - (0.7 * y[t + 2, d] if t < T - 2 else 0)
""",
    ),
}


def scanned(spec: Spec, steps: int | None = None) -> tuple[Program, Program]:
    before = lower(spec)
    after, certificates = ScanTiles(spec, 4, always=steps is not None).derive(before)
    assert certificates
    return before, TileRecurrences(steps=steps).apply(after)


@pytest.mark.parametrize("name", CASES)
def test_levels_have_the_states_of_the_steps(name: str) -> None:
    spec = load_text(CASES[name])
    same_states(spec, spoilt(generate(spec, "random", 1), 1))


@pytest.mark.parametrize("name", COUPLED)
def test_levels_have_states_that_need_each_other(name: str) -> None:
    spec = load_text(COUPLED[name])
    given = generate(spec, "random", 1)
    for x in (given, spoilt(given, 1)):  # steps in any order, and one after another
        same_states(spec, x)


@pytest.mark.parametrize("name", REPEATED)
def test_tiles_follow_each_other(name: str) -> None:
    steps, text = REPEATED[name]
    spec = load_text(text)
    given = generate(spec, "random", 1)
    for x in (given, spoilt(given, 1)):
        same_states(spec, x, steps)


def same_states(spec: Spec, given: InputSet, steps: int | None = None) -> None:
    """All levels have the states that steps one after another give."""
    before, after = scanned(spec, steps)
    numbers = {**given.scalars, **given.sizes}
    want = run_program(before, given.arrays, numbers, "typed")
    tiles = lower_tiles(after)
    memory = lower_module(tiles, None, "sm_90a")
    found = run_program(after, given.arrays, numbers, "typed"), run_tiles(tiles, given.arrays, numbers, "typed")
    for got in (*found, run_memory(memory, given.arrays, numbers)):
        same_special_values(spec, want, got)


@pytest.mark.parametrize(("kept", "combined"), [(0.8, True), (1.0, False)])
def test_steps_whose_powers_lose_precision_are_not_combined(kept: float, combined: bool) -> None:
    """Momentum over many steps: where nothing is forgotten, each square of the matrix has twice the error before."""
    spec = load_text(f"""
dim B = 4, T = 2048
input g: f32[B, T]
output w: f32[B, T]
recur {{
    m[b, t] = 0.9 * (m[b, t - 1] if t > 0 else 0) + g[b, t] + 0.01 * (w[b, t - 1] if t > 0 else 0)
    w[b, t] = {kept} * (w[b, t - 1] if t > 0 else 0) - 0.01 * m[b, t]
}}
""")
    assert bool(ScanTiles(spec).derive(lower(spec))[1]) is combined
