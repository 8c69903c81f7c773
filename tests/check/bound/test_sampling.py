"""How much of a program is evaluated for its bound."""

from __future__ import annotations

from math import inf, nan
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nautilus.check.bound import sampling
from nautilus.check.bound.errors import Rounding
from nautilus.check.bound.operands import AROUND, _length, in_lanes, operand_type, unscaled_factors
from nautilus.check.bound.program import rounded
from nautilus.check.bound.recurrences.excerpt import _positions
from nautilus.check.bound.recurrences.follows import Along
from nautilus.check.bound.stated import stated
from nautilus.check.bound.sums.admitted import lengths
from nautilus.check.bound.sums.gathered import shortened
from nautilus.check.bound.sums.shorter import FAR, TERMS, at_elements, volume, work
from nautilus.check.inputs import InputSet, generate
from nautilus.core.expr.nodes import Const, Load, Op, Reduce, Var, walk
from nautilus.core.expr.products import factors
from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec

#: The outputs are sampled at different pixels, so that together they need all pixels.
TWO_SHAPES = """dim H = 2160, W = 3840
input X: f16[H, W, 3]
output Y: f16[H, W]
output UV: f16[H, W, 3]
Y[y, x] = 0.299 * X[y, x, 0] + 0.587 * X[y, x, 1] + 0.114 * X[y, x, 2]
UV[y, x, c: 3] = 0.492 * (X[y, x, 2] - Y[y, x]) if c == 0 else 0.877 * (X[y, x, 0] - Y[y, x])
"""
#: Each mean is of three axes, and each of its terms a sum.
MEANS_OF_SUMS = """dim B = 4, H = 64, C = 128
const G = 4
input X: f16[B, H, H, C]
input W: f16[C, C]
output M: f32[B, G]
Z[n, y: H, x: H, k: C] = sum[c](X[n, y, x, c] * W[c, k] if c <= y + x else 0)
M[n, g: G] = mean[y, x, c: C // G](Z[n, y, x, g * (C // G) + c])
"""


def test_outputs_that_are_sampled_at_different_indices_are_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    elements: list[int] = []

    def generated(spec: Spec, *given: Any, **more: Any) -> InputSet:
        elements.append(sum(volume(t.shape) for t in spec.inputs))
        return generate(spec, *given, **more)

    monkeypatch.setattr(sampling, "generate", generated)
    found = stated(load_text(TWO_SHAPES, "yuv"))
    assert 2 <= len(elements) <= 4 and max(elements) < sampling._BUDGET
    assert 4e-4 < found["Y"].relative < 2e-3 and 4e-4 < found["UV"].relative < 1e-2


def test_errors_that_are_alike_are_no_sum_of_independent_ones() -> None:
    """Those of two distances are taken to have different signs, which allows more than any normal distribution."""
    text = """dim M = 130, N = 77
    input A: f32[M, N], P: f32[M, N], Q: f32[M, N]
    output L: f32
    Near[i] = sqrt(sum[j](square(A[i, j] - P[i, j])))
    L = mean[i](relu(Near[i] - sqrt(sum[j](square(A[i, j] - Q[i, j]))) + 1))
    """
    assert 5e-7 < stated(load_text(text, "triplet"))["L"].relative < 4e-6


def test_sums_of_sums_over_several_axes_have_fewer_terms() -> None:
    program = rounded(load_text(MEANS_OF_SUMS, "means"), "fast", Schedule())
    whole, _ = at_elements(program, sampling._BUDGET)
    assert work(whole) < 2 * FAR * sampling._BUDGET


def test_sums_keep_their_terms_where_fewer_save_no_work() -> None:
    text = "dim N = 4096\ninput X: f32[N, N], p: i32[N]\noutput Y: f32[N]\nassume 0 <= p[i] < N\n"
    program = rounded(load_text(text + "Y[i] = sum[j](X[p[i], p[j]])\n", "gather"), "fast", Schedule())
    whole, _ = at_elements(program, 1 << 16)
    (terms,) = lengths(whole).values()
    assert terms >= TERMS


def test_a_matrix_and_its_diagonal_are_those_of_the_sampled_rows() -> None:
    text = (
        "dim N = 8192, F = 4096\ninput x: f32[N, F]\noutput corr: f32[F, F]\n"
        "cov[f, g] = sum[n](x[n, f] * x[n, g])\n"
        "corr[f, g] = cov[f, g] * rsqrt(cov[f, f] * cov[g, g])\n"
    )
    program = rounded(load_text(text, "corr"), "fast", Schedule())
    whole, _ = at_elements(program, sampling._BUDGET)
    assert work(whole) < sampling._BUDGET


def test_fewer_inputs_where_no_cut_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of windows keep their terms, and so does a mean over their difference, whose terms may cancel."""
    text = (
        "dim B = 8, H = 512\ninput X: f32[B, H, H]\ninput g: f32[11]\noutput S: f32[B]\n"
        "m[b, y: H - 10, x: H - 10] = sum[r: 11, s: 11](g[r] * g[s] * X[b, y + r, x + s])\n"
        "v[b, y: H - 10, x: H - 10] = sum[r: 11, s: 11](g[r] * g[s] * X[b, y + r, x + s] ** 2) - m[b, y, x] ** 2\n"
        "S[b] = mean[y: H - 10, x: H - 10](m[b, y, x] / (v[b, y, x] + 1e-3))\n"
    )
    seeds: list[int] = []

    def counted(spec: Spec, kind: str, seed: int, **more: Any) -> InputSet:
        seeds.append(seed)
        return generate(spec, kind, seed, **more)

    monkeypatch.setattr(sampling, "generate", counted)
    stated(load_text(text))
    assert 0 < len(seeds) < 20


#: Logits of a long sum are so large that a softmax is 0 or 1 but in rows whose two largest ones are close.
ROUTER = """dim T = 4096, K = 2048, E = 64
input X: bf16[T, K]
input W: f32[E, K]
output P: f32[T, E]
S[t, e] = sum[k](X[t, k] * W[e, k])
P[t, e] = softmax[e](S[t, e])
"""


@pytest.mark.parametrize("rows", [1, 16, 4096])
def test_errors_that_a_few_elements_have_are_those_of_many_rows_or_inputs(rows: int) -> None:
    """Rounding one operand to bf16 gives 4.3e-3 on 32 rows (H200), and more where a row alone is uncertain."""
    (found,) = stated(load_text(ROUTER.replace("4096", str(rows)), "router")).values()
    assert 1e-2 < found.relative < 0.4


def test_windows_of_products_are_those_of_the_sampled_elements() -> None:
    """A convolution of logits reads products at the windows of its elements, a few of millions."""
    text = (
        "dim H = 32, M = 8192, D = 64\ninput Q: f16[H, M, D], K: f16[H, M, D], W: f16[H, 6, 11]\n"
        "output C: f16[H, M, M]\n"
        "S[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d])\n"
        "C[h, i, j] = sum[u: 6, v: 11 | i >= u and j >= v](W[h, u, v] * S[h, i - u, j - v])\n"
    )
    program = rounded(load_text(text, "logits"), "fast", Schedule())
    whole, _ = at_elements(program, sampling._BUDGET)
    assert work(whole) < FAR * sampling._BUDGET


def test_row_numbers_are_no_table_that_gathers_shorten() -> None:
    """The places of blocks of a long tensor are an input of many numbers, read at positions from memory."""
    rows = load_text("dim N = 64, K = 1048576\ninput T: i32[K]\ninput i: i32[N]\noutput O: i32[N]\nO[n] = T[i[n]]\n")
    cut, _ = shortened(rows, {"i": (0, 1 << 20)})
    kept, _ = shortened(rows, {"i": (0, 1 << 20)}, {"T": None})
    assert cut.inputs != rows.inputs and kept.inputs == rows.inputs


def test_more_elements_of_sums_over_pairs_stay_affordable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms at wanted elements are kept, so 4096 elements would have 4096 terms each."""
    found: list[int] = []

    def evaluated(task: Any, wanted: Any, whole: Spec, rows: Any, count: int) -> dict[str, sampling._Sampled]:
        found.append(work(whole))
        return {t.name: sampling._Sampled(1.0, 1e-7, 1e-7, 1.0) for t in wanted}

    monkeypatch.setattr(sampling, "_sampled", evaluated)
    text = "dim N = 4096\ninput x: f32[N]\noutput E: f32[N]\nE[i] = sum[j | j != i](1 / (x[i] - x[j]) ** 6)\n"
    stated(load_text(text))
    assert len(found) > 1 and max(found) <= 16 * sampling._BUDGET


def test_counts_of_fewer_terms_are_those_of_all() -> None:
    """A rank correlation of 512 numbers is about 0.04, so its rounding error is 23 times that of the terms."""
    text = "dim B = 64, N = 512\ninput x: f32[B, N], y: f32[B, N]\noutput rho: f32[B]\n"
    text += "r[b, i] = sum[j](i32(x[b, j] < x[b, i]))\ns[b, i] = sum[j](i32(y[b, j] < y[b, i]))\n"
    text += "rho[b] = 1 - 6 * f32(sum[i]((r[b, i] - s[b, i]) ** 2)) / (f32(N) * (f32(N) * N - 1))\n"
    assert 1e-6 < stated(load_text(text, "rank"))["rho"].relative < 1e-5


def test_sampled_rows_of_a_matrix_that_is_summed_too_lose_no_bits_in_matrix_units() -> None:
    """The positions of sampled rows are read from memory, which those of a matrix product may be too."""
    text = "dim N = 130, D = 77\ninput X: f16[N, D]\noutput y: f32[N]\ny[i] = sum[j: N, d](X[i, d] * X[j, d])\n"
    assert stated(load_text(text))["y"].relative < 2e-6


def test_last_axes_that_are_all_summed_are_one_row_of_lanes() -> None:
    text = "dim B = 8, C = 4, W = 40\ninput X: f32[B, C, W, W]\noutput Y: f32[B, C], Z: f32[B, C, W]\n"
    text += "Y[b, c] = sum[y, x](X[b, c, y, x])\nZ[b, c, y] = sum[x](X[b, c, y, x])\n"
    assert in_lanes(load_text(text)) == {"Y"}


def test_the_power_with_which_an_error_grows() -> None:
    def power(*figures: float) -> float:
        now, then = (SimpleNamespace(relative=r, size=s) for r, s in zip(figures[::2], figures[1::2], strict=True))
        found: float = sampling._power(now, then, 4.0)  # type: ignore[arg-type]
        return found

    assert power(4.0, 1.0, 1.0, 4.0) == 1.0 and power(2.0, 1.0, 1.0, 2.0) == 0.5 and power(1.0, 1.0, 1.0, 1.0) == 0.0
    for nothing in (0.0, inf, nan):
        assert power(nothing, 1.0, 1.0, 4.0) == power(4.0, 1.0, nothing, 4.0) == 0.0
    assert power(4.0, 0.0, 1.0, 4.0) == power(4.0, 4.0, 1.0, 4.0) == 0.0


def test_sums_lose_and_gain_alternately() -> None:
    shared = SimpleNamespace(sums=iter(range(4)))
    run: Any = SimpleNamespace(probe=SimpleNamespace(opposed=True, coherent=True, size=0.5), shared=shared)
    assert [Rounding.loss(run) for _ in range(4)] == [0.5, -0.5, 0.5, -0.5]
    run.probe.opposed = False
    assert Rounding.loss(run) == 0.5


def test_the_type_in_which_a_factor_is_multiplied() -> None:
    half = Load("X", (Var("i"),), DType.F16)
    wide = Op("cast", (half,), DType.F32)
    chosen = Op(
        "select", (Op("lt", (Var("i"), Const(4, DType.I32)), DType.BOOL), wide, Const(0.0, DType.F32)), DType.F32
    )
    assert [operand_type(e) for e in (half, wide, chosen, Op("exp", (wide,), DType.F32))] == [DType.F16] * 3 + [None]
    assert _length((), {}) == _length((Var("i"),), {}) == 0 and _length((Var("i"), Var("j")), {"i": 3, "j": 5}) == 15


def test_a_scale_of_a_group_is_no_factor_of_8_bit_floats() -> None:
    spec = load_text(
        "dim M = 16, K = 256\ninput A: f8e4m3[M, K], B: f8e4m3[M, K], S: f32[M, K // 128]\noutput C: f32[M, M]\n"
        "C[i, j] = sum[k](f32(A[i, k]) * f32(B[j, k]) * S[i, k // 128])\n"
    )
    (e,) = (e for e in walk(spec.definition("C").expr) if isinstance(e, Reduce))
    parts = factors(e.body, AROUND)
    assert len(parts) == 3 and len(unscaled_factors(e, parts)) == 2
    assert unscaled_factors(e, parts[1:]) == parts[1:]


def test_positions_along_independent_axes() -> None:
    t = load_text(
        "dim N = 64, T = 16\ninput X: f32[N, T, N]\noutput Y: f32[N, T, N]\nY[i, t, j] = X[i, t, j]\n"
    ).outputs[0]
    found = _positions(t, Along(1, 16, False, frozenset({0})), 256)
    assert np.array_equal(found[0], np.linspace(0, 63, 4).astype(np.int64))
    both = _positions(t, Along(1, 16, False, frozenset({0, 2})), 256)
    assert [len(both[p]) for p in (0, 2)] == [4, 64]
