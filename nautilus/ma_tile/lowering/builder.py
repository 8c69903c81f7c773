"""Building one MA-tile kernel: fresh names, the layout table, shared buffers and nested op lists."""

from __future__ import annotations

from nautilus.core.text.names import unused
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import Frag, MemOp, Smem
from nautilus.ma_tile.lowering.layouts import canonical


class Builder:
    """The kernel under construction. ``depth`` counts the loops around a position; 0 is the body."""

    def __init__(self, warps: int) -> None:
        self.warps = warps
        self.layouts: dict[str, FragLayout] = {}
        self.smem: dict[str, Smem] = {}
        self.blocks: list[list[MemOp]] = [[]]
        self._keys: dict[FragLayout, str] = {}
        self._names: set[str] = set()

    @property
    def depth(self) -> int:
        """The number of loops around the position."""
        return len(self.blocks) - 1

    def emit(self, op: MemOp, depth: int | None = None) -> None:
        """Append ``op`` at ``depth`` (None: innermost); at an outer depth it precedes the open loop."""
        self.blocks[self.depth if depth is None else depth].append(op)

    def name(self, hint: str) -> str:
        """An unused name made from ``hint``."""
        out = unused(hint, self._names)
        self._names.add(out)
        return out

    def layout(self, layout: FragLayout, hint: str = "") -> str:
        """Name of ``layout``; layouts that are the same map share one."""
        key = canonical(layout)
        if key not in self._keys:
            name = unused(hint or "_".join(key.axes) or "one", self.layouts)
            self.layouts[name] = layout
            self._keys[key] = name
        return self._keys[key]

    def frag(self, hint: str, type_: TileType, layout: FragLayout) -> Frag:
        """A fresh fragment."""
        return Frag(self.name(hint), type_, self.layout(layout))

    def shared(
        self, hint: str, dtype: DType, axes: tuple[TileAxis, ...], swizzle: int = 0, pad: int = 0, stages: int = 1
    ) -> Smem:
        """A fresh shared buffer (offset 0 until ``allocate-shared``)."""
        out = Smem(self.name(hint), dtype, axes, stages, swizzle, pad, 0)
        self.smem[out.name] = out
        return out
