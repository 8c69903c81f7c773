"""What MA-tile ops name: fragments, shared buffers, mbarriers, cursors, and one stage of a ring."""

from __future__ import annotations

from dataclasses import dataclass

from nautilus.core.expr.nodes import Expr
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.ma_tile.ir.layout import SmemLayout, tile_shape


@dataclass(frozen=True, slots=True)
class Frag:
    """A fragment value: a tile held in registers under the kernel's layout ``layout``."""

    name: str
    type: TileType
    layout: str


@dataclass(frozen=True, slots=True)
class Smem:
    """A shared buffer of ``stages`` equal stages; ``axes`` last contiguous; ``offset`` in bytes.

    ``over``: the buffer that it shares bytes with on purpose, from the same offset on; whoever uses both sees to it
    that a stage of one is not in use while the bytes belong to the other.
    """

    name: str
    dtype: DType
    axes: tuple[TileAxis, ...]
    stages: int = 1
    swizzle: int = 0
    pad: int = 0
    offset: int = 0
    over: str | None = None

    def layout(self, swizzle: int | None = None) -> SmemLayout:
        """Placement inside one stage, as an access with ``swizzle`` (None: the buffer's own) sees it."""
        rows, cols = tile_shape(self.axes)
        return SmemLayout(rows, cols, self.dtype, self.swizzle if swizzle is None else swizzle, self.pad)

    @property
    def stage_bytes(self) -> int:
        return self.layout().bytes

    @property
    def bytes(self) -> int:
        return self.stages * self.stage_bytes

    def meets(self, other: Smem) -> bool:
        """Whether the two have bytes in common."""
        return self.offset < other.offset + other.bytes and other.offset < self.offset + self.bytes


@dataclass(frozen=True, slots=True)
class Mbar:
    """A ring of mbarriers expecting ``arrivals`` arrivals a phase (8 bytes each at ``offset``)."""

    name: str
    stages: int
    arrivals: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Slot:
    """Stage ``stage`` of shared buffer ``buffer``, addressed with ``swizzle``."""

    buffer: str
    stage: Expr
    swizzle: int = 0


@dataclass(frozen=True, slots=True)
class PipelineState:
    """A position in a ring of ``stages``: the variables ``NAME_stage`` (from 0) and ``NAME_phase`` (from 0).

    Every role, and every unit of a role, has its own copy; ``advance`` moves it to the next stage and
    flips the phase where the ring starts again.
    """

    name: str
    stages: int

    @property
    def stage(self) -> str:
        """The variable that holds the stage number."""
        return f"{self.name}_stage"

    @property
    def phase(self) -> str:
        """The variable that holds how often the ring was run through, modulo 2."""
        return f"{self.name}_phase"
