"""From which narrow tensors a value is made, and which definitions wide outputs depend on."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.ranges.precision import feeding_wide_outputs, significant_bits, sources
from nautilus.scalar.lowering import lower
from nautilus.scalar.rewriting import find_defs

HEAD = "dim M = 5, K = 6\ninput X: f16[M, K]\ninput B: bf16[K]\ninput R: f32[M, K]\ninput W: i8[M, K]\n"


def defs(body: str) -> Mapping[str, Def]:
    return find_defs(lower(load_text(HEAD + body)))


@pytest.mark.parametrize(
    ("value", "types"),
    [
        ("X[i, k] + B[k]", {DType.F16}),
        ("X[i, k] + R[i, k]", {DType.F16}),
        ("f32(W[i, k]) * R[i, k]", {DType.I8}),
        ("R[i, k] * B[k]", set()),
        ("R[i, k] - max[k](X[i, k])", set()),
    ],
)
def test_only_tensors_over_all_axes_count(value: str, types: set[DType]) -> None:
    found = defs(f"output Y: f32[M, K]\nY[i, k] = {value}\n")
    assert {ld.dtype for ld in sources(found["Y"].value, frozenset({"i", "k"}), found)} == types


def test_a_computed_tensor_is_made_from_what_its_definition_reads() -> None:
    found = defs("output Y: f32[M, M]\nS[i, j: M] = sum[k](X[i, k] * X[j, k])\nY[i, j] = exp(S[i, j])\n")
    assert {ld.buffer for ld in sources(found["Y"].value, frozenset({"i", "j"}), found)} == {"X"}


def test_what_wide_outputs_depend_on() -> None:
    text = "output Y: f16[M, K], L: f32[M]\nE[i, k] = exp(X[i, k])\nF[i, k] = E[i, k] * 2\nG[i, k] = tanh(X[i, k])\n"
    found = defs(text + "Y[i, k] = F[i, k] + G[i, k]\nL[i] = sum[k](E[i, k])\n")
    assert feeding_wide_outputs(found) == {"L", "E"}


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        ("X[i, k]", 11),
        ("X[i, k] * 0.25", 11),
        ("X[i, k] / 8", 11),
        ("X[i, k] * 3", 13),
        ("X[i, k] * B[k]", 19),
        ("X[i, k] / 3", 24),
        ("W[i, k] & 15", 4),
        ("((W[i, k] & 15) ^ 8) - 8", 5),
        ("W[i, k] ^ 5", 9),
        ("(W[i, k] | 64) >> 1", 32),
    ],
)
def test_the_bits_of_a_significand(value: str, bits: int) -> None:
    """A power of two keeps them; n bits and a sign are at most 2^n, which has one more."""
    integers = "&" in value or "^" in value or "|" in value
    found = defs(f"output Y: {'i32' if integers else 'f32'}[M, K]\nY[i, k] = {value}\n")
    assert significant_bits(found["Y"].value) == bits
