"""The verifier's rules of vectors of registers, and of stores: plain ones, those that combine, and those of rows.

The printed text moves a vector at the address of its first register.  The interpreter looks at each element by itself,
at the sizes that it is run at, so that the elements of a vector are neighbours is proved here, for all sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from random import Random
from typing import Any

import numpy as np

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.atomics import is_exact
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Expr, Ref, Var, free_vars, refs, substitute
from nautilus.core.index.sizes import extent_expr
from nautilus.core.tiles import TileType
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.access import (
    constant_in_vector,
    is_contiguous,
    key_dimensions,
    nearest_width,
    offset,
    repeated_width,
    shifted_width,
    uniform,
    vector_width,
)
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import AsyncCopy, ForOp, GlobalLoad, GlobalStore, RowStore, Smem, walk_ops
from nautilus.ma_tile.ir.row_store import in_rows, is_range
from nautilus.ma_tile.ir.traverse import memory_of
from nautilus.ma_tile.verify.layout import cover_fault, vector_axis
from nautilus.ma_tile.verify.scope import KernelScope, Rule
from nautilus.targets.limits import VECTOR_BYTES, WARP

_POINTS = 8  # at which what is not proved is evaluated
_UNIT = 16  # divides the elements of tensors and the sizes at these points, as a fact about them may say


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


def need_access(s: KernelScope, op: GlobalLoad | GlobalStore | AsyncCopy, buffer: Buffer, layout: FragLayout) -> None:
    """The elements of each vector of ``op`` are neighbours in memory from an aligned one on, and have one condition.

    What is not proved is refused where an example shows that it does not hold.
    """
    repeat = op.repeat if isinstance(op, GlobalLoad) else None
    if isinstance(op, GlobalLoad) and op.nearest:
        several = op.vec > 1 and op.repeat is None and op.shift is None and not op.volatile
        s.need(several, "nearest vectors are plain ones of several elements", op.buffer)
    need_vector(s, layout, op.vec, buffer.dtype.bytes, None, repeat or 1)
    axis = vector_axis(layout, op.vec)
    if op.vec == 1 or axis is None or _is_access(s, op, buffer, axis, op.index, op.mask):
        return
    index = tuple(_with_variables(e, s.lets) for e in op.index)  # a variable may hide what divides it
    mask = None if op.mask is None else _with_variables(op.mask, s.lets)
    ok = _is_access(s, op, buffer, axis, index, mask)
    ok = ok or not (_is_nearest(op) or _is_refuted(s, op, buffer, axis, layout, index, mask))
    s.need(ok, "vectors are aligned neighbours in memory under one condition", f"{op.vec} of {op.buffer} along {axis}")


def _is_nearest(op: GlobalLoad | GlobalStore | AsyncCopy) -> bool:
    return isinstance(op, GlobalLoad) and op.nearest


def _with_variables(e: Expr, known: Mapping[str, Expr]) -> Expr:
    """``e`` with the expressions of the variables that ``known`` has."""
    own = {n: known[n] for n in free_vars(e) if n in known}
    return substitute(e, own) if own else e


def _is_access(
    s: KernelScope, op: GlobalLoad | GlobalStore | AsyncCopy, buffer: Buffer, axis: str, index: tuple[Expr, ...],
    mask: Expr | None,
) -> bool:  # fmt: skip
    """Whether an access at ``index`` under ``mask`` is proved to move vectors along ``axis`` as the text does."""
    runs = s.runs if any(map(refs, index if mask is None else (*index, mask))) else {}
    repeat = op.repeat if isinstance(op, GlobalLoad) else None
    if isinstance(op, GlobalLoad) and op.shift is not None:
        return shifted_width(buffer, index, mask, axis, op.vec, runs) == (op.vec, op.shift)
    if _is_nearest(op):
        return nearest_width(buffer, index, mask, axis, op.vec, runs) == op.vec
    if repeat is None:
        return vector_width(buffer, index, mask, axis, op.vec, runs) == op.vec
    if op.vec > repeat:
        most, shared = repeated_width(buffer, index, mask, axis, op.vec // repeat, runs)
        return shared == repeat and most >= op.vec
    one = all(constant_in_vector(t, axis, op.vec, runs) for t in offset(buffer, index).terms)
    return one and (mask is None or uniform(mask, axis, op.vec, runs))


def _is_refuted(
    s: KernelScope, op: GlobalLoad | GlobalStore | AsyncCopy, buffer: Buffer, axis: str, layout: FragLayout,
    index: tuple[Expr, ...], mask: Expr | None,
) -> bool:  # fmt: skip
    """Whether at one of a few points the vectors along ``axis`` are other ones than the text moves."""
    repeat, shift = (op.repeat or 1, op.shift or 0) if isinstance(op, GlobalLoad) else (1, 0)
    positions, random = np.arange(layout.extent(axis)), Random(op.vec)
    for n in range(_POINTS):
        env: dict[str, Any] = {a: random.randrange(min(layout.extent(a), 2 << n)) for a in layout.axes}
        env[axis] = positions
        known: dict[Expr, Any] = {}

        def other(e: Expr, most: int = 1 << n, known: dict[Expr, Any] = known) -> Any:
            """A value for what the access does not say."""
            if e not in known:
                whole = len(positions)
                run = s.runs.get(e.name, {}).get(axis, whole) if isinstance(e, Ref) else whole
                values = np.array([random.randrange(most) for _ in range(whole // run)])
                values = values > 0 if e.dtype is DType.BOOL else values if isinstance(e, Var) else _UNIT * values
                known[e] = np.repeat(values, run)
            return known[e]

        strides = [extent_expr(buffer.stride(n)) for n in range(len(index))]
        place: Any = sum(evaluate(e, env, other) * evaluate(n, env, other) for e, n in zip(index, strides, strict=True))
        live = np.broadcast_to(True if mask is None else evaluate(mask, env, other), positions.shape)
        vectors = np.broadcast_to(place, positions.shape).reshape(-1, op.vec) - shift
        held = live.reshape(-1, op.vec)
        wrong = (vectors != vectors[:, :1] + np.arange(op.vec) // repeat) | (vectors[:, :1] % (op.vec // repeat) != 0)
        if (wrong & held).any() or (not shift and (held != held[:, :1]).any()):
            return True
    return False


def need_stage_vectors(s: KernelScope, stage: Smem, layout: FragLayout, vec: int) -> None:
    """Vectors of ``vec`` registers are neighbours in a row of ``stage``, aligned in every row and every stage."""
    need_vector(s, layout, vec, stage.dtype.bytes, stage.axes[-1].name if stage.axes else None)
    size = vec * stage.dtype.bytes
    row = (stage.axes[-1].size if stage.axes else 1) * stage.dtype.bytes + stage.pad
    rows = stage.layout().rows * stage.stages
    ok = stage.offset % size == 0 and (rows == 1 or row % size == 0)
    s.need(ok, "vectors are aligned in every row of a stage", f"{size} bytes in rows of {row} of {stage.name}")


def st_global(s: KernelScope, op: GlobalStore) -> None:
    """The store goes to an output or a temp."""
    layout = s.use(op.value)
    buffer = s.access(op.buffer, op.index, op.mask, layout, op.value.type)
    s.need(buffer.space is not Space.INPUT, "inputs are not written", op.buffer)
    same = buffer.dtype is op.value.type.dtype or buffer.dtype.compute is op.value.type.dtype
    s.need(same, "stores take the buffer's type", f"{op.value.type.dtype}, not {buffer.dtype}")
    if op.combiner is not None:
        atomic_store(s, op, buffer, layout)
    need_access(s, op, buffer, layout)


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
