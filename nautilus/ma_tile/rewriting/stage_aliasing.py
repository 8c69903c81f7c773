"""Results leave through a stage of a ring, where shared memory has no room for a buffer of their own.

With ``WarpgroupPlan.epilogue`` ``tma-staged``, part of ``specialise_warps``.  The buffer through which the tile's bulk
stores go is put over the walked operand whose first load comes last: the next tile needs its stages last.  At the
end of the tile the ring has one more instance, which nobody loads:

* the producer waits until its stage is empty, that is until *all* consumers have read what was in it, and arrives on
  the full barrier without announcing bytes; then it goes on with the next tile's loads;
* the consumers wait for it before their first store to the stage, and give it back behind the last ``tma.wait``.

With two stages or more the stage lent is not the one that the last products read, so that consumers need not meet, and
all other operands of the next tile can be loaded while the results leave.  A persistent block gives the stage back
only behind the next tile's first products (:func:`late_release`), so that nobody stands still while the last store
reads.  No deadlock: the producer keeps program order, and a stage is given back before anything later is asked for.

Stage n of the buffer is stage ``ring stage * ratio + n`` of the ring's bytes.  ScheduleError where no ring has a stage
that the buffer divides and fits into.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Var, free_vars
from nautilus.ma_tile.analysis.pipelines import Block, TmaPipeline, filled_in_loop, is_load
from nautilus.ma_tile.ir.async_ops import AdvanceOp, TmaWait, WgCommit
from nautilus.ma_tile.ir.ops import IfOp, MatrixStore, MbarArrive, MbarWait, MemKernel, MemOp, Slot, Smem, walk_ops
from nautilus.ma_tile.ir.traverse import expressions, map_slots, touch


@dataclass(frozen=True, slots=True)
class StageAlias:
    """``buffer`` lies in a stage of ``ring``, over its buffer ``over``; ``ratio``: its stages in one of the ring."""

    pipeline: TmaPipeline
    over: str
    buffer: Smem
    ratio: int

    def claim(self) -> Block:
        """The instance of the ring that the producer does not load."""
        pipeline = self.pipeline
        free = calc("sub", 1, pipeline.phase)
        return (
            MbarWait(pipeline.empty, pipeline.stage, free),
            MbarArrive(pipeline.full, pipeline.stage),
            AdvanceOp(pipeline.state.name),
        )

    def placed(self, body: Block) -> Block:
        """The consumers' body with the stores through the ring, between the wait and the release."""
        pipeline, last = self.pipeline, max(n for n, op in enumerate(body) if self._uses(op))
        end = next(n for n in range(last, len(body)) if isinstance(body[n], TmaWait))
        first = min(n for n, op in enumerate(body) if self._uses(op))
        out: list[MemOp] = []
        for n, op in enumerate(body):
            if n == first:
                out.append(MbarWait(pipeline.full, pipeline.stage, pipeline.phase, op.span))
            out.append(map_slots(op, self._slot))
            if n == end:
                arrive = MbarArrive(pipeline.empty, pipeline.stage, "warp", span=op.span)
                out += [arrive, AdvanceOp(pipeline.state.name, span=op.span)]
        return tuple(out)

    def smem(self, s: Smem) -> Smem:
        """The declaration of ``s``, if it is the buffer: all the stages that the ring has room for."""
        if s.name != self.buffer.name:
            return s
        return replace(s, stages=self.ratio * self.pipeline.depth, over=self.over)

    def _uses(self, op: MemOp) -> bool:
        return any(s.buffer == self.buffer.name for s in touch(op).all)

    def _slot(self, s: Slot) -> Slot:
        if s.buffer != self.buffer.name:
            return s
        base = calc("mul", self.pipeline.stage, self.ratio)
        return replace(s, stage=calc("add", base, s.stage))


def find_stage_alias(kernel: MemKernel, pipelines: Sequence[TmaPipeline], pingpong: bool) -> StageAlias | None:
    """What the bulk stores of ``kernel`` borrow; None where there are none. Raises ScheduleError where they cannot."""
    names = {op.slot.buffer for op in walk_ops(kernel.body) if isinstance(op, MatrixStore)}
    buffers = [s for s in kernel.smem if s.name in names]
    if not buffers:
        return None
    (buffer, *more) = buffers
    if more or pingpong:
        several = "results are stored through buffers of several shapes"
        why = "each pingpong warpgroup computes whole tiles" if pingpong else several
        raise ScheduleError(f"epilogue tma-staged: {why}", kernel=kernel.name)
    everywhere = sum(s.buffer == buffer.name for op in walk_ops(kernel.body) for s in touch(op).all)
    here = [n for n, op in enumerate(kernel.body) if any(s.buffer == buffer.name for s in touch(op).all)]
    apart, first = len(here) < everywhere, min(here, default=0)
    loaded = frozenset(b for r in pipelines for b in r.buffers)
    if apart or any(is_load(x, loaded) for op in kernel.body[first:] for x in walk_ops((op,))):
        raise ScheduleError(
            "epilogue tma-staged: results are stored in a loop, in a branch, or before the last load",
            kernel=kernel.name,
        )
    for pipeline, over, size in _stages(kernel, pipelines):
        if size % buffer.stage_bytes == 0 and size >= buffer.bytes:
            return StageAlias(pipeline, over, buffer, size // buffer.stage_bytes)
    detail = f"{buffer.bytes} bytes in stages of {buffer.stage_bytes} fit no stage of an operand that a loop loads"
    raise ScheduleError(f"epilogue tma-staged: {detail}", kernel=kernel.name)


def _stages(kernel: MemKernel, pipelines: Sequence[TmaPipeline]) -> Iterator[tuple[TmaPipeline, str, int]]:
    """Rings of walked operands, the one that is loaded last first, their buffers, and bytes of these a stage."""
    smem = {s.name: s for s in kernel.smem}
    for pipeline in reversed(pipelines):
        if filled_in_loop(kernel.body, frozenset(pipeline.buffers)):
            for name in pipeline.buffers:
                yield pipeline, name, smem[name].stage_bytes * (pipeline.consumers if name in pipeline.apart else 1)


def late_release(body: Block, last: Block, kernel: MemKernel, iteration: str) -> tuple[Block, Block]:
    """``body`` of a tile that ends by giving back a lent stage, which now happens under the next tile's products.

    ``last``: what stands behind the last tile; ``iteration`` numbers the tiles of the block.  No other body changes.
    """
    match body:
        case (*rest, TmaWait() as wait, MbarArrive() as arrive, AdvanceOp(by=None) as move):
            pass
        case _:
            return body, last
    pipeline = next(c for c in kernel.pipelines if c.name == move.pipeline)
    aliased = any(s.over is not None for s in kernel.smem) and arrive.stage == Var(pipeline.stage)
    if not aliased:
        return body, last
    first = next((n for n, op in enumerate(rest) if _mentions(op, {pipeline.name, pipeline.stage, pipeline.phase})), 0)
    at = next((n + 1 for n, op in enumerate(rest[:first]) if isinstance(op, WgCommit)), 0)
    back = calc("add", Var(pipeline.stage), pipeline.stages - 1)
    before: Expr = calc("mod", back, pipeline.stages)
    later = calc("gt", Var(iteration), 0)
    release = IfOp(later, (wait, replace(arrive, stage=before)), wait.span)
    return (*rest[:at], release, *rest[at:], move), (wait, *last)


def _mentions(op: MemOp, names: set[str]) -> bool:
    for x in walk_ops((op,)):
        if isinstance(x, AdvanceOp) and x.pipeline in names:
            return True
        if any(free_vars(e) & names for e in expressions(x)):
            return True
    return False
