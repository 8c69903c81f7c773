"""Sizes of back-to-back GEMMs with more columns than the registers of one consumer hold, or longer contractions.

The accumulators of 64 rows and 512 columns are half of the registers of a multiprocessor.  They are divided along the
columns, and the first product is contracted over up to 576 elements, which shared memory holds for one tile of rows:

* where there are more than :data:`FEW` rows, two warpgroups with 64 rows divide the columns.  Each computes the first
  product for itself, which needs no exchange between them;
* otherwise eight warps with 16 or 32 rows divide the columns of both products, and exchange the results of the first
  one through shared memory.

The step of the loop is what shared memory holds in two stages.  A tensor that both products read
(``share-operands``) is there once.  What both products read may be computed from tensors, such as a dequantised tile:
warpgroups then have one stage of it beside two of what it is computed from.  The rules follow from registers and shared
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod

from nautilus.core.expr.nodes import Load, Var, free_vars
from nautilus.core.index.groups import count_elements
from nautilus.core.records import dataclass
from nautilus.core.schedule import KernelPlan, MappingPlan, WarpgroupPlan, WarpPlan
from nautilus.planner.products.dots import Dot, computed_operands
from nautilus.planner.warpgroup import CHUNK
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import TILE
from nautilus.targets.limits import WGMMA_ROWS, Limits

HELD = 256  # elements of an axis that registers hold without division
WIDEST = 1024  # most columns of accumulators, and elements of that contraction, of one tile of :data:`SINGLE` rows
SINGLE = 16
COLUMNS, DEEPEST = 512, 576  # most columns of accumulators, and most elements of the contraction of the first product
WARPGROUPS = 2  # warpgroups of a block
FEW = 32  # rows that single warps have
WARPS, NARROWEST = 8, 8  # warps, and columns of a matrix instruction
STEPS = (64, 32, 16)  # steps of the loop: registers hold 64 results of the first product beside the accumulators
SHORTEST = 32  # the shortest of the steps of warpgroups
STAGES = 2
EXCHANGE = 8 << 10  # bytes of shared memory for what warps exchange, and for barriers


def may_hold(axis: str, extent: Callable[[str], int], loop: str, dots: Iterable[Dot]) -> bool:
    """Whether a tile may have all elements of ``axis``, which are more than :data:`HELD`.

    It is contracted in a product along ``loop``, or has the columns of a later one that is contracted over ``loop``.
    Several products along ``loop``, which are added, hold their contracted elements side by side.
    ``extent``: that of an axis; ``dots``: all products, operands first.
    """
    places = list(enumerate(dots))
    before = [n for n, d in places if loop in (*d.rows, *d.columns)]
    after = [n for n, d in places if d.inner == (loop,)]
    if not (before and after) or extent(axis) <= HELD or max(before) > min(after):
        return False
    first, second = ([places[n][1] for n in found] for found in (before, after))
    single = all(prod(map(extent, d.columns if loop in d.rows else d.rows)) <= SINGLE for d in first)
    if any(axis in d.inner for d in first):
        deepest = WIDEST if single else DEEPEST
        return all(len(d.inner) == 1 for d in first) and sum(extent(x) for d in first for x in d.inner) <= deepest
    return extent(axis) <= (WIDEST if single else COLUMNS) and any(axis in (*d.rows, *d.columns) for d in second)


@dataclass(frozen=True, slots=True)
class Chain:
    """The two products: rows, elements of the first contraction and columns of the second one, of 16 bits.

    ``streamed``: bytes that a block loads for each element of the loop; ``computed``: those of operands computed from
    them.
    """

    rows: int
    deep: int
    width: int
    streamed: int
    computed: int = 0

    @property
    def has_many_columns(self) -> bool:
        """Whether these rules are for it."""
        return max(self.deep, self.width) > HELD


def chain_of(plan: KernelPlan, defs: Iterable[Def], rows: int, loop: str, dots: Mapping[str, Dot]) -> Chain:
    """The products of ``plan``, whose axes other than that of ``rows`` rows and ``loop`` are tiles."""
    held = {a.name: a.tile for a in plan.axes if a.role == TILE}
    deep = sum(prod(held[x] for x in d.inner if x in held) for d in dots.values() if d.inner != (loop,))
    second = [d for d in dots.values() if d.inner == (loop,)]
    width = sum(prod(held[x] for x in (*d.rows, *d.columns) if x in held) for d in second)
    every = list(defs)
    return Chain(rows, deep, width, _streamed(every, loop, held), _computed(every, loop, held))


def _streamed(defs: Iterable[Def], loop: str, held: Mapping[str, int]) -> int:
    """Bytes of the tensors that are loaded for each element of ``loop``; of what is read twice, the longer part."""
    found: dict[tuple[object, ...], int] = {}
    every = list(defs)
    names = {d.name for d in every}
    for ld in (ld for d in every for ld in d.reads() if ld.buffer not in names and loop in free_vars(ld)):
        key = (ld.buffer, *(None if isinstance(e, Var) and e.name in held else e for e in ld.index))
        found[key] = max(found.get(key, 0), _row(ld, held))
    return sum(found.values())


def _computed(defs: Sequence[Def], loop: str, held: Mapping[str, int]) -> int:
    """Bytes of the operands that are computed from tensors for each element of ``loop``.

    Operands that are computed from the same tensors count once, as the longest of them.
    """
    found: dict[frozenset[str], int] = {}
    for operand, read in computed_operands(defs, loop):
        names = frozenset(ld.buffer for ld in read)
        size = operand.dtype.bytes * prod(held.get(x, 1) for x in free_vars(operand))
        found[names] = max(found.get(names, 0), size)
    return sum(found.values())


def _row(ld: Load, held: Mapping[str, int]) -> int:
    return ld.dtype.bytes * count_elements(ld, held)


def sizes(
    chain: Chain, extent: int, limits: Limits, warpgroup: bool, light: bool = False
) -> tuple[int, int, MappingPlan] | None:
    """Rows of a tile, the step of a loop of ``extent`` elements, and the mapping; None where nothing fits.

    ``light``: warpgroups take the shortest step, because a mask needs registers, and as many more stages.
    """
    if warpgroup and chain.rows > FEW:
        both = chain.width <= HELD and chain.rows > WGMMA_ROWS  # each warpgroup has rows of its own, and all columns
        for rows in (WARPGROUPS * WGMMA_ROWS, WGMMA_ROWS) if both else (WGMMA_ROWS,):
            room = limits.smem_block - rows * chain.deep * 2 - EXCHANGE // 2
            step = _step(chain, extent, room, STAGES, chain.computed)
            if step is not None and step >= SHORTEST and chain.width % (WARPGROUPS * NARROWEST) == 0:
                short = SHORTEST if light else step
                mapping = WarpgroupPlan(
                    warpgroups=WARPGROUPS, stages=STAGES * step // short, epilogue="direct", producer_registers=40,
                    consumer_registers=232, pipeline_mma=False, store_columns=CHUNK,
                )  # fmt: skip
                return rows, short, mapping
        return None
    rows = FEW if chain.rows > FEW // 2 else FEW // 2
    for stages in (STAGES, 1):
        step = _step(chain, extent, limits.smem_block - rows * chain.deep * 2 - EXCHANGE, stages)
        if step is not None and (step >= SHORTEST or stages == 1):
            return rows, step, WarpPlan(warps=(1, max(1, min(WARPS, step // NARROWEST))), stages=stages)
    return None


def _step(chain: Chain, extent: int, room: int, stages: int, computed: int = 0) -> int | None:
    """The longest step whose stages have ``room``, with ``computed`` bytes for each of its elements."""
    found = (s for s in STEPS if s <= max(extent, STEPS[-1]) and s * (stages * chain.streamed + computed) <= room)
    return next(found, None)
