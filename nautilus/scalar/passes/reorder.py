"""``reorder``: tile loops move innermost; what stays outside is ``grid`` and ``seq``.

After it every statement stands alone in a perfect nest of ``tile``/``tile.red`` loops.  Moving the
inner part of a grid axis inside turns a local that depends on it into a tile: it gains that axis as
a dimension.  A local that does not depend on it is the same for all of it and is computed once.

Legality: parallel loops interchange with anything and distribute over statements; reduction loops
interchange among themselves (their combiners are associative and commutative).  A reduction loop
around a parallel one, or around two statements, does not occur (``fuse`` emits neither) and is
refused.  Locals that still span the whole reduced axis become tiles in ``rolling-update``.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.buffers import Buffer
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import integer
from nautilus.core.expr.nodes import Expr, Load, Var, free_vars, loads, rewrite
from nautilus.core.records import dataclass
from nautilus.core.schedule import KernelPlan, Schedule
from nautilus.scalar.analysis.derived_names import has_tile, plan_of
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update, extent, statements
from nautilus.scalar.rewriting import grid_chain, nest


@dataclass(frozen=True, slots=True)
class Reorder:
    """Bring every kernel into tiled form, except for reduction loops that are not merged yet."""

    schedule: Schedule

    name = "reorder"

    def apply(self, program: Program) -> Program:
        """The program in tiled form. Raises ScheduleError where a loop nest cannot be interchanged."""
        kernels = tuple(reorder_kernel(k, plan_of(self.schedule, k.name)) for k in program.kernels)
        return replace(program, kernels=kernels)


@dataclass(frozen=True, slots=True)
class _Context:
    tiles: frozenset[str]  # all tile variables
    rows: tuple[Loop, ...]  # inner parts of grid axes, in order
    depends: dict[str, tuple[str, ...]]  # local -> row variables it depends on

    def expand(self, e: Expr) -> Expr:
        """``e`` with the row dimensions of the locals it reads."""

        def rule(n: Expr) -> Expr | None:
            if isinstance(n, Load) and self.depends.get(n.buffer):
                return replace(n, index=self.index(n.buffer, n.index))
            return None

        return rewrite(e, rule)

    def index(self, buffer: str, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (*(Var(r) for r in self.depends.get(buffer, ())), *index)


def reorder_kernel(kernel: Kernel, plan: KernelPlan) -> Kernel:
    """``kernel`` in tiled form. Raises ScheduleError where loops do not interchange."""
    chain, body = grid_chain(kernel)
    inner = {a.name for a in plan.axes if a.role == "grid" and has_tile(a)}
    outer = tuple(loop for loop in chain if loop.var not in inner)
    rows = tuple(loop for loop in chain if loop.var in inner)
    tiles = frozenset(a.name for a in plan.axes if has_tile(a))
    locals_ = frozenset(b.name for b in kernel.locals)
    ctx = _Context(tiles, rows, _dependence(body, rows, locals_))
    new = tuple(out for s in body for out in _distribute(s, ctx, ()))
    return replace(kernel, locals=tuple(_expand(b, ctx) for b in kernel.locals), body=nest(outer, new))


def _expand(b: Buffer, ctx: _Context) -> Buffer:
    sizes = {loop.var: extent(loop) or 1 for loop in ctx.rows}
    return replace(b, shape=(*(sizes[r] for r in ctx.depends.get(b.name, ())), *b.shape))


def _names(s: Store | Update, locals_: dict[str, tuple[str, ...]]) -> set[str]:
    """Variables that ``s`` depends on, through the locals it reads too."""
    exprs = [*s.index, s.value, *(() if s.guard is None else (s.guard,))]
    used = set().union(*(free_vars(e) for e in exprs))
    for e in exprs:
        for ld in loads(e):
            used |= set(locals_.get(ld.buffer, ()))
    return used


def _dependence(body: tuple[Stmt, ...], rows: tuple[Loop, ...], locals_: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """The row variables that each local varies with, found in one pass because operands are written first."""
    found: dict[str, tuple[str, ...]] = dict.fromkeys(locals_, ())
    for _, s in statements(body):
        if s.buffer in locals_:
            used = _names(s, found) | set(found[s.buffer])
            found[s.buffer] = tuple(loop.var for loop in rows if loop.var in used)
    return found


def _distribute(s: Stmt, ctx: _Context, around: tuple[Loop, ...]) -> tuple[Stmt, ...]:
    """``s`` with the tile loops ``around`` it (and inside it) moved onto each statement."""
    if isinstance(s, Loop):
        if s.kind not in (Kind.PAR, Kind.RED):
            raise ScheduleError(f"loop {s.var} of kind {s.kind.value} cannot be reordered")
        if s.kind is Kind.RED and (len(s.body) != 1 or _has_par(s.body[0])):
            raise ScheduleError(f"reduction loop {s.var} holds more than its update")
        if s.var in ctx.tiles:
            return tuple(out for inner in s.body for out in _distribute(inner, ctx, (*around, s)))
        body = tuple(out for inner in s.body for out in _distribute(inner, ctx, around))
        return (replace(s, kind=Kind.SEQ, body=body),)
    return (_leaf(s, ctx, around),)


def _has_par(s: Stmt) -> bool:
    return isinstance(s, Loop) and (s.kind is Kind.PAR or any(_has_par(b) for b in s.body))


def _leaf(s: Store | Update, ctx: _Context, around: tuple[Loop, ...]) -> Stmt:
    used = _names(s, ctx.depends) | set(ctx.depends.get(s.buffer, ()))
    rows = [loop for loop in ctx.rows if loop.var in used or (isinstance(s, Update) and s.atomic)]
    par = [loop for loop in around if loop.kind is Kind.PAR]
    red = [loop for loop in around if loop.kind is Kind.RED]
    new: Stmt = replace(
        s,
        index=ctx.index(s.buffer, tuple(ctx.expand(e) for e in s.index)),
        value=ctx.expand(s.value),
        guard=None if s.guard is None else ctx.expand(s.guard),
    )
    for loop in reversed(red):
        new = Loop(loop.var, integer(0), loop.hi, Kind.TILE_RED, (new,), loop.span)
    for loop in reversed((*rows, *par)):
        new = Loop(loop.var, integer(0), loop.hi, Kind.TILE, (new,), loop.span)
    return new
