"""``fuse``: the definitions of one kernel plan become one kernel with shared ``grid`` loops.

A definition that only the group reads becomes a local; an output or a temp that others read keeps
its buffer and gets a local beside it when the group reads it too (or accumulates in it).  A
definition that several phases list is computed again in each, so no reader sees incomplete values of
another phase.

Legality, checked here: every op of the plan exists; operands come before their readers; every grid
axis is a parallel axis of every op in the group that has it, and of every op that keeps its buffer
(an op without the axis is computed again by every block); every read of a fused definition is aligned, or is that of a
scan along whole tiles; a scatter shares a kernel with scatters of the same terms alone, whose axes are grid or tile.
Establishes: one kernel a plan; under its grid loops one nest a definition, in phase order.
"""

from __future__ import annotations

from collections.abc import Callable

from nautilus.core.buffers import Buffer, Space
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import integer
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, rewrite
from nautilus.core.index.sizes import extent_expr
from nautilus.core.records import dataclass
from nautilus.core.schedule import KernelPlan, Schedule
from nautilus.scalar.analysis.axes import Unified, scanned, unify
from nautilus.scalar.analysis.definitions import Def, read_defs
from nautilus.scalar.analysis.derived_names import GRID, LOOP, TILE, local_name, occurrences, phases
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update

_Rule = Callable[[Expr], Expr | None]


@dataclass(frozen=True, slots=True)
class Fuse:
    """Merge kernels as ``schedule`` groups them. Raises ScheduleError where that is not legal."""

    schedule: Schedule

    name = "fuse"

    def apply(self, program: Program) -> Program:
        """The fused program; temps that became locals leave the buffer list. Raises ScheduleError."""
        defs = read_defs(program)
        planned = [op for k in self.schedule.kernels for op in k.ops]
        if sorted(planned) != sorted(defs):
            missing = sorted(set(defs) ^ set(planned)) or sorted(o for o in planned if planned.count(o) > 1)
            raise ScheduleError(f"the schedule must compute every definition once: {', '.join(missing)}")
        names = [k.name for k in self.schedule.kernels]
        if len(set(names)) != len(names):
            raise ScheduleError(f"two kernels of the schedule have one name: {', '.join(sorted(names))}")
        kept = _kept(program, defs, self.schedule)
        kernels = tuple(fuse_kernel(program, plan, defs, kept) for plan in self.schedule.kernels)
        buffers = tuple(b for b in program.buffers if b.name not in defs or b.name in kept)
        return Program(program.name, buffers, program.params, kernels, program.facts)


def _kept(program: Program, defs: dict[str, Def], schedule: Schedule) -> frozenset[str]:
    """Definitions that stay in global memory: outputs, and temps that another kernel reads."""
    home = {op: k.name for k in schedule.kernels for op in k.ops}
    kept = {b.name for b in program.buffers if b.space is Space.OUTPUT}
    for d in defs.values():
        kept |= {ld.buffer for ld in d.reads() if ld.buffer in defs and home[ld.buffer] != home[d.name]}
    return frozenset(kept)


def group(plan: KernelPlan, defs: dict[str, Def], params: tuple[str, ...], kept: frozenset[str]) -> Unified:
    """The definitions of ``plan`` with unified axes. Raises ScheduleError where a read is misaligned."""
    unknown = [o for o in plan.ops if o not in defs]
    if unknown:
        raise ScheduleError(f"no definition called {unknown[0]!r}", kernel=plan.name)
    unified = unify([defs[o] for o in plan.ops], params)
    if unified.misaligned:
        reader, temp = unified.misaligned[0]
        raise ScheduleError(f"{reader} does not read {temp} at its own position", kernel=plan.name)
    scattered = next((d.name for d in unified.defs if d.scatter is not None), None)
    if scattered is not None and not _scatter_the_same_terms(unified):
        raise ScheduleError(f"the scatter {scattered} is in a kernel with other terms", kernel=plan.name)
    for a in plan.axes:
        if scattered is not None and a.role == LOOP:
            raise ScheduleError(f"axis {a.name!r} of a scatter is not grid or tile", kernel=plan.name)
        if a.role not in (GRID, LOOP, TILE):
            raise ScheduleError(f"axis {a.name!r} has role {a.role!r}, not grid, loop or tile", kernel=plan.name)
        if a.name not in unified.extents:
            known = ", ".join(unified.extents)
            raise ScheduleError(f"no axis {a.name!r} (known: {known})", kernel=plan.name)
    for name in unified.extents:
        if all(a.name != name for a in plan.axes):
            raise ScheduleError(f"no role for axis {name!r}", kernel=plan.name)
    roles = {a.name: a.role for a in plan.axes}
    for d in unified.defs:
        for name in _scanned_inside(d, unified):
            if roles[name] != TILE:
                raise ScheduleError(f"{d.name} reads a tile along {name!r}, which has parts", kernel=plan.name)
        for a in plan.axes:
            if a.role == GRID and a.name not in {p.name for p in d.par} and (d.axis(a.name) or d.name in kept):
                raise ScheduleError(f"grid axis {a.name!r} is not parallel in {d.name}", kernel=plan.name)
    return unified


def _scanned_inside(d: Def, unified: Unified) -> tuple[str, ...]:
    """The axes of ``d`` that are whole in a tile, because a scan reads a definition of the kernel along them."""
    inside = {x.name: x for x in unified.defs}
    found = (scanned(d, inside[ld.buffer], ld) for ld in d.reads() if ld.buffer in inside)
    return tuple(name for axes in found if axes is not None for name in axes)


def _scatter_the_same_terms(unified: Unified) -> bool:
    """Whether all definitions of ``unified`` are scatters of terms with the same axes, none of which reads another."""
    names = {d.name for d in unified.defs}
    alike = len({frozenset(a.name for a in d.par) for d in unified.defs}) == 1
    apart = not any(ld.buffer in names for d in unified.defs for ld in d.reads())
    return alike and apart and all(d.scatter is not None for d in unified.defs)


@dataclass(frozen=True, slots=True)
class _Emitter:
    plan: KernelPlan
    kept: frozenset[str]
    read_inside: frozenset[str]
    grid: tuple[str, ...]
    axes: dict[str, int]  # axis -> position in the plan, the order of nested loops

    def local_of(self, d: Def, occurrence: int) -> str | None:
        """The local that holds ``d``; None where it is stored in memory directly."""
        if d.name in self.kept and not d.is_reduction and d.name not in self.read_inside:
            return None
        return local_name(d.name, occurrence, stored=d.name in self.kept)

    def inner(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        """The axes that are not grid loops."""
        return tuple(a for a in axes if a.name not in self.grid)

    def loops(self, axes: tuple[Axis, ...], kind: Kind, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Nested loops over the axes that are no grid axes, the loop axis outermost."""
        roles = {a.name: a.role for a in self.plan.axes}
        order = sorted(self.inner(axes), key=lambda a: (roles[a.name] != LOOP, self.axes[a.name]))
        for a in reversed(order):
            body = (Loop(a.name, integer(0), extent_expr(a.extent), kind, body),)
        return body


def fuse_kernel(program: Program, plan: KernelPlan, defs: dict[str, Def], kept: frozenset[str]) -> Kernel:
    """The kernel of ``plan``; ``kept``: definitions that stay in memory. Raises ScheduleError."""
    unified = group(plan, defs, tuple(p.name for p in program.params), kept)
    _check_order(plan, unified)
    inside = frozenset(ld.buffer for d in unified.defs for ld in d.reads())
    grid = tuple(a.name for a in plan.axes if a.role == GRID)
    em = _Emitter(plan, kept, inside, grid, {a.name: i for i, a in enumerate(plan.axes)})
    latest: dict[str, str] = {}
    locals_: list[Buffer] = []
    body: list[Stmt] = []
    listed = phases(plan)
    last = {op: p for p, op, _ in occurrences(plan)}
    for p, op, k in occurrences(plan):
        d = unified.get(op)
        local = em.local_of(d, k)
        body.extend(_nest(em, d, local, _redirect(unified, d, latest, em)))
        if local is not None:
            latest[op] = local
            locals_.append(_local(em, d, local))
        # Stores to memory come last: inside the loop if the value is produced block by block, else after it.
        if listed[p][-1] == op:
            for q in (unified.get(o) for o in listed[p]):
                if q.name in kept and last[q.name] == p and q.name in latest:
                    body.extend(_copy_out(em, q, latest[q.name], _redirect(unified, q, latest, em)))
    loops: tuple[Stmt, ...] = tuple(body)
    for name in reversed(grid):
        hi = extent_expr(unified.extents[name])
        loops = (Loop(name, integer(0), hi, Kind.GRID, loops),)
    return Kernel(plan.name, tuple(locals_), loops)


def _check_order(plan: KernelPlan, unified: Unified) -> None:
    done: set[str] = set()
    names = {d.name for d in unified.defs}
    listed = {op for _, op, _ in occurrences(plan)}
    if listed != names:
        raise ScheduleError(f"phases and ops differ: {', '.join(sorted(listed ^ names))}", kernel=plan.name)
    for _, op, _ in occurrences(plan):
        for ld in unified.get(op).reads():
            if ld.buffer in names and ld.buffer not in done:
                raise ScheduleError(f"{op} comes before {ld.buffer}, which it reads", kernel=plan.name)
        done.add(op)


def _local(em: _Emitter, d: Def, name: str) -> Buffer:
    return Buffer(name, d.buffer.dtype, tuple(a.extent for a in em.inner(d.par)), Space.LOCAL, d.span)


def _redirect(unified: Unified, d: Def, latest: dict[str, str], em: _Emitter) -> _Rule:
    """The rewrite that sends reads of fused definitions by ``d`` to the locals that hold them now."""
    at = {name: tuple(Var(a.name) for a in em.inner(unified.get(name).par)) for name in latest}
    now = dict(latest)

    def rule(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer in now:
            along = scanned(d, unified.get(e.buffer), e)
            index = at[e.buffer] if along is None else tuple(_at(i, *along) for i in at[e.buffer])
            return Load(now[e.buffer], index, e.dtype, e.span)
        return None

    return rule


def _at(e: Expr, axis: str, into: str) -> Expr:
    """The position ``e`` of a result of a scan at the place of its element."""
    return Var(axis) if e == Var(into) else e


def _nest(em: _Emitter, d: Def, local: str | None, rule: _Rule) -> tuple[Stmt, ...]:
    target = d.name if local is None else local
    index = d.index if local is None else tuple(Var(a.name) for a in em.inner(d.par))
    value, guard = rewrite(d.value, rule), None if d.guard is None else rewrite(d.guard, rule)
    if d.scatter is not None:
        return em.loops(d.par, Kind.PAR, (Update(target, d.scatter, index, value, guard, d.span, True),))
    if not d.is_reduction:
        return em.loops(d.par, Kind.PAR, (Store(target, index, value, guard, d.span),))
    assert d.op is not None
    update = Update(target, d.op, index, value, guard, d.span)
    body = (Store(target, index, d.init(), None, d.span), *em.loops(d.red, Kind.RED, (update,)))
    return em.loops(d.par, Kind.PAR, body)


def _copy_out(em: _Emitter, d: Def, local: str, rule: _Rule) -> tuple[Stmt, ...]:
    """Stores of what ``local`` has of ``d``, at the places that ``d`` defines."""
    here = Load(local, tuple(Var(a.name) for a in em.inner(d.par)), d.buffer.dtype, d.span)
    compute = d.buffer.dtype.compute
    value = here if compute is d.buffer.dtype else Op("cast", (here,), compute, d.span)
    guard = None if d.is_reduction or d.guard is None else rewrite(d.guard, rule)
    return em.loops(d.par, Kind.PAR, (Store(d.name, d.index, value, guard, d.span),))
