"""Sizes to check at: small, valid, and related as the declared ones are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from nautilus.check.sizes import _ODD, Variant, _shrunk, variants, work
from nautilus.frontend.semantics.check import load_spec, load_text
from nautilus.frontend.spec import Spec
from tests.shipped import SPECS


def of(path: Path | str, **fixed: int) -> tuple[Variant, ...]:
    return variants(lambda dims: load_spec(path, dims=dims), fixed)


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_every_shipped_spec_shrinks(path: Path) -> None:
    found = of(path)
    assert 1 <= len(found) <= 2
    for v in found:
        assert work(v.spec) <= 2_000_000


@pytest.mark.parametrize(("body", "points"), [
    ("sum[j](X[i, j])", 60 * 80), ("sum[j](X[i, j] * X[0, j])", 60 * 80 // 8), ("max[j](X[i, j] * X[0, j])", 60 * 80),
    ("sum[j | j <= i](X[i, j] * X[0, j])", 60 * 80),
])  # fmt: skip
def test_points_of_products_are_less_work(body: str, points: int) -> None:
    spec = load_text(f"dim M = 60, N = 80\ninput X: f32[M, N]\noutput Y: f32[M]\nY[i] = {body}\n")
    assert work(spec) == max(points, 60)


def test_ratios_of_heads_stay() -> None:
    text = (
        "dim Hq = 32, Hkv = 8, M = 4096, D = 128\nconst G = Hq // Hkv\ninput Q: f16[Hq, M, D]\n"
        "input K: f16[Hkv, D]\noutput O: f16[Hq, M]\nO[h, i] = sum[d](Q[h, i, d] * K[h // G, d])\n"
    )
    for v in of(text):
        sizes = {d.name: d.value for d in v.spec.dims}
        assert sizes["Hq"] == 4 * (sizes["Hkv"] or 0)


def test_equal_sizes_stay_equal_where_the_spec_needs_it() -> None:
    text = "dim M = 4096, N = 4096\ninput X: f32[M]\ninput Y: f32[N]\noutput Z: f32[M]\nZ[i] = X[i] + Y[i + N - M]\n"
    for v in of(text):
        sizes = {d.name: d.value for d in v.spec.dims}
        assert sizes["M"] == sizes["N"] or (sizes["N"] or 0) >= (sizes["M"] or 0)


def test_given_sizes_stay() -> None:
    text = "dim M = 4096, N = 4096\ninput X: f32[M, N]\noutput Y: f32[M]\nY[i] = sum[j](X[i, j])\n"
    for v in of(text, N=100):
        assert {d.name: d.value for d in v.spec.dims}["N"] == 100


def test_full_size() -> None:
    text = "dim M = 4096\ninput X: f32[M]\noutput Y: f32[M]\nY[i] = X[i]\n"
    (v,) = variants(lambda dims: load_spec(text, dims=dims), {}, full=True)
    assert v.label == "full"
    assert v.spec.dims[0].value == 4096


def test_sizes_known_at_launch_are_also_one_and_zero() -> None:
    text = "dim M = runtime, N = runtime <= 100\ninput X: f32[M, N]\noutput Y: f32[M]\nY[i] = sum[j](X[i, j])\n"

    def load(dims: Mapping[str, int]) -> Spec:
        return load_spec(text, dims=dims, keep_runtime=True)

    found = {v.label: v.spec.samples(-1) for v in variants(load, {})}
    assert found.keys() == {"odd", "aligned", "one", "empty"}
    assert found["one"] == {"M": 1, "N": 1} and found["empty"] == {"M": 0, "N": 0}
    assert all(s["N"] <= 100 for s in found.values())
    given = [v.spec.samples(-1) for v in variants(load, {"M": 77, "N": 5})]
    assert given == [{"M": 77, "N": 5}]


@pytest.mark.parametrize(("m", "n", "odd"), [(200, 4096, (77, 130)), (4096, 200, (130, 77)), (4096, 4096, (130, 77))])
def test_short_rows_have_the_size_of_a_feature(m: int, n: int, odd: tuple[int, int]) -> None:
    text = f"dim M = {m}, N = {n}\ninput X: f32[M, N]\noutput Y: f32[M]\nY[i] = sum[j](X[i, j])\n"
    assert tuple(d.value for d in of(text)[0].spec.dims) == odd


def test_shrunk_sizes_have_a_value_for_every_dim() -> None:
    text = "dim B = 8, M = 4096, D = 32\ninput X: f32[B, M, D]\noutput Y: f32[B, M]\nY[b, i] = sum[d](X[b, i, d])\n"
    spec = load_text(text)
    found = list(_shrunk(spec, {}, _ODD[-1]))
    assert all(x.keys() == {"B", "M", "D"} and min(x.values()) >= 1 for x in found)
    assert {x["B"] for x in found} == {4, 2, 1} and {x["D"] for x in found} == {16, 8, 4, 2, 1}
