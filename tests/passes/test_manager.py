"""The pass manager and its instruments, on a pipeline of integers."""

from __future__ import annotations

import sys
from dataclasses import replace
from inspect import getsource
from pathlib import Path
from typing import Any

import pytest

from nautilus.core.errors import InternalError, VerifyError
from nautilus.core.fallbacks import PLAIN, Fallbacks
from nautilus.core.passes import CertifyingPass
from nautilus.core.schedule import KernelPlan, Schedule
from nautilus.driver import Request, compile_file
from nautilus.passes.dumps import read_header
from nautilus.passes.instruments import DumpDir, Print, Time, Verify, VerifyStages
from nautilus.passes.loading import bind, load, load_pass
from nautilus.passes.manager import Context, Pipeline, Price, Record, forget_trials, steps
from nautilus.passes.pipelines import MA_TILE, STAGES, Only
from tests.passes import fake
from tests.shipped import SPECS


def test_options_come_from_the_pipeline_and_the_context() -> None:
    todo = steps(fake.STAGE)
    assert [s.name for s in todo] == ["lower", "add", "by-arch", "add-2"]
    assert Pipeline().run(todo, "4", Context(arch="sm_80"))[0] == 50
    assert Pipeline().run(todo, "4", Context(arch="sm_90a", precision="strict"))[0] == 1005


def test_resume_after_a_pass() -> None:
    assert [s.name for s in steps(fake.STAGE, after="by-arch")] == ["add-2"]
    assert steps(fake.STAGE, after="add-2") == ()
    with pytest.raises(ValueError, match="fake has no pass 'nope'; its passes are add, by-arch, add-2"):
        steps(fake.STAGE, after="nope")


def test_verify_names_the_pass() -> None:
    with pytest.raises(VerifyError) as error:
        Pipeline([Verify()]).run(steps(fake.STAGE), "9", Context(arch="sm_80"))
    assert error.value.__notes__ == ["after pass fake/by-arch"]


def test_a_stage_is_verified_at_its_end_and_the_first_illegal_step_is_named() -> None:
    instrument = VerifyStages()
    assert Pipeline([instrument]).run(steps(fake.STAGE), "4", Context(arch="sm_80"))[0] == 50
    assert not instrument.records, "the next stage begins without them"
    with pytest.raises(VerifyError) as error:
        Pipeline([instrument]).run(steps(fake.STAGE), "9", Context(arch="sm_80"))
    assert error.value.__notes__ == ["after pass fake/by-arch"]


def test_an_illegal_module_is_the_reason_for_the_failure_of_a_step_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: fake.Add, module: int) -> int:
        if module > 20:
            raise ValueError(module)
        return module + 1

    monkeypatch.setattr(fake.Add, "apply", fail)
    with pytest.raises(VerifyError) as error:
        Pipeline([VerifyStages()]).run(steps(fake.STAGE), "9", Context(arch="sm_80"))
    assert error.value.__notes__ == ["after pass fake/by-arch"]
    with pytest.raises(ValueError, match="50"):
        Pipeline([VerifyStages()]).run(steps(fake.STAGE), "4", Context(arch="sm_80"))


def test_an_error_inside_a_pass_names_it() -> None:
    with pytest.raises(ValueError) as error:
        Pipeline().run(steps(fake.STAGE), "x", Context())
    assert error.value.__notes__ == ["in pass fake/lower"]


@pytest.mark.parametrize(
    ("what", "titles"),
    [
        ({"all"}, ["fake after add-2 (unchanged)"]),
        ({"fake"}, ["fake after add-2 (unchanged)"]),
        ({"add", "fake/lower"}, ["fake after lower", "fake after add", "fake after add-2 (unchanged)"]),
        ({"add-1"}, ["fake after add"]),
        ({"fake/add-2"}, ["fake after add-2 (unchanged)"]),
        ({"by-arch-1"}, ["fake after by-arch"]),
        ({"other"}, []),
    ],
)
def test_print(what: set[str], titles: list[str]) -> None:
    shown = Print(what)
    Pipeline([shown]).run(steps(fake.STAGE), "4", Context(arch="sm_80"))
    assert [ln[7:-5] for ln in shown.report().splitlines() if ln.startswith("; ----")] == titles


def test_dump_dir_numbers_files_and_they_resume(tmp_path: Path) -> None:
    schedule = Schedule((), ())
    context = Context(arch="sm_80", schedule=schedule)
    Pipeline([DumpDir(tmp_path / "d")]).run(steps(fake.STAGE), "4", context)
    names = sorted(p.name for p in (tmp_path / "d").iterdir())
    assert names == [
        "000-fake-lower.fake",
        "001-fake-add.fake",
        "002-fake-by-arch.fake",
        "003-fake-add-2.fake",
    ]
    assert (tmp_path / "d" / names[3]).read_text().endswith("; (unchanged)\nnumber 50\n")
    assert "unchanged" not in (tmp_path / "d" / names[2]).read_text()
    text = (tmp_path / "d" / names[1]).read_text()
    found, after = read_header(text, Context())
    assert (found.arch, found.schedule, after) == ("sm_80", schedule, "add")
    assert fake.parse(text, "") == 5


def test_read_header_of_a_plain_text() -> None:
    context = Context()
    assert read_header("kernel x {}", context) == (context, None)


def test_time() -> None:
    clock = Time()
    Pipeline([clock]).run(steps(fake.STAGE), "4", Context())
    report = clock.report()
    assert [line.split()[-1] for line in report.splitlines()] == [
        "fake/lower", "fake/add", "fake/by-arch", "fake/add-2", "total",
    ]  # fmt: skip


def test_bind_and_load_complain() -> None:
    with pytest.raises(InternalError, match="has no option wrong"):
        bind(fake.Add, Context(), {"wrong": 1})
    with pytest.raises(InternalError, match="needs 'module'"):
        bind(fake.verify, Context(), {})
    with pytest.raises(InternalError, match="cannot load"):
        load("nautilus.nowhere:x")


@pytest.mark.parametrize(
    ("made", "fault"),
    [
        ("Undeclared", "is no CertifyingPass"),
        ("Mutable", "is not a frozen dataclass"),
        ("Idle", "has no method 'apply'"),
        ("Add", "has the name 'add'"),
        ("lower", "is not a frozen dataclass"),
    ],
)
def test_what_is_no_pass_is_not_loaded(made: str, fault: str) -> None:
    with pytest.raises(InternalError, match=fault):
        load_pass(made.lower() if made != "Add" else "subtract", f"{fake.HERE}:{made}")


def test_a_certifying_pass_says_so_in_its_type() -> None:
    made = load_pass("doubling", f"{fake.HERE}:Doubling")
    assert issubclass(made, CertifyingPass) and made().apply(3) == 6
    passes = [load_pass(p.name, p.target) for s in STAGES for p in s.passes]
    certifying = {p.name for p in passes if issubclass(p, CertifyingPass)}
    assert certifying == {p.name for p in passes if "import Certificate" in getsource(sys.modules[p.__module__])}
    assert {"inline", "factor", "narrow", "lazy-rescale"} <= certifying


def test_every_entry_of_a_pipeline_is_a_pass_named_as_its_file() -> None:
    for stage in STAGES:
        for entry in stage.passes:
            assert load_pass(entry.name, entry.target).__module__ == entry.target.partition(":")[0]


def test_every_stage_is_complete() -> None:
    assert [s.suffix for s in STAGES] == [".naut", ".scalar", ".vr", ".ma", ".cu"]
    for stage in STAGES[1:4]:
        assert stage.lower and stage.verify and stage.format and stage.parse


def test_results_of_trials_are_taken_where_a_step_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    step, calls = steps(fake.STAGE)[2], list[int]()

    def apply(_self: fake.ByArch, module: int) -> int:
        calls.append(module)
        return 10**6 + module

    monkeypatch.setattr(fake.ByArch, "apply", apply)
    one, other = Context(arch="sm_80"), Context(arch="sm_80", schedule=Schedule(inline=("a",)))
    module = 10**9
    assert step.run(module, one) == step.run(module, one) and len(calls) == 2  # no trial
    tried = step.tried(module, one)
    assert step.run(module, one) is tried and step.tried(module, one) is tried and len(calls) == 3
    assert step.run(module, replace(other, schedule=None)) is tried and len(calls) == 3
    assert step.run(module, other) == tried and len(calls) == 4  # another option
    assert step.tried(module, other) is step.run(module, replace(other, schedule=Schedule(inline=("a",))))
    assert len(calls) == 5  # an equal schedule
    forget_trials()
    assert step.run(module, one) == tried and len(calls) == 6


def test_passes_of_warpgroups_change_no_other_kernel() -> None:
    """They are not loaded for kernels of other engines, so they must have nothing to do there."""
    tried: list[str] = []

    class Tries:
        def after(self, record: Record) -> None:
            if record.spec is not None and record.spec.only is Only.WARPGROUPS:
                one: Any = load_pass(record.spec.name, record.spec.target)
                assert one(schedule=record.context.schedule).apply(record.module) is record.module
                tried.append(record.name)

    for path in (SPECS[0], next(p for p in SPECS if p.stem == "softmax")):
        compile_file(Request(path, "sm_80"), [Tries()])
    marked = {p.name for p in MA_TILE.passes if p.only is Only.WARPGROUPS}
    assert marked and len(tried) == 2 * len(marked) and set(tried) == marked


def test_a_kernel_is_priced_once_whatever_the_plans_of_others_are() -> None:
    def price(beside: KernelPlan, steps: dict[str, int]) -> Price:
        plans = (KernelPlan("a", ("a",), ()), beside)
        return Context(schedule=Schedule(kernels=plans), fallbacks=Fallbacks.of(steps)).price

    plain, other = KernelPlan("b", ("b",), ()), KernelPlan("b", ("b",), (), phases=(("b",),))
    one, same, moved = price(plain, {}), price(other, {"b": PLAIN}), price(plain, {"a": PLAIN})
    assert one.of("a").key == same.of("a").key
    assert one.of("b").key != same.of("b").key and one.of("a").key != moved.of("a").key
