"""How each dot of a kernel is computed, and which warps own which part of the results.

``instr`` of a :class:`DotPlan`: a matrix instruction of ``ma_tile.ir.instruction_tables.MMA`` (of ``WGMMA`` for the
engine ``warpgroup``, whose plans ``ma_tile.lowering.warpgroup_dots`` makes from the same drafts); ``fma``, scalar
products from shared memory; or ``map``, an elementwise product and a reduction in registers (vector results, several
contracted axes).

Choice of the row axis M of a result: an operand that is itself computed from another dot keeps its
free axis as M, and so does the dot that it came from (the accumulator then becomes the next left
operand inside each thread); a reduced axis is best N; otherwise the left operand's axis is M.
One warp grid serves all dots of a kernel where their tiles allow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from nautilus.core.expr.conditions import conjuncts
from nautilus.core.index.linear import first_positions
from nautilus.core.records import dataclass
from nautilus.core.schedule import WarpPlan
from nautilus.core.types import HALVES, DType
from nautilus.ma_tile.ir.instruction_tables import MMA, WGMMA, MmaInstr, WgInstr, operand_types
from nautilus.targets.limits import SHORT_DEPTH
from nautilus.vr_tile.analysis.computed_from import sources_of
from nautilus.vr_tile.ir import DotOp, ForOp, LoadOp, MapOp, ReduceOp, TileKernel, TileOp, Value, results, walk_ops

Grid = tuple[int, int]


@dataclass(frozen=True, slots=True)
class DotPlan:
    """``m``, ``n``: result axes as rows and columns; ``swap``: the right operand holds the rows.

    ``slices``: an axis of both operands and of the result that numbers the warps, each of which has terms of its own.
    """

    instr: str
    m: str
    n: str
    k: str
    warps: Grid
    swap: bool = False
    slices: str = ""

    @property
    def is_matrix(self) -> bool:
        """Whether the result has rows and columns."""
        return bool(self.m and self.n)


def definitions(body: tuple[TileOp, ...]) -> dict[str, TileOp]:
    """Value name -> the op that defines it; loop arguments map to their loop."""
    out: dict[str, TileOp] = {}
    for op in walk_ops(body):
        for v in results(op):
            out[v.name] = op
        if isinstance(op, ForOp):
            out.update({arg.name: op for arg, _ in op.carried})
    return out


def unwidened(v: Value, defs: Mapping[str, TileOp]) -> Value:
    """``v`` before an exact widening of a type that matrix instructions read (f16 -> f32: same products)."""
    op = defs.get(v.name)
    match op:
        case MapOp(op="cast", args=(arg,)) if (
            arg.type.dtype in _OPERANDS and v.type.dtype is arg.type.dtype.compute and arg.type.axes == v.type.axes
        ):
            return arg
    return v


_OPERANDS = frozenset(t for table in (MMA, WGMMA) for i in table.values() for t in i.operands)


def forms(v: Value, defs: Mapping[str, TileOp]) -> tuple[Value, ...]:
    """``v``, and the values that it is an exact widening of: products of any of them are the same.

    A 16-bit float that was widened may also have been rounded to tf32, which holds it exactly.
    """
    out = [v]
    while True:
        inner = unwidened(out[-1], defs)
        op = defs.get(out[-1].name)
        if inner is out[-1] and isinstance(op, MapOp) and inner.type.dtype is DType.TF32:
            source = unwidened(op.args[0], defs)
            if op.op in ("cast", "narrow") and source.type.dtype in HALVES and source.type.axes == v.type.axes:
                inner = source
        if inner is out[-1]:
            return tuple(out)
        out.append(inner)


def as_operand(v: Value, defs: Mapping[str, TileOp], types: frozenset[DType]) -> Value:
    """The form of ``v`` that an instruction for operands of ``types`` reads."""
    return next((x for x in forms(v, defs) if x.type.dtype in types), unwidened(v, defs))


def terms(op: DotOp, plan: DotPlan, defs: Mapping[str, TileOp], depth: int) -> int | None:
    """The terms of ``op`` that a wgmma multiplies: as many of its steps as no operand is loaded as zeros after.

    ``depth``: all terms, for which the result is None.
    """
    if plan.instr not in WGMMA:
        return None
    step, whole = WGMMA[plan.instr].k, depth if op.terms is None else min(depth, op.terms)
    for v in (op.a, op.b):
        load = defs.get(forms(v, defs)[-1].name)
        for c in conjuncts(load.mask) if isinstance(load, LoadOp) else ():
            found = first_positions(c, plan.k)
            whole = whole if found is None else min(whole, found)
    kept = max(-(-whole // step), 1) * step
    return kept if kept < depth else None


def plan_dots(kernel: TileKernel, mapping: WarpPlan, short: bool = True) -> dict[str, DotPlan]:
    """A plan for each dot, by the name of its result. ``short``: also by instructions whose sums have few bits."""
    sizes = {a.name: a.size for a in kernel.axes}
    drafts = draft_dots(kernel, {name: i for name, i in MMA.items() if short or not i.short})
    grid = _common_grid([d for d in drafts.values() if d.is_matrix and not d.slices], sizes, mapping.warps)
    return {name: _finalise(d, sizes, grid) for name, d in drafts.items()}


def draft_dots(
    kernel: TileKernel, table: Mapping[str, MmaInstr] | Mapping[str, WgInstr], turned: bool = False
) -> dict[str, DotPlan]:
    """Instruction of ``table`` and axes of every dot, by the name of its result.

    ``turned``: the right operands have the rows of the instructions.
    """
    defs = definitions(kernel.body)
    sizes = {a.name: a.size for a in kernel.axes}
    dots = [op for op in walk_ops(kernel.body) if isinstance(op, DotOp)]
    rows = _row_axes(kernel, dots, defs)
    if turned:
        free = {d.result.name: [x for x in d.result.type.names if x != rows[d.result.name]] for d in dots}
        rows = {name: axes[0] if len(axes) == 1 else rows[name] for name, axes in free.items()}
    return {d.result.name: _draft(d, defs, sizes, rows, table) for d in dots}


def _draft(
    op: DotOp, defs: Mapping[str, TileOp], sizes: Mapping[str, int], rows: Mapping[str, str],
    table: Mapping[str, MmaInstr] | Mapping[str, WgInstr],
) -> DotPlan:  # fmt: skip
    """Instruction and axes; the warp grid is chosen later."""
    over = op.axes
    both = [x for x in op.a.type.names if x in op.b.type.names and x not in over]
    free_a = [x for x in op.a.type.names if x not in (*over, *both[:1])]
    free_b = [x for x in op.b.type.names if x not in (*over, *both[:1])]
    if len(over) != 1 or len(op.result.type.axes) < 2:
        return DotPlan("map", "", "", "", (1, 1))
    if len(free_a) != 1 or len(free_b) != 1:
        return DotPlan("fma", "", "", over[0], (1, 1))
    m = free_a[0] if both else rows[op.result.name]
    n = free_b[0] if m == free_a[0] else free_a[0]
    plan = DotPlan("fma", m, n, over[0], (1, 1), swap=m != free_a[0])
    if both:
        return _sliced(replace(plan, slices=both[0]), op, defs, sizes, table)
    a, b = ({x.type.dtype for x in forms(v, defs)} for v in (op.a, op.b))
    for name, i in table.items():
        permitted = not isinstance(i, MmaInstr) or _permitted(i, op, sizes[over[0]])
        left, right = (b, a) if plan.swap else (a, b)
        fits = left & operand_types(i, "a") and right & operand_types(i, "b")
        if fits and i.acc is op.result.type.dtype and sizes[over[0]] % i.k == 0 and permitted:
            return replace(plan, instr=name)
    return plan


def _sliced(
    plan: DotPlan, op: DotOp, defs: Mapping[str, TileOp], sizes: Mapping[str, int],
    table: Mapping[str, MmaInstr] | Mapping[str, WgInstr],
) -> DotPlan:  # fmt: skip
    """The instruction of a product in slices; scalar products where no MMA of a warp fits."""
    a, b = ({x.type.dtype for x in forms(v, defs)} for v in (op.a, op.b))
    for name, i in table.items():
        if isinstance(i, MmaInstr) and i.parts in (1, op.parts) and not i.short and i.acc is op.result.type.dtype:
            whole = (sizes[plan.m] % i.m, sizes[plan.n] % i.n, sizes[plan.k] % i.k) == (0, 0, 0)
            if whole and a & operand_types(i, "a") and b & operand_types(i, "b"):
                return replace(plan, instr=name)
    return DotPlan("fma", "", "", plan.k, (1, 1))


def _permitted(i: MmaInstr, op: DotOp, depth: int) -> bool:
    """Whether an MMA may have the parts of ``op``, and sums of ``depth`` terms."""
    return i.parts in (1, op.parts) and not (i.short and depth > SHORT_DEPTH)


def _row_axes(kernel: TileKernel, dots: list[DotOp], defs: Mapping[str, TileOp]) -> dict[str, str]:
    """Result name -> M axis, for results of two axes."""
    chosen: dict[str, str] = {}
    for d in reversed(dots):
        over = set(d.axes)
        for side in (d.a, d.b):
            sources = [s for s in sources_of(side, defs) if isinstance(s, DotOp) and s is not d]
            free = [x for x in side.type.names if x not in over]
            if sources and len(free) == 1:
                m = chosen.setdefault(d.result.name, free[0])
                for s in sources:
                    if m in s.result.type.names:
                        chosen.setdefault(s.result.name, m)
    reduced = {
        (frozenset(op.arg.type.names), op.axes[0])
        for op in walk_ops(kernel.body)
        if isinstance(op, ReduceOp) and len(op.axes) == 1
    }
    for d in dots:
        first = next((x for x in d.a.type.names if x not in d.axes), "")
        others = [x for x in d.result.type.names if (frozenset(d.result.type.names), x) not in reduced]
        default = others[0] if len(others) == 1 and len(d.result.type.axes) == 2 else first
        chosen.setdefault(d.result.name, default)
    return chosen


def _fits(d: DotPlan, sizes: Mapping[str, int], grid: Grid) -> bool:
    if d.instr == "fma":
        return sizes[d.m] * sizes[d.n] % prod(grid) == 0
    i = MMA[d.instr]
    return sizes[d.m] % (i.m * grid[0]) == 0 and sizes[d.n] % (i.n * grid[1]) == 0


def _grids(warps: int, first: Grid) -> Iterator[Grid]:
    if prod(first) == warps:
        yield first
    for wm in range(warps, 0, -1):
        if warps % wm == 0:
            yield wm, warps // wm


def _common_grid(plans: list[DotPlan], sizes: Mapping[str, int], wanted: Grid) -> Grid:
    """The wanted grid or the nearest one that most dots fit; fewer warps where none fits any."""
    tensor = [d for d in plans if d.instr != "fma"]
    if not tensor:
        return wanted
    warps = prod(wanted)
    while warps > 1:
        best = max(_grids(warps, wanted), key=lambda g: sum(_fits(d, sizes, g) for d in tensor))
        if any(_fits(d, sizes, best) for d in tensor):
            return best
        warps = warps // 2 if warps % 2 == 0 else 1
    return 1, 1


def _finalise(d: DotPlan, sizes: Mapping[str, int], grid: Grid) -> DotPlan:
    """The plan with its own warp grid: the common one, its transpose, another, or scalar products."""
    if d.slices:
        return d
    if not d.is_matrix or d.instr == "fma":
        return replace(d, warps=grid)
    turned = replace(d, m=d.n, n=d.m, swap=not d.swap)
    for plan, g in [(d, grid), *((d, g) for g in _grids(prod(grid), grid)), (turned, grid)]:
        if _fits(plan, sizes, g):
            return replace(plan, warps=g)
    return replace(d, instr="fma", warps=grid)
