"""Overlap copies to shared memory with the work of earlier loop iterations.

A copy at the top of a loop body may be issued early where its address depends on nothing computed in the body but
what can be computed early too, such as an index that it loads (:mod:`~nautilus.ma_tile.rewriting.address_slices`).
With two stages or more, the index is loaded an iteration before its copy is issued
(:mod:`~nautilus.ma_tile.rewriting.early_lookups`).
Two schemes, by the pipeline depth S (``stages`` of the schedule):

* S >= 2: the buffer becomes a pipeline of S stages.  The first S - 1 iterations' copies are issued before
  the loop; iteration j first issues those of iteration j + S - 1, all in one group, then works on
  stage (j - first) % S.
* S = 1: one buffer.  The first iteration's copies are issued before the loop; as soon as the last
  reader of a buffer in iteration j is after a barrier, the copy of iteration j + 1 is issued into it,
  so each copy overlaps the work on the other buffers.
* S = 0: no copy is overlapped.

The loops of a chain (``vr_tile.ir``) traverse one index space and share the pipelines: copies are issued across
loop boundaries, with the address and mask of the loop that the future iteration belongs to.  An issue
beyond the end is an empty group, so that waits count the same everywhere.  The stage of an iteration
is its distance from the first one, so a chain whose ranges do not ascend (``KernelPlan.iteration_order``
mixed-first, which targets with pipeline states request) is not changed: it is correct, but not overlapped.

The pass removes waits and barriers and allocates shared memory again: run ``synchronize`` next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import Const, Expr, Op, Var
from nautilus.core.index.simplify import FALSE, TRUE, Ranges, bounds, simplify
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, WarpPlan
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.mma_stages import chains
from nautilus.ma_tile.ir.ops import (
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    ForOp,
    Frag,
    IfOp,
    MemKernel,
    MemModule,
    MemOp,
    Slot,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import (
    buffers_of,
    defined,
    each_planned_kernel,
    map_slots,
    rebuild,
)
from nautilus.ma_tile.passes.finalise.allocate_shared import allocate
from nautilus.ma_tile.rewriting.address_slices import AddressSlices, Issue
from nautilus.ma_tile.rewriting.early_lookups import Lookups, lookups

NOTHING: Mapping[MemOp, Frag] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PipelineCopies:
    """``stages`` overrides the pipeline depth of the schedule."""

    schedule: Schedule | None = None
    stages: int | None = None
    name = "pipeline-copies"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose loops copy the operands of later iterations."""
        return each_planned_kernel(module, self, WarpPlan, lambda k, plan: pipeline(k, plan.stages))


def pipeline(kernel: MemKernel, stages: int) -> MemKernel:
    """``kernel`` with the copies of its loops issued early, ``stages`` deep."""
    if stages <= 0:
        return kernel
    bare = rebuild(kernel.body, lambda op: () if isinstance(op, AsyncWait | Barrier) else (op,))
    work = _Pipeline(replace(kernel, body=bare), stages)
    body = work.block(bare)
    if not work.pipelined:
        return kernel
    smem = tuple(replace(s, stages=stages) if s.name in work.pipelined else s for s in kernel.smem)
    return allocate(replace(kernel, body=body, smem=smem))


@dataclass(frozen=True, slots=True)
class _Early:
    """Copies to ``buffers`` in the loops of a chain, issued early; the fragments ``before`` exist in front of it."""

    loops: Sequence[ForOp]
    buffers: set[str]
    before: frozenset[str]

    def of(self, buffer: str) -> _Early:
        """The copies to ``buffer`` alone."""
        return replace(self, buffers={buffer})


@dataclass(slots=True)
class _Pipeline:
    kernel: MemKernel
    stages: int
    pipelined: set[str]

    slices: AddressSlices

    def __init__(self, kernel: MemKernel, stages: int) -> None:
        self.kernel, self.stages, self.pipelined = kernel, stages, set()
        self.slices = AddressSlices(kernel)

    def block(self, body: tuple[MemOp, ...], outer: frozenset[str] = frozenset()) -> tuple[MemOp, ...]:
        """``body`` with every chain of loops in it pipelined; ``outer`` fragments exist around it."""
        out: list[MemOp] = []
        body = self._hoisted(body, outer)
        found = chains(body)
        done: dict[int, tuple[list[MemOp], ForOp]] = {}
        for members in found:
            loops = [op for n in members if isinstance(op := body[n], ForOp)]
            before = outer | _names_before(body, members[0])
            names = self._eligible(loops, before) if _ascend(loops) else set()
            if not names:
                continue
            self.pipelined |= names
            early = _Early(loops, names, before)
            prologue, ahead = self._prologue(early), self._lookups(early)
            if ahead is not None:
                first = ahead.loads(0, _add(loops[0].lo, self.stages - 1))
                prologue += first
                ahead = replace(ahead, values=tuple(op.result for op in first))
            for k, (n, loop) in enumerate(zip(members, loops, strict=True)):
                new, ahead = self._rewrite(early, k, loop, ahead)
                done[n] = (prologue if k == 0 else [], new)
        for n, op in enumerate(body):
            if n in done:
                prologue, loop = done[n]
                out += [*prologue, loop]
            elif isinstance(op, ForOp | IfOp):
                out.append(replace(op, body=self.block(op.body, outer | _names_before(body, n))))
            else:
                out.append(op)
        return tuple(out)

    # -- what may move ------------------------------------------------------------------------
    def _eligible(self, loops: Sequence[ForOp], before: frozenset[str]) -> set[str]:
        """Buffers that every loop of the chain fills exactly once, at its top level, from addresses known early."""
        names: set[str] | None = None
        for loop in loops:
            copies = [op for op in loop.body if isinstance(op, AsyncCopy)]
            targets = [c.slot.buffer for c in copies]
            fine = {
                c.slot.buffer
                for c in copies
                if targets.count(c.slot.buffer) == 1 and self.slices.of(c, loop.body, before) is not None
            }
            names = fine if names is None else names & fine
        names = {n for n in names or () if self._alike(_Early(loops, {n}, before))}
        ours = [op for loop in loops for op in walk_ops(loop.body)]
        for name in list(names):
            writers = sum(1 for op in ours if isinstance(op, AsyncCopy) and op.slot.buffer == name)
            total = sum(1 for op in walk_ops(self.kernel.body) if name in buffers_of(op))
            used = sum(1 for op in ours if name in buffers_of(op))
            single = next(s for s in self.kernel.smem if s.name == name).stages == 1
            if writers != len(loops) or total != used or not single:
                names.discard(name)
        return names

    def _alike(self, early: _Early) -> bool:
        """Whether the copies of a chain's loops differ in masks only (and the names of what they refer to)."""
        issue, keys = self.slices.issue(), set()
        for loop in early.loops:
            for c in self._copies_at(early, loop, Var("?"), issue):
                keys.add((c.buffer, c.index, c.vec, c.threads, c.mbar))
        return len(keys) == 1

    def _hoisted(self, body: tuple[MemOp, ...], outer: frozenset[str]) -> tuple[MemOp, ...]:
        """``body`` with what the copies of a chain's later loops need computed before its first loop."""
        for first, *later in chains(body):
            if not later:
                continue
            before = outer | _names_before(body, first)
            between = [op for op in body[first + 1 : later[-1]] if not isinstance(op, ForOp)]
            loops = [op for n in later if isinstance(op := body[n], ForOp)]
            needed = [
                op
                for loop in loops
                for c in loop.body
                if isinstance(c, AsyncCopy)
                for op in self.slices.of(c, (*between, *loop.body), before) or ()
            ]
            moved = tuple(op for op in between if op in needed)
            if moved:
                rest = tuple(op for op in body[first:] if op not in moved)
                return self._hoisted((*body[:first], *moved, *rest), outer)
        return body

    # -- issuing --------------------------------------------------------------------------------
    def _lookups(self, early: _Early) -> Lookups | None:
        """The ops that load the addresses of the copies, an iteration before them."""
        loops = early.loops

        def issued(first: int, at: Expr, issue: Issue) -> None:
            for loop in loops[first:]:
                list(self._copies_at(early, loop, at, issue))

        if self.stages == 1:
            return None
        return lookups(self.kernel, self.slices, len(loops), Var("?"), loops[-1].hi, issued)

    def _issue(self, early: _Early, first: int, at: Expr, known: Mapping[MemOp, Frag] = NOTHING) -> list[MemOp]:
        """Copies of iteration ``at``, which lies in loop ``first`` of the chain, a later one, or beyond the end.

        ``known``: results of ops of their address slices.
        """
        loops = early.loops
        issue = self.slices.issue(known)
        variants = [
            (loop, tuple(self._staged(c, loops[0], at) for c in self._copies_at(early, loop, at, issue)))
            for loop in loops[first:]
        ]
        merged = variants[-1][1]
        for loop, copies in reversed(variants[:-1]):
            merged = tuple(_either(calc("lt", at, loop.hi), a, b) for a, b in zip(copies, merged, strict=True))
        return list(_guarded(calc("lt", at, loops[-1].hi), (*issue.ops, *merged), _iterations(loops[first])))

    def _copies_at(self, early: _Early, loop: ForOp, at: Expr, issue: Issue) -> Iterator[AsyncCopy]:
        """The copies of ``loop`` in iteration ``at``."""
        for c in _copies(loop, early.buffers):
            needed = self.slices.of(c, loop.body, early.before)
            assert needed is not None  # they are eligible
            yield issue.copy(c, loop, at, needed)

    def _staged(self, copy: AsyncCopy, head: ForOp, at: Expr) -> AsyncCopy:
        return replace(copy, slot=replace(copy.slot, stage=self._stage(at, head.lo)))

    def _stage(self, at: Expr, first: Expr) -> Expr:
        if self.stages == 1:
            return integer(0)
        distance = _sub(at, first)
        if isinstance(distance, Const):
            return integer(int(distance.value) % self.stages)
        return calc("mod", distance, self.stages)

    def _prologue(self, early: _Early) -> list[MemOp]:
        out: list[MemOp] = []
        loops = early.loops
        if self.stages == 1:
            for copy in _copies(loops[0], early.buffers):
                out += [*self._issue(early.of(copy.slot.buffer), 0, loops[0].lo), AsyncCommit(copy.span)]
            return out
        for s in range(self.stages - 1):
            at = _add(loops[0].lo, s)
            issued = [self._with_stage(op, s) for op in self._issue(early, 0, at)]
            out += [*issued, AsyncCommit(loops[0].span)]
        return out

    def _with_stage(self, op: MemOp, stage: int) -> MemOp:
        """Iteration ``first + stage`` uses stage ``stage``."""
        (out,) = rebuild((op,), lambda x: (map_slots(x, lambda s: replace(s, stage=integer(stage))),))
        return out

    def _rewrite(self, early: _Early, number: int, loop: ForOp, ahead: Lookups | None) -> tuple[ForOp, Lookups | None]:
        names = early.buffers
        here = self._stage(Var(loop.var), early.loops[0].lo)

        def slot(s: Slot) -> Slot:
            return replace(s, stage=here) if s.buffer in names else s

        body = rebuild(_without(loop.body, names), lambda op: (map_slots(op, slot),))
        if self.stages == 1:
            return replace(loop, body=self._interleaved(early, number, loop, body)), None
        loop, known = replace(loop, body=body), NOTHING
        at = _add(Var(loop.var), self.stages - 1)
        if ahead is not None:
            loop, known, ahead = ahead.carried(loop, number, at, _add(at, 1))
        issue = self._issue(early, number, at, known)
        return replace(loop, body=(*issue, AsyncCommit(loop.span), *loop.body)), ahead

    def _interleaved(self, early: _Early, number: int, loop: ForOp, body: tuple[MemOp, ...]) -> tuple[MemOp, ...]:
        """Each buffer's next copy right after its last reader."""
        names = early.buffers
        last: dict[str, int] = {}
        for n, op in enumerate(body):
            for inner in walk_ops((op,)):
                last.update({b: n for b in buffers_of(inner) if b in names})
        out: list[MemOp] = []
        after = _add(Var(loop.var), 1)
        order = [c.slot.buffer for c in _copies(loop, names)]
        for n, op in enumerate(body):
            out.append(op)
            for b in order:
                if last.get(b) == n:
                    out += [*self._issue(early.of(b), number, after), AsyncCommit(loop.span)]
        return tuple(out)


def _ascend(loops: Sequence[ForOp]) -> bool:
    """Each loop goes on where the one before it ended."""
    return all(a.hi == b.lo for a, b in pairwise(loops))


def _names_before(body: tuple[MemOp, ...], end: int) -> frozenset[str]:
    """Fragments that this block defines before position ``end``."""
    return frozenset(d.name for op in body[:end] for d in defined(op))


def _copies(loop: ForOp, names: set[str]) -> tuple[AsyncCopy, ...]:
    return tuple(op for op in loop.body if isinstance(op, AsyncCopy) and op.slot.buffer in names)


def _without(body: tuple[MemOp, ...], names: set[str]) -> tuple[MemOp, ...]:
    """``body`` without the copies to ``names`` and without commits that then close empty groups."""
    out: list[MemOp] = []
    waiting = False
    for op in body:
        if isinstance(op, AsyncCopy):
            if op.slot.buffer in names:
                continue
            waiting = True
        if isinstance(op, AsyncCommit):
            if not waiting:
                continue
            waiting = False
        out.append(op)
    return tuple(out)


def _iterations(loop: ForOp) -> Ranges:
    """The range of the loop's variable, where it is known."""
    first, end = bounds(loop.lo)[0], bounds(loop.hi)[1]
    return {} if first is None or end is None or first >= end else {loop.var: (first, end - 1)}


def _guarded(cond: Expr, body: tuple[MemOp, ...], ranges: Ranges) -> tuple[MemOp, ...]:
    """``body`` under ``cond``, which may be known for variables in ``ranges``."""
    cond = simplify(cond, ranges)
    if cond == FALSE:
        return ()
    return body if cond == TRUE else (IfOp(cond, body),)


def _either(first: Expr, a: AsyncCopy, b: AsyncCopy) -> AsyncCopy:
    """``a`` where ``first`` holds, else ``b``; they differ in their masks at most."""
    if a == b:
        return a
    return replace(a, mask=_mask(_chosen(first, a.mask, b.mask)))


def _chosen(first: Expr, m: Expr | None, n: Expr | None) -> Expr:
    """``m`` where ``first`` holds, else ``n``; a condition that both have stays outside of the choice."""
    common = dict.fromkeys(p for p in conjuncts(m) if p in conjuncts(n))
    m, n = (conjunction(p for p in conjuncts(x) if p not in common) for x in (m, n))
    match m, n:
        case None, None:
            own: Expr = TRUE
        case None, _:
            assert n is not None
            own = calc("or", first, n)
        case _, None:
            assert m is not None
            own = calc("or", calc("not", first), m)
        case _, Op(op="select", args=(inner, x, last)) if last == m:  # mixed blocks on both sides of full ones
            own = Op("select", (calc("and", calc("not", first), inner), x, last), DType.BOOL)
        case _:
            assert m is not None and n is not None
            own = Op("select", (first, m, n), DType.BOOL)
    return conjunction((*common, own)) or TRUE


def _mask(mask: Expr) -> Expr | None:
    mask = simplify(mask)
    return None if mask == TRUE else mask


def _add(e: Expr, n: int) -> Expr:
    if n == 0:
        return e
    if isinstance(e, Const):
        return integer(int(e.value) + n)
    return calc("add", e, n)


def _sub(a: Expr, b: Expr) -> Expr:
    if a == b:
        return integer(0)
    if isinstance(b, Const):
        return _add(a, -int(b.value))
    if isinstance(a, Op) and a.op == "add" and a.args[0] == b and isinstance(a.args[1], Const):
        return a.args[1]
    return calc("sub", a, b)
