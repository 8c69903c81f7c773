"""``lazy-rescale`` on inputs of all kinds, wrong certificates, chains of loops; the rest: ``lazy_rescale.vr``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nautilus.check.certificates.rules import check
from nautilus.core.expr.nodes import Const, Expr, Op
from nautilus.core.schedule import KernelPlan, Schedule
from nautilus.core.schedule.plans import RescalePolicy
from nautilus.planner.kernels import default_schedule
from nautilus.vr_tile import text
from nautilus.vr_tile.interp import run_module
from nautilus.vr_tile.ir import TileModule
from nautilus.vr_tile.lowering.lower import lower
from nautilus.vr_tile.passes.cse import Cse
from nautilus.vr_tile.passes.div_to_rcp import DivToRcp
from nautilus.vr_tile.passes.exp_to_exp2 import ExpToExp2
from nautilus.vr_tile.passes.fold_scale import FoldScale
from nautilus.vr_tile.passes.hoist import Hoist
from nautilus.vr_tile.passes.lazy_rescale import LazyRescale
from nautilus.vr_tile.passes.simplify_masks import SimplifyMasks
from nautilus.vr_tile.passes.sink_masks import SinkMasks
from nautilus.vr_tile.verify import verify
from tests.ir_files import INPUTS
from tests.scalar.analysis.test_iteration_order import mixed_first
from tests.scalar.programs.build import causal, window
from tests.scalar.programs.small import attn
from tests.scalar.test_fusion import stages
from tests.scalar.test_fusion_text import tiled
from tests.vr_tile.support import ops


def attention() -> TileModule:
    return text.parse((INPUTS / "vr_tile" / "inputs" / "online_softmax.vr").read_text())


def passed(policy: RescalePolicy) -> LazyRescale:
    return LazyRescale(Schedule(kernels=(KernelPlan("k", (), (), rescale_policy=policy, lazy_bits=8),)))


def data(seed: int, spread: float = 8.0) -> dict[str, np.ndarray]:
    """Rows with small and with large steps; one that starts masked, one that is masked throughout."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((4, 32)) * spread + np.linspace(0, 3 * spread, 32) * rng.choice([0.0, 1.0, -1.0], (4, 1))
    c = rng.random((4, 32)) < 0.8
    c[1, :9] = c[2] = False
    return {"X": x, "C": c, "V": rng.standard_normal((32, 8))}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray], tolerance: float) -> None:
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=tolerance, atol=tolerance, err_msg=name)


def test_skip_leaves_every_bit() -> None:
    m = passed("skip").apply(attention())
    for kind in ("real", "typed"):
        for name, w in run_module(attention(), data(1), mode=kind).items():
            np.testing.assert_array_equal(run_module(m, data(1), mode=kind)[name], w)


@pytest.mark.parametrize("spread", [0.5, 8.0, 60.0])
@pytest.mark.parametrize("seed", range(4))
def test_lazy_computes_the_same(seed: int, spread: float) -> None:
    m, inputs = passed("lazy").apply(attention()), data(seed, spread)
    same(run_module(m, inputs), run_module(attention(), inputs), 1e-9)
    same(run_module(m, inputs, mode="typed"), run_module(attention(), inputs, mode="typed"), 3e-3)


def test_infinities_and_nans_go_where_they_went() -> None:
    inputs = data(5)
    inputs["X"][0, 20], inputs["X"][3, 7] = np.inf, np.nan
    inputs["C"][0, 20] = inputs["C"][3, 7] = True
    m = passed("lazy").apply(attention())
    same(run_module(m, inputs), run_module(attention(), inputs), 1e-9)


def test_elements_stay_below_the_bound() -> None:
    """A score that rises in steps just too small to renew the reference, then in larger ones."""
    inputs = {**data(3), "C": np.ones((4, 32), bool), "V": np.ones((32, 8))}
    inputs["X"] = np.stack([np.linspace(0.0, top, 32) for top in (11.0, 11.2, 40.0, 1000.0)])
    m = passed("lazy").apply(attention())
    typed = run_module(m, inputs, mode="typed")  # 2^8 * 32 is far below the largest f16; a growing sum would exceed it
    same(typed, run_module(attention(), inputs), 2e-3)


def test_wrong_certificates_are_found() -> None:
    _, found = passed("lazy").derive(attention())
    for c in found:
        off = Op("mul", (c.after, Const(1.01, c.after.dtype)), c.after.dtype)
        assert not check(replace(c, after=off)).ok
        assert not check(replace(c, bindings=c.bindings[:1])).ok
    other = replace(found[0], before=found[1].before)
    assert "left side" in check(other).detail


@pytest.mark.parametrize("guard", [causal(3), window(30)])  # windows with blocks that need no mask
def test_a_reference_goes_through_the_loops_of_a_chain(guard: Expr) -> None:
    program, inputs = attn(40, 45, 8, guard)
    schedule = mixed_first(tiled(default_schedule(program), 16, 8))
    m = lower(stages(program, schedule)[-1])
    for p in (SimplifyMasks(), ExpToExp2(), DivToRcp(), FoldScale(), Hoist(), Cse(), SinkMasks()):
        m = p.apply(m)
    (kernel,) = m.kernels
    plan = KernelPlan(kernel.name, (), (), rescale_policy="lazy")
    lazy, found = LazyRescale(Schedule(kernels=(plan,))).derive(m)
    verify(lazy)
    assert ops(lazy).count("le") == text.format(m).count("chain c0") >= 2
    same(run_module(lazy, inputs), run_module(m, inputs), 1e-9)
    assert all(check(c).ok for c in found)
