"""The lowering of values that are unpacked from bytes (:mod:`.packed_operands`) to the op ``unpack``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Var, substitute
from nautilus.core.index.simplify import simplify
from nautilus.core.text.names import unused
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import Frag
from nautilus.ma_tile.ir.unpack import UnpackOp, packed_layout, word_layout
from nautilus.ma_tile.lowering.operands.packed_operands import Packed
from nautilus.vr_tile import ir as vr
from nautilus.vr_tile.ir import Value

if TYPE_CHECKING:
    from nautilus.ma_tile.lowering.ops import Entry, Lowering


def unpacked(low: Lowering, entry: Entry, found: Packed, layout: FragLayout) -> Frag:
    """The value of ``entry`` in ``layout``, from bytes that each thread has for its own elements."""
    into = unused(f"{found.axis}_bytes", low.sizes)
    load = _load_of_bytes(found, into)
    held = packed_layout(layout, found.axis, into)
    assert held is not None, "packed_chains asks for layouts in which a thread has whole bytes"
    bytes_ = low.load_bytes(load, word_layout(held, into) or held, entry.depth)
    zero = None if found.zero is None else _converted(low, entry, found.zero, found, layout)
    scale = None if found.scale is None else low.get(found.scale, layout.project(found.scale.type.names))
    out = low.b.frag(entry.value.name, TileType(found.dtype, entry.value.type.axes), layout)
    low.b.emit(UnpackOp(out, found.form, bytes_, into, found.axis, found.bias, found.factor, zero, scale), entry.depth)
    if entry.value.type.dtype is found.dtype:
        return out
    wide = low.b.frag(entry.value.name, entry.value.type, layout)
    low.b.emit(ma.MapOp(wide, "cast", (out,)), entry.depth)
    return wide


def _load_of_bytes(found: Packed, into: str) -> vr.LoadOp:
    """The load of the bytes themselves, each once, along the axis ``into``."""
    load, t = found.load, found.load.result.type
    axes = tuple(TileAxis(into, a.size // 2) if a.name == found.axis else a for a in t.axes)
    twice = {found.axis: calc("mul", Var(into), 2)}

    def halved(e: Expr) -> Expr:
        return simplify(substitute(e, twice))

    mask = None if load.mask is None else halved(load.mask)
    value = Value(f"{load.result.name}_bytes", TileType(t.dtype, axes))
    return replace(load, result=value, index=tuple(map(halved, load.index)), mask=mask)


def _converted(low: Lowering, entry: Entry, zero: Value, found: Packed, layout: FragLayout) -> Frag:
    """``zero`` times its factor, a small integer times a power of two, in the type of the op."""
    own = layout.project(zero.type.names)
    x = low.get(zero, own)

    def made(name: str, args: tuple[Frag, ...], dtype: DType) -> Frag:
        out = low.b.frag(zero.name, TileType(dtype, zero.type.axes), own)
        low.b.emit(ma.MapOp(out, name, args), entry.depth)
        return out

    if found.zero_factor != 1.0:
        x = x if x.type.dtype is DType.F32 else made("cast", (x,), DType.F32)
        factor = low.b.frag(f"{zero.name}_factor", TileType(DType.F32, ()), layout.project(()))
        low.b.emit(ma.ConstOp(factor, found.zero_factor), entry.depth)
        x = made("mul", (x, factor), DType.F32)
    return x if x.type.dtype is found.dtype else made("cast", (x,), found.dtype)
