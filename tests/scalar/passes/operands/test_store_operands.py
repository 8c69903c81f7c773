"""``store-operands``: which operands become tensors, in what order, and what stays."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.factor import Factor
from nautilus.scalar.passes.inline import Inline
from nautilus.scalar.passes.narrow import Narrow
from nautilus.scalar.passes.operands import store_operands
from nautilus.scalar.passes.operands.store_operands import StoreOperands
from nautilus.scalar.passes.simplify import Simplify
from tests.scalar.expect import expect, sound
from tests.scalar.programs.specs import agree


@pytest.fixture(autouse=True)
def _small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_operands, "AGAIN", 4)
    monkeypatch.setattr(store_operands, "TERMS", 64)


def product(body: str) -> Spec:
    return load_text(
        "dim M = 5, N = 24, K = 8\ninput X: f16[M, K]\ninput Z: f16[2 * M, K]\ninput W: f16[K, N]\n"
        f"input at: i32[M]\ninput a: f32[K]\noutput Y: f32[M, N]\n{body}\n"
    )


def ready(spec: Spec) -> Program:
    p = Dead().apply(Factor().apply(Simplify().apply(Inline().apply(lower(spec)))))
    return Dead().apply(Narrow().apply(p))


def stored(body: str) -> Program:
    spec = product(body)
    p = StoreOperands().apply(ready(spec))
    sound(p)
    agree(spec, p)  # over the reals nothing happened: the stores do not round a second time
    return p


@pytest.mark.parametrize(
    ("body", "temp"),
    [
        ("sum[k](tanh(f32(X[i, k])) * W[k, j])", "Y_left[i, k] = cast<f32>(narrow<f16>(tanh(cast<f32>(X[i, k]))))"),
        ("sum[k](Z[2 * i, k] * W[k, j])", "Y_left[i, k] = cast<f32>(Z[i * 2, k])"),
        ("sum[k](Z[at[i], k] * W[k, j])", "Y_left[i, k] = cast<f32>(Z[at[i], k])"),
    ],
)
def test_a_left_operand(body: str, temp: str) -> None:
    p = stored(f"Y[i, j] = {body}")
    expect(p, "temp Y_left: f16[5, 8]")
    expect(p, temp)
    expect(p, "sum= cast<f32>(Y_left[i, k]) * cast<f32>(W[k, j])")


def test_a_right_operand_keeps_the_order_of_its_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_operands, "AGAIN", 5)
    p = stored("Y[i, j] = sum[k](X[i, k] * sigmoid(W[k, j]))")
    expect(p, "temp Y_right: f16[8, 24]")
    expect(p, "sum= cast<f32>(X[i, k]) * cast<f32>(Y_right[k, j])")


def test_the_axes_of_the_tile_are_last() -> None:
    spec = load_text(
        "dim M = 8, N = 24, K = 16, H = 3\ninput A: f16[M, K, H]\ninput B: f16[K, N, H]\noutput Y: f32[H, M, N]\n"
        "Y[h, i, j] = sum[k](A[i, k, h] * B[k, j, h])\n"
    )
    p = StoreOperands().apply(ready(spec))
    sound(p)
    agree(spec, p)
    expect(p, "temp Y_left: f16[3, 8, 16]\ntemp Y_right: f16[3, 16, 24]\nY_left[h, i, k] = cast<f32>(A[i, k, h])")


def test_a_product_of_tensors_over_different_axes_is_stored() -> None:
    spec = load_text(
        "dim M = 8, N = 24, K = 16, E = 3\ninput P: f32[M, E]\ninput X: bf16[M, K]\ninput W: bf16[E, K, N]\n"
        "output Y: f32[M, N]\nY[i, j] = sum[e, k](P[i, e] * X[i, k] * W[e, k, j])\n"
    )
    p = StoreOperands().apply(ready(spec))
    sound(p)
    agree(spec, p)
    expect(p, "temp Y_left: bf16[8, 3, 16]\nY_left[i, e, k] = ")
    expect(p, "sum= cast<f32>(Y_left[i, e, k]) * cast<f32>(W[e, k, j])")


def test_a_scaled_operand_is_stored_after_its_maximum() -> None:
    p = stored("Y[i, j] = sum[k](X[i, k] * a[k] * W[k, j])")
    expect(p, "Y_largest[i] max=")
    expect(p, "temp Y_acc_left: f16[5, 8]")
    names = [k.name for k in p.kernels]
    assert names == ["Y_largest", "Y_acc_left", "Y_acc", "Y"]


@pytest.mark.parametrize(
    "body",
    [
        "Y[i, j] = sum[k](X[i, k] * W[k, j])",  # both are tensors that bulk copies load
        "Y[i, j] = sum[k](tanh(a[k] + i) * W[k, j])",  # much larger than what it is made from
        "Y[i, j] = sum[k: 6](tanh(f32(X[i, k])) * W[k, j])",  # rows of 12 bytes
        "Y[i, j] = max[k](tanh(f32(X[i, k])) * W[k, j])",  # no product
    ],
)
def test_left_alone(body: str) -> None:
    p = ready(product(body))
    assert StoreOperands().apply(p) is p


def test_small_products_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    p = ready(product("Y[i, j] = sum[k](tanh(f32(X[i, k])) * W[k, j])"))
    for name, value in (("AGAIN", 25), ("TERMS", 5 * 24 * 8 + 1)):
        with monkeypatch.context() as m:
            m.setattr(store_operands, name, value)
            assert StoreOperands().apply(p) is p


def test_the_same_bits() -> None:
    """The operand is rounded once, as in the product."""
    spec = product("Y[i, j] = sum[k](X[i, k] * a[k] * W[k, j])")
    p = ready(spec)
    rng = np.random.default_rng(4)
    x = {"X": rng.standard_normal((5, 8)) * 300, "W": rng.standard_normal((8, 24)), "a": rng.standard_normal(8) * 1e5}
    x |= {"at": np.zeros(5), "Z": np.zeros((10, 8))}
    before, after = (run_program(q, x, mode="typed")["Y"] for q in (p, StoreOperands().apply(p)))
    np.testing.assert_array_equal(after, before)


HEADS = (
    "dim H = 4, M = 16, N = 8, D = 24\ninput Q: bf16[H, M, D]\ninput K: bf16[H // 2, N, D]\ninput C: f32[N, D]\n"
    "output Y: f32[H, M, N]\n"
)


def test_heads_that_share_an_operand_store_it_once() -> None:
    spec = load_text(HEADS + "Y[h, i, j] = sum[d](Q[h, i, d] * (K[h // 2, j, d] * C[j, d]))\n")
    p = StoreOperands().apply(ready(spec))
    sound(p)
    agree(spec, p)
    expect(p, "temp Y_right: bf16[2, 8, 24]")
    expect(p, "Y_right[h, j, d] = cast<f32>(narrow<bf16>(cast<f32>(K[h, j, d]) * C[j, d]))")
    expect(p, "sum= cast<f32>(Q[h, i, d]) * cast<f32>(Y_right[h // 2, j, d])")


def test_an_operand_under_a_condition_is_stored_where_all_of_it_can_be_read() -> None:
    spec = load_text(HEADS + "Y[h, i, j] = sum[d | d + i < 24](Q[h, i, d] * (K[h // 2, j, d] * C[j, d]))\n")
    p = StoreOperands().apply(ready(spec))
    sound(p)
    agree(spec, p)
    expect(p, "cast<f32>(Q[h, i, d]) * cast<f32>(Y_right[h // 2, j, d]) where d + i < 24")


def test_an_operand_that_a_condition_keeps_in_range_stays() -> None:
    spec = load_text(HEADS.replace("C: f32[N, D]", "C: f32[N, D - 1]") + (
        "Y[h, i, j] = sum[d: D | d + i < 23](Q[h, i, d] * (K[h // 2, j, d] * C[j, d]))\n"
    ))  # fmt: skip
    assert not any("right" in b.name for b in StoreOperands().apply(ready(spec)).buffers)


def test_a_factor_that_is_computed_in_f32_is_a_tensor_of_f32() -> None:
    spec = load_text(
        "dim M = 5, N = 24, K = 8\ninput X: f32[M, K]\ninput W: f32[K, N]\ninput a: f32[K]\noutput Y: f32[M, N]\n"
        "H[i, k] = max(X[i, k] + a[k], 0.0)\nY[i, j] = sum[k](H[i, k] * W[k, j])\n"
    )
    p = StoreOperands().apply(ready(spec))
    sound(p)
    agree(spec, p)
    expect(p, "temp Y_left: f32[5, 8]")
    expect(p, "sum= Y_left[i, k] * W[k, j]")
