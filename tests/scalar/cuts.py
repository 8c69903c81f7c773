"""Schedules that split the reductions of any program into chunks."""

from __future__ import annotations

from nautilus.core.schedule import Schedule, SplitPlan
from nautilus.scalar.analysis.definitions import read_defs
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.split_k_update import SplitKUpdate


def cuts(program: Program, splits: int, tile: int, ops: tuple[str, ...] | None = None) -> Schedule:
    """A schedule with every reduction (of ``ops``) in ``splits`` chunks of its last axis, without kernels."""
    found = [d for d in read_defs(program).values() if d.is_reduction and (ops is None or d.name in ops)]
    return Schedule(splits=tuple(SplitPlan(d.name, d.red[-1].name, splits, tile) for d in found))


def cut(program: Program, splits: int, tile: int, ops: tuple[str, ...] | None = None) -> Program:
    """``program`` with its reductions split."""
    return SplitKUpdate(cuts(program, splits, tile, ops)).apply(program)
