"""The interpreter against numpy, its errors, and its quick paths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nautilus.scalar.interp.program import ScalarRunError, run_program
from nautilus.scalar.text import parse_program
from tests.runtime.work import calls
from tests.scalar.programs import samples

RNG = np.random.default_rng(7)


def test_softmax_with_a_runtime_size() -> None:
    x = RNG.standard_normal((23, 40)).astype(np.float16)
    out = run_program(parse_program(samples.SOFTMAX), {"X": x})
    s = np.where(np.arange(40) <= np.arange(23)[:, None], x.astype(float) * 0.125, -np.inf)
    e = np.exp(s - s.max(1, keepdims=True))
    want = e / e.sum(1, keepdims=True)
    np.testing.assert_allclose(out["Y_sum"], e.sum(1))
    np.testing.assert_array_equal(out["Y"], want.astype(np.float16).astype(float))


@pytest.mark.parametrize("mode", ["real", "typed"])
def test_tiled_matmul(mode: Any) -> None:
    a, b = RNG.standard_normal((33, 20)).astype(np.float16), RNG.standard_normal((20, 17)).astype(np.float16)
    out = run_program(parse_program(samples.TILED), {"A": a, "B": b}, mode=mode)["C"]
    np.testing.assert_allclose(out, a.astype(float) @ b.astype(float), rtol=1e-5, atol=1e-5)


def run(body: str, inputs: Any, mode: Any = "real", **scalars: Any) -> Any:
    return run_program(parse_program(f"program p {{\n{body}\n}}"), inputs, scalars, mode)


SCAN = """
  input X: f32[5, 9]
  output Y: f32[5, 9]
  kernel Y {
    local c: f32[]
    grid i in 0..5 {
      c[] = 0.0
      seq j in 0..%s {
        c[] sum= X[i, j]
        Y[i, j] = c[]
      }
      seq j in %s..9 {
        Y[i, j] = 0.0
      }
    }
  }"""


def test_a_local_is_carried_by_seq_and_private_to_grid() -> None:
    x = RNG.standard_normal((5, 9)).astype(np.float32)
    np.testing.assert_allclose(run(SCAN % (9, 9), {"X": x})["Y"], x.astype(float).cumsum(1))


def test_bounds_may_depend_on_loops_that_run_at_once() -> None:
    x = RNG.standard_normal((5, 9)).astype(np.float32)
    want = np.where(np.arange(9) < np.arange(5)[:, None] * 2, x.astype(float).cumsum(1), 0)
    np.testing.assert_allclose(run(SCAN % ("i * 2", "i * 2"), {"X": x})["Y"], want)


def test_a_local_inside_a_reduction_loop_is_private_to_its_iterations() -> None:
    body = """
  input X: f32[6, 4, 5]
  output Y: f32[6]
  kernel Y {
    local s: f32[]
    par i in 0..6 {
      Y[i] = -inf
      red j in 0..4 {
        s[] = 0.0
        red d in 0..5 {
          s[] sum= X[i, j, d]
        }
        Y[i] max= s[] * s[]
      }
    }
  }"""
    x = RNG.standard_normal((6, 4, 5)).astype(np.float32)
    np.testing.assert_allclose(run(body, {"X": x})["Y"], (x.astype(float).sum(2) ** 2).max(1))


def test_gathers_scatters_and_diagonals() -> None:
    body = """
  input T: i32[7]
  input E: f32[4, 6]
  output A: f32[7, 6]
  output H: i32[4]
  output D: f32[4]
  kernel A { par t in 0..7, d in 0..6 { A[t, d] = E[T[t], d] } }
  kernel H {
    par v in 0..4 { H[v] = 0 }
    red t in 0..7 { H[T[t]] sum= 1 }
  }
  kernel D { par i in 0..4 { D[i] = E[i, i] * cast<f32>(i) } }"""
    t, e = RNG.integers(0, 4, 7), RNG.standard_normal((4, 6)).astype(np.float32)
    out = run(body, {"T": t, "E": e})
    np.testing.assert_array_equal(out["A"], e[t])
    np.testing.assert_array_equal(out["H"], np.bincount(t, minlength=4))
    np.testing.assert_array_equal(out["D"], e.astype(float)[np.arange(4), np.arange(4)] * np.arange(4))


def test_a_false_guard_or_branch_reads_nothing() -> None:
    body = """
  input X: f32[8]
  output Y: f32[10]
  output S: f32[]
  kernel Y { par i in 0..10 { Y[i] = select(i - 1 >= 0 and i - 1 < 8, X[i - 1], 0.0) } }
  kernel S {
    S[] = 0.0
    red i in 0..10 { S[] sum= X[i + 3] where i < 5 }
  }"""
    x = RNG.standard_normal(8).astype(np.float32)
    out = run(body, {"X": x})
    np.testing.assert_array_equal(out["Y"], [0, *x, 0])
    np.testing.assert_allclose(out["S"], x[3:].astype(float).sum())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("kernel Y { par i in 0..9 { Y[i] = X[i] } }", "X has extent 8, accessed at 8 by i"),
        ("kernel Y { par i in 0..7 { Y[i] = X[i] } }", "Y: 1 of 8 elements are never written"),
        ("kernel Y { par i in 0..8 { Y[i] = T[i] } }", "T is read before it is written"),
        ("kernel Y { red i in 0..8 { Y[i] sum= X[i] } }", "Y is updated before it is initialised"),
        ("kernel Y { local c: f32[] par i in 0..8 { Y[i] = c[] } }", "c is read before it is written"),
        ("kernel Y { par i in 0..8 { Y[0] = X[i] } }", "Y is written several times in one step"),
    ],
)
def test_errors_name_the_statement(body: str, message: str) -> None:
    with pytest.raises(ScalarRunError, match=r"in kernel Y: Y|never written") as e:
        run(f"input X: f32[8]\noutput Y: f32[8]\ntemp T: f32[8]\n{body}", {"X": np.ones(8)})
    assert message in str(e.value)


def test_a_support_is_checked() -> None:
    text = "temp T: f32[4] zero unless i0 < {}\nkernel T {{ par i in 0..4 {{ T[i] = select(i < 3, 1.0, 0.0) }} }}"
    run(text.format(3), {})
    with pytest.raises(ScalarRunError, match="T is not 0 where its support is false"):
        run(text.format(2), {})


def test_missing_values() -> None:
    p = parse_program(samples.SOFTMAX)
    with pytest.raises(ScalarRunError, match="no value for scalar R"):
        run_program(p, {})
    with pytest.raises(ScalarRunError, match="no value for input X"):
        run_program(p, {}, {"R": 3})
    with pytest.raises(ScalarRunError, match=r"input X has shape \(3, 40\), declared \(4, 40\)"):
        run_program(p, {"X": np.ones((3, 40))}, {"R": 4})


DOT = """
  input A: f16[2, 50, 20]
  input B: f16[2, 60, 20]
  output C: f32[2, 50, 60]
  kernel C {
    par b in 0..2, i in 0..50, j in 0..60 {
      C[b, i, j] = 0.0
      red k in 0..20 {
        C[b, i, j] sum= cast<f32>(A[b, i, k]) * cast<f32>(B[b, j, k]) * 0.5 where k <= i
      }
    }
  }"""


@pytest.mark.parametrize("poison", [False, True])
def test_contractions_equal_the_plain_sum_even_beside_nan(poison: float) -> None:
    a, b = RNG.standard_normal((2, 50, 20)).astype(np.float16), RNG.standard_normal((2, 60, 20)).astype(np.float16)
    if poison:
        b[:, :, 15:] = np.nan  # rows i < 15 do not read it
    out = run(DOT, {"A": a, "B": b})["C"]
    mask = np.arange(20) <= np.arange(50)[:, None]
    products = a.astype(float)[:, :, None] * b.astype(float)[:, None] * 0.5
    want = np.where(mask[None, :, None], products, 0).sum(-1)
    np.testing.assert_allclose(out, want, atol=1e-12)


def test_integer_products_are_exact_and_wrap() -> None:
    body = """
  input A: i32[3, 4]
  output C: i32[3]
  kernel C { par i in 0..3 { C[i] = 0 red k in 0..4 { C[i] sum= A[i, k] * A[i, k] } } }"""
    a = RNG.integers(-(2**31), 2**31, (3, 4))
    want = (a * a).astype(np.int32).sum(1).astype(np.int32)
    np.testing.assert_array_equal(run(body, {"A": a})["C"], want)


def test_typed_mode_rounds_and_narrows() -> None:
    body = """
  input X: f32[4]
  output Y: f32[4]
  output Z: f32[4]
  kernel Y { par i in 0..4 { Y[i] = cast<f32>(narrow<f16>(X[i])) } }
  kernel Z { par i in 0..4 { Z[i] = X[i] + 1.0 } }"""
    x = RNG.standard_normal(4).astype(np.float32)
    real, typed = (run(body, {"X": x}, mode) for mode in ("real", "typed"))
    np.testing.assert_array_equal(real["Y"], x)
    np.testing.assert_array_equal(typed["Y"], x.astype(np.float16))
    np.testing.assert_array_equal(real["Z"], x.astype(float) + 1)
    np.testing.assert_array_equal(typed["Z"], x + np.float32(1))


ATTENTION = """
  input Q: f16[1, 4, 333, 128]
  input K: f16[1, 4, 333, 128]
  input V: f16[1, 4, 333, 128]
  output O: f16[1, 4, 333, 128]
  temp S: f32[1, 4, 333, 333]
  temp m: f32[1, 4, 333]
  temp l: f32[1, 4, 333]
  temp O_acc: f32[1, 4, 333, 128]
  kernel S {
    par b in 0..1, h in 0..4, i in 0..333, j in 0..333 {
      S[b, h, i, j] = 0.0
      red d in 0..128 { S[b, h, i, j] sum= cast<f32>(Q[b, h, i, d]) * cast<f32>(K[b, h, j, d]) }
    }
  }
  kernel m {
    par b in 0..1, h in 0..4, i in 0..333 {
      m[b, h, i] = -inf
      red j in 0..333 { m[b, h, i] max= S[b, h, i, j] where j <= i }
    }
  }
  kernel l {
    par b in 0..1, h in 0..4, i in 0..333 {
      l[b, h, i] = 0.0
      red j in 0..333 { l[b, h, i] sum= exp(S[b, h, i, j] - m[b, h, i]) where j <= i }
    }
  }
  kernel O_acc {
    par b in 0..1, h in 0..4, i in 0..333, d in 0..128 {
      O_acc[b, h, i, d] = 0.0
      red j in 0..333 {
        O_acc[b, h, i, d] sum= exp(S[b, h, i, j] - m[b, h, i]) / l[b, h, i] * cast<f32>(V[b, h, j, d]) where j <= i
      }
    }
  }
  kernel O {
    par b in 0..1, h in 0..4, i in 0..333, d in 0..128 { O[b, h, i, d] = O_acc[b, h, i, d] }
  }"""


def test_products_of_hundreds_of_rows_are_products_of_arrays() -> None:
    q, k, v = (RNG.standard_normal((1, 4, 333, 128)).astype(np.float16) for _ in range(3))
    out: dict[str, Any] = {}
    assert calls(lambda: out.update(run(ATTENTION, {"Q": q, "K": k, "V": v}))) < 30_000
    s = np.einsum("bhid,bhjd->bhij", q.astype(float), k.astype(float), optimize=True)
    s = np.where(np.tril(np.ones((333, 333), bool)), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    want = np.einsum("bhij,bhjd->bhid", p / p.sum(-1, keepdims=True), v.astype(float), optimize=True)
    np.testing.assert_allclose(out["O"], want, atol=2e-3)


@pytest.mark.parametrize("value", [20_000, 30_000, 50_000, 70_000])
def test_a_product_of_integers_wraps(value: int) -> None:
    text = """
    program p {
      input A: i32[2, 3]
      input B: i32[3, 2]
      output C: i32[2, 2]
      kernel C {
        par i in 0..2, j in 0..2 {
          C[i, j] = 0
          red k in 0..3 {
            C[i, j] sum= A[i, k] * B[k, j]
          }
        }
      }
    }
    """
    a, b = np.full((2, 3), value), np.full((3, 2), value)
    want = (3 * value * value + 2**31) % 2**32 - 2**31
    assert np.array_equal(run_program(parse_program(text), {"A": a, "B": b})["C"], np.full((2, 2), want))
