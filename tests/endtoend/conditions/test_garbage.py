"""NaN and inf behind conditions over what a sum runs over reach no result of any level, in tiles with padding too."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from nautilus.check.inputs import generate
from nautilus.check.levels import run
from nautilus.frontend.interp import run_spec
from tests.endtoend.collection.warpgroups import SHIFTED
from tests.endtoend.support import travel

ATTENTION = """
dim B = 2, M = 37, N = 150, D = 64
input  Q: f16[B, M, D]
input  K: f16[B, N, D]
input  V: f16[B, N, D]
{extra}
output O: f16[B, M, D]
S[b, i, j] = sum[d](Q[b, i, d] * K[b, {row}, d]) / sqrt(D)
P[b, i, j] = softmax[j | {mask}](S[b, i, j])
O[b, i, d] = sum[j](P[b, i, j] * V[b, {row}, d])
"""
STORED = """
dim M = 37, N = 150, D = 64
input  A: f16[M, N]
input  V: f16[N, D]
output W: f16[M, N]
output O: f32[M, D]
W[i, j] = A[i, j] * 2 if j < 101 else 0
O[i, d] = sum[j](W[i, j] * V[j, d])
"""
LENGTHS, KEEP = np.array([70, 101]), np.arange(150) % 3 != 1

#: text, further inputs, and where [batch, row] the rows of K and V are garbage
CASES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "a constant length": (
        ATTENTION.format(extra="", row="j", mask="j < 101"), {},
        np.broadcast_to(np.arange(150) >= 101, (2, 150)),
    ),
    "lengths": (
        ATTENTION.format(extra="input len: i32[B]", row="j", mask="j < len[b]"), {"len": LENGTHS},
        np.arange(150) >= LENGTHS[:, None],
    ),
    "a tensor": (
        ATTENTION.format(extra="input keep: bool[N]", row="j", mask="keep[j]"), {"keep": KEEP},
        np.broadcast_to(~KEEP, (2, 150)),
    ),
    "unused rows of a gather": (
        ATTENTION.format(extra="input at: i32[N]", row="at[j]", mask="j < 101"), {"at": np.arange(150)[::-1]},
        np.broadcast_to(np.arange(150)[::-1] >= 101, (2, 150)),
    ),
}  # fmt: skip


def agree(text: str, arch: str, given: dict[str, Any]) -> None:
    """The last module of each level gives the finite results of the Spec; ``given`` K and V: which rows are garbage."""
    made = travel(text, arch, until="ma-tile")
    spec = made.result.modules["spec"]
    drawn = generate(spec)
    arrays = {**drawn.arrays, **given}
    arrays |= {n: spoiled(drawn.arrays[n], x) for n, x in given.items() if n in ("K", "V")}
    want = run_spec(spec, arrays)
    for stage in ("scalar", "vr-tile", "ma-tile"):
        got = run(made.last(stage), replace(drawn, arrays=arrays), "typed")
        for name, expected in want.items():
            assert np.isfinite(expected).all()
            np.testing.assert_allclose(got[name], expected, rtol=2e-2, atol=2e-2, err_msg=f"{stage}: {name}")


def spoiled(array: Any, where: Any) -> Any:
    """``array`` with NaN, inf and -inf in the rows ``where``."""
    garbage = np.resize([np.nan, np.inf, -np.inf], array.shape)
    return np.where(where[..., None], garbage, array)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("case", CASES)
def test_garbage_behind_a_condition_over_keys_reaches_no_result(case: str, arch: str) -> None:
    text, more, where = CASES[case]
    agree(text, arch, {**more, "K": where, "V": where})


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_garbage_behind_the_zeros_of_a_stored_tensor_reaches_no_result(arch: str) -> None:
    agree(STORED, arch, {"V": np.arange(150) >= 101})


@pytest.mark.parametrize("name", ["a padded image", "lines as long as a tile", "channels first"])
def test_factors_of_elements_outside_of_a_tensor_reach_no_result(name: str) -> None:
    """Taps that are inf or NaN: the results that have no such tap inside of the tensor are finite."""
    made = travel(dedent(SHIFTED[name]).lstrip().replace("B = 3, H = 7", "B = 2, H = 5"), "sm_90a", until="ma-tile")
    spec = made.result.modules["spec"]
    drawn = generate(spec)
    taps = np.array(drawn.arrays["F"])
    taps[0 if name == "a padded image" else -1] = np.inf
    taps[:, 0, ..., 1] = np.nan
    arrays = {**drawn.arrays, "F": taps}
    want = run_spec(spec, arrays)["Y"]
    assert 0 < np.isfinite(want).mean() < 1
    for stage in ("vr-tile", "ma-tile"):
        got = run(made.last(stage), replace(drawn, arrays=arrays), "typed")["Y"]
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2, err_msg=stage)
