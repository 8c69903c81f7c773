"""Bounds of sums whose conditions admit few of their terms, of which no sampled one may be among them."""

from __future__ import annotations

import pytest

from nautilus.check.bound.stated import stated
from nautilus.check.bound.sums.admitted import _sharing, averages, chains, lengths, without
from nautilus.core.expr.nodes import Reduce, walk
from nautilus.frontend.semantics.check import load_text

_SIZES = "dim M = 65536, N = 1048576, D = 4\ninput x: f32[N]\ninput X: f32[N, D]\n"
_ROWS = (
    "input ptr: i32[M + 1]\noutput y: f32[M]\nassume 0 <= ptr[i] <= N\nassume ptr[i] <= ptr[i + 1]\n"
    "assume 0 <= col[e] < M\ninput col: i32[N]\ninput v: f32[M]\n"
)
_KEYS = "input key: i32[N]\noutput Y: f32[M, D]\n"
FEW = {
    "rows of a sparse matrix": _ROWS + "y[i: M] = sum[e: ptr[i] .. ptr[i + 1]](x[e] * v[col[e]])",
    "weights of segments": _ROWS
    + "m[i: M] = max[e: ptr[i] .. ptr[i + 1]](x[e])\n"
    + "y[i: M] = sum[e: ptr[i] .. ptr[i + 1]](exp(x[e] - m[i]) * v[col[e]])",
    "elements of a key": _KEYS + "Y[i: M, d: D] = sum[t: N | key[t] == i](X[t, d])",
    "a choice": _KEYS + "Y[i: M, d: D] = sum[t: N](X[t, d] if key[t] == i else 0)",
    "means of a key": _KEYS
    + "n[i: M] = sum[t: N | key[t] == i](1)\n"
    + "Y[i: M, d: D] = sum[t: N | key[t] == i](X[t, d]) / n[i] if n[i] > 0 else 0",
    "blocks": "output y: f32[M]\ny[i: M] = sum[u: N | u // 16 == i](x[u])",
    "blocks by their ends": "output y: f32[M]\ny[i: M] = sum[u: N | 16 * i <= u and u < 16 * i + 16](x[u])",
    "few elements": "input keep: bool[N]\nassume not keep[u]\noutput y: f32[M]\n"
    "y[i: M] = sum[u: N | keep[u]](x[u] * i)",
}  # fmt: skip


@pytest.mark.parametrize("name", FEW)
def test_sums_of_few_terms_have_the_errors_of_sums(name: str) -> None:
    (found,) = stated(load_text(_SIZES + FEW[name] + "\n")).values()
    assert 2.0**-24 * 2 < found.relative < 3e-5, found.text


def test_a_chosen_term_is_exact() -> None:
    text = "dim T = 65536, V = 65536, D = 4\ninput k: i32[T]\ninput E: f32[V, D]\noutput Y: f32[T, D]\n"
    (found,) = stated(load_text(text + "Y[t: T, d: D] = sum[v: V | v == k[t]](E[v, d] / 3)\n")).values()
    assert 2.0**-24 < found.relative < 4e-7


def test_a_sum_of_which_an_index_is_chosen_has_the_others() -> None:
    """A row has the matrix of its expert: without the condition, the sum has fewer axes than before."""
    text = "dim T = 8192, E = 32, D = 2048, F = 1024\ninput X: bf16[T, D]\ninput W: bf16[E, F, D]\ninput of: i32[T]\n"
    text += "output Y: f32[T, F]\nY[t, f] = sum[e: E, d: D | of[t] == e](X[t, d] * W[e, f, d])\n"
    (found,) = stated(load_text(text)).values()
    assert 2.0**-24 < found.relative < 3e-5


def test_terms_of_an_element() -> None:
    spec = load_text(_SIZES + FEW["rows of a sparse matrix"] + "\n")
    (key,) = lengths(spec)
    assert (lengths(spec)[key], averages(spec)[key], chains(spec)[key]) == (1 << 20, 16, 1024)
    spec = load_text(_SIZES + "output y: f32\ny = sum[e: N](x[e])\n")
    assert lengths(spec) == averages(spec) == chains(spec) and without(spec) is without(spec, True) is spec


@pytest.mark.parametrize(
    ("mask", "shared"),
    [
        ("key[j] == i", {"i"}),
        ("start[i] <= j and j < start[i + 1]", {"i"}),
        ("start[i] <= j and j < other[i]", set()),
        ("j < start[i]", set()),
    ],
)
def test_rows_that_share_their_terms(mask: str, shared: set[str]) -> None:
    spec = load_text(
        "dim N = 64, S = 8\ninput X: f32[N], key: i32[N], start: i32[S + 1], other: i32[S]\noutput Y: f32[S]\n"
        f"Y[i: S] = sum[j | {mask}](X[j])\n"
    )
    (e,) = (e for e in walk(spec.definition("Y").expr) if isinstance(e, Reduce))
    assert _sharing(e) == shared
