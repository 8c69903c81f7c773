"""Cutting the walk of few blocks into chunks that other blocks take: how often, and which reductions together.

All reductions over the axis that a kernel walks are cut alike, in chunks of whole tiles of that walk
(``split_k_update``).  A launch that fills the machine gains nothing: partial results cost traffic and a second
kernel, so the choice exists only where blocks are few and the walk is long.
"""

from __future__ import annotations

from math import prod

from nautilus.core.schedule import Schedule, SplitPlan
from nautilus.core.targets import limits
from nautilus.scalar.defs import read_defs
from nautilus.scalar.ops import Program
from nautilus.scalar.plan_warpgroup import extent
from nautilus.scalar.roles import GRID, blocks
from nautilus.tune.fusion import unified_of
from nautilus.tune.walks import walk_of

COUNTS = (2, 3, 4, 8, 16, 32, 64)
FEW = 2  # blocks for each multiprocessor, from which on splitting is not worth a look
TILES = 4  # of the walk in a chunk, at least


def cuts(program: Program, base: Schedule, splits: int) -> tuple[SplitPlan, ...]:
    """The reductions of every long walk of ``base``, in ``splits`` chunks."""
    defs = read_defs(program)
    out = []
    for plan in base.kernels:
        walk = walk_of(plan)
        if walk is None or any(o not in defs for o in plan.ops):
            continue
        unified = unified_of(program, plan.ops)
        for d in unified.defs:
            at = [n for n, a in enumerate(d.red) if a.name == walk]
            if at and extent(unified, walk) >= TILES * splits * plan.axis(walk).tile:
                axis = defs[d.name].red[at[0]].name
                out.append(SplitPlan(d.name, axis, splits, plan.axis(walk).tile))
    return tuple(out)


def counts(program: Program, base: Schedule, arch: str) -> tuple[int, ...]:
    """Numbers of chunks worth a look, 1 (none) among them."""
    target = limits(arch)
    few = FEW * (target.multiprocessors or 108)
    defs = read_defs(program)
    for plan in base.kernels:
        if walk_of(plan) is None or any(o not in defs for o in plan.ops):
            continue
        unified = unified_of(program, plan.ops)
        tiles = prod(blocks(extent(unified, a.name), a.tile) for a in plan.axes if a.role == GRID)
        found = [n for n in COUNTS if tiles < few and n * tiles <= 8 * few and cuts(program, base, n)]
        if found:
            return (1, *found)
    return (1,)
