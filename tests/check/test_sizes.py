"""Sizes to check at: small, valid, and related as the declared ones are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from nautilus.check.sizes import _ODD, Variant, _halved, _shrunk, large, larger, variants, work
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


def test_halved_lengths_keep_their_ratios() -> None:
    spec = load_text("dim M = 96, N = 48\ninput X: f32[M, N]\noutput Y: f32[M, N]\nY[i, j] = X[i, j]\n")
    found = list(_halved(spec, ["M", "N"], {"B": 1}))
    assert found == [{"B": 1, "M": 96 // by, "N": 48 // by} for by in (4, 8, 16, 2)]


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


#: a spec, and the sizes at which it is checked, those for passes that begin at larger ones, and those of one whole run
SIZES = {
    "heads keep their ratio, and one of two lengths is stored last": (
        """
        dim B = 16, Hq = 32, Hkv = 8, M = 4096, D = 128
        const G = Hq // Hkv
        input Q: f16[B, Hq, M, D]
        input K: f16[B, Hkv, M, D]
        output O: f32[B, Hq, M]
        O[b, h, i] = max[j](sum[d](Q[b, h, i, d] * K[b, h // G, j, d]))
        """,
        (
            "odd B=4 Hq=8 Hkv=2 M=77 D=77",
            "aligned B=4 Hq=8 Hkv=2 M=48 D=128",
            "large B=4 Hq=8 Hkv=2 M=4096 D=128",
        ),
    ),
    "two lengths": (
        """
        dim M = 8192, N = 2048
        input X: f32[M, N]
        output Y: f32[M]
        Y[i] = sum[j](X[i, j])
        """,
        (
            "odd M=130 N=77",
            "aligned M=208 N=144",
            "larger M=528 N=272",
            "larger M=1040 N=784",
            "larger M=400 N=528",
            "large M=8192 N=2048",
        ),
    ),
    "a feature of more than 64 elements stays": (
        """
        dim M = 8192, N = 200, C = 48
        input X: f32[M, C, N]
        output Y: f32[M, N]
        Y[i, j] = sum[c](X[i, c, j])
        """,
        (
            "odd M=130 N=77 C=48",
            "aligned M=208 N=200 C=48",
            "larger M=528 N=200 C=48",
            "larger M=528 N=200 C=48",
            "larger M=400 N=200 C=48",
            "large M=4096 N=200 C=48",
        ),
    ),
    "no length: batches are divided": (
        """
        dim B = 12, C = 24, M = 40
        input X: f32[B, C, M]
        output Y: f32[B, M]
        Y[b, i] = sum[c](X[b, c, i])
        """,
        (
            "odd B=3 C=24 M=40",
            "larger B=3 C=24 M=40",
            "larger B=3 C=24 M=40",
            "larger B=3 C=24 M=40",
            "full B=12 C=24 M=40",
            "large B=3 C=24 M=40",
        ),
    ),
    "a recurrence has few steps": (
        """
        dim B = 64, T = 1024, D = 256
        input X: f32[B, T, D]
        output H: f32[B, T, D]
        recur H[b, t, d] = 0.5 * H[b, t - 1, d] + X[b, t, d] if t > 0 else X[b, 0, d]
        """,
        (
            "odd B=2 T=5 D=77",
            "aligned B=2 T=4 D=256",
            "larger B=2 T=4 D=256",
            "larger B=2 T=4 D=256",
            "larger B=2 T=4 D=256",
            "large B=2 T=1024 D=256",
        ),
    ),
    "much work: all lengths are divided": (
        """
        dim M = 1024, N = 1024, K = 1024, L = 1024
        input X: f32[M, N]
        input Z: f32[K, L]
        output Y: f32[M, K]
        Y[i, k] = sum[j, l](max(X[i, j], Z[k, l]))
        """,
        (
            "odd M=33 N=33 K=33 L=33",
            "aligned M=32 N=32 K=32 L=32",
            "large M=512 N=512 K=512 L=512",
        ),
    ),
    "taps stay": (
        """
        dim B = 8, H = 256, W = 512, C = 64, K = 128, R = 3, S = 3
        const P = H + R - 1, Q = W + S - 1
        input X: f16[B, P, Q, C]
        input F: f16[K, R, S, C]
        output Y: f16[B, H, W, K]
        Y[b, h, w, k] = sum[r, s, c](X[b, h + r, w + s, c] * F[k, r, s, c])
        """,
        (
            "odd B=2 H=16 W=32 C=64 K=8 R=3 S=3",
            "aligned B=2 H=4 W=8 C=64 K=128 R=3 S=3",
            "large B=2 H=256 W=512 C=64 K=128 R=3 S=3",
        ),
    ),
    "sizes of which one is a part of the other": (
        """
        dim M = 4096, N = 1024
        input X: f32[M]
        input Z: f32[N]
        output Y: f32[M]
        Y[i] = X[i] + Z[i // 4]
        """,
        (
            "odd M=130 N=77",
            "aligned M=208 N=144",
            "larger M=528 N=272",
            "larger M=1040 N=784",
            "larger M=4112 N=2064",
            "full M=4096 N=1024",
            "large M=4096 N=1024",
        ),
    ),
    "facts": (
        """
        dim M = runtime, N = runtime <= 3000
        assume M <= N
        assume M % 16 == 0
        input X: f32[M, N]
        output Y: f32[M]
        Y[i] = sum[j](X[i, j])
        """,
        (
            "odd M=32 N=77",
            "aligned M=80 N=112",
            "empty M=0 N=0",
            "larger M=272 N=400",
            "larger M=528 N=656",
            "larger M=400 N=528",
            "large M=2992 N=3000",
        ),
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_of_a_spec(name: str) -> None:
    text, sizes = SIZES[name]

    def load(dims: Mapping[str, int]) -> Spec:
        return load_text(dedent(text).lstrip(), dims=dims, keep_runtime=True)

    found = [*variants(load, {}), *larger(load, {}), large(load, {})]
    assert tuple(" ".join([v.label, *(f"{n}={x}" for n, x in _sizes(v.spec).items())]) for v in found) == sizes


def _sizes(spec: Spec) -> dict[str, int]:
    return {d.name: d.value for d in spec.dims if d.value is not None} | spec.samples(-1)
