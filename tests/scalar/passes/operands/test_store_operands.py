"""``store-operands`` rounds an operand once, as in the product. What is stored: ``store_operands.scalar``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nautilus.driver import Request, compile_file
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_text
from nautilus.ma_tile.interp.module import run_module
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.factor import Factor
from nautilus.scalar.passes.inline import Inline
from nautilus.scalar.passes.narrow import Narrow
from nautilus.scalar.passes.operands import store_operands
from nautilus.scalar.passes.operands.store_operands import StoreOperands
from nautilus.scalar.passes.simplify import Simplify
from nautilus.vr_tile.interp import run_module as run_tiles


def test_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_operands, "AGAIN_INPUTS", 4)
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


PAGES = """
dim B = 2, M = 24, N = 48, D = 16, P = 8, NP = 9
input A: f16[B, M, N]
input V: f16[NP, P, D]
input page: i32[B, N // P]
input len: i32[B]
output O: f16[B, M, D]
O[b, i, d] = sum[j | j < len[b]](A[b, i, j] * V[page[b, j // P], j % P, d])
"""


@pytest.mark.parametrize("lengths", [(13, 48), (0, 1)])
def test_pages_beyond_a_length_may_be_anything(monkeypatch: pytest.MonkeyPatch, lengths: tuple[int, int]) -> None:
    monkeypatch.setattr(store_operands, "AGAIN_INPUTS", 4)
    monkeypatch.setattr(store_operands, "TERMS", 64)
    result = compile_file(Request(Path("pages.naut"), text=PAGES.lstrip()))
    rng = np.random.default_rng(5)
    a, v = (rng.standard_normal(shape).astype(np.float16).astype(float) for shape in ((2, 24, 48), (9, 8, 16)))
    v[8] = np.nan
    page = rng.integers(0, 8, (2, 6))
    for b, length in enumerate(lengths):
        page[b, -(-length // 8) :] = [8, -5, 10**6, -(2**31), 8, 9][: 6 - -(-length // 8)]
    given = {"A": a, "V": v, "page": page, "len": np.array(lengths)}
    want = run_spec(result.modules["spec"], given)["O"]
    for stage, run in (("scalar", run_program), ("vr-tile", run_tiles), ("ma-tile", run_module)):
        got = run(result.modules[stage], given)["O"]
        np.testing.assert_allclose(got, want, rtol=0, atol=4e-3 * float(np.abs(want).max()) + 1e-6, err_msg=stage)
