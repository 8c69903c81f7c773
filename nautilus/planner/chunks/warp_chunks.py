"""Products of few rows with an operand of few bits: the warps of a block divide the terms.

Weights of 8 or 4 bits beside activations of 16 bits are bound by the bytes of the weights, and warps convert them.  A
warp that waits for its bytes, converts and multiplies them keeps few bytes in flight, and waits for other warps in
every step where they share a tile.  Here each warp has a pipeline of its own, and interleaved tiles of the terms:
``combine-in-block`` then adds the partial results of the warps in shared memory, without a second kernel, and
``combine-in-cluster`` those of two blocks where there are few columns.

* A block has all rows, up to :data:`ROWS`, and as many columns as leave a warp registers for the converted tile of a
  step.  Longer steps have fewer columns: blocks then read the rows more often, but there are more of them.
* A multiprocessor has one block of sixteen warps, or two blocks of eight where there are more blocks than
  multiprocessors; half as many warps with sums of more than one tile of rows.
* Of all steps and clusters, those are tried whose loads take the multiprocessor with the most work the least time, and
  one of another step.  Copies of short rows are slow (:mod:`nautilus.cost.accesses`), so that steps are long where the
  operand becomes fragments without shared memory (``lowering.operands.computed_operands``).

Measured on an H200 (us, 16 x 4096 x 4096; in chunks that a second kernel combines, with eight warps, with sixteen):
weights of 4 bits with scales of groups 13.6, 11.1, 11.6; of 4-bit floats 19.2, 16.1, 15.0; of ternary numbers 15.6,
10.6, 10.4; of 8 bits with scales of columns 14.7, 11.6, 12.7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod

from nautilus.core.expr.nodes import Expr, Load, Op, free_vars, loads
from nautilus.core.expr.products import strip_conversions
from nautilus.core.fallbacks import Fallbacks
from nautilus.core.index.groups import count_elements, quotients
from nautilus.core.index.sizes import blocks, nominal
from nautilus.core.records import dataclass
from nautilus.core.schedule import KernelPlan, WarpPlan
from nautilus.core.tiles import ceil_pow2
from nautilus.core.types import DType
from nautilus.planner.chunks.clustered_chunks import is_converted
from nautilus.planner.products.dots import dot_of
from nautilus.planner.streaming import (
    COMBINING_BYTES,
    MULTIPROCESSORS,
    Cut,
    cluster,
    combining,
    interleaved_chunks,
    reader_of,
)
from nautilus.planner.warpgroup import with_tiles
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.contractions.scales import matrix_part
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import GRID, LOOP
from nautilus.targets.limits import MMA_ROWS, Limits

ROWS = 64  # most rows of a block
ELEMENTS = 2048  # elements of the converted operand in a step of a warp: 32 registers a thread for pairs of 16 bits
LEAST_COLUMNS = 32
WARPS = 16  # of a multiprocessor; half as many where they need registers for the sums of several tiles of rows
STEPS = 128, 64, 32
CLUSTERS = 1, 2
TRIED = 2  # cuts that the cost model compares, besides one of another step
LEAST_STAGES, MOST_STAGES = 2, 6
ROW = 48  # bytes of memory that take as long as the beginning of a row of an operand
CACHED = 0.5  # the time of a byte that L2 has, relative to one of memory
RUNS = 4  # threads that have the terms of a column in a step
_HALVES = 2  # elements of a byte that two share
_HALF = 16  # bits


@dataclass(frozen=True, slots=True)
class _Shape:
    """A product ``d`` of ``rows`` with ``columns`` in ``others`` matrices, and the names of its axes.

    ``loop`` has ``length`` steps at most, of ``depth`` terms each: one, or those of a group whose sum is scaled.
    ``direct``: the rows of all operands run along the terms, so that what is loaded becomes fragments of runs.
    """

    d: Def
    row: str
    column: str
    loop: str
    rows: int
    columns: int
    length: int
    depth: int
    others: int
    direct: bool

    @property
    def tile(self) -> int:
        """Rows of a tile: whole MMAs."""
        return max(MMA_ROWS, ceil_pow2(self.rows))

    def width(self, step: int) -> int:
        """Columns of a warp with ``step`` positions of the loop in a step."""
        return max(LEAST_COLUMNS, ELEMENTS // (step * self.depth))

    def is_wide(self, step: int) -> bool:
        """Whether a step has more elements than others."""
        return step * self.depth * LEAST_COLUMNS > ELEMENTS

    def fits(self, step: int) -> bool:
        """Whether registers hold a step: a wide one has both operands as fragments of runs."""
        terms = step * self.depth
        return not self.is_wide(step) or (
            self.direct and terms * LEAST_COLUMNS <= 2 * ELEMENTS and self.tile * terms <= ELEMENTS
        )

    def warps(self, step: int) -> tuple[int, int]:
        """The warps of a block alone on a multiprocessor, and of one of two."""
        most = WARPS if self.tile <= MMA_ROWS and not self.is_wide(step) else WARPS // 2
        return most, most // 2


def cuts(plan: KernelPlan, unified: Unified, target: Limits) -> tuple[Cut, ...]:
    """The splits of the reduction of ``plan`` that are worth a trial; none where the rule does not apply.

    ``unified``: the definitions of the kernel before the split.
    """
    shape = _shape(plan, unified) if target.async_copy else None
    found = [] if shape is None else sorted(_candidates(shape, target), key=lambda x: x[0])
    best = [c for _, c in found[:TRIED]]
    return (*best, *[c for _, c in found if c.step != best[0].step and c not in best][:1])


def joined(
    plans: Mapping[str, KernelPlan], unified: Mapping[str, Unified], target: Limits, fallbacks: Fallbacks
) -> dict[str, KernelPlan]:
    """``plans`` by name, with interleaved chunks of such products as warps of a block, and their readers to match.

    ``fallbacks``: the fallbacks of kernels that failed later as clusters.
    """
    out = dict(plans)
    for name, plan in plans.items():
        mine, chunks = unified[name], interleaved_chunks(unified[name])
        shape = None if chunks is None else _shape(plan, mine)
        if shape is None or chunks is None:
            continue
        parts = {d.name: d for d in mine.defs if d.axis(chunks.by) is not None}
        reader, count = reader_of(unified, name, parts), chunks.interleave
        stages = _stages(shape, chunks.tile, count, target)
        if reader is None or stages < 2:
            continue
        rounds = blocks(shape.length, chunks.tile * nominal(mine.extents[chunks.by]))
        stages = max(2, min(rounds, stages))
        used = count * (stages * _stage(shape, chunks.tile) + _converted(shape, chunks.tile))
        two = 2 if count <= shape.warps(chunks.tile)[1] else 1
        mapping = WarpPlan(warps=(1, 1), stages=stages, epilogue="direct", combine_in_block=True, min_blocks=two)
        sizes = {shape.row: shape.tile, shape.column: shape.width(chunks.tile), chunks.axis: chunks.tile}
        out[name] = with_tiles(plan, sizes, mapping)
        out[reader] = combining(out[reader], unified[reader], parts, out[name], count, count, even=True)
        if not fallbacks.steps(reader):
            out |= cluster(out, unified, reader, used, target, even=True)
    return out


def _shape(plan: KernelPlan, unified: Unified) -> _Shape | None:
    """The only product of ``plan``, of few rows and with an operand that is converted; None for other kernels."""
    products = [(d, dot) for d in unified.defs if (dot := dot_of(d)) is not None]
    loops = [a.name for a in plan.axes if a.role == LOOP]
    if len(products) != 1 or len(loops) != 1:
        return None
    ((d, dot),), (loop,) = products, loops
    if dot.chosen or len(dot.inner) != 1 or d.axis(loop) is None:
        return None
    if any(x.guard is not None and free_vars(x.guard) & {*dot.rows, *dot.columns} for x in unified.defs):
        return None
    known = {a.name: nominal(unified.extents[a.name]) for a in plan.axes if a.role == GRID}
    sides = [[x for x in side if known.get(x, 1) > 1] or list(side) for side in (dot.rows, dot.columns)]
    if any(len(side) != 1 or side[0] not in known for side in sides):
        return None
    row, column = sorted((x for (x,) in sides), key=lambda x: known[x])
    extents = [unified.extents[x] for x in (row, column, loop, *dot.inner)]
    if not all(isinstance(n, int) for n in extents) or known[row] > ROWS or known[column] < ROWS:
        return None
    if not (is_converted(d) or _is_computed(d, column)):
        return None
    others = prod(n for x, n in known.items() if x not in (row, column))
    length, depth = map(nominal, extents[2:])
    depth = 1 if loop in dot.inner else depth
    terms = {loop, *dot.inner}
    along = [ld for ld in d.reads() if terms & free_vars(ld) and not any(map(loads, ld.index))]
    along = [ld for ld in along if any(n <= _HALVES for e in ld.index for x in terms for n in quotients(e, x))]
    small = [ld for ld in along if ld.dtype.bits <= _HALF]
    wide = [ld for ld in along if ld not in small]
    direct = all(terms & free_vars(x.index[-1]) for x in small) and all(x.dtype.is_float for x in wide)
    return _Shape(d, row, column, loop, known[row], known[column], length, depth, others, direct)


def _is_computed(d: Def, column: str) -> bool:
    """Whether the operand with the columns is computed, as from words or by a table."""
    value = matrix_part(d)
    sides = [strip_conversions(e) for e in value.args] if isinstance(value, Op) else []
    red = {a.name for a in d.red}

    def is_loaded(e: Expr) -> bool:
        return isinstance(e, Load) and not any(loads(i) and free_vars(i) & red for i in e.index)

    return any(column in free_vars(e) and not is_loaded(e) for e in sides)


def _candidates(shape: _Shape, target: Limits) -> Iterator[tuple[float, Cut]]:
    """Splits of the loop, with the bytes that the multiprocessor with the most work loads."""
    many = target.multiprocessors or MULTIPROCESSORS
    for step, groups in product(_steps(shape), CLUSTERS if target.warpgroup else CLUSTERS[:1]):
        count = shape.others * blocks(shape.columns, shape.width(step)) * groups
        warps = shape.warps(step)[count > many]
        rounds = blocks(shape.length, step * warps)
        if not shape.fits(step) or rounds < 2 * groups or rounds % groups:
            continue  # groups of unequal length would need conditions
        if _stages(shape, step, warps, target) < LEAST_STAGES:
            continue
        yield blocks(count, many) * rounds // groups * warps * _price(shape, step), Cut(groups, warps, step)


def _steps(shape: _Shape) -> list[int]:
    """The steps, which lie within the groups that share a scale where groups are as long as the shortest step.

    A scale then is one number for each column of a step, with which warps convert to fragments, or of each run.
    """
    if shape.depth > 1:
        return [1]
    groups = _groups(shape.d, shape.loop)
    within = [s for s in STEPS if all(n % (s // RUNS if shape.direct else s) == 0 for n in groups)]
    return within or [*STEPS]


def _groups(d: Def, loop: str) -> list[int]:
    """The numbers of neighbours along ``loop`` that share an element of a tensor, such as a scale."""
    return [n for ld in d.reads() for e in ld.index for n in quotients(e, loop) if n > _HALVES]


def _stage(shape: _Shape, step: int) -> int:
    """Bytes of a step of a warp without tables."""
    return sum(rows * row for _, rows, row in _loaded(shape, step))


def _price(shape: _Shape, step: int) -> float:
    """The time of loading a step of a warp, in bytes of memory.

    The operand with the columns comes from memory, which takes as long for each row as for :data:`ROW` bytes more;
    other operands come from L2.
    """
    return sum(rows * (row + ROW if shape.column in axes else row * CACHED) for axes, rows, row in _loaded(shape, step))


def _loaded(shape: _Shape, step: int) -> Iterator[tuple[frozenset[str], int, int]]:
    """The operands of a step of a warp without tables: their axes, rows, and bytes of a row."""
    terms = {shape.loop: step} | ({} if shape.depth == 1 else {a.name: shape.depth for a in shape.d.red})
    sides = {shape.row: shape.tile, shape.column: shape.width(step)}
    for ld in (ld for ld in shape.d.reads() if terms.keys() & free_vars(ld) and not any(map(loads, ld.index))):
        turned = not terms.keys() & free_vars(ld.index[-1])  # rows run along a side
        along, across = (sides, terms) if turned else (terms, sides)
        yield free_vars(ld), count_elements(ld, across), ld.dtype.bytes * count_elements(ld, along)


def _stages(shape: _Shape, step: int, warps: int, target: Limits) -> int:
    """The stages of each of ``warps`` pipelines for which shared memory suffices."""
    two = warps <= shape.warps(step)[1]
    room = ((target.smem_sm // 2 if two else target.smem_block) - COMBINING_BYTES) // warps
    stage, sums = _stage(shape, step), DType.F32.bytes * shape.tile * shape.width(step)
    stages = min(MOST_STAGES, (room - _converted(shape, step)) // stage)
    rows = step * shape.depth * shape.tile * DType.F16.bytes
    over = stages * max(rows, stage - rows)  # sums may lie over the stages of an operand
    return stages if over >= sums else min(stages, (room - sums - _converted(shape, step)) // stage)


def _converted(shape: _Shape, step: int) -> int:
    """Bytes of a converted tile, which passes through shared memory where it does not become fragments."""
    return DType.F16.bytes * shape.width(step) * step * shape.depth
