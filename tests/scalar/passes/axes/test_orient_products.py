"""``orient-products``: which factors are exchanged, and what stays."""

from __future__ import annotations

import pytest

from nautilus.check.certificates.rules import check
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.axes.orient_products import OrientProducts
from tests.scalar.expect import expect, sound
from tests.scalar.programs.specs import agree


def spec_of(body: str) -> Spec:
    return load_text("dim M = 4, N = 5, K = 6\ninput A: f16[M, K]\ninput B: f16[K, N]\n" + body)


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("output C: f32[M, N]\nC[i, j] = sum[k](B[k, j] * A[i, k])\n", "cast<f32>(A[i, k]) * cast<f32>(B[k, j])"),
        ("output C: f32[N, M]\nC[j, i] = sum[k](A[i, k] * B[k, j])\n", "cast<f32>(B[k, j]) * cast<f32>(A[i, k])"),
    ],
)
def test_the_last_axis_is_a_column(body: str, want: str) -> None:
    spec = spec_of(body)
    p, (certificate,) = OrientProducts().derive(lower(spec))
    sound(p)
    agree(spec, p)
    assert check(certificate).ok
    expect(p, want)


@pytest.mark.parametrize(
    "body",
    [
        "output C: f32[M, N]\nC[i, j] = sum[k](A[i, k] * B[k, j])\n",
        "output y: f32[M]\ny[i] = sum[j: N, k](A[i, k] * B[k, j])\n",  # no columns
        "output C: f32[N, M]\nC[j, i] = sum[k](sum[m: M](A[m, k] * A[i, k]) * B[k, j])\n",  # of another reduction
    ],
)
def test_left_alone(body: str) -> None:
    p = lower(spec_of(body))
    assert OrientProducts().derive(p) == (p, ())
