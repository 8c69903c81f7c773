"""The default scheduler: rules turn a Program of unfused definitions into a :class:`Schedule`.

The rules visit definitions from the outputs to the inputs.  A definition joins the merged group of all its readers if
that group has a legal plan: its reads are aligned, its tiles fit, its loops have the repair terms that they need, and
its grid has enough blocks.  Otherwise the definition is a kernel of its own, and its result is a temp in global memory.
A single definition always has a plan.
The passes themselves decide legality: each candidate runs through fusion, split, reordering and rolling update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from math import prod

from nautilus.core.expr.nodes import Op, free_vars, loads, walk
from nautilus.core.fallbacks import EPILOGUES, FEWER, LIGHTER, NO_FALLBACKS, PLAIN, SMALLER, WITHOUT, Fallbacks, sizing
from nautilus.core.index.sizes import blocks, nominal
from nautilus.core.records.memo import Same
from nautilus.core.schedule import KernelPlan, Schedule, parts_allowed
from nautilus.planner import streaming
from nautilus.planner.chunks import warp_chunks
from nautilus.planner.chunks.clustered_chunks import clustered
from nautilus.planner.chunks.row_chunks import shares_rows
from nautilus.planner.clusters.load_tiles import with_load_tiles
from nautilus.planner.clusters.shared_loads import with_shared_loads
from nautilus.planner.conservative import one_by_one, plain, smaller
from nautilus.planner.groups import SIZED, Group, Known, Unfused, Why, are_alike, known_of, large_inputs, visits_alike
from nautilus.planner.kernel import FULL, SHORT, spread_tiles
from nautilus.planner.products.dots import dot_of, run_one_by_one, uses
from nautilus.planner.products.sides import holds_side
from nautilus.planner.products.sums import (
    SPREAD,
    are_small_sums,
    combines_before,
    combines_beside,
    combines_tiles,
    ends_product,
    has_other_rows,
    is_beside_columns,
    is_read_across,
    is_sum_of_others,
)
from nautilus.planner.products.turned import is_copied, is_operand, is_turned
from nautilus.planner.rowwise.scatters import share_terms
from nautilus.planner.rowwise.turned import steps_across, turns_rows
from nautilus.planner.rowwise.windows import shares_windows
from nautilus.planner.tiles import size_kernel
from nautilus.scalar.analysis.axes import Unified, scans_again
from nautilus.scalar.analysis.chunks import chunks_of
from nautilus.scalar.analysis.contractions.shared_parts import is_shared_part
from nautilus.scalar.analysis.definitions import Def, points, sector_results, size
from nautilus.scalar.analysis.derived_names import GRID, LOOP, TILE
from nautilus.scalar.analysis.domains import scan_of
from nautilus.scalar.ir import Program
from nautilus.targets.limits import Limits, limits
from nautilus.targets.rates import machine
from nautilus.targets.records import DEFAULT_TARGET

LONG = 64  # terms of reductions whose running results a block should not compute one after another
LONGER = 4096  # LONG for reductions whose results another reduction combines
FEW_ROWS = 64  # largest number of rows of a product that is bound by memory
MOST_TERMS = 1 << 18  # terms of sums over memory that a block computes before it multiplies them: about 10 microseconds
ACCUMULATORS = 384  # columns of sums in a tile of 128 rows: two warpgroups then have 192 registers a thread for them
PARTS = 1 << 18  # results in chunks, whose combination takes longer than the launch of one more kernel
CACHED = 24 << 20  # bytes that L2 holds beside others
FEW_BLOCKS = 32  # blocks of a kernel that leaves most multiprocessors idle
FEW_SCALES = 16
#: Definitions in a kernel at most: trying one takes time in proportion to them, and registers do not suffice for more.
MOST = 32


def plan_kernels(
    program: Program, schedule: Schedule | None = None, arch: str = DEFAULT_TARGET,
    fallbacks: Fallbacks = NO_FALLBACKS, precision: str = "fast",
) -> Schedule:  # fmt: skip
    """``schedule`` (None: one of defaults) with its kernels, by the default rules if it has none.

    ``fallbacks``: the fallbacks of kernels that failed later.  ``precision``: strict permits no parts of products.
    """
    if schedule is not None and schedule.kernels:
        return schedule
    given = schedule or Schedule()
    in_parts = parts_allowed(precision, given)
    return replace(given, kernels=default_schedule(program, arch, fallbacks, in_parts).kernels)


def default_schedule(
    program: Program, arch: str = DEFAULT_TARGET, fallbacks: Fallbacks = NO_FALLBACKS, in_parts: bool = True
) -> Schedule:
    """A legal schedule for every valid ``program`` (after inline, factor, narrow and dead), sized for ``arch``.

    ``in_parts``: products of f32 may have parts.
    """
    known = known_of(program)
    graph, target = known.graph, limits(arch)
    groups, plans = grouped(program, fallbacks)
    whole = {plans[g].name: known.unified(g) for g in graph.ordered(groups)}
    for g in graph.ordered(groups):
        if set(g).issuperset(o for n in g for o in graph.operands[n]):  # what combines chunks may join their kernel
            plans[g] = spread_tiles(plans[g], known.unified(g))
    kernels = {
        plans[g].name: sized(plans[g], known.unified(g), target, fallbacks, in_parts) for g in graph.ordered(groups)
    }
    for rule in (streaming.joined, warp_chunks.joined, clustered):
        kernels = rule(kernels, whole, target, fallbacks)
    kernels = with_load_tiles(kernels, whole, program, machine(arch), fallbacks)
    kernels = with_shared_loads(kernels, whole, program, machine(arch), fallbacks)
    return Schedule(kernels=tuple(kernels.values()))


def grouped(program: Program, fallbacks: Fallbacks = NO_FALLBACKS) -> tuple[dict[str, Group], dict[Group, KernelPlan]]:
    """The group of each definition of ``program``, and a plan of each group without sizes for a target."""
    known = known_of(program)
    key = fallbacks.taken, fallbacks.stored
    if key not in known.grouped:
        groups, plans = _grouped(known, fallbacks)
        known.grouped[key] = groups, plans, dict(known.unfused)
    groups, plans, unfused = known.grouped[key]
    known.unfused.clear()
    known.unfused.update(unfused)
    return dict(groups), dict(plans)


def _grouped(known: Known, fallbacks: Fallbacks) -> tuple[dict[str, Group], dict[Group, KernelPlan]]:
    defs, graph = known.defs, known.graph
    groups: dict[str, Group] = {}
    plans: dict[Group, KernelPlan] = {}
    known.unfused.clear()
    for name in reversed(defs):
        alone = (name,)
        plans[alone] = _single(known, name, fallbacks)
        groups[name] = alone
        stays = name in fallbacks.stored
        near = [r for r in graph.readers[name] if not (stays or _is_apart(defs, defs[name], defs[r]))]
        merged = graph.union((alone, *(groups[r] for r in near)))
        if len(merged) == 1:
            continue
        why, plan = _merge_fault(known, groups, merged, fallbacks), None
        if why is None:
            plan = known.plan(merged, fallbacks)
            why = _slow(plan, known, [plans[alone], *(plans[groups[r]] for r in near)])
        if (plan is None or why is not None) and (kept := _without_sums(known, groups, plans, near, fallbacks, name)):
            groups.update({o: (o,) for o in groups[near[0]]})
            merged, plan, why = kept.ops, kept, None
        if plan is None or why is not None:
            reason = known.reasons.get(merged, "") if why is Why.PLAN else ""
            known.unfused[name] = Unfused(name, tuple(near), why or Why.PLAN, reason)
            continue
        plans[merged] = plan
        groups.update(dict.fromkeys(merged, merged))
    _join_siblings(known, groups, plans, fallbacks)
    return groups, plans


def _without_sums(
    known: Known, groups: dict[str, Group], plans: dict[Group, KernelPlan], near: list[str], fallbacks: Fallbacks,
    name: str,
) -> KernelPlan | None:  # fmt: skip
    """The plan of the product ``name`` and its only reader, whose sums with fewer results become another kernel."""
    if len(near) != 1 or not are_small_sums(known.defs, name, near[0], groups[near[0]]):
        return None
    alone, merged = {o: (o,) for o in groups[near[0]]}, known.graph.union(((name,), (near[0],)))
    if any(len(known.graph.readers[o]) > 1 for o in alone if o != near[0]):
        return None
    fault = _merge_fault(known, {**groups, **alone}, merged, fallbacks)
    plan = known.plan(merged, fallbacks) if fault is None else None
    return None if _slow(plan, known, [plans[name,], plans[near[0],]]) is not None else plan


def unfused(program: Program, fallbacks: Fallbacks = NO_FALLBACKS) -> Mapping[str, Unfused]:
    """The definitions of ``program`` that the rules would have joined to their readers, and why they did not."""
    grouped(program, fallbacks)
    return dict(known_of(program).unfused)


def sized(
    plan: KernelPlan, unified: Unified, target: Limits, fallbacks: Fallbacks = NO_FALLBACKS, in_parts: bool = True
) -> KernelPlan:
    """``plan`` with its sizes chosen for ``target``, on the rung of the ladder that ``fallbacks`` says.

    ``in_parts``: products of f32 may have parts.
    """
    step, excess = fallbacks.steps(plan.name), fallbacks.excess(plan.name)
    key = Same(plan), Same(unified), target, step, excess, in_parts
    if key not in SIZED.found:
        SIZED.keep(key, _sized(plan, unified, target, step, excess, in_parts))
    found: KernelPlan = SIZED.found[key]
    return found


def _sized(
    plan: KernelPlan, unified: Unified, target: Limits, step: int, excess: float, in_parts: bool
) -> KernelPlan:  # fmt: skip
    if step >= PLAIN and len(plan.ops) == 1:
        return plain(unified, plan.name)
    step = sizing(step)
    warpgroup, light = target.warpgroup and step < WITHOUT, step == LIGHTER
    made = size_kernel(plan, unified, target, warpgroup, light, in_parts, step == FEWER)
    return made if step < SMALLER else smaller(made, unified, excess)


def _alone(known: Known, ops: Group, fallbacks: Fallbacks) -> bool:
    """Whether the kernel of ``ops`` failed, so that its definitions are kernels of their own.

    Where the kernel had more of them, a product and its epilogue stay together on one rung of the ladder.
    """
    step = fallbacks.steps(ops[-1])
    return step > EPILOGUES or (step == EPILOGUES and not _is_epilogue(known, ops, fallbacks))


def _is_epilogue(known: Known, ops: Group, fallbacks: Fallbacks) -> bool:
    """Whether ``ops`` are a product and an elementwise result of its axes, of which one reads another definition.

    A product with an operand from another product that is larger than the result stays with that one, which would else
    be stored.
    """
    if len(ops) != 2 or fallbacks.steps(ops[0]) > EPILOGUES:
        return False
    product, result = (known.defs[o] for o in ops)
    inner = [d for o in known.graph.operands[ops[0]] if dot_of(d := known.defs[o]) is not None]
    if any(points(d.par) > points(product.par) for d in inner):
        return False
    whole = dot_of(product) is not None and not result.is_reduction and len(product.par) == len(result.par)
    return whole and any({*known.graph.operands[o]} - {ops[0]} for o in ops)


def _merge_fault(known: Known, groups: dict[str, Group], merged: Group, fallbacks: Fallbacks) -> Why | None:
    """Why ``merged`` may not be one kernel, before its plan is tried; None where it may."""
    if any(known.defs[o].scatter is not None for o in merged) and not share_terms([known.defs[o] for o in merged]):
        return Why.SCATTER
    if len(merged) > MOST:
        return Why.MANY
    if _alone(known, merged, fallbacks):
        return Why.FAILED
    if known.graph.cyclic(groups, merged):
        return Why.CYCLE
    return Why.CHUNKS if _mixes(known.defs, merged) else None


def _slow(plan: KernelPlan | None, known: Known, parts: list[KernelPlan]) -> Why | None:
    """Why the fused ``plan`` of the kernels ``parts`` is not taken; None where it is."""
    if plan is None:
        return Why.PLAN
    if _starves(plan, known, parts):
        return Why.BLOCKS
    if holds_side(plan, known.unified(plan.ops).defs):
        return Why.SIDE
    rules = {Why.BATCHED: _batches, Why.CROWDED: _crowds, Why.REPEATED: _repeats, Why.NESTED: _slows}
    found, defs = next((why for why, rule in rules.items() if rule(plan, known)), None), known.unified(plan.ops).defs
    across = Why.SECTORS if steps_across(defs, plan) else None
    rows = {a.name for d in defs if d.is_reduction for a in d.par}
    loops = {a.name for a in plan.axes if a.role == LOOP} & rows
    return found or across or (Why.WINDOWS if shares_windows(defs, loops) else None)


def _join_siblings(
    known: Known, groups: dict[str, Group], plans: dict[Group, KernelPlan], fallbacks: Fallbacks
) -> None:
    """Merge groups that read the same tensor over the same grid, so that it is read once, and small ones and single
    blocks that end what the same kernel began, which saves launches.

    The rule is for row-wise work: a matrix product gains no time and loses registers.
    """
    defs, graph = known.defs, known.graph
    large = {g: large_inputs(defs, g) for g in set(groups.values())}
    refused: set[Group] = set()
    for a, b in combinations(graph.ordered(groups), 2):
        first, second = groups[a[0]], groups[b[0]]
        single = all(_grid_size(plans[g], known) == 1 for g in (first, second))
        ends = single and graph.share_operands(groups, first, second)
        if first == second or not (large[first] & large[second] or ends or are_alike(defs, first, second)):
            continue
        merged = graph.union((first, second))
        if merged in refused:
            continue
        refused.add(merged)
        if any(dot_of(defs[o]) for o in merged) or _merge_fault(known, groups, merged, fallbacks) is not None:
            continue
        if _alone(known, first, fallbacks) or _alone(known, second, fallbacks):
            continue
        plan = known.plan(merged, fallbacks)
        if plan is None or _joins_chunks(plan, known) or turns_rows(known.unified(merged).defs, plan):
            continue
        grid, sizes = _grid_size(plan, known), [_grid_size(plans[g], known) for g in (first, second)]
        apart = sum(len(plans[g].phases) for g in (first, second))
        few = FULL if _writes_again(plan, known) else FEW_BLOCKS
        idle = grid < few and 16 * grid <= max(sizes)  # where one of both would fill the GPU
        if len(plan.phases) <= apart and grid * 4 >= min(sizes) and not idle:
            plans[merged], large[merged] = plan, large_inputs(defs, merged)
            groups.update(dict.fromkeys(merged, merged))


def _writes_again(plan: KernelPlan, known: Known) -> bool:
    """Whether the loop of ``plan`` runs once for reductions and again to store results that L2 does not hold.

    A block that reads its share again takes it from memory as a kernel of its own would, so that the fused kernel saves
    a launch alone.
    """
    loops = {a.name for a in plan.axes if a.role == LOOP}
    unified, kept = known.unified(plan.ops), known.stored(plan.ops)
    again = (d for d in unified.defs if d.name in kept and loops & {a.name for a in d.par})
    return any(prod(size(a) or SHORT for a in d.par) * d.buffer.dtype.bytes > CACHED for d in again)


def _is_apart(defs: dict[str, Def], d: Def, reader: Def) -> bool:
    """Whether a rule keeps ``d`` out of the kernel of ``reader``."""
    products = combines_tiles, combines_beside, is_sum_of_others, ends_product, is_read_across, is_beside_columns
    others = has_other_rows, _combines, is_copied, is_operand, is_turned, _scales, is_shared_part, _reduces_running
    return _apart(d, reader) or any(rule(defs, d, reader) for rule in (combines_before, *products, *others))


def _apart(operand: Def, reader: Def) -> bool:
    """Whether ``reader`` needs all chunks of ``operand``, which different blocks compute, or one of them scatters."""
    if operand.scatter is not None or reader.scatter is not None:
        return True
    return (chunks_of(operand) is not None and chunks_of(reader) is None) or _totals(operand, reader)


def _combines(defs: dict[str, Def], d: Def, reader: Def) -> bool:
    """Whether ``reader`` multiplies elements ``d``, each of which combines chunks, :data:`PARTS` in all.

    The kernel that combines them has a block for each row, and that of a product has few blocks.
    """
    if d.is_reduction or dot_of(reader) is None:
        return False
    found = [defs[ld.buffer] for ld in d.reads() if ld.buffer in defs and defs[ld.buffer].is_reduction]
    chunked = [s for s in found if any(chunks_of(defs[ld.buffer]) for ld in s.reads() if ld.buffer in defs)]
    return any(prod(size(a) or SHORT for a in s.axes) >= PARTS for s in chunked)


def _reduces_running(defs: dict[str, Def], d: Def, reader: Def) -> bool:
    """Whether ``d`` reduces running results of rows, and ``reader`` is a total over many rows.

    A block has all running results of a row in registers.  A loop over rows leaves no room for them, so that a kernel
    of its own would store them.
    """
    terms = prod(size(a) or SHORT for a in reader.red)
    if not d.is_reduction or scan_of(d) is not None or not reader.is_reduction or terms < LONG:
        return False
    return any(ld.buffer in defs and scan_of(defs[ld.buffer]) is not None for ld in d.reads())


def _scales(defs: dict[str, Def], d: Def, reader: Def) -> bool:
    """Whether the product ``reader`` has terms under a scale from ``d``, the largest of a few elements in memory.

    A loop that finds both multiplies all of its sums in every step, because the scale is not known before.  To read
    the elements twice costs little where the product reads :data:`FEW_SCALES` times as many.
    """
    if not d.is_reduction or dot_of(reader) is None or any(ld.buffer in defs for ld in d.reads()):
        return False
    scales = (n for n in walk(reader.value) if isinstance(n, Op) and n.op == "binade")
    if not any(ld.buffer == d.name for n in scales for ld in loads(n)):
        return False
    sizes = {a.name: size(a) or SHORT for a in reader.axes}
    read = max(prod(sizes.get(x, 1) for x in free_vars(ld)) for ld in reader.reads())
    return FEW_SCALES * prod(size(a) or SHORT for a in d.axes) <= read


def _totals(operand: Def, reader: Def) -> bool:
    """Whether ``reader`` combines long reductions ``operand``, each of which should have a block of its own.

    Fewer terms are long where ``reader`` has running results (:data:`LONG`) than where it has one (:data:`LONGER`).  A
    block that reduces columns has the terms of a sector of them.  One block has running results of running results.
    """
    terms = prod(size(a) or SHORT for a in operand.red)
    if terms < LONG or not reader.is_reduction or dot_of(operand) is not None or shares_rows(operand, reader):
        return False
    scan, long = scan_of(reader), terms * sector_results(operand) >= LONGER
    combined = {scan.axis} if scan is not None else {a.name for a in reader.red} if long else set[str]()
    return not scans_again(operand, reader) and any(
        ld.buffer == operand.name and any(combined & free_vars(e) for e in ld.index) for ld in loads(reader.value)
    )


def _mixes(defs: dict[str, Def], ops: Group) -> bool:
    """Whether one of ``ops`` needs all the chunks of another, or is scaled by it."""
    pairs = ((defs[ld.buffer], defs[o]) for o in ops for ld in defs[o].reads() if ld.buffer in ops)
    return any(_apart(p, o) or _scales(defs, p, o) for p, o in pairs)


def _single(known: Known, name: str, fallbacks: Fallbacks) -> KernelPlan:
    if fallbacks.steps(name) >= PLAIN:
        return plain(known.unified((name,)), name)
    return known.plan((name,), fallbacks) or one_by_one(known.unified((name,)), name)


def stored(program: Program, ops: Group) -> frozenset[str]:
    """The definitions of ``ops`` that stay in memory: outputs, and the operands of other definitions."""
    return known_of(program).stored(ops)


def _grid_size(plan: KernelPlan, known: Known) -> int:
    """Blocks of a kernel; a size that is known only at launch has its nominal value."""
    extents = known.unified(plan.ops).extents
    return prod(blocks(nominal(extents[a.name]), a.tile) for a in plan.axes if a.role == GRID and a.name in extents)


def _starves(plan: KernelPlan, known: Known, parts: list[KernelPlan]) -> bool:
    """Whether fusion leaves the GPU idle with too few blocks, where one of ``parts`` would fill it.

    The rule is for reductions: an elementwise operand is cheap to recompute, unless it is stored and a block would
    compute all chunks of a reduction to store it once.  Fusion with a matrix product serves to keep its result out of
    memory, so there only a long reduction of elements in memory counts, such as the means of images whose channels are
    multiplied, and none under the condition of the product.  A reduction that all chunks over columns of a product
    need, such as the norm of a row, would leave its block all of them.
    """
    operand, merged = known.defs[parts[0].name], _grid_size(plan, known)
    if not operand.is_reduction:
        return operand.name in known.stored(plan.ops) and _joins_chunks(plan, known)
    if any(dot_of(known.defs[o]) for o in plan.ops):
        if _joins_chunks(plan, known) and not any(_joins_chunks(p, known) for p in parts):
            return True
        beside = visits_alike(operand, [known.defs[o] for o in plan.ops if o != operand.name])
        shared = beside or set(plan.ops) & {ld.buffer for ld in operand.reads()}
        terms = prod(size(a) or SHORT for a in operand.axes)
        few = 16 * merged <= _grid_size(parts[0], known)
        return few and not shared and dot_of(operand) is None and terms > MOST_TERMS * merged
    if merged < FULL and _reduces_apart(plan, known, operand.name):
        return True
    long = any(prod(size(a) or SHORT for a in known.defs[o].red) > SHORT for o in plan.ops)
    return merged < (FEW_BLOCKS if long else 4) and any(_grid_size(p, known) >= 16 * merged for p in parts)


def _reduces_apart(plan: KernelPlan, known: Known, operand: str) -> bool:
    """Whether a block of ``plan`` has a long loop for ``operand`` and another one for other reductions.

    Kernels of their own save no read by fusion, and each may have its loop in chunks.
    """
    found = {d.name: d for d in known.unified(plan.ops).defs if d.is_reduction}
    mine = {a.name for a in found.pop(operand).red}
    long = [d for d in (known.defs[operand], *found.values()) if prod(size(a) or SHORT for a in d.red) > SHORT]
    return len(long) > 1 and long[0].name == operand and all(mine.isdisjoint(a.name for a in d.red) for d in long[1:])


def _joins_chunks(plan: KernelPlan, known: Known) -> bool:
    """Whether a block of ``plan`` computes several chunks of a reduction."""
    unified = known.unified(plan.ops)
    chunks = {found.by for d in unified.defs if (found := chunks_of(d)) is not None}
    return any(a.name in chunks and a.role != GRID for a in plan.axes)


def _repeats(plan: KernelPlan, known: Known) -> bool:
    """Whether all blocks along a long axis of a product would compute a reduction that has an axis of its own.

    The tile of such a reduction, such as a sum of chunks, has the layout of the product, in which threads hold copies.
    """
    unified = known.unified(plan.ops)
    if not any(dot_of(d) for d in unified.defs):
        return False
    long = {a.name for a in plan.axes if a.role == GRID and a.tile > 1 and nominal(unified.extents[a.name]) >= SPREAD}
    found = (d for d in unified.defs if d.is_reduction and long - {a.name for a in d.axes})
    rest = [(d, {a.name for o in unified.defs if o is not d for a in o.axes}) for d in found]
    return any(dot_of(d) is None and scan_of(d) is None and not shared & {a.name for a in d.red} for d, shared in rest)


def _batches(plan: KernelPlan, known: Known) -> bool:
    """Whether a tile has several elements along an axis that both factors of a product share.

    Matrix instructions multiply one pair of matrices, and a block has the accumulators of all of them.
    """
    wide = {a.name for a in plan.axes if a.role != LOOP and a.tile > 1}
    found = ((d, dot) for d in known.unified(plan.ops).defs if (dot := dot_of(d)) is not None)
    return len(plan.ops) > 1 and any(
        wide & ({a.name for a in d.par} - {*dot.rows, *dot.columns}) for d, dot in found if dot.rows and dot.columns
    )


def _crowds(plan: KernelPlan, known: Known) -> bool:
    """Whether several products of many rows hold all of their columns in a tile that has too many accumulators.

    A reduction over the columns is why one tile has all of them.  Sums of 8-bit operands have two accumulators.
    """
    unified = known.unified(plan.ops)
    held = {a.name: a.tile for a in plan.axes if a.role == TILE}
    found = [(d, dot) for d in unified.defs if (dot := dot_of(d)) is not None]
    alike = len(found) > 1 and len({(dot.columns, dot.inner) for _, dot in found}) == 1
    columns = prod(held[x] for x in found[0][1].columns if x in held) if alike else 0
    rows = min((prod(size(a) or SHORT for a in d.par if a.name in dot.rows) for d, dot in found), default=0)
    each = [2 if any(ld.dtype.bytes == 1 for ld in d.reads()) else 1 for d, _ in found]
    return columns > 1 and rows > FEW_ROWS and columns * sum(each) > ACCUMULATORS


def _slows(plan: KernelPlan, known: Known) -> bool:
    """Whether fusion makes the contraction of a large product a loop inside a loop.

    Such a product uses MMAs of single warps.  With few rows it is bound by memory, so it gains more where its result
    is not stored.  Warpgroups run the loops of products of one result one after another.
    """
    unified = known.unified(plan.ops)
    loops = {a.name for a in plan.axes if a.role == LOOP}
    if run_one_by_one(unified, loops):
        return False
    for d in unified.defs:
        dot = dot_of(d)
        nested = dot is not None and loops & set(dot.inner) and loops - {*dot.inner, *dot.chosen}
        if dot is not None and nested and uses(d, dot, known.defs.keys(), SHORT) > FEW_ROWS:
            return True
    return False
