"""Printing of the MA-tile IR below the op: slots, rings, numbers, and the ops of ``ma_tile.ir.async_ops``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from nautilus.core.expr.nodes import Const, Expr
from nautilus.core.text.expressions import format_expr, format_list
from nautilus.ma_tile.ir.async_ops import (
    AdvanceOp,
    ClusterArrive,
    ClusterWait,
    LetOp,
    MatrixStore,
    MbarExpect,
    NamedArrive,
    ProxyFence,
    TmaCommit,
    TmaLoad,
    TmaStore,
    TmaWait,
    WgCommit,
    WgFence,
    WgWait,
)
from nautilus.ma_tile.ir.tile_scheduler import (
    BreakOp,
    QueuePop,
    QueuePush,
    TileFetch,
    TileFirst,
    TileReset,
    TileSchedulerOp,
)
from nautilus.ma_tile.ir.values import Frag, Slot

WarpgroupOp: TypeAlias = (
    LetOp | AdvanceOp | TileSchedulerOp | TmaLoad | TmaStore | TmaCommit | TmaWait | MbarExpect | NamedArrive
    | MatrixStore | ProxyFence | WgFence | WgCommit | WgWait | ClusterArrive | ClusterWait | BreakOp | TileFirst
    | TileFetch | TileReset | QueuePush | QueuePop
)  # fmt: skip


def format_frags(frags: Iterable[Frag]) -> str:
    """``%a, %b``."""
    return ", ".join(f"%{f.name}" for f in frags)


def format_ring(name: str, stage: Expr) -> str:
    """One stage of a ring."""
    return f"{name}[{format_expr(stage)}]"


def format_slot(slot: Slot) -> str:
    """One stage of a shared buffer; swizzle 0 is not printed."""
    swizzle = f" swizzle {slot.swizzle}" if slot.swizzle else ""
    return format_ring(slot.buffer, slot.stage) + swizzle


def format_barrier(e: Expr) -> str:
    """A barrier's number; an expression is closed, because the next op may begin with a name."""
    return format_expr(e) if isinstance(e, Const) else f"({format_expr(e)})"


def format_warpgroup(op: WarpgroupOp) -> str:
    """One op of ``ma_tile.ir.async_ops`` as one line (``tile.loop``: its head)."""
    match op:
        case LetOp():
            return f"let {op.var} = {format_expr(op.expr)}"
        case AdvanceOp():
            return f"advance {op.cursor}" + ("" if op.by is None else f" by {format_expr(op.by)}")
        case TileSchedulerOp():
            return f"tile.loop {op.var}, {op.iteration} in {format_expr(op.count)} {op.order} {{"
        case BreakOp():
            return f"break if {format_expr(op.cond)}"
        case TileFirst():
            return f"tile.first {op.var}"
        case TileFetch():
            return f"tile.fetch {op.var}"
        case TileReset():
            return f"tile.reset {format_expr(op.tile)} of {format_expr(op.count)}"
        case QueuePush():
            return f"queue.push {format_slot(op.slot)}, {format_expr(op.value)}"
        case QueuePop():
            return f"queue.pop {op.var}, {format_slot(op.slot)}"
        case TmaLoad() | TmaStore():
            return _bulk(op)
        case TmaCommit():
            return "tma.commit"
        case TmaWait():
            return f"tma.wait {op.pending}" + (" read" if op.read else "")
        case MbarExpect():
            return f"mbar.expect {format_ring(op.mbar, op.stage)} {op.bytes}"
        case NamedArrive():
            return f"named.arrive {format_barrier(op.number)}, {op.threads}"
        case MatrixStore():
            return f"st.matrix {format_slot(op.slot)}, %{op.value.name}"
        case ProxyFence():
            return "fence.proxy"
        case WgFence():
            return "wg.fence"
        case WgCommit():
            return "wg.commit"
        case ClusterArrive():
            return "cluster.arrive" + (" relaxed" if op.relaxed else "")
        case ClusterWait():
            return "cluster.wait"
        case WgWait():
            ready = f" {format_frags(op.ready)}" if op.ready else ""
            return f"wg.wait {op.pending}" + (" pinned" if op.pinned else "") + ready


def _bulk(op: TmaLoad | TmaStore) -> str:
    what = f"{format_slot(op.slot)}, {op.buffer}[{format_list(op.index)}]"
    if isinstance(op, TmaStore):
        return f"tma.store {what}"
    mbar = "" if op.mbar is None else f" mbar {format_ring(*op.mbar)}"
    multicast = "" if op.multicast == 1 else f" multicast {op.multicast}"
    return f"tma.load {what}{mbar}{multicast}{' stream' if op.stream else ''}"
