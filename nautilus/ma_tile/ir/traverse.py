"""What the passes of this level share: rebuilding op trees, and which shared memory an op touches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from nautilus.core.expr.nodes import Expr, Ref, substitute, walk
from nautilus.core.index.simplify import simplify
from nautilus.core.schedule import MappingPlan, Schedule, WarpgroupPlan, WarpPlan
from nautilus.ma_tile.ir.async_ops import (
    AdvanceOp,
    LetOp,
    MatrixStore,
    MbarExpect,
    NamedArrive,
    TileSchedulerOp,
    TmaLoad,
    TmaStore,
    WgWait,
)
from nautilus.ma_tile.ir.ops import (
    AsyncCopy,
    Barrier,
    ConvertOp,
    ForOp,
    Frag,
    GlobalLoad,
    GlobalStore,
    IfOp,
    IndexOp,
    MapOp,
    MatrixLoad,
    MbarArrive,
    MbarWait,
    MemKernel,
    MemModule,
    MemOp,
    MmaOp,
    ReduceOp,
    RolesOp,
    SharedLoad,
    SharedStore,
    SliceOp,
    Slot,
    walk_ops,
)


def blocks(body: tuple[MemOp, ...]) -> Iterator[tuple[MemOp, ...]]:
    """``body`` and every one inside it."""
    yield body
    for op in body:
        match op:
            case IfOp(body=inner) | ForOp(body=inner) | TileSchedulerOp(body=inner):
                yield from blocks(inner)
            case RolesOp(roles=roles):
                for r in roles:
                    yield from blocks(r.body)


@dataclass(frozen=True, slots=True)
class Touch:
    """Shared-memory accesses of one op: slots read, written by the threads, written by copies later.

    Reads of a pending product and of a bulk store go on after the op, until the wait that covers them.
    """

    reads: tuple[Slot, ...] = ()
    writes: tuple[Slot, ...] = ()
    copies: tuple[Slot, ...] = ()

    @property
    def all(self) -> tuple[Slot, ...]:
        return (*self.reads, *self.writes, *self.copies)


def touch(op: MemOp) -> Touch:
    """What ``op`` itself touches (bodies of structured ops not included; scratch is not a slot)."""
    match op:
        case SharedLoad(slot=slot) | MatrixLoad(slot=slot) | TmaStore(slot=slot):
            return Touch(reads=(slot,))
        case SharedStore(slot=slot) | MatrixStore(slot=slot):
            return Touch(writes=(slot,))
        case AsyncCopy(slot=slot) | TmaLoad(slot=slot):
            return Touch(copies=(slot,))
        case MmaOp(a=a, b=b):
            return Touch(reads=tuple(x for x in (a, b) if isinstance(x, Slot)))
        case _:
            return Touch()


def deep_touch(op: MemOp) -> Touch:
    """What ``op`` and everything inside it touches."""
    parts = [touch(x) for x in walk_ops((op,))]
    return Touch(
        tuple(s for p in parts for s in p.reads),
        tuple(s for p in parts for s in p.writes),
        tuple(s for p in parts for s in p.copies),
    )


def buffers_of(op: MemOp) -> Iterator[str]:
    """Names of the shared buffers that ``op`` itself uses."""
    for slot in touch(op).all:
        yield slot.buffer
    match op:
        case ReduceOp(scratch=str(name)):
            yield name
        case TileSchedulerOp(mailbox=box) if box is not None:
            yield box.smem


def rebuild(body: tuple[MemOp, ...], rule: Callable[[MemOp], Iterable[MemOp]]) -> tuple[MemOp, ...]:
    """Every op replaced by what ``rule`` gives for it, bodies first."""
    out: list[MemOp] = []
    for op in body:
        match op:
            case IfOp() | ForOp() | TileSchedulerOp():
                inner = rebuild(op.body, rule)
                op = op if inner == op.body else replace(op, body=inner)
            case RolesOp():
                op = replace(op, roles=tuple(replace(r, body=rebuild(r.body, rule)) for r in op.roles))
        out.extend(rule(op))
    return tuple(out)


def map_slots(op: MemOp, f: Callable[[Slot], Slot]) -> MemOp:
    """``op`` with its own slots replaced."""
    match op:
        case SharedLoad() | MatrixLoad() | SharedStore() | AsyncCopy() | MatrixStore() | TmaLoad() | TmaStore():
            return replace(op, slot=f(op.slot))
        case MmaOp():
            a, b = (f(x) if isinstance(x, Slot) else x for x in (op.a, op.b))
            return replace(op, a=a, b=b)
        case _:
            return op


def expressions(op: MemOp) -> tuple[Expr, ...]:
    """The expressions that ``op`` itself evaluates."""
    return (*_own(op), *(s.stage for s in touch(op).all))


def _own(op: MemOp) -> tuple[Expr, ...]:
    """:func:`expressions` without the stages of slots."""
    match op:
        case IndexOp(expr=e) | LetOp(expr=e) | IfOp(cond=e) | TileSchedulerOp(count=e):
            return (e,)
        case GlobalLoad(index=index, mask=mask) | GlobalStore(index=index, mask=mask):
            return index if mask is None else (*index, mask)
        case AsyncCopy(index=index, mask=mask, mbar=mbar):
            return (*index, *(x for x in (mask, mbar and mbar[1]) if x is not None))
        case TmaLoad(index=index, mbar=mbar):
            return index if mbar is None else (*index, mbar[1])
        case TmaStore(index=index):
            return index
        case ForOp(lo=lo, hi=hi):
            return lo, hi
        case MbarArrive(stage=e) | MbarExpect(stage=e) | Barrier(number=e) | NamedArrive(number=e):
            return (e,)
        case MbarWait(stage=stage, parity=parity):
            return stage, parity
        case AdvanceOp(by=e) | MmaOp(fresh=e) if e is not None:
            return (e,)
    return ()


def refs(op: MemOp) -> frozenset[str]:
    """Names of fragments mentioned in the expressions of ``op`` itself."""
    return frozenset(n.name for e in expressions(op) for n in walk(e) if isinstance(n, Ref))


def reads(op: MemOp) -> tuple[str, ...]:
    """Names of the fragments that ``op`` itself reads, as often as it does (bodies of structured ops not included).

    A ``wg.wait`` reads the results that it lists.
    """
    direct: tuple[Frag, ...] = ()
    match op:
        case MapOp(args=args):
            direct = args
        case ReduceOp(arg=arg) | ConvertOp(arg=arg) | SliceOp(arg=arg):
            direct = (arg,)
        case GlobalStore(value=value) | SharedStore(value=value) | MatrixStore(value=value):
            direct = (value,)
        case MmaOp(a=a, b=b, acc=acc):
            direct = tuple(x for x in (a, b, acc) if isinstance(x, Frag))
        case ForOp(carried=carried, yields=yields):
            direct = (*(init for _, init in carried), *yields)
        case WgWait(ready=ready):
            direct = ready
    return (*(f.name for f in direct), *refs(op))


def substitute_copy(op: AsyncCopy, env: Mapping[str, Expr]) -> AsyncCopy:
    """``op`` with variables replaced in its address and mask."""
    index = tuple(simplify(substitute(e, env)) for e in op.index)
    mask = None if op.mask is None else simplify(substitute(op.mask, env))
    return replace(op, index=index, mask=mask)


def defined(op: MemOp) -> tuple[Frag, ...]:
    """Fragments that ``op`` defines for the ops after it."""
    match op:
        case ForOp(results=results):
            return results
        case _:
            found = getattr(op, "result", None)
            return (found,) if isinstance(found, Frag) else ()


def bound(op: MemOp) -> tuple[Frag, ...]:
    """Fragments that ``op`` gives a name to: what it defines, and a loop's carried arguments."""
    return (*op.results, *(arg for arg, _ in op.carried)) if isinstance(op, ForOp) else defined(op)


def plan_of(schedule: Schedule | None, kernel: MemKernel) -> MappingPlan | None:
    """The mapping of ``kernel``; None where the schedule has no such kernel."""
    for k in schedule.kernels if schedule is not None else ():
        if k.name == kernel.name:
            return k.mapping
    return None


def warp_plan_of(schedule: Schedule | None, kernel: MemKernel) -> WarpPlan | None:
    """The plan of ``kernel`` for the engine ``warp``, the default one if unplanned; None for another engine."""
    plan = plan_of(schedule, kernel) or WarpPlan()
    return plan if isinstance(plan, WarpPlan) else None


def warpgroup_plan_of(schedule: Schedule | None, kernel: MemKernel) -> WarpgroupPlan | None:
    """The plan of ``kernel`` for the engine ``warpgroup``, the default one if unplanned; None for another engine."""
    plan = plan_of(schedule, kernel) or WarpgroupPlan()
    return plan if isinstance(plan, WarpgroupPlan) else None


def each_kernel(module: MemModule, f: Callable[[MemKernel], MemKernel]) -> MemModule:
    """``module`` with every kernel replaced by ``f`` of it."""
    kernels = tuple(f(k) for k in module.kernels)
    return module if kernels == module.kernels else replace(module, kernels=kernels)
