"""Slots, fragments and expressions of MA-tile ops, and op trees with replaced parts.

Everything here derives from the declarations of the ops (:mod:`nautilus.core.ops`); no op is listed by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, TypeAlias, TypeVar

from nautilus.core.errors import each_or_failures
from nautilus.core.expr.nodes import Expr, substitute
from nautilus.core.expr.nodes import refs as refs_of
from nautilus.core.index.simplify import simplify
from nautilus.core.ops import Access, Kind, declaration, map_fields, map_regions, regions
from nautilus.core.records import dataclass
from nautilus.core.schedule import MappingPlan, Schedule, WarpgroupPlan, WarpPlan, mapping_of
from nautilus.ma_tile.ir.ops import (
    AsyncCopy,
    Frag,
    GlobalLoad,
    GlobalStore,
    MemKernel,
    MemModule,
    MemOp,
    Slot,
    walk_ops,
)
from nautilus.ma_tile.ir.values import MA

Ops: TypeAlias = tuple[MemOp, ...]
Plan = TypeVar("Plan", WarpPlan, WarpgroupPlan)

_READS = {cls: declaration(cls).accessed(Access.READ) for cls in MA.ops}
_WRITES = {cls: declaration(cls).accessed(Access.WRITE) for cls in MA.ops}
_COPIES = {cls: declaration(cls).accessed(Access.COPY) for cls in MA.ops}
_TOUCHING = frozenset(
    cls
    for cls in MA.ops
    if any(role.access is not None and role.kind is not Kind.MEMORY for role in declaration(cls).roles.values())
)


def blocks(body: tuple[MemOp, ...]) -> Iterator[tuple[MemOp, ...]]:
    """``body`` and all bodies inside it."""
    yield body
    for op in body:
        for inner in regions(op):
            yield from blocks(inner)


@dataclass(frozen=True, slots=True)
class Touch:
    """Shared-memory accesses of one op: slots that it reads, that threads write, and that copies write later.

    An asynchronous MMA and a TMA store read their slots until the wait that covers them.
    """

    reads: tuple[Slot, ...] = ()
    writes: tuple[Slot, ...] = ()
    copies: tuple[Slot, ...] = ()

    @property
    def all(self) -> tuple[Slot, ...]:
        """All slots, in the order of the fields."""
        return (*self.reads, *self.writes, *self.copies)


_NOTHING = Touch()
_NO_NAMES: frozenset[str] = frozenset()


def touch(op: MemOp) -> Touch:
    """Slots that ``op`` itself accesses, without bodies of structured ops; scratch is not a slot."""
    cls = type(op)
    if cls not in _TOUCHING:
        declaration(cls)  # raises for an undeclared op
        return _NOTHING
    return Touch(_slots(_READS[cls](op)), _slots(_WRITES[cls](op)), _slots(_COPIES[cls](op)))


def _slots(found: tuple[Frag | Slot, ...]) -> tuple[Slot, ...]:
    return tuple([x for x in found if isinstance(x, Slot)]) if found else ()


def deep_touch(op: MemOp) -> Touch:
    """Slots that ``op`` and all ops inside it access."""
    parts = [touch(x) for x in walk_ops((op,))]
    return Touch(
        tuple(s for p in parts for s in p.reads),
        tuple(s for p in parts for s in p.writes),
        tuple(s for p in parts for s in p.copies),
    )


def exchanged(body: tuple[MemOp, ...]) -> frozenset[str]:
    """The tensors in global memory that ``body`` both stores to and loads from."""
    loaded = {op.buffer for op in walk_ops(body) if isinstance(op, GlobalLoad)}
    return frozenset(op.buffer for op in walk_ops(body) if isinstance(op, GlobalStore) and op.buffer in loaded)


def stored(ops: Iterable[MemOp]) -> set[str]:
    """Buffers in global memory that ``ops`` themselves write."""
    return {getattr(op, name) for op in ops for name in declaration(type(op)).names(Kind.MEMORY, Access.WRITE)}


def memory_of(op: MemOp) -> list[str]:
    """Buffers in global memory that ``op`` itself reads or writes."""
    return [getattr(op, name) for name in declaration(type(op)).names(Kind.MEMORY)]


def buffers_of(op: MemOp) -> Iterator[str]:
    """Names of the shared buffers that ``op`` itself uses."""
    for slot in touch(op).all:
        yield slot.buffer
    yield from declaration(type(op)).scratch(op)


def combined(kernel: MemKernel) -> set[str]:
    """Names of the shared buffers in which a block combines what it scatters, from its start to its end."""
    return {op.scratch for op in walk_ops(kernel.body) if isinstance(op, GlobalStore) and op.scratch is not None}


def rebuild(body: tuple[MemOp, ...], rule: Callable[[MemOp], Iterable[MemOp]]) -> tuple[MemOp, ...]:
    """Replace every op by the result of ``rule`` for it, bodies first."""
    out: list[MemOp] = []
    for op in body:
        out.extend(rule(map_regions(op, lambda inner: rebuild(inner, rule))))
    return tuple(out)


def map_slots(op: MemOp, f: Callable[[Slot], Slot]) -> MemOp:
    """``op`` with its own slots replaced."""
    if type(op) not in _TOUCHING:
        return op
    new: MemOp = map_fields(op, {Kind.SLOT: f, Kind.OPERAND: lambda x: f(x) if isinstance(x, Slot) else x})
    return new


def expressions(op: MemOp) -> tuple[Expr, ...]:
    """The expressions that ``op`` itself evaluates; those of its slots come last."""
    found: tuple[Expr, ...] = declaration(type(op)).expressions(op)
    return (*found, *[s.stage for s in touch(op).all]) if type(op) in _TOUCHING else found


def refs(op: MemOp) -> frozenset[str]:
    """Names of fragments mentioned in the expressions of ``op`` itself."""
    found = expressions(op)
    return _NO_NAMES.union(*map(refs_of, found)) if found else _NO_NAMES


def reads(op: MemOp) -> tuple[str, ...]:
    """Names of the fragments that ``op`` itself reads, with repetitions and without bodies of structured ops.

    A ``wg.wait`` reads the results that it lists.
    """
    direct = [f.name for f in declaration(type(op)).operands(op) if isinstance(f, Frag)]
    return (*direct, *refs(op))


def substitute_copy(op: AsyncCopy, env: Mapping[str, Expr]) -> AsyncCopy:
    """``op`` with variables replaced in its address and mask."""
    index = tuple(simplify(substitute(e, env)) for e in op.index)
    mask = None if op.mask is None else simplify(substitute(op.mask, env))
    return replace(op, index=index, mask=mask)


def defined(op: MemOp) -> tuple[Frag, ...]:
    """Fragments that ``op`` defines for the ops after it."""
    return declaration(type(op)).results(op)


def bound(op: MemOp) -> tuple[Frag, ...]:
    """Fragments that ``op`` names: its results, and the carried arguments of a loop."""
    found = declaration(type(op))
    return found.results(op) + found.arguments(op)


def variables(op: MemOp) -> tuple[str, ...]:
    """Uniform variables that ``op`` binds."""
    return declaration(type(op)).variables(op)


def plan_of(schedule: Schedule | None, kernel: MemKernel) -> MappingPlan | None:
    """The mapping of ``kernel``; None where the schedule has no such kernel."""
    return mapping_of(schedule, kernel.name)


def warp_plan_of(schedule: Schedule | None, kernel: MemKernel) -> WarpPlan | None:
    """The plan of ``kernel`` for the engine ``warp``, the default one if unplanned; None for another engine."""
    plan = plan_of(schedule, kernel) or WarpPlan()
    return plan if isinstance(plan, WarpPlan) else None


def warpgroup_plan_of(schedule: Schedule | None, kernel: MemKernel) -> WarpgroupPlan | None:
    """The plan of ``kernel`` for the engine ``warpgroup``, the default one if unplanned; None for another engine."""
    plan = plan_of(schedule, kernel) or WarpgroupPlan()
    return plan if isinstance(plan, WarpgroupPlan) else None


def each_planned_kernel(
    module: MemModule, own: Any, engine: type[Plan], f: Callable[[MemKernel, Plan], MemKernel]
) -> MemModule:
    """``module`` with ``f`` of every kernel for ``engine`` and of its plan, the default one if unplanned.

    ``own`` is a pass with the schedule: a field of it that has the name of an option overrides the option.
    """
    options = {f.name for f in fields(engine)}
    own_fields = ((f.name, getattr(own, f.name)) for f in fields(own))
    given = {name: value for name, value in own_fields if name in options and value is not None}

    def one(k: MemKernel) -> MemKernel:
        plan = plan_of(own.schedule, k) or engine()
        return f(k, replace(plan, **given) if given else plan) if isinstance(plan, engine) else k

    return each_kernel(module, one)


def each_kernel(module: MemModule, f: Callable[[MemKernel], MemKernel]) -> MemModule:
    """``module`` with every kernel replaced by ``f`` of it."""
    made = each_or_failures(f, module.kernels)
    kernels = tuple(k if new == k else new for k, new in zip(module.kernels, made, strict=True))
    same = all(new is k for new, k in zip(kernels, module.kernels, strict=True))
    return module if same else replace(module, kernels=kernels)
