"""Which remarks a compilation gives, at which place, and that what they advise removes them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from nautilus.cli.main import main
from nautilus.cli.remark_options import REMARKS
from nautilus.core.errors import DiagnosticError
from nautilus.driver import Request, compile_file
from nautilus.remarks.remark import NAMES, Kind, Remark
from nautilus.remarks.remarks import Watch, refuse, remarks
from tests.shipped import ROOT

PRODUCT = """
dim M = 1024, N = 1024, K = 1024
input A: {0}[M, K], B: {0}[K, N]
output C: {1}[M, N]
C[i, j] = sum[k](A[i, k] * B[k, j])
"""
CHAIN = """
dim N = 2048
input X: f16[N, N], Y: f16[N, N], v: f16[N]
output C: f32[N]
C[i] = sum[j](sum[k](f32(X[i, k]) * f32(Y[k, j])) * f32(v[j]))
"""
LOGITS = """
dim T = 4096, D = 2048, V = 32001
input X: bf16[T, D], W: bf16[V, D]
output P: bf16[T, V]
Z[t, v] = sum[d](X[t, d] * W[v, d])
P[t, v] = softmax[v](Z[t, v])
"""
ODD = PRODUCT.format("f16", "f16").replace("M = 1024", "M = 512").replace("K = 1024", "K = 1003")
STEPS = """
dim B = 2, T = 4096
input a: f32[B, T], x: f32[B, T]
scalar beta: f32
output h: f32[B, T]
recur h[b, t] = beta * a[b, t] * h[b, t - 1] + x[b, t] if t > 0 else x[b, 0]
"""
MAXIMUM = """
dim N = 1024
input A: f16[N, N], B: f16[N, N]
output C: f32[N, N]
C[i, j] = max[k](f32(A[i, k]) + f32(B[k, j]))
"""
PLACES = """
dim N = 512
input A: i32[N, N], B: i32[N, N]
output C: i32[N, N]
C[i, j] = argmin[k](A[i, k] // 4 + B[k, j] // 4)
"""
FILLED = """
dim M = 4096, N = 4096, D = 64
input Q: f16[M, D], K: f16[N, D], V: f16[N, D]
output O: f16[M, D]
S[i, j] = sum[d](Q[i, d] * K[j, d]) / 8 + (0 if j <= i else FILL)
P[i, j] = softmax[j](S[i, j])
O[i, d] = sum[j](P[i, j] * V[j, d])
"""


@cache
def said(text: str, precision: str = "fast", arch: str = "sm_90a") -> tuple[Remark, ...]:
    watch = Watch()
    result = compile_file(Request(Path("x.naut"), arch, precision=precision, text=text, until="ma-tile"), [watch])
    return remarks(result, watch)


def loud(text: str, precision: str = "fast", arch: str = "sm_90a") -> list[Remark]:
    return [r for r in said(text, precision, arch) if r.hint is not None]


def test_the_command_line_has_the_names_of_all_kinds() -> None:
    assert REMARKS == NAMES


def test_a_product_of_64_bit_integers_has_no_matrix_instruction() -> None:
    (r,) = loud(PRODUCT.format("i64", "i64"))
    assert r.kind is Kind.MATRIX_UNITS and "i64" in r.message and "i8" in (r.hint or "")
    assert (r.span.line, r.span.column) == (5, 11)


def test_precision_strict_keeps_f32_from_the_matrix_units() -> None:
    text = PRODUCT.format("f32", "f32")
    assert [r.kind for r in loud(text, "strict", "sm_80")] == [Kind.MATRIX_UNITS]
    assert not loud(text, "fast", "sm_80")


def test_rows_that_tma_copies_cannot_load_name_the_tensor_and_the_way_out() -> None:
    (r,) = loud(ODD)
    assert r.kind is Kind.MATRIX_UNITS and "rows of A are 2006 bytes" in r.message and "8 elements" in (r.hint or "")
    assert not loud(ODD.replace("A: f16[M, K]", "A: f16[M, K] strided"))
    assert Kind.MATRIX_UNITS not in {x.kind for x in said(ODD, arch="sm_80")}  # which has no warpgroups


def test_the_order_of_a_transposed_operand_is_advised() -> None:
    text = PRODUCT.format("i8", "i32").replace("N = 1024, K = 1024", "N = 512, K = 512")  # no copy pays
    (r,) = loud(text)
    assert "not contiguous along k" in r.message and r.hint == "store B with k as its last axis"
    better = text.replace("B: i8[K, N]", "B: i8[N, K]").replace("B[k, j]", "B[j, k]")
    assert not loud(better)


def test_a_sum_keeps_its_order_because_of_infinities() -> None:
    (r,) = loud(CHAIN)
    assert r.kind is Kind.ORDER and r.hint is not None and r.hint.endswith(promise := "assume abs(v[i]) < inf")
    assert not said(CHAIN + promise)


def test_a_number_that_fills_scores_is_no_mask() -> None:
    found = {x: [r for r in loud(FILLED.replace("FILL", x)) if r.kind is Kind.MASK] for x in ("-1e9", "-inf", "-100")}
    assert ["-1e+09" in r.message for r in found.pop("-1e9")] == [True]
    assert not any(found.values())


def test_a_large_intermediate_goes_to_scratch_memory() -> None:
    (r,) = loud(LOGITS)
    assert r.kind is Kind.SCRATCH and "524.3 MB of f32" in r.message and "Z: f16[t, v]" in (r.hint or "")
    assert [x.kind for x in said(LOGITS.replace("Z[t, v] =", "Z: bf16[t, v] =")) if x.hint is not None] == []


def test_windows_that_are_stored_because_that_is_faster_have_no_remark() -> None:
    text = "dim B = 16, N = 262144, W = 64\ninput X: f32[B, N]\noutput Y: f32[B, N]\n"
    found = said(text + "Y[b, i: N] = sum[j | i - W < j and j <= i](X[b, j])\n")
    assert Kind.SCRATCH not in {r.kind for r in found}


def test_a_time_far_above_the_lower_bound_names_the_unit_that_binds() -> None:
    (r,) = loud(PLACES)
    assert r.kind is Kind.FLOOR and "times the lower bound" in r.message and "bound by" in r.message
    assert "(arithmetic)" in r.message  # the instructions of the terms, and not the bytes of the inputs


def test_the_instructions_of_a_reduction_without_matrix_units_are_part_of_the_lower_bound() -> None:
    assert loud(MAXIMUM) == []


@pytest.mark.parametrize("name", ["attention/causal_prefill", "matmul/bias_gelu", "rowwise/softmax"])
def test_a_fast_spec_has_no_remark(name: str) -> None:
    assert not said((ROOT / f"specs/{name}.naut").read_text(encoding="utf-8"))


def test_a_kind_is_an_error_where_it_is_asked_for() -> None:
    found = said(CHAIN)
    refuse(found, {"floor"})
    with pytest.raises(DiagnosticError, match=r"error\[order\]"):
        refuse(found, {"order", "floor"})


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "chain.naut", tmp_path / "k.ma"
    path.write_text(CHAIN)
    assert main([str(path), "-o", str(out), "--arch", "sm_90a"]) == 0
    assert "remark[order]" in capsys.readouterr().err
    assert main([str(path), "--arch", "sm_90a", "--emit", "ma", "-q", "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "" and {r["code"] for r in json.loads(shown.out)["remarks"]} == {"order"}
    out.unlink()
    assert main([str(path), "-o", str(out), "--arch", "sm_90a", "-Werror=order"]) == 1 and not out.exists()
    assert main([str(path), "-Werror=speed"]) == 2
    assert "matrix-units" in capsys.readouterr().err


def test_steps_that_a_promise_would_cut_into_chunks() -> None:
    (found,) = said(STEPS)
    assert found.kind is Kind.ORDER and found.span.line == 6
    assert "the 4096 steps of h run one after another because a and beta may be above 1" in found.message
    assert found.hint == "if it never is, promise it: assume abs(a[i, j]) <= 1; assume -1 <= beta <= 1"
    promised = STEPS + "assume abs(a[i, j]) <= 1\nassume -1 <= beta <= 1\n"
    assert said(promised) == ()
    assert said(STEPS.replace("T = 4096", "T = 8")) == ()


def test_steps_that_run_in_chunks_where_none_rounds_its_state() -> None:
    given = STEPS.replace("output h: f32", "output h: bf16") + "assume abs(a[i, j]) <= 1\nassume -1 <= beta <= 1\n"
    (found,) = said(given)
    assert found.kind is Kind.ORDER and found.span.line == 6
    assert "the 4096 steps of h run one after another because each rounds h to bf16" in found.message
    assert said(given.replace("h[b, t", "s[b, t") + "h[b, t] = s[b, t]\n") == ()


DELTA = """
dim H = 16, T = 4096, D = 64
input q: bf16[H, T, D], k: bf16[H, T, D], v: bf16[H, T, D], g: bf16[H, T]
output O: bf16[H, T, D]
recur {
  w[h, t, e] = sigmoid(g[h, t]) * (v[h, t, e] - (sum[d](k[h, t, d] * S[h, t - 1, d, e]) if t > 0 else 0))
  S[h, t, d, e] = (S[h, t - 1, d, e] if t > 0 else 0) + k[h, t, d] * w[h, t, e]
}
O[h, t, e] = sum[d](q[h, t, d] * S[h, t, d, e])
"""


def test_matrix_states_that_a_promise_would_cut_into_chunks() -> None:
    (found,) = said(DELTA)
    assert found.kind is Kind.ORDER and found.span.line == 7
    assert "the 4096 steps of S run one after another because k may hold inf" in found.message
    assert found.hint == "if all elements are finite, promise it: assume abs(k[i, j, l]) < inf"


SEGMENTS = """
dim T = 2048, E = 8, D = 256, F = 256
input X: bf16[T, D], off: i32[E + 1], W: bf16[E, F, D]
output H: bf16[T, F]
H[t, f] = sum[e: E | off[e] <= t < off[e + 1]](silu(sum[d](X[t, d] * W[e, f, d])))
"""


def test_segments_that_a_promise_makes_disjoint() -> None:
    found = next(r for r in said(SEGMENTS) if r.kind is Kind.ORDER)
    assert found.span.line == 5
    assert found.message == "each element computes the terms of all 8 segments because segments may overlap"
    assert found.hint == "if they never do, promise it: assume off[e] <= off[e + 1]"
    assert not any(r.kind is Kind.ORDER for r in said(SEGMENTS + "assume off[e] <= off[e + 1]\n"))
