"""Parsers of the ops of ``ma_tile.ir.async_ops``, one a statement (``ma_tile.text.parser`` has the rest)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nautilus.core.expr.nodes import Expr
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
from nautilus.ma_tile.ir.ops import MemOp, Slot
from nautilus.ma_tile.text.parser import Parser
from nautilus.ma_tile.text.parser_tile_scheduler import TILE_SCHEDULER


def let(p: Parser) -> LetOp:
    """``let v = e``."""
    span = p.ts.span()
    return LetOp(*p.binding(), span)


def advance(p: Parser) -> AdvanceOp:
    """``advance c by e``."""
    span = p.ts.span()
    p.ts.expect("advance")
    return AdvanceOp(p.ts.name(), p.expr() if p.ts.accept("by") else None, span)


def _tile(p: Parser, word: str) -> tuple[Slot, str, tuple[Expr, ...]]:
    p.ts.expect(word)
    slot = p.slot()
    p.ts.expect(",")
    return slot, p.ts.name(), p.ts.brackets(p.expr)


def bulk_load(p: Parser) -> TmaLoad:
    """``tma.load s[e], X[..] mbar b[e] multicast n stream``."""
    span = p.ts.span()
    parts = _tile(p, "tma.load")
    mbar = p.ring() if p.ts.accept("mbar") else None
    return TmaLoad(*parts, mbar, p.option("multicast"), p.ts.accept("stream"), span)


def bulk_store(p: Parser) -> TmaStore:
    """``tma.store s[e], X[..]``."""
    span = p.ts.span()
    return TmaStore(*_tile(p, "tma.store"), span)


def bulk_commit(p: Parser) -> TmaCommit:
    """``tma.commit``."""
    span = p.ts.span()
    p.ts.expect("tma.commit")
    return TmaCommit(span)


def bulk_wait(p: Parser) -> TmaWait:
    """``tma.wait n read``."""
    span = p.ts.span()
    return TmaWait(p.field("tma.wait"), p.ts.accept("read"), span)


def mbar_expect(p: Parser) -> MbarExpect:
    """``mbar.expect b[e] bytes``."""
    span = p.ts.span()
    p.ts.expect("mbar.expect")
    return MbarExpect(*p.ring(), p.ts.integer(), span)


def named_arrive(p: Parser) -> NamedArrive:
    """``named.arrive n, threads``."""
    span = p.ts.span()
    p.ts.expect("named.arrive")
    number = p.number()
    p.ts.expect(",")
    return NamedArrive(number, p.ts.integer(), span)


def st_matrix(p: Parser) -> MatrixStore:
    """``st.matrix s[e], %x``."""
    span = p.ts.span()
    p.ts.expect("st.matrix")
    slot = p.slot()
    p.ts.expect(",")
    return MatrixStore(slot, p.use(), span)


def fence_proxy(p: Parser) -> ProxyFence:
    """``fence.proxy``."""
    span = p.ts.span()
    p.ts.expect("fence.proxy")
    return ProxyFence(span)


def wg_fence(p: Parser) -> WgFence:
    """``wg.fence``."""
    span = p.ts.span()
    p.ts.expect("wg.fence")
    return WgFence(span)


def wg_commit(p: Parser) -> WgCommit:
    """``wg.commit``."""
    span = p.ts.span()
    p.ts.expect("wg.commit")
    return WgCommit(span)


def wg_wait(p: Parser) -> WgWait:
    """``wg.wait n pinned %x, ...``; fragments before a ``=`` belong to the next op."""
    ts, span = p.ts, p.ts.span()
    pending, pinned = p.field("wg.wait"), ts.accept("pinned")
    at = 0
    while ts.peek(at).startswith("%") and ts.peek(at + 1) == ",":
        at += 2
    listed = ts.kind == "ref" and ts.peek(at + 1) != "="
    return WgWait(pending, p.uses() if listed else (), pinned, span)


def cluster_arrive(p: Parser) -> ClusterArrive:
    """``cluster.arrive relaxed``."""
    span = p.ts.span()
    p.ts.expect("cluster.arrive")
    return ClusterArrive(p.ts.accept("relaxed"), span)


def cluster_wait(p: Parser) -> ClusterWait:
    """``cluster.wait``."""
    span = p.ts.span()
    p.ts.expect("cluster.wait")
    return ClusterWait(span)


STATEMENTS: Mapping[str, Callable[[Parser], MemOp]] = {
    "let": let, "advance": advance, "tma.load": bulk_load, "tma.store": bulk_store,
    "tma.commit": bulk_commit, "tma.wait": bulk_wait, "mbar.expect": mbar_expect,
    "named.arrive": named_arrive, "st.matrix": st_matrix, "fence.proxy": fence_proxy,
    "wg.fence": wg_fence, "wg.commit": wg_commit, "wg.wait": wg_wait,
    "cluster.arrive": cluster_arrive, "cluster.wait": cluster_wait, **TILE_SCHEDULER,
}  # fmt: skip
