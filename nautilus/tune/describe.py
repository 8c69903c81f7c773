"""Description of a schedule: the structure of each kernel, and the source of its numbers.

The description derives from the schedule, the MA-tile module and the cost estimate alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nautilus.core.schedule import KernelPlan, said
from nautilus.core.text.words import counted
from nautilus.cost.accesses import shares_loads
from nautilus.cost.model import Estimate, KernelEstimate
from nautilus.cost.registers import bodies, peak
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.async_ops import TmaLoad
from nautilus.ma_tile.ir.instruction_tables import MMA
from nautilus.ma_tile.ir.ops import MemKernel, MemModule
from nautilus.planner.draft import Draft
from nautilus.planner.rowwise.rows import MAX_ROW
from nautilus.scalar.analysis.definitions import read_defs
from nautilus.scalar.analysis.derived_names import LOOP
from nautilus.scalar.analysis.domains import scan_of
from nautilus.scalar.ir import Program
from nautilus.targets.limits import limits
from nautilus.tune.space import loop_structures
from nautilus.tune.space.fusion import unified_of
from nautilus.tune.space.shape import BACK_TO_BACK_GEMM, GEMM, ROWS, KernelShape, shape_of

#: (structure, engine) -> the source of the default numbers
SOURCES: Mapping[tuple[str, str], str] = {
    (GEMM, "warpgroup"): "the tile with the best measured rate times the useful share of whole waves (H200, 25 "
    "tiles, 5 shapes); as many pipeline stages as shared memory holds; rasterisation in groups that share L2",
    (BACK_TO_BACK_GEMM, "warpgroup"): "two consumer warpgroups of 64 rows, three for narrow accumulators; loop steps "
    "of 128, 64 for wide accumulators; two pipeline stages; static tiles for even work, dynamic tiles longest first "
    "for uneven work; ping-pong where the MMA time is short beside the rest (H200, about 900 variants)",
    (GEMM, "warp"): "blocks of 64 x 64 warp tiles; as many pipeline stages as fit (H200, mma.sync kernels)",
    (BACK_TO_BACK_GEMM, "warp"): "32 rows a warp where accumulators fit in registers, else 16 (H200, mma.sync kernels)",
}
#: why the tiles of long rows that are read again are large
LONG_ROWS = "a row that is read again is one tile: H200, 131 us where a loop takes 199"
LONG_STEPS = "the rows of all resident blocks stay in L2: H200, 193 us where steps of 4096 take 269"
_REDUCTIONS = {
    loop_structures.ROW: "the reduced axis lies in one tile: no reduction loop, no repair term",
    loop_structures.ROLLING: "one reduction loop: repair terms correct the running results (rolling update)",
    loop_structures.PASSES: "one reduction loop for each dependent reduction: operands are recomputed",
}


def describe_kernel(
    program: Program,
    plan: KernelPlan,
    kernel: MemKernel,
    found: KernelEstimate,
    arch: str,
    joined: tuple[str, ...] = (),
) -> dict[str, Any]:
    """One kernel as JSON data. ``joined``: definitions that fused kernels compute in its block or cluster."""
    unified = unified_of(program, plan.ops) if set(plan.ops) <= read_defs(program).keys() else None
    shape = shape_of(plan, unified, limits(arch)) if unified is not None else None
    mode = loop_structures.mode_of(plan, unified) if unified is not None and len(plan.ops) > 1 else None
    live = [peak(kernel, body) for _, body, _ in bodies(kernel, limits(arch))]
    return {
        "name": plan.name,
        "computes": [*joined, *plan.ops],
        "structure": shape.kind if shape is not None else "other",
        "reductions": _REDUCTIONS.get(mode or "", ""),
        "axes": [{"name": a.name, "role": a.role, "tile": a.tile} for a in plan.axes],
        "engine": plan.mapping.engine,
        "options": said(plan.mapping),
        "parts": sum(_in_parts(op) for op in ma.walk_ops(kernel.body)),
        "stored_parts": any(_stores_parts(op, program) for op in ma.walk_ops(kernel.body)),
        "roles": roles(kernel),
        "order": order(plan, kernel),
        "pipelines": [
            {"buffer": s.name, "stages": s.stages, "stage_bytes": s.stage_bytes, "bytes": s.bytes} for s in kernel.smem
        ],
        "threads": kernel.threads,
        "blocks": found.blocks,
        "tiles": found.tiles,
        "waves": round(found.waves, 2),
        "blocks_per_multiprocessor": found.resident,
        "registers": found.registers,
        "live_registers": max(live, default=0),
        "shared_bytes": kernel.smem_bytes,
        "source": _source(plan, shape, kernel.threads),
    }


def _source(plan: KernelPlan, shape: KernelShape | None, threads: int) -> str:
    """The rule that gives ``plan`` its default numbers."""
    if shape is None or (shape.kind, plan.mapping.engine) not in {*SOURCES, (ROWS, "warp")}:
        return "general default rules"
    if shape.kind != ROWS:
        return SOURCES[shape.kind, plan.mapping.engine]
    scans = {d.name: s for d in shape.unified.defs if (s := scan_of(d)) is not None}
    tile = Draft(shape.unified, {a.name: a for a in plan.axes}, scans=scans).volume()
    each, looped = tile / threads, any(a.role == LOOP for a in plan.axes)
    step, why = ("of a step", LONG_STEPS) if looped else ("in registers", LONG_ROWS)
    sizes = f"{f'{each:.3g}' if each < 1 else int(each)} elements a thread, {tile} a block"
    return f"{sizes} {step} ({why})" if tile > MAX_ROW else f"{sizes} (H200, row-wise kernels at 95 to 99% of copy)"


def _in_parts(op: ma.MemOp) -> bool:
    return isinstance(op, ma.MmaOp) and op.instr in MMA and MMA[op.instr].parts > 1


def _stores_parts(op: ma.MemOp, program: Program) -> bool:
    """Whether ``op`` loads a tensor that ``program`` lacks because a pass below it stores the parts of operands."""
    return isinstance(op, TmaLoad) and op.buffer not in {b.name for b in program.buffers}


def roles(kernel: MemKernel) -> str:
    """The warp specialisation of ``kernel`` as text."""
    found = [r for op in kernel.body if isinstance(op, ma.RolesOp) for r in op.roles]
    if not found:
        return counted(kernel.warps, "warp") + (" without specialisation" if kernel.warps > 1 else "")
    texts = []
    for r in found:
        each = (r.last_warp - r.first_warp) // r.consumers
        what = "one thread issues copies" if r.single else f"{r.consumers} x {counted(each, 'warp')}"
        texts.append(f"{r.name}: {what}" + (f", {r.registers} registers a thread" if r.registers else ""))
    return "; ".join(texts)


def order(plan: KernelPlan, kernel: MemKernel) -> str:
    """The assignment of tiles to blocks as text."""
    m = plan.mapping
    tiles = next((op for op in ma.walk_ops(kernel.body) if isinstance(op, ma.TileSchedulerOp)), None)
    text = m.raster_order if m.raster_order != "grouped" else f"rasterised in groups of {m.raster_group} tiles"
    if m.l2_supertiles > 1:
        text += f", {m.l2_supertiles} L2 supertiles"
    if kernel.cluster > 1:
        text += (
            f", clusters of {kernel.cluster} {'multicast loads' if shares_loads(kernel) else 'combine partial results'}"
        )
    return f"{text}, " + (f"persistent blocks, {tiles.order} tiles" if tiles is not None else "one block a tile")


def kernel_lines(k: Mapping[str, Any]) -> list[str]:
    """The text of :func:`describe_kernel`, one line an entry."""
    axes = ", ".join(f"{a['name']} {a['role']}" + (f" {a['tile']}" if a["tile"] > 1 else "") for a in k["axes"])
    pipelines = ", ".join(f"{p['buffer']} {p['stages']} x {_bytes(p['stage_bytes'])}" for p in k["pipelines"])
    tiles, blocks = counted(k["tiles"], "tile"), counted(k["blocks"], "block")
    resident = counted(k["blocks_per_multiprocessor"], "block")
    lines = [
        f"kernel {k['name']}: computes {' '.join(k['computes'])}",
        f"  axes       {axes}",
        f"  engine     {k['engine']} ({k['structure']}); {k['roles']}",
        f"  order      {k['order']}: {tiles} on {blocks}, {counted(k['waves'], 'wave')}",
        f"  resources  {k['threads']} threads, about {k['live_registers']} live registers a thread, "
        f"{k['shared_bytes']} bytes of shared memory, {resident} a multiprocessor",
    ]
    if pipelines:
        lines.append(f"  shared     {pipelines}")
    options = ", ".join(f"{name} {_shown(value)}" for name, value in k["options"].items() if name != "engine")
    if options:
        lines.append(f"  options    {options}")
    if k["parts"]:
        lines.append("  products   of f32 in two parts of tf32, three MMAs each (decompose_operands)")
    if k["stored_parts"]:
        lines.append("  products   of f32 in three parts of bf16, six MMAs each; kernels before it store the parts")
    if k["reductions"]:
        lines.append(f"  reductions {k['reductions']}")
    return [*lines, f"  rule       {k['source']}"]


def _bytes(count: int) -> str:
    return f"{count / 1024:.4g} KB" if count >= 1024 else counted(count, "byte")


def _shown(value: object) -> str:
    """An option's value as text."""
    if isinstance(value, tuple):
        return " x ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def estimate_data(found: Estimate, module: MemModule) -> dict[str, Any]:
    """The estimate as JSON data; times in microseconds."""
    return {
        "microseconds": round(found.seconds * 1e6, 3),
        "tflops": round(found.flops / found.seconds / 1e12, 2) if found.seconds else 0.0,
        "bytes": found.bytes,
        "kernels": [
            {
                "name": k.name,
                "microseconds": round(k.seconds * 1e6, 3),
                "bound": k.bound,
                "clock_ghz": round(k.clock / 1e9, 3),
                "l2_bytes": k.l2_bytes,
                "dram_bytes": k.dram_bytes,
                "parts_microseconds": {n: round(s * 1e6, 3) for n, s in k.parts.items()},
            }
            for k in found.kernels
        ],
        "target": module.target,
    }
