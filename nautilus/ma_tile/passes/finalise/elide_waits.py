"""``elide-waits``: removes synchronisation that can never block, from roles of a block that processes one tile.

A pipeline counts its instances from 0.  Upper bounds of the numbers of iterations bound how many instances may come
before and after an op.

* The mbarriers of a pipeline are fresh in its first ``stages`` instances, so that a wait for an empty stage ends at
  once there.  It is removed.
* A release is there for the instance ``stages`` later.  An arrival that releases one of the last ``stages`` instances
  is removed, if the role that waits has as many instances.  The state that counts the releases may be another one
  than that of the loads: releases of outstanding MMAs come an iteration late, and a loop may lose its first iteration.
* Nothing arrives at an mbarrier at which nothing waits, and the mbarrier is removed.
* A ``tma.wait`` before the first TMA store is removed, and one after which another one and a barrier follow before the
  threads write to a stage that is stored.  Stores that one wait covers make one group.
* So is the end of a group, or a ``tma.wait``, without which each store is still awaited before its stage is written
  again or released (``analysis.outstanding.stores``); this holds for the tiles of a persistent block too.
* A barrier of the threads of one consumer is removed, if they have written to no shared memory before it, and write to
  none afterwards that was read before it.
* A ``wg.wait`` between two loops that accumulate is removed, if nothing is released there and the second loop has an
  iteration: MMAs of one accumulator follow each other without a wait (PTX ISA, "wgmma.fence").
* An ``advance`` after which no op uses the state of its pipeline is removed, and so is a pipeline without a use.

In a persistent block the instances continue from tile to tile, so that nothing bounds them.  The blocks of a cluster
release each other's stages, and keep all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import replace

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Op, Var, free_vars
from nautilus.core.index.linear import Linear, linear
from nautilus.core.index.simplify import Ranges, bounds, simplify
from nautilus.core.ops import Kind, declaration
from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.outstanding.stores import store_groups
from nautilus.ma_tile.analysis.pipelines import instances
from nautilus.ma_tile.ir.async_ops import CONSUMER, WgCommit, WgFence, WgWait
from nautilus.ma_tile.ir.ops import (
    AdvanceOp,
    Barrier,
    ForOp,
    Frag,
    IfOp,
    MbarArrive,
    MbarWait,
    MemKernel,
    MemModule,
    MemOp,
    MmaOp,
    PipelineState,
    ReduceOp,
    Role,
    RolesOp,
    ScanOp,
    TileSchedulerOp,
    TmaCommit,
    TmaStore,
    TmaWait,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import Ops, deep_touch, each_kernel, exchanged, expressions, reads, rebuild, touch
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
    if roles is None or kernel.cluster > 1:
        return kernel
    if any(isinstance(op, TileSchedulerOp) for op in walk_ops(kernel.body)):
        fewer = replace(roles, roles=tuple(_with_fewer_groups(r, kernel) for r in roles.roles))
        return replace(kernel, body=tuple(fewer if op is roles else op for op in kernel.body))
    ranges, new = known_ranges(kernel), roles
    for p in kernel.pipelines:
        new = _mapped(new, _Pipeline(p, ranges, _releases(roles, p, kernel, ranges)).role)
    used = {x for op in walk_ops((new,)) if not isinstance(op, MbarArrive) for x in _mbarriers(op)}
    new = _mapped(new, lambda body: rebuild(body, lambda op: (op,) if _is_used(op, used) else ()))
    new = _mapped(new, _stores)
    new = replace(new, roles=tuple(_with_fewer_groups(r, kernel) for r in new.roles))
    new = replace(new, roles=tuple(replace(r, body=_without_first_barriers(r, kernel)) for r in new.roles))
    for p in kernel.pipelines:
        new = _mapped(new, lambda body, p=p: _without_dead_advances(body, p, ranges, False)[0])  # type: ignore[misc]
    new = _mapped(new, lambda body: _without_drains(body, ranges))
    body = tuple(new if op is roles else op for op in kernel.body)
    pipelines = tuple(p for p in kernel.pipelines if _uses(body, p) or _advances(body, p))
    return replace(kernel, body=body, mbars=tuple(m for m in kernel.mbars if m.name in used), pipelines=pipelines)


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


def _releases(roles: RolesOp, p: PipelineState, kernel: MemKernel, ranges: Ranges) -> frozenset[str]:
    """Mbarriers whose waits are all for an empty stage, in roles with as many instances as ``p`` in those that arrive.

    The waits may use the state of another pipeline of ``kernel``, of as many stages.
    """
    waits = [(op, r.body) for r in roles.roles for op in walk_ops(r.body) if isinstance(op, MbarWait)]
    arrivals = [(op, r.body) for r in roles.roles for op in walk_ops(r.body) if isinstance(op, MbarArrive)]
    known = {name for name, _ in kernel.decode}

    def number(body: Ops, state: PipelineState) -> Linear | None:
        e = simplify(instances(body, state.name, ranges), ranges)
        return linear(e) if free_vars(e) <= known else None

    found = set[str]()
    for name in {op.mbar for op, _ in waits}:
        for awaited in (x for x in kernel.pipelines if x.stages == p.stages):
            if not all(_waits_for_empty(op, awaited) for op, _ in waits if op.mbar == name):
                continue
            sides = [(body, awaited) for op, body in waits if op.mbar == name]
            sides += [(body, p) for op, body in arrivals if op.mbar == name]
            numbers = {number(*side) for side in sides}
            same = awaited == p and len({_shape(*side) for side in sides}) == 1
            if same or (len(numbers) == 1 and None not in numbers):
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


def _without_dead_advances(body: Ops, p: PipelineState, ranges: Ranges, live: bool) -> tuple[Ops, bool]:
    """``body`` without advances of ``p`` after which nothing uses its state; whether something uses the one before it.

    ``live``: whether an op after ``body`` uses the state.  Conditions and loops that are empty then go too.
    """
    out: list[MemOp] = []
    for op in reversed(body):
        match op:
            case AdvanceOp(pipeline=name) if name == p.name:
                if not live:
                    continue
            case ForOp(body=inner):
                around = live or (_trips(op, ranges) > 1 and _uses(inner, p))
                new, before = _without_dead_advances(inner, p, ranges, around)
                live = live or before or _uses((replace(op, body=()),), p)
                if not new and not op.results:
                    continue
                op = replace(op, body=new)
            case IfOp(body=inner):
                new, before = _without_dead_advances(inner, p, ranges, live)
                if not new:
                    continue
                live = live or before or _uses((replace(op, body=()),), p)
                op = replace(op, body=new)
            case _:
                live = live or _uses((op,), p)
        out.append(op)
    return tuple(reversed(out)), live


def _without_drains(body: Ops, ranges: Ranges) -> Ops:
    """``body`` without waits for accumulators that the next op, a loop, goes on with, and after which it waits.

    Loops that release nothing, with operands in shared memory, need no wait either: nothing follows it in them.
    """
    read = Counter(name for op in walk_ops(body) for name in reads(op))
    left = (op for n, op in enumerate(body) if not _drains(op, body[n + 1 : n + 3], ranges, read))
    return tuple(replace(op, body=op.body[:-1]) if isinstance(op, ForOp) and _idles(op) else op for op in left)


def _idles(loop: ForOp) -> bool:
    """Whether ``loop`` issues MMAs alone and then waits for older ones."""
    issue = (MbarWait, WgFence, WgCommit, AdvanceOp, MmaOp)
    match loop.body[-1:]:
        case (WgWait(ready=()),):
            in_registers = any(isinstance(x, MmaOp) and isinstance(x.a, Frag) for x in loop.body)
            return all(isinstance(x, issue) for x in loop.body[:-1]) and not in_registers
    return False


def _drains(op: MemOp, behind: Ops, ranges: Ranges, read: Counter[str]) -> bool:
    """Whether ``op`` is such a wait, in front of ``behind``; ``read``: how often each fragment is read."""
    match (op, *behind):
        case WgWait(pending=0, ready=ready), ForOp() as loop, WgWait(pending=0, ready=later) if ready:
            least = bounds(simplify(calc("sub", loop.hi, loop.lo), ranges), ranges)[0]
            ends = {init.name: (arg, end) for (arg, init), end in zip(loop.carried, loop.results, strict=True)}
            sums = {x.acc.name for x in loop.body if isinstance(x, MmaOp) and x.is_async and x.acc is not None}
            goes_on = all(  # only the wait and the loop read a result, and an MMA alone the value in the loop
                read[f.name] == 2 and f.name in ends and read[ends[f.name][0].name] == 1
                and ends[f.name][0].name in sums and ends[f.name][1] in later
                for f in ready
            )  # fmt: skip
            return least is not None and least >= 1 and goes_on
    return False


def _uses(body: Ops, p: PipelineState) -> bool:
    """Whether an op of ``body``, or inside one, mentions the stage or the phase of ``p``."""
    return any({p.stage, p.phase} & free_vars(e) for op in walk_ops(body) for e in expressions(op))


def _advances(body: Ops, p: PipelineState) -> bool:
    return any(isinstance(op, AdvanceOp) and op.pipeline == p.name for op in walk_ops(body))


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


def _with_fewer_groups(role: Role, kernel: MemKernel) -> Role:
    """``role`` without the groups of TMA stores, and the waits for them, that order nothing."""
    groups = store_groups(kernel, role)
    idle = groups.idle(role.body)
    for n, op in enumerate(role.body):
        if isinstance(op, TileSchedulerOp):
            awaited = any(isinstance(x, TmaWait) for x in role.body[n + 1 :])
            idle |= groups.idle(op.body, op.iteration) if awaited else frozenset()
            idle |= frozenset() if exchanged(kernel.body) else groups.idle_barriers(op.body, op.iteration)
    return replace(role, body=rebuild(role.body, lambda op: () if id(op) in idle else (op,)))


def _without_first_barriers(role: Role, kernel: MemKernel) -> Ops:
    """The body of ``role`` without barriers of its consumers that order no two accesses."""
    smem = {s.name: s for s in kernel.smem}
    threads = 32 * (role.last_warp - role.first_warp) // role.consumers
    inside = [op for op in walk_ops(role.body) if isinstance(op, ReduceOp | ScanOp) and op.scratch is not None]
    if inside or exchanged(kernel.body):
        return role.body
    touched = [deep_touch(op) for op in role.body]
    stores = [any(isinstance(x, TmaStore) for x in walk_ops((op,))) for op in role.body]
    last = next((n for n, t in enumerate(touched) if stores[n] or t.writes or t.copies), len(touched))

    def orders(n: int, op: MemOp) -> bool:
        """Whether ``op`` is no such barrier, or may order accesses."""
        own = isinstance(op, Barrier) and op.threads == threads and CONSUMER in free_vars(op.number)
        read = {s.buffer for t in touched[:n] for s in t.reads}
        written = {s.buffer for t in touched[n:] for s in (*t.writes, *t.copies)}
        clash = any(a == b or smem[a].overlaps(smem[b]) for a in read for b in written)
        return clash or not own or n > last

    return tuple(op for n, op in enumerate(role.body) if orders(n, op))
