"""``simplify``: canonical indices, guards and values; results do not change."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.text import parse_program
from tests.scalar.expect import expect, sound
from tests.scalar.programs.specs import LANGUAGE, SHIPPED, agree, language, small

PROGRAM = """program p {
  input X: f16[8, 1]
  input T: i32[8]
  output Y: f32[8, 1]
  output m: f32[1]
  param N: i32
  param eps: f32
  kernel Y {
    par i in 0..8, k in 0..1 {
      Y[i, k] = (cast<f32>(X[i * 2 // 2, k]) / 4.0 + 0.0) * (2.0 * 0.5) where i < 8 and 2 * i <= N
    }
  }
  kernel m {
    par k in 0..1 {
      m[k] = 0.0
      red i in 0..8 {
        m[k] sum= eps * select(T[i] > 3, Y[i, k], 0.0) / 2.0 where i + k >= 0 and k < 1
      }
    }
  }
}
"""


def test_each_part() -> None:
    p = Simplify().apply(parse_program(PROGRAM))
    sound(p)
    expect(
        p,
        """
        par i in 0..8, k in 0..1 {
        Y[i, k] = cast<f32>(X[i, k]) * 0.25 where i * 2 <= N
        par k in 0..1 {
        m[k] sum= eps * Y[i, k] * 0.5 where T[i] >= 4
        """,
    )


def test_nothing_to_do_gives_the_same_object() -> None:
    p = Simplify().apply(parse_program(PROGRAM))
    assert Simplify().apply(p) is p


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_specs(path: Path) -> None:
    spec = small(path)
    p = Simplify().apply(lower(spec))
    sound(p)
    agree(spec, p)
    assert Simplify().apply(p) is p


@pytest.mark.parametrize("name", LANGUAGE)
def test_language(name: str) -> None:
    spec = language(name)
    p = Simplify().apply(lower(spec))
    sound(p)
    agree(spec, p)
