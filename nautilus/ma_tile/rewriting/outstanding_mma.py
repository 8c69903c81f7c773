"""Loops that only accumulate keep one group of outstanding MMAs across their iterations.

Nothing in such a loop reads a result of an MMA but the next MMA of the same accumulator.  Waiting
for each iteration's MMAs leaves the matrix unit idle while the next ones are issued::

    for t:  wait full; MMAs; arrive empty; advance

becomes, with the releases one iteration late and a second state of the same pipeline that counts them::

    for t:  wait full; wg.fence; MMAs pending; wg.commit; advance
            wg.wait 1
            if lo < t { arrive empty; advance the release pipeline }
    wg.wait 0
    if lo < hi { arrive empty; advance the release pipeline }

The pipeline needs two stages at least: one is still read while the next one is waited for.  The release pipeline
advances wherever the pipeline's own state advances outside of such loops, so that both agree there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Var, free_vars
from nautilus.core.index.simplify import FALSE, TRUE, Ranges, bounds, simplify
from nautilus.core.ops import map_regions, regions
from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.mma_stages import is_wgmma
from nautilus.ma_tile.ir.async_ops import AdvanceOp, LetOp, WgCommit, WgFence, WgWait
from nautilus.ma_tile.ir.ops import (
    ForOp,
    Frag,
    IfOp,
    MbarArrive,
    MbarWait,
    MemKernel,
    MemOp,
    MmaOp,
    PipelineState,
    Role,
    RolesOp,
    walk_ops,
)
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp
from nautilus.ma_tile.ir.traverse import Ops, bound, reads
from nautilus.ma_tile.rewriting.renaming import Names, Renaming, uniform_ranges


def keep_outstanding(kernel: MemKernel, volatile: bool = False) -> MemKernel:
    """``kernel`` with its accumulating loops in this form; their MMAs are pending then."""
    uses = Counter(name for op in walk_ops(kernel.body) for name in reads(op))
    pipelines = {c.name: c for c in kernel.pipelines}
    depth = {m.name: m.stages for m in kernel.mbars}
    work = _Outstanding(pipelines, depth, uses, uniform_ranges(kernel), Names(kernel), volatile, {})
    inside = any(isinstance(op, RolesOp) for op in walk_ops(kernel.body))
    body = _in_roles(kernel.body, work) if inside else work.scope(kernel.body)
    if body == kernel.body:
        return kernel
    return replace(kernel, body=body, pipelines=(*kernel.pipelines, *work.added.values()))


def _in_roles(body: Ops, work: _Outstanding) -> Ops:
    """``body`` with each role done by itself; pipelines that also move outside of roles are left alone."""
    outside = {x.pipeline for op in body for x in _without_roles(op) if isinstance(x, AdvanceOp)}
    work.pipelines = {n: c for n, c in work.pipelines.items() if n not in outside}

    def role(r: Role) -> Role:
        return replace(r, body=work.scope(r.body))

    out: list[MemOp] = []
    for op in body:
        if isinstance(op, RolesOp):
            op = replace(op, roles=tuple(role(r) for r in op.roles))
        else:
            op = map_regions(op, lambda inner: _in_roles(inner, work))
        out.append(op)
    return tuple(out)


def _without_roles(op: MemOp) -> Ops:
    if isinstance(op, RolesOp):
        return ()
    return (op, *(x for inner in regions(op) for y in inner for x in _without_roles(y)))


@dataclass(frozen=True, slots=True)
class _Release:
    """An arrival of one iteration; ``pipeline`` where its stage is that pipeline's, else an expression of the loop."""

    arrive: MbarArrive
    pipeline: str | None


@dataclass(slots=True)
class _Outstanding:
    pipelines: dict[str, PipelineState]
    depth: dict[str, int]  # stages of each array of mbarriers
    uses: Counter[str]
    ranges: Ranges
    names: Names
    volatile: bool
    added: dict[str, PipelineState]  # state of a pipeline -> its release state

    def scope(self, body: Ops) -> Ops:
        """The body of a role or of the kernel: its loops, then the other moves of the pipelines that they use."""
        plans: dict[int, list[_Release]] = {}
        for op in walk_ops(body):
            if isinstance(op, ForOp) and (found := self._releases(op)) is not None:
                plans[id(op)] = found
        late = {r.pipeline for found in plans.values() for r in found if r.pipeline is not None}
        for name in sorted(late - self.added.keys()):
            self.added[name] = PipelineState(self.names.variable(f"{name}_done"), self.pipelines[name].stages)
        return self._block(body, plans, late) if plans else body

    def _block(self, body: Ops, plans: dict[int, list[_Release]], late: set[str]) -> Ops:
        out: list[MemOp] = []
        for op in body:
            if isinstance(op, ForOp) and id(op) in plans:
                out += self._rewrite(op, plans[id(op)])
            elif isinstance(op, ForOp | IfOp | TileSchedulerOp):
                out.append(replace(op, body=self._block(op.body, plans, late)))
            elif isinstance(op, AdvanceOp) and op.pipeline in late:
                out += [op, replace(op, pipeline=self.added[op.pipeline].name)]
            else:
                out.append(op)
        return tuple(out)

    # -- which loops ----------------------------------------------------------------------------
    def _releases(self, loop: ForOp) -> list[_Release] | None:
        """The arrivals of ``loop`` if it may keep outstanding MMAs, else None."""
        quiet = (MbarWait, MbarArrive, AdvanceOp, LetOp)
        mmas = [op for op in loop.body if isinstance(op, MmaOp) and is_wgmma(op)]
        if not mmas or not all(isinstance(op, quiet) or op in mmas for op in loop.body):
            return None
        if not self._only_accumulates(loop, mmas):
            return None
        out: list[_Release] = []
        for n, op in enumerate(loop.body):
            if isinstance(op, MbarArrive):
                found = self._release(loop, n, op)
                if found is None or mmas[0] not in loop.body[:n] or self.depth[op.mbar] < 2:
                    return None
                out.append(found)
        return out

    def _only_accumulates(self, loop: ForOp, mmas: list[MmaOp]) -> bool:
        """Every carried value is an accumulator that passes through MMAs only; operands come from outside."""
        own = {f.name for op in loop.body for f in bound(op)} | {arg.name for arg, _ in loop.carried}
        value = {arg.name: arg.name for arg, _ in loop.carried}  # latest value -> carried argument
        for op in mmas:
            operands = [x for x in (op.a, op.b) if isinstance(x, Frag)]
            if op.acc is None or op.is_async or any(x.name in own for x in operands):
                return False
            arg = value.pop(op.acc.name, None)
            if arg is None or self.uses[op.acc.name] != 1 or self.uses[op.result.name] != 1:
                return False
            value[op.result.name] = arg
        ends = [value.get(y.name) for y in loop.yields]
        touched = all(
            self.uses[arg.name] == 1 and y != arg for (arg, _), y in zip(loop.carried, loop.yields, strict=True)
        )
        return touched and ends == [arg.name for arg, _ in loop.carried]

    def _release(self, loop: ForOp, at: int, op: MbarArrive) -> _Release | None:
        inside = {x.var for x in loop.body if isinstance(x, LetOp)}
        used = free_vars(op.stage)
        moving = {c for c in self.pipelines if {f"{c}_stage", f"{c}_phase"} & used}
        if not moving:
            moved = {x.pipeline for x in loop.body if isinstance(x, AdvanceOp)}
            known = {f"{name}_{part}" for name in moved for part in ("stage", "phase")}
            return None if used & (inside | known) else _Release(op, None)
        (name, *more) = moving
        moves = [(n, x) for n, x in enumerate(loop.body) if isinstance(x, AdvanceOp) and x.pipeline == name]
        if more or op.stage != Var(f"{name}_stage", op.stage.dtype) or len(moves) != 1:
            return None
        return _Release(op, name) if moves[0][0] > at and moves[0][1].by is None else None

    # -- the new loop ---------------------------------------------------------------------------
    def _rewrite(self, loop: ForOp, releases: list[_Release]) -> Ops:
        last = max(n for n, op in enumerate(loop.body) if isinstance(op, MmaOp))
        body: list[MemOp] = []
        for n, op in enumerate(loop.body):
            if isinstance(op, MmaOp):
                fence = () if n > 0 and isinstance(loop.body[n - 1], MmaOp) else (WgFence(op.span),)
                body += [*fence, replace(op, is_async=True)]
            elif not isinstance(op, MbarArrive):
                body.append(op)
            if n == last:
                body.append(WgCommit(op.span))
        most = bounds(simplify(calc("sub", loop.hi, loop.lo), self.ranges), self.ranges)[1]
        if most is None or most > 1:  # a loop of one iteration has none before it
            body.append(WgWait(1, (), self.volatile, loop.span))
            body += self._guarded(calc("lt", loop.lo, Var(loop.var)), releases, loop, calc("sub", Var(loop.var), 1))
        after = self._guarded(calc("lt", loop.lo, loop.hi), releases, loop, calc("sub", loop.hi, 1))
        return (replace(loop, body=tuple(body)), WgWait(0, loop.results, self.volatile, loop.span), *after)

    def _guarded(self, cond: Expr, releases: list[_Release], loop: ForOp, at: Expr) -> list[MemOp]:
        """The arrivals of iteration ``at`` where ``cond`` holds."""
        if not releases:
            return []
        to = Renaming({}, {loop.var: at})
        out: list[MemOp] = []
        for r in releases:
            stage = to.expr(r.arrive.stage)
            if r.pipeline is not None:
                stage = Var(self.added[r.pipeline].stage, r.arrive.stage.dtype)
            out.append(replace(r.arrive, stage=stage))
        out += [AdvanceOp(self.added[c].name) for c in dict.fromkeys(r.pipeline for r in releases) if c is not None]
        cond = simplify(cond, self.ranges)
        if cond == FALSE:
            return []
        return out if cond == TRUE else [IfOp(cond, tuple(out), loop.span)]
