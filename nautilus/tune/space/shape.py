"""The structure of a kernel's plan, and the sizes that the values of its tuning parameters depend on."""

from __future__ import annotations

from math import prod

from nautilus.core.records import dataclass
from nautilus.core.schedule import KernelPlan
from nautilus.planner.products.dots import Dot, dot_of
from nautilus.planner.warpgroup import extent
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.derived_names import GRID, LOOP
from nautilus.targets.limits import Limits
from nautilus.tune.space.loop_structures import loop_of

GEMM, BACK_TO_BACK_GEMM, ROWS = "gemm", "back_to_back_gemm", "rows"


@dataclass(frozen=True, slots=True)
class KernelShape:
    """``kind``: gemm (rows and columns are spread over blocks), back_to_back_gemm (rows only), rows (others).

    ``width``: columns of the accumulators that a back-to-back GEMM's loop feeds; ``deep``: elements of a row of its
    resident operands; ``bytes``: of an operand's element; ``repaired``: the loop has repair terms.
    """

    kind: str
    unified: Unified
    limits: Limits
    row: str | None
    column: str | None
    loop: str | None
    gemms: int
    width: int
    deep: int
    bytes: int
    uneven: bool
    repaired: bool

    def size(self, axis: str | None) -> int:
        """Elements of ``axis``."""
        return 1 if axis is None else extent(self.unified, axis)


def shape_of(plan: KernelPlan, unified: Unified, limits: Limits) -> KernelShape:
    """The structure of ``plan``."""
    dots = {d.name: dot for d in unified.defs if (dot := dot_of(d)) is not None}
    loop = loop_of(plan)
    spread = {a.name for a in plan.axes if a.role == GRID and a.tile > 1}
    rows = {x for dot in dots.values() for x in dot.rows if x in spread}
    columns = {x for dot in dots.values() for x in dot.columns if x in spread}
    kind, row, column = ROWS, None, None
    if dots and loop is not None and len(rows) == 1 and len(columns) == 1 and rows != columns:
        kind, row, column = GEMM, next(iter(rows)), next(iter(columns))
    elif dots and loop is not None and len(rows | columns) == 1 and len(spread) == 1:
        kind, row = BACK_TO_BACK_GEMM, next(iter(spread))
    width, deep = _operand_sizes(plan, unified, dots, row, loop)
    size = max((ld.dtype.bytes for d in unified.defs if d.name in dots for ld in d.reads()), default=2)
    return KernelShape(
        kind, unified, limits, row, column, loop, len(dots), width, deep, size,
        plan.mapping.raster_order == "longest-first", _repaired(plan, unified, loop),
    )  # fmt: skip


def _operand_sizes(
    plan: KernelPlan, unified: Unified, dots: dict[str, Dot], row: str | None, loop: str | None
) -> tuple[int, int]:
    sums = [d for d in unified.defs if d.name in dots and all(a.name != loop for a in d.par)]
    width = sum(prod(plan.axis(a.name).tile for a in d.par if a.name not in (row, loop)) for d in sums)
    deep = sum(prod(plan.axis(x).tile for x in dot.inner if x != loop) for dot in dots.values())
    return width, deep


def _repaired(plan: KernelPlan, unified: Unified, loop: str | None) -> bool:
    """Whether a reduction of the loop reads another reduction of the same loop."""
    reducers = {d.name for d in unified.defs if any(a.name == loop for a in d.red)}
    for ops in plan.phases:
        seen: set[str] = set()
        for d in (unified.get(o) for o in ops):
            reads = {ld.buffer for ld in d.reads()}
            if d.name in reducers and reads & seen:
                return True
            if d.name in reducers or reads & seen:
                seen.add(d.name)
    return False


def others(shape: KernelShape, plan: KernelPlan) -> int:
    """Points of the grid axes that are not tiled."""
    tiled = {shape.row, shape.column}
    return prod(shape.size(a.name) for a in plan.axes if a.role == GRID and a.name not in tiled)


__all__ = ["BACK_TO_BACK_GEMM", "GEMM", "GRID", "LOOP", "ROWS", "KernelShape", "others", "shape_of"]
