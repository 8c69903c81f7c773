"""``hoist``: moves loop-invariant ops out of the loop.

Every op may run even if the loop has no iterations, because loads are masked and no op traps.  An op from a loop of a
chain moves before the chain's first loop if possible, so that the loops of the chain stay adjacent.  A load of a buffer
that the kernel itself stores stays where it is.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.expr.nodes import free_vars
from nautilus.core.records import dataclass
from nautilus.vr_tile.ir import (
    ForOp,
    LoadOp,
    StoreOp,
    TileKernel,
    TileModule,
    TileOp,
    expressions,
    operands,
    results,
    stored_by,
)
from nautilus.vr_tile.lowering.build import refs
from nautilus.vr_tile.rewriting import each_kernel


@dataclass(frozen=True, slots=True)
class Hoist:
    """Move loop-invariant ops out."""

    name = "hoist"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` with every invariant op before its loop."""
        return each_kernel(module, _kernel)


def _kernel(k: TileKernel) -> TileKernel:
    body = _block(k.body, stored_by(k.body))
    return k if body == k.body else replace(k, body=body)


def _block(body: tuple[TileOp, ...], stored: frozenset[str]) -> tuple[TileOp, ...]:
    out: list[TileOp] = []
    first: dict[str, int] = {}  # chain -> position of its first loop in out
    for op in body:
        if not isinstance(op, ForOp):
            out.append(op)
            continue
        loop, moved = _loop(op, stored)
        if op.chain is not None and op.chain in first:
            at = first[op.chain]
            early, late = _early(moved, out[at:])
            out[at:at] = early
            first[op.chain] = at + len(early)
            moved = late
        out += moved
        if op.chain is not None:
            first.setdefault(op.chain, len(out))
        out.append(loop)
    return tuple(out)


def _needs(op: TileOp) -> set[str]:
    """The values and variables that the op reads."""
    names = {f"%{v.name}" for v in operands(op)}
    for e in expressions(op):
        names |= free_vars(e) | {f"%{r}" for r in refs(e)}
    return names


def _loop(op: ForOp, stored: frozenset[str]) -> tuple[ForOp, list[TileOp]]:
    """The loop without its invariant ops, and those in order."""
    varying = {op.var} | {f"%{arg.name}" for arg, _ in op.carried}
    stay: list[TileOp] = []
    moved: list[TileOp] = []
    for inner in _block(op.body, stored):
        kept = isinstance(inner, StoreOp | ForOp) or (isinstance(inner, LoadOp) and inner.buffer in stored)
        if kept or _needs(inner) & varying:
            varying |= {f"%{r.name}" for r in results(inner)}
            stay.append(inner)
        else:
            moved.append(inner)
    return replace(op, body=tuple(stay)), moved


def _early(moved: list[TileOp], between: list[TileOp]) -> tuple[list[TileOp], list[TileOp]]:
    """The ops of ``moved`` that depend on no result of ``between``, and the others."""
    late_names = {f"%{r.name}" for op in between for r in results(op)}
    early: list[TileOp] = []
    late: list[TileOp] = []
    for op in moved:
        if _needs(op) & late_names:
            late_names |= {f"%{r.name}" for r in results(op)}
            late.append(op)
        else:
            early.append(op)
    return early, late
