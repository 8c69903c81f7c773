"""``lazy-rescale``: what it makes of a loop under a running maximum, when it refuses, and that nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from nautilus.check.certificates.rules import check
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.nodes import Const, Expr, Op
from nautilus.core.schedule import KernelPlan, Schedule
from nautilus.core.schedule.plans import RescalePolicy
from nautilus.planner.kernels import default_schedule
from nautilus.vr_tile import text
from nautilus.vr_tile.interp import run_module
from nautilus.vr_tile.ir import TileModule
from nautilus.vr_tile.lowering.lower import lower
from nautilus.vr_tile.passes.cse import Cse
from nautilus.vr_tile.passes.dce import Dce
from nautilus.vr_tile.passes.div_to_rcp import DivToRcp
from nautilus.vr_tile.passes.exp_to_exp2 import ExpToExp2
from nautilus.vr_tile.passes.fold_scale import FoldScale
from nautilus.vr_tile.passes.hoist import Hoist
from nautilus.vr_tile.passes.lazy_rescale import LazyRescale
from nautilus.vr_tile.passes.simplify_masks import SimplifyMasks
from nautilus.vr_tile.passes.sink_masks import SinkMasks
from nautilus.vr_tile.verify import verify
from tests.scalar.analysis.test_iteration_order import mixed_first
from tests.scalar.programs.build import causal, window
from tests.scalar.programs.small import attn
from tests.scalar.test_fusion import stages
from tests.scalar.test_fusion_text import tiled
from tests.vr_tile.support import check_pass, ops

#: Blocks of 4 columns under a running maximum: a row sum and a weighted sum; ``{...}`` are what tests vary.
ATTENTION = """
module t {{
  input X: f32[4, 32]
  input C: bool[4, 32]
  input V: {v}[32, 8]
  output O: f32[4, 8]
  output L: f32[4]
  kernel k grid() axes(i: 4, j: 4, d: 8) {{
    %m0 = const -inf : f32[i: 4]
    %l0 = const 0.0 : f32[i: 4]
    %a0 = const {start} : f32[i: 4, d: 8]
    %low = const -inf : f32
    %zero = const 0.0 : f32
    %scale = const 0.5 : f32
    %log2e = const 1.4426950408889634 : f32
    %ln2 = const 0.6931471805599453 : f32
    %k = const 0.7213475204444817 : f32
    %nk = const -1.4426950408889634 : f32
    %m2, %l2, %a2 = for j0 in 0..8 carry(%m = %m0, %l = %l0, %a = %a0) {{
      %x = load X[i, j0 * 4 + j] : f32[i: 4, j: 4]
      %c = load C[i, j0 * 4 + j] : bool[i: 4, j: 4]
      %s = select %c, %x, %low : f32[i: 4, j: 4]
      %top = reduce max %s over j : f32[i: 4]
      %most = mul %top, %scale : f32[i: 4]
      %new = max %m, %most : f32[i: 4]
      %gone = eq %new, %low : bool[i: 4]
      %ref = select %gone, %zero, %new : f32[i: 4]
      %gap = sub %m, %ref : f32[i: 4]
      %g2 = mul %gap, %log2e : f32[i: 4]
      %t = exp2 %g2 : f32[i: 4]
      %bias = mul %ref, %nk : f32[i: 4]
      %arg = fma {arg}, %k, %bias : f32[i: 4, j: 4]
      %e = exp2 %arg : f32[i: 4, j: 4]
      %p = {mask} : f32[i: 4, j: 4]
      %lt = mul %l, %t : f32[i: 4]
      %row = reduce sum %p over j : f32[i: 4]
      %l1 = add %lt, %row : f32[i: 4]
      %at = mul {repaired}, %t : f32[i: 4, d: 8]
      %q = narrow %p : {v}[i: 4, j: 4]
      %v = load V[j0 * 4 + j, d] : {v}[j: 4, d: 8]
      %a1 = dot %q, %v + %at over j : f32[i: 4, d: 8]
      {more}
      yield %new, %l1, %a1
    }}
    %o = {out} : f32[i: 4, d: 8]
    %log = log2 %l2 : f32[i: 4]
    %nat = mul %log, %ln2 : f32[i: 4]
    %lse = {lse} : f32[i: 4]
    store O[i, d], %o
    store L[i], %lse
  }}
}}
"""
GOOD = {"v": "f16", "start": "0.0", "arg": "%s", "mask": "select %c, %e, %zero", "repaired": "%a", "more": "",
        "out": "div %a2, %l2", "lse": "add %m2, %nat"}  # fmt: skip


def attention(**changes: str) -> TileModule:
    m = text.parse(ATTENTION.format(**{**GOOD, **changes}))
    verify(m)
    return m


def passed(policy: RescalePolicy, bits: int = 8) -> LazyRescale:
    return LazyRescale(Schedule(kernels=(KernelPlan("k", (), (), rescale_policy=policy, lazy_bits=bits),)))


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


def test_always_leaves_the_module() -> None:
    m = attention()
    assert passed("always").apply(m) is m
    assert LazyRescale(None).apply(m) is m


def test_skip_marks_the_repair_of_the_tile(filecheck: Callable[..., None]) -> None:
    m = check_pass(attention(), passed("skip"), inputs=data(0))
    filecheck(
        text.format(m),
        """// CHECK: %lt = mul %l, %t
           // CHECK: %at = mul_unless_one %a, %t : f32[i: 4, d: 8]
           // CHECK: yield %new, %l1, %a1""",
    )
    for kind in ("real", "typed"):
        for name, w in run_module(attention(), data(1), mode=kind).items():
            np.testing.assert_array_equal(run_module(m, data(1), mode=kind)[name], w)


def test_lazy_keeps_the_old_reference(filecheck: Callable[..., None]) -> None:
    m = Dce().apply(check_pass(attention(), passed("lazy"), inputs=data(0)))
    filecheck(
        text.format(m),
        """// CHECK: [[LIMIT:%.*]] = const 5.545177444479562 : f32
           // CHECK: %new = max %m, %most
           // CHECK-NEXT: [[FAR:%.*]] = sub %new, %m
           // CHECK-NEXT: [[KEEP:%.*]] = le [[FAR]], [[LIMIT]]
           // CHECK-NEXT: %new_used = select [[KEEP]], %m, %new
           // CHECK-NEXT: %gone = eq %new_used, %low
           // CHECK-NEXT: select %gone, %zero, %new_used
           // CHECK: mul_unless_one %a, %t
           // CHECK: yield %new_used, %l1, %a1""",
    )


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
    typed = run_module(m, inputs, mode="typed")  # 2^8 * 32 is far from f16's end; a growing sum would reach it
    same(typed, run_module(attention(), inputs), 2e-3)


REFUSED = {
    "the maximum is an output": ({"lse": "add %m2, %zero"}, "stores a value that depends"),
    "a sum that is not normalised": ({"out": "mul %a2, %scale"}, "stores a value that depends"),
    "the logarithm alone": ({"lse": "add %nat, %zero"}, "stores a value that depends"),
    "an accumulator that does not start at 0": ({"start": "1.0"}, "not repaired"),
    "an exponent that is not the maximum's": ({"arg": "%x2"}, "does not provably bound"),
    "a mask that the sum does not have": ({"arg": "%x", "mask": "add %e, %zero"}, "does not provably bound"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refused(why: str) -> None:
    changes, reason = REFUSED[why]
    source = ATTENTION.format(**{**GOOD, **changes})
    if "%x2" in source:
        source = source.replace("      %s = select", "      %x2 = mul %x, %log2e : f32[i: 4, j: 4]\n      %s = select")
    m = text.parse(source)
    verify(m)
    with pytest.raises(ScheduleError, match=reason):
        passed("lazy").apply(m)
    assert "mul_unless_one" in ops(passed("auto").apply(m))
    assert "le" not in ops(passed("auto").apply(m))


def test_the_mask_may_be_behind_the_exponential() -> None:
    assert "le" in ops(passed("lazy").apply(attention(arg="%x")))


@pytest.mark.parametrize(("v", "bits", "fine"), [("f16", 15, True), ("f16", 16, False), ("bf16", 40, True)])
def test_the_narrow_type_holds_what_grows(v: str, bits: int, fine: bool) -> None:
    if fine:
        assert "le" in ops(passed("lazy", bits).apply(attention(v=v)))
    else:
        with pytest.raises(ScheduleError, match=r"%q may overflow by the factor 2\^16"):
            passed("lazy", bits).apply(attention(v=v))


def test_certificates() -> None:
    _, found = passed("lazy").derive(attention())
    assert [c.subject for c in found] == ["l2", "a2", "O", "L"]
    for c in found:
        assert check(c).ok, c.text()


def test_wrong_certificates_are_found() -> None:
    _, found = passed("lazy").derive(attention())
    for c in found:
        off = Op("mul", (c.after, Const(1.01, c.after.dtype)), c.after.dtype)
        assert not check(replace(c, after=off)).ok
        assert not check(replace(c, bindings=c.bindings[:1])).ok
    other = replace(found[0], before=found[1].before)
    assert "left side" in check(other).detail


def test_a_row_sum_alone_is_left() -> None:
    keep = [
        line
        for line in ATTENTION.splitlines()
        if not any(n in line for n in ("%at =", "%q =", "%v =", "%a1 =", "%o =", "store O"))
    ]
    source = "\n".join(keep).replace(", %a2 =", " =").replace(", %a = %a0", "").replace("%l1, %a1", "%l1")
    m = text.parse(source.format(**GOOD))
    verify(m)
    assert passed("lazy").apply(m) is m


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
