"""Messages about schedules of version 1, and about fields with the names of that version."""

from __future__ import annotations

import json

import pytest

from nautilus.core.schedule import KernelPlan, Schedule, SplitPlan, WarpgroupPlan, WarpPlan, options_of
from nautilus.core.schedule.renamed import now_called


def test_an_old_name_is_told_the_new_one() -> None:
    mapping = {"engine": "warpgroup", "held_stages": 2}
    kernel = {"name": "C", "ops": ["C"], "axes": [], "mapping": mapping}
    message = r"unknown field kernels\[0\].mapping.held_stages; it is called resident_stages since version 2"
    with pytest.raises(ValueError, match=message):
        Schedule.from_json(json.dumps({"version": 2, "kernels": [kernel]}))


def test_a_schedule_of_version_1_is_told_the_new_names() -> None:
    memory = {"units": 2, "own_tiles": True, "epilogue": "bulk-ring", "stages": 2, "registers": [24, 240]}
    kernel = {"name": "C", "ops": ["C"], "axes": [], "repair": "auto", "lazy_bits": 8, "memory": memory}
    split = {"op": "C", "axis": "k", "splits": 4, "tile": 32, "turns": 2}
    with pytest.raises(ValueError, match="schedule version 1 is not 2") as error:
        Schedule.from_json(json.dumps({"version": 1, "kernels": [kernel, kernel], "splits": [split]}))
    told = str(error.value).partition("renamed since version 1: ")[2].split(", ")
    assert told == [
        "memory is mapping", "repair is rescale_policy", "units is warpgroups",
        'own_tiles is tile_scheduling ("pingpong" for true)',
        "registers is producer_registers and consumer_registers", 'epilogue "bulk-ring" is "tma-staged"',
        "turns is interleave",
    ]  # fmt: skip


def test_old_names_stand_for_fields_that_exist() -> None:
    known = {o.name for cls in (KernelPlan, SplitPlan, WarpPlan, WarpgroupPlan) for o in options_of(cls)}
    for old in ("memory", "walk_order", "early", "join", "in_flight", "sections", "turns"):
        now = now_called(old)
        assert now in known and old not in known
    assert now_called("stages") is None
