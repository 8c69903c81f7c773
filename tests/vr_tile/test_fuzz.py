"""Random tiled programs: lowered, rewritten, and compared with the Scalar interpreter.  Seeds are fixed."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from nautilus.core.types import DType
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.text import parse_program
from nautilus.vr_tile.interp import run_module
from nautilus.vr_tile.lowering.lower import lower
from nautilus.vr_tile.verify import verify
from tests.vr_tile.passes.test_pipeline import ALL
from tests.vr_tile.support import assert_same, random_inputs

M, N, K = 13, 11, 10  # ragged under tiles of 8, 8, 4
HEAD = f"""
program fuzz {{
  input A: f16[{M}, {K}]
  input B: f16[{K}, {N}]
  input C: f32[{M}]
  input T: i32[{N}]
  input Z: f32[{M}, {N}]
  output O: f32[{M}, {N}]
  output R: f32[{M}]
  kernel k {{
    local acc: f32[8, 8]
    local row: f32[8]
    grid a in 0..2, b in 0..2 {{
"""
ROW, COL, RED = "a * 8 + i", "b * 8 + j", "c * 4 + k"
ROWS, COLS, REDS = f"{ROW} < {M}", f"{COL} < {N}", f"{RED} < {K}"


def leaf(r: random.Random, axes: Any) -> str:
    choices = ["0.5", "-2.0", f"C[{ROW}]", f"cast<f32>({ROW} - 3)"]
    if "j" in axes:
        choices += [f"Z[{ROW}, {COL}]", f"cast<f32>(T[{COL}])"]
    if "k" in axes:
        choices += [f"cast<f32>(A[{ROW}, {RED}])"] * 3
        choices += [f"C[{RED}]"]
    if "k" in axes and "j" in axes:
        choices += [f"cast<f32>(B[{RED}, {COL}])"] * 3
    return r.choice(choices)


def value(r: random.Random, axes: Any, depth: int) -> str:
    if depth == 0:
        return leaf(r, axes)
    x, y = value(r, axes, depth - 1), value(r, axes, r.randrange(depth))
    choices = [f"({x} + {y})", f"({x} - {y})", f"({x} * {y})", f"({x} * {y})", f"({x} * {y})", f"max({x}, {y})"]
    choices += [f"exp({x} * 0.125)", f"-{x}", f"({x} / 4.0)", f"({x} * 0.25)"]
    choices += [f"select({condition(r, axes)}, {x}, {r.choice([y, '0.0'])})"]
    return r.choice(choices)


def product(r: random.Random) -> str:
    """A sum of one or two products over ``k``, with something extra."""
    a, b = f"cast<f32>(A[{ROW}, {RED}])", f"cast<f32>(B[{RED}, {COL}])"
    extra = r.choice(["", f" * C[{ROW}]", f" * C[{RED}]", " / 4.0", f" * exp(Z[{ROW}, {COL}])"])
    one = r.choice([f"{a} * {b}{extra}", f"{b} * cast<f32>(narrow<f16>(exp({a} * 0.125))){extra}"])
    return r.choice([one, f"select({condition(r, 'ijk')}, {one}, 0.0)", f"{one} {r.choice('+-')} {value(r, 'ijk', 1)}"])


def condition(r: random.Random, axes: Any) -> str:
    choices = [f"{ROW} < 9", f"C[{ROW}] > 0.0"]
    if "j" in axes:
        choices += [f"{COL} <= {ROW}", f"T[{COL}] >= 0", f"Z[{ROW}, {COL}] < 0.5"]
    if "k" in axes:
        choices += [f"{RED} <= {ROW}", f"{RED} < 7"]
    if "k" in axes and "j" in axes:
        choices += [f"{RED} + {COL} > 5"]
    return r.choice(choices)


def program(seed: int) -> str:
    r = random.Random(seed)
    op = r.choice(["sum", "sum", "sum", "max", "min"])
    start = {"sum": "0.0", "max": "-inf", "min": "inf"}[op]
    base = [ROWS, COLS, REDS] + ([condition(r, "ijk")] if r.random() < 0.5 else [])
    guard = " and ".join(base)
    term = product(r) if op == "sum" and r.random() < 0.6 else value(r, "ijk", 3)
    outside = f" where {ROWS} and {COLS}"
    body = f"""
      tile i in 0..8, j in 0..8 {{ acc[i, j] = {start} }}
      tile i in 0..8 {{ row[i] = 0.0 }}
      seq c in 0..3 {{
        tile i in 0..8, j in 0..8 {{ tile.red k in 0..4 {{ acc[i, j] {op}= {term} where {guard} }} }}
        tile i in 0..8 {{ tile.red k in 0..4 {{ row[i] sum= {value(r, "ik", 2)} where {ROWS} and {REDS} }} }}
      }}
    """
    final = f"tile i in 0..8, j in 0..8 {{ O[{ROW}, {COL}] = acc[i, j] + {value(r, 'ij', 2)}{outside} }}\n"
    again = f"tile i in 0..8, j in 0..8 {{ acc[i, j] = acc[i, j] * row[i]{outside} }}\n" if r.random() < 0.5 else ""
    # every block of b writes the same rows: one block only
    last = f"tile i in 0..8 {{ R[{ROW}] = row[i] where {ROWS} and b == 0 }}"
    return f"{HEAD}{body}{again}{final}{last}\n    }} }} }}"


@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed: int) -> None:
    p = parse_program(program(seed))
    data = random_inputs(p.buffers, seed)
    assert p.buffers[0].dtype is DType.F16
    with np.errstate(all="ignore"):
        want = run_program(p, data)
        m = lower(p)
        verify(m)
        assert_same(want, run_module(m, data), 1e-8)
        for step in ALL:
            m = step.apply(m)
            verify(m)
            assert_same(want, run_module(m, data), 1e-8)
