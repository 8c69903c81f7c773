"""Tiles of products of few rows whose other operand warpgroups convert, such as weights of 8 or 4 bits.

The rows are the columns of the instruction, so that the converted operand is the left one: its bytes come to shared
memory by TMA copies and become fragments in registers.  A block has 128 columns of the result for two warpgroups, all
rows, which it loads once, and long steps, because a warpgroup waits for its bytes, converts and multiplies them one
after another.  Blocks are few, so that the loop is split (``passes.selection.split_choice``).

With up to :data:`LEAST_ROWS` rows, warps that divide the terms are faster (:mod:`nautilus.planner.chunks.warp_chunks`);
with more rows, each of them would load all rows again.  On an H200, 64 x 8192 x 8192 with weights of 4 bits take 33 us
in two chunks of this form, and 47.5 with MMAs of warps in chunks (by the model 31.1 where warps divide the terms).
"""

from __future__ import annotations

from math import gcd

from nautilus.core.expr.nodes import Expr, Load, Op, free_vars, loads
from nautilus.core.index.groups import quotients
from nautilus.core.index.sizes import blocks
from nautilus.core.schedule import KernelPlan, WarpgroupPlan
from nautilus.core.schedule.mapping import WarpgroupEpilogue
from nautilus.core.types import DType
from nautilus.planner.products.boxes import Side
from nautilus.planner.products.few_rows import SPACE
from nautilus.planner.warpgroup import with_tiles
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.contractions.scales import matrix_part
from nautilus.scalar.analysis.definitions import Def
from nautilus.targets.limits import Limits

LEAST_ROWS, MOST_ROWS = 16, 64
COLUMNS, WARPGROUPS = 128, 2
STEP, SHORTEST = 128, 64
STEPS = 8  # fewest steps of a loop
ROWS = 8  # columns of an instruction are a multiple of it
LEAST_STAGES, MOST_STAGES = 3, 6
_HALVES = 2  # elements that share a byte


def converted_gemm(
    plan: KernelPlan, unified: Unified, limits: Limits, row: Side, column: Side, loop: str, d: Def
) -> KernelPlan | None:
    """``plan`` with such tiles for the product ``d``; None where it has another form."""
    terms, rows, columns = unified.extents[loop], row.extent, column.extent
    if not isinstance(terms, int) or not isinstance(unified.extents[row.main], int) or len(row.axes + column.axes) > 2:
        return None
    if not LEAST_ROWS < rows <= MOST_ROWS or columns < COLUMNS or terms < STEPS * STEP:
        return None
    step = _step(d, row.main, column.main, loop)
    if step < SHORTEST:
        return None
    tile = blocks(rows, ROWS) * ROWS
    result = max(x.buffer.dtype.bytes for x in unified.defs)
    # accumulators of f32 fill whole sectors
    epilogue: WarpgroupEpilogue = "tma" if result < DType.F32.bytes else "direct"
    room = limits.smem_block - SPACE - (2 * result * tile * COLUMNS if epilogue == "tma" else 0)
    stages = min(MOST_STAGES, room // (step * (DType.F16.bytes * tile + COLUMNS)))
    if stages < LEAST_STAGES:
        return None
    mapping = WarpgroupPlan(
        warpgroups=WARPGROUPS, stages=stages, epilogue=epilogue, pipeline_mma=False, raster_order="grouped"
    )
    return with_tiles(plan, {row.main: tile, column.main: COLUMNS, loop: step}, mapping)


def _step(d: Def, row: str, column: str, loop: str) -> int:
    """The step: it lies within the groups that share a scale; 0 where ``d`` is no product of this form.

    The operand with the columns is computed from one tensor of 8 or 4 bits whose rows run along the loop, and from
    numbers that whole steps have in common.
    """
    value = matrix_part(d)
    sides = value.args if isinstance(value, Op) and value.op == "mul" else ()
    tensors = [e for e in map(_bare, sides) if isinstance(e, Load) and e.dtype.is_half and row in free_vars(e)]
    made = [e for e in map(_bare, sides) if isinstance(e, Op) and e.dtype.is_half and column in free_vars(e)]
    if len(tensors) != 1 or len(made) != 1:
        return 0
    step, found = STEP, list[Load]()
    for ld in loads(made[0]):
        groups = [n for e in ld.index for n in quotients(e, loop)]
        if any(n in (0, _HALVES) for n in groups):
            found.append(ld)
        step = gcd(step, *(n for n in groups if n > _HALVES))
    whole = len(found) == 1 and found[0].dtype.bytes == 1 and loop in free_vars(found[0].index[-1])
    return step if whole else 0


def _bare(e: Expr) -> Expr:
    return e.args[0] if isinstance(e, Op) and e.op == "cast" else e
