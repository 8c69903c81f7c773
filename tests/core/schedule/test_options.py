"""Options of a schedule declare what they mean; checks and the reference derive from that."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, get_type_hints

import pytest

from nautilus.cli.main import main
from nautilus.core.errors import ScheduleError
from nautilus.core.schedule import (
    AxisPlan,
    KernelPlan,
    PackPlan,
    Schedule,
    SplitPlan,
    WarpgroupPlan,
    WarpPlan,
    check_schedule,
    option_of,
    options_of,
    said,
)
from nautilus.core.schedule.check import fault_of
from nautilus.core.schedule.options import Option, option, record
from nautilus.core.schedule.reference import reference
from nautilus.passes.pipelines import STAGES
from tests.shipped import ROOT

RECORDS: tuple[type[Any], ...] = (Schedule, PackPlan, SplitPlan, KernelPlan, AxisPlan, WarpPlan, WarpgroupPlan)
MAPPINGS: tuple[type[Any], ...] = (WarpPlan, WarpgroupPlan)
OPTIONS = [pytest.param(cls, o, id=f"{cls.__name__}.{o.name}") for cls in RECORDS for o in options_of(cls)]
PASSES = {p.name: p.target for s in STAGES for p in s.passes}
LEVELS = {"ma-tile", "planner"}  # readers that are no passes


def test_a_field_without_an_option_is_an_error() -> None:
    @dataclass(frozen=True)
    class Bare:
        stages: int = 2

    with pytest.raises(TypeError, match=r"Bare\.stages has no option with a meaning"):
        record(Bare)


def test_a_field_without_a_meaning_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"Mute\.stages has no option with a meaning"):
        record(Mute)


@dataclass(frozen=True)
class Mute:
    """An option without a meaning."""

    stages: Annotated[int, option("")] = 2


@pytest.mark.parametrize(("cls", "o"), OPTIONS)
def test_an_option_is_declared_in_full(cls: type[Any], o: Option) -> None:
    assert o.meaning.endswith(".") and "  " not in o.meaning
    assert o.name == "version" or o.read_by
    assert set(o.read_by) <= PASSES.keys() | LEVELS
    assert o.required or o.default is None or fault_of(o, o.default) is None
    assert (o.low is None) or not o.values


@pytest.mark.parametrize(("cls", "o"), OPTIONS)
def test_the_passes_that_read_an_option_mention_it(cls: type[Any], o: Option) -> None:
    for name in set(o.read_by) - LEVELS:
        source = "".join(inspect.getsource(m) for m in _with_helpers(_module(name)))
        assert re.search(rf"\.({o.name}|axis|axes)\b" if cls is AxisPlan else rf"\.{o.name}\b", source), name


def _module(name: str) -> ModuleType:
    return import_module(PASSES[name].partition(":")[0])


def _with_helpers(module: ModuleType) -> list[ModuleType]:
    """A pass and the modules of this package whose functions it calls."""
    called = {v.__module__ for v in vars(module).values() if inspect.isfunction(v)}
    return [module, *(import_module(m) for m in called if m.startswith("nautilus.") and m != module.__name__)]


@pytest.mark.parametrize("name", [n for n in PASSES if ".ma_tile." in PASSES[n]])
def test_a_pass_reads_no_option_of_the_mapping_that_does_not_say_so(name: str) -> None:
    known = {o.name: o for cls in MAPPINGS for o in options_of(cls)}
    for read in set(re.findall(r"\bplan\.(\w+)", inspect.getsource(_module(name)))) & known.keys():
        owners = [o for cls in MAPPINGS for o in options_of(cls) if o.name == read and name in o.read_by]
        assert owners, f"{name} reads {read}"


@pytest.mark.parametrize(
    ("cls", "o"),
    [pytest.param(cls, o, id=f"{cls.__name__}.{o.name}") for cls in MAPPINGS for o in options_of(cls) if not o.is_tag],
)
def test_values_out_of_bounds_are_refused(cls: type[Any], o: Option) -> None:
    wrong: Any = "none of them" if o.values else None
    if o.low is not None:
        wrong = (o.low - 1, 1) if isinstance(o.default, tuple) else o.low - 1
    if wrong is None:
        assert o.kind is bool
        return
    k = KernelPlan("k", ("k",), (AxisPlan("i", "grid", 1),), mapping=replace(cls(), **{o.name: wrong}))
    with pytest.raises(ScheduleError, match=f"kernel k: mapping: {o.name} is "):
        check_schedule(Schedule(kernels=(k,)))
    check_schedule(Schedule(kernels=(replace(k, mapping=cls()),)))


def test_no_plan_has_an_option_of_the_other_engine() -> None:
    warp, warpgroup = ({o.name for o in options_of(cls)} for cls in MAPPINGS)
    assert {"warps", "combine_in_block", "prefetch_fragments"} <= warp - warpgroup
    assert {"warpgroups", "tile_scheduling", "producer_registers", "ordered_mma"} <= warpgroup - warp


def test_what_a_record_says() -> None:
    assert said(WarpPlan()) == {"engine": "warp"}
    assert said(WarpgroupPlan(stages=3, cluster=2)) == {"engine": "warpgroup", "stages": 3, "cluster": 2}
    assert said(AxisPlan("i", "grid", 1)) == {"name": "i", "role": "grid", "tile": 1}


def test_options_have_the_types_and_defaults_of_their_fields() -> None:
    for cls in RECORDS:
        hints = get_type_hints(cls)
        assert [o.name for o in options_of(cls)] == list(cls.__dataclass_fields__)
        assert all(o.kind == hints[o.name] for o in options_of(cls))
    assert option_of(AxisPlan, "tile").default is MISSING
    with pytest.raises(KeyError, match="WarpPlan has no option 'warpgroups'"):
        option_of(WarpPlan, "warpgroups")


def test_the_reference_lists_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    page = reference()
    for cls in RECORDS:
        for o in options_of(cls):
            (row, *_) = [line for line in page.splitlines() if line.startswith(f"| `{o.name}` |") and o.meaning in line]
            assert all(f'"{v}"' in row or f"`{v}`" in row for v in o.values)
    assert '"tma-staged"' in page and "1 to 3 warpgroups" in page and "| required |" in page
    assert main(["schedule", "--reference"]) == 0
    assert capsys.readouterr().out == page
    assert main(["schedule"]) == 2


def test_the_page_of_the_folder_is_the_reference(update_golden: bool) -> None:
    """``pytest --update-golden tests/core/schedule`` writes it."""
    path = ROOT / "nautilus/core/schedule/README.md"
    if update_golden:
        path.write_text(reference(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == reference()
