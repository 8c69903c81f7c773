"""The printed text of scatters: combiners and types, keys outside of the result, and terms that meet in one element."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from nautilus.core.schedule import Schedule
from nautilus.driver import Request
from nautilus.ma_tile.passes.grid import block_scatters
from nautilus.scalar.passes.axes import scatter
from nautilus.targets.limits import limits
from tests.simulation.compared import Case, at_sizes, compiled, differences, differing, prepare
from tests.simulation.simulate import MISSING

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "a compiler")

#: title -> sizes, types of the input and of the output, definition
CASES = {
    "histogram": ("T = 3000, E = 37, D = 1", "i32", "i32", "Y[e: E, d: D] = sum[t | K[t] == e](1)"),
    "copies of few elements": ("T = 4200, E = 6, D = 1", "f32", "f32", "Y[e: E, d] = sum[t | K[t] == e](X[t, d])"),
    "sum of i64": ("T = 500, E = 9, D = 5", "i64", "i64", "Y[e: E, d] = sum[t | K[t] == e](X[t, d])"),
    "sum of f32": ("T = 700, E = 21, D = 33", "f32", "f32", "Y[e: E, d] = sum[t | K[t] == e](X[t, d])"),
    "sum of bf16": ("T = 700, E = 21, D = 32", "bf16", "bf16", "Y[e: E, d] = sum[t | K[t] == e](X[t, d])"),
    "max of f32": ("T = 700, E = 21, D = 33", "f32", "f32", "Y[e: E, d] = max[t | K[t] == e](X[t, d])"),
    "min of f32": ("T = 700, E = 21, D = 33", "f32", "f32", "Y[e: E, d] = min[t | K[t] == e](X[t, d])"),
    "max of i32": ("T = 300, E = 21, D = 4", "i32", "i32", "Y[e: E, d] = max[t | K[t] - 1 == e](X[t, d])"),
    "one element": ("T = 2000, E = 1, D = 1", "i32", "i32", "Y[e: E, d] = sum[t | K[t] == e](X[t, d])"),
}


#: the same for results that blocks have in shared memory
BLOCK_CASES = {
    "histogram": ("T = 9000, E = 37, D = 1", "i32", "i32", "Y[e: E, d: D] = sum[t | K[t] == e](1)"),
    "sum of i64": ("T = 9000, E = 9, D = 1", "i64", "i64", "Y[e: E, d] = sum[t | K[t] == e](X[t, d])"),
    "sum of f32": ("T = 9000, E = 6, D = 1", "f32", "f32", "Y[e: E, d] = sum[t | K[t] == e](X[t, d])"),
    "min of f32": ("T = 9000, E = 21, D = 1", "f32", "f32", "Y[e: E, d] = min[t | K[t] == e](X[t, d])"),
    "max of i32": ("T = 9000, E = 21, D = 1", "i32", "i32", "Y[e: E, d] = max[t | K[t] - 1 == e](X[t, d])"),
    "another axis": ("T = 9000, E = 6, D = 3", "f32", "f32", "Y[e: E, d] = sum[t | K[t] == e](X[d, t])"),
    "rows": ("T = 9000, E = 6, D = 3", "i32", "i32", "Y[e: E, d] = max[t | K[t] == e](X[t, d])"),
    "another axis, max": ("T = 9000, E = 6, D = 3", "i32", "i32", "Y[e: E, d] = max[t | K[t] == e](X[d, t])"),
}


@pytest.mark.parametrize("keys", ["some", "sorted", "equal", "outside"])
@pytest.mark.parametrize("name", CASES)
def test_scatters(name: str, keys: str, tmp_path: Path) -> None:
    _simulate(CASES[name], name, keys, tmp_path)


@pytest.mark.parametrize("keys", ["some", "equal", "outside"])
@pytest.mark.parametrize("name", BLOCK_CASES)
def test_scatters_in_blocks(name: str, keys: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_scatters, "limits", lambda target: replace(limits(target), multiprocessors=1))
    monkeypatch.setattr(scatter, "MANY", 1)
    text = _simulate(BLOCK_CASES[name], name, keys, tmp_path)
    assert "_block_at" in text
    assert "copy: " in text  # lanes have copies of the few elements


@lru_cache(maxsize=1)  # tests of one case, which has the same constants in all of them, follow each other
def _prepared(case_of: tuple[str, str, str, str], name: str) -> Case:
    sizes, given, out, body = case_of
    layout = "D, T" if "X[d, t]" in body else "T, D"
    text = f"dim {sizes}\ninput X: {given}[{layout}]\ninput K: i32[T]\noutput Y: {out}[E, D]\n{body}\n"
    target = {"histogram": "Y_sum", "sum of bf16": "Y_acc"}.get(name, "Y")
    request = Request(Path("given.naut"), "sm_90a", text=text, schedule=Schedule(scatters=(target,)))
    return prepare(request, integers=True)


def _simulate(case_of: tuple[str, str, str, str], name: str, keys: str, tmp_path: Path) -> str:
    """Compare the printed text with numpy; the text."""
    sizes, given, out, body = case_of
    case = _prepared(case_of, name)
    assert "atomic" in case.text
    extent, drawn = int(sizes.split("E = ")[1].split(",")[0]), np.random.default_rng(7)
    count = len(case.given.arrays["K"])
    drawings = {
        "some": drawn.integers(-2, extent + 2, count),
        "sorted": np.sort(drawn.integers(-2, extent + 2, count)),
        "equal": np.full(count, extent - 1),
        "outside": np.full(count, extent),
    }
    arrays = {**case.given.arrays, "K": drawings[keys]}
    if given == "f32":
        arrays["X"] = np.where(drawn.random(arrays["X"].shape) < 0.01, np.inf, arrays["X"])
        arrays["X"][0, 0] = np.nan
    inputs = replace(case.given, arrays=arrays)
    case = replace(case, given=inputs)
    expected = _expected(arrays, out, body, case.want["Y"].shape)
    np.testing.assert_array_equal(case.want["Y"].astype(np.float64), expected)
    found = differences(case, (0, 3), tmp_path)
    assert not found, "\n".join(found)
    return case.text


@pytest.mark.parametrize("body, given", [
    ("Y[e: E, d] = sum[t | K[t] == e](X[t, d])", "f32"),
    ("Y[e: E, d] = max[t | K[t] == e](X[t, d])", "f32"),
    ("Y[e: E, d] = sum[t | K[t] == e](X[t, d])", "i32"),
])  # fmt: skip
def test_scatters_of_terms_whose_number_is_known_at_launch(body: str, given: str, tmp_path: Path) -> None:
    text = f"dim T = runtime <= 300, E = 9, D = 5\ninput X: {given}[T, D]\ninput K: i32[T]\n"
    text += f"output Y: {given}[E, D]\n{body}\n"
    request = Request(Path("given.naut"), "sm_90a", text=text, schedule=Schedule(scatters=("Y",)))
    case = prepare(request, integers=True)
    assert "atomic" in case.text
    program, drawn = compiled(case, tmp_path), np.random.default_rng(7)
    for size in (0, 1, 77):
        here = at_sizes(case, {"T": size})
        arrays = {**here.given.arrays, "K": drawn.integers(-2, 12, size)}
        inputs = replace(here.given, arrays=arrays)
        here = replace(here, given=inputs)
        expected = _expected(arrays, given, body, here.want["Y"].shape)
        np.testing.assert_array_equal(here.want["Y"].astype(np.float64), expected)
        found = differing(here, [size], program)
        assert not found, f"{size}: " + "\n".join(found)


def test_blocks_of_as_many_terms_as_are_known_at_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_scatters, "limits", lambda target: replace(limits(target), multiprocessors=1))
    text = "dim T = runtime <= 1000000, E = runtime <= 40\ninput K: i32[T]\noutput Y: i32[E]\n"
    text += "Y[e] = sum[t | K[t] == e](1)\n"
    case = prepare(Request(Path("given.naut"), "sm_90a", text=text, schedule=Schedule(scatters=("Y",))))
    assert "Y_block" in case.text and "copy: " in case.text
    program, drawn = compiled(case, tmp_path), np.random.default_rng(7)
    for size, elements in ((0, 3), (1, 40), (20000, 37)):
        here = at_sizes(case, {"T": size, "E": elements})
        keys = drawn.integers(-2, elements + 2, size)
        here = replace(here, given=replace(here.given, arrays={"K": keys}))
        np.testing.assert_array_equal(here.want["Y"], [np.sum(keys == e) for e in range(elements)])
        found = differing(here, [size], program)
        assert not found, f"{size}: " + "\n".join(found)


def _expected(arrays: dict[str, np.ndarray], out: str, body: str, shape: tuple[int, ...]) -> np.ndarray:
    """The result by numpy, whose sums of small integers are exact."""
    x = np.ones(arrays["X"].shape) if body.endswith("(1)") else arrays["X"].astype(np.float64)
    x = x.T if "X[d, t]" in body else x
    key = arrays["K"] - (1 if "K[t] - 1" in body else 0)
    combine = np.add if "sum" in body else np.maximum if "max" in body else np.minimum
    info = None if out in ("f32", "bf16") else np.iinfo(out.replace("i", "int"))
    ends = (-np.inf, np.inf) if info is None else (float(info.min), float(info.max))
    made = np.full(shape, 0.0 if combine is np.add else ends[0] if combine is np.maximum else ends[1])
    inside = (key >= 0) & (key < shape[0])
    with np.errstate(all="ignore"):
        combine.at(made, key[inside], x[inside])
    return made


def test_scatters_that_share_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two results of the same terms, of which one has an axis of the terms before its key."""
    monkeypatch.setattr(block_scatters, "limits", lambda target: replace(limits(target), multiprocessors=1))
    monkeypatch.setattr(scatter, "MANY", 1)
    text = "dim T = 3000, D = 3, E = 9\ninput K: i32[T, D], X: f32[T, D]\noutput C: i32[D, E], M: f32[D, E]\n"
    text += "C[d, e] = sum[t | K[t, d] == e](1)\nM[d, e] = max[t | K[t, d] == e](X[t, d])\n"
    request = Request(Path("given.naut"), "sm_90a", text=text, schedule=Schedule(scatters=("C", "M")))
    case = prepare(request, integers=True)
    assert case.text.count("C_block_at = ") == case.text.count("M_block_at = ") == 1
    assert case.text.count("__launch_bounds__") == 2  # of the initial values, and of both scatters
    found = differences(case, (0, 3), tmp_path)
    assert not found, "\n".join(found)
