"""Schedules as JSON: both engines, texts that cannot be read, and messages about schedules of version 1."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nautilus.core.schedule import (
    AxisPlan,
    KernelPlan,
    MappingPlan,
    PackPlan,
    Schedule,
    SplitPlan,
    WarpgroupPlan,
    WarpPlan,
    options_of,
)

WARP = WarpPlan(warps=(2, 4), epilogue="direct", cluster=4, stages=0)
WARPGROUP = WarpgroupPlan(warpgroups=3, tile_scheduling="pingpong", persistent="snake", epilogue="tma-staged")


def schedule(mapping: MappingPlan) -> Schedule:
    axes = (AxisPlan("i", "grid", 64), AxisPlan("k", "loop", 32))
    kernel = KernelPlan("C", ("C",), axes, (("C",),), mapping=mapping)
    return Schedule((), (kernel,), packs=(PackPlan("C", "i", 4),), splits=(SplitPlan("C", "k", 4, 32, 2),))


def raw(mapping: MappingPlan) -> Any:
    return json.loads(schedule(mapping).to_json())


@pytest.mark.parametrize("mapping", [WARP, WARPGROUP], ids=["warp", "warpgroup"])
def test_a_schedule_reads_back(mapping: MappingPlan) -> None:
    written = schedule(mapping)
    assert Schedule.from_json(written.to_json()) == written
    found = raw(mapping)["kernels"][0]["mapping"]
    assert list(found) == [o.name for o in options_of(type(mapping))]
    assert found["engine"] == mapping.engine


def test_what_is_left_out_has_its_default() -> None:
    text = '{"version": 2, "kernels": [{"name": "C", "ops": ["C"], "axes": [], "mapping": {"engine": "warpgroup"}}]}'
    assert Schedule.from_json(text).kernels == (KernelPlan("C", ("C",), (), mapping=WarpgroupPlan()),)
    assert Schedule.from_json('{"version": 2}') == Schedule()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"warps": [1, 1]}, r"kernels\[0\].mapping.warps is a field of engine warp, not of warpgroup"),
        ({"engine": "tensor"}, r'kernels\[0\].mapping.engine is "tensor", not one of warp, warpgroup'),
        ({"engine": 3}, r"kernels\[0\].mapping.engine is 3, not a string"),
        ({"stages": "2"}, r'kernels\[0\].mapping.stages is "2", not an integer'),
        ({"warp_groups": 2}, r"unknown field kernels\[0\].mapping.warp_groups; did you mean 'warpgroups'\?"),
    ],
)
def test_what_cannot_be_read(change: dict[str, Any], message: str) -> None:
    found = raw(WARPGROUP)
    found["kernels"][0]["mapping"] |= change
    with pytest.raises(ValueError, match=message):
        Schedule.from_json(json.dumps(found))


def test_a_mapping_names_its_engine() -> None:
    found = raw(WARPGROUP)
    del found["kernels"][0]["mapping"]["engine"]
    with pytest.raises(ValueError, match=r"no field kernels\[0\].mapping.engine; it is one of warp, warpgroup"):
        Schedule.from_json(json.dumps(found))


@pytest.mark.parametrize("text", ['{"version": 1}', '{"version": 3}', "{}"])
def test_other_versions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not 2$"):
        Schedule.from_json(text)
