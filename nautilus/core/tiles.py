"""The type of a tile, shared by the tile levels: an element type and named axes with sizes; powers of two for sizes."""

from __future__ import annotations

from nautilus.core.records import dataclass
from nautilus.core.types import DType


@dataclass(frozen=True, slots=True)
class TileAxis:
    """A named dimension of a tile and its size in elements."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class TileType:
    """Element type and named axes (empty: one element)."""

    dtype: DType
    axes: tuple[TileAxis, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the axes."""
        return tuple([a.name for a in self.axes])

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return tuple([a.size for a in self.axes])


def ceil_pow2(n: int) -> int:
    """The least power of two that is at least ``n``, such as the tile of an axis; 1 for ``n`` below 1."""
    return 1 << max(0, n - 1).bit_length()


def floor_pow2(n: int) -> int:
    """The greatest power of two that is at most ``n``; 1 for ``n`` below 1."""
    return 1 << (max(1, n).bit_length() - 1)
