"""Passes keep every iteration at the declared sizes, and one iteration more or less is found."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from nautilus.check.validate.index_sets import validate
from nautilus.core.expr.nodes import Const, Op
from nautilus.scalar.ir import Loop, Program, Update
from nautilus.scalar.text import parse_program
from tests.check.planted import mutated
from tests.check.validate.test_passes import SPECS, levels

pytest.importorskip("islpy")

LARGE = SPECS["running maximum"].replace("M = 33, N = 77", "M = 3333, N = 7777").replace("i + 40", "i")

CHAIN = """
program t {
  input X: f32[4096, 4096]
  output S: f32[4096]
  kernel S {
    local acc: f32[64]
    grid i0 in 0..64 {
      tile i in 0..64 {
        acc[i] = 0.0
      }
      seq j0 in %s {
        tile i in 0..64 {
          tile.red j in 0..64 {
            acc[i] sum= X[i0 * 64 + i, j0 * 64 + j] where j0 * 64 + j <= i0 * 64 + i
          }
        }
      }
      %s
      tile i in 0..64 {
        S[i0 * 64 + i] = acc[i]
      }
    }
  }
}
"""
FULL = """seq j0 in %s {
        tile i in 0..64 {
          tile.red j in 0..64 {
            acc[i] sum= X[i0 * 64 + i, j0 * 64 + j]
          }
        }
      }"""


def program(first: str, second: str = "") -> Program:
    return parse_program(CHAIN % (first, FULL % second if second else ""), "t")


def test_every_pass_keeps_its_iterations() -> None:
    made = [x for x in levels(LARGE) if x.stage == "scalar"]
    found = {b.step: validate(a.module, b.module) for a, b in pairwise(made)}
    assert {step: v.text for step, v in found.items() if v.status == "refuted"} == {}
    assert {step for step, v in found.items() if v.status != "proved"} <= {
        "inline",
        "factor",
        "narrow",
        "fuse",
        "rolling-update",
    }
    assert found["split"].points == 4
    assert found["partition"].points >= 2


@pytest.mark.parametrize(("first", "second", "status"), [
    ("i0..i0 + 1", "0..i0", "proved"),
    ("i0..64", "0..i0", "proved"),
    ("i0..i0 + 1", "0..i0 + 1", "refuted"),  # the diagonal twice
    ("i0..i0 + 1", "1..i0", "refuted"),  # the first block is left out
    ("i0 + 1..i0 + 2", "0..i0", "refuted"),  # the diagonal is left out
    ("i0..i0", "0..i0 - 1", "refuted"),
])  # fmt: skip
def test_a_partition_covers_every_iteration_once(first: str, second: str, status: str) -> None:
    assert validate(program("0..64"), program(first, second)).status == status


def shorter(n: Any) -> Any:
    """A reduction loop without its last iteration."""
    if isinstance(n, Loop) and n.kind.is_reduction and isinstance(n.hi, Const):
        return Loop(n.var, n.lo, Const(int(n.hi.value) - 1, n.hi.dtype), n.kind, n.body)
    return None


def strict(n: Any) -> Any:
    """A guard that leaves out the diagonal."""
    return Op("lt", n.args, n.dtype) if isinstance(n, Op) and n.op == "le" else None


def unguarded(n: Any) -> Any:
    return Update(n.buffer, n.op, n.index, n.value) if isinstance(n, Update) and n.guard is not None else None


@pytest.mark.parametrize("rule", [shorter, strict, unguarded])
@pytest.mark.parametrize("step", ["split", "reorder", "simplify"])
def test_a_lost_or_a_new_iteration_is_not_proved(step: str, rule: Any) -> None:
    made = [x for x in levels(LARGE) if x.stage == "scalar"]
    before, after = next((a, b) for a, b in pairwise(made) if b.step == step)
    assert validate(before.module, mutated(after.module, rule)).status != "proved"
