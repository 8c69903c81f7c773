"""Variants of which a plan is refused: by a level, by ptxas, or because registers spill."""

from __future__ import annotations

from dataclasses import dataclass, replace
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

from nautilus.core.errors import AssemblerError, ScheduleError, SpillError, TargetLimitError
from nautilus.core.schedule import Schedule, SplitPlan
from nautilus.core.schedule.dispatch import SizeFact, chosen
from nautilus.cost.model import estimate
from nautilus.cuda.module import CudaModule
from nautilus.cuda.names import kernel_symbols
from nautilus.driver import Request, Result, compile_file, compile_variant
from nautilus.ma_tile.rewriting.at_sizes import at_sizes
from nautilus.passes.compilation import Variant, Variants
from nautilus.passes.instruments import VerifyLater
from nautilus.passes.manager import steps
from nautilus.passes.pipelines import MA_TILE
from nautilus.passes.selection import variants
from nautilus.passes.selection.assembly import doubtful, is_refused, refusal, without_accepted
from nautilus.passes.selection.checked import KernelResources, variant_resources
from nautilus.passes.selection.dispatch_tree import Candidate
from nautilus.passes.selection.variants import dropped_by, find
from nautilus.passes.selection.with_variants import accepting_spills, with_variants
from nautilus.passes.trials import sizes
from nautilus.runtime.nvrtc import Resources
from tests.passes.selection.products import Compile, request


def test_a_variant_that_failed_is_left_out(product: tuple[Request, Result], found: Variants, compiled: Compile) -> None:
    given, general = product
    failed = found.all[0]
    kernel = next(k.name for k in failed.module.kernels if k.name in {p.name for p in failed.schedule.kernels})
    assert not [*dropped_by(failed, f"other.{kernel}")]
    dropped = [*dropped_by(failed, f"{failed.module.name}.{kernel}")]
    again = find(replace(given, verified_later=True), general, compiled, dropped)
    assert again is None or failed.name not in [v.name for v in again.all]


def test_so_are_those_with_its_plan_in_another_order_of_tiles(found: Variants) -> None:
    failed = found.all[-1]
    (dropped,) = dropped_by(failed, f"{failed.module.name}.{failed.schedule.kernels[0].name}")

    def candidate(name: str, **mapping: Any) -> Candidate:
        first, *others = failed.schedule.kernels
        plans = (replace(first, mapping=replace(first.mapping, **mapping)), *others)
        return Candidate(name, replace(failed.schedule, kernels=plans), failed.module, failed.assumed)

    assert dropped.has(candidate("same", l2_supertiles=64, raster_group=3))
    other = candidate(failed.name, min_blocks=7)  # the smaller plan that is made in its place, once
    assert not dropped.has(other) and replace(dropped, refusals=()).has(other)
    assert [variants._left_out(other, [dropped] * n) for n in (1, 2)] == [False, True]
    assert not dropped.has(candidate(variants.GENERAL))
    aligned = replace(candidate("aligned"), assumed=(SizeFact("M", multiple=8),))
    assert not dropped.has(aligned)


def test_a_smaller_plan_is_made_in_place_of_one_under_bounds_that_ptxas_refused(
    product: tuple[Request, Result],
) -> None:
    """Of each name, it is planned without what was refused under that name."""
    given, general = product
    asked = list[Request]()

    def compile_one(request: Request) -> Result:
        asked.append(request)
        return general

    schedules = variants._Schedules(given, general.modules["spec"], compile_one)
    refused = refusal(AssemblerError("registers", kernel="C"), general.context.schedule)
    made = variants._Family(general, schedules, (), [variants.Dropped("M_to_64", frozenset(), refused)])
    for name in ("M_to_64", "M_to_16"):
        made._made(name, (SizeFact("M", 64),))
    assert [r.refused for r in asked] == [refused, ()]


def test_the_next_plan_for_fixed_sizes_is_tried_where_ptxas_refused_the_first_one(
    product: tuple[Request, Result], found: Variants, compiled: Compile
) -> None:
    """Few rows would have the plan of many rows otherwise."""
    failed = next(v for v in found.all if v.name == "M16")
    (dropped,) = dropped_by(failed, f"{failed.module.name}.{failed.schedule.kernels[0].name}")
    given, general = product
    schedules = variants._Schedules(replace(given, verified_later=True), general.modules["spec"], compiled)
    first = schedules.fixed("M16", {"M": 16}, MA_TILE.name)
    second = schedules.fixed("M16", {"M": 16}, MA_TILE.name, dropped.refusals)
    assert first is not None and is_refused(first, dropped.refusals)
    assert second is not None and not is_refused(second, dropped.refusals)
    made = variants._Family(general, schedules, (), [dropped])._fixed(
        Candidate(variants.GENERAL, failed.schedule, failed.module), "M16", {"M": 16}
    )
    assert made is not None and made.schedule == second


@pytest.mark.parametrize("error", [AssemblerError, SpillError])
def test_a_plan_that_ptxas_refused_is_not_planned_again(
    product: tuple[Request, Result], error: type[AssemblerError]
) -> None:
    """Also where spills were the reason: such a plan has no predicted time before its kernels are made."""
    given, general = product
    schedule = general.context.schedule
    assert schedule is not None
    first = schedule.kernels[0]
    refused = refusal(error("too few registers", kernel=first.name), schedule)
    kept = without_accepted(refused, frozenset({first.name}))
    assert kept == (() if error is SpillError else refused)
    again = compile_file(replace(given, refused=refused)).context
    assert again.schedule is not None and again.fallbacks.steps(first.name) > 0
    assert not is_refused(again.schedule, refused) and is_refused(schedule, refused)
    assert not is_refused(schedule, refused, frozenset({first.name}))  # whose spills are accepted


COUNTS = """
dim T = runtime <= 131072, K = 8, E = 256
input id: i32[T, K]
output C: i32[E]
C[e: E] = sum[t, k | id[t, k] == e](1)
"""


def test_a_schedule_that_other_definitions_refuse_is_made_again_under_bounds() -> None:
    given = request(COUNTS)
    general = compile_file(given)
    found = find(given, general, compile_variant)
    assert found is not None
    few = found.sized[chosen(found.dispatch, {"T": 1})]
    assert [f.size for f in few.assumed] == ["T"] and few.assumed[0].holds(1)
    at = estimate(at_sizes(general.modules["ma-tile"], {"T": 1}), "sm_90a").seconds
    assert estimate(at_sizes(few.module, {"T": 1}), "sm_90a").seconds < 0.9 * at
    assert not found.sized[chosen(found.dispatch, {"T": 131072})].assumed


def test_kernels_that_a_refused_schedule_has_too_take_its_plans(product: tuple[Request, Result]) -> None:
    own = product[1].context.schedule
    assert own is not None
    (kernel,) = own.kernels
    other = replace(kernel, mapping=replace(kernel.mapping, min_blocks=7))
    beside = replace(own, kernels=(replace(kernel, name="windows", ops=("windows",)), other))
    assert variants._grafted(own, beside) == replace(own, kernels=(other,))
    assert variants._grafted(own, replace(beside, kernels=(replace(other, axes=other.axes[:-1]),))) is None
    whole, short = (replace(kernel, axes=(replace(kernel.axes[0], role="tile", tile=n),)) for n in (512, 64))
    assert variants._grafted(replace(own, kernels=(whole,)), replace(own, kernels=(short,))) is None


def family(compiled: Any, **more: Any) -> Any:
    """The variants of a general plan without chunks, which ``compiled`` makes of a name, a schedule and facts."""
    made = variants._Family.__new__(variants._Family)
    made.facts, made.begin, made.seen, made.refused, made.chunks = (), "", [], [], [None]
    made.spilled = ()
    for name, value in {**more, "_compiled": compiled}.items():
        setattr(made, name, value)
    return made


def test_of_one_refused_plan_those_bounds_are_tried_that_no_larger_ones_cover() -> None:
    bounds = [
        (SizeFact("T", 64),),
        (SizeFact("N", 256),),
        (SizeFact("T", 256),),
        (SizeFact("N", 16), SizeFact("T", 16)),
    ]
    tried = family(lambda name, schedule, more, known: more, refused=[(Schedule(), b) for b in bounds])
    assert {*tried._bounded()} == {bounds[1], bounds[2]}


def test_the_chunks_of_a_refused_plan_are_tried_once_with_its_plans_of_kernels_that_both_programs_have(
    product: tuple[Request, Result],
) -> None:
    plan = product[1].context.schedule
    assert plan is not None
    (kernel,) = plan.kernels
    fixed = replace(kernel, mapping=replace(kernel.mapping, min_blocks=7))
    splits = (SplitPlan("C", "k", 4, 64),)
    chunks = replace(plan, splits=splits, kernels=(replace(kernel, name="order"), fixed))

    def compiled(name: str, schedule: Schedule, **_: Any) -> Any:
        if len(schedule.kernels) > 1:
            raise ScheduleError("a tile of 64 does not hold an axis")
        return SimpleNamespace(name=name, schedule=schedule if schedule.kernels else replace(plan, splits=splits))

    spec = product[1].modules["spec"]
    tried = family(compiled, schedules=SimpleNamespace(fixed=lambda *_: chunks, spec=spec))
    first = Candidate("general", plan, product[1].modules["ma-tile"])
    few, more = (tried._fixed(first, name, {"M": m}) for name, m in (("few", 1), ("more", 16)))
    assert few.name == "few" and few.schedule == replace(plan, splits=splits, kernels=(fixed,)) and more is None


STRIDED = """
dim M = runtime, N = 64
input X: f16[M, N] strided
output Y: f16[M, N]
Y[i, j] = softmax[j](X[i, j])
"""


def test_the_variant_for_unaligned_tensors_is_kept_with_spilled_registers() -> None:
    given = request(STRIDED)
    result = compile_file(given)

    def spilling(made: Result) -> list[Used]:
        return [Used(k, 4096) for k in made.cuda_module.kernels if "unaligned" in k]

    found = with_variants(given, result, compile_variant, spilling)
    assert found is not None and found.variants is not None and found.variants.unaligned is not None


def test_the_variants_by_sizes_stay_where_ptxas_refuses_the_one_for_unaligned_tensors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is planned again once.  Without any, the launcher demands what the others promise."""
    monkeypatch.setattr(sizes, "PLANNED", {1: (16, 4096)})
    monkeypatch.setattr(sizes, "GRID", {1: (1, 16, 1024, 16384)})
    text = """
    dim M = runtime <= 16384, N = 4096, K = 4096
    input A: f16[M, K] strided
    input B: f16[K, N]
    output C: f16[M, N]
    C[i, j] = sum[k](A[i, k] * B[k, j])
    """
    given, refused = request(dedent(text)), list[str]()
    result = compile_file(given)

    def assemble(made: Result) -> list[Used]:
        assert made.variants is not None
        if made.variants.unaligned is not None:
            refused.append(f"{made.variants.unaligned.module.name}.C")
            raise AssemblerError("registers", kernel=refused[-1])
        return []

    found = with_variants(given, result, compile_variant, assemble)
    assert len(refused) == 2
    assert found is not None and found.variants is not None
    assert found.variants.unaligned is None and len(found.variants.sized) > 1


def test_a_kernel_that_computes_tiles_again_may_spill_registers() -> None:
    text = """
    dim M = 64, D = 16
    input A: f16[M, M], B: f16[M, D]
    output Y: f16[M, D]
    Y[i, d] = sum[j | j <= i](A[i, j] * B[j, d])
    """
    made = compile_file(request(dedent(text)))
    assert made.context.schedule is not None
    v = Variant("few", made.context.schedule, made.modules[MA_TILE.name])
    assert [name.partition(".")[2] for name in accepting_spills(v)] == ["Y_masked"]


def test_the_assembler_sees_the_kernels_of_each_variant_once(accepted: Result) -> None:
    made = accepted
    shown: list[CudaModule] = []

    def check(module: CudaModule, arch: str) -> tuple[str, tuple[Resources, ...]]:
        shown.append(module)
        return "", ()

    assert made.variants is not None
    modules = [v.module for v in made.variants.all]
    first = next(m for m in modules if doubtful(m, "sm_90a"))
    others = [m for m in modules if m is not first and doubtful(m, "sm_90a")]
    whole, known = replace(first, name="whole"), KernelResources()
    known.add(whole, [Resources(symbol, 255, 0, 8, 8, 0) for symbol in kernel_symbols(whole)])
    assert others
    found = variant_resources(made, known, check)
    doubted = {k.name for k in doubtful(first, "sm_90a")}
    symbols = [symbol for symbol, name in kernel_symbols(first).items() if name in doubted]
    assert doubted and [(r.kernel, r.spill_stores) for r in found] == [(symbol, 8) for symbol in symbols]
    assert {name.partition(".")[0] for name in shown[0].kernels.values()} == {m.name for m in others}
    assert all(f"{symbol}(" in shown[0].text and f"{symbol}(" in made.cuda_module.code for symbol in shown[0].kernels)
    for m in others:
        known.add(m, [Resources(symbol, 255, 0, 0, 0, 0) for symbol in shown[0].kernels])
    assert variant_resources(made, known, check) and len(shown) == 1
    known.found.clear()
    known.note_refused([first], ScheduleError("spilled", kernel=f"{first.name}.{next(iter(doubted))}"))
    with pytest.raises(AssemblerError, match="refused an equal kernel"):
        variant_resources(made, known, check)
    assert len(shown) == 1  # ptxas is not asked again


def test_verifiers_run_on_all_modules_of_the_variants_that_are_used(
    product: tuple[Request, Result], compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[int] = []

    def verify(later: VerifyLater) -> None:
        shown.append(len([r for r in later.records if r.stage is MA_TILE]))

    monkeypatch.setattr(VerifyLater, "verify", verify)
    made = with_variants(*product, compiled, lambda made: ())
    assert made is not None and made.variants is not None
    others = [v for v in made.variants.all if v.name != variants.GENERAL]
    assert len(shown) == len(others) and all(n == len(steps(MA_TILE)) for n in shown)


def test_a_variant_that_exceeds_a_limit_on_the_way_is_dropped(
    product: tuple[Request, Result], found: Variants, compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = next(v for v in found.all if v.name != variants.GENERAL)

    def verify(later: VerifyLater) -> None:
        if later.records[-1].module.kernels == bad.module.kernels:
            raise TargetLimitError("ma-tile", "threads of a block", bad.module.kernels[0].name, "too many")

    monkeypatch.setattr(VerifyLater, "verify", verify)
    second = with_variants(*product, compiled, lambda made: ())
    assert second is None or (second.variants is not None and bad.name not in [v.name for v in second.variants.all])


@dataclass(frozen=True)
class Used:
    """The registers of a kernel as ptxas reports them."""

    kernel: str
    spill_stores: int
    registers: int = 255
