"""What the driver tries after a schedule failed: the default rules, then conservative fallbacks of the kernel."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from nautilus.core.errors import (
    ScheduleError,
    SpillError,
    TargetLimitError,
    UnsupportedError,
    VerifyError,
    each_or_failures,
    in_kernel,
)
from nautilus.core.fallbacks import PLAIN, SMALLER, WITHOUT, Fallbacks
from nautilus.core.schedule import KernelPlan, Schedule, WarpgroupPlan
from nautilus.driver import Request, Result, build_cubin, compile_checked, compile_file, next_request
from nautilus.frontend.spec import Spec
from nautilus.ma_tile.lowering.lower import lower
from nautilus.passes import attempts, header
from nautilus.passes.manager import Record
from nautilus.runtime import nvrtc

SPEC = Request(Path("x.naut"))
ONCE = Fallbacks.of({"out": 1})
FAILED = ScheduleError("ptxas has too few registers", kernel="out")

PRODUCT = """\
dim M = 256, N = 256, K = 256
input A__x: f16[M, K]
input B__y: f16[K, N]
output P__x: f16[M, N]
P__x[i, j] = sum[k](A__x[i, k] * B__y[k, j])
"""


def test_the_named_kernel_falls_back() -> None:
    once = next_request(SPEC, False, FAILED)
    assert once == replace(SPEC, fallbacks=ONCE)
    other = next_request(once, False, ScheduleError("too wide", kernel="other"))
    assert other.fallbacks == Fallbacks.of({"out": 1, "other": 1})


@pytest.mark.parametrize(
    "request_",
    [
        replace(SPEC, fallbacks=Fallbacks.of({"out": PLAIN})),  # at its last step already
        replace(SPEC, path=Path("x.vr")),  # the kernels of a dump are planned
        replace(SPEC, schedule=Schedule(kernels=(KernelPlan("out", (), ()),))),  # the user's own choice
    ],
)
def test_where_no_step_is_left_the_error_is_the_users(request_: Request) -> None:
    with pytest.raises(ScheduleError) as error:
        next_request(request_, False, FAILED)
    assert error.value is FAILED


def test_all_kernels_that_fail_in_a_step_fall_back_at_once() -> None:
    def refuse(name: str) -> str:
        if name == "fine":
            return name
        raise ScheduleError("too wide", kernel=name, excess=2.0 if name == "deep" else 0.0)

    with pytest.raises(ScheduleError) as error:
        each_or_failures(refuse, ["fine", "out", "last", "deep"])
    assert (error.value.kernel, [e.kernel for e in error.value.others]) == ("out", ["last", "deep"])
    known = replace(SPEC, fallbacks=Fallbacks.of({"last": PLAIN, "deep": WITHOUT}))
    found = next_request(known, False, error.value).fallbacks
    assert found == Fallbacks.of({"out": 1, "last": PLAIN, "deep": SMALLER}, {"deep": 2.0})
    assert [f.kernel for f in found.failures] == ["out", "deep"]


def test_kernels_that_fail_in_a_lowering_are_all_named() -> None:
    computed = [f"X{n}: f16[k, j] = exp(B{n}[k, j])\nP{n}[i, j] = sum[k](A[i, k] * X{n}[k, j])" for n in "cd"]
    tensors = "input A: f16[M, M], Bc: f16[M, M], Bd: f16[M, M]\noutput Pc: f16[M, M], Pd: f16[M, M]"
    text = "\n".join(["dim M = 256", tensors, *computed])
    request = replace(SPEC, arch="sm_90a", text=text, until="vr-tile", schedule=Schedule(inline=("Xc", "Xd")))
    result = compile_file(request)
    assert result.context.schedule is not None
    plans = tuple(replace(k, mapping=WarpgroupPlan()) for k in result.context.schedule.kernels)
    with pytest.raises(ScheduleError, match=r"right operand, .* that is computed") as error:
        lower(result.modules["vr-tile"], Schedule(kernels=plans), "sm_90a")
    assert [e.kernel for e in (error.value, *error.value.others)] == [k.name for k in plans]
    assert len(plans) == 2


def test_a_step_that_changes_no_plan_is_not_compiled() -> None:
    """sm_80 has no warpgroup MMAs, so the steps for lighter tiles and without these MMAs leave the plan as it is."""
    attempts = list[Record]()

    class Watch:
        def after(self, record: Record) -> None:
            attempts.extend([record] if record.number == 0 else [])

    def refuse(result: Result) -> None:
        if result.context.fallbacks.steps("P") < SMALLER:
            raise ScheduleError("too many instructions", kernel="P", excess=4.0)

    text = PRODUCT.replace("__x", "").replace("__y", "")
    result = compile_file(replace(SPEC, arch="sm_80", text=text, until="ma-tile"), [Watch()], refuse)
    assert result.context.fallbacks == Fallbacks.of({"P": SMALLER}, {"P": 4.0})
    assert len(attempts) == 2


def test_a_kernel_that_a_given_schedule_leaves_out_falls_back() -> None:
    given = replace(SPEC, schedule=Schedule(kernels=(KernelPlan("other", (), ()),)))
    assert next_request(given, False, FAILED).fallbacks == ONCE


def test_a_stated_need_reaches_the_planner() -> None:
    deep = replace(SPEC, fallbacks=Fallbacks.of({"out": WITHOUT}))
    large = ScheduleError("too much shared memory", kernel="out", excess=3.0)
    assert next_request(deep, False, large).fallbacks == Fallbacks.of({"out": SMALLER}, {"out": 3.0})


def test_what_a_kernel_uses_and_nothing_supports_goes_down_the_ladder_too() -> None:
    error = UnsupportedError("a local that is not a tile")
    with pytest.raises(UnsupportedError), in_kernel("out"):
        raise error
    assert next_request(SPEC, False, error).fallbacks == ONCE


@pytest.mark.parametrize("error", [ScheduleError("no such axis", "axes"), UnsupportedError("a feature")])
def test_an_error_about_no_kernel_is_the_users(error: ScheduleError | UnsupportedError) -> None:
    with pytest.raises(type(error)):
        next_request(SPEC, False, error)


def test_a_schedule_of_the_database_gives_way_to_the_rules() -> None:
    tuned = replace(SPEC, lookup=lambda spec, context: None)
    assert next_request(tuned, True, FAILED) == SPEC


def test_a_schedule_without_kernels_leaves_them_to_the_rules() -> None:
    assert next_request(replace(SPEC, schedule=Schedule()), False, FAILED).fallbacks == ONCE


@dataclass
class Refusing:
    """An instrument that refuses the first ``count`` MA-tile modules with what ``error`` makes of a kernel's name."""

    count: int
    error: type[Exception]
    suffix: str = ""  # of the name of the kernel that is refused
    engines: list[str] = field(default_factory=list)

    def after(self, record: Record) -> None:
        if (record.stage.name, record.base) != ("ma-tile", "lower"):
            return
        assert record.context.schedule is not None
        (plan,) = record.context.schedule.kernels
        self.engines.append(plan.mapping.engine)
        if len(self.engines) > self.count:
            return
        if self.error is ScheduleError:
            raise ScheduleError("planted", kernel=plan.name + self.suffix)
        if self.error is TargetLimitError:
            raise TargetLimitError("ma-tile", "threads of a block", plan.name, "planted")
        raise VerifyError("ma-tile", "a rule", f"kernel {plan.name}", "planted")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "my__spec.naut"
    path.write_text(PRODUCT)
    return path


def test_a_rung_that_changes_nothing_costs_no_attempt(tmp_path: Path) -> None:
    path = tmp_path / "x.naut"
    path.write_text(PRODUCT)
    refusing = Refusing(1, ScheduleError)
    result = compile_file(Request(path, "sm_80"), [refusing])  # no warpgroups, of which there could be fewer
    assert result.context.fallbacks.steps("P__x") == SMALLER and len(refusing.engines) == 2


def test_a_kernel_that_computes_tiles_again_goes_down_the_ladder_of_the_first_one(tmp_path: Path) -> None:
    """Also where a rung changes nothing, so that the attempt ends before its schedule is complete."""
    path = tmp_path / "x.naut"
    path.write_text(PRODUCT.replace("sum[k]", "sum[k | k <= i]"))
    refusing = Refusing(1, ScheduleError, "_masked")
    result = compile_file(Request(path, "sm_80"), [refusing])
    assert {name for name, _ in result.context.fallbacks.taken} == {"P__x"}


@pytest.mark.parametrize("error", [ScheduleError, TargetLimitError])
def test_names_with_underscores_reach_their_fallback(spec: Path, error: type[Exception]) -> None:
    refusing = Refusing(1, error)
    result = compile_file(Request(spec), [refusing])
    assert refusing.engines == ["warpgroup", "warp"]  # the lighter products are those that failed
    assert result.context.fallbacks == Fallbacks.of({"P__x": WITHOUT})
    assert result.cuda_module.kernels == {"my__spec__P__x": "P__x"}


def test_so_they_do_when_ptxas_refuses_them(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = nvrtc.parse_resources, []

    def spilling(log: str) -> tuple[nvrtc.Resources, ...]:
        asked.append(log)
        return tuple(replace(r, spill_stores=8) for r in real(log)) if len(asked) == 1 else real(log)

    monkeypatch.setattr(nvrtc, "parse_resources", spilling)
    result, _ = build_cubin(Request(spec))
    assert result.context.fallbacks == Fallbacks.of({"P__x": WITHOUT}) and asked


def test_the_error_bound_is_that_of_the_plan_that_ptxas_accepts(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of a plan that ptxas refuses is not computed, because its text is not made."""
    real, asked, plans = nvrtc.parse_resources, list[str](), list[Schedule | None]()

    def spilling(log: str) -> tuple[nvrtc.Resources, ...]:
        asked.append(log)
        return tuple(replace(r, spill_stores=8000) for r in real(log)) if len(asked) == 1 else real(log)

    def stated(spec: Spec, precision: str, schedule: Schedule | None) -> str:
        plans.append(schedule)
        return "O <= 1"

    monkeypatch.setattr(nvrtc, "parse_resources", spilling)
    monkeypatch.setattr(header, "_bounds", stated)
    result = compile_checked(Request(spec))
    assert asked and result.context.fallbacks.taken
    assert not plans and "O <= 1" in result.cuda
    assert plans == [result.context.schedule]


@pytest.mark.parametrize(("slower", "kept"), [(0.0, True), (1e6, False)])
def test_a_plan_that_spills_a_little_stays_where_the_next_one_is_slower(
    spec: Path, monkeypatch: pytest.MonkeyPatch, slower: float, kept: bool
) -> None:
    real, asked = nvrtc.parse_resources, []

    def spilling(log: str) -> tuple[nvrtc.Resources, ...]:
        asked.append(log)
        return tuple(replace(r, spill_stores=attempts.SPILLED + 8 if len(asked) == 1 else 0) for r in real(log))

    monkeypatch.setattr(nvrtc, "parse_resources", spilling)
    monkeypatch.setattr(attempts, "SLOWER", slower)
    result, _ = build_cubin(Request(spec, "sm_80"))
    assert (result.context.fallbacks.spilling == {"P__x"}) == kept == (not result.context.fallbacks.taken)


def test_so_it_does_where_the_output_is_no_kernel(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plans are compared by the kernels that they lead to."""
    refusals = [SpillError("spills", kernel="P__x", excess=1.1)]

    def accept(result: Result) -> None:
        if refusals:
            raise refusals.pop()

    monkeypatch.setattr(attempts, "SLOWER", 0.0)
    result = compile_file(Request(spec, until="vr-tile"), accept=accept)
    assert result.context.fallbacks.spilling == {"P__x"} and "ma-tile" not in result.modules


@pytest.mark.parametrize(("excess", "kept"), [(2.0, True), (3.0, False)])
def test_a_recurrence_that_spills_more_keeps_the_blocks_that_share_its_steps(
    tmp_path: Path, excess: float, kept: bool
) -> None:
    """A single block for each position is many times slower."""
    path = tmp_path / "power.naut"
    path.write_text(
        "dim B = 16, N = 256, T = 9\ninput A: f32[B, N, N]\noutput y: f32[B, N]\n"
        "recur v[t: T, b, i] = sum[j](A[b, i, j] * v[t - 1, b, j]) if t > 0 else 1\ny[b, i] = v[T - 1, b, i]\n"
    )
    refusals = [SpillError("spills", kernel="v", excess=excess)]

    def accept(result: Result) -> None:
        if refusals:
            raise refusals.pop()

    fallbacks = compile_file(Request(path, until="ma-tile"), accept=accept).context.fallbacks
    assert (fallbacks.spilling == {"v"}) == kept == (not fallbacks.taken)


def test_a_broken_ir_is_no_reason_to_fall_back(spec: Path) -> None:
    refusing = Refusing(1, VerifyError)
    with pytest.raises(VerifyError, match="planted"):
        compile_file(Request(spec), [refusing])
    assert refusing.engines == ["warpgroup"]
