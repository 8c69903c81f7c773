"""A spec restricted to some rows computes the same numbers as the whole spec."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nautilus.bench.inputs import random_inputs
from nautilus.core.numerics import from_storage
from nautilus.frontend.interp import run_spec
from nautilus.frontend.restrict import largest, pieces, restrict, sampled
from nautilus.frontend.semantics.check import load_spec, load_text
from nautilus.frontend.spec import Spec
from tests.shapes import static
from tests.shipped import IDS, SPECS

SMALL = {"B": 2, "H": 4, "Hq": 8, "Hkv": 2, "M": 24, "N": 24, "D": 8, "K": 16, "P": 3, "C": 20, "W": 7}


def small(path: Path) -> Spec:
    """The spec at sizes that take milliseconds."""
    names = {d.name for d in load_spec(path).dims}
    dims = {n: v for n, v in SMALL.items() if n in names}
    return load_spec(path, dims=dims | ({"M": 1} if "decode" in path.stem else {}))


def numbers(spec: Spec) -> dict[str, float | int | bool]:
    return {s.name: s.default for s in spec.scalars if s.default is not None}


@pytest.mark.parametrize("path", SPECS, ids=IDS)
def test_sampled_rows_and_pieces(path: Path) -> None:
    spec = small(path)
    raw = random_inputs(spec, 0, {})
    types = {t.name: t.dtype for t in spec.inputs}
    whole = run_spec(spec, {n: from_storage(x, types[n]) for n, x in raw.items()}, numbers(spec))
    seen = {t.name: np.zeros(static(t.shape), np.bool_) for t in spec.outputs}
    for chosen in [sampled(spec, 1, inner=5), *pieces(spec, 500)]:
        cut = restrict(spec, chosen)
        arrays = {n: x if n in cut.rows else from_storage(x, types[n]) for n, x in cut.arrays(raw).items()}
        found = run_spec(cut.spec, arrays, numbers(spec))
        for t in spec.outputs:
            np.testing.assert_allclose(found[t.name], cut.cut(t.name, whole[t.name]), rtol=1e-12, atol=1e-14)
            at = chosen.get(t.name, {})
            seen[t.name][np.ix_(*(at.get(p, np.arange(n)) for p, n in enumerate(t.shape)))] = True  # type: ignore[arg-type]
    assert all(s.all() for s in seen.values())


def test_work_shrinks_with_the_rows() -> None:
    path = next(p for p in SPECS if p.stem == "gqa_prefill")
    spec = load_spec(path, dims={"M": 4096, "N": 4096})
    cut = restrict(spec, sampled(spec, 0))
    assert largest(spec) >= 64 * 4096 * 4096
    assert largest(cut.spec) <= 128 * 4096 + 8 * 4096 * 128
    assert cut.inputs["Q"].keys() == {0, 1, 2}  # one row index each for batch, head and row
    assert cut.inputs["K"].keys() == {0}  # its head is computed from the query's, so all heads stay
    for chosen in pieces(spec, 1 << 24):
        assert largest(restrict(spec, chosen).spec) <= 1 << 24


def test_rows_hold_the_ends() -> None:
    spec = load_text("dim M = 1000, N = 9\ninput X: f32[M, N]\noutput Y: f32[M, N]\nY[i, j] = X[i, j] * i\n")
    rows = sampled(spec, 3)["Y"][0]
    assert len(rows) == 32 and rows[0] == 0 and rows[-1] == 999 and len(set(rows.tolist())) == 32


def test_a_definition_read_at_other_places_stays_whole() -> None:
    text = "dim N = 64\ninput X: f32[N]\noutput Y: f32[N]\nT[i] = X[i] * 2\nY[i] = T[i] + T[N - 1 - i]\n"
    spec = load_text(text)
    cut = restrict(spec, {"Y": {0: np.array([3, 5])}})
    assert cut.spec.definition("T").shape == (64,)
    assert cut.spec.definition("Y").shape == (2,)
    x = np.arange(64.0)
    found = run_spec(cut.spec, cut.arrays({"X": x}))
    assert found["Y"].tolist() == [126.0, 126.0]


@pytest.mark.parametrize("images", [False, True])
def test_windows_around_the_chosen_elements(images: bool) -> None:
    """Of what two windows and an index itself read, only the positions that occur stay."""
    text = (
        "dim N = 64\ninput X: f32[N]\noutput Y: f32[N]\nT[i] = X[i] * i\n"
        "U[i: N] = sum[u: 3 | 0 <= i + u - 1 < N](T[i + u - 1])\n"
        "Y[i] = U[i] + sum[u: 2 | i + 4 * u < N](U[i + 4 * u]) + T[i]\n"
    )
    spec = load_text(text)
    cut = restrict(spec, {"Y": {0: np.array([0, 3, 62])}}, images=images)
    assert cut.spec.definition("U").shape == ((5,) if images else (64,))  # 0, 3, 4, 7, 62
    assert cut.spec.definition("T").shape == ((12,) if images else (64,))  # 0 to 8, 61 to 63
    x = np.random.default_rng(0).standard_normal(64)
    want = run_spec(spec, {"X": x})["Y"][[0, 3, 62]]
    np.testing.assert_allclose(run_spec(cut.spec, cut.arrays({"X": x}))["Y"], want)


def test_a_spec_that_is_restricted_twice_keeps_both_tables_of_rows() -> None:
    spec = load_text("dim M = 16, N = 12\ninput X: f32[M, N]\noutput O: f32[M, N]\nO[i, j] = X[i, j] * (100 * i + j)\n")
    x = np.ones((16, 12))
    first = restrict(spec, {"O": {0: np.array([1, 3, 8])}})
    second = restrict(first.spec, {"O": {1: np.array([2, 7, 9])}})
    given = {n: second.cut(n, a) for n, a in first.arrays({"X": x}).items()} | dict(second.rows)
    found = run_spec(second.spec, given, {})["O"]
    np.testing.assert_array_equal(found, np.add.outer([100, 300, 800], [2, 7, 9]))


def test_indices_of_long_axes_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = load_text("dim N = 67108864\ninput x: f32[N]\noutput y: f32[N]\ns = sum[j](x[j])\ny[i] = s * x[i]\n")
    monkeypatch.setattr(np, "arange", lambda *_: pytest.fail("a list of all indices"))
    found = restrict(spec, {"y": {0: np.array([0, 5, 67108863])}}, {})
    assert found.spec.definition("y").axes[0].extent == 3


@pytest.mark.parametrize(
    ("fact", "kept"),
    [
        ("0 <= x[i] <= 0.9 and -3 <= y[i]", [[8], [8], [8]]),
        ("x[i] <= y[i]", [[8]]),
        ("D[i, i] >= 1 and S[i, i] >= 1", [[8]]),
        ("x[i] <= x[i + 1] and y[j] >= 0", [[8]]),
        ("x[i] <= S[i, j]", [[8, 64]]),
        ("x[i] <= i", []),
    ],
)
def test_facts_about_the_elements_that_are_left_stay(fact: str, kept: list[list[int]]) -> None:
    text = f"dim N = 64\ninput x: f32[N], y: f32[N], S: f32[N, N], D: f32[N, N]\nassume {fact}\noutput O: f32[N]\n"
    spec = load_text(text + "O[i] = x[i] + y[i] + D[i, i] + sum[j](S[i, j])\n")
    cut = restrict(spec, {"O": {0: np.arange(0, 64, 9)}}).spec
    assert [[a.extent for a in f.axes] for f in cut.facts] == kept


def test_short_last_axes_leave_more_rows() -> None:
    """Eight elements of many small matrices would say nothing about the others."""
    text = "dim N = 1000, M = {m}\ninput A: f32[N, M, M]\noutput Y: f32[N, M, M]\nY[n, i, j] = A[n, j, i]\n"
    few, many = (sampled(load_text(text.format(m=m)), 0, 8, 16)["Y"] for m in (2, 50))
    assert {p: len(x) for p, x in few.items()} == {0: 32, 1: 2}
    assert {p: len(x) for p, x in many.items()} == {0: 2, 1: 8, 2: 16}
