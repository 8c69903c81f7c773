"""Splits of long reductions by the cost model, where the rules of :mod:`nautilus.planner.cuts` leave the GPU idle.

Candidates are kernels of the plan of the rules with fewer blocks than :data:`FEW` for each multiprocessor, which take
:data:`WORTH` seconds or more, and whose loop no rule has split.  The longest loop of such a kernel, or the outer one of
a reduction over several long axes, is cut into chunks that fill the multiprocessors once, twice, four or eight times.
Chunks of the rules are tried smaller where reductions that they read share their kernel (:func:`_finer`).
A candidate replaces the choice of the rules where the prediction for the whole program, with the kernel that combines
the chunks, is shorter by :data:`MARGIN`.

Columns that are reduced beside rows (:mod:`nautilus.planner.chunks.row_chunks`) are tried in chunks of groups of rows
(:func:`choose_rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from math import inf, prod
from typing import Any

from nautilus.core.errors import ScheduleError, UnsupportedError
from nautilus.core.expr.nodes import Axis
from nautilus.core.index.sizes import at_most, blocks, nominal
from nautilus.core.schedule import KernelPlan, PackPlan, Schedule, SplitPlan, WarpPlan
from nautilus.core.schedule.plans import MAX_SPLITS
from nautilus.core.tiles import floor_pow2
from nautilus.cost.model import KernelEstimate
from nautilus.passes.manager import Context, prepared, steps
from nautilus.passes.pipelines import SCALAR
from nautilus.passes.selection.trial import ATTEMPTS, Trial, apart, attempt, planned
from nautilus.passes.trials.large import is_large
from nautilus.planner.chunks import row_chunks, warp_chunks
from nautilus.planner.cuts import twice
from nautilus.planner.groups import known_of
from nautilus.planner.products.dots import dot_of
from nautilus.planner.rowwise.turned import contiguous, sectors
from nautilus.planner.streaming import MULTIPROCESSORS, SHORTEST
from nautilus.scalar.analysis.axes import unify
from nautilus.scalar.analysis.chunks import chunks_of
from nautilus.scalar.analysis.definitions import Def, read_defs, size
from nautilus.scalar.analysis.derived_names import GRID, LOOP
from nautilus.scalar.ir import Program
from nautilus.targets.limits import limits

FEW = 2  # blocks for each multiprocessor, from which on a kernel is not split
BLOCK = 4  # warps of such a block; as many more are needed of smaller ones
FULL = 0.75  # the same share for warpgroups: a multiprocessor holds one of their blocks
FILLED = 3  # of warps: the blocks for each multiprocessor that fill it
WAVES = (1, 2, 4, 8)  # blocks for each multiprocessor that candidates aim at
WORTH = 11e-6  # seconds of a kernel: the least time that a split halves (f8 weights, one token: 16 to 10 us on an H200)
#: relative gain by the cost model below which the choice of the rules stays: it underrates chunks that fill the GPU (a
#: softmax of 64 rows of 128256 elements on an H200: 0.13 predicted, 0.29 measured; attention of f32, 4 x 12 heads of
#: 512 with a mask of keys: 0.09 predicted, 0.12 measured)
MARGIN = 0.08
STEP = 0.97  # the time after twice as many chunks, at most, as a share of the time before
NEAR = 0.75  # a number of chunks that is this part of the wanted one serves as well: their tiles then stay whole
TILE = 128 * 256  # elements of the largest tile of a result
_KERNELS = 2  # kernels of a program that are candidates, the slowest ones
_DOMINANT = 0.5  # share of the predicted time from which on a kernel is a candidate beside these
_ROUNDS = 6  # most of such candidates
_SPLIT = "split-k-update"
_BEFORE, _BEFORE_PACKS = SCALAR.before(_SPLIT), SCALAR.before("pack")


def priced(program: Program, context: Context, below: float = inf) -> Trial | None:
    """The trial of ``program`` with the splits of :func:`choose`, or with those of the rules; None where it fails."""
    schedule = context.schedule or Schedule()
    given = schedule.splits is not None or schedule.batch_invariant
    return (None if given else choose(program, context, below)) or attempt(program, context, _BEFORE, ATTEMPTS)


def priced_after(program: Program, context: Context, after: str, below: float = inf) -> Trial | None:
    """The trial of ``program``, the result of pass ``after``, with the splits that follow from the passes after it.

    ``below``: seconds that the program must take less than to matter.  Where no split makes it that fast, the trial has
    none.  The trial of a large program has what the rules say.
    """
    if is_large(program, context.schedule):
        return attempt(program, context, after, ATTEMPTS)
    module: Any = program
    for step in steps(SCALAR, after):
        if step.name == _SPLIT:
            break
        context = prepared(step, module, context)
        module = step.tried(module, context)
    return priced(module, context, below)


def choose(program: Program, context: Context, below: float = inf) -> Trial | None:
    """The best trial of ``program``, the result of :data:`_BEFORE`; None where no trial was made.

    The trial has the splits of the rules where no others are clearly better.  ``below``: as for :func:`priced_after`.
    """
    many = limits(context.arch).multiprocessors or MULTIPROCESSORS
    defs = read_defs(program)
    if not any(_may_split(d, many, defs) for d in defs.values()) or not _leaves_idle(program, context, defs, many):
        return None
    best = attempt(program, context, _BEFORE, ATTEMPTS)
    best = apart(program, context, best, _BEFORE) or best
    whole: set[str] = set()  # kernels of which no split is better
    if best is None or best.seconds - _gain(best, defs, many, whole) >= below:
        return best
    for kernel in _idle(best, defs, many)[:_KERNELS]:
        if best.seconds - _gain(best, defs, many, whole) >= below:
            return best  # the other kernels are too short
        before, best = best, _split(program, context, best, kernel, defs, many)
        whole |= {kernel.name} if best is before else set()
    for _ in range(_ROUNDS):
        kernels = _idle(best, defs, many)
        if not kernels or kernels[0].name in whole or kernels[0].seconds < _DOMINANT * best.seconds:
            break
        before, best = best, _split(program, context, best, kernels[0], defs, many)
        if best is before:
            break
    return _finer(program, context, best, defs, many)


def _finer(program: Program, context: Context, base: Trial, defs: dict[str, Def], many: int) -> Trial:
    """The best trial of ``base`` with more chunks in its slowest kernel, which has few; ``base`` where none is better.

    The rules size chunks for a reduction alone, and it may share its kernel with reductions that its terms are made
    from: the loss of a row of logits.
    """
    plans = {k.name: k for k in base.schedule.kernels}
    slowest = max(base.estimate.kernels, key=lambda k: k.seconds)
    plan, splits = plans.get(slowest.name), base.schedule.splits or ()
    if plan is None or slowest.seconds < WORTH or slowest.tiles >= _enough(plan, many):
        return base
    mine = _beside_rows(plan, defs, splits)
    if not mine:
        return base
    best = base
    for n in WAVES[1:]:
        chunks = (replace(c, splits=min(c.splits * n, MAX_SPLITS), tile=max(1, c.tile // n)) for c in splits)
        finer = tuple(new if c.op in mine else c for c, new in zip(splits, chunks, strict=True))
        schedule = replace(context.schedule or Schedule(), splits=finer)
        found = attempt(program, replace(context, schedule=schedule, fallbacks=base.fallbacks), _BEFORE)
        if found is None or found.seconds > STEP * best.seconds:
            break
        best = found
    return base if base.seconds - best.seconds < MARGIN * slowest.seconds else best


def _beside_rows(plan: KernelPlan, defs: Mapping[str, Def], splits: Iterable[SplitPlan]) -> set[str]:
    """The reductions of which ``plan`` has the chunks beside whole reductions."""
    rows = any(o in defs and defs[o].is_reduction for o in plan.ops)
    return {c.op for c in splits if rows and c.interleave == 1 and f"{c.op}_part" in plan.ops}


def choose_rows(program: Program, context: Context, packs: tuple[PackPlan, ...]) -> Trial | None:
    """The best trial of ``program``, the result of :data:`_BEFORE_PACKS`, with rows in groups and columns in chunks.

    None where there are no such columns, or the choice of the rules, which have ``packs``, is as fast.
    """
    assert context.schedule is not None
    wanted = row_chunks.schedules(program, context.schedule)
    trials = [attempt(program, replace(context, schedule=s), _BEFORE_PACKS) for s in wanted]
    best = min((t for t in trials if t is not None), key=lambda t: t.seconds, default=None)
    if best is None:
        return None
    known = replace(context, schedule=replace(context.schedule, packs=packs))
    first = priced_after(program, known, _BEFORE_PACKS, best.seconds / (1 - MARGIN))
    return best if first is None or best.seconds < (1 - MARGIN) * first.seconds else None


def _gain(trial: Trial, defs: dict[str, Def], many: int, whole: Set[str]) -> float:
    """The seconds that splits save at most: those in which kernels of ``trial`` but ``whole`` leave multiprocessors
    idle.

    A multiprocessor has as many blocks of the chunks as of the whole reduction, for their tiles are the same.
    """
    idle = (k for k in _idle(trial, defs, many) if k.name not in whole)
    filled = ((k, many * min(WAVES[-1], k.resident)) for k in idle)
    return sum(k.seconds * max(0.0, 1.0 - k.tiles / most) for k, most in filled)


def _split(
    program: Program, context: Context, base: Trial, kernel: KernelEstimate, defs: dict[str, Def], many: int
) -> Trial:
    """The best trial of ``base`` with reductions of ``kernel`` in chunks; ``base`` where none is clearly better."""
    found = (
        _by_blocks(program, context, base, kernel, defs, many),
        _by_warps(program, context, base, kernel, defs),
    )
    best = min(found, key=lambda x: x.seconds)
    return base if base.seconds - best.seconds < MARGIN * kernel.seconds else best


def _by_blocks(
    program: Program, context: Context, base: Trial, kernel: KernelEstimate, defs: dict[str, Def], many: int
) -> Trial:
    """The best trial of ``base`` in which blocks have chunks of the reductions of ``kernel``; else ``base``.

    Where the least number of chunks of a kernel of warps is worse, a number that fills the multiprocessors is tried
    too, for few chunks may take more time than none, and more of them less.
    """
    # the kernel of the chunks has another name, and needs the rungs that the whole one took again
    again = ATTEMPTS if base.fallbacks != context.fallbacks else 1

    def walk(best: Trial, cuts: Iterable[tuple[SplitPlan, ...]]) -> tuple[Trial, int]:
        level, number = False, 0
        for cut in cuts:
            number += 1
            found = attempt(program, _with(context, base, cut), _BEFORE, again)
            if found is None:
                continue  # shorter chunks have smaller tiles
            if found.seconds > STEP * best.seconds:
                if level or found.seconds > best.seconds / STEP:
                    break  # more chunks only add partial results
                level = True  # larger tiles, as of pairs, leave as few blocks as before; more chunks then fill the GPU
                continue
            best, level = found, False
        return best, number

    cuts = list(_cuts(program, defs, base.schedule, kernel, many))
    best, number = walk(base, cuts)
    by_warps = any(k.name == kernel.name and k.mapping.engine == "warp" for k in base.schedule.kernels)
    if best is base and number == 1 and by_warps:
        best, _ = walk(base, (c for c in cuts[1:] if FILLED * many <= c[0].splits * kernel.tiles))
    return best


def _by_warps(program: Program, context: Context, base: Trial, kernel: KernelEstimate, defs: dict[str, Def]) -> Trial:
    """The best trial of ``base`` in which the warps of a block divide the terms of ``kernel``; else ``base``.

    The products of a kernel that has several, as a gated layer has, become kernels with the cuts of the first one.
    """
    plan = next((k for k in base.schedule.kernels if k.name == kernel.name), None)
    cut = {c.op for c in base.schedule.splits or ()}
    if plan is None or len(_whole(plan, defs, cut)) != len(plan.ops):
        return base
    unified = unify([defs[o] for o in plan.ops], tuple(p.name for p in program.params))
    loops = {a.name for a in plan.axes if a.role == LOOP}
    ends = [(d.name, defs[d.name].red[at].name) for d in unified.defs for at, a in enumerate(d.red) if a.name in loops]
    products = [d.name for d in unified.defs if dot_of(d) is not None]
    if len(products) > 1:
        known = known_of(program)
        plan, unified = known.plan((products[0],), base.fallbacks), known.unified((products[0],))
        if plan is None or {name for name, _ in ends} != {*products}:
            return base
    tried = (twice(program, ends, c) for c in warp_chunks.cuts(plan, unified, limits(context.arch)))
    trials = (attempt(program, _with(context, base, tuple(splits)), _BEFORE) for splits in tried)
    return min((base, *(x for x in trials if x is not None)), key=lambda x: x.seconds)


def _with(context: Context, base: Trial, cuts: tuple[SplitPlan, ...]) -> Context:
    """``context`` with the splits of ``base`` and ``cuts``, on the rungs that ``base`` needed."""
    assert context.schedule is not None
    splits = (*(base.schedule.splits or ()), *cuts)
    return replace(context, schedule=replace(context.schedule, splits=splits), fallbacks=base.fallbacks)


def _may_split(d: Def, many: int, defs: Mapping[str, Def]) -> bool:
    """Whether ``d`` reduces a long axis, or sums over groups, and its result may have few tiles."""
    inner = max((_points(x.red) for ld in d.reads() if (x := defs.get(ld.buffer)) is not None), default=1)
    return _points(d.par) < FEW * many * TILE and _points(d.red) * (inner if d.red else 1) >= SHORTEST


def _points(axes: Iterable[Axis]) -> int:
    return prod(size(a) or min(at_most(a.extent), TILE) for a in axes)


def _leaves_idle(program: Program, context: Context, defs: dict[str, Def], many: int) -> bool:
    """Whether a kernel with whole reductions has few blocks in the plan of the rules; True where they have no plan.

    A plan takes a part of the time of a trial.  ``defs``: those of ``program``.
    """
    try:
        reached, schedule = planned(program, replace(context, trial=True), _BEFORE)
    except (ScheduleError, UnsupportedError):
        return True
    after, params = read_defs(reached), tuple(p.name for p in reached.params)
    splits = schedule.splits or ()
    cut = {c.op for c in splits}
    candidates = (k for k in schedule.kernels if _has_whole(k, defs, cut) or _beside_rows(k, defs, splits))
    return any(_tiles(k, after, params) < _enough(k, many) for k in candidates)


def _has_whole(plan: KernelPlan, defs: dict[str, Def], cut: set[str]) -> bool:
    """Whether a reduction of ``plan`` is whole, perhaps beside others of which the kernel combines the chunks."""
    return all(o in defs for o in plan.ops) and any(defs[o].is_reduction for o in _whole(plan, defs, cut))


def _whole(plan: KernelPlan, defs: dict[str, Def], cut: set[str]) -> list[str]:
    """The definitions of ``plan`` that have no chunks."""
    return [o for o in plan.ops if o not in cut and chunks_of(defs[o]) is None]


def _tiles(plan: KernelPlan, defs: dict[str, Def], params: tuple[str, ...]) -> int:
    """The tiles in the grid of ``plan``."""
    extents = unify([defs[o] for o in plan.ops], params).extents
    return prod(blocks(e, a.tile) for a in plan.axes if a.role == GRID and isinstance(e := extents[a.name], int))


def _enough(plan: KernelPlan, many: int) -> float:
    """The number of tiles from which on a kernel leaves no multiprocessor idle."""
    if not isinstance(plan.mapping, WarpPlan):
        return FULL * many
    return FEW * many * max(1, BLOCK // prod(plan.mapping.warps))


def _idle(first: Trial, defs: dict[str, Def], many: int) -> list[KernelEstimate]:
    """The kernels that leave multiprocessors idle and have a reduction that is whole, the slowest one first."""
    cut = {c.op for c in first.schedule.splits or ()}
    plans = {k.name: k for k in first.schedule.kernels}
    whole = [
        k
        for k in first.estimate.kernels
        if k.name in plans
        and k.seconds >= WORTH
        and k.tiles < _enough(plans[k.name], many)
        and _has_whole(plans[k.name], defs, cut)
    ]
    return sorted(whole, key=lambda k: -k.seconds)


def _cuts(
    program: Program, defs: dict[str, Def], schedule: Schedule, kernel: KernelEstimate, many: int
) -> Iterator[tuple[SplitPlan, ...]]:
    """The reductions over the outer or the longest loop of ``kernel``, in every number of chunks worth a trial.

    None where the splits of another kernel have changed which definitions are one kernel.
    """
    plan = next((k for k in schedule.kernels if k.name == kernel.name), None)
    if plan is None:
        return
    cut = {c.op for c in schedule.splits or ()}
    unified = unify([defs[o] for o in _whole(plan, defs, cut)], tuple(p.name for p in program.params))
    extents = unified.extents  # without axes that splits have made
    known = {a.name: nominal(extents[a.name]) for a in plan.axes if a.name in extents}
    found = {a.name: known[a.name] for a in plan.axes if a.role == LOOP and a.name in known}
    if not found:
        return
    row = {a.name: known[a.name] for a in plan.axes if a.role != GRID and a.name in known}
    joint = all(found.keys() <= {a.name for a in d.red} for d in unified.defs if d.is_reduction)
    near = contiguous(unified.defs, row)
    # chunks of an outer loop leave the accesses of the others as they are
    long = {x: n for x, n in found.items() if x not in near and n * kernel.tiles >= FEW * many}
    first = next(iter(long or found))
    outer = joint and found[first] * kernel.tiles >= FEW * many
    loop = first if outer else max(long or found, key=lambda x: found[x])
    ends = [(d.name, at) for d in unified.defs for at, a in enumerate(d.red) if a.name == loop]
    least = 2 if all(len(d.red) == 1 for d in unified.defs) else 1  # elements of a chunk
    least = max(least, sectors(unified.defs, row).get(loop, 1))
    if plan.mapping.engine == "warpgroup":
        least = max(least, plan.axis(loop).tile)  # a step of matrix units takes as long for fewer terms
    for count in _counts(found[loop] // least, kernel.tiles, many):
        chunks, tile = _chunks(plan.axis(loop).tile, found[loop], count)
        yield tuple(SplitPlan(name, defs[name].red[at].name, chunks, tile) for name, at in ends)


def _counts(extent: int, tiles: int, many: int) -> list[int]:
    """Numbers of chunks that fill the multiprocessors, at most ``extent``, without empty chunks.

    They are powers of two where the extent allows it, so that chunks are whole tiles of most extents.
    """
    wanted = (min(floor_pow2(many * w // tiles), extent, MAX_SPLITS) for w in WAVES)
    return sorted({blocks(extent, blocks(extent, n)) for n in wanted if n > 1})


def _chunks(tile: int, extent: int, count: int) -> tuple[int, int]:
    """About ``count`` chunks, none of them empty, and the largest part of ``tile`` that divides them."""
    while True:
        chunks = blocks(extent, tile * blocks(blocks(extent, tile), count))
        if chunks >= NEAR * count or tile == 1:
            return chunks, tile
        tile //= 2
