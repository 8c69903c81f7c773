"""The verifier's rules of vectors of registers, and of stores: plain ones, those that combine, and those of rows."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.atomics import is_exact
from nautilus.core.expr.nodes import free_vars, refs
from nautilus.core.tiles import TileType
from nautilus.ma_tile.analysis.access import is_contiguous, key_dimensions
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import ForOp, GlobalStore, RowStore, walk_ops
from nautilus.ma_tile.ir.row_store import in_rows, is_range
from nautilus.ma_tile.ir.traverse import memory_of
from nautilus.ma_tile.verify.layout import cover_fault, vector_axis
from nautilus.ma_tile.verify.scope import KernelScope, Rule
from nautilus.targets.limits import VECTOR_BYTES, WARP


def need_vector(s: KernelScope, layout: FragLayout, vec: int, width: int, axis: str | None, repeat: int = 1) -> None:
    """``vec`` registers are neighbours along ``axis`` (None: any one axis); ``repeat`` of them hold one element."""
    s.need(vec >= 1 and vec & (vec - 1) == 0, "vectors are powers of two", str(vec))
    s.need(repeat >= 1 and vec % repeat == 0, "vectors have whole elements", f"{vec} registers, {repeat} for each")
    if vec == 1:
        return
    s.need(vec // repeat * width <= 16, "vectors have at most 16 bytes", f"{vec // repeat} x {width}")
    along = vector_axis(layout, vec)
    ok = along is not None and axis in (None, along)
    s.need(ok, "vectors are contiguous registers", f"{vec} registers along {axis or 'one axis'}")


def st_global(s: KernelScope, op: GlobalStore) -> None:
    """The store goes to an output or a temp."""
    layout = s.use(op.value)
    buffer = s.access(op.buffer, op.index, op.mask, layout, op.value.type)
    s.need(buffer.space is not Space.INPUT, "inputs are not written", op.buffer)
    same = buffer.dtype is op.value.type.dtype or buffer.dtype.compute is op.value.type.dtype
    s.need(same, "stores take the buffer's type", f"{op.value.type.dtype}, not {buffer.dtype}")
    need_vector(s, layout, op.vec, buffer.dtype.bytes, None)
    if op.combiner is not None:
        atomic_store(s, op, buffer, layout)


def atomic_store(s: KernelScope, op: GlobalStore, buffer: Buffer, layout: FragLayout) -> None:
    """Every order gives the same bits, each element is combined once, and the kernel uses the buffer only here."""
    given = op.value.type.dtype
    exact = op.combiner is not None and given is buffer.dtype and is_exact(op.combiner, given)
    s.need(exact, "an atomic store does not depend on the order", f"{op.combiner} of {given} in {buffer.dtype}")
    once = op.vec == 1 and all(m.axis is not None for m in layout.reg if m.size > 1)
    s.need(once, "an atomic store is of one register at a time, without copies", str(layout))
    alone = {*s.path} <= {ForOp} and s.kernel.cluster == 1 and s.kernel.consumers <= 1
    s.need(alone, "an atomic store stands in loops of a kernel without roles", s.kernel.name)
    uses = sum(memory_of(x).count(op.buffer) for x in walk_ops(s.kernel.body))
    s.need(uses == 1, "a kernel uses a buffer that it combines into only there", op.buffer)
    if op.scratch is not None:
        _block_scratch(s, op, buffer)


def _block_scratch(s: KernelScope, op: GlobalStore, buffer: Buffer) -> None:
    """The scratch has the elements of the trailing dimensions, or copies of each; the others are those of the block."""
    scratch = s.smem.get(op.scratch or "")
    s.need(scratch is not None, "shared buffers are declared", op.scratch or "")
    assert scratch is not None
    keys = key_dimensions(buffer, op.index, op.value.type.names)
    plain = (scratch.dtype, scratch.stages, scratch.swizzle, scratch.pad) == (buffer.dtype, 1, 0, 0)
    sizes = [a.size for a in scratch.axes]
    copied = len(sizes) == 1 or (len(sizes) == 2 and sizes[1] in (2, 4, 8, 16, WARP))
    s.need(plain and copied and sizes[0] == prod(keys), "scratch of a block has the elements of its keys", scratch.name)
    leading = op.index[: len(op.index) - len(keys)]
    fixed = {name for name, _ in s.kernel.decode} | {"block"}
    same = all(free_vars(e) <= fixed and not refs(e) for e in leading)
    s.need(same, "a block combines into one part of a tensor", op.buffer)


def st_rows(s: KernelScope, op: RowStore) -> None:
    """The op copies vectors of contiguous rows of the tensor from a stage without swizzle, on a range of each row."""
    stage, layout = s.slot(op.slot), s.layout(op.threads)
    t = TileType(stage.dtype, stage.axes)
    if fault := cover_fault(layout, t):
        s.fail("layouts cover their tiles", f"#{op.threads}: {fault}")
    buffer = s.access(op.buffer, op.index, op.mask, layout, t)
    s.need(buffer.space is not Space.INPUT, "inputs are not written", op.buffer)
    s.need(buffer.dtype is stage.dtype, "copies keep the type", f"{stage.dtype}, not {buffer.dtype}")
    last, width = stage.axes[-1].name if stage.axes else "", stage.dtype.bytes
    row = stage.axes[-1].size * width if stage.axes else 0
    plain = width <= 4 and row % VECTOR_BYTES == (row + stage.pad) % VECTOR_BYTES == 0 and stage.swizzle == 0
    s.need(plain and row >= 2 * VECTOR_BYTES, "rows are vectors of 16 bytes without swizzle", stage.name)
    s.need(in_rows(layout, last, VECTOR_BYTES // width), "threads have vectors of rows", f"#{op.threads} along {last}")
    s.need(is_contiguous(buffer, op.index, last), "rows are contiguous in the tensor", f"{op.buffer} along {last}")
    s.need(is_range(op.mask, last), "the condition holds on a range of each row", op.buffer)


STORE_RULES: Mapping[type, Rule] = {GlobalStore: st_global, RowStore: st_rows}
