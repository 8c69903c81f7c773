"""Tiles whose rows, or columns, are positions along several axes of a result.

The rows of a product over the pixels of an image are its lines and columns, of every image of a batch.  A tile of 128
rows along one axis of 56 wastes more than half of its elements; one of 2 images, 8 lines and 8 columns wastes none.  A
TMA copy loads it as a box if each axis counts an axis of the tensor by itself.  Lines along which the result is
contiguous are whole sectors of memory, where writing parts of sectors would take longer than the tiles that this adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.expr.nodes import Load, Var, free_vars
from nautilus.core.index.linear import linear, moves_with
from nautilus.core.index.sizes import nominal
from nautilus.core.records import dataclass
from nautilus.core.schedule import KernelPlan
from nautilus.core.tiles import ceil_pow2
from nautilus.core.types import DType
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.definitions import points
from nautilus.scalar.analysis.derived_names import GRID
from nautilus.targets import window_rates
from nautilus.targets.memory_rates import MEMORY, SECTOR, partial_sectors
from nautilus.targets.part_rates import STORED

GAIN = 0.97  # share of the tiles of one axis that tiles of several axes have at most, to be worth their copies
LATE = 1.25  # share of the time at nominal extents that tiles for all extents may have
#: lines and columns of an image whose sizes are known only at launch: tiles for them waste little of larger ones
IMAGE = 14
LARGER = 1, 2, 4  # images of other sizes, relative to that one, for which the tiles serve as well
LINE = 64  # elements of a line of 128 bytes of 16-bit operands
LEAST = 16  # elements of the shortest line that has a swizzle


@dataclass(frozen=True, slots=True)
class Side:
    """The axes of the rows, or of the columns, of a product: ``main``, and the others that a tile may have.

    ``axes`` has ``main`` too; each with its extent and the least tile along it.  ``written``: the axis along which the
    result is contiguous, if it is of this side; ``sector``: elements of a sector along it; ``stores``: the time of
    writing whole sectors, as a share of that of the product.  ``slack``: the relative time up to which long tiles along
    the last axes are taken before the fewest ones.  ``late``: those of the axes whose extents are known only at launch.
    ``lines``: those that are lines and columns of images of any size, whose extents are those of small ones.
    """

    main: str
    axes: tuple[tuple[str, int, int], ...]
    written: str | None = None
    sector: int = 1
    stores: float = 0.0
    slack: float = 1.0
    late: frozenset[str] = frozenset()
    lines: frozenset[str] = frozenset()

    @property
    def extent(self) -> int:
        """Positions along all axes."""
        return prod(e for _, e, _ in self.axes)

    def tiles(self, elements: int) -> dict[str, int]:
        """The tile along each axis, ``elements`` together: few tiles, and long ones along the last axes.

        Tiles of one element along axes whose extents are known only at launch waste nothing at any extent: they are
        taken where they need at most :data:`LATE` times as long as others at nominal extents, and for images of any
        size, of which any number may be a single one.
        """
        alone = {x: elements if x == self.main else 1 for x, _, _ in self.axes}
        found = list(_splits(self.axes, elements))
        apart = [t for t in found if all(t[x] == 1 for x in self.late)] if self.late else []
        if apart and (self.lines or min(map(self.cost, apart)) <= LATE * min(map(self.cost, found))):
            found, alone = apart, (alone if self.main not in self.late else apart[0])
        most = self.slack * min(map(self.cost, found), default=0.0)
        best = min(
            (t for t in found if self.cost(t) <= most),
            key=lambda t: (*(-t[x] for x in reversed(t)), self.cost(t)),
            default=alone,
        )
        whole = all(alone[x] >= least for x, _, least in self.axes)
        return best if not whole or self.cost(best) <= GAIN * self.cost(alone) else alone

    def narrow(self, line: int) -> Side:
        """The side with lines of at most ``line`` elements."""
        return replace(self, axes=tuple((x, e, min(least, line)) for x, e, least in self.axes))

    def cost(self, tiles: dict[str, int]) -> float:
        """The time of all tiles, relative to that of one without stores."""
        line = self.sector if self.written is None else min(self.sector, tiles[self.written])
        shares = [self._count(tiles, n) / prod([n] * len(self.lines)) for n in (LARGER if self.lines else LARGER[:1])]
        return sum(shares) / len(shares) * (1 + self.stores * partial_sectors(line / self.sector))

    def count(self, tiles: dict[str, int]) -> int:
        """The number of tiles that cover all positions."""
        return self._count(tiles, 1)

    def _count(self, tiles: dict[str, int], larger: int) -> int:
        """The number of tiles of an image whose lines and columns are ``larger`` times as long."""
        return prod(-(-e * (larger if x in self.lines else 1) // tiles[x]) for x, e, _ in self.axes)


def side(plan: KernelPlan, unified: Unified, main: str, of: Sequence[tuple[str, ...]]) -> Side:
    """The side of ``main`` in products whose rows (or columns) are the axes ``of``."""
    found = _side(plan, unified, main, of)
    result = unified.defs[-1]
    place = linear(result.index[-1]) if result.index else None
    near = {a.name: abs(c) for a, c in place.terms.items() if isinstance(a, Var)} if place is not None else {}
    sizes = {x for x, _, _ in found.axes}
    step = min((c for x, c in near.items() if c), default=0)
    written = next((x for x, c in near.items() if c == step and x in sizes), None)
    terms = max((points(d.red) for d in unified.defs if d.is_reduction), default=0)
    if written is None or not terms:
        return found
    sector = max(1, SECTOR // (result.buffer.dtype.bytes * step))
    stores = result.buffer.dtype.bytes / MEMORY / (2 * terms / _rate(unified))
    return replace(found, written=written, sector=sector, stores=stores)


def _rate(unified: Unified) -> float:
    """Operations a second of the products."""
    types = {ld.dtype for d in unified.defs if d.is_reduction for ld in d.reads()}
    return STORED if DType.F32 in types else window_rates.RATE


def _side(plan: KernelPlan, unified: Unified, main: str, of: Sequence[tuple[str, ...]]) -> Side:
    grid = [a.name for a in plan.axes if a.role == GRID and all(a.name in x for x in of)]
    found = [ld for d in unified.defs if d.is_reduction for ld in d.reads()]
    sizes = {x: e for x in grid if isinstance(e := unified.extents[x], int)}
    late, lines = frozenset(grid) - sizes.keys(), frozenset[str]()
    shifted = {x for ld in found for e in ld.index if not isinstance(e, Var) for x in free_vars(e)}
    if late and shifted:  # windows of several images
        lines = late & shifted if len(late & shifted) > 1 else lines
        sizes = {x: IMAGE if x in lines else nominal(unified.extents[x]) for x in grid}
        late -= lines
    apart = main in sizes and all(_apart(ld, set(sizes)) for ld in found)
    if not apart:
        e = unified.extents[main]
        return Side(main, ((main, e if isinstance(e, int) else 1 << 20, 1),))
    last = {x for ld in found if ld.index for x in free_vars(ld.index[-1]) & sizes.keys()}
    axes = tuple((x, e, max(LEAST, min(LINE, ceil_pow2(e))) if x in last else 1) for x, e in sizes.items())
    return Side(main, axes, late=late & sizes.keys(), lines=lines)


def _apart(ld: Load, axes: set[str]) -> bool:
    """Whether each index of ``ld`` counts at most one of ``axes``, in unit steps, and no axis counts two of them."""
    seen = list[str]()
    for e in ld.index:
        here = free_vars(e) & axes
        seen += here
        if len(here) > 1 or not all(moves_with(e, x) for x in here):
            return False
    return len(set(seen)) == len(seen)


def _splits(axes: Sequence[tuple[str, int, int]], elements: int) -> Iterator[dict[str, int]]:
    """Every way to make ``elements`` the product of tiles along ``axes``, none twice as long as its axis."""
    if not axes:
        if elements == 1:
            yield {}
        return
    (name, extent, least), *rest = axes
    for n in range(1, elements + 1):
        if elements % n == 0 and n >= least and n <= ceil_pow2(extent):
            for more in _splits(rest, elements // n):
                yield {name: n, **more}
