"""Results that the check accepts, and faults that it finds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from nautilus.bench.inputs import random_inputs
from nautilus.bench.verify import References, judge, references
from nautilus.check.bound.bound import Bound
from nautilus.check.bound.stated import stated
from nautilus.core.numerics import Array, from_storage, round_to, storage_array
from nautilus.core.types import DType
from nautilus.frontend.interp import run_spec
from nautilus.frontend.restrict import sampled
from nautilus.frontend.semantics.check import load_text

TEXT = """dim M = 200, N = 96, K = 64
input A: {t}[M, K]
input B: {t}[K, N]
output C: {o}[M, N]
C[i, j] = sum[k](A[i, k] * B[k, j])
"""


def problem(dtype: str = "f16", out: str = "", whole: bool = True) -> tuple[References, dict[str, Array]]:
    """References, and outputs that are right."""
    spec = load_text(TEXT.format(t=dtype, o=out or dtype))
    raw = random_inputs(spec, 0, {})
    exact = run_spec(spec, {t.name: from_storage(raw[t.name], t.dtype) for t in spec.inputs})

    def everything() -> Mapping[str, Array]:
        return {n: x.astype(np.float32) if x.dtype.kind == "f" else x for n, x in exact.items()}

    known = references(spec, raw, {}, stated(spec), 0, everything if whole else None)
    return known, {t.name: storage_array(exact[t.name], t.dtype) for t in spec.outputs}


@pytest.mark.parametrize(("dtype", "out"), [("f16", ""), ("bf16", ""), ("f32", ""), ("i8", "i32")])
@pytest.mark.parametrize("whole", [True, False])
def test_a_right_result_passes(dtype: str, out: str, whole: bool) -> None:
    known, outputs = problem(dtype, out, whole)
    verdict = judge(known, outputs, is_peer=False)
    assert verdict.ok, verdict.detail
    assert verdict.error <= verdict.allowed


def hidden_row(known: References) -> int:
    """A row that is not among the sampled ones."""
    rows = set(sampled(known.spec, 0)["C"][0].tolist())
    return next(i for i in range(200) if i not in rows)


def test_a_wrong_element_between_the_sampled_rows_is_found_by_the_whole() -> None:
    known, outputs = problem()
    outputs["C"][hidden_row(known), 3] += np.float16(100)
    assert "of all elements" in judge(known, outputs, is_peer=False).detail
    blind, _ = problem(whole=False)
    assert judge(blind, outputs, is_peer=False).ok  # so the whole is compared where that is possible


@pytest.mark.parametrize("whole", [True, False])
def test_an_element_that_is_not_written_is_found(whole: bool) -> None:
    known, outputs = problem(whole=whole)
    outputs["C"][hidden_row(known), 3] = np.nan
    assert not judge(known, outputs, is_peer=False).ok


def test_an_extreme_of_no_terms_between_the_sampled_rows_is_infinite() -> None:
    spec = load_text(
        "dim S = 2000, T = 8\ninput X: f32[T], n: i32[S]\noutput Y: f32[S]\nY[s] = max[t | t < n[s]](X[t])\n"
    )
    lengths = np.full(2000, 4)
    row = next(i for i in range(2000) if i not in set(sampled(spec, 0)["Y"][0].tolist()))
    lengths[row] = 0
    raw = {"X": storage_array(np.arange(8.0), DType.F32), "n": storage_array(lengths, DType.I32)}
    known = references(spec, raw, {}, stated(spec), 0)
    right = np.where(lengths > 0, 3.0, -np.inf)
    assert judge(known, {"Y": storage_array(right, DType.F32)}, is_peer=False).ok
    right[row] = np.nan
    assert not judge(known, {"Y": storage_array(right, DType.F32)}, is_peer=False).ok


def test_a_mean_of_no_terms_between_the_sampled_rows_is_nan() -> None:
    spec = load_text(
        "dim S = 2000, T = 8\ninput X: f32[T], n: i32[S]\noutput Y: f32[S]\n"
        "Y[s] = sum[t | t < n[s]](X[t]) / sum[t: T | t < n[s]](1.0)\n"
    )
    lengths = np.full(2000, 4)
    row = next(i for i in range(2000) if i not in set(sampled(spec, 0)["Y"][0].tolist()))
    lengths[row] = 0
    raw = {"X": storage_array(np.arange(8.0), DType.F32), "n": storage_array(lengths, DType.I32)}
    known = references(spec, raw, {}, stated(spec), 0)
    right = np.where(lengths > 0, 1.5, np.nan)
    assert judge(known, {"Y": storage_array(right, DType.F32)}, is_peer=False).ok
    right[row + 1] = np.nan  # of terms, so the Spec has a number there
    assert not judge(known, {"Y": storage_array(right, DType.F32)}, is_peer=False).ok


def test_a_wrong_sampled_row_is_found() -> None:
    known, outputs = problem(whole=False)
    outputs["C"][0] = 0
    verdict = judge(known, outputs, is_peer=True)
    assert not verdict.ok and "sampled rows" in verdict.detail


def test_a_peer_may_be_less_exact_but_not_wrong() -> None:
    known, outputs = problem()
    noise = np.random.default_rng(0).standard_normal(outputs["C"].shape)
    off = 2.5 * known.bounds["C"].relative
    rough = {"C": (outputs["C"].astype(np.float64) * (1 + off * noise)).astype(np.float16)}
    assert judge(known, rough, is_peer=True).ok
    assert not judge(known, rough, is_peer=False).ok
    rougher = {"C": (outputs["C"].astype(np.float64) * (1 + 0.05 * noise)).astype(np.float16)}
    assert not judge(known, rougher, is_peer=True).ok


def test_what_rounding_makes_overflow_is_not_wrong() -> None:
    known, outputs = problem()
    row = hidden_row(known)
    assert known.whole is not None
    for want, got, ok in (
        (65530.0, np.inf, True),
        (65510.0, np.inf, True),
        (9e9, np.inf, True),
        (64000.0, np.inf, False),
        (65510.0, -np.inf, False),
    ):
        known.whole["C"][row, 3] = want
        outputs["C"][row, 3] = got
        assert judge(known, outputs, is_peer=False).ok is ok, (want, got)


def test_an_intermediate_result_that_leaves_the_range_of_f32_is_inf_for_its_readers() -> None:
    text = "dim M = 3, N = 4\ninput X: f32[M, N]\noutput Y: f32[M]\nP[i, j] = exp(X[i, j])\n"
    spec = load_text(text + "Y[i] = sum[j](P[i, j]) * 1e-20\n")
    raw = {"X": storage_array(np.array([[1.0, 2, 3, 4], [95, 1, 1, 1], [1, 1, 1, 1]]), DType.F32)}
    known = references(spec, raw, {}, stated(spec), 0)
    finite = np.exp(np.array([[1.0, 2, 3, 4], [95, 1, 1, 1], [1, 1, 1, 1]])).sum(1) * 1e-20
    right = np.where([False, True, False], np.inf, finite)
    assert known.overflow and np.array_equal(np.isinf(known.rows["Y"]), np.isinf(right))
    assert judge(known, {"Y": storage_array(right, DType.F32)}, is_peer=False).ok
    assert not judge(known, {"Y": storage_array(finite, DType.F32)}, is_peer=False).ok


def test_a_sum_that_leaves_the_range_of_f32_in_some_orders_may_be_inf() -> None:
    text = "dim M = 3, N = 3\ninput X: f32[M, N], s: f32[N]\noutput Y: f32[M]\nY[i] = sum[j](exp(X[i, j]) * s[j])\n"
    spec = load_text(text)
    arrays = {"X": np.array([[1.0, 2, 3], [88.6, 88.6, 88.6], [95, 1, 1]]), "s": np.array([1.0, 1.0, -1.0])}
    known = references(spec, {n: storage_array(x, DType.F32) for n, x in arrays.items()}, {}, stated(spec), 0)
    first = float(known.rows["Y"][0])

    def verdict(*y: float) -> bool:
        return judge(known, {"Y": storage_array(np.array(y), DType.F32)}, is_peer=False).ok

    assert verdict(first, 3e38, np.inf) and verdict(first, np.inf, np.inf)
    assert not verdict(first * 2, 3e38, np.inf) and not verdict(first, 3e38, 1.0)


def test_counts_of_computed_floats_may_move_a_few_terms() -> None:
    text = "dim N = 100000, K = 10\ninput X: f32[N]\noutput C: i32[K]\n"
    spec = load_text(text + "bin[n] = i32(floor(X[n] / 0.1))\nC[k: K] = sum[n | bin[n] == k](1)\n")
    raw = random_inputs(spec, 0, {})
    known = references(spec, raw, {}, stated(spec), 0)
    right = known.rows["C"].astype(np.int32)
    moved, wrong = right.copy(), right.copy()
    moved[2:4] += np.array([1, -1], np.int32)
    wrong[2:4] += np.array([900, -900], np.int32)
    assert judge(known, {"C": right}, is_peer=False).ok
    assert judge(known, {"C": moved}, is_peer=False).ok
    assert not judge(known, {"C": wrong}, is_peer=False).ok


def test_fewer_columns_are_sampled_where_the_whole_is_there() -> None:
    text = TEXT.format(t="f16", o="f16").replace("N = 96", "N = 2000")
    spec = load_text(text)
    raw = random_inputs(spec, 0, {})
    alone = references(spec, raw, {}, stated(spec), 0)
    beside = references(spec, raw, {}, stated(spec), 0, lambda: {"C": np.zeros((200, 2000), np.float32)})
    assert alone.rows["C"].shape == (32, 2000) and beside.rows["C"].shape == (32, 512)
    at = beside.cut.outputs["C"][1]
    assert at[0] == 0 and at[-1] == 1999 and np.array_equal(beside.rows["C"], alone.rows["C"][:, at])


def test_integers_are_exact_and_shapes_count() -> None:
    known, outputs = problem("i8", "i32")
    outputs["C"][hidden_row(known), 0] += 1
    assert "1 wrong element" in judge(known, outputs, is_peer=True).detail
    assert "shape" in judge(known, {"C": outputs["C"].T}, is_peer=True).detail


def test_inputs_are_normal_repeatable_and_in_range() -> None:
    text = "dim M = 3000, V = 50\ninput E: bf16[V, M]\ninput at: i32[M]\noutput Y: f32[M]\nY[i] = E[at[i], i]\n"
    spec = load_text(text)
    a, b, c = (random_inputs(spec, seed, {}) for seed in (0, 0, 1))
    assert np.array_equal(a["E"], b["E"]) and not np.array_equal(a["E"], c["E"])
    values = from_storage(a["E"], DType.BF16)
    assert abs(values.mean()) < 0.02 and abs(values.std() - 1) < 0.02
    assert a["at"].min() == 0 and a["at"].max() == 49


def test_elements_that_cancel_are_compared_one_by_one() -> None:
    spec = load_text(
        "dim M = 64, N = 512\ninput X: f32[M, N]\ninput Y: f32[M, N]\noutput Z: f32[M, N]\n"
        "Z[i, j] = 1 / (X[i, j] * Y[i, j] - X[i, j] + 0.1)\n"
    )
    raw = random_inputs(spec, 0, {})
    known = references(spec, raw, {}, stated(spec), 0)
    exact = run_spec(spec, {t.name: from_storage(raw[t.name], t.dtype) for t in spec.inputs})["Z"]
    assert judge(known, {"Z": exact.astype(np.float32)}, is_peer=False).ok
    wrong = exact.astype(np.float32)
    row = int(known.cut.outputs["Z"][0][0])
    at = int(np.argsort(np.abs(wrong[row]))[wrong.shape[1] // 2])
    wrong[row, at] *= 1.001
    assert "sampled rows: [" in judge(known, {"Z": wrong}, is_peer=False).detail


def test_single_steps_are_compared_at_the_sampled_steps() -> None:
    spec = load_text(
        "dim B = 3, T = 64, H = 4\ninput x: f32[B, T, H]\noutput h: f32[B, T, H]\n"
        "recur h[b, t, i] = 4 * h[b, t - 1, i] * (1 - h[b, t - 1, i]) if t > 0 else 1 / (1 + x[b, t, i] ** 2)\n"
    )
    raw = random_inputs(spec, 0, {})
    bounds = stated(spec)
    assert bounds["h"].stepwise
    known = references(spec, raw, {}, bounds, 0)
    states = [1 / (1 + raw["x"][:, 0] ** 2)]
    for _ in range(63):
        states.append(4 * states[-1] * (1 - states[-1]))
    right = np.stack(states, axis=1).astype(np.float32)
    assert judge(known, {"h": right}, is_peer=False).ok
    right[0, 0, 0] = 0.3
    assert "sampled rows" in judge(known, {"h": right}, is_peer=False).detail


def test_a_number_that_may_be_zero_is_judged_by_the_errors_on_its_inputs() -> None:
    spec = load_text("dim N = 1000\ninput x: f32[N]\noutput z: f32\nz = mean[n](x[n])\n")
    x = np.where(np.arange(1000) % 2, 1.5, -1.5)
    x[1] = 1.501
    raw = {"x": storage_array(x, DType.F32)}
    known = references(spec, raw, {}, stated(spec), 0)
    exact = from_storage(raw["x"], DType.F32).mean()
    assert judge(known, {"z": storage_array(np.asarray(exact + 1e-9), DType.F32)}, is_peer=False).ok
    assert not judge(known, {"z": storage_array(np.asarray(exact + 1e-5), DType.F32)}, is_peer=False).ok


def test_an_element_between_two_numbers_of_its_type_may_be_either() -> None:
    spec = load_text("dim N = 4096\ninput x: f32[N]\noutput z: bf16[N]\nz[n] = x[n] * 1.001\n")
    raw = {"x": storage_array(np.random.default_rng(3).normal(size=4096), DType.F32)}
    known = references(spec, raw, {}, {"z": Bound(2.0**-9, left_out=0.01)}, 0)
    exact = 1.001 * from_storage(raw["x"], DType.F32)
    nearest = round_to(exact, DType.BF16)
    other = round_to(exact + 1.01 * (exact - nearest), DType.BF16)
    (rows,) = known.cut.outputs["z"].values()
    rows = rows[(np.abs(exact[rows]) > 2.0) & (np.abs(exact[rows]) < 2.5)]
    n = rows[np.argmin(np.abs(np.abs(exact - nearest) / np.abs(other - nearest) - 0.5)[rows])]
    assert other[n] != nearest[n]
    got = nearest.copy()
    got[n] = other[n]
    assert judge(known, {"z": storage_array(got, DType.BF16)}, is_peer=False).ok
    got[n] = nearest[n] * 1.03
    assert not judge(known, {"z": storage_array(got, DType.BF16)}, is_peer=False).ok


def test_few_elements_with_most_of_a_norm_are_judged_by_the_errors_on_their_inputs() -> None:
    spec = load_text(
        "dim N = 1000\ninput x: f32[N], d: f32[N]\noutput z: f32[N]\nz[n] = exp(3 * x[n]) - exp(3 * (x[n] - d[n]))\n"
    )
    x, d = 0.1 * np.random.default_rng(5).standard_normal((2, 1000))

    def is_right(error: float) -> bool:
        raw = {"x": storage_array(x, DType.F32), "d": storage_array(d, DType.F32)}
        exact = run_spec(spec, {n: from_storage(a, DType.F32) for n, a in raw.items()})["z"]
        got = exact.copy()
        got[0] += error * np.linalg.norm(exact)
        known = references(spec, raw, {}, {"z": Bound(1.6e-6)}, 0)
        return judge(known, {"z": storage_array(got, DType.F32)}, is_peer=False).ok

    assert is_right(1e-6) and not is_right(1e-4)
    x[0], d[0] = 6.0, 0.01  # an element with all of the norm, whose terms cancel
    assert is_right(1e-4) and not is_right(4e-3)
