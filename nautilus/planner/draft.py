"""The plan of a kernel while it is made: its definitions, and the roles of their axes so far."""

from __future__ import annotations

from dataclasses import field
from math import prod

from nautilus.core.buffers import Space
from nautilus.core.expr.nodes import Axis, Load, Var, free_vars
from nautilus.core.index.sizes import at_most
from nautilus.core.records import dataclass
from nautilus.core.schedule import AxisPlan
from nautilus.planner.products.dots import Dot
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.chunks import Chunks, chunks_of
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.domains import Scan
from nautilus.targets.memory_rates import SECTOR

LARGE = 8  # an output with more than LARGE times the elements of each input decides which axis is contiguous
SMALL = 128  # an input with less than 1 / SMALL of the elements of the largest one is small
LONG = 1 << 20  # the extent of an axis of any size: too long for a tile


@dataclass(slots=True)
class Draft:
    """``dots`` and ``scans`` are definitions, by name, that are matrix products and running results of one tile.

    ``loop``: the axis of the loop that all definitions share.  ``least``: the least tiles of axes of the grid;
    ``light``: no long rows are in registers; ``divided``: consumers may divide long axes of products.
    """

    unified: Unified
    roles: dict[str, AxisPlan] = field(default_factory=dict)
    dots: dict[str, Dot] = field(default_factory=dict)
    loop: str | None = None
    scans: dict[str, Scan] = field(default_factory=dict)
    least: dict[str, int] = field(default_factory=dict)
    light: bool = False
    divided: bool = True

    @property
    def defs(self) -> tuple[Def, ...]:
        """The definitions of the kernel with unified axes."""
        return self.unified.defs

    def extent(self, axis: str) -> int:
        """The extent, or the most that it can be, where it is known only at launch; at most :data:`LONG`."""
        e = self.unified.extents[axis]
        return e if isinstance(e, int) else min(at_most(e), LONG)

    def reducers(self, axis: str) -> tuple[Def, ...]:
        """The definitions that reduce over ``axis``."""
        return tuple(d for d in self.defs if any(a.name == axis for a in d.red))

    def holders(self, axis: str) -> tuple[Def, ...]:
        """The definitions that have ``axis``."""
        return tuple(d for d in self.defs if d.axis(axis) is not None)

    def cut_by(self, axis: str) -> Chunks | None:
        """The chunks that ``axis`` numbers; None where it numbers none."""
        found = [c for d in self.defs if (c := chunks_of(d)) is not None and c.by == axis]
        return found[0] if found else None

    def work(self, d: Def) -> int:
        """Points of the index space of ``d``."""
        return prod(self.extent(a.name) for a in d.axes)

    def terms(self) -> int:
        """Terms of the longest reduction."""
        return max((prod(self.extent(a.name) for a in d.red) for d in self.defs), default=1)

    def tile(self, axis: str) -> int:
        """Elements of the tile along ``axis``; 1 where none is chosen."""
        return self.roles[axis].tile if axis in self.roles else 1

    def volume(self, skip: frozenset[str] = frozenset()) -> int:
        """The largest tile of any definition that has the axes ``skip``, over the other axes that have a plan."""
        best = 1
        for d in (d for d in self.defs if skip <= {a.name for a in d.axes}):
            best = max(best, prod(self.tile(a.name) for a in self.held(d) if a.name not in skip))
        return best

    def held(self, d: Def) -> tuple[Axis, ...]:
        """The axes of the largest tile that ``d`` needs: a scan has no tile over both of its axes."""
        return tuple(a for a in d.axes if d.name not in self.scans or a.name != self.scans[d.name].into)

    def vector_axis(self) -> str | None:
        """The axis that is contiguous in memory in most inputs (the last index position); small inputs do not count.

        Where an output is far larger than all inputs, that is its last axis.
        """
        counts: dict[str, int] = {}
        found = self._inputs()
        sizes = [prod(map(self.extent, free_vars(ld) & self.unified.extents.keys())) for ld in found]
        outputs = [d for d in self.defs if d.buffer.space is Space.OUTPUT and d.par and not d.is_reduction]
        written = {d.par[-1].name: prod(self.extent(a.name) for a in d.par) for d in outputs}
        if written and sizes and max(written.values()) > LARGE * max(sizes):
            return max(written, key=lambda x: written[x])
        for ld, size in zip(found, sizes, strict=True):
            if isinstance(ld.index[-1], Var) and size * SMALL > max(sizes):
                counts[ld.index[-1].name] = counts.get(ld.index[-1].name, 0) + len(ld.index)
        return max(counts, key=lambda x: counts[x]) if counts else None

    def sector(self, axis: str) -> int:
        """Elements along ``axis`` that fill a sector of the inputs that are contiguous along it."""
        return SECTOR // min((ld.dtype.bytes for ld in self._inputs() if ld.index[-1] == Var(axis)), default=SECTOR)

    def nearness(self, axis: str) -> tuple[int, int]:
        """(dimensions, position from the last one) of the input of most dimensions that has ``axis`` in its index."""
        found = [(len(ld.index), n) for ld in self._inputs() for n, e in enumerate(ld.index) if axis in free_vars(e)]
        places = [(dimensions, n - dimensions) for dimensions, n in found]
        return max(places, default=(0, 0))

    def _inputs(self) -> list[Load]:
        """The loads of tensors that the kernel does not compute."""
        names = {d.name for d in self.defs}
        return [ld for d in self.defs for ld in d.reads() if ld.buffer not in names and ld.index]
