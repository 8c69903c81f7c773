"""Copies the tiles that elementwise work in a loop of MMAs reads to shared memory, with the operands.

A thread of a warpgroup has two neighbouring elements in a row of an accumulator, so a load from memory in that layout
reads 16 bytes in each of eight rows, and waits for them beside the MMAs.  A TMA copy loads the tile ahead, in the
pipelines of the operands (``specialise-warps``)::

    for j0 in ..                                for j0 in ..
        %s = mma ..                                 tma.load in_A[consumer], A[i0 + i, j0 * 64 + j]
        %a = ld.global A[i0 + i, j0 * 64 + j]       %s = mma ..
        %t = add %s, %a                             %a = ld.shared in_A[consumer]
                                                    %t = add %s, %a

Loads of one buffer, with tiles of one shape, share their stages in the loops of one chain.

Vectors along the loop, such as the documents of keys, are copied in the same way, those of a loop in one pipeline
(:mod:`nautilus.ma_tile.analysis.pipelines`): a load of them would wait for memory in every step.

Measured on an H200 (us, attention of 2 x 16 heads, 2048 x 2048, D = 64): 162 with a mask of f16 that is loaded in the
layout of the accumulator, 75 without a mask.

Switch: ``WarpgroupPlan.warp_specialised``.  A load is not changed where

* the kernel has no warp roles (``specialise-warps``), or writes the buffer;
* the tile is no whole accumulator of one consumer with at least :data:`LEAST` elements, nor the bytes of one whose
  elements are unpacked;
* the loop reads several such tiles, for which ptxas finds too few registers beside the MMAs, more than :data:`VECTORS`
  vectors, or a vector at two places;
* no TMA copy loads it (:mod:`nautilus.ma_tile.analysis.tma_boxes`), or its stages do not fit beside the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from nautilus.core.buffers import Space
from nautilus.core.expr.build import integer
from nautilus.core.expr.nodes import Var, free_vars
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, WarpgroupPlan
from nautilus.core.text.names import fresh
from nautilus.core.tiles import TileAxis
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.tma_boxes import TmaBox, combined_axes, tma_box
from nautilus.ma_tile.ir.async_ops import CONSUMER, GROUP_WARPS, TmaLoad, TmaStore
from nautilus.ma_tile.ir.instruction_tables import WGMMA, wg_acc_layout
from nautilus.ma_tile.ir.ops import (
    ForOp,
    Frag,
    GlobalLoad,
    GlobalStore,
    MemKernel,
    MemModule,
    MmaOp,
    SharedLoad,
    Slot,
    Smem,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import Ops, each_planned_kernel, rebuild
from nautilus.ma_tile.ir.unpack import packed_layout, word_layout
from nautilus.ma_tile.passes.copies.specialise_warps import obstacle
from nautilus.ma_tile.passes.epilogue.tma_stores import pipeline_bytes
from nautilus.ma_tile.passes.finalise.allocate_shared import reallocate
from nautilus.ma_tile.rewriting.renaming import known_ranges
from nautilus.ma_tile.verify.layout import same_map
from nautilus.targets.limits import WORD, limits

LEAST = 2048  # elements of a tile
_TWICE = "twice"  # an axis with twice as many elements as bytes
VECTOR = 2  # neighbouring elements of an accumulator
SPARE = 512  # bytes beside vectors for barriers, and for the queue of persistent blocks
VECTORS = 4  # vectors in a loop, each of which has a pipeline of its own


@dataclass(frozen=True, slots=True)
class StageLoads:
    """``limit`` overrides the target's bytes of shared memory a block."""

    schedule: Schedule | None = None
    limit: int | None = None
    name = "stage-loads"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose elementwise tiles go through shared memory."""
        limit = self.limit if self.limit is not None else limits(module.target).smem_block

        return each_planned_kernel(module, self, WarpgroupPlan, lambda k, plan: stage_loads(k, module, plan, limit))


def stage_loads(kernel: MemKernel, module: MemModule, plan: WarpgroupPlan, limit: int) -> MemKernel:
    """``kernel`` with TMA copies for the tiles of elementwise work in its loops of MMAs."""
    if not plan.warp_specialised or plan.stages < 2 or obstacle(kernel) is not None:
        return kernel
    work = _Loads(kernel, module, plan, limit)
    body = rebuild(kernel.body, lambda op: (work.loop(op),) if isinstance(op, ForOp) else (op,))
    if not work.new:
        return kernel
    staged = replace(kernel, smem=(*kernel.smem, *work.new.values()), body=body)
    return reallocate(staged, limits(module.target))


def _with_copies(body: Ops, staged: Mapping[int, tuple[TmaLoad, SharedLoad]]) -> Ops:
    """``body`` with all copies of ``staged`` in front of the first one of these loads, by identity."""
    first = next((n for n, op in enumerate(body) if id(op) in staged), len(body))
    copies = [copy for copy, _ in staged.values()]
    read = [staged[id(op)][1] if id(op) in staged else op for op in body]
    return (*read[:first], *copies, *read[first:])


@dataclass(slots=True)
class _Loads:
    """The loads of one kernel. ``new``: the buffers, by tensor and axes."""

    kernel: MemKernel
    module: MemModule
    plan: WarpgroupPlan
    limit: int
    new: dict[tuple[str, tuple[TileAxis, ...]], Smem] = field(default_factory=dict)

    def loop(self, op: ForOp) -> ForOp:
        """``op``, if it has MMAs of warpgroups, with copies for its loads."""
        if not any(isinstance(x, MmaOp) and x.instr in WGMMA for x in op.body):
            return op
        loads = [x for x in op.body if isinstance(x, GlobalLoad) and self._is_readable(x)]
        tiles = [x for x in loads if self._is_accumulator(x.result) or self._is_of_words(x.result)]
        vectors = [x for x in loads if self._is_vector(x)]
        once = [x for x in vectors if sum(y.buffer == x.buffer for y in vectors) == 1]
        body = op.body
        for group in (tiles if len(tiles) == 1 else [], once if len(once) <= VECTORS else []):
            staged = {id(x): y for x in group if (y := self._staged(x)) is not None}
            body = _with_copies(body, staged)
        return replace(op, body=body)

    def _is_readable(self, op: GlobalLoad) -> bool:
        """Whether ``op`` loads an input, or what other kernels made."""
        written = {x.buffer for x in walk_ops(self.kernel.body) if isinstance(x, GlobalStore | TmaStore)}
        return self.module.buffer(op.buffer).space in (Space.INPUT, Space.TEMP) and op.buffer not in written

    def _is_vector(self, op: GlobalLoad) -> bool:
        """Whether ``op`` loads elements along one axis, the same ones for all consumers."""
        layout = self.kernel.layouts[op.result.layout]
        along = [a for a in op.result.type.axes if a.size > 1]
        shared = all(CONSUMER not in free_vars(e) for e in op.index)
        return shared and len(along) == len(op.result.type.axes) == 1 and layout.warps == GROUP_WARPS

    def _staged(self, op: GlobalLoad) -> tuple[TmaLoad, SharedLoad] | None:
        buffer = self.module.buffer(op.buffer)
        axes, combined = op.result.type.axes, combined_axes(self.kernel)
        box = tma_box(buffer, axes, op.index, op.mask, known_ranges(self.kernel), True, combined)
        if not isinstance(box, TmaBox) or op.repeat is not None:
            return None
        apart = any(CONSUMER in free_vars(e) for e in op.index)
        stages = self.kernel.consumers if apart else 1
        key = op.buffer, box.axes
        if key not in self.new:
            name = fresh(f"in_{op.buffer}", {s.name for s in (*self.kernel.smem, *self.new.values())})
            made = Smem(name, buffer.dtype, box.axes, stages, box.swizzle)
            if not self._fits(made):
                return None
            self.new[key] = made
        smem = self.new[key]
        if smem.stages != stages:
            return None
        slot = Slot(smem.name, Var(CONSUMER) if apart else integer(0), smem.swizzle)
        vec = VECTOR if buffer.dtype.bytes <= 4 and op.vec >= VECTOR else 1
        vec = WORD if self._is_of_words(op.result) else vec
        return TmaLoad(slot, op.buffer, op.index, span=op.span), SharedLoad(op.result, slot, vec, op.span)

    def _is_accumulator(self, f: Frag) -> bool:
        layout, axes = self.kernel.layouts[f.layout], [a for a in f.type.axes if a.size > 1]
        if len(axes) != 2 or axes[0].size * axes[1].size < LEAST or layout.warps != GROUP_WARPS:
            return False
        return any(same_map(layout, wg_acc_layout(m.name, n.name, m.size, n.size)) for m, n in (axes, axes[::-1]))

    def _is_of_words(self, f: Frag) -> bool:
        """Whether ``f`` has the bytes of the elements of an accumulator, two to a byte, in words of four lanes."""
        layout, axes = self.kernel.layouts[f.layout], [a for a in f.type.axes if a.size > 1]
        if f.type.dtype is not DType.U8 or len(axes) != 2 or layout.warps != GROUP_WARPS:
            return False
        rows, packed = axes
        if rows.size * packed.size < LEAST // 2:
            return False
        whole = packed_layout(wg_acc_layout(rows.name, _TWICE, rows.size, 2 * packed.size), _TWICE, packed.name)
        words = None if whole is None else word_layout(whole, packed.name)
        return words is not None and same_map(layout, words)

    def _fits(self, made: Smem) -> bool:
        """Whether all stages of ``made`` fit beside those of the kernel."""
        consumers = self.plan.warpgroups if self.plan.is_pingpong else 1
        more = sum(s.bytes for s in (*self.new.values(), made)) * self.plan.stages * consumers
        used = pipeline_bytes(self.kernel, self.plan, *((SPARE,) if len(made.axes) == 1 else ()))
        return used + more <= self.limit
