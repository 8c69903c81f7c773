"""Block tiles of products of warpgroups, and the rates that they reach."""

from __future__ import annotations

from typing import Final

from nautilus.core.records import dataclass
from nautilus.targets.limits import WGMMA_ROWS

WARPGROUPS: Final = 2
TWICE: Final = 192  # columns of which a warpgroup has registers for two accumulators


@dataclass(frozen=True, slots=True)
class Tile:
    """A block tile of a GEMM, cooperative or ``pingpong``. ``merit``: measured TFLOP/s.

    ``dots``: the number of accumulators that the tile is for; 0: any number.
    """

    rows: int
    columns: int
    pingpong: bool
    merit: int
    dots: int = 0
    warpgroups: int = WARPGROUPS

    @property
    def accumulators(self) -> int:
        """Those of a thread."""
        return self.rows * self.columns // (128 * (1 if self.pingpong else self.warpgroups))

    @property
    def has_registers_for_two(self) -> bool:
        """Whether a thread has registers for two sets of its accumulators."""
        return not self.pingpong and self.rows * self.columns <= WARPGROUPS * WGMMA_ROWS * TWICE

    @property
    def least_stages(self) -> int:
        """The fewest stages of a pipeline that feeds it."""
        return 4 if self.pingpong else 3

    @property
    def raster_group(self) -> int:
        """The rows of tiles that are neighbours in the order of the grid."""
        return (2048 if self.columns > 256 or self.warpgroups > WARPGROUPS else 1024) // self.rows


#: rates of tiles that fill every wave (H200, 8192^3)
TILES: Final = (
    Tile(256, 192, False, 827),
    Tile(128, 320, False, 825),
    Tile(128, 256, False, 802),
    Tile(192, 256, False, 828, dots=2, warpgroups=3),  # two accumulators: a warpgroup has 64 rows of both
    Tile(128, 192, True, 798),
    Tile(128, 128, True, 770),
    Tile(128, 128, False, 720),
    Tile(128, 64, False, 500),
)
