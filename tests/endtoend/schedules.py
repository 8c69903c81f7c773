"""Schedules of warpgroup kernels that differ from the default ones in one option, or in random options."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

from nautilus.core.schedule import AxisPlan, KernelPlan, Schedule, WarpgroupPlan
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.passes.grid import persistent_grid


@dataclass(frozen=True)
class Change:
    """Options of the mapping and of the kernel; ``rows`` of a warpgroup and ``step`` of the loop, in elements."""

    mapping: Mapping[str, Any] = field(default_factory=dict)
    kernel: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 0
    columns: int = 0
    step: int = 0

    def of(self, plan: KernelPlan) -> KernelPlan:
        """``plan`` with the change; cooperative warpgroups keep the rows of each."""
        assert isinstance(plan.mapping, WarpgroupPlan)
        warpgroups = self.mapping.get("warpgroups", plan.mapping.warpgroups)
        scheduling = self.mapping.get("tile_scheduling", plan.mapping.tile_scheduling)
        row, *others = [a for a in plan.axes if a.role == "grid" and a.tile > 1] or [plan.axes[0]]
        loop = next(a for a in plan.axes if a.role == "loop")
        tiles = {
            row.name: (self.rows or 64) * (1 if scheduling == "pingpong" else warpgroups),
            loop.name: self.step or loop.tile,
        }
        tiles |= {a.name: self.columns for a in others if self.columns}
        if not (self.rows or "warpgroups" in self.mapping or "tile_scheduling" in self.mapping):
            del tiles[row.name]
        axes = tuple(AxisPlan(a.name, a.role, tiles.get(a.name, a.tile)) for a in plan.axes)
        mapping = {**self.mapping}
        if "producer_registers" not in mapping and "warpgroups" in mapping:
            low, high = {1: (40, 240), 2: (24, 240), 3: (32, 160)}[warpgroups]
            mapping |= {"producer_registers": low, "consumer_registers": high}
        return replace(plan, axes=axes, mapping=replace(plan.mapping, **mapping), **self.kernel)


def _mapping(**fields: Any) -> Change:
    return Change(fields)


_COMMON = {
    "one stage": _mapping(stages=1),
    "three stages": _mapping(stages=3),
    "one consumer warpgroup": _mapping(warpgroups=1),
    "two consumer warpgroups": _mapping(warpgroups=2),
    "every tile a block": _mapping(persistent="none"),
    "static": _mapping(persistent="static"),
    "snake": _mapping(persistent="snake"),
    "dynamic": _mapping(persistent="dynamic", cluster=1, producer_registers=40, consumer_registers=232, warpgroups=2),
    "longest first": _mapping(raster_order="longest-first"),
    "direct stores": _mapping(epilogue="direct"),
    "stores by TMA": _mapping(epilogue="tma"),
    "stores by TMA from an operand's stage": _mapping(epilogue="tma-aliased"),
    "stores of all columns": _mapping(store_columns=0),
    "stores of 64 columns": _mapping(store_columns=64),
    "no asynchronous MMA": _mapping(outstanding_mma=False),
    "no overlapping MMA": _mapping(pipeline_mma=False),
    "no roles": _mapping(
        warp_specialised=False, persistent="none", tile_scheduling="cooperative", ordered_mma=False, epilogue="direct"
    ),
    "ordered MMA": _mapping(ordered_mma=True),
    "two blocks share loads": _mapping(cluster=2, persistent="none", tile_scheduling="cooperative"),
}

#: of back-to-back GEMMs in one reduction loop
BACK_TO_BACK = {
    **_COMMON,
    "four stages": Change({"stages": 4}, step=64),
    "three consumer warpgroups": _mapping(warpgroups=3),
    "register-resident operand": _mapping(register_operands=True, warpgroups=2),
    "resident operand in shared memory": _mapping(register_operands=False),
    "resident operand in two stages": Change({"register_operands": False, "resident_stages": 2}, step=64),
    "rescaled early": _mapping(rescale_placement="early"),
    "rescaled late": _mapping(rescale_placement="late"),
    "volatile waits": _mapping(volatile_waits=True),
    "repairs always": Change({}, {"rescale_policy": "always"}),
    "repairs skipped": Change({}, {"rescale_policy": "skip"}),
    "repairs lazy": Change({}, {"rescale_policy": "lazy", "lazy_bits": 4}),
    "ascending": Change({}, {"iteration_order": "ascending"}),
    "steps of 64": Change({}, step=64),
    "steps of 96": Change({"warpgroups": 2}, step=96),
    "l2_supertiles": _mapping(
        raster_order="longest-first",
        persistent="dynamic",
        l2_supertiles=2,
        producer_registers=40,
        consumer_registers=232,
        warpgroups=2,
    ),
    "no partitioning": Change({}, {"partition": False, "iteration_order": "ascending"}),
}

#: of GEMMs whose rows and columns are both distributed over blocks
GEMM = {
    **_COMMON,
    "six stages": Change({"stages": 6}, columns=64),
    "pingpong": _mapping(tile_scheduling="pingpong", persistent="static", stages=4, warpgroups=2),
    "pingpong, one consumer warpgroup": _mapping(
        tile_scheduling="pingpong", persistent="static", stages=4, warpgroups=1
    ),
    "pingpong, snake, 128 rows": Change(
        {"tile_scheduling": "pingpong", "persistent": "snake", "stages": 4, "warpgroups": 2}, rows=128
    ),
    "128 rows of a warpgroup": Change({"warpgroups": 2}, rows=128, columns=64),
    "wide": Change({"warpgroups": 2, "tile_scheduling": "cooperative", "stages": 3}, columns=128),
    "wider": Change({"warpgroups": 2, "tile_scheduling": "cooperative", "stages": 2}, columns=256),
    "groups of one": _mapping(raster_order="grouped", raster_group=1),
    "natural order": _mapping(raster_order="natural"),
    "steps of 32": Change({}, step=32),
    "steps of 128": Change({"stages": 2}, step=128),
}


def default(text: str, arch: str = "sm_90a") -> Schedule:
    """The schedule that the rules choose for ``text``."""
    limits = vars(persistent_grid)["limits"]  # which tests replace
    return _default(text, arch, limits(arch).multiprocessors)


@cache
def _default(text: str, arch: str, multiprocessors: int) -> Schedule:
    """:func:`default` with the number of multiprocessors that a test has set."""
    request = Request(
        Path("given.naut"), arch, text=dedent(text).lstrip(), until="ma-tile", verified_stages=True
    )  # fmt: skip
    schedule = compile_file(request).context.schedule
    assert schedule is not None
    return schedule


def changed(schedule: Schedule, change: Change | Callable[[KernelPlan], KernelPlan]) -> Schedule:
    """``schedule`` with ``change`` in every kernel with warpgroup MMAs."""
    of = change.of if isinstance(change, Change) else change
    return replace(schedule, kernels=tuple(of(k) if k.mapping.engine == "warpgroup" else k for k in schedule.kernels))


def drawn(seed: int, structure: str) -> Change:
    """Random options together. Many combinations are illegal and must be rejected with a reason."""
    r = random.Random(seed)
    mapping: dict[str, Any] = {
        "warpgroups": r.choice((1, 2, 2, 3)), "stages": r.choice((1, 2, 2, 3, 4)),
        "persistent": r.choice(("none", "static", "snake", "dynamic")),
        "epilogue": r.choice(("direct", "tma", "tma", "tma-aliased")),
        "raster_order": r.choice(("natural", "longest-first", "grouped")), "raster_group": r.choice((1, 2, 8)),
        "pipeline_mma": r.random() < 0.5, "outstanding_mma": r.random() < 0.7, "ordered_mma": r.random() < 0.3,
        "warp_specialised": r.random() < 0.85, "store_columns": r.choice((0, 0, 32, 64)),
        "tile_scheduling": "pingpong" if r.random() < 0.3 and structure == "product" else "cooperative",
        "cluster": r.choice((1, 1, 1, 2)),
    }  # fmt: skip
    if structure == "product":
        return Change(mapping, rows=r.choice((64, 64, 128)), columns=r.choice((0, 64, 128)), step=r.choice((0, 32, 64)))
    mapping |= {"register_operands": r.random() < 0.4, "resident_stages": r.choice((1, 1, 2))}
    mapping |= {"rescale_placement": r.choice(("early", "late"))}
    mapping |= {"l2_supertiles": r.choice((0, 0, 2)), "volatile_waits": r.random() < 0.2}
    policy, iteration = r.choice(("always", "skip", "lazy", "auto")), r.choice(("ascending", "mixed-first"))
    return Change(
        mapping, {"rescale_policy": policy, "iteration_order": iteration}, rows=64, step=r.choice((0, 64, 96))
    )
