"""The tile-scheduler queue: how the producer sends the dynamic tiles of a block to the consumers.

The queue is a pipeline in shared memory with one 32-bit integer a stage.  The producer takes tiles from the tile
counter of the launch and pushes each, the number after the last tile included, so that the consumers stop too.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Var
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.ma_tile.ir.async_ops import AdvanceOp, LetOp
from nautilus.ma_tile.ir.ops import MbarArrive, MbarWait, MemKernel
from nautilus.ma_tile.ir.tile_scheduler import BreakOp, QueuePop, QueuePush, TileFetch, TileFirst, TileReset
from nautilus.ma_tile.ir.traverse import Ops
from nautilus.ma_tile.ir.values import Mbar, PipelineState, Slot, Smem

#: Stages of the queue: the producer loads the next tile while the consumers process this one.
STAGES = 2


@dataclass(frozen=True, slots=True)
class TileQueue:
    """The queue called ``name``; ``next_tile`` is the variable of the producer that holds the last fetch."""

    name: str
    next_tile: str
    tile: str
    count: Expr

    @property
    def _state(self) -> PipelineState:
        return PipelineState(self.name, STAGES)

    @property
    def _full(self) -> str:
        return f"full_{self.name}"

    @property
    def _empty(self) -> str:
        return f"empty_{self.name}"

    def declare(self, kernel: MemKernel, warps: int) -> MemKernel:
        """``kernel`` with the queue; ``warps`` is the number of consumer warps."""
        return replace(
            kernel,
            smem=(*kernel.smem, Smem(self.name, DType.I32, (), STAGES)),
            mbars=(*kernel.mbars, Mbar(self._full, STAGES, 1), Mbar(self._empty, STAGES, warps)),
            pipelines=(*kernel.pipelines, self._state),
        )

    def first(self) -> Ops:
        """The ops of the producer before its loop."""
        return (TileFirst(self.next_tile),)

    def send(self, body: Ops) -> Ops:
        """The body of the producer's loop around ``body``.

        The producer fetches the next tile at the end, when the stages of this tile are full, so that the number
        arrives in time.  An earlier fetch would assign a tile to a block with much work left (H200: 1 % slower with
        many tiles a block, 23 % with 1.3).
        """
        stage, phase, tile = Var(self._state.stage), Var(self._state.phase), Var(self.tile)
        return (
            MbarWait(self._empty, stage, calc("sub", 1, phase)),
            LetOp(self.tile, Var(self.next_tile)),
            TileReset(tile, self.count),
            QueuePush(Slot(self.name, stage), tile),
            MbarArrive(self._full, stage),
            *self._advance_or_leave(),
            *body,
            TileFetch(self.next_tile),
        )

    def receive(self, body: Ops) -> Ops:
        """The body of a consumer's loop around ``body``."""
        stage = Var(self._state.stage)
        return (
            MbarWait(self._full, stage, Var(self._state.phase)),
            QueuePop(self.tile, Slot(self.name, stage)),
            MbarArrive(self._empty, stage, "warp"),
            *self._advance_or_leave(),
            *body,
        )

    def _advance_or_leave(self) -> Ops:
        return AdvanceOp(self.name), BreakOp(calc("ge", Var(self.tile), self.count))
