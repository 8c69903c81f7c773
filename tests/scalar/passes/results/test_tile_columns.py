"""``tile-columns``: which definitions are elementwise readers of a product, and which elements have 8 bits."""

from __future__ import annotations

import pytest

from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.results.tile_columns import _has_8_bits, _is_elementwise
from nautilus.scalar.rewriting import find_defs

PRODUCT = """
dim M = 16
input A: f16[M, M], B: f16[M, M]
output Y: f32[M, M]
P[i, j] = sum[k](A[i, k] * B[j, k])
s[i] = sum[j](P[i, j])
"""


@pytest.mark.parametrize(
    ("value", "elementwise"),
    [
        ("Y[i, j] = exp(P[i, j]) + A[i, j]", True),
        ("Y[i, j] = P[j, i]", True),
        ("Y[i, j] = P[i, j] + P[j, i]", False),
        ("Y[i, j] = P[i, 0] + A[i, j]", False),
        ("Y[i, j] = P[i, i] * A[i, j]", False),
        ("Y[i, j] = P[i, j] * s[i]", False),
        ("Y[i, j] = A[i, j] * s[i]", False),
        ("Y[i, j] = sum[k](P[i, j] * A[k, j])", False),
    ],
)
def test_elementwise_readers_of_a_product(value: str, elementwise: bool) -> None:
    defs = find_defs(lower(load_text(f"{PRODUCT.lstrip()}{value}\n")))
    assert _is_elementwise(defs["Y"], defs["P"], defs) == elementwise


def test_elements_of_8_bits() -> None:
    found = [t for t in (DType.F16, DType.F8E4M3, DType.I8, DType.U8, DType.I32, DType.F32) if _has_8_bits(t)]
    assert found == [DType.F8E4M3, DType.I8, DType.U8]
