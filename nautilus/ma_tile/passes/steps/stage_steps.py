"""``stage-steps``: stores of steps that write parts of sectors go through shared memory.

A lane that has a row of its own stores the elements of several steps with vectors (``vector-steps``).  The vectors of
one instruction lie in as many rows as there are lanes, and each of them fills half a sector of 32 bytes at most, which
takes several times as long to write as a whole one (:mod:`nautilus.ma_tile.analysis.sectors`).  Through shared memory,
neighbouring lanes store neighbouring vectors of a row::

    st.global Y[b, t * 16 + v], %h vec 4           st.shared steps_Y, %h
                                                   %h_rows = ld.shared steps_Y
                                                   st.global Y[b, t * 16 + v], %h_rows vec 4

``synchronize`` puts the barriers between the two and before the next iteration.  A store is not changed if

* it combines with what is in memory, or its index or mask reads fragments;
* its block has more than :data:`WARPS` warps, which would wait for each other;
* shared memory has no room, or the sectors that it touches would not be fewer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import ZERO
from nautilus.core.records import dataclass
from nautilus.core.text.names import fresh
from nautilus.core.tiles import TileType
from nautilus.core.types import DType
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import (
    ForOp,
    GlobalLoad,
    GlobalStore,
    MapOp,
    MemKernel,
    MemModule,
    MemOp,
    SharedLoad,
    SharedStore,
    Slot,
    Smem,
)
from nautilus.ma_tile.ir.traverse import each_kernel, rebuild
from nautilus.ma_tile.lowering.exchange import STORES, Access, Staging, stage_between, whole_sectors
from nautilus.ma_tile.passes.steps.prefetch_steps import is_steps
from nautilus.ma_tile.rewriting.renaming import Names, layout_name
from nautilus.targets.limits import VECTOR_BYTES, limits

WARPS = 1  # warps of a block, at most: barriers of more warps take longer
LEAST = 256  # elements of a tile
ALONE = 0.25  # sectors that loads touch in the other layout, at most, as a share


@dataclass(frozen=True, slots=True)
class StageSteps:
    """Stage the stores of steps that write parts of sectors."""

    name = "stage-steps"

    def apply(self, module: MemModule) -> MemModule:
        """The module with staged stores; the same object where there are none."""
        buffers = {b.name: b for b in module.buffers}
        return each_kernel(module, lambda k: _staged(k, buffers, room(module.target)))


def room(target: str) -> int:
    """Bytes of shared memory of a block, of which a multiprocessor has some."""
    return limits(target).smem_block // 4


def _staged(kernel: MemKernel, buffers: Mapping[str, Buffer], size: int) -> MemKernel:
    if kernel.warps > WARPS or kernel.spread > 1:
        return kernel
    work = Stages(kernel, buffers, size, dict(kernel.layouts), Names(kernel), {})

    def loop(op: MemOp) -> tuple[MemOp, ...]:
        return (replace(op, body=rebuild(op.body, work.store)),) if isinstance(op, ForOp) and is_steps(op) else (op,)

    body = rebuild(kernel.body, loop)
    if not work.new:
        return kernel
    return replace(kernel, layouts=work.layouts, smem=(*kernel.smem, *work.new.values()), body=body)


@dataclass(slots=True)
class Stages:
    """The stages of one kernel.  ``room``: bytes of shared memory; ``new``: stages by type and form of their tiles."""

    kernel: MemKernel
    buffers: Mapping[str, Buffer]
    room: int
    layouts: dict[str, FragLayout]
    names: Names
    new: dict[tuple[DType, Staging], Smem]

    def store(self, op: MemOp) -> tuple[MemOp, ...]:
        """The ops that replace ``op``."""
        if not isinstance(op, GlobalStore) or op.combiner is not None:
            return (op,)
        buffer, own = self.buffers[op.buffer], self.layouts[op.value.layout]
        kind = TileType(buffer.dtype, op.value.type.axes)
        found = whole_sectors(
            Access(buffer, op.index, op.mask, kind, own, op.vec), STORES, self.kernel.warps, VECTOR_BYTES, LEAST
        )
        if found is None:
            return (op,)
        stage = stage_between(kind, own, found[0])
        smem = self.stage(buffer, stage)
        if smem is None:
            return (op,)
        out, value = list[MemOp](), op.value
        if value.type.dtype is not buffer.dtype:
            value = replace(self.names.frag(value, str(buffer.dtype)), type=kind)
            out.append(MapOp(value, "cast", (op.value,), op.span))
        name = layout_name(self.layouts, found[0], f"{op.value.layout}_rows")
        rows = replace(self.names.frag(value, "rows"), layout=name)
        slot = Slot(smem.name, ZERO)
        out += [SharedStore(slot, value, stage.store, span=op.span), SharedLoad(rows, slot, stage.load, op.span)]
        return (*out, replace(op, value=rows, vec=found[1]))

    def load(self, op: MemOp) -> tuple[MemOp, ...]:
        """The ops that replace ``op``, where it is a load of single elements that are alone in their sectors."""
        if not isinstance(op, GlobalLoad) or op.vec > 1 or self.kernel.warps > WARPS or op.volatile:
            return (op,)
        buffer, own = self.buffers[op.buffer], self.layouts[op.result.layout]
        kind = op.result.type
        access = Access(buffer, op.index, op.mask, kind, own, op.vec)
        found = whole_sectors(access, ALONE, self.kernel.warps, VECTOR_BYTES, LEAST)
        stage = None if found is None else stage_between(kind, found[0], own)
        smem = None if stage is None else self.stage(buffer, stage)
        if found is None or stage is None or smem is None:
            return (op,)
        name = layout_name(self.layouts, found[0], f"{op.result.layout}_rows")
        rows = replace(self.names.frag(op.result, "rows"), layout=name)
        slot = Slot(smem.name, ZERO)
        return (
            replace(op, result=rows, vec=found[1]), SharedStore(slot, rows, stage.store, span=op.span),
            SharedLoad(op.result, slot, stage.load, op.span),
        )  # fmt: skip

    def stage(self, buffer: Buffer, stage: Staging) -> Smem | None:
        """The shared memory of such tiles; None where there is no room."""
        key = (buffer.dtype, stage)
        if key not in self.new:
            used = sum(s.bytes for s in (*self.kernel.smem, *self.new.values()))
            if used + stage.bytes(buffer.dtype) > self.room:
                return None
            name = fresh(f"steps_{buffer.name}", {s.name for s in (*self.kernel.smem, *self.new.values())})
            self.new[key] = Smem(name, buffer.dtype, stage.axes, 1, 0, stage.pad)
        return self.new[key]
