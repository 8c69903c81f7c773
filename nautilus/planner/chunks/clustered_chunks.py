"""Chunks of a short product as a cluster, whose first block combines them (``combine-in-cluster``).

A product of few rows is bound by the bytes of one operand, and its loop is split so that all multiprocessors load.  The
kernel that combines the chunks then takes about as long as loading: a launch, and a way through memory and back.
A cluster of two, four or eight blocks needs neither.  It costs 6 to 10% of a kernel (H200, decoding), which is less
than the second kernel where rows are few.

All clusters have to run at the same time: a linear layer with 4-bit weights in 32 clusters of 8 blocks, of which 30
fit, took 17.5 us on an H100, and 11.6 with a second kernel.

Operands of fewer than 16 bits that no MMA multiplies as they are, such as 4-bit weights, are converted by the warps.
That takes longer than to load them, and blocks of few warps wait for it (weights of 4-bit floats: 14.8 us on an H200
with 8 chunks in two kernels, 20.8 in clusters of 4 blocks); :mod:`.warp_chunks` has more warps in a block.

A product whose condition differs between rows or columns, ``k < len[i]``, stays two kernels, because the one that
computes tiles with inf and NaN again (``recompute-masked``) stands between them.  Without it, terms are added one by
one wherever the condition divides a tile (predicted for 16 x 4096 x 4096 with lengths: 26 us, and 19 with all three).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import prod

from nautilus.core.expr.nodes import Load, Op, free_vars, loads
from nautilus.core.expr.products import strip_conversions
from nautilus.core.fallbacks import Fallbacks
from nautilus.core.index.sizes import Extent, blocks, nominal
from nautilus.core.schedule import AxisPlan, KernelPlan, WarpPlan
from nautilus.core.types import BYTES, DType
from nautilus.planner.products.dots import dot_of
from nautilus.planner.streaming import COMBINING_BYTES, combining, loaded, reader_of
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.chunks import Chunks, chunks_of
from nautilus.scalar.analysis.contractions.scales import matrix_part
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import GRID
from nautilus.targets.limits import Limits

CLUSTERS = (2, 4, 8)  # blocks; the largest portable cluster has eight
ROWS = 64  # largest number of rows of the tile of a short product


def clustered(
    plans: Mapping[str, KernelPlan], unified: Mapping[str, Unified], target: Limits, fallbacks: Fallbacks
) -> dict[str, KernelPlan]:
    """``plans`` by name, with the chunks of short products and the kernels that combine them as clusters.

    ``fallbacks``: the fallbacks of kernels that failed later, which stay two kernels.
    """
    out = dict(plans)
    for name, plan in plans.items():
        found = [c for d in unified[name].defs if (c := chunks_of(d)) is not None]
        if len(found) == len(unified[name].defs) == 1 and target.warpgroup and not fallbacks.steps(name):
            out |= _cluster(out, unified, name, plan, found[0], target, fallbacks)
    return out


def _cluster(
    plans: Mapping[str, KernelPlan], unified: Mapping[str, Unified], name: str, plan: KernelPlan, chunks: Chunks,
    target: Limits, fallbacks: Fallbacks,
) -> dict[str, KernelPlan]:  # fmt: skip
    """Plans of kernel ``name`` and of its reader as a cluster; none where they do not fit."""
    (d,) = unified[name].defs
    number, parts = unified[name].extents[chunks.by], {d.name: d}
    reader, dot = reader_of(unified, name, parts), dot_of(d)
    if number not in CLUSTERS or not isinstance(number, int) or chunks.tile or dot is None or reader is None:
        return {}
    if d.guard is not None and free_vars(d.guard) & {*dot.rows, *dot.columns}:
        return {}
    if is_converted(d):
        return {}
    if not (isinstance(plan.mapping, WarpPlan) and _has_few_rows(plan, unified[name])) or fallbacks.steps(reader):
        return {}
    if any(dot_of(x) is not None or chunks_of(x) is not None for x in unified[reader].defs):
        return {}
    clusters = (n for n, p in plans.items() if isinstance(p.mapping, WarpPlan) and p.mapping.cluster > 1)
    if any(reader_of(unified, n, {x.name: x for x in unified[n].defs}) == reader for n in clusters):
        return {}  # the reader is part of another cluster
    row, whole = loaded(plan, unified[name], chunks.axis)
    used = plan.mapping.stages * row * plan.axis(chunks.axis).tile + whole
    pushed = number * DType.F32.bytes * prod(a.tile for a in plan.axes if a.role == GRID)
    smem = used + pushed + COMBINING_BYTES
    resident = min(target.smem_sm // smem, _resident(plan.mapping, target))
    if smem > target.smem_block or _clusters(plan, unified[name], number) > target.clusters(number, resident):
        return {}
    last = combining(plans[reader], unified[reader], parts, plan, number, prod(plan.mapping.warps))
    known, others = _tiles(last, unified[reader])
    if _tiles(plan, unified[name]) != (number * known, others):
        return {}  # a block of the reader has several tiles, as those of a row that it normalises
    mapping = replace(plan.mapping, cluster=number, raster_order="natural")
    return {name: replace(plan, mapping=mapping), reader: last}


def is_converted(d: Def) -> bool:
    """Whether an operand of ``d`` has fewer than 16 bits, and MMAs do not multiply both as they are."""
    value = matrix_part(d)
    factors = [strip_conversions(e) for e in value.args] if isinstance(value, Op) else []
    kinds = (lambda t: t in BYTES), (lambda t: t.is_float8)
    as_they_are = any(all(isinstance(e, Load) and kind(e.dtype) for e in factors) for kind in kinds)
    return not as_they_are and any(ld.dtype.bits < DType.F16.bits for ld in loads(d.value))


def _clusters(plan: KernelPlan, unified: Unified, size: int) -> int:
    """The clusters of ``size`` blocks that ``plan`` has."""
    return prod(blocks(nominal(unified.extents[a.name]), a.tile) for a in plan.axes if a.role == GRID) // size


def _resident(mapping: WarpPlan, target: Limits) -> int:
    """The blocks of which a multiprocessor holds the registers, where threads use all that they may have."""
    return target.registers_sm // (prod(mapping.warps) * 32 * (target.registers_thread + 1))


def _tiles(plan: KernelPlan, unified: Unified) -> tuple[int, Counter[tuple[Extent, int]]]:
    """The blocks of ``plan``: along axes of known sizes, and the other axes with their tiles."""
    axes = [(unified.extents[a.name], a.tile) for a in plan.axes if a.role == GRID]
    known = prod(blocks(e, tile) for e, tile in axes if isinstance(e, int))
    return known, Counter((e, tile) for e, tile in axes if not isinstance(e, int))


def _has_few_rows(plan: KernelPlan, unified: Unified) -> bool:
    """Whether one tile has all rows, and another axis is divided."""

    def whole(a: AxisPlan) -> bool:
        extent = unified.extents[a.name]
        return isinstance(extent, int) and extent <= a.tile <= ROWS

    spread = [a for a in plan.axes if a.role == GRID and a.tile > 1]
    return len(spread) == 2 and sum(map(whole, spread)) == 1
