"""``recur-scans`` on random, infinite and missing numbers."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.check.certificates.rules import check
from nautilus.check.inputs import InputSet, generate
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.analysis.definitions import is_recurrence
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.recurrences.chunk_recurrences import ChunkRecurrences
from nautilus.scalar.passes.recurrences.recur_scans import RecurScans
from nautilus.scalar.passes.recurrences.tile_recurrences import TileRecurrences
from tests.scalar.expect import sound
from tests.scalar.passes.recurrences.test_chunk_recurrences import same_special_values
from tests.scalar.programs.specs import agree

HEAD = "dim B = 3, T = 40\ninput x: f16[B, T]\noutput y: f32[B, T]\n"
LARGEST = "max[v: T | v <= t](f32(x[b, v]))"
SUMS = {
    "from the first element on": HEAD + "y[b, t] = logsumexp[u | u <= t](f32(x[b, u]))\n",
    "from the last element on": HEAD + "y[b, t] = logsumexp[u | u >= t](0.5 * x[b, u])\n",
    "a sum with weights beside it": HEAD
    + f"m[b, t: T] = {LARGEST}\nd[b, t] = sum[u | u <= t](exp(x[b, u] - m[b, t]))\n"
    "y[b, t] = sum[u | u <= t](exp(x[b, u] - m[b, t]) * x[b, u]) / d[b, t]\n",
    "an average under a running softmax, from the last element on": HEAD
    + "p[b, t: T, u] = softmax[u | u >= t](2 * f32(x[b, u]))\ny[b, t] = sum[u](p[b, t, u] * x[b, u] / (2 + x[b, u]))\n",
    "without the element itself": HEAD + "y[b, t] = logsumexp[u | u > t](f32(x[b, u]))\n",
    "along columns": HEAD.replace("[B, T]", "[T, B]") + "y[t, b] = logsumexp[u | t <= u](f32(x[u, b]))\n",
}
#: more exact than the sums where the elements are large
LOGARITHMS = {
    "relative to the logarithm of a sum": HEAD
    + "l[b, t: T] = logsumexp[u | u <= t](f32(x[b, u]))\ny[b, t] = sum[u | u <= t](exp(x[b, u] - l[b, t]) * x[b, u])\n",
}
OTHERS = {
    "another reference": HEAD + "y[b, t] = sum[u | u <= t](exp(x[b, u] - max[v: T | v <= t](0.5 * x[b, v])))\n",
    "a window": HEAD + "y[b, t] = logsumexp[u | u <= t and u > t - 4](f32(x[b, u]))\n",
    "the whole row": HEAD + "y[b, t] = logsumexp[u: T](f32(x[b, u])) + x[b, t]\n",
    "a result": HEAD + f"output m: f32[B, T]\nm[b, t] = {LARGEST}\ny[b, t] = sum[u | u <= t](exp(x[b, u] - m[b, t]))\n",
}


def recurrent(text: str, shortest: int = 2) -> tuple[Program, Program]:
    spec = load_text(text)
    before = lower(spec)
    after, certificates = RecurScans(shortest, spec).derive(before)
    assert all(check(c).ok for c in certificates)
    return before, after


@pytest.mark.parametrize("name", [*SUMS, *LOGARITHMS])
def test_steps_give_the_sums(name: str) -> None:
    text = (SUMS | LOGARITHMS)[name]
    spec = load_text(text)
    _, after = recurrent(text)
    assert sum(map(is_recurrence, after.kernels)) == 1 + ("sum" in name or "average" in name)
    sound(after)
    given = generate(spec, "random").arrays
    agree(spec, after, given, 1e-5)
    chunks, certificates = ChunkRecurrences(spec, 8).derive(after)
    assert certificates  # the factor is proved to be at most 1
    agree(spec, TileRecurrences().apply(chunks), given, 1e-5)


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay_as_they_are(name: str) -> None:
    before, after = recurrent(OTHERS[name])
    assert after is before


@pytest.mark.parametrize(("most", "steps"), [(1, 1), (2, 0)])
def test_facts_bound_the_rates_of_decaying_sums(most: int, steps: int) -> None:
    text = HEAD + f"input r: f32[B]\nassume abs(r[b]) <= {most}\n"
    text += "y[b, t] = sum[u | u <= t](pow(r[b], t - u) * x[b, u])\n"
    _, after = recurrent(text)
    assert sum(map(is_recurrence, after.kernels)) == steps
    spec = load_text(text)
    agree(spec, after, generate(spec, "random").arrays, 1e-5)


def test_short_axes_stay_as_they_are() -> None:
    before, after = recurrent(SUMS["from the first element on"], 41)
    assert after is before


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("rows", ["begin with -inf", "hold inf", "hold NaN", "are -inf", "are the least number"])
def test_inf_and_nan_are_where_the_sums_have_them(name: str, rows: str) -> None:
    spec = load_text(SUMS[name])
    before, after = recurrent(SUMS[name])
    given = generate(spec, "random")
    x = given.arrays["x"].astype(np.float64)
    along = x if x.shape[0] == 3 else x.T
    match rows:
        case "begin with -inf":
            along[:, :7] = along[:, -7:] = along[1, 11:13] = -np.inf
        case "hold inf":
            along[1, 9] = along[2, 30] = np.inf
        case "hold NaN":
            along[0, 20] = np.nan
        case "are -inf":
            along[1] = -np.inf
        case _:
            along[1] = -65504.0
    spoilt = InputSet(given.kind, given.seed, {"x": x}, given.scalars, given.sizes)
    chunks = TileRecurrences().apply(ChunkRecurrences(spec, 8).apply(after))
    for made in (after, chunks):
        want, got = (run_program(p, spoilt.arrays, {}, "typed") for p in (before, made))
        same_special_values(spec, want, got)
