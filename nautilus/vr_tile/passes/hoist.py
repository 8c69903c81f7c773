"""``hoist``: moves loop-invariant ops out of the loop.

Every op may run even if the loop has no iterations, because loads are masked and no op traps.  An op from a loop of a
chain moves before the chain's first loop if possible, so that the loops of the chain stay adjacent.  A load of a buffer
that the kernel itself stores stays where it is, and so does one at a fixed position along a dimension that may be empty
at launch.  A loop without iterations may be all that keeps a load inside of its buffer, as where its end says what a
mask said before: such a load stays too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from nautilus.core.expr.build import integer
from nautilus.core.expr.nodes import Const, Expr, Param, free_vars, refs
from nautilus.core.index.simplify import bounds, conjuncts
from nautilus.core.index.sizes import Extent
from nautilus.core.records import dataclass
from nautilus.vr_tile.analysis.assumptions import Assumptions
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
from nautilus.vr_tile.rewriting import each_kernel


@dataclass(frozen=True, slots=True)
class Hoist:
    """Move loop-invariant ops out."""

    name = "hoist"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` with every invariant op before its loop."""
        shapes = {b.name: b.shape for b in module.buffers}
        return each_kernel(module, lambda k: _kernel(k, shapes))


Shapes: TypeAlias = Mapping[str, tuple[Extent, ...]]
Kept: TypeAlias = Callable[[LoadOp, Assumptions, bool], bool]


def _kernel(k: TileKernel, shapes: Shapes) -> TileKernel:
    stored = stored_by(k.body)
    at = Assumptions.of_axes(k.axes)
    for g in k.grid:
        at = at.within(g.var, integer(0), g.extent if isinstance(g.extent, Expr) else integer(g.extent), loop=False)

    def kept(op: LoadOp, at: Assumptions, maybe_none: bool) -> bool:
        shape = shapes[op.buffer]
        return op.buffer in stored or _may_be_empty(op, shape) or (maybe_none and _may_be_outside(op, shape, at))

    body = _block(k.body, kept, at)
    return k if body == k.body else replace(k, body=body)


def _may_be_empty(op: LoadOp, shape: tuple[Extent, ...]) -> bool:
    """Whether no element of ``op`` may be there, because a dimension whose extent the launch gives is too short.

    A position without variables, such as 0 or the last one, is there in every iteration of the loop, but not without
    iterations.
    """

    def is_there(e: Expr, n: Extent) -> bool:
        if isinstance(n, int) or free_vars(e) or refs(e):
            return True
        return isinstance(e, Const) and isinstance(n, Param) and n.least > e.value

    return not all(map(is_there, op.index, shape))


def _may_be_outside(op: LoadOp, shape: tuple[Extent, ...], at: Assumptions) -> bool:
    """Whether ``op`` may read outside of its buffer under the conditions ``at``, as far as intervals say."""
    given = (*at.conditions, *(() if op.mask is None else conjuncts(op.mask)))
    for e, n in zip(op.index, shape, strict=True):
        low, high = bounds(e, at.ranges, given)
        if isinstance(n, int) and ((low is not None and low < 0) or (high is not None and high >= n)):
            return True
    return False


def _block(body: tuple[TileOp, ...], kept: Kept, known: Assumptions) -> tuple[TileOp, ...]:
    out: list[TileOp] = []
    first: dict[str, int] = {}  # chain -> position of its first loop in out
    for op in body:
        if not isinstance(op, ForOp):
            out.append(op)
            continue
        loop, moved = _loop(op, kept, known)
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


def _loop(op: ForOp, kept: Kept, at: Assumptions) -> tuple[ForOp, list[TileOp]]:
    """The loop without its invariant ops, and those in order."""
    maybe_none = not (isinstance(op.lo, Const) and isinstance(op.hi, Const))
    varying = {op.var} | {f"%{arg.name}" for arg, _ in op.carried}
    stay: list[TileOp] = []
    moved: list[TileOp] = []
    for inner in _block(op.body, kept, at.within(op.var, op.lo, op.hi, loop=True)):
        stays = isinstance(inner, StoreOp | ForOp) or (isinstance(inner, LoadOp) and kept(inner, at, maybe_none))
        if stays or _needs(inner) & varying:
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
