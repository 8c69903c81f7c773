"""``elide-waits``: removes synchronisation that can never block, from roles of a block that processes one tile.

A pipeline counts its instances from 0.  Upper bounds of the numbers of iterations bound how many instances may come
before and after an op.

* The mbarriers of a pipeline are fresh in its first ``stages`` instances, so that a wait for an empty stage ends at
  once there.  It is removed.
* A release is there for the instance ``stages`` later.  An arrival that releases one of the last ``stages`` instances
  is removed, if the role that waits has the same instances.
* Nothing arrives at an mbarrier at which nothing waits, and the mbarrier is removed.
* A ``tma.wait`` before the first TMA store is removed, and one after which another one and a barrier follow before the
  threads write to a stage that is stored.  Stores that one wait covers make one group.
* An ``advance`` after the last use of its pipeline is removed.

In a persistent block the instances continue from tile to tile, so that nothing bounds them.  The blocks of a cluster
release each other's stages, and keep all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Op, Var, free_vars
from nautilus.core.index.simplify import Ranges, bounds, simplify
from nautilus.core.ops import Kind, declaration
from nautilus.core.records import dataclass
from nautilus.ma_tile.ir.ops import (
    AdvanceOp,
    Barrier,
    ForOp,
    IfOp,
    LetOp,
    MbarArrive,
    MbarWait,
    MemKernel,
    MemModule,
    MemOp,
    PipelineState,
    RolesOp,
    TileSchedulerOp,
    TmaCommit,
    TmaStore,
    TmaWait,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import Ops, each_kernel, expressions, rebuild, touch
from nautilus.ma_tile.rewriting.renaming import known_ranges

#: more than any number of stages or groups
_MANY = 1 << 20


@dataclass(frozen=True, slots=True)
class ElideWaits:
    """The pass ``elide-waits``, which has no options."""

    name = "elide-waits"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` without synchronisation that never blocks."""
        return each_kernel(module, elided)


def elided(kernel: MemKernel) -> MemKernel:
    """``kernel`` without synchronisation that never blocks, if it has roles and processes one tile."""
    roles = next((op for op in kernel.body if isinstance(op, RolesOp)), None)
    if (
        roles is None
        or kernel.cluster > 1
        or any(isinstance(op, TileSchedulerOp | LetOp) for op in walk_ops(kernel.body))
    ):
        return kernel
    ranges, new = known_ranges(kernel), roles
    for p in kernel.pipelines:
        new = _mapped(new, _Pipeline(p, ranges, _releases(roles, p)).role)
    new = _mapped(new, lambda body: _without_last_advances(_stores(body), kernel.pipelines))
    used = {x for op in walk_ops((new,)) if not isinstance(op, MbarArrive) for x in _mbarriers(op)}
    new = _mapped(new, lambda body: rebuild(body, lambda op: (op,) if _is_used(op, used) else ()))
    body = tuple(new if op is roles else op for op in kernel.body)
    return replace(kernel, body=body, mbars=tuple(m for m in kernel.mbars if m.name in used))


def _is_used(op: MemOp, mbarriers: Container[str]) -> bool:
    return not isinstance(op, MbarArrive) or op.mbar in mbarriers


def _mapped(roles: RolesOp, f: Callable[[Ops], Ops]) -> RolesOp:
    return replace(roles, roles=tuple(replace(r, body=f(r.body)) for r in roles.roles))


def _mbarriers(op: MemOp) -> tuple[str, ...]:
    """Names of the mbarriers that ``op`` itself uses."""
    found = [getattr(op, name) for name in declaration(type(op)).names(Kind.BARRIER)]
    return tuple(x if isinstance(x, str) else x[0] for x in found if x is not None)


def _trips(op: ForOp, ranges: Ranges) -> int:
    """The most iterations of a loop."""
    ends = op.hi.args if isinstance(op.hi, Op) and op.hi.op == "min" else (op.hi,)
    most = [bounds(simplify(calc("sub", e, op.lo), ranges), ranges)[1] for e in ends]
    return max(0, min(_MANY if n is None else n for n in most))


# -- pipelines --------------------------------------------------------------------------------


def _waits_for_empty(op: MemOp, p: PipelineState) -> bool:
    """Whether ``op`` waits until the readers have released the stage of the state ``p``."""
    if not isinstance(op, MbarWait) or op.stage != Var(p.stage):
        return False
    return op.parity == calc("sub", 1, Var(p.phase))


def _mentions(op: MemOp, p: PipelineState) -> bool:
    names = {v for x in walk_ops((op,)) for e in expressions(x) for v in free_vars(e)}
    return bool(names & {p.stage, p.phase}) or any(
        isinstance(x, AdvanceOp) and x.pipeline == p.name for x in walk_ops((op,))
    )


def _shape(body: Ops, p: PipelineState) -> tuple[object, ...]:
    """The loops and conditions around the advances of ``p``: equal for roles with the same instances."""
    out: list[object] = []
    for op in body:
        match op:
            case AdvanceOp(pipeline=name, by=by) if name == p.name:
                out.append(by)
            case ForOp(lo=lo, hi=hi, body=inner) if found := _shape(inner, p):
                out.append((lo, hi, found))
            case IfOp(cond=cond, body=inner) if found := _shape(inner, p):
                out.append((cond, found))
    return tuple(out)


def _releases(roles: RolesOp, p: PipelineState) -> frozenset[str]:
    """Mbarriers of ``p`` whose waits are all for an empty stage, in roles with the instances of those that arrive."""
    waits = [(op, r.body) for r in roles.roles for op in walk_ops(r.body) if isinstance(op, MbarWait)]
    arrivals = [(op, r.body) for r in roles.roles for op in walk_ops(r.body) if isinstance(op, MbarArrive)]
    found = set[str]()
    for name in {op.mbar for op, _ in waits}:
        own = all(_waits_for_empty(op, p) for op, _ in waits if op.mbar == name)
        shapes = {_shape(body, p) for op, body in waits if op.mbar == name}
        shapes |= {_shape(body, p) for op, body in arrivals if op.mbar == name}
        if own and len(shapes) == 1:
            found.add(name)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Pipeline:
    """The rewrite of one pipeline; ``released``: mbarriers whose last arrivals may go."""

    state: PipelineState
    ranges: Ranges
    released: frozenset[str]

    def role(self, body: Ops) -> Ops:
        """``body`` of a role without the waits and arrivals of the first and last instances."""
        return self._backward(self._forward(body, 0)[0], 0)[0]

    def _moves(self, op: MemOp) -> int:
        """The most instances by which ``op`` moves the pipeline."""
        match op:
            case AdvanceOp(pipeline=name, by=by) if name == self.state.name:
                return 1 if by is None else int(by.value) if isinstance(by, Const) else _MANY
            case ForOp(body=body):
                return min(_MANY, _trips(op, self.ranges) * sum(map(self._moves, body)))
            case IfOp(body=body):
                return sum(map(self._moves, body))
        return 0

    def _forward(self, body: Ops, before: int) -> tuple[Ops, int]:
        """``body`` without waits of first instances, if at most ``before`` precede it; how many precede its end."""
        out: list[MemOp] = []
        for op in body:
            if _waits_for_empty(op, self.state) and before < self.state.stages:
                continue
            after = before + self._moves(op)
            match op:
                case ForOp():
                    once = sum(map(self._moves, op.body))
                    op = replace(op, body=self._forward(op.body, max(before, after - once))[0])
                case IfOp():
                    op = replace(op, body=self._forward(op.body, before)[0])
            out.append(op)
            before = after
        return tuple(out), before

    def _backward(self, body: Ops, behind: int) -> tuple[Ops, int]:
        """``body`` without arrivals for instances that nothing waits for, if at most ``behind`` instances follow it."""
        out: list[MemOp] = []
        for op in reversed(body):
            last = isinstance(op, MbarArrive) and op.mbar in self.released and op.stage == Var(self.state.stage)
            if last and behind <= self.state.stages:
                continue
            before = behind + self._moves(op)
            match op:
                case ForOp():
                    once = sum(map(self._moves, op.body))
                    op = replace(op, body=self._backward(op.body, max(behind, before - once))[0])
                case IfOp():
                    op = replace(op, body=self._backward(op.body, behind)[0])
            out.append(op)
            behind = before
        return tuple(reversed(out)), behind


def _without_last_advances(body: Ops, pipelines: tuple[PipelineState, ...]) -> Ops:
    """``body`` without advances after the last use of their pipelines."""
    for p in pipelines:
        while body:
            at = max((n for n, op in enumerate(body) if _mentions(op, p)), default=-1)
            if at < 0 or not isinstance(body[at], AdvanceOp):
                break
            body = (*body[:at], *body[at + 1 :])
    return body


# -- stores -----------------------------------------------------------------------------------


def _stores(body: Ops) -> Ops:
    """``body`` without the waits for TMA stores, and the ends of their groups, that change nothing."""
    stored = {op.slot.buffer for op in walk_ops(body) if isinstance(op, TmaStore)}
    first = next((n for n, op in enumerate(body) if any(isinstance(x, TmaStore) for x in walk_ops((op,)))), len(body))
    out: list[MemOp] = []
    behind: TmaWait | None = None  # the next wait, if no thread writes to a stored stage, or releases one, before it
    grouped: TmaWait | None = None  # the next wait, if a commit stands before it
    awaits: TmaWait | None = None  # the next wait
    told = True  # a barrier follows before the next such write
    for n, op in reversed(list(enumerate(body))):
        match op:
            case TmaWait():
                if n < first or (behind is not None and behind.pending <= op.pending and behind.read <= op.read):
                    continue
                behind, awaits, grouped = op if told else None, op, None
            case TmaCommit():
                if grouped is not None and grouped.pending == 0:
                    continue
                grouped = awaits
            case Barrier():
                told = True
            case _ if declaration(type(op)).regions:
                behind = awaits = grouped = None
                told = False
            case _ if isinstance(op, MbarArrive) or any(s.buffer in stored for s in touch(op).writes):
                behind, told = None, False
        out.append(op)
    return tuple(reversed(out))
