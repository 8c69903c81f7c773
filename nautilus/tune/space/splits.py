"""Split-K for kernels of few blocks: the numbers of chunks, and the reductions that are split together.

Chunks go to other blocks, or are interleaved between the warps of a block and groups of them (``planner.streaming``).

All reductions over a kernel's loop axis are split alike, in chunks of whole tiles of that loop (``split-k-update``).
A launch that fills the machine gains nothing: partial results cost traffic and a second kernel, so the choice exists
only where blocks are few and the loop is long.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from nautilus.core.errors import ScheduleError
from nautilus.core.index.sizes import blocks
from nautilus.core.records import dataclass
from nautilus.core.schedule import KernelPlan, Schedule, SplitPlan, WarpPlan
from nautilus.passes.selection.split_choice import FEW
from nautilus.planner import streaming
from nautilus.planner.cuts import twice
from nautilus.planner.streaming import MULTIPROCESSORS, Cut
from nautilus.planner.warpgroup import extent
from nautilus.scalar.analysis.definitions import Def, read_defs
from nautilus.scalar.analysis.derived_names import GRID
from nautilus.scalar.ir import Program
from nautilus.targets.limits import limits
from nautilus.tune.space.fusion import unified_of
from nautilus.tune.space.loop_structures import loop_of

COUNTS = (2, 3, 4, 8, 16, 32, 64)
GROUPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # numbers of interleaved chunks
TILES = 4  # least number of tiles of the loop in a chunk


def cuts(program: Program, base: Schedule, splits: int) -> tuple[SplitPlan, ...]:
    """The reductions of every long loop of ``base``, in ``splits`` chunks."""
    defs = read_defs(program)
    out = []
    for plan in base.kernels:
        loop = loop_of(plan)
        if loop is None or any(o not in defs for o in plan.ops):
            continue
        unified = unified_of(program, plan.ops)
        for d in unified.defs:
            at = [n for n, a in enumerate(d.red) if a.name == loop]
            if at and extent(unified, loop) >= TILES * splits * plan.axis(loop).tile:
                axis = defs[d.name].red[at[0]].name
                out.append(SplitPlan(d.name, axis, splits, plan.axis(loop).tile))
    return tuple(out)


def counts(program: Program, base: Schedule, arch: str) -> tuple[int, ...]:
    """Numbers of chunks that may be faster, 1 (none) among them."""
    target = limits(arch)
    few = FEW * (target.multiprocessors or MULTIPROCESSORS)
    defs = read_defs(program)
    for plan in base.kernels:
        if loop_of(plan) is None or any(o not in defs for o in plan.ops):
            continue
        unified = unified_of(program, plan.ops)
        tiles = prod(blocks(extent(unified, a.name), a.tile) for a in plan.axes if a.role == GRID)
        found = [n for n in COUNTS if tiles < few and n * tiles <= 8 * few and cuts(program, base, n)]
        if found:
            return (1, *found)
    return (1,)


# -- interleaved splits ------------------------------------------------------------------------

WARPS = (2, 4, 8)  # numbers of warps of a block
STEPS = (16, 32, 64, 128, 256)  # elements that a warp takes at a time
_RESERVE = 2048  # bytes of shared memory for barriers and small partial results


@dataclass(frozen=True, slots=True)
class Interleaving:
    """How the rules interleave the chunks of a loop, and which other ways are worth a measurement.

    ``ends``: the reductions, and which of its axes each is split along; ``blocks``: warps of a block and the step of
    each, as text; ``groups``: numbers of blocks.
    """

    rule: Cut
    splits: tuple[SplitPlan, ...]  # the splits of the rules
    ends: tuple[tuple[str, int], ...]
    extent: int
    blocks: tuple[str, ...]
    groups: tuple[int, ...]

    def cut(self, block: str, groups: int) -> Cut:
        """The cut that two choices say. Raises ScheduleError where they do not go together."""
        warps, step = map(int, block.split("x"))
        found = Cut(groups, warps, step)
        if found != self.rule and not _whole(self.extent, found):
            detail = f"{rounds(self.extent, found)} rounds of {warps} tiles of {step} elements cannot be divided"
            raise ScheduleError(f"{detail} into {groups} groups of the same number of rounds, two or more")
        return found

    def cuts(self, program: Program, cut: Cut) -> tuple[SplitPlan, ...]:
        """``cut`` applied to the unsplit ``program``, and the splits of other loops by the rules."""
        defs = read_defs(program)
        ends = [(op, defs[op].red[at].name) for op, at in self.ends]
        ours = {(c.op, c.axis) for c in twice(program, ends, self.rule)}
        found = twice(program, ends, cut)
        return (*found, *(c for c in self.splits if (c.op, c.axis) not in ours and c.op not in dict(self.ends)))


def block_text(cut: Cut) -> str:
    """``4x32``: four warps, each with steps of 32 elements."""
    return f"{cut.warps}x{cut.step}"


def rounds(size: int, cut: Cut) -> int:
    """The iterations of every warp if there is one group."""
    return blocks(size, cut.warps * cut.step)


def _whole(size: int, cut: Cut) -> bool:
    """Whether groups have equally many rounds, two at least."""
    every = rounds(size, cut)
    return every % cut.groups == 0 and every >= 2 * cut.groups


def interleaving(whole: Program, program: Program, base: Schedule, arch: str) -> Interleaving | None:
    """The choices where the rules interleave the chunks of ``base``; ``program``: ``whole`` in chunks."""
    first = [c for c in base.splits or () if c.interleave > 1]
    joined = [k for k in base.kernels if _combines(k)]
    if not first or not joined:
        return None
    rule = Cut(first[0].splits // first[0].interleave, first[0].interleave, first[0].tile)
    defs = read_defs(whole)
    ends = tuple((c.op, [a.name for a in defs[c.op].red].index(c.axis)) for c in first)
    alike = len({(c.splits, c.interleave, c.tile) for c in first}) == len(joined) == 1
    size, block_values, groups = _worth(program, joined[0], rule, arch) if alike else (0, (), ())
    return Interleaving(
        rule, base.splits or (), ends, size,
        tuple(dict.fromkeys((*block_values, block_text(rule)))), tuple(sorted({1, rule.groups, *groups})),
    )  # fmt: skip


def _worth(program: Program, plan: KernelPlan, rule: Cut, arch: str) -> tuple[int, tuple[str, ...], tuple[int, ...]]:
    """(elements of the loop, warps and steps whose pipelines fit, numbers of groups) worth a measurement."""
    target = limits(arch)
    unified = unified_of(program, plan.ops)
    chunks = streaming.interleaved_chunks(unified)
    assert chunks is not None
    size, (row, held) = extent(unified, chunks.axis), streaming.loaded(plan, unified, chunks.axis)
    fit = [
        c
        for c in (Cut(1, warps, step) for warps in WARPS for step in STEPS)
        if c.warps * (2 * c.step * row + held) + _RESERVE <= target.smem_block and _whole(size, c)
    ]
    grid = prod(blocks(extent(unified, a.name), a.tile) for a in plan.axes if a.role == GRID and a.name != chunks.by)
    most = max(rule.groups, 4 * FEW * (target.multiprocessors or MULTIPROCESSORS) // grid)
    groups = tuple(n for n in GROUPS if n <= most and any(_whole(size, Cut(n, c.warps, c.step)) for c in fit))
    return size, tuple(block_text(c) for c in fit), groups


def combining(program: Program, base: Schedule) -> frozenset[str]:
    """Names of the kernels that combine interleaved chunks: their plans follow from the split."""
    defs = read_defs(program)
    parts = {o for k in base.kernels if _combines(k) for o in k.ops}
    first = {k.name for k in base.kernels if not _combines(k) and _reads(defs, k, parts)}
    again = {c.op for c in base.splits or () if c.interleave > 1}
    if sum(c.op in again for c in base.splits or ()) == len(again):
        return frozenset(first)
    made = {o for k in base.kernels if k.name in first for o in k.ops}
    return frozenset(first | {k.name for k in base.kernels if not _combines(k) and _reads(defs, k, made)})


def _combines(plan: KernelPlan) -> bool:
    """Whether the kernel's warps combine their partial results in a block."""
    return isinstance(plan.mapping, WarpPlan) and plan.mapping.combine_in_block


def _reads(defs: Mapping[str, Def], plan: KernelPlan, names: set[str]) -> bool:
    return any(ld.buffer in names for o in plan.ops if o in defs for ld in defs[o].reads())
