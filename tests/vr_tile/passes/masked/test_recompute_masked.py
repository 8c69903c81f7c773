"""Masked dots on inf and NaN: the module after the pass has the results of the module before it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from nautilus.check.inputs import generate
from nautilus.core.schedule import KernelPlan, Schedule, WarpgroupPlan
from nautilus.driver import Request, compile_file
from nautilus.frontend.interp import run_spec
from nautilus.ma_tile.interp.module import run_module as ma_tile
from nautilus.ma_tile.ir.ops import RolesOp, walk_ops
from nautilus.vr_tile.interp import run_module
from nautilus.vr_tile.ir import ForOp
from nautilus.vr_tile.ir import walk_ops as walk_tile_ops
from nautilus.vr_tile.passes.masked import recompute_masked
from nautilus.vr_tile.passes.masked.recompute_masked import RecomputeMasked, _Rewrite
from nautilus.vr_tile.verify import verify
from tests.endtoend.collection.decode import Decode
from tests.ir_files import cases_in, input_of

CASES = cases_in(Path(__file__).parent / "recompute_masked.vr")


@pytest.mark.parametrize("title", list(CASES)[:2])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("row", [0, 7, 20])
def test_garbage_behind_a_mask_reaches_no_other_row(title: str, value: float, row: int) -> None:
    before = input_of(CASES[title])
    after = RecomputeMasked().apply(before)
    verify(after)
    rng = np.random.default_rng(row)
    shapes = {b.name: b.shape for b in before.buffers}
    inputs = {name: rng.standard_normal(shapes[name]) for name in ("A", "B")}
    inputs["B"][row, ::2] = value
    with np.errstate(all="ignore"):
        want, got = (run_module(m, inputs, {}, "real")["O"] for m in (before, after))
    np.testing.assert_allclose(got, want)
    assert np.isfinite(want[:row]).all()


@pytest.mark.parametrize("where", ["a block tests two tiles", "columns have flags"])
@pytest.mark.parametrize("row", [0, 20])
def test_the_second_kernel_finds_every_flag(where: str, row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = input_of(next(iter(CASES.values())))
    before = replace(before, kernels=tuple(replace(k) for k in before.kernels))  # results for these are remembered
    columns = where == "columns have flags"
    monkeypatch.setattr(recompute_masked, "_BLOCKS", 132 if columns else 1)
    scheduling: Literal["cooperative", "pingpong"] = "cooperative" if columns else "pingpong"
    plan = KernelPlan("O", ("O",), (), mapping=WarpgroupPlan(warpgroups=2, tile_scheduling=scheduling))
    after = RecomputeMasked(Schedule(kernels=(plan,))).apply(before)
    verify(after)
    rng = np.random.default_rng(row)
    inputs = {"A": rng.standard_normal((32, 32)), "B": rng.standard_normal((32, 8))}
    inputs["B"][row, 3] = np.nan
    with np.errstate(all="ignore"):
        want, got = (run_module(m, inputs, {}, "real")["O"] for m in (before, after))
    np.testing.assert_allclose(got, want)
    assert np.isfinite(want[:row]).all()


def test_a_kernel_that_several_modules_have_is_rewritten_once() -> None:
    before = input_of(next(iter(CASES.values())))
    beside = replace(before, kernels=(*before.kernels, replace(before.kernels[0], name="second")))
    after, again = (RecomputeMasked().apply(m).kernels for m in (before, beside))
    assert all(a is b for a, b in zip(after, again, strict=False))
    taken = replace(beside, buffers=(*before.buffers, replace(before.buffers[0], name=f"{before.kernels[0].name}_nan")))
    assert RecomputeMasked().apply(taken).kernels[0] != after[0]  # the flags have another name


def test_an_operand_behind_the_mask_on_either_side() -> None:
    """Where both operands lack an axis of the mask's conjuncts, neither one's NaN reaches another element."""
    before = input_of(CASES["an operand behind the mask on either side"])
    after = RecomputeMasked().apply(before)
    rng = np.random.default_rng(0)
    inputs = {"A": rng.standard_normal((8, 8)), "B": rng.standard_normal((8, 8))}
    inputs["A"][6, 3] = np.inf
    inputs["B"][5, 6] = np.nan
    with np.errstate(all="ignore"):
        want, got = (run_module(m, inputs, {}, "real")["O"] for m in (before, after))
    np.testing.assert_allclose(got, want)
    assert np.isfinite(want[6, :3]).all() and np.isfinite(want[:5, 6]).all()


def test_a_kernel_that_is_combined_with_its_reader_has_no_second_kernel() -> None:
    """Split-K warps stay in one launch after a causal mask, and NaN reaches no row that does not read it."""
    text = Decode(1111, 64, 1, 2, 1, rows=3).text
    result = compile_file(Request(Path("decode.naut"), "sm_90a", text=text, until="ma-tile"))
    module = result.modules["ma-tile"]
    assert any(isinstance(op, RolesOp) for k in module.kernels for op in walk_ops(k.body))
    assert not any(k.name.endswith("_masked") for k in module.kernels)
    given = generate(result.modules["spec"], "random")
    arrays = {**given.arrays, "V": np.array(given.arrays["V"])}
    arrays["V"][..., -1, :] = np.nan
    with np.errstate(all="ignore"):
        want = run_spec(result.modules["spec"], arrays)["O"]
        got = ma_tile(module, arrays)["O"]
    assert np.isnan(want[..., -1, :]).all() and np.isfinite(want[..., :-1, :]).all()
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=2e-3)


def test_inf_times_a_factor_that_is_too_small_for_the_narrow_type_is_inf() -> None:
    text = """dim T = 64, D = 16
input q: f16[T, D], k: f16[T, D], v: f16[T, D]
output O: f16[T, D]
S[t, u] = sum[d](q[t, d] * k[u, d]) * exp(-0.5 * (t - u)) if u <= t else 0
O[t, d] = sum[u](S[t, u] * v[u, d])
"""
    result = compile_file(Request(Path("decay.naut"), "sm_90a", text=text, until="ma-tile"))
    given = generate(result.modules["spec"], "random").arrays
    arrays = {**given, "v": np.array(given["v"])}
    arrays["v"][3, 5] = np.inf
    with np.errstate(all="ignore"):
        want = run_spec(result.modules["spec"], arrays)["O"]
        got = ma_tile(result.modules["ma-tile"], arrays)["O"]
    assert np.isinf(want[3:, 5]).all() and np.isfinite(want[:3]).all()
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2)


def test_variables_of_loops_are_those_of_the_kernel() -> None:
    for case in CASES.values():
        for k in input_of(case).kernels:
            own = {a.name for a in k.axes} | {g.var for g in k.grid}
            loops = {op.var for op in walk_tile_ops(k.body) if isinstance(op, ForOp)}
            assert _Rewrite(k, set(), None, alone=True).variables == own | loops
