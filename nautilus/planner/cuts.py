"""Default rules for ``pack`` and ``split-k-update``: which axes are cut in two before definitions become kernels.

*Packs.*  A matrix product computes ``G`` rows from the same data where one operand depends on a parallel axis ``h``
only through ``h // G``, and the other operand depends on ``h`` itself.  The rule packs these rows into one tile where
they need fewer tiles of :data:`MMA_ROWS` rows than the other rows of the product do.

*Splits.*  A kernel that streams operands along a loop reaches the memory bandwidth only with enough outstanding
bytes: blocks times the bytes that a block prefetches.  On an H200 4.2 MB reach 90% of the bandwidth and 8.4 MB all
of it; more splits only add partial results and tails.  The rule takes the smallest number of chunks with
:data:`OUTSTANDING` bytes, in at most one wave of blocks, and only where the time that the loop saves is more than the
second kernel takes.  With ``batch_invariant``, chunks depend on the loop's extent alone, and a loop whose extent is
known only at launch has none.

The rule applies to kernels whose loop ends in reductions (a back-to-back GEMM, or row-wise work): one phase has all
reductions, the loop writes nothing to memory, and a block has one tile of the result.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod

from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Expr, Load, Op, Var, free_vars, walk
from nautilus.core.fallbacks import EPILOGUES, NO_FALLBACKS, WITHOUT, Fallbacks
from nautilus.core.functions import FUNCTIONS
from nautilus.core.index.groups import count_elements, quotients, shared_group
from nautilus.core.index.linear import Linear, linear
from nautilus.core.index.sizes import Extent, at_most, blocks, nominal
from nautilus.core.records import dataclass
from nautilus.core.schedule import KernelPlan, PackPlan, Schedule, SplitPlan, WarpPlan
from nautilus.core.types import DType
from nautilus.planner import streaming
from nautilus.planner.kernels import default_schedule, stored
from nautilus.planner.lanewise import taps
from nautilus.planner.products.dots import Dot, dot_of
from nautilus.planner.rowwise import pairs, windows
from nautilus.planner.rowwise.segments import shared_segments
from nautilus.planner.streaming import BANDWIDTH, COMBINE, MULTIPROCESSORS
from nautilus.scalar.analysis.axes import Unified, unify
from nautilus.scalar.analysis.chunks import chunks_of
from nautilus.scalar.analysis.contractions.scales import matrix_part
from nautilus.scalar.analysis.definitions import Def, read_defs, size
from nautilus.scalar.analysis.derived_names import GRID, LOOP, phases
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.split_k_update import SplitKUpdate
from nautilus.targets.limits import MMA_ROWS, Limits, limits
from nautilus.targets.records import DEFAULT_TARGET

LONG = 1 << 20  # largest number of elements of a loop whose length is known only at launch
OUTSTANDING = 8 << 20  # bytes of loads at any time that saturate the memory
HALF = 0.9  # share of the bandwidth that half of these bytes reach
NEAR = 0.9, 1.3  # numbers of chunks, as shares of the least number that saturates the memory, that are tried
EVEN = 0.95  # share of the steps of a multiprocessor: two numbers of chunks within it count as equally good
BUSY = 4.0  # instructions for each byte from which on they take as long as half of the bytes, or longer
WARPS = 16  # of a multiprocessor, which such a kernel needs at least
STEPS = 4  # least loop steps of a chunk that prefetches
ROWS = 64  # of one tile, which holds the rows of all members of a group, so that they read their operand once
AGAIN = 1 << 26  # least elements that all members read for such a tile, which needs more chunks than a tile for each
SHORT = 2048  # elements of a loop over terms that all results share, which few blocks end in about 10 us
CHUNK = 1024  # least number of elements of a batch-invariant chunk
MOST = 16  # most batch-invariant chunks
_GAPS = {"le": 0, "lt": 1, "ge": 0, "gt": 1}  # the least difference of the greater side and the other one
COLUMNS = 64, 256  # fewest and most columns of a product that a tile has because reductions read them as a group


def plan_packs(program: Program, schedule: Schedule | None = None) -> Schedule:
    """``schedule`` with the packs of the default rule, if it leaves the choice to the rule, and the rule finds any."""
    schedule = schedule or Schedule()
    if schedule.packs is not None or schedule.kernels:
        return schedule
    found = default_packs(program)
    return replace(schedule, packs=found) if found else schedule


def plan_splits(
    program: Program, schedule: Schedule | None = None, arch: str = DEFAULT_TARGET, fallbacks: Fallbacks = NO_FALLBACKS
) -> Schedule:
    """``schedule`` with the splits of the default rule, if it leaves the choice to the rule, and the rule finds any."""
    schedule = schedule or Schedule()
    if schedule.splits is not None or schedule.kernels:
        return schedule
    found = default_splits(program, arch, fallbacks, schedule.batch_invariant)
    return replace(schedule, splits=found) if found else schedule


# -- packs ------------------------------------------------------------------------------------


def default_packs(program: Program) -> tuple[PackPlan, ...]:
    """One pack for each axis along which products share operands; all products along the axis must have its groups.

    A product has it where the members of a group fill the rows of its MMAs better than its own rows do, as those of one
    new token, or where one tile has the rows of all members, as those of a few draft tokens, and they read much.  Where
    some of them have rows enough without a pack, as the keys that all requests share have, those decide that read more
    elements.
    """
    defs = read_defs(program)
    unified = unify(tuple(defs.values()), tuple(p.name for p in program.params))
    found: dict[str, PackPlan] = {}
    gain: dict[str, int] = {}  # elements that products with a pack read in fewer tiles, less those of the others
    refused: set[str] = set()
    for d in unified.defs:
        if (product := _product(d)) is None:
            continue
        dot, factors = product
        for k, a in enumerate(d.par):
            group = shared_group(*factors, a.name)
            extent = size(a)
            if a.name in (*dot.rows, *dot.columns):
                continue
            if group is None or extent is None or extent % group:
                refused.add(a.name)
                continue
            pack = found.setdefault(a.name, PackPlan(d.name, defs[d.name].par[k].name, group))
            if pack.size != group:
                refused.add(a.name)
            sides = (dot.rows, dot.columns)
            rows = min(prod(size(x) or MMA_ROWS for x in d.par if x.name in side) for side in sides)
            read = prod(size(x) or MMA_ROWS for x in d.axes) // rows
            most = min(prod(at_most(x.extent) for x in d.par if x.name in side) for side in sides)
            again = prod(nominal(x.extent) for x in d.axes) // rows >= AGAIN and most * group <= ROWS
            fewer = again or rows * blocks(group, MMA_ROWS) < group * blocks(rows, MMA_ROWS)
            gain[a.name] = gain.get(a.name, 0) + (read if fewer else -read)
    packs = tuple(p for x, p in found.items() if x not in refused and gain[x] > 0)
    return packs or _statistics(unified, defs)


def _statistics(unified: Unified, defs: dict[str, Def]) -> tuple[PackPlan, ...]:
    """Packs of the axes along which elementwise definitions read the results of reductions in groups.

    A group and its result then have an axis in common, so that they may share a kernel; with a product, if a tile of it
    may have a group as its columns.
    """
    found: dict[str, PackPlan] = {}
    sizes: dict[str, set[int]] = {}
    multiplied = {a.name for d in unified.defs if dot_of(d) is not None for a in d.axes}
    for d in unified.defs:
        for ld in d.reads():
            beside = ld.index == tuple(Var(a.name) for a in d.par) and _ends_reduction(ld.buffer, defs, products=True)
            reduced = not d.is_reduction and not beside and _ends_reduction(ld.buffer, defs)
            for k, a in enumerate(d.par if reduced else ()):
                if a.name in multiplied and not _of_product(ld.buffer, defs):
                    continue  # such as the largest scale of a group, which is known before the product
                groups = frozenset[int]().union(*(quotients(e, a.name) for e in ld.index))
                sizes.setdefault(a.name, set()).update(groups)
                if groups and max(groups) > 1 and (size(a) or 1) % max(groups) == 0:
                    found.setdefault(a.name, PackPlan(d.name, defs[d.name].par[k].name, max(groups)))
    legal = {x for x, p in found.items() if x not in multiplied or COLUMNS[0] <= p.size <= COLUMNS[1]}
    return tuple(p for x, p in found.items() if sizes[x] == {p.size} and x in legal)


def _ends_reduction(name: str, defs: dict[str, Def], products: bool = False) -> bool:
    """Whether ``name`` is a reduction, or made from the element of one at its own position.

    ``products``: reductions that are matrix products.
    """
    d = defs.get(name)
    if d is None or d.is_reduction:
        return d is not None and (not products or dot_of(d) is not None)
    own = tuple(Var(a.name) for a in d.par)
    beside = [defs[ld.buffer] for ld in d.reads() if ld.index == own and ld.buffer in defs]
    return any(x.is_reduction and (not products or dot_of(x) is not None) for x in beside)


def _of_product(name: str, defs: dict[str, Def]) -> bool:
    """Whether ``name`` is computed from a matrix product, through any number of definitions."""
    todo, seen = [name], set[str]()
    while todo:
        d = defs.get(todo.pop())
        if d is None or d.name in seen:
            continue
        if dot_of(d) is not None:
            return True
        seen.add(d.name)
        todo += [ld.buffer for ld in d.reads()]
    return False


def _product(d: Def) -> tuple[Dot, tuple[Expr, Expr]] | None:
    """``d`` as a matrix product with its factors.

    Its rows may be the members of groups that one factor shares, and then it has no other rows.
    """
    value = matrix_part(d)
    if d.op != "sum" or not isinstance(value, Op) or value.op != "mul":
        return None
    a, b = value.args
    if (dot := dot_of(d)) is not None:
        return dot, (a, b)
    left, right = free_vars(a), free_vars(b)
    inner = tuple(x.name for x in d.red if x.name in left & right)
    free = tuple(x.name for x in d.par if x.name in left ^ right)
    grouped = [x for x in d.par if shared_group(a, b, x.name)]
    return (Dot((), free, inner), (a, b)) if free and grouped and inner and len(inner) == len(d.red) else None


# -- splits -----------------------------------------------------------------------------------


def default_splits(
    program: Program, arch: str = DEFAULT_TARGET, fallbacks: Fallbacks = NO_FALLBACKS, invariant: bool = False
) -> tuple[SplitPlan, ...]:
    """The splits of every kernel whose default plan has too few outstanding bytes.

    ``invariant``: numbers of chunks do not depend on sizes that are known only at launch (``--batch-invariant``).
    """
    defs = read_defs(program)
    if not any(_may_split(d) for d in defs.values()):
        return ()
    out: list[SplitPlan] = []
    for plan in default_schedule(program, arch, fallbacks).kernels:
        unified = unify([defs[o] for o in plan.ops], tuple(p.name for p in program.params))
        loop = _loop(plan, unified, stored(program, plan.ops))
        if loop is None:
            continue
        if invariant and not isinstance(unified.extents[loop], int):
            continue  # the chunks would depend on the sizes of the launch
        tile, extent = plan.axis(loop).tile, _length(unified.extents[loop])
        stream = _stream(plan, unified, loop, limits(arch))
        ends = _reductions(unified, loop)
        if _whole(plan.name, ends, fallbacks):
            continue
        if not any(_failed(plan.name, d, fallbacks) for d in ends):
            row = stream.step // tile
            grid = 1 if invariant else stream.blocks
            found = streaming.cut(plan, unified, loop, grid, row, stream.partial, limits(arch))
            if found is not None:
                named = [(d.name, _own_name(d, defs, loop)) for d in ends]
                out += twice(program, named, replace(found, groups=_fixed(extent)) if invariant else found)
                continue
        count = _fixed(extent) if invariant else _count(stream)
        count = min(count, blocks(extent, tile))
        if count > 1:
            out += [SplitPlan(d.name, _own_name(d, defs, loop), count, tile) for d in _reductions(unified, loop)]
    return tuple(out)


def _failed(kernel: str, d: Def, fallbacks: Fallbacks) -> bool:
    """Whether the interleaved split of ``d``, which ``kernel`` ends with, failed later.

    A combining kernel first loses its cluster.
    """
    part = f"{d.name}_part"
    combining = (name for name, step in fallbacks.taken if step >= WITHOUT)
    return fallbacks.steps(part) > 0 or any(name == kernel or name.startswith(part) for name in combining)


def _whole(kernel: str, ends: list[Def], fallbacks: Fallbacks) -> bool:
    """Whether ``kernel``, which the reductions ``ends`` end, failed with all of its splits."""
    names = [name for name, step in fallbacks.taken if step >= EPILOGUES]
    return any(name == kernel or name.startswith(f"{d.name}_part") for name in names for d in ends)


def twice(program: Program, ends: list[tuple[str, str]], found: streaming.Cut) -> list[SplitPlan]:
    """Reductions ``ends``, each with its axis, in interleaved chunks; with several groups also their combinations."""
    chunks = found.groups * found.warps
    first = [SplitPlan(name, axis, chunks, found.step, found.warps) for name, axis in ends]
    if found.groups == 1:
        return first
    cut = read_defs(SplitKUpdate(Schedule(splits=tuple(first))).apply(program))
    made = {d.name for d in cut.values() if (c := chunks_of(d)) is not None and c.tile}
    rest = [d for d in cut.values() if d.is_reduction and d.name not in made]
    combine = [d for d in rest if any(ld.buffer in made for ld in d.reads())]
    return [*first, *(SplitPlan(d.name, d.red[0].name, found.groups, found.warps) for d in combine)]


def _length(extent: Extent) -> int:
    """Elements of a loop.  One whose length is known only at launch counts as long as it may be, but at most
    :data:`LONG`: a split of a short loop costs one launch, and a long loop in few blocks may take any time."""
    return extent if isinstance(extent, int) else min(at_most(extent), LONG)


def _may_split(d: Def) -> bool:
    """Whether ``d`` reduces enough elements for a split."""
    return any(_length(a.extent) >= (CHUNK if dot_of(d) is None else streaming.SHORTEST) for a in d.red)


def _reductions(unified: Unified, loop: str) -> list[Def]:
    return [d for d in unified.defs if any(a.name == loop for a in d.red)]


def window(d: Def, axis: str) -> float:
    """The most terms of one result of ``d`` along ``axis``, where two conditions leave a fixed number of them."""
    low, high = list[Linear](), list[Linear]()  # forms that are at least 0, with the axis and with its negative
    for c in conjuncts(d.guard):
        if isinstance(c, Op) and c.op in _GAPS and c.args[0].dtype.is_int:
            a, b = map(linear, reversed(c.args) if c.op in ("ge", "gt") else c.args)
            form = (b - a).shift(-_GAPS[c.op])
            {1: low, -1: high}.get(form.terms.get(Var(axis), 0), []).append(form)
    sums = (a + b for a in low for b in high)
    return min((s.const + 1 for s in sums if not s.terms), default=inf)


def _own_name(d: Def, defs: dict[str, Def], loop: str) -> str:
    return defs[d.name].red[[a.name for a in d.red].index(loop)].name


def _loop(plan: KernelPlan, unified: Unified, kept: frozenset[str]) -> str | None:
    """The axis to split (module docstring); None where the rule does not apply to the kernel."""
    loops = [a.name for a in plan.axes if a.role == LOOP]
    if len(loops) != 1 or plan.mapping.engine != "warp":
        return None
    (loop,) = loops
    if (found := shared_segments(unified.defs)) is not None and found.axis == loop:
        return None  # a block has the terms of one row, and other blocks have the others
    grid = {a.name: _length(unified.extents[a.name]) for a in plan.axes if a.role == GRID}
    if pairs.shared_terms(unified.defs, grid, numbers=_length(unified.extents[loop]) <= SHORT) is not None:
        return None  # the results fill the GPU, and memory has few terms
    if windows.launched_axis(unified.defs, [loop]) is not None:
        return None  # the terms are as few as the width of the window
    if all(window(d, loop) <= CHUNK for d in _reductions(unified, loop)):
        return None  # chunks have their places along the loop, and few of them would have terms
    ends = {d.name for d in _reductions(unified, loop)}
    ends_of = [p for p in phases(plan) if ends & set(p)]
    along = [d.name for d in unified.defs if any(a.name == loop for a in d.par)]
    spread = {a.name for a in plan.axes if a.role == GRID and a.tile > 1}
    product = any(
        (dot := dot_of(d)) is not None and spread & set(dot.rows) and spread & set(dot.columns) for d in unified.defs
    )
    whole = len({n for p in ends_of for n in p if n in ends}) == sum(n in ends for p in phases(plan) for n in p)
    if len(ends_of) != 1 or not whole or product or any(n in kept for n in along):
        return None
    return loop


@dataclass(frozen=True, slots=True)
class _Stream:
    """The loads of a kernel along its loop: bytes of a block's step, of the kernel, of partial results."""

    blocks: int
    step: int  # bytes
    slots: int  # blocks that run concurrently
    ahead: int  # outstanding bytes of a block
    steps: int
    total: int
    partial: int
    multiprocessors: int  # 0: of a product, whose blocks are few
    enough: int  # blocks whose instructions keep the multiprocessors busy; 0: they wait for memory


def _stream(plan: KernelPlan, unified: Unified, loop: str, target: Limits) -> _Stream:
    def extent(axis: str) -> int:
        return _length(unified.extents[axis]) if axis == loop else nominal(unified.extents[axis])

    tiles = {a.name: min(a.tile, extent(a.name)) for a in plan.axes}
    names = {d.name for d in unified.defs}
    reads = dict.fromkeys(ld for d in unified.defs for ld in d.reads() if ld.buffer not in names)
    step = sum(_bytes(ld, tiles) for ld in reads if loop in free_vars(ld))
    held = sum(_bytes(ld, tiles) for ld in reads if loop not in free_vars(ld))
    count = prod(blocks(extent(a.name), a.tile) for a in plan.axes if a.role == GRID)
    steps = blocks(extent(loop), plan.axis(loop).tile)
    ahead = step * max(1, plan.mapping.stages)
    assert isinstance(plan.mapping, WarpPlan)
    warps = prod(plan.mapping.warps)
    dots = any(dot_of(d) is not None for d in unified.defs)
    room = target.smem_sm // (ahead + held + 1024) if dots else target.threads_sm // (32 * warps) // 2
    many = target.multiprocessors or MULTIPROCESSORS
    slots = max(1, min(room, target.threads_sm // (32 * warps), 32)) * many
    results = sum(4 * prod(extent(a.name) for a in d.par) for d in _reductions(unified, loop))
    steps = steps if not dots else max(1, steps // STEPS)
    total = count * blocks(extent(loop), plan.axis(loop).tile) * step
    size = prod(tiles[a.name] for a in plan.axes)
    busy = not dots and sum(map(_instructions, unified.defs)) * size > BUSY * step
    busy = busy or taps.is_displaced(unified.defs)
    enough = many * blocks(WARPS, warps) if busy else 0
    return _Stream(count, step, slots, ahead, steps, total, results, 0 if dots else many, enough)


def _instructions(d: Def) -> float:
    """Instructions for an element of ``d``."""
    nodes = {n for n in walk(d.value) if isinstance(n, Op) and n.dtype.compute is DType.F32}
    return sum(FUNCTIONS[n.op].instructions for n in nodes)


def _bytes(ld: Load, tiles: dict[str, int]) -> int:
    return ld.dtype.bytes * count_elements(ld, tiles)


def _count(s: _Stream) -> int:
    """The smallest number of chunks that saturates the memory; 1 where a split gains no time."""
    if not s.ahead:
        return 1  # a loop that reads nothing waits for no memory
    wanted = max(blocks(OUTSTANDING, max(1, s.blocks * s.ahead)), blocks(s.enough, s.blocks))
    count = max(1, min(wanted, s.slots // s.blocks, s.steps))
    return _even(s, count) if count > 1 and _seconds(s, count) < _seconds(s, 1) else 1


def _even(s: _Stream, count: int) -> int:
    """``count``, or a number near it with which the multiprocessor that has most blocks does fewer steps."""

    def most(n: int) -> int:
        return blocks(n * s.blocks, s.multiprocessors) * blocks(s.steps, n)

    if s.multiprocessors == 0 or count * s.blocks <= s.multiprocessors:
        return count
    last = min(int(count * NEAR[1]), s.slots // s.blocks, s.steps)
    near = {blocks(s.steps, blocks(s.steps, n)) for n in range(max(2, int(count * NEAR[0])), last + 1)}
    least = min(map(most, near), default=most(count))
    if least > EVEN * most(count):
        return count
    return min((n for n in near if EVEN * most(n) <= least), key=lambda n: abs(n - count))


def _seconds(s: _Stream, count: int) -> float:
    """Time of the kernel in ``count`` chunks, and of the kernel that combines them."""
    full = min(1.0, count * s.blocks * s.ahead / OUTSTANDING)
    share = full * 2 * HALF if full < 0.5 else HALF + (2 * full - 1) * (1 - HALF)
    combine = COMBINE + 2 * count * s.partial / BANDWIDTH if count > 1 else 0.0
    return s.total / (BANDWIDTH * share) + combine


def _fixed(extent: int) -> int:
    """Chunks of a loop of ``extent`` elements, independent of the grid."""
    return min(MOST, blocks(extent, CHUNK))
