"""Which dots of a kernel become warpgroup MMAs, and along which axis consumers share them.

Every dot whose result is a matrix must become one; otherwise the engine refuses the kernel, because the four
warps of a consumer share a matrix product in no other way.  Row axes are chosen as for other matrix
instructions (``ma_tile.lowering.dots``): an operand computed from another dot has its rows.
PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".

Few rows of the left operands are the columns of the instruction: a tile then has 64 or 128 columns for each consumer,
and as many rows as there are, in steps of 8.  So are 64 rows beside a right operand that is computed, such as weights
that are converted: its fragments are registers, and need no shared memory.

Consumers divide the rows of all products.  Where a tile has the rows of one consumer only, they divide the columns of
the widest product, whose accumulators the registers of one consumer do not hold; each of them then computes the
products without these columns for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NoReturn

from nautilus.core.errors import Obstacle, ScheduleError
from nautilus.core.records import dataclass
from nautilus.core.schedule import WarpgroupPlan
from nautilus.ma_tile.ir.async_ops import CONSUMER, GROUP_THREADS, GROUP_WARPS
from nautilus.ma_tile.ir.instruction_tables import WGMMA, operand_types
from nautilus.ma_tile.lowering.consumers import is_contraction_of_tensors
from nautilus.ma_tile.lowering.dots import DotPlan, as_operand, definitions, draft_dots
from nautilus.targets.limits import SHORT_DEPTH, THREAD_REGISTERS, WHOLE_DEPTH
from nautilus.vr_tile.ir import DotOp, ForOp, LoadOp, MapOp, TileKernel, results, walk_ops
from nautilus.vr_tile.rewriting.subtiles import combined

CONSUMER_ROWS = (64, 128)  # rows of an MMA that a consumer owns


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Dots by the name of their result; ``consumers`` divide tiles along ``divided`` (one: nothing is divided)."""

    dots: Mapping[str, DotPlan]
    divided: str
    consumers: int


def plan_warpgroup(kernel: TileKernel, mapping: WarpgroupPlan, strict: bool = False) -> GroupPlan:
    """The dots of ``kernel``. Raises ScheduleError that names the one that no instruction computes, and why.

    ``strict``: not by instructions whose sums have fewer bits than their type.
    """
    consumers = mapping.warpgroups if mapping.tile_scheduling == "cooperative" else 1
    ops = [op for op in walk_ops(kernel.body) if isinstance(op, DotOp)]
    sizes = {a.name: a.size for a in kernel.axes}
    drafts = draft_dots(kernel, WGMMA)
    matrices = [d for d in drafts.values() if d.is_matrix]
    if _has_rows_in_columns(matrices, sizes, consumers) or _computes_columns(kernel, matrices, sizes, consumers):
        drafts = draft_dots(kernel, WGMMA, turned=True)
    divided = _divided([d for d in drafts.values() if d.instr != "map"], sizes, consumers)
    parts = {divided: consumers}
    plans = {op.result.name: _checked(kernel, op, drafts[op.result.name], parts, strict) for op in ops}
    matrix = [(op, plans[op.result.name]) for op in ops if plans[op.result.name].instr != "map"]
    if not matrix:
        raise ScheduleError("no matrix product for the engine warpgroup", kernel=kernel.name)
    if consumers > 1:
        first, rows = matrix[0][0], matrix[0][1].m
        for op, plan in matrix:
            if plan.m != rows:
                other = f"%{first.result.name} along {rows}"
                reject(kernel, op, f"has rows along {plan.m}, {other}: consumers share one axis")
        _uncombined(kernel, divided)
    return GroupPlan(plans, divided, consumers)


def _has_rows_in_columns(drafts: list[DotPlan], sizes: Mapping[str, int], consumers: int) -> bool:
    """Whether consumers cover the columns of all products as rows, and their rows only as columns."""
    sides = {(d.m, d.n) for d in drafts}
    if len(sides) != 1:
        return False
    ((rows, columns),) = sides
    covered = tuple(consumers * r for r in CONSUMER_ROWS)
    return sizes[rows] not in (*covered, CONSUMER_ROWS[0]) and sizes[columns] in covered


def _computes_columns(kernel: TileKernel, drafts: list[DotPlan], sizes: Mapping[str, int], consumers: int) -> bool:
    """Whether the only product has a tensor of few rows, and columns that are computed from tensors."""
    defs = definitions(kernel.body)
    ops = [op for op in walk_ops(kernel.body) if isinstance(op, DotOp)]
    if len(ops) != 1 or len(drafts) != 1 or drafts[0].instr not in WGMMA:
        return False
    (draft,), (op,) = drafts, ops
    left, right = (
        as_operand(v, defs, operand_types(WGMMA[draft.instr], side)) for v, side in ((op.a, "a"), (op.b, "b"))
    )
    if draft.swap:
        left, right = right, left
    made = isinstance(defs.get(right.name), MapOp) and isinstance(defs.get(left.name), LoadOp)
    few, covered = sizes[draft.m] <= CONSUMER_ROWS[0], tuple(consumers * r for r in CONSUMER_ROWS)
    return made and few and sizes[draft.n] in covered


def _divided(drafts: list[DotPlan], sizes: Mapping[str, int], consumers: int) -> str:
    """The axis that ``consumers`` divide: the rows, or the columns of the widest product (module docstring)."""
    found = [d for d in drafts if d.is_matrix]
    if not found:
        return ""
    rows, widest = found[0].m, max(found, key=lambda d: sizes[d.n])
    few = consumers > 1 and sizes[rows] in CONSUMER_ROWS and sizes[rows] < consumers * CONSUMER_ROWS[0]
    return widest.n if few and sizes[widest.n] % consumers == 0 else rows


def reject(kernel: TileKernel, op: DotOp, reason: str, obstacle: Obstacle | None = None) -> NoReturn:
    """Raise ScheduleError that names the dot and the reason, with ``obstacle`` as data."""
    over = ", ".join(op.axes)
    tile = ", ".join(f"{a.name}: {a.size}" for a in op.result.type.axes)
    text = f"product %{op.result.name} [{tile}] over {over} {reason}"
    raise ScheduleError(text, kernel=kernel.name, span=op.span, obstacle=obstacle)


def _checked(kernel: TileKernel, op: DotOp, plan: DotPlan, parts: Mapping[str, int], strict: bool) -> DotPlan:
    """``plan`` for the four warps of a consumer. ``parts``: the number of consumers that divide an axis."""
    sizes = {a.name: a.size for a in kernel.axes}
    if len(op.result.type.axes) < 2:
        return plan  # a vector: elementwise work and a reduction
    if len(op.axes) != 1 or len(op.result.type.axes) != 2 or not plan.is_matrix:
        reject(kernel, op, "is not a product of two matrices")
    if plan.instr not in WGMMA:
        depth = sizes[plan.k]
        reject(kernel, op, f"of {op.a.type.dtype} and {op.b.type.dtype}, {depth} deep, has no warpgroup instruction")
    if strict and WGMMA[plan.instr].short:
        reject(kernel, op, f"by {plan.instr} has sums of fewer bits than {op.result.type.dtype}")
    most = WHOLE_DEPTH if op.acc is None else SHORT_DEPTH
    if WGMMA[plan.instr].short and sizes[plan.k] > most:
        reject(kernel, op, f"by {plan.instr} would add {sizes[plan.k]} products in few bits, more than {most}")
    consumers, across = parts.get(plan.m, 1), parts.get(plan.n, 1)
    if sizes[plan.m] not in tuple(consumers * r for r in CONSUMER_ROWS):
        rows = f"{sizes[plan.m]} rows along {plan.m}"
        reject(kernel, op, f"has {rows}, which {consumers} consumers of 64 or 128 rows cannot cover")
    step = WGMMA[plan.instr].n_step * across
    if sizes[plan.n] % step:
        reject(kernel, op, f"has {sizes[plan.n]} columns along {plan.n}, not a multiple of {step}")
    registers = sizes[plan.m] // consumers * sizes[plan.n] // across // GROUP_THREADS
    if registers > THREAD_REGISTERS:
        reject(kernel, op, f"takes {registers} registers of each thread for its result, of {THREAD_REGISTERS}")
    return replace(plan, warps=(GROUP_WARPS, 1))


def _uncombined(kernel: TileKernel, divided: str) -> None:
    """Consumers that divide an axis do not synchronise, so no op may combine along it, other than products of tensors.

    Every consumer computes such a product for itself (:mod:`.consumers`).
    """
    for op in walk_ops(kernel.body):
        if divided in combined(op) and not is_contraction_of_tensors(kernel, op):
            detail = f"%{results(op)[0].name} combines along {divided}, which the consumers divide"
            raise ScheduleError(detail, kernel=kernel.name)
    taken = {a.name for a in kernel.axes} | {g.var for g in kernel.grid}
    if CONSUMER in taken | {op.var for op in walk_ops(kernel.body) if isinstance(op, ForOp)}:
        raise ScheduleError(f"the name {CONSUMER!r} is taken by an axis", kernel=kernel.name)
