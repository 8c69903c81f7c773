"""``split``: an axis becomes blocks of a fixed tile, ``i -> i0 * T + i``, guarded where ragged.

Where the blocks of a cluster have neighbouring tiles along an axis, its tiles are whole clusters, and the last one may
lie outside of the axis as a whole.

Grid axes and axes of reduction loops with a tile > 1 get a block variable and an inner one; an axis of role ``tile``
stays one loop of the rounded-up extent; a tile of 1 leaves the loop unchanged.  Locals grow to whole tiles, so accesses
to them need no guard.

Where a statement divides an axis into parts of the size of its tile (``t // 64`` and ``t % 64``), its expressions are
simplified: the part is the block, and the place in it is the inner variable.

Where a tile exceeds its axis, a statement gets the guard ``index < extent`` only if it accesses global memory at that
index, reduces over it, scatters, or reads a local that is only written under that guard.  It also gets it if it
accesses global memory at a position that a local holds, because beyond the axis that is no position, and if a condition
about the axis is what keeps a read inside its tensor: under ``j <= i``, ``X[j]`` is read where ``i`` is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import conjuncts, short_circuit
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, free_vars, loads, substitute, walk
from nautilus.core.index.simplify import Ranges, bounds, divisible_by
from nautilus.core.index.sizes import Extent, at_most, blocks, extent_expr, volume
from nautilus.core.records import dataclass
from nautilus.core.schedule import AxisPlan, KernelPlan, Schedule
from nautilus.scalar.analysis.definitions import extent_of
from nautilus.scalar.analysis.derived_names import block_var, has_tile, is_tiled, plan_of, tiles_along
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update, statements
from nautilus.scalar.passes.simplify import simplify_statement
from nautilus.scalar.rewriting import grid_chain, nest


@dataclass(frozen=True, slots=True)
class Split:
    """Tile every axis as the schedule says."""

    schedule: Schedule

    name = "split"

    def apply(self, program: Program) -> Program:
        """The program with tiles. Raises ScheduleError where a tile does not fit its axis."""
        kernels = tuple(split_kernel(program, k, plan_of(self.schedule, k.name)) for k in program.kernels)
        return replace(program, kernels=kernels)


@dataclass(slots=True)
class _Context:
    plan: KernelPlan
    extents: dict[str, Extent]
    locals: frozenset[str]
    grid: frozenset[str]  # the axes that every local has, besides those of its indices
    shapes: Mapping[str, tuple[Extent, ...]]  # of tensors in memory
    partial: dict[str, frozenset[str]] = field(default_factory=dict)  # local -> ragged axes whose overhang it lacks
    simplified: frozenset[Expr] = frozenset()  # conditions of statements that are simplified: equal ones stay equal

    def ragged(self, axis: str) -> bool:
        """Whether a tile may run past the end of ``axis``; the only tile of an axis does where the axis is empty."""
        p, extent = self.plan.axis(axis), self.extents[axis]
        if p.role == "tile" and (bounds(extent_expr(extent))[0] or 0) < p.tile and not isinstance(extent, int):
            return True
        outside = self.tiles(axis) != blocks(extent, p.tile)
        return outside or not divisible_by(extent_expr(extent), p.tile)

    def tiles(self, axis: str) -> Extent:
        return tiles_along(self.plan, axis, self.extents[axis])

    def position(self, axis: str) -> Expr:
        """The full index along ``axis``."""
        p = self.plan.axis(axis)
        if not is_tiled(p):
            return Var(axis)
        block = calc("mul", Var(block_var(self.plan, axis)), p.tile)
        return calc("add", block, Var(axis))

    def bound(self, axis: str) -> Expr:
        return calc("lt", self.position(axis), extent_expr(self.extents[axis]))


def split_kernel(program: Program, kernel: Kernel, plan: KernelPlan) -> Kernel:
    """``kernel`` of ``program`` with the tiles of ``plan``. Raises ScheduleError for a tile that does not fit."""
    extents = _extents(kernel)
    for a in plan.axes:
        extent = extents.get(a.name)
        if a.tile < 1 or (a.role == "tile" and (extent is None or a.tile < at_most(extent))):
            raise ScheduleError(f"a tile of {a.tile} does not hold axis {a.name!r}", kernel=plan.name)
    grid, body = grid_chain(kernel)
    memory = {b.name: b.shape for b in program.buffers}
    ctx = _Context(plan, extents, frozenset(b.name for b in kernel.locals), frozenset(a.var for a in grid), memory)
    divided = (s.guard for _, s in statements(kernel.body) if _in_tiles(s, ctx))
    ctx.simplified = frozenset(guard for guard in divided if guard is not None)
    shapes = _shapes(kernel, ctx)
    inner = tuple(out for s in body for out in _stmt(s, ctx, ()))
    outer: list[Loop] = []
    tiles: list[Loop] = []
    for loop in grid:
        block, tile = _loops(loop, ctx)
        outer.append(block)
        tiles.extend(tile)
    locals_ = tuple(replace(b, shape=shapes[b.name]) for b in kernel.locals)
    return replace(kernel, locals=locals_, body=nest((*outer, *tiles), inner))


def _extents(kernel: Kernel) -> dict[str, Extent]:
    loops = {loop.var: extent_of(loop) for around, _ in statements(kernel.body) for loop in around}
    return {name: n for name, n in loops.items() if n is not None}


def _shapes(kernel: Kernel, ctx: _Context) -> dict[str, tuple[Extent, ...]]:
    """Local shapes in whole tiles; a local is indexed by plain axes."""
    shapes: dict[str, tuple[Extent, ...]] = {}
    for _, s in statements(kernel.body):
        if s.buffer in ctx.locals:
            shapes[s.buffer] = tuple(_padded(v.name, ctx) for v in s.index if isinstance(v, Var))
    return shapes


def _padded(axis: str, ctx: _Context) -> Extent:
    p = ctx.plan.axis(axis)
    return p.tile if p.role == "tile" else volume((ctx.tiles(axis), p.tile))


def _loops(loop: Loop, ctx: _Context) -> tuple[Loop, tuple[Loop, ...]]:
    """The block loop of ``loop`` and, if it has tiles, the loop inside one."""
    p: AxisPlan = ctx.plan.axis(loop.var)
    if p.role == "tile":
        return replace(loop, hi=integer(p.tile)), ()
    if not has_tile(p):
        return loop, ()
    hi = extent_expr(ctx.tiles(loop.var))
    block = replace(loop, var=block_var(ctx.plan, loop.var), hi=hi)
    return block, (replace(loop, hi=integer(p.tile)),)


def _stmt(s: Stmt, ctx: _Context, around: tuple[Loop, ...]) -> tuple[Stmt, ...]:
    if isinstance(s, Loop):
        block, tile = _loops(s, ctx)
        body = tuple(out for inner in s.body for out in _stmt(inner, ctx, (*around, s)))
        return nest((block, *tile), body)
    return (_leaf(s, ctx, around),)


def _leaf(s: Store | Update, ctx: _Context, around: tuple[Loop, ...]) -> Store | Update:
    needed = [a for a in ctx.extents if ctx.ragged(a) and _needs(s, a, ctx, around)]
    if s.buffer in ctx.locals and isinstance(s, Store):
        ctx.partial[s.buffer] = frozenset(needed)
    env: dict[str, Expr] = {a.name: ctx.position(a.name) for a in ctx.plan.axes if is_tiled(a)}
    guard = None if s.guard is None else substitute(s.guard, env)
    for axis in reversed(needed):
        guard = _conjoin(ctx.bound(axis), guard, ctx.locals)
    index = tuple(substitute(e, env) for e in s.index)
    made = replace(s, index=index, value=substitute(s.value, env), guard=guard)
    if _in_tiles(s, ctx):
        return simplify_statement(made, _ranges(ctx), ())
    alike = s.guard is not None and s.guard in ctx.simplified
    return replace(made, guard=simplify_statement(made, _ranges(ctx), ()).guard) if alike else made


def _in_tiles(s: Store | Update, ctx: _Context) -> bool:
    """Whether ``s`` divides an axis into parts of whole tiles, so that the quotient is one of a block variable."""
    tiles = {a.name: a.tile for a in ctx.plan.axes if is_tiled(a) and has_tile(a)}
    sides = (s.value, *s.index, *(() if s.guard is None else (s.guard,)))
    for e in (n for side in sides for n in walk(side)):
        match e:
            case Op(op="floordiv" | "mod", args=(Var(name=name), Const(value=n))) if n % tiles.get(name, n + 1) == 0:
                return True
    return False


def _ranges(ctx: _Context) -> Ranges:
    """The values of the block variables and of the places in tiles."""
    found: dict[str, tuple[int, int]] = {}
    for a in ctx.plan.axes:
        extent = ctx.extents.get(a.name)
        if is_tiled(a) and extent is not None:
            found[a.name] = (0, a.tile - 1)
            found[block_var(ctx.plan, a.name)] = (0, max(at_most(ctx.tiles(a.name)) - 1, 0))
    return found


def _conjoin(bound: Expr, guard: Expr | None, locals_: frozenset[str]) -> Expr:
    """``bound and guard``; where the guard reads memory at a position of the bound, it is only asked inside of it."""
    if guard is None:
        return bound
    if any(ld.buffer not in locals_ and free_vars(ld) & free_vars(bound) for ld in loads(guard)):
        return short_circuit(bound, guard)
    return calc("and", bound, guard)


def _needs(s: Store | Update, axis: str, ctx: _Context, around: tuple[Loop, ...]) -> bool:
    """Whether ``s`` must not run past the end of ``axis`` (module docstring)."""
    if any(loop.var == axis and loop.kind is Kind.RED for loop in around):
        return True
    if isinstance(s, Update) and s.atomic:
        return True
    if s.buffer not in ctx.locals and any(axis in free_vars(e) for e in s.index):
        return True
    read = [ld for e in (s.value, s.guard) if e is not None for ld in loads(e)]
    return any(_reads_past(ld, axis, ctx) for ld in read) or _keeps_inside(s, axis, read, ctx)


def _reads_past(ld: Load, axis: str, ctx: _Context) -> bool:
    if ld.buffer in ctx.locals:
        return axis in ctx.partial.get(ld.buffer, frozenset())
    held = any(inner.buffer in ctx.locals for e in ld.index for inner in loads(e))
    return (held and axis in ctx.grid) or any(axis in free_vars(e) for e in ld.index)


def _keeps_inside(s: Store | Update, axis: str, read: Sequence[Load], ctx: _Context) -> bool:
    """Whether conditions about ``axis`` and another variable may be what keeps a read of memory inside its tensor."""
    asked = [*(n.args[0] for n in walk(s.value) if isinstance(n, Op) and n.op == "select"), s.guard]
    parts = (free_vars(c) for cond in asked if cond is not None for c in conjuncts(cond))
    others = frozenset[str]().union(*(names for names in parts if axis in names))
    outside = (e for ld in read if ld.buffer not in ctx.locals for e in _not_inside(ld, ctx))
    return any(others & free_vars(e) for e in outside)


def _not_inside(ld: Load, ctx: _Context) -> Iterator[Expr]:
    """The positions of ``ld`` that the loops alone do not keep inside the tensor; of what memory holds, none."""
    for e, size in zip(ld.index, ctx.shapes[ld.buffer], strict=True):
        if (isinstance(e, Var) and ctx.extents.get(e.name) == size) or any(loads(e)):
            continue
        first, last = bounds(e, {n: (0, max(at_most(x) - 1, 0)) for n, x in ctx.extents.items()})
        if first is None or first < 0 or last is None or not isinstance(size, int) or last >= size:
            yield e
