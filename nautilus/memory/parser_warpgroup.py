"""Parsers of the ops of ``memory.warpgroup_ops``, one a statement (``memory.parser`` has the rest)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nautilus.core.expr import Expr
from nautilus.memory.ops import MemOp, Slot
from nautilus.memory.parser import Parser
from nautilus.memory.warpgroup_ops import (
    AdvanceOp,
    BulkCommit,
    BulkLoad,
    BulkStore,
    BulkWait,
    ClusterArrive,
    ClusterWait,
    LetOp,
    Mailbox,
    MatrixStore,
    MbarExpect,
    NamedArrive,
    ProxyFence,
    TilesOp,
    WgCommit,
    WgFence,
    WgWait,
)


def let(p: Parser) -> LetOp:
    """``let v = e``."""
    span = p.ts.span()
    return LetOp(*p.binding(), span)


def advance(p: Parser) -> AdvanceOp:
    """``advance c by e``."""
    span = p.ts.span()
    p.ts.expect("advance")
    return AdvanceOp(p.ts.name(), p.expr() if p.ts.accept("by") else None, span)


def tiles(p: Parser) -> TilesOp:
    """``tiles v, n in count static { ... }``."""
    ts, span = p.ts, p.ts.span()
    ts.expect("tiles")
    var = ts.name()
    ts.expect(",")
    seq = ts.name()
    ts.expect("in")
    count, order = p.expr(), ts.name()
    box = None
    if order == "dynamic":
        box = Mailbox(ts.name(), ts.name(), ts.name(), ts.name(), ts.accept("leads"))
    return TilesOp(var, seq, count, order, p.block(), box, span)


def _tile(p: Parser, word: str) -> tuple[Slot, str, tuple[Expr, ...]]:
    p.ts.expect(word)
    slot = p.slot()
    p.ts.expect(",")
    return slot, p.ts.name(), p.ts.brackets(p.expr)


def bulk_load(p: Parser) -> BulkLoad:
    """``bulk.load s[e], X[..] mbar b[e] multicast n stream``."""
    span = p.ts.span()
    parts = _tile(p, "bulk.load")
    mbar = p.ring() if p.ts.accept("mbar") else None
    return BulkLoad(*parts, mbar, p.option("multicast"), p.ts.accept("stream"), span)


def bulk_store(p: Parser) -> BulkStore:
    """``bulk.store s[e], X[..]``."""
    span = p.ts.span()
    return BulkStore(*_tile(p, "bulk.store"), span)


def bulk_commit(p: Parser) -> BulkCommit:
    """``bulk.commit``."""
    span = p.ts.span()
    p.ts.expect("bulk.commit")
    return BulkCommit(span)


def bulk_wait(p: Parser) -> BulkWait:
    """``bulk.wait n read``."""
    span = p.ts.span()
    return BulkWait(p.field("bulk.wait"), p.ts.accept("read"), span)


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
    "let": let, "advance": advance, "tiles": tiles, "bulk.load": bulk_load, "bulk.store": bulk_store,
    "bulk.commit": bulk_commit, "bulk.wait": bulk_wait, "mbar.expect": mbar_expect,
    "named.arrive": named_arrive, "st.matrix": st_matrix, "fence.proxy": fence_proxy,
    "wg.fence": wg_fence, "wg.commit": wg_commit, "wg.wait": wg_wait,
    "cluster.arrive": cluster_arrive, "cluster.wait": cluster_wait,
}  # fmt: skip
