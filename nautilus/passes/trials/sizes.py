"""The sizes for which variants are planned, and those at which they are compared, by the size of the program.

A plan takes a time in proportion to the definitions of the program, and so does a prediction at one size.  Programs
with many definitions have few plans, and many sizes of several dims are compared on a coarser grid, so that the choice
of variants takes about as long for each program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.cost.work import MOST_TILES
from nautilus.ma_tile.ir.ops import MemModule

#: number of varied dims -> sizes for which the planner makes schedules, along each of them
PLANNED = {1: (1, 16, 64, 192, 256, 1024, 4096, 16384, 65536), 2: (16, 256, 4096), 3: (16, 2048)}
FEW_PLANNED = {1: (1, 64, 1024, 16384), 2: (16, 4096), 3: (16, 2048)}  # those of many definitions
#: of three varied dims, the sizes of the first one for which it does, instead of those
BATCHES, FEW_BATCHES = (1, 64), (16,)
#: number of varied dims -> sizes at which variants are compared, along each of them
GRID = {
    1: (1, 4, 16, 32, 64, 128, 192, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536, 1 << 20),
    2: (1, 16, 128, 1024, 8192, 65536),
    3: (1, 32, 512, 8192),
}
COARSE_GRID = {1: GRID[1], 2: (1, 64, 2048, 65536), 3: (1, 64, 4096)}
MANY = 8  # definitions of a program, up to which all plans are made
MOST_COMPARED = 300  # definitions at all points of the grid
MOST_KERNELS = 18  # of all variants, which ptxas assembles together
FEW_TILES = 1 << 12  # tiles of a kernel that predictions evaluate on a coarse grid
MOST_PLANNED = 48  # definitions in all plans of a program of many, at fixed sizes
MOST_BOUNDED = 24  # the same under bounds below which other plans are legal


@dataclass(frozen=True, slots=True)
class Effort:
    """What is planned and compared for a program of so many ``definitions``, with ``dims`` sizes that vary."""

    definitions: int
    kernels: int
    dims: int

    @staticmethod
    def of(schedule: Schedule, module: MemModule, dims: int) -> Effort:
        """The effort for the program of which ``schedule`` has the plans, which made ``module``."""
        kernels = len(module.kernels)
        return Effort(max(kernels, sum(len(k.ops) for k in schedule.kernels)), kernels, dims)

    @property
    def whole(self) -> bool:
        """Whether all plans are made."""
        return self.definitions <= MANY

    @property
    def planned(self) -> Mapping[int, Sequence[int]]:
        """Sizes of plans, as :data:`PLANNED`."""
        return PLANNED if self.whole else FEW_PLANNED

    @property
    def batches(self) -> Sequence[int]:
        """Sizes of the first one of three dims, for which plans are made."""
        return BATCHES if self.whole else FEW_BATCHES

    @property
    def grid(self) -> Mapping[int, Sequence[int]]:
        """Sizes at which variants are compared, as :data:`GRID`."""
        return GRID if self.fine else COARSE_GRID

    @property
    def tiles(self) -> int:
        """Tiles of a kernel that a prediction evaluates one by one."""
        return MOST_TILES if self.fine else FEW_TILES

    @property
    def fine(self) -> bool:
        """Whether all sizes are compared."""
        points: int = len(GRID[self.dims]) ** self.dims
        return self.definitions * points <= MOST_COMPARED

    @property
    def bounded(self) -> int | None:
        """The number of plans under bounds below which others are legal; None for all."""
        return None if self.whole else max(1, MOST_BOUNDED // self.definitions)

    @property
    def points(self) -> int | None:
        """The number of fixed sizes with a plan, small ones first; None for all."""
        return None if self.whole else max(1, MOST_PLANNED // self.definitions)

    def some(self, among: Sequence[int]) -> Sequence[int]:
        """All of ``among``, or one in three."""
        return among if self.whole else among[1::3]

    def variants(self, most: int) -> int:
        """The most variants, of ``most`` that are allowed."""
        return max(2, min(most, MOST_KERNELS // max(1, self.kernels)))


WHOLE = Effort(definitions=1, kernels=1, dims=1)
