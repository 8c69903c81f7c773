"""Tiles of elementwise kernels: few blocks and little unused.

* The tile along contiguous memory is a power of two.  It divides the elements where a larger one would leave much of
  itself beyond the end (:func:`exact`): tiles of 512 along 320 elements leave 37% of all threads idle, and tiles of
  64 none.  Along 513 elements, tiles of 1024 leave half of the threads idle, and tiles of 64 one in nine.
* Blocks start one after another.  A block of :data:`~nautilus.planner.kernel.ELEMENTS` elements of 16 bits moves its
  bytes in about the time in which the next one starts.  Blocks have more elements where the starts of all would take
  more than :data:`SHARE` of the time of the memory or of the operations (:func:`elements`).
* Tiles are short along two axes where a large operand is contiguous along another axis than the result
  (:func:`read_along`), so that reads and writes are whole sectors of memory.

Measured on an H200: 52 million elements of 16 bits, repeated from a quarter as many, in 65,536 blocks take 43 us, which
is the time of their starts; their memory takes 25 us.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import floor, prod

from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, free_vars, walk
from nautilus.core.functions import FUNCTIONS
from nautilus.core.index.divisors import divisor
from nautilus.core.index.linear import divided, linear_in
from nautilus.core.index.sizes import extent_expr, nominal
from nautilus.core.records import dataclass
from nautilus.core.tiles import ceil_pow2, floor_pow2
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.targets.memory_rates import MEMORY, SECTOR, START

SHARE = 0.5  # the starts of blocks take at most this share of the time of the rest
OPERATIONS = 2.5e13  # operations a second, of all threads
FEW = 256  # elements of a block that are too few for a warp
MANY = 8192  # blocks, which every multiprocessor has dozens of; fewer have too little to hide
WASTE = 8  # at most 1 / WASTE of the tiles along an axis is unused
WASTE_BESIDE = 2  # WASTE along an axis after which another one fills the block
LINE = 128  # bytes of the shortest tile along contiguous memory
VECTOR = 4  # elements of f32 that one instruction loads
REGISTERS = 32  # elements of a short row in a thread
FEWEST = 4  # elements along which an operand is contiguous, for tiles that read along it
MOST_SHARED = 16  # positions that share an element of an operand that is contiguous along them
TURNED = 64  # bytes of a line of results whose operand is contiguous along another axis, and elements of a short type
LONGER = 4  # such lines of results whose rows begin anywhere in a sector, relative
LARGEST = 8192  # elements of a tile of them


@dataclass(frozen=True, slots=True)
class Along:
    """An axis along which an operand is contiguous; ``shared``: positions that share an element (of a byte, say)."""

    axis: str
    shared: int


def exact(extent: int, most: int, least: int) -> int:
    """The tile along ``extent`` elements: ``most``, or less where tiles of that size would leave much of it unused.

    The smaller tile divides the elements, so that it has no mask, or leaves little unused.  It has ``least`` elements
    at least.
    """
    tile, least = floor_pow2(most), max(1, least)
    whole = extent & -extent
    if (-extent % tile) * WASTE > extent and least <= whole < tile:
        return whole
    return fitting(extent, tile, least, WASTE) or tile


def fitting(extent: int, most: int, least: int, waste: int) -> int:
    """The largest power of two up to ``most`` that leaves at most one part in ``waste`` unused; 0: below ``least``."""
    tile = floor_pow2(most)
    smaller = (tile >> k for k in range(tile.bit_length()))
    return next((n for n in smaller if n >= least and (-extent % n) * waste <= extent), 0)


def short(extent: int) -> int:
    """The tile along contiguous memory of a short row: a power of two, or all elements in vectors of 4.

    A power of two would leave more than one part in :data:`WASTE` of it unused, and a thread has :data:`REGISTERS`
    elements of the row at most: the lanes of a row are a power of two that divides its vectors.
    """
    tile = ceil_pow2(extent)
    vectors = extent // VECTOR
    lanes = vectors & -vectors
    whole = extent % VECTOR == 0 and extent <= REGISTERS * min(32, lanes)
    return extent if whole and (tile - extent) * WASTE > tile else tile


def elements(defs: Sequence[Def], extents: Mapping[str, int], few: int, most: int) -> int:
    """The elements of a block, from ``few`` to ``most``.

    ``extents``: those of the axes of the results.
    """
    names = {d.name for d in defs}
    moved = {ld.buffer: ld.dtype.bytes * _points(free_vars(ld), extents) for d in defs for ld in d.reads()}
    moved |= {d.name: d.buffer.dtype.bytes * _points((a.name for a in d.par), extents) for d in defs}
    stored = {d.name for d in defs if not any(ld.buffer == d.name for r in defs for ld in r.reads())}
    results = prod(extents.values())
    operations = results * sum(isinstance(n, Op | Load) for d in defs for n in walk(d.value))
    memory = sum(n for x, n in moved.items() if x not in names or x in stored) / MEMORY
    rest = max(memory, operations / OPERATIONS)
    while few < most and results > MANY * few and results / few * START > SHARE * rest:
        few *= 2
    return few


def slots(defs: Sequence[Def]) -> float:
    """Issue slots of one element of all of ``defs``; 0 where one of them is a reduction."""
    if any(d.is_reduction for d in defs):
        return 0.0
    found = {n for d in defs for n in walk(d.value) if isinstance(n, Op) and n.op in FUNCTIONS}
    return sum(FUNCTIONS[n.op].slots for n in found)


def _points(axes: Iterable[str], extents: Mapping[str, int]) -> int:
    return prod(extents.get(x, 1) for x in axes)


def line(dtype: DType) -> int:
    """Elements of a line of results whose operand is contiguous along another axis.

    Elements of one or two bytes go through shared memory, where whole lines are faster: 8192 x 8192 elements of 16 bits
    take 70 us on an H200 in tiles of 64 x 64, and 75 us in tiles of 32 x 32.
    """
    return TURNED if dtype.bytes < 4 else TURNED // dtype.bytes


def turned_tile(d: Def, shared: int) -> tuple[int, int]:
    """Elements of a line of results ``d`` whose operand is contiguous along another axis, and of the tile.

    A line of a row that begins anywhere in a sector has a part of a sector at each end, which takes several times as
    long to write as a whole one.  Lines of such results are longer, and those of the operand have :data:`TURNED` bytes.
    ``shared``: positions that share an element of the operand.
    """
    each, size = line(d.buffer.dtype), d.buffer.dtype.bytes
    row = d.buffer.shape[-1] if d.buffer.strides is None else 1
    long = LONGER * each
    if divisor(extent_expr(row)) * size % SECTOR == 0 or nominal(row) < long or long * each * shared > 2 * LARGEST:
        return each, each * each * shared
    return long, min(LARGEST, long * min(each, TURNED // size) * shared)


def read_along(defs: Sequence[Def], whole: Mapping[str, int]) -> Along | None:
    """The axis along which a large input is contiguous, if the result is along another one.

    ``whole``: the axes that are cut in tiles, with their extents.
    """
    last = defs[-1].par[-1].name if defs[-1].par else None
    names = {d.name for d in defs}
    for ld in (ld for d in defs for ld in d.reads() if ld.buffer not in names and ld.index):
        near = ld.index[-1]
        if last not in whole or last in free_vars(near) or last not in free_vars(ld):
            continue
        steps = {x: step for x, n in whole.items() if n >= FEWEST and (step := _step(near, x))}
        if steps:
            axis = min(steps, key=lambda x: steps[x])
            return Along(axis, max(1, floor(1 / steps[axis])))
    return None


def _step(e: Expr, axis: str) -> Fraction:
    """The mean step of ``e`` along ``axis``; 0 where it is not known, or where more than MOST_SHARED share one."""
    form = linear_in(e, axis)
    if form is not None:
        return Fraction(abs(form[0]))
    for atom, c in divided(e).terms.items():
        match atom:
            case Op(op="floordiv", args=(Var(name=name), Const(value=n))) if name == axis and n <= MOST_SHARED:
                return Fraction(abs(c), int(n))
    return Fraction(0)
