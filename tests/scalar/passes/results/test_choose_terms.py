"""``choose-terms`` with the promises of a spec, which files of IR text do not have: segments that do not overlap."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.inline import Inline
from nautilus.scalar.passes.results.choose_terms import ChooseTerms
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.verify import verify
from tests.scalar.programs.specs import round_outputs

_SUM = "tanh(sum[d](X[t, d] * W[e, f, d]) + b[e, f])"
_HEAD = """
dim B = 2, T = 9, E = 4, D = 4, F = 3
input X: f32[T, D], W: f32[E, F, D], b: f32[E, F]
output H: f32[T, F]
"""
_OFF = f"input off: i32[E + 1]\nH[t, f] = sum[e: E | off[e] <= t < off[e + 1]]({_SUM})\n"
_LENGTHS = f"input at: i32[E], n: i32[E]\nH[t, f] = sum[e: E | t < at[e] + n[e] and t >= at[e]]({_SUM})\n"
_COUNTS = f"""input n: i32[E]
off[e: E + 1] = sum[x: E | x < e](n[x])
H[t, f] = sum[e: E | off[e] <= t < off[e + 1]]({_SUM})
"""

DISJOINT = {
    "neighbours": _OFF + "assume off[e] <= off[e + 1]",
    "one position before, turned": _OFF + "assume off[i] >= off[i - 1]",
    "strictly, in a chain": _OFF + "assume 0 <= off[e] < off[e + 1] <= T",
    "the greater end belongs to a segment": _OFF.replace("<= t <", "< t <=") + "assume off[e] <= off[e + 1]",
    "64 bits": _OFF.replace("i32", "i64") + "assume off[e] <= off[e + 1]",
    "lengths": _LENGTHS + "assume at[e] + n[e] <= at[e + 1]\nassume at[e] <= at[e + 1]",
    "lengths that are those between": _LENGTHS + "assume at[e + 1] == n[e] + at[e] and at[e + 1] >= at[e]",
    "counts": _COUNTS + "assume 0 <= n[e] <= T",
}
NOT_KNOWN = {
    "no promise": _OFF,
    "every second one": _OFF + "assume off[e] <= off[e + 2]",
    "descending": _OFF + "assume off[e] >= off[e + 1]",
    "another tensor": _OFF + "input ptr: i32[E + 1]\nassume ptr[e] <= ptr[e + 1]\nassume off[e] >= 0",
    "lengths that may be negative": _LENGTHS + "assume at[e] + n[e] <= at[e + 1]",
    "lengths that may be longer": _LENGTHS + "assume at[e] <= at[e + 1] and n[e] >= 0",
    "counts that wrap": _COUNTS + "assume 0 <= n[e]",
    "counts that may be negative": _COUNTS + "assume -1 <= n[e] <= T",
    "both ends belong to a segment": _OFF.replace("t <", "t <=") + "assume off[e] <= off[e + 1]",
}


def _chosen(text: str) -> tuple[Spec, Program, Program]:
    spec = load_text(_HEAD + text)
    before = Simplify().apply(Inline().derive(lower(spec))[0])
    return spec, before, ChooseTerms(spec).apply(before)


def _segments(text: str) -> list[dict[str, list[int]]]:
    """Contents that keep the promises: empty segments, positions outside of all, one segment."""
    if text.startswith(_LENGTHS):
        between = "==" in text
        return [
            {"at": [0, 2, 5, 5], "n": [2, 3, 0, 2]},
            {"at": [1, 4, 4, 9], "n": [3, 0, 5, 0] if between else [2, 0, 4, 0]},
        ]
    if text.startswith(_COUNTS):
        return [{"n": [2, 3, 0, 2]}, {"n": [0, 9, 0, 0]}]
    return [{"off": [0, 2, 5, 6, 9]}, {"off": [1, 2, 3, 4, 6]}] + (
        [] if "off[e] < off" in text else [{"off": [3, 3, 3, 8, 8]}, {"off": [0, 0, 9, 9, 9]}, {"off": [0] * 5}]
    )


@pytest.mark.parametrize("name", DISJOINT)
def test_disjoint_segments_have_one_term(name: str) -> None:
    spec, before, after = _chosen(DISJOINT[name])
    verify(after)
    assert after is not before
    assert any(b.name == "H_which" for b in after.buffers)
    rng = np.random.default_rng(3)
    for ends in _segments(DISJOINT[name]):
        arrays = {
            t.name: rng.standard_normal([int(str(n)) for n in t.shape]) for t in spec.inputs if t.name not in ends
        }
        inputs = {**arrays, **{n: np.array(v) for n, v in ends.items()}}
        want = round_outputs(spec, run_spec(spec, inputs))["H"]
        np.testing.assert_allclose(run_program(after, inputs)["H"], want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", NOT_KNOWN)
def test_segments_that_may_overlap_stay(name: str) -> None:
    _, before, after = _chosen(NOT_KNOWN[name])
    assert after is before
