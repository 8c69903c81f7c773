"""``split-residues`` under strides, dilations and congruences. What it makes: ``split_residues.scalar``."""

from __future__ import annotations

from itertools import product

import pytest

from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.axes.split_residues import SplitResidues
from nautilus.scalar.passes.simplify import Simplify
from tests.scalar.expect import sound
from tests.scalar.programs.specs import agree


def split(text: str) -> Program:
    """Lower ``text`` and split; the result is sound and equal to the spec."""
    spec = load_text(text)
    before = Simplify().apply(lower(spec))
    after = SplitResidues().apply(before)
    assert after is not before
    sound(after)
    agree(spec, after)
    return after


TRANSPOSED = """
dim H = 4, W = 5, C = 2
const OH = {n} * H, OW = 3 * W + 1
input X: f32[C, H, W]
input F: f32[C, 3, 4]
output Y: f32[OH, OW]
T[y, x] = sum[c, r: 3, s: 4
  | (y + 1 - {a} * r) % {n} == 0 and 0 <= (y + 1 - {a} * r) // {n} < H and (x - s) % 3 == 0 and 0 <= (x - s) // 3 < W](
  X[c, (y + 1 - {a} * r) // {n}, (x - s) // 3] * F[c, r, s])
Y[y: OH, x: OW] = max(T[y, x], 0) + y
"""


@pytest.mark.parametrize(("a", "n"), [(1, 2), (2, 2), (1, 3), (2, 4), (3, 6), (4, 6), (5, 3), (7, 4)])
def test_strides_and_dilations(a: int, n: int) -> None:
    split(TRANSPOSED.replace("T[y, x]", "T[y: OH, x: OW]", 1).format(a=a, n=n))


@pytest.mark.parametrize(
    ("op", "c", "a", "k", "n"),
    [
        (op, c, a, k, n)
        for (op, c), a, k, n in product([("sum", 1), ("max", 5), ("prod", 7)], (0, 1, 3, 4), (5,), (4, 6))
    ],
)
def test_every_congruence(op: str, c: int, a: int, k: int, n: int) -> None:
    text = f"""
    dim N = 14, R = 7
    input X: f32[N, R, 2]
    output Y: f32[N, 2]
    Y[y, z] = {op}[r | ({c} * y + {a} * r + {k}) % {n} == 0 and r <= y](X[y, r, z])
    """
    before = Simplify().apply(lower(load_text(text)))
    if SplitResidues().apply(before) is not before:
        split(text)
