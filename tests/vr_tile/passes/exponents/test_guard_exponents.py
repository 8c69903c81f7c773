"""Softmax of large scores: masked by large negative numbers, of huge inputs, of rows that are masked throughout."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from nautilus.core.numerics import round_to
from nautilus.core.types import DType
from nautilus.frontend.interp import run_spec
from nautilus.ma_tile.interp.module import run_module as run_registers
from nautilus.vr_tile import text
from nautilus.vr_tile.interp import run_module as run_tiles
from tests.extremes import compiled, normal, outputs_at

_ATTENTION = """dim H = 2, M = {m}, N = {n}, D = 16
input Q: {t}[H, M, D]
input K: {t}[H, N, D]
input V: {t}[H, N, D]
input start: i32[H]
output O: f32[H, M, D]
S[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(D)
T[h, i, j] = S[h, i, j] if j >= start[h] and j <= i else {fill}
O[h, i, d] = sum[j](softmax[j](T[h, i, j]) * V[h, j, d])
"""
_ERRORS = {"f16": 1e-3, "bf16": 8e-3, "f32": 2e-6}


def inputs(t: str, m: int, n: int, scale: float = 1.0) -> dict[str, Any]:
    rng = np.random.default_rng(m)
    q, k, v = (normal(rng, (2, rows, 16)) for rows in (m, n, n))
    k[:, n // 2] = k[:, 0]  # two scores that are equal
    return {"Q": round_to(q * scale, DType(t)), "K": round_to(k * scale, DType(t)), "V": v, "start": np.array([0, 17])}


@pytest.mark.parametrize("t", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("fill", ["-1e4", "-65504.0", "-1e9", "-1e30", "-3.4028234663852886e38"])
def test_large_negative_fills(t: str, fill: str) -> None:
    """Rows that hold nothing but the fill are uniform."""
    r = compiled(_ATTENTION.format(t=t, m=24, n=40, fill=fill))
    x = inputs(t, 24, 40)
    want = run_spec(r.modules["spec"], x)["O"]
    uniform = x["V"][1].mean(axis=0)
    np.testing.assert_allclose(want[1, :17], np.broadcast_to(uniform, (17, 16)), rtol=1e-12)
    for level, got in outputs_at(r, x, "O"):
        assert np.linalg.norm(got - want) <= _ERRORS[t] * np.linalg.norm(want), level


@pytest.mark.parametrize("rows", [24, 1])
@pytest.mark.parametrize("scale", [3e1, 1e3, 1e4, 3e8])
def test_huge_scores(rows: int, scale: float) -> None:
    """Scores of up to 2^60, through loops that repair accumulators and through the combination of chunks."""
    r = compiled(_ATTENTION.format(t="f32", m=rows, n=300, fill="-1e38").replace("j <= i", "j >= 0"))
    x = inputs("f32", rows, 300, scale)
    want = run_spec(r.modules["spec"], x)["O"]
    for level, got in outputs_at(r, x, "O"):
        assert np.linalg.norm(got - want) <= 1e-4 * np.linalg.norm(want), level


def test_rows_of_equal_numbers() -> None:
    """A row of one number is uniform whatever the number is; no rounding of ``x * c`` moves the exponent from 0."""
    r = compiled("dim M = 6, N = 64\ninput X: f32[M, N]\noutput Y: f32[M, N]\nY[i, j] = softmax[j](X[i, j] * 0.3)\n")
    rows = np.array([-3.4028234663852886e38, 3.4028234663852886e38, -1e30, 1e9, -1e9, 0.0])
    x = {"X": round_to(np.repeat(rows[:, None], 64, axis=1), DType.F32)}
    for level, got in outputs_at(r, x, "Y"):
        np.testing.assert_allclose(got, 1 / 64, rtol=1e-6, err_msg=level)


_MOVING = """dim M = 39, N = 300, D = 16
input Q: f16[M, D]
input K: f16[N, D]
input V: f16[N, D]
output O: f32[M, D]
S[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(D)
O[i, d] = sum[j](softmax[j](S[i, j]) * V[j, d])
"""


def _moving(queries: tuple[Any, Any], keys: tuple[Any, Any]) -> dict[str, Any]:
    """Scores of ``queries[0] * keys[0] + queries[1] * keys[1]`` (times 1/4), exact in f32."""
    q, k = np.zeros((39, 16)), np.zeros((300, 16))
    q[:, 0], q[:, 1] = queries
    k[:, 0], k[:, 1] = keys
    return {"Q": q, "K": k, "V": normal(np.random.default_rng(0), (300, 16))}


def _deviations(inputs: dict[str, Any]) -> dict[str, float]:
    """The relative errors of the VR-tile and the MA-tile IR."""
    r = compiled(_MOVING, until="ma-tile")
    want = run_spec(r.modules["spec"], inputs)["O"]
    tiles = run_tiles(r.modules["vr-tile"], inputs, mode="typed")["O"]
    registers = run_registers(r.modules["ma-tile"], inputs)["O"]
    size = np.linalg.norm(want)
    return {level: float(np.linalg.norm(got - want) / size) for level, got in (("vr", tiles), ("ma", registers))}


_ORDERS = {"ascending": slice(None), "descending": slice(None, None, -1)}


@pytest.mark.parametrize("order", _ORDERS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_repairs_have_the_references_of_their_elements(order: str, sign: float) -> None:
    """Scores of 2^22 that grow by 1 in every 8 keys: references are rounded by up to 1/16, each differently."""
    steps = np.arange(300.0)[_ORDERS[order]] // 8
    found = _deviations(_moving((sign * 2048.0, 1.0), (2047.0, steps)))
    assert max(found.values()) <= 1e-3, found


@pytest.mark.parametrize("order", _ORDERS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_references_that_become_far(order: str, sign: float) -> None:
    """Scores of up to 2^27, in powers of two from row to row; two keys share each score."""
    size = np.round(2.0 ** (np.arange(300) // 2 / 10))[_ORDERS[order]]
    found = _deviations(_moving((sign * 2.0 ** (np.arange(39) % 13), 0.0), (size, 0.0)))
    assert max(found.values()) <= 1e-3, found


@pytest.mark.parametrize("order", _ORDERS)
def test_neighbours_at_the_border(order: str) -> None:
    """Scores around the border between near and far rows, 23 exponents apart."""
    steps = (np.arange(300.0)[_ORDERS[order]] - 150) // 2 * 16
    found = _deviations(_moving((8192.0, 4.0), (5680.0, steps)))
    assert max(found.values()) <= 1e-3, found


def test_a_far_row_is_that_of_scores_off_by_few_units() -> None:
    """Two scores one unit in the last place apart, at 2^27: 11.5 exponents, of which a far row keeps a half."""
    size = np.zeros(300)
    size[7], size[11] = 1.0, 1.0
    inputs = _moving((16384.0, 32.0), (size * 16384.0, np.zeros(300)))
    inputs["K"][11, 1] = -1.0
    inputs["V"] = np.zeros((300, 16))
    inputs["V"][11] = 1.0
    r = compiled(_MOVING)
    assert " lt " in text.format(r.modules["vr-tile"])
    (share,) = {float(x) for x in run_tiles(r.modules["vr-tile"], inputs, mode="typed")["O"].flat}
    assert 2.0**-11.6 <= share <= 2.0**-5.6


_TWO = """dim M = 9, N = 21, T = 5, D = {d}
input Q: f32[M, D]
input K: f32[N, D], V: f32[N, D]
input R: f32[T, D], W: f32[T, D]
input sink: f32[]
output O: f32[M, D]
S[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(D)
U[i, t] = sum[d](Q[i, d] * R[t, d]) * 0.3
m[i] = max(max[j](S[i, j]), max[t](U[i, t]), sink)
Z[i] = sum[j](exp(S[i, j] - m[i])) + sum[t](exp(U[i, t] - m[i])) + exp(sink - m[i])
O[i, d] = (sum[j](exp(S[i, j] - m[i]) * V[j, d]) + sum[t](exp(U[i, t] - m[i]) * W[t, d])) / Z[i]
"""


@pytest.mark.parametrize("d", [16, 12])  # the scale of S is a power of two, and none
@pytest.mark.parametrize(
    ("keys", "others", "sink"), [(1.0, 1e17, 0.0), (1e17, 1.0, 0.0), (1.0, 1.0, 3e17), (1.0, 1.0, 1e5)]
)
def test_the_larger_one_of_maxima_of_several_scales(d: int, keys: float, others: float, sink: float) -> None:
    """Elements equal to the largest score have the exponential 1, in whose units its reference is."""
    r = compiled(_TWO.format(d=d))
    rng = np.random.default_rng(d)
    x = {n: normal(rng, (rows, d)) for n, rows in {"Q": 9, "K": 21, "V": 21, "R": 5, "W": 5}.items()}
    x |= {n: round_to(size * x[n], DType.F32) for n, size in (("K", keys), ("R", others))}
    x["sink"] = round_to(np.array(sink), DType.F32)
    want = run_spec(r.modules["spec"], x)["O"]
    for level, got in outputs_at(r, x, "O"):
        assert np.linalg.norm(got - want) <= 1e-5 * np.linalg.norm(want), level


_SINK = """dim M = 39, N = 300, D = 16
input Q: f16[M, D]
input K: f16[N, D]
input V: f16[N, D]
input sink: f32[]
output O: f32[M, D]
S[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(D)
m[i] = max(max[j | j <= 8 * i](S[i, j]), sink)
E[i, j] = exp(S[i, j] - m[i]) if j <= 8 * i else 0
O[i, d] = sum[j](E[i, j] * V[j, d]) / (sum[j](E[i, j]) + exp(sink - m[i]))
"""


@pytest.mark.parametrize("order", _ORDERS)
@pytest.mark.parametrize(
    ("queries", "sink"),
    [
        ((0.0, 1.0), 3e17),
        ((0.0, 1.0), -3e38),
        ((0.0, 1.0), 3.2e38),
        ((0.0, 1.0), 1e5),
        ((0.0, 1.0), 4.0),
        ((2048.0, 1.0), 1048070.5),
        ((-2048.0, 1.0), -1048060.0),
        ((-16384.0, 32.0), 0.0),
        ((16384.0, 32.0), 8384512.0),
        ((32768.0, 64.0), 16769024.0),
    ],
)
def test_a_number_beside_the_elements(order: str, queries: tuple[float, float], sink: float) -> None:
    """A number far above, below and among scores of up to 2^24, which grow from key to key, is in the units of each."""
    r = compiled(_SINK)
    x = _moving(queries, (2047.0, np.arange(300.0)[_ORDERS[order]] // 8)) | {"sink": np.array(sink)}
    want = run_spec(r.modules["spec"], x)["O"]
    for level, got in outputs_at(r, x, "O"):
        assert np.linalg.norm(got - want) <= 1e-3 * np.linalg.norm(want), level


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("d", [16, 12])  # a scale that is a power of two, and one that is none
def test_numbers_at_the_ends_of_the_range(arch: str, d: int) -> None:
    """A number of any size, infinite or NaN, beside rows of scores, rows without one and rows of the largest scores."""
    text = _SINK.replace("M = 39, N = 300, D = 16", f"M = 21, N = 140, D = {d}").replace("8 * i", "8 * i - 80")
    text = text.replace("f16", "f32")
    r = compiled(text, arch, until="ma-tile")
    rng = np.random.default_rng(d)
    x = {n: normal(rng, (rows, d)) for n, rows in (("Q", 21), ("K", 140), ("V", 140))}
    x["Q"][12:14] = 0.0
    x["Q"][12, 0], x["K"][:, 0], x["K"][3, 0] = 2.0**127, 0.25, 2.0 - 2.0**-23  # row 12: the largest f32 as a product
    for sink in (3e17, 4.3e37, 3e38, 3.4028234663852886e38, np.inf, np.nan):
        for y in (sink, -sink):
            x["sink"] = round_to(np.array(y), DType.F32)
            with np.errstate(all="ignore"):
                want = run_spec(r.modules["spec"], x)["O"]
                found = dict(outputs_at(r, x, "O")) | {"ma-tile": run_registers(r.modules["ma-tile"], x)["O"]}
            for level, got in found.items():
                np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5, err_msg=f"{level} {y}")


def test_a_number_beside_elements_costs_them_no_operation() -> None:
    """The elements of a row and its number have one rounded reference: a multiply-add for each element."""
    tiles = text.format(compiled(_SINK).modules["vr-tile"])
    sums = re.findall(r"(%\d+) = fma %\S+, %\d+, %\d+ : f32\[i: \d+, j", tiles)
    assert sums
    assert all(re.search(rf"exp2 {v} :", tiles) for v in sums)
    assert not re.search(r"sub %S_sum", tiles)
