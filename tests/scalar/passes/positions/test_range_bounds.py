"""Ranges have every admitted element, whatever the condition is and the tensors hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Op, rewrite
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Loop, Program, Store, Update
from nautilus.scalar.passes.positions.find_ranges import FindRanges
from nautilus.scalar.rewriting import map_kernels, map_statements, with_body
from nautilus.scalar.text import parse_program

M, N = 140, 200
TEXT = """program p {{
  input S: f32[{m}, {n}]
  input V: f32[{n}, 8]
  input doc: u8[{n}]
  input at: i32[{m}]
  input key: i32[{n}]
  input big: i32[{m}]
  input cu: i32[4]
  input mask: bool[{m}, {n}]
  input keep: bool[{n}]
  input time: f32[{n}]
  input now: f32[{m}]
  input wide: i64[{n}]
  input layout: bool[3, 4]
  output Y: f32[{m}, 8]
{params}  kernel Y {{
    par i in 0..{m}, d in 0..8 {{
      Y[i, d] = 0.0
      red j in 0..{n} {{
        Y[i, d] sum= S[i, j] * V[j, d] where {condition}
      }}
    }}
  }}
}}
"""
SIZES = ("", "  param M: i32 <= {most}\n  param N: i32 <= {most}\n")
ROWS = ("cast<i32>(doc[i])", "at[i]", "i", "at[i] + 1", "cu[at[i]]", "3")
COLUMNS = (
    "cast<i32>(doc[j])", "key[j]", "j", "key[j] - 2", "5", "at[i] - key[j]", "abs(i - j)", "j // 7",
    "min(at[i], key[j])", "big[i] + key[j]", "i % 5",
)  # fmt: skip
PARTS = ("mask[i, j]", "keep[j]", "time[j] <= now[i]", "layout[i // 64, j // 64]", "wide[i] == wide[j]")
COMPARISONS = ("<", "<=", "==", "!=", ">", ">=")


def condition(r: Random, depth: int = 2) -> str:
    if depth == 0 or r.random() < 0.3:
        comparison = f"{r.choice(ROWS)} {r.choice(COMPARISONS)} {r.choice(COLUMNS)}"
        return r.choice(PARTS) if r.random() < 0.3 else comparison
    a, b, c = (condition(r, depth - 1) for _ in range(3))
    return r.choice([f"not ({a})", f"select({a}, {b}, {c})", f"({a}) and ({b})", f"({a}) or ({b})"])


def arrays(seed: int) -> dict[str, np.ndarray]:
    g = np.random.default_rng(seed)

    def runs(size: int, most: int) -> np.ndarray:
        found = g.integers(0, most, size)
        return np.sort(found) if g.random() < 0.6 else found

    times = np.where(g.random(N) < 0.02, np.nan, runs(N, 50))
    return {
        "S": np.ones((M, N)), "V": np.ones((N, 8)), "doc": runs(N, 6), "at": runs(M, 4), "key": runs(N, 9),
        "big": g.choice([2**31 - 1, -(2**31), 0, 2**31 - 5], M), "cu": g.integers(-3, N, 4),
        "mask": g.random((M, N)) < 0.0005, "keep": g.random(N) < 0.01, "time": times, "now": runs(M, 20) * 1.0,
        "wide": runs(N, 6), "layout": g.random((3, 4)) < 0.3,
    }  # fmt: skip


def with_guards(p: Program, rule: Callable[[Op], Expr]) -> Program:
    """``p`` with each condition of which something is known replaced."""

    def known(e: Expr) -> Expr | None:
        return rule(e) if isinstance(e, Op) and e.op == "implied" else None

    def changed(_: tuple[Loop, ...], s: Store | Update) -> Store | Update:
        return s if s.guard is None else replace(s, guard=rewrite(s.guard, known))

    return map_kernels(p, lambda k: with_body(k, map_statements(k.body, changed)))


def found(seed: int) -> Program | None:
    r = Random(seed)
    late = seed % 3 == 0
    sizes = SIZES[late].format(most=1000 if seed % 2 else 2146435072)
    m, n = ("M", "N") if late else (M, N)
    before = parse_program(TEXT.format(m=m, n=n, params=sizes, condition=condition(r)))
    after = FindRanges(every=True).apply(before)
    return None if after is before else after


@pytest.mark.parametrize("seed", range(24))
def test_no_admitted_element_is_outside_of_its_range(seed: int) -> None:
    program = found(seed)
    if program is None:
        return  # a condition without memory, or of which nothing is known
    outside = with_guards(program, lambda e: calc("and", e.args[0], calc("not", e.args[2])))
    assert not np.any(run_program(outside, arrays(seed))["Y"])


def test_some_elements_are_outside_of_their_ranges() -> None:
    programs = [(seed, p) for seed in range(12) if (p := found(seed)) is not None]
    left = [with_guards(p, lambda e: calc("not", e.args[2])) for _, p in programs]
    counts = [np.sum(run_program(p, arrays(seed))["Y"]) for p, (seed, _) in zip(left, programs, strict=True)]
    assert sum(count > 0 for count in counts) > 2
