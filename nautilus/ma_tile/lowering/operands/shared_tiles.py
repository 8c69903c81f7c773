"""Loaded tiles that many threads of a block read, in loops without products: shared memory holds them.

In a reduction over pairs, ``sum[k](abs(A[i, k] - B[j, k]))``, each element of a step of ``A`` meets all columns of the
tile.  Loads from memory would bring it to each thread that has some of these columns, row by row, and L1 finds one line
a cycle.  The tile is copied instead, whole sectors at a time and some iterations ahead, and threads read it with
vectors.  They read along the terms where these are contiguous in memory; neighbouring lanes then have neighbouring rows
of the tile, whose padding puts them in different banks.

A copied tile has an axis that a reduction of the loop combines.  Another one, such as the input of a step of a
recurrence, has one row, which loads ahead bring to registers; its layout would spread the reductions of each step over
warps, with barriers.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from nautilus.core.buffers import Buffer
from nautilus.core.expr.nodes import refs
from nautilus.core.schedule import MappingPlan, WarpPlan
from nautilus.vr_tile import ir as vr
from nautilus.vr_tile.analysis.computed_from import computed_from
from nautilus.vr_tile.ir import TileKernel

READERS = 8  # least number of positions along the axes that a load lacks; each element is read as often
LEAST = 64  # least number of elements of a tile that is worth its barriers
STAGES = 2  # of the pipelines, at least


def positions_of(kernel: TileKernel, defs: Mapping[str, vr.TileOp]) -> frozenset[str]:
    """The values from which addresses and masks of loads, and bounds of loops, are computed."""
    ops = (op for op in vr.walk_ops(kernel.body) if not isinstance(op, vr.StoreOp))
    names = dict.fromkeys(n for op in ops for e in vr.expressions(op) for n in refs(e))
    values = [v for name in names if name in defs for v in vr.operands(defs[name])]
    return frozenset(names) | {v.name for v, _ in computed_from(values, defs, lambda *_: True)}


def shared_tiles(
    kernel: TileKernel, buffers: Mapping[str, Buffer], mapping: MappingPlan, defs: Mapping[str, vr.TileOp]
) -> frozenset[str]:
    """The results of the loads of ``kernel`` that its loops copy to shared memory."""
    ops = list(vr.walk_ops(kernel.body))
    with_products = any(isinstance(op, vr.DotOp) for op in ops)
    if not isinstance(mapping, WarpPlan) or mapping.stages < STAGES or with_products or kernel.spread > 1:
        return frozenset()
    apart = positions_of(kernel, defs)
    stored = {op.buffer for op in ops if isinstance(op, vr.StoreOp)}
    found = set[str]()
    for loop in (op for op in ops if isinstance(op, vr.ForOp) and not any(isinstance(x, vr.ForOp) for x in op.body)):
        types = [v.type for op in vr.walk_ops(loop.body) if isinstance(op, vr.MapOp) for v in vr.results(op)]
        reduced = {x for op in vr.walk_ops(loop.body) if isinstance(op, vr.ReduceOp) for x in op.axes}
        for op in (x for x in loop.body if isinstance(x, vr.LoadOp)):
            own, size = set(op.result.type.names), prod(op.result.type.shape)
            readers = max((prod(t.shape) // size for t in types if own < set(t.names)), default=1)
            same = buffers[op.buffer].dtype is op.result.type.dtype
            terms = not reduced.isdisjoint(own)
            if terms and readers >= READERS and size >= LEAST and same and op.buffer not in stored:
                found |= {op.result.name} - apart
    return frozenset(found)
