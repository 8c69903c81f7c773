"""Schedules of warpgroup kernels that differ from the default ones: one choice at a time, and drawn at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import dedent
from typing import Any

from nautilus.core.schedule import AxisPlan, KernelPlan, Schedule
from nautilus.driver import Request, compile_file


@dataclass(frozen=True)
class Change:
    """Fields of the memory plan and of the kernel plan; ``rows`` of a unit and ``step`` of the walk, in elements."""

    memory: Mapping[str, Any] = field(default_factory=dict)
    kernel: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 0
    columns: int = 0
    step: int = 0

    def of(self, plan: KernelPlan) -> KernelPlan:
        """``plan`` with the change; units that share a tile keep the rows of each."""
        units = self.memory.get("units", plan.memory.units)
        own = self.memory.get("own_tiles", plan.memory.own_tiles)
        row, *others = [a for a in plan.axes if a.role == "grid" and a.tile > 1] or [plan.axes[0]]
        walk = next(a for a in plan.axes if a.role == "loop")
        tiles = {row.name: (self.rows or 64) * (1 if own else units), walk.name: self.step or walk.tile}
        tiles |= {a.name: self.columns for a in others if self.columns}
        if not (self.rows or "units" in self.memory or "own_tiles" in self.memory):
            del tiles[row.name]
        axes = tuple(AxisPlan(a.name, a.role, tiles.get(a.name, a.tile)) for a in plan.axes)
        memory = {**self.memory}
        if "registers" not in memory and "units" in memory:
            memory["registers"] = {1: (40, 240), 2: (24, 240), 3: (32, 160)}[units]
        return replace(plan, axes=axes, memory=replace(plan.memory, **memory), **self.kernel)


def _memory(**fields: Any) -> Change:
    return Change(fields)


_COMMON = {
    "one stage": _memory(stages=1),
    "three stages": _memory(stages=3),
    "one unit": _memory(units=1),
    "two units": _memory(units=2),
    "every tile a block": _memory(persistent="none"),
    "static": _memory(persistent="static"),
    "snake": _memory(persistent="snake"),
    "dynamic": _memory(persistent="dynamic", registers=(40, 232), units=2),
    "longest first": _memory(order="longest-first"),
    "direct stores": _memory(epilogue="direct"),
    "bulk stores": _memory(epilogue="bulk"),
    "bulk stores from an operand's stage": _memory(epilogue="bulk-reuse"),
    "stores in one piece": _memory(store_columns=0),
    "stores in pieces": _memory(store_columns=64),
    "nothing in flight": _memory(in_flight=False),
    "no overlap": _memory(overlap=False),
    "no roles": _memory(specialise=False, persistent="none", own_tiles=False, ping_pong=False, epilogue="direct"),
    "turns": _memory(ping_pong=True),
    "two blocks share loads": _memory(cluster=2, persistent="none", own_tiles=False),
}

#: of products that feed each other along a walk
CHAIN = {
    **_COMMON,
    "four stages": Change({"stages": 4}, step=64),
    "three units": _memory(units=3),
    "held operand in registers": _memory(hold=True, units=2),
    "held operand in shared memory": _memory(hold=False),
    "held operand in two stages": Change({"hold": False, "held_stages": 2}, step=64),
    "rescaled early": _memory(rescale="early"),
    "rescaled late": _memory(rescale="late"),
    "waits pinned": _memory(pin_waits=True),
    "repairs always": Change({}, {"repair": "always"}),
    "repairs skipped": Change({}, {"repair": "skip"}),
    "repairs lazy": Change({}, {"repair": "lazy", "lazy_bits": 4}),
    "ascending": Change({}, {"walk_order": "ascending"}),
    "steps of 64": Change({}, step=64),
    "steps of 96": Change({"units": 2}, step=96),
    "sections": _memory(order="longest-first", persistent="dynamic", sections=2, registers=(40, 232), units=2),
    "whole walk in one": Change({}, {"partition": False, "walk_order": "ascending"}),
}

#: of products whose rows and columns are both spread over blocks
PRODUCT = {
    **_COMMON,
    "six stages": Change({"stages": 6}, columns=64),
    "tiles of units": _memory(own_tiles=True, persistent="static", stages=4, units=2),
    "tiles of units, one unit": _memory(own_tiles=True, persistent="static", stages=4, units=1),
    "tiles of units, snake, 128 rows": Change(
        {"own_tiles": True, "persistent": "snake", "stages": 4, "units": 2}, rows=128
    ),
    "128 rows a unit": Change({"units": 2}, rows=128, columns=64),
    "wide": Change({"units": 2, "own_tiles": False, "stages": 3}, columns=128),
    "wider": Change({"units": 2, "own_tiles": False, "stages": 2}, columns=256),
    "groups of one": _memory(order="grouped", group=1),
    "natural order": _memory(order="natural"),
    "steps of 32": Change({}, step=32),
    "steps of 128": Change({"stages": 2}, step=128),
}


def default(text: str, arch: str = "sm_90a") -> Schedule:
    """The schedule that the rules choose for ``text``."""
    request = Request(Path("given.naut"), arch, text=dedent(text).lstrip(), until="ma-tile")
    schedule = compile_file(request).context.schedule
    assert schedule is not None
    return schedule


def changed(schedule: Schedule, change: Change | Callable[[KernelPlan], KernelPlan]) -> Schedule:
    """``schedule`` with ``change`` in every kernel that has warpgroup products."""
    of = change.of if isinstance(change, Change) else change
    return replace(schedule, kernels=tuple(of(k) if k.memory.engine == "warpgroup" else k for k in schedule.kernels))


def drawn(seed: int, structure: str) -> Change:
    """Any choices at once; many do not go together, which must be said."""
    r = random.Random(seed)
    memory: dict[str, Any] = {
        "units": r.choice((1, 2, 2, 3)), "stages": r.choice((1, 2, 2, 3, 4)),
        "persistent": r.choice(("none", "static", "snake", "dynamic")),
        "epilogue": r.choice(("direct", "bulk", "bulk", "bulk-reuse")),
        "order": r.choice(("natural", "longest-first", "grouped")), "group": r.choice((1, 2, 8)),
        "overlap": r.random() < 0.5, "in_flight": r.random() < 0.7, "ping_pong": r.random() < 0.3,
        "specialise": r.random() < 0.85, "store_columns": r.choice((0, 0, 32, 64)),
        "own_tiles": r.random() < 0.3 and structure == "product", "cluster": r.choice((1, 1, 1, 2)),
    }  # fmt: skip
    if structure == "product":
        return Change(memory, rows=r.choice((64, 64, 128)), columns=r.choice((0, 64, 128)), step=r.choice((0, 32, 64)))
    memory |= {"hold": r.random() < 0.4, "held_stages": r.choice((1, 1, 2)), "rescale": r.choice(("early", "late"))}
    memory |= {"sections": r.choice((0, 0, 2)), "pin_waits": r.random() < 0.2}
    repair, walk = r.choice(("always", "skip", "lazy", "auto")), r.choice(("ascending", "mixed-first"))
    return Change(memory, {"repair": repair, "walk_order": walk}, rows=64, step=r.choice((0, 64, 96)))
