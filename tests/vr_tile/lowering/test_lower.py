"""The lowering against the Scalar interpreter, on hand-written programs in tiled form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nautilus.core.errors import UnsupportedError
from nautilus.vr_tile import text
from nautilus.vr_tile.interp import run_module
from nautilus.vr_tile.ir import DotOp, ForOp, LoadOp, StoreOp, TileModule, results, walk_ops
from tests.vr_tile import programs
from tests.vr_tile.support import check_lowering, lowered, ops


def find(m: TileModule, kind: Any) -> Any:
    return [op for op in walk_ops(m.kernels[0].body) if isinstance(op, kind)]


def program(buffers: str, body: str, locals_: str = "", grid: str = "grid g in 0..1") -> str:
    return f"program p {{\n{buffers}\nkernel k {{\n{locals_}\n{grid} {{\n{body}\n}} }} }}"


def test_attention(filecheck: Callable[..., None]) -> None:
    m = check_lowering(programs.ATTENTION)
    filecheck(
        text.format(m),
        """
        // CHECK: for j0 in 0..2 * i0 chain c0
        // CHECK: dot %q_tile, %k_tile over k : f32[i: 16, j: 8]
        // CHECK: narrow {{.*}} : f16[i: 16, j: 8]
        // CHECK-NEXT: load V[0, 0, j0 * 8 + j, d] : f16[d: 16, j: 8]
        // CHECK-NEXT: dot {{.*}} + {{.*}} over j : f32[i: 16, d: 16]
        // CHECK: for j0 in 2 * i0..min(2 * i0 + 2, 5) chain c0
        // CHECK: store O[0, h, i0 * 16 + i, d], {{.*}} where i0 * 16 + i < 40
        """,
    )
    assert [len(f.results) for f in find(m, ForOp)] == [3, 3]


def test_rowwise() -> None:
    m = check_lowering(programs.ROWWISE)
    assert ops(m).count("select") == 1  # of the max: the sum's loads are 0 where masked


def test_spans_survive() -> None:
    m = lowered(programs.ATTENTION)
    lines = {op.span.line for op in walk_ops(m.kernels[0].body)}
    assert 0 not in lines and len(lines) > 8


MATMUL = """
  tile i in 0..4, j in 0..8 { acc[i, j] = 0.0 }
  seq k0 in 0..3 { tile i in 0..4, j in 0..8 { tile.red k in 0..4 { acc[i, j] sum= TERM } } }
  tile i in 0..4, j in 0..8 { C[i, j] = acc[i, j] }
"""
MATMUL_BUFFERS = """
  input A: f16[4, 12]
  input B: f16[12, 8]
  input D: f16[4, 12]
  input E: f32[12, 8]
  input S: f32[4]
  input W: f32[12]
  output C: f32[4, 8]
"""
A, B, D, E, S, W = (
    "cast<f32>(A[i, k0 * 4 + k])",
    "cast<f32>(B[k0 * 4 + k, j])",
    "cast<f32>(D[i, k0 * 4 + k])",
    "E[k0 * 4 + k, j]",
    "S[i]",
    "W[k0 * 4 + k]",
)


@pytest.mark.parametrize(
    ("term", "dots", "operand"),
    [
        (f"{A} * {B}", 1, "f16"),
        (f"{B} * {A}", 1, "f16"),
        (f"-({A} * {B})", 1, "f16"),
        (f"{A} * {B} / {S}", 1, "f16"),
        (f"{A} * {S} * {B}", 1, "f16"),
        (f"{A} * {B} * {W}", 1, "f32"),
        (f"{A} * {E}", 1, "f32"),
        (f"{A} * {B} + {D} * {B}", 2, "f16"),
        (f"{A} * {B} - {D} * {B}", 2, "f16"),
        (f"{A} * {B} + {W}", 1, "f16"),
        (f"({A} + {D}) * {B}", 1, "f32"),
        (f"select(k0 * 4 + k < i, {A} * {B}, 0.0)", 1, "f16"),
        (f"{A} + {B}", 0, None),
        (f"{A} * {D}", 0, None),
        (f"exp({A} * {B})", 0, None),
        (f"{W}", 0, None),
        (f"{A} * {B} * select(i + j > k, 1.0, 2.0)", 0, None),
    ],
)
def test_sums_of_products(term: str, dots: int, operand: str) -> None:
    source = program(MATMUL_BUFFERS, MATMUL.replace("TERM", term), "local acc: f32[4, 8]")
    m = check_lowering(source)
    found = find(m, DotOp)
    assert len(found) == dots
    assert all(str(d.a.type.dtype) == operand for d in found)


def test_the_running_sum_is_the_accumulator() -> None:
    m = lowered(program(MATMUL_BUFFERS, MATMUL.replace("TERM", f"{A} * {B}"), "local acc: f32[4, 8]"))
    (loop,), (dot,) = find(m, ForOp), find(m, DotOp)
    assert dot.acc == loop.carried[0][0] and loop.yields == (dot.result,)


def test_vectors_reduce_unless_asked() -> None:
    body = """
      tile i in 0..4 { acc[i] = 0.0 }
      tile i in 0..4 { tile.red k in 0..12 { acc[i] sum= cast<f32>(A[i, k]) * cast<f32>(X[k]) } }
      tile i in 0..4 { C[i] = acc[i] }
    """
    source = program("input A: f16[4, 12]\ninput X: f16[12]\noutput C: f32[4]", body, "local acc: f32[4]")
    assert not find(check_lowering(source), DotOp)
    assert len(find(check_lowering(source, vector_dots=True), DotOp)) == 1


@pytest.mark.parametrize(("element", "total"), [("i8", "i32"), ("i16", "i64"), ("i32", "i64")])
def test_integer_dot(element: str, total: str) -> None:
    """The operands keep their bits, also where the sum has more than their compute type."""
    body = """
      tile i in 0..4, j in 0..8 { acc[i, j] = ZERO }
      tile i in 0..4, j in 0..8 { tile.red k in 0..12 { acc[i, j] sum= cast<T>(A[i, k]) * cast<T>(B[k, j]) } }
      tile i in 0..4, j in 0..8 { C[i, j] = acc[i, j] }
    """.replace("<T>", f"<{total}>").replace("ZERO", "0" if total == "i32" else "cast<i64>(0)")
    buffers = f"input A: {element}[4, 12]\ninput B: {element}[12, 8]\noutput C: {total}[4, 8]"
    (dot,) = find(check_lowering(program(buffers, body, f"local acc: {total}[4, 8]")), DotOp)
    assert str(dot.a.type.dtype) == element and str(dot.result.type.dtype) == total and dot.acc is None


def test_axes_of_one_element_vanish() -> None:
    body = "tile r in 0..1, c in 0..8 { Y[g + r, c] = X[g + r, c] * 2.0 }"
    m = check_lowering(program("input X: f32[3, 8]\noutput Y: f32[3, 8]", body, grid="grid g in 0..3"))
    assert [a.name for a in m.kernels[0].axes] == ["c"]


def test_padding_is_not_read() -> None:
    """The masked tail of a row may hold anything, and lies outside the buffer."""
    (a, b) = find(lowered(programs.ROWWISE), LoadOp)[:2]
    assert text.format_op(a).endswith("where r0 * 4 + r < 6 and c < 13 : f32[r: 4, c: 16]")
    assert a.mask == b.mask


def test_garbage_at_excluded_points_does_no_harm() -> None:
    """Elements that a guard excludes may be NaN, in a reduction and in both operands of a dot."""
    body = """
      tile i in 0..4, d in 0..8 { acc[i, d] = 0.0 }
      tile i in 0..4 { s[i] = 0.0 }
      tile i in 0..4, d in 0..8 { tile.red j in 0..8 {
        acc[i, d] sum= exp(P[i, j]) * V[j, d] where j < N[0] } }
      tile i in 0..4 { tile.red j in 0..8 { s[i] sum= P[i, j] * P[i, j] where j < N[0] } }
      tile i in 0..4, d in 0..8 { O[i, d] = acc[i, d] + s[i] }
    """
    buffers = "input P: f32[4, 8]\ninput V: f32[8, 8]\ninput N: i32[1]\noutput O: f32[4, 8]"
    source = program(buffers, body, "local acc: f32[4, 8]\nlocal s: f32[4]")
    p, v = np.ones((4, 8)), np.ones((8, 8))
    p[:, 5:] = np.nan
    v[5:] = np.nan
    m = check_lowering(source, {"P": p, "V": v, "N": np.array([5])})
    assert len(find(m, DotOp)) == 1
    assert np.isfinite(run_module(m, {"P": p, "V": v, "N": np.array([5])})["O"]).all()


def test_zero_times_infinity_keeps_the_select() -> None:
    """A zero-filled factor does not excuse a select where the other one may be inf."""
    body = """
      tile i in 0..4 { s[i] = 0.0 }
      tile i in 0..4 { tile.red j in 0..8 { s[i] sum= X[i, j] * exp(X[i, j] * -1000.0 + Z[i]) where j < 5 } }
      tile i in 0..4 { O[i] = s[i] }
    """
    source = program("input X: f32[4, 5]\ninput Z: f32[4]\noutput O: f32[4]", body, "local s: f32[4]")
    m = check_lowering(source, {"X": np.ones((4, 5)), "Z": np.full(4, 1000.0)})
    assert "select" in ops(m)


def test_rows_that_are_read_keep_their_value() -> None:
    """A guard over rows stays where another statement reads the excluded rows without it."""
    body = """
      tile i in 0..4 { s[i] = 1.0 }
      tile i in 0..4 { tile.red j in 0..8 { s[i] sum= X[i, j] + 1.0 where i < 3 } }
      tile z in 0..2 { t[z] = 0.0 }
      tile z in 0..2 { tile.red i in 0..4 { t[z] sum= s[i] } }
      tile z in 0..2 { O[z] = t[z] }
    """
    source = program("input X: f32[4, 8]\noutput O: f32[2]", body, "local s: f32[4]\nlocal t: f32[2]")
    assert "select" in ops(check_lowering(source))


def test_lazy_select_and_gather() -> None:
    body = """
      tile i in 0..8, d in 0..4 {
        Y[g * 8 + i, d] = select(T[g * 8 + i] >= 0, cast<f32>(E[T[g * 8 + i], d]), 0.5)
          + select(g * 8 + i + 1 < 13, X[g * 8 + i + 1], 0.25) where g * 8 + i < 13 }
    """
    buffers = "input T: i32[13]\ninput E: f16[5, 4]\ninput X: f32[13]\noutput Y: f32[13, 4]"
    m = check_lowering(program(buffers, body, grid="grid g in 0..2"))
    assert any("where %t_tile" in text.format_op(op) for op in find(m, LoadOp))


def test_paged_gather() -> None:
    body = """
      tile i in 0..4 { s[i] = 0.0 }
      seq j0 in 0..3 {
        tile i in 0..4 { tile.red j in 0..8 {
          s[i] sum= Q[i] * K[P[(j0 * 8 + j) // 4], j % 4] where j0 * 8 + j < N[0] } } }
      tile i in 0..4 { O[i] = s[i] }
    """
    buffers = "input P: i32[6]\ninput N: i32[1]\ninput Q: f32[4]\ninput K: f32[9, 4]\noutput O: f32[4]"
    data = {"P": np.array([3, 8, 0, 5, -7, 99]), "N": np.array([15])}
    check_lowering(program(buffers, body, "local s: f32[4]"), data)


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize(
    "guard", ["", "where j <= i", "where i < 3", "where i < 3 and j <= i and j < 5", "where X[i, j] > 0.0"]
)
def test_combiners_and_guards(op: str, guard: str) -> None:
    start = {"sum": "0.0", "prod": "1.0", "max": "-inf", "min": "inf"}[op]
    body = f"""
      tile i in 0..4 {{ s[i] = {start} }}
      tile i in 0..4 {{ tile.red j in 0..6 {{ s[i] {op}= X[i, j] * 2.0 + 1.0 {guard} }} }}
      tile i in 0..4 {{ O[i] = s[i] }}
    """
    check_lowering(program("input X: f32[4, 6]\noutput O: f32[4]", body, "local s: f32[4]"))


@pytest.mark.parametrize("op", ["any", "all"])
def test_logic(op: str) -> None:
    body = f"""
      tile i in 0..4 {{ s[i] = {"false" if op == "any" else "true"} }}
      tile i in 0..4 {{ tile.red j in 0..8 {{ s[i] {op}= X[i, j] where j < 6 }} }}
      tile i in 0..4 {{ O[i] = s[i] }}
    """
    check_lowering(program("input X: bool[4, 6]\noutput O: bool[4]", body, "local s: bool[4]"))


def test_values_that_lack_an_axis() -> None:
    body = """
      tile i in 0..4, j in 0..8 { t[i, j] = X[i] }
      seq n in 0..3 { tile i in 0..4, j in 0..8 { t[i, j] = X[i] * 2.0 + Y[j] where n == 1 } }
      tile i in 0..4 { s[i] = 0.0 }
      tile i in 0..4 { tile.red j in 0..8 { s[i] sum= X[i] } }
      tile i in 0..4, j in 0..8 { O[i, j] = t[i, j] + s[i] }
      tile i in 0..4, j in 0..8 { R[i, j] = X[i] }
      tile i in 0..4, j in 0..8 { Z[i, j] = 1.5 }
    """
    buffers = "input X: f32[4]\ninput Y: f32[8]\noutput O: f32[4, 8]\noutput R: f32[4, 8]\noutput Z: f32[4, 8]"
    check_lowering(program(buffers, body, "local t: f32[4, 8]\nlocal s: f32[4]"))


def test_nested_loops_and_two_kernels() -> None:
    source = """
    program two {
      input X: f32[12, 6]
      output O: f32[4]
      temp T: f32[4, 3]
      kernel first {
        local s: f32[4]
        grid g in 0..3 {
          tile i in 0..4 { s[i] = 0.0 }
          seq a in 0..2 { seq b in a..3 { tile i in 0..4 { s[i] = s[i] * 0.5 + X[i + 4 * a, b + g] } } }
          tile i in 0..4 { T[i, g] = s[i] }
        }
      }
      kernel second {
        local m: f32[4]
        tile i in 0..4 { m[i] = -inf }
        tile i in 0..4 { tile.red g in 0..3 { m[i] max= T[i, g] } }
        tile i in 0..4 { O[i] = m[i] }
      }
    }
    """
    check_lowering(source)


def test_runtime_size() -> None:
    source = """
    program p {
      input X: f32[N]
      output Y: f32[N]
      param N: i32
      kernel k { grid g in 0..(N + 7) // 8 { tile i in 0..8 {
         Y[g * 8 + i] = X[g * 8 + i] * 2.0 where g * 8 + i < N } } }
    }
    """
    m = lowered(source)
    x = np.arange(13.0)
    np.testing.assert_array_equal(run_module(m, {"X": x}, {"N": 13})["Y"], 2 * x)
    assert [op.mask is not None for op in find(m, StoreOp)] == [True]


def test_refusals() -> None:
    body = "tile i in 0..4 { O[i] sum= X[i] }"
    with pytest.raises(UnsupportedError, match="update of a buffer in global memory"):
        lowered(program("input X: f32[4]\noutput O: f32[4]", body))
    body = "tile i in 0..4 { s[i] = X[i] }\ntile i in 0..4 { O[i] = s[3 - i] }"
    with pytest.raises(UnsupportedError, match="a local that is not a tile"):
        lowered(program("input X: f32[4]\noutput O: f32[4]", body, "local s: f32[4]"))


def test_a_guard_that_reads_memory_is_split() -> None:
    """Each bound goes to the operand that has its axes, and the sum of products stays one ``dot``."""
    guard = "select(j0 * 4 + j < 10, select(e < 6, W[i, j0 * 4 + j], false), false)"
    body = f"""
  tile i in 0..4, e in 0..8 {{ acc[i, e] = 0.0 }}
  seq j0 in 0..3 {{ tile i in 0..4, e in 0..8 {{ tile.red j in 0..4 {{
    acc[i, e] sum= cast<f32>(narrow<f16>(S[i, j0 * 4 + j] * 2.0)) * cast<f32>(V[j0 * 4 + j, e]) where {guard}
  }} }} }}
  tile i in 0..4, e in 0..8 {{ O[i, e] = acc[i, e] where e < 6 }}"""
    buffers = "input S: f32[4, 10]\ninput V: f16[10, 6]\ninput W: bool[4, 10]\noutput O: f32[4, 6]"
    m = check_lowering(program(buffers, body, "local acc: f32[4, 8]"))
    assert [op.a.type.names for op in find(m, DotOp)] == [("i", "j")]
    assert not any({"i", "e", "j"} <= set(r.type.names) for op in walk_ops(m.kernels[0].body) for r in results(op))


SCAN_BUFFERS = "input X: f32[4, 8]\noutput Y: f32[2, 4, 8]"
SCAN = """
  tile i in 0..4, t in 0..8 { acc[i, t] = START }
  tile i in 0..4, t in 0..8 { tile.red u in 0..8 { acc[i, t] OP= X[i, u] where COND } }
  tile i in 0..4, t in 0..8 { Y[g, i, t] = acc[i, t] }
"""


@pytest.mark.parametrize(
    ("op", "start", "condition", "text_"),
    [
        ("sum", "0.0", "u <= t", "scan sum %x_tile over u into t"),
        ("sum", "0.0", "u < t", "scan sum %x_tile over u into t exclusive"),
        ("max", "-inf", "t <= u", "scan max %x_tile over u into t reverse"),
        ("prod", "1.0", "t < u and u < 7", "scan prod %{{.*}} over u into t reverse exclusive"),
        ("sum", "0.0", "u + 1 <= t", "scan sum %x_tile over u into t exclusive"),
        ("sum", "0.0", "u <= t and t < u + 3", "reduce sum %{{.*}} over u"),
        ("sum", "0.0", "u <= t + g", "reduce sum %{{.*}} over u"),
        ("sum", "0.0", "u <= t + 1", "reduce sum %{{.*}} over u"),
        ("sum", "0.0", "2 * u <= t", "reduce sum %{{.*}} over u"),
    ],
)
def test_scans(op: str, start: str, condition: str, text_: str, filecheck: Callable[..., None]) -> None:
    body = SCAN.replace("START", start).replace("OP", op).replace("COND", condition)
    m = check_lowering(program(SCAN_BUFFERS, body, "local acc: f32[4, 8]", "grid g in 0..2"))
    filecheck(text.format(m), f"// CHECK: {text_} : f32[i: 4, t: 8]\n")


def test_a_term_that_varies_with_the_result_is_no_scan(filecheck: Callable[..., None]) -> None:
    body = SCAN.replace("START", "0.0").replace("OP", "sum").replace("COND", "u <= t")
    body = body.replace("X[i, u]", "X[i, u] * X[i, t]")
    m = check_lowering(program(SCAN_BUFFERS, body, "local acc: f32[4, 8]", "grid g in 0..2"))
    filecheck(text.format(m), "// CHECK-NOT: scan\n// CHECK: store\n")


@pytest.mark.parametrize(
    ("stored", "masked"),
    [
        ("select(g * 8 + t == 0, 1.0, acc[t])", False),
        ("select(g * 8 + t != 0, acc[t] * 2.0, 1.0)", False),
        ("select(g * 8 + t == 0, acc[t], 1.0)", True),
        ("select(g * 8 + t == 0, 1.0, acc[t]) + acc[t]", True),
    ],
)
def test_elements_that_a_choice_leaves_out_need_no_mask(stored: str, masked: bool) -> None:
    buffers = "input X: f32[16, 4]\noutput Y: f32[16]"
    body = f"""tile t in 0..8 {{ acc[t] = 0.0 }}
tile t in 0..8 {{ tile.red k in 0..4 {{ acc[t] sum= X[g * 8 + t, k] + 1.0 where g * 8 + t != 0 }} }}
tile t in 0..8 {{ Y[g * 8 + t] = {stored} }}"""
    m = check_lowering(program(buffers, body, "local acc: f32[8]", "grid g in 0..2"))
    assert text.format(m).count("= select") == 1 + masked


PADDED = """program p {
  input A: f16[32, 48]
  input B: f16[48, 8]
  temp T: f16[32, 64] zero unless i1 < 48
  output C: f32[32, 8]
  kernel T {
    grid i0 in 0..1 { tile i in 0..32, k in 0..64 { T[i, k] = select(k < 48, cast<f32>(A[i, k]), 0.0) } }
  }
  kernel C {
    local acc: f32[32, 8]
    grid i0 in 0..1 {
      tile i in 0..32, j in 0..8 { acc[i, j] = 0.0 }
      tile i in 0..32, j in 0..8 { tile.red k in 0..64 {
        acc[i, j] sum= cast<f32>(T[i, k]) * cast<f32>(B[k, j]) where k < 48
      } }
      tile i in 0..32, j in 0..8 { C[i, j] = acc[i, j] }
    }
  }
}"""


def test_a_condition_that_needs_no_mask_limits_the_terms_of_a_dot() -> None:
    m = check_lowering(PADDED)
    (dot,) = [op for k in m.kernels for op in walk_ops(k.body) if isinstance(op, DotOp)]
    assert dot.terms == 48 and "over k terms 48 :" in text.format(m)
    m = check_lowering(PADDED.replace("where k < 48", "where k < 40"))  # not what the temp says
    (dot,) = [op for k in m.kernels for op in walk_ops(k.body) if isinstance(op, DotOp)]
    assert dot.terms is None


def test_conditions_are_equal_in_guards_and_in_values_of_a_grid_of_one_block() -> None:
    """A sum has no select where its only reader chooses it under the same condition."""
    body = """
      seq t in 0..3 {
        tile i in 0..4 { s[i] = 0.0 }
        tile i in 0..4 { tile.red k in 0..4 { s[i] sum= A[g * 4 + k, i] where t > 0 and g * 4 + i < 3 } }
        tile i in 0..4 { C[t, i] = select(t > 0, s[i], 0.0) where g * 4 + i < 3 }
      }
    """
    m = check_lowering(program("input A: f32[4, 4]\noutput C: f32[3, 3]", body, "local s: f32[4]"))
    assert ops(m).count("select") == 1
