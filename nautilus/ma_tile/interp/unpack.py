"""The op ``unpack`` in the physical interpreter (:mod:`nautilus.ma_tile.ir.unpack`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nautilus.core.numerics import round_to
from nautilus.ma_tile.interp.state.values import Fault, register_type, spread
from nautilus.ma_tile.ir.unpack import FORMS, UnpackOp, packed_layout

if TYPE_CHECKING:
    from nautilus.ma_tile.interp.block import BlockRun
    from nautilus.ma_tile.interp.state.machine import Context


def unpack(run: BlockRun, ctx: Context, op: UnpackOp) -> None:
    """Look the halves of each byte up, low half first, then subtract and multiply with one rounding each.

    Raises Fault.
    """
    layout, dtype = run.machine.layout(op.result.layout), op.result.type.dtype
    held = packed_layout(layout, op.into, op.axis)
    if held is None:
        raise Fault("layout", f"the elements of a byte are not neighbours in #{op.result.layout}")
    numbers = (np.asarray(FORMS[op.form]) - op.bias) * op.factor
    byte = run.get(ctx, op.arg)
    if byte.shape[2] != held.registers:  # words: lane l takes byte l % 4 of each
        byte = np.stack([byte[:, lane, lane % 4 :: 4] for lane in range(32)], axis=1)
    x = np.stack([numbers[byte & 15], numbers[byte >> 4]], axis=-1).reshape(*byte.shape[:2], -1)
    if x.shape[2] != layout.registers:
        raise Fault("layout", f"%{op.arg.name} has {byte.shape[2]} registers for {layout.registers} elements")
    with np.errstate(all="ignore"):
        if op.zero is not None:
            x = round_to(x - spread(run.get(ctx, op.zero), layout, op.zero.type.names), dtype)
        if op.scale is not None:
            x = round_to(x * spread(run.get(ctx, op.scale), layout, op.scale.type.names).astype(np.float64), dtype)
    run.put(ctx, op.result, x.astype(register_type(dtype)))


TABLE: Mapping[type, Callable[[BlockRun, Context, Any], None]] = {UnpackOp: unpack}
