"""The positions that each tile of a kernel reads of each buffer, gathers included, for the cost model.

The values of an index tensor are not known at compile time.  Each of its elements is taken to choose another row: the
row at the element's own linear position.  So tiles that read the same elements of the index tensor read the same rows,
and a tile that reads n elements reads n rows.  A table with fewer rows than the index tensor has elements counts as
one with as many rows, except where all that the tiles read stays in the L2 cache: then it is read at most once.
Positions that are read at positions, one after another, would have a table that grows with each of them: beyond
:data:`MOST_CHOSEN` elements such a table has its own size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Ref, free_vars, rewrite, walk
from nautilus.core.index.sizes import nominal
from nautilus.core.records import dataclass
from nautilus.cost.estimates import estimated
from nautilus.ma_tile.ir.ops import ForOp, GlobalLoad, walk_ops

Index = tuple[Expr, ...]
MOST_CHOSEN = 1 << 30  # elements of a tensor of positions, so that a position is a number of 32 bits
NOWHERE = 1 << 40  # the first position of an empty box, whose last one is less


@dataclass(slots=True)
class Access:
    """The first and last position that each tile reads along each axis of a buffer, over all loops.

    ``extents``: those of the buffer, or those of a longer index tensor that chooses positions in it.
    """

    lows: list[Any]
    highs: list[Any]
    extents: list[int]

    def of_tiles(self, read: Any) -> Access:
        """This access, which is empty for the tiles that do not ``read``."""
        if np.all(read):
            return self
        lows, highs = ([np.where(read, e, end) for e in x] for x, end in ((self.lows, NOWHERE), (self.highs, -NOWHERE)))
        return Access(lows, highs, self.extents)

    def joined(self, other: Access) -> Access:
        """The smallest boxes around both."""
        lows = [np.minimum(a, b) for a, b in zip(self.lows, other.lows, strict=True)]
        highs = [np.maximum(a, b) for a, b in zip(self.highs, other.highs, strict=True)]
        return Access(lows, highs, [max(n, m) for n, m in zip(self.extents, other.extents, strict=True)])


def both_ends(env: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """``env`` with every ranged variable (of loops and consumers) at its first and at its last value."""
    first, last = dict(env), dict(env)
    for name, ends in env.items():
        if name.endswith("#"):
            first[name[:-1]], last[name[:-1]] = ends
    return first, last


PARTS = 4  # boxes of one buffer that a tile reads far from each other


class Reads:
    """The boxes of each buffer that tiles read; filled in the order of the kernel's ops.

    Reads of one buffer are one box, except where they are further apart than they are long, as the columns of a gate
    and of what it scales: ``boxes`` has the name of a buffer and the number of the box.
    """

    def __init__(self, buffers: Mapping[str, Buffer]) -> None:
        self.boxes: dict[tuple[str, int], Access] = {}
        self._buffers = buffers
        self._places: dict[str, tuple[Expr, int]] = {}  # by fragment: position in its tensor, elements of the tensor

    def loaded(self, op: GlobalLoad) -> None:
        """Remember the position of the elements of ``op``, where they may be positions themselves."""
        if op.result.type.dtype.is_float:
            return
        shape, index = self._extents(op.buffer, op.index), self._index(op.index)
        if prod(shape) > MOST_CHOSEN:
            shape = [nominal(n) for n in self._buffers[op.buffer].shape]
            index = tuple(calc("mod", e, n) for e, n in zip(index, shape, strict=True))
        place: Expr = integer(0)
        for e, n in zip(index, shape, strict=True):
            place = calc("add", calc("mul", place, n), e)
        self._places[op.result.name] = place, prod(shape)

    def carried(self, op: ForOp) -> None:
        """Remember the positions of what the iterations of ``op`` load for later ones, which copies may read."""
        ahead = {x.result.name: x for x in walk_ops(op.body) if isinstance(x, GlobalLoad)}
        for (arg, start), value, result in zip(op.carried, op.yields, op.results, strict=True):
            if value.name in ahead:
                self.loaded(ahead[value.name])
            place = self._places.get(value.name, self._places.get(start.name))
            if place is not None:
                self._places[arg.name] = self._places[result.name] = place

    def _index(self, index: Index) -> Index:
        """``index`` with the element's own position for each loaded value."""

        def rule(e: Expr) -> Expr | None:
            return self._places[e.name][0] if isinstance(e, Ref) and e.name in self._places else None

        return tuple(rewrite(e, rule) for e in index)

    def _extents(self, buffer: str, index: Index) -> list[int]:
        """The extents of ``buffer``, at least as large as the tensors whose elements are positions there."""

        def chosen(e: Expr) -> Iterator[int]:
            yield from (self._places[r.name][1] for r in walk(e) if isinstance(r, Ref) and r.name in self._places)

        return [max((nominal(n), *chosen(e))) for n, e in zip(self._buffers[buffer].shape, index, strict=True)]

    def add(
        self, buffer: str, index: Index, sizes: Mapping[str, int], env: dict[str, Any], times: Any = 1.0
    ) -> None:  # fmt: skip
        """Extend the ranges that every tile with ``times`` above 0 reads of ``buffer``.

        The index of a prefetch may jump at either end of the loop, so the second and the last but one value count too.
        """
        first, last = both_ends(env)
        ranged = [name[:-1] for name in env if name.endswith("#")]
        extents = self._extents(buffer, index)
        index = self._index(index)
        second = first | {v: np.minimum(first[v] + 1, last[v]) for v in ranged}
        before = last | {v: np.maximum(last[v] - 1, first[v]) for v in ranged}
        low, high = {a: np.asarray(0) for a in sizes}, {a: np.asarray(n - 1) for a, n in sizes.items()}
        places = (first, second, before, last) if ranged else (first,)
        points = [at | tile for at in places for tile in (low, high)]
        new = _around([_values(e, points) for e in index], extents).of_tiles(np.asarray(times) > 0)
        number = next((n for n in range(PARTS) if not self._is_far(new, self.boxes.get((buffer, n)))), PARTS - 1)
        if (known := self.boxes.get((buffer, number))) is not None:
            new = new.joined(known)
        self.boxes[buffer, number] = new

    @staticmethod
    def _is_far(new: Access, known: Access | None) -> bool:
        """Whether the boxes of all tiles are further apart along an axis than either is long; False without a box."""
        if known is None:
            return False
        for low, high, other_low, other_high in zip(new.lows, new.highs, known.lows, known.highs, strict=True):
            if np.any(low > high) or np.any(other_low > other_high):
                continue  # tiles that read nothing
            gap = np.maximum(low - other_high, other_low - high)
            if np.all(gap > np.maximum(high - low, other_high - other_low) + 1):
                return True
        return False


def _values(e: Expr, points: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The values of ``e`` at ``points``; one for all points that have the same objects for its variables."""
    named = free_vars(e)
    differ = {tuple(id(at.get(x)) for x in named): at for at in points}
    return [estimated(e, at) for at in differ.values()]


def _around(by_axis: Sequence[Sequence[Any]], extents: list[int]) -> Access:
    """The smallest box with all values ``by_axis``."""
    lows, highs = ([reduce(f, values) for values in by_axis] for f in (np.minimum, np.maximum))
    return Access(lows, highs, extents)
