"""``store-operands`` rounds an operand once, as in the product. What is stored: ``store_operands.scalar``."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.factor import Factor
from nautilus.scalar.passes.inline import Inline
from nautilus.scalar.passes.narrow import Narrow
from nautilus.scalar.passes.operands import store_operands
from nautilus.scalar.passes.operands.store_operands import StoreOperands
from nautilus.scalar.passes.simplify import Simplify


def test_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_operands, "AGAIN", 4)
    monkeypatch.setattr(store_operands, "TERMS", 64)
    spec = load_text(
        "dim M = 5, N = 24, K = 8\ninput X: f16[M, K]\ninput W: f16[K, N]\ninput a: f32[K]\noutput Y: f32[M, N]\n"
        "Y[i, j] = sum[k](X[i, k] * a[k] * W[k, j])\n"
    )
    p = Dead().apply(Factor().apply(Simplify().apply(Inline().apply(lower(spec)))))
    p = Dead().apply(Narrow().apply(p))
    rng = np.random.default_rng(4)
    x = {"X": rng.standard_normal((5, 8)) * 300, "W": rng.standard_normal((8, 24)), "a": rng.standard_normal(8) * 1e5}
    stored = StoreOperands().apply(p)
    assert stored is not p
    before, after = (run_program(q, x, mode="typed")["Y"] for q in (p, stored))
    np.testing.assert_array_equal(after, before)
