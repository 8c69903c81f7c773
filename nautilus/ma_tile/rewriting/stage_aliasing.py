"""Stage aliasing: a TMA store buffer shares the bytes of a pipeline stage if shared memory has no room for both.

With ``WarpgroupPlan.epilogue`` ``tma-staged``, part of ``specialise-warps``.  The buffer of the tile's TMA stores is
placed over the operand that a loop loads and whose first load comes last, because the next tile needs its stages last.
At the end of the tile the pipeline has one more instance, which is not loaded:

* The producer waits until its stage is empty, that is until *all* consumers have read its previous contents.  It then
  arrives on the full barrier without announcing bytes, and continues with the next tile's loads.
* The consumers wait for it before their first store to the stage, and release it after the last ``tma.wait``.

With two or more stages, the aliased stage is not the one that the last MMAs read.  The consumers then need no common
barrier, and all other operands of the next tile can be loaded during the store.  A persistent block releases the stage
only after the next tile's first MMAs (:func:`late_release`), so that the wait for the last store's reads overlaps
them.  There is no deadlock: the producer follows program order, and a stage is released before any later one is
requested.

Stage n of the buffer is stage ``pipeline stage * ratio + n`` of the pipeline's bytes.  ScheduleError: no pipeline has a
stage that is large enough and a multiple of the buffer's stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Var, free_vars
from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.pipelines import TmaPipeline, filled_in_loop, is_load
from nautilus.ma_tile.ir.async_ops import AdvanceOp, TmaWait, WgCommit
from nautilus.ma_tile.ir.ops import IfOp, MatrixStore, MbarArrive, MbarWait, MemKernel, MemOp, Slot, Smem, walk_ops
from nautilus.ma_tile.ir.traverse import Ops, expressions, map_slots, touch


@dataclass(frozen=True, slots=True)
class StageAlias:
    """``buffer`` shares a stage of ``pipeline`` with its buffer ``over``; ``ratio``: its stages in one stage."""

    pipeline: TmaPipeline
    over: str
    buffer: Smem
    ratio: int

    def claim(self) -> Ops:
        """The instance of the pipeline that the producer does not load."""
        pipeline = self.pipeline
        free = calc("sub", 1, pipeline.phase)
        return (
            MbarWait(pipeline.empty, pipeline.stage, free),
            MbarArrive(pipeline.full, pipeline.stage),
            AdvanceOp(pipeline.state.name),
        )

    def placed(self, body: Ops) -> Ops:
        """The consumers' body with the stores through the pipeline, between the wait and the release."""
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
        """The declaration of ``s``, if it is the buffer: with all stages that fit into the pipeline."""
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
    """The alias for the TMA stores of ``kernel``; None if it has no such stores. Raises ScheduleError if none fits."""
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
    """Pipelines that loops fill, the last loaded one first; their buffers and the bytes per stage of each buffer."""
    smem = {s.name: s for s in kernel.smem}
    for pipeline in reversed(pipelines):
        if filled_in_loop(kernel.body, frozenset(pipeline.buffers)):
            for name in pipeline.buffers:
                yield pipeline, name, smem[name].stage_bytes * (pipeline.consumers if name in pipeline.apart else 1)


def late_release(body: Ops, last: Ops, kernel: MemKernel, iteration: str) -> tuple[Ops, Ops]:
    """``body`` of a tile that ends with the release of an aliased stage, moved after the next tile's first MMAs.

    ``last``: the ops after the last tile; ``iteration`` numbers the tiles of the block.  Other bodies are not changed.
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
