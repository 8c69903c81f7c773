"""``split-residues``: reductions under congruences visit the terms that satisfy them; others stay."""

from __future__ import annotations

from itertools import product

import pytest

from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.axes.split_residues import SplitResidues
from nautilus.scalar.passes.simplify import Simplify
from tests.scalar.expect import expect, sound
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


def test_indices_become_linear() -> None:
    text = TRANSPOSED.replace("+ y\n", "\n").replace("T[y, x]", "T[y: OH, x: OW]", 1)
    expect(
        split(text.format(a=2, n=5)),
        """
        temp T_residues: f32[4, 5, 6, 3]
        red c in 0..2, r_quotient in 0..1, s_quotient in 0..2 {
        X[c, y_quotient - r_quotient * 2 - (y_residue * 2 + 4) // 5 + 1, x_quotient - s_quotient] * F[c, r_quotient * 5
        kernel Y {
        Y[y_quotient * 5 + (y_residue * 2 + 4) % 5, x_quotient * 3 + x_residue] = max(T_residues[y_quotient, y_residue,
        """,
    )


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


def test_a_term_of_one_residue() -> None:
    text = """
    dim N = 6, R = 11
    input X: f32[R, N]
    output Y: f32[N]
    Y[y] = sum[r | (3 * r + 1) % 5 == 0](X[r, y])
    """
    expect(split(text), "red r_quotient in 0..2 {\nX[r_quotient * 5 + 3, y]\n!where")


def test_equal_remainders() -> None:
    text = """
    dim M = 8, K = 12, N = 5
    input A: f32[M, K]
    input B: f32[K, N]
    output C: f32[M, N]
    C[i, j] = sum[k | k % 4 == i % 4](A[i, k] * B[k, j])
    """
    want = "C[i_quotient * 4 + i_residue, j] sum= A[i_quotient * 4 + i_residue, k_quotient * 4 + i_residue]"
    expect(split(text), want + "\n!where\n!temp")


def test_no_read_leaves_a_tensor_behind_the_end_of_an_axis() -> None:
    """The condition of the spec does not bound the index, because the extent of ``y`` does."""
    text = """
    dim N = 7, R = 3
    input X: f32[4, 2]
    input F: f32[R]
    output Y: f32[N, 2]
    Y[y: N, z] = sum[r | (y - r) % 2 == 0 and r <= y](X[(y - r) // 2, z] * F[r])
    """
    expect(split(text), "temp Y_residues: f32[4, 2, 2]\nwhere r_quotient <= y_quotient")


@pytest.mark.parametrize(
    "text",
    [
        # rows of the operand along the reduced axis
        "input X: f32[M, K]\noutput Y: f32[M]\nY[i] = sum[j | j % 2 == i % 2](X[i, j])\n",
        # a loop that two reductions share
        "input X: f32[K, M]\noutput Y: f32[M]\nY[i] = sum[j | j % 2 == i % 2](X[j, i] - m[j])\n"
        "m[j] = max[i](X[j, i])\n",
        # two axes decide the residue
        "input X: f32[K, M]\noutput Y: f32[M, M]\nY[i, l] = sum[j | (i + l + j) % 2 == 0](X[j, i] + X[j, l])\n",
        # 2 * i has two residues modulo 4, j has four
        "input X: f32[K, M]\noutput Y: f32[M]\nY[i] = sum[j | (2 * i + j) % 4 == 0](X[j, i])\n",
    ],
)
def test_left_alone(text: str) -> None:
    p = Simplify().apply(lower(load_text("dim M = 6, K = 8\n" + text)))
    assert SplitResidues().apply(p) is p
