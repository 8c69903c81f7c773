"""Rules for kernels that stream a long operand past a few rows: split-K, interleaved between the warps of a block.

The memory bandwidth bounds such a kernel (for example one new query against a cache of keys), and a few rows issue
too few outstanding loads to saturate it.  The reduction loop is split twice: into groups, one a block, and within a
group into the warps of the block (``split-k-update`` with ``interleave``, ``combine-in-block``).  Tiles are assigned to
the warps in rotation, so that a block reads one contiguous stream.  Each warp has a pipeline of its own, and the warps
combine their partial results in shared memory.

Measured on an H200 (16-bit operands, 4096 to 65536 keys; a multiprocessor loads about 70 GB/s):

* a warp reads :data:`STAGE` bytes a step, three stages ahead: fewer stages cost 2 to 13%, smaller steps 4%;
* a block has four warps where there is one block a multiprocessor, two where there are more blocks than
  multiprocessors and two blocks share one;
* bytes that become 16-bit operands pass through registers, without stages: there are twice as many warps, with half
  the step, so that some load while others compute (predicted, not measured);
* there are as few groups as saturate the memory: up to about 4096 keys a second kernel costs more than 70 idle
  multiprocessors of 132;
* two groups form a cluster, whose first block combines the partial results (``combine-in-cluster``) in 0.4 us, where
  a second kernel takes 1.7; clusters of four or eight blocks cost 6 to 10%, so more groups have a second kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd, prod

from nautilus.core.expr.nodes import Var, free_vars, loads
from nautilus.core.fallbacks import NO_FALLBACKS, Fallbacks
from nautilus.core.index.groups import count_elements
from nautilus.core.index.sizes import blocks
from nautilus.core.records import dataclass
from nautilus.core.schedule import AxisPlan, KernelPlan, WarpPlan
from nautilus.core.tiles import ceil_pow2, floor_pow2
from nautilus.planner.products.divided_columns import HELD
from nautilus.planner.products.dots import computed_operands, dot_of
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.chunks import Chunks, chunks_of
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import GRID, LOOP, TILE
from nautilus.targets.limits import MMA_ROWS, Limits
from nautilus.targets.rates import machine
from nautilus.targets.records import DEFAULT_TARGET

_RATES = machine(DEFAULT_TARGET)  # the device that the study measured
STAGE = 16 << 10  # bytes of one step of a warp
STAGES = 3
WARPS, PAIR = 4, 2  # of a block alone on a multiprocessor, and of a block that shares it with another
COMPUTED = 2048  # elements of a computed operand in a step of a warp: 64 registers of f32 a thread
SHORTEST = 256  # elements of the shortest loop that is split
MULTIPROCESSOR = _RATES.load_rate  # bytes a second that one multiprocessor loads
BANDWIDTH = _RATES.dram_read  # bytes a second of the memory
COMBINE = 2.3e-6  # seconds of a second kernel after the first
MULTIPROCESSORS = 108  # multiprocessors of a target that does not state the number
CLUSTER = 2  # blocks that combine partial results
COMBINING_BYTES = 8 << 10  # bytes of shared memory for barriers and for what the combination in a cluster needs
_SMALL = 4 << 10  # bytes of barriers, of small partial results and between buffers
_RESERVE = 20 << 10  # bytes of shared memory for the resident rows of all warps and for small partial results


@dataclass(frozen=True, slots=True)
class Cut:
    """``groups`` of interleaved chunks, one for each of ``warps``, in tiles of ``step`` elements."""

    groups: int
    warps: int
    step: int


def cut(plan: KernelPlan, unified: Unified, loop: str, grid: int, row: int, results: int, target: Limits) -> Cut | None:
    """The split of the loop of ``plan``; None where the rule does not apply to the kernel.

    ``grid``: blocks of the unsplit kernel; ``row``: bytes that one of them reads for each element of the loop;
    ``results``: bytes of the results of all of them.
    """
    extent = unified.extents[loop]
    if not isinstance(extent, int) or not few_rows(plan, unified) or not target.async_copy or extent < SHORTEST:
        return None
    many = target.multiprocessors or MULTIPROCESSORS
    more = 2 if _converts(unified, loop) else 1
    warps = more * (PAIR if grid > many else WARPS)
    # a few bytes beside the rows, such as the index of a page, do not halve the step
    step = max(MMA_ROWS, min(128, floor_pow2(STAGE * 17 // 16 // max(1, more * row))))
    computed, widest = _computed(plan, unified, loop)

    def fits(warps: int, step: int) -> bool:
        return warps * step * max(row * 2, computed) + _RESERVE // WARPS * max(WARPS, warps) <= target.smem_block

    while step > MMA_ROWS and computed and (step * widest > COMPUTED or not fits(warps, step)):
        step //= 2
    while warps > 1 and not fits(warps, step):
        warps //= 2
    if warps < PAIR or blocks(extent, step) < 2 * warps:
        return None
    rounds = blocks(extent, step * warps)  # iterations of the warps of one block over the whole loop
    most = min(max(1, many * more * WARPS // warps // grid), rounds // 2)

    def seconds(groups: int) -> float:
        busy = min(many, grid * groups)
        together = 2 * groups * results / BANDWIDTH + COMBINE if groups > 1 else 0.0
        return grid * extent * row / min(BANDWIDTH, busy * MULTIPROCESSOR) + together

    # groups of unequal length would need conditions, and their pipelines would differ in length
    whole = [n for n in range(1, most + 1) if rounds % n == 0]
    return Cut(min(whole, key=seconds), warps, step)


def _converts(unified: Unified, loop: str) -> bool:
    """Whether a product multiplies elements of 8 bits along the loop with longer ones."""
    products = [{ld.dtype.bytes: ld for ld in d.reads()} for d in unified.defs if dot_of(d) is not None]
    return any(1 in found and loop in free_vars(found[1]) and len(found) > 1 for found in products)


def _computed(plan: KernelPlan, unified: Unified, loop: str) -> tuple[int, int]:
    """Of the operands of products that are computed from tensors: bytes of shared memory for each element of the loop,
    and elements of the widest one that several tensors are read for, which needs registers of f32.  A table of pages,
    which gives places, is none of them.

    Those that are unpacked have two stages of bytes beside their results.
    """
    tiles = {a.name: a.tile for a in plan.axes if a.name != loop}
    size, widest = 0, 0
    for operand, every in computed_operands(unified.defs, loop):
        places = {x for ld in every for at in ld.index for x in loads(at)}
        read = [ld for ld in every if ld not in places]
        elements = prod(tiles.get(x, 1) for x in free_vars(operand))
        counts = [count_elements(ld, tiles) for ld in read if ld.dtype.bytes == 1]
        size += operand.dtype.bytes * elements + 2 * sum(n for n in counts if n < elements)
        widest = max(widest, elements if len(read) > 1 else 0)
    return size, widest


def few_rows(plan: KernelPlan, unified: Unified) -> bool:
    """Whether all rows of a kernel's matrix products are in one smallest tile, and no other grid axis is tiled.

    A warp has all columns of them, as far as its registers go.
    """
    if any(a.role == TILE and a.tile > HELD for a in plan.axes):
        return False
    spread = [a for a in plan.axes if a.role == GRID and a.tile > 1]
    dots = [dot for d in unified.defs if (dot := dot_of(d)) is not None]
    if not dots or len(spread) != 1 or spread[0].tile != MMA_ROWS:
        return False
    extent = unified.extents[spread[0].name]
    alike = all(spread[0].name in (*dot.rows, *dot.columns) for dot in dots)
    return isinstance(extent, int) and extent <= MMA_ROWS and alike and plan.mapping.engine == "warp"


# -- the kernels of a split loop --------------------------------------------------------------


def joined(
    plans: Mapping[str, KernelPlan],
    unified: Mapping[str, Unified],
    target: Limits,
    fallbacks: Fallbacks = NO_FALLBACKS,
) -> dict[str, KernelPlan]:
    """``plans`` by name, with interleaved chunks as warps of a block, and the tiles of their readers to match.

    ``fallbacks``: the fallbacks of kernels that failed later as clusters.
    """
    out = dict(plans)
    for name, plan in plans.items():
        found = interleaved_chunks(unified[name])
        if found is None or not few_rows(plan, unified[name]):
            continue
        parts = _parts(unified[name], found.by)
        reader = reader_of(unified, name, parts)
        if reader is None:
            continue
        out[name] = _warp_of_block(plan, unified[name], found, target)
        out[reader] = combining(out[reader], unified[reader], parts, out[name], found.interleave, found.interleave)
        if not fallbacks.steps(reader):
            out |= cluster(out, unified, reader, shared_bytes(out[name], unified[name], found), target)
    return out


def _parts(unified: Unified, by: str) -> dict[str, Def]:
    """The results that a kernel computes in chunks, which axis ``by`` numbers."""
    return {d.name: d for d in unified.defs if d.axis(by) is not None}


def reader_of(unified: Mapping[str, Unified], name: str, parts: Mapping[str, Def]) -> str | None:
    """The only kernel that reads ``parts`` of kernel ``name``; None where there are several."""
    readers = [n for n, u in unified.items() if n != name and _reads(u, parts)]
    return readers[0] if len(readers) == 1 else None


def _reads(unified: Unified, names: Mapping[str, Def]) -> bool:
    return any(ld.buffer in names for d in unified.defs for ld in d.reads())


def shared_bytes(plan: KernelPlan, unified: Unified, chunks: Chunks) -> int:
    """Bytes of shared memory of a block: the pipelines of its warps, and their resident operands."""
    row, resident = loaded(plan, unified, chunks.axis)
    return chunks.interleave * (plan.mapping.stages * row * plan.axis(chunks.axis).tile + resident)


def cluster(
    plans: Mapping[str, KernelPlan], unified: Mapping[str, Unified], name: str, used: int, target: Limits,
    even: bool = False,
) -> dict[str, KernelPlan]:  # fmt: skip
    """Plans of kernel ``name``, whose blocks combine warps, and of its reader, where two such blocks form a cluster.

    ``used``: bytes of shared memory of its blocks; the partial results of the cluster follow them.  ``even``: as of
    :func:`combining`.
    """
    groups = next((c for d in unified[name].defs if (c := chunks_of(d)) is not None), None)
    if groups is None or unified[name].extents[groups.by] != CLUSTER or not target.warpgroup:
        return {}
    plan, parts = plans[name], _parts(unified[name], groups.by)
    reader = reader_of(unified, name, parts)
    if reader is None:
        return {}
    tiles = {a.name: a.tile for a in plan.axes}
    pushed = sum(d.buffer.dtype.bytes * prod(tiles[a.name] for a in d.par) for d in parts.values())
    if used + CLUSTER * pushed + _SMALL > target.smem_block:
        return {}
    assert isinstance(plan.mapping, WarpPlan)
    last = combining(plans[reader], unified[reader], parts, plan, CLUSTER, prod(plan.mapping.warps), even)
    assert isinstance(last.mapping, WarpPlan)
    if last.mapping.warps[1] > CLUSTER * max(1, last.axes[-1].tile // 32):  # some warps would have no work
        return {}
    return {name: replace(plan, mapping=replace(plan.mapping, cluster=CLUSTER)), reader: last}


def interleaved_chunks(unified: Unified) -> Chunks | None:
    """The interleaved chunks of a kernel, if it has any."""
    return next((c for d in unified.defs if (c := chunks_of(d)) is not None and c.tile), None)


def _warp_of_block(plan: KernelPlan, unified: Unified, chunks: Chunks, target: Limits) -> KernelPlan:
    """The plan of one warp: its pipeline, and partial results that go directly to the combination."""
    row, _ = loaded(plan, unified, chunks.axis)
    step = row * plan.axis(chunks.axis).tile
    room = (
        target.smem_sm // 2 if chunks.interleave <= PAIR else target.smem_block
    ) - _RESERVE // WARPS * chunks.interleave
    stages = max(2, min(STAGES, room // max(1, step * chunks.interleave)))
    mapping = WarpPlan(warps=(1, 1), stages=stages, epilogue="direct", combine_in_block=True)
    axes = tuple(replace(a, tile=chunks.tile) if a.name == chunks.axis else a for a in plan.axes)
    return replace(plan, axes=axes, rescale_policy="auto", mapping=mapping)


def loaded(plan: KernelPlan, unified: Unified, loop: str) -> tuple[int, int]:
    """Bytes that a block loads for each element of ``loop``, and bytes of its resident operands."""
    tiles = {a.name: a.tile for a in plan.axes if a.name != loop}
    names = {d.name for d in unified.defs}
    row = resident = 0
    for ld in {ld for d in unified.defs for ld in d.reads() if ld.buffer not in names}:
        axes = free_vars(ld)
        size = ld.dtype.bytes * count_elements(ld, tiles)
        row, resident = (row + size, resident) if loop in axes else (row, resident + size)
    return row, resident


def combining(
    plan: KernelPlan, unified: Unified, parts: Mapping[str, Def], made: KernelPlan, chunks: int, count: int,
    even: bool = False,
) -> KernelPlan:  # fmt: skip
    """The combining kernel: a block has the rows of one block that computes ``chunks``, and its ``count`` warps.

    ``even``: tiles are powers of two, which all warps divide.
    """
    tiles: dict[str, int] = {}
    chunk = ""
    for ld in (ld for d in unified.defs for ld in d.reads() if ld.buffer in parts):
        for e, a in zip(ld.index, parts[ld.buffer].par, strict=True):
            if isinstance(e, Var):
                own = made.axis(a.name)
                tiles[e.name] = own.tile
        chunk = next((x.name for d in unified.defs for x in d.red), chunk)
    if unified.extents.get(chunk) == chunks:  # one step combines all chunks, without a loop
        whole = tuple(AxisPlan(a.name, TILE, chunks) if a.name == chunk else a for a in plan.axes)
        plan = replace(plan, axes=whole, phases=tuple((d.name,) for d in unified.defs))
    axes = tuple(_tile_of(a, unified, tiles, chunks, even) for a in plan.axes)
    free = prod(a.tile for a in axes if a.name != chunk and a.role != LOOP)
    rows = max((a.tile for a in axes if a.role == GRID), default=1)
    out = unified.defs[-1].buffer.dtype.bytes
    along = gcd(rows, count)
    warps = (along, count // along)
    most = free // (32 * count)
    if count > chunks:  # warps beyond the number of chunks divide the columns
        most = min(most, axes[-1].tile // (32 * warps[1]))
    vec = max(1, min(16 // out, floor_pow2(most) if most else 1))
    mapping = WarpPlan(warps=warps, stages=0, epilogue="direct", vector_bytes=vec * out)
    return replace(plan, axes=axes, mapping=mapping)


def _tile_of(a: AxisPlan, unified: Unified, tiles: Mapping[str, int], chunks: int, even: bool) -> AxisPlan:
    """A grid axis with the tile of one producing block; a loop with one step."""
    if a.role == LOOP:
        return replace(a, tile=chunks)
    if a.role != GRID or a.name not in tiles:
        return a
    extent = unified.extents[a.name]
    if tiles[a.name] == 1 or not isinstance(extent, int):
        return replace(a, tile=1)
    return replace(a, tile=min(ceil_pow2(extent) if even else extent, tiles[a.name]))
