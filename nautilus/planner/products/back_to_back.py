"""Sizes of a back-to-back GEMM on warpgroup MMAs that need not be powers of two: tiles of whole axes, and loop steps.

An axis that a block holds whole (the contraction of the first product, the columns of the second one) is a few slabs
of shared memory.  A slab has rows of 128, 64 or 32 bytes, and its swizzle fits them.  Narrow slabs leave fewer columns
unused and make copies and MMAs slower; :data:`SLABS` has both, measured on an H200 for 48 to 224 columns.

The step of the loop is as long as registers and shared memory allow, because each step has exponentials to wait for
and results to correct.  With two warpgroups, a shorter step whose left operand stays in registers is preferred to a
longer one without: the best one took 3% less to 2% more time (19 shapes of f16 on an H200).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from nautilus.core.expr.nodes import Const, Expr, Load, Op, children, free_vars
from nautilus.core.index.simplify import bounds, linear_in
from nautilus.core.index.sizes import nominal
from nautilus.core.schedule import KernelPlan
from nautilus.planner.products.dots import Dot
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import GRID
from nautilus.targets.limits import MMA_DEPTH

SLABS = ((64, 1.0), (32, 1.02), (16, 1.15))  # columns of 16 bits, and relative time of a column
MOST_OF_BYTES = 0.9  # share of a thread's registers where operands have 8 bits, whose steps are few
L2_BYTES = 16 << 20  # of operands that resident blocks may share
LONGEST, SHORTEST = 128, 64  # positions of a step


def whole_tile(extent: int, unit: int = 1) -> int:
    """The tile of an axis of ``extent`` elements that a block holds whole, a multiple of ``unit``."""
    sizes = [(-(-extent // s) * s, cost) for s, cost in SLABS if s % unit == 0]
    return min(sizes, key=lambda x: x[0] * x[1])[0]


def whole_tiles(extents: Mapping[str, int], dots: Mapping[str, Dot], operand: int) -> dict[str, int]:
    """The tiles of whole axes: contractions have whole MMAs of operands with ``operand`` bytes an element."""
    summed = {x for dot in dots.values() for x in dot.inner}
    return {x: whole_tile(n, 2 * MMA_DEPTH // operand if x in summed else 1) for x, n in extents.items()}


def steps(extent: int, plain: bool) -> list[int]:
    """The steps of a loop of ``extent`` positions, those first that leave few positions unused, then long ones.

    ``plain``: the computation has the index as it is (:func:`is_plain`); else steps are powers of two.
    """
    every = range(LONGEST, SHORTEST - 1, -MMA_DEPTH) if plain else (LONGEST, SHORTEST)
    whole = min((s for s in every if s >= extent), default=LONGEST)  # no step is longer than that of one iteration
    found = [s for s in every if s <= whole]
    return sorted(found, key=lambda s: (max(0, -(-extent // s) * s - extent) * MMA_DEPTH >= extent, -s))


def is_plain(defs: Iterable[Def], loop: str, unit: int = 1) -> bool:
    """Whether no index or condition divides ``loop``: with pages and blocks of positions, steps divide them.

    ``unit``: a divisor of all steps.  Parts of it, as of interleaved rows, are alike in each of them.
    """

    def divides(e: Expr) -> bool:
        if isinstance(e, Op) and e.op in ("floordiv", "mod") and loop in free_vars(e):
            by = e.args[1]
            return not (isinstance(by, Const) and unit % int(by.value) == 0) or divides(e.args[0])
        return any(map(divides, children(e)))

    found = [e for d in defs for e in (d.value, d.guard) if e is not None]
    return not any(map(divides, found))


def live_registers(width: int, deep: int, step: int, registers: bool) -> int:
    """Registers of a thread for 64 rows: both accumulators, the operand between them, and the left operand.

    ``width``: columns of the second product.  ``deep``: contracted elements of the first one.  ``step``: elements of a
    step of the loop.  ``registers``: the left operand is in registers.
    """
    return width // 2 + step // 2 + step // 4 + (deep // 4 if registers else 0)


def live_in_bytes(width: int, step: int, held: int = 0) -> int:
    """:func:`live_registers` with operands of 8 bits: both accumulators, the sum of a step, and the operand between.

    ``held``: contracted elements of a row of the left operand, where that is in registers.
    """
    return width // 2 + width // 2 + step // 2 + step // 8 + held // 8


def fits_bytes(width: int, step: int, held: int, registers: int) -> bool:
    """Whether ``step`` has whole MMAs of 8-bit operands, and what is live then fits ``registers`` of a thread."""
    return step % (2 * MMA_DEPTH) == 0 and live_in_bytes(width, step, held) <= MOST_OF_BYTES * registers


def computes_left(defs: Iterable[Def], row: str, loop: str, dots: Mapping[str, Dot]) -> bool:
    """Whether ``defs`` compute the left operand of a product whose columns are the positions of ``loop``.

    It is then in registers during the whole loop.
    """
    every = list(defs)
    names = {d.name for d in every}
    first = [d for d in every if d.name in dots and any(a.name == loop for a in d.par)]
    return any(ld.buffer in names and row in free_vars(ld) for d in first for ld in d.reads())


def shape_of(ld: Load, unified: Unified) -> list[int]:
    """The least shape of the tensor of ``ld``."""
    ranges = {a: (0, nominal(unified.extents[a]) - 1) for a in unified.extents}
    return [1 + (bounds(e, ranges)[1] or 0) for e in ld.index]


def streamed_bytes(unified: Unified, loop: str) -> int:
    """Bytes of the tensors that the loop reads, each element once."""
    found: dict[str, int] = {}
    names = {d.name for d in unified.defs}
    for ld in (ld for d in unified.defs for ld in d.reads()):
        if ld.buffer not in names and any(loop in free_vars(e) for e in ld.index):
            found[ld.buffer] = ld.dtype.bytes * prod(shape_of(ld, unified))
    return sum(found.values())


def pair_loads(unified: Unified, row: str, loop: str, dots: Mapping[str, Dot]) -> list[Load]:
    """The loads of elementwise work that depend on the position of ``row``, and on each of ``loop``."""
    names = {d.name for d in unified.defs}
    reads = {ld for d in unified.defs if d.name not in dots for ld in d.reads() if ld.buffer not in names}
    return [ld for ld in reads if row in free_vars(ld) and any(_moves(e, loop) for e in ld.index)]


def _moves(e: Expr, axis: str) -> bool:
    form = linear_in(e, axis)
    return form is not None and form[0] != 0


def tile_loads(unified: Unified, row: str, loop: str, dots: Mapping[str, Dot]) -> list[Load]:
    """Those of them that count both positions, each in an index of its own."""
    return [ld for ld in pair_loads(unified, row, loop, dots) if all(_counts(ld, x) for x in (row, loop))]


def _counts(ld: Load, axis: str) -> bool:
    """Whether ``ld`` reads neighbours, or elements of neighbouring rows, at neighbouring positions of ``axis``."""
    forms = [linear_in(e, axis) for e in ld.index if axis in free_vars(e)]
    return len(forms) == 1 and forms[0] is not None and forms[0][0] == 1


def inner_axes(
    plan: KernelPlan, unified: Unified, row: str, loop: str, dots: Mapping[str, Dot]
) -> tuple[str, ...]:  # fmt: skip
    """Axes of the grid that the tile of elementwise work lacks, such as the batch of a bias of heads.

    Blocks that are neighbours along them find the tile in the L2 cache, and read their operands again for the next
    rows.  So there are none where the tensor of the tile is small, or where operands of more than :data:`L2_BYTES` are
    read between two rows; nor for uneven tiles, whose order is that of their lengths.
    """
    tiles = tile_loads(unified, row, loop, dots)
    if len(tiles) != 1 or plan.mapping.raster_order != "natural":
        return ()
    (tile,) = tiles
    own, bias = free_vars(tile), tile.dtype.bytes * prod(shape_of(tile, unified))
    grid = {a.name: nominal(unified.extents[a.name]) for a in plan.axes if a.role == GRID and a.name != row}
    again = (streamed_bytes(unified, loop) - bias) // prod(n for a, n in grid.items() if a in own)
    found = tuple(a for a, n in grid.items() if a not in own and n > 1)
    return found if again <= L2_BYTES < bias else ()
