"""Overlaps MMAs with elementwise work: a part of the loop body runs one iteration ahead.

``analysis.mma_stages`` cuts the body into two stages.  Stage 0 consists of A (level-0 MMAs and their loads) and R (the
elementwise work on their results); stage 1 is B.  The loop ::

    for t in lo..hi:  A(t); R(t); B(t)

becomes ::

    A(lo); R(lo)
    for t in lo+1..hi:  A(t); B(t-1); R(t)
    B(hi-1)

so that the MMAs of A(t) and B(t-1) are issued together, and R(t) runs while B(t-1) does.  A value of stage 0 that
stage 1 reads becomes a carried value.  A value of stage 1 that the next iteration reads (an accumulator) is read by
R(t), after B(t-1), and by no op of A.

The loops of a chain are treated as one loop.  Only the first one loses an iteration to the prologue, so it must have an
iteration in every block.  The first B of a later loop belongs to the last iteration of the previous loop.  Stage 1
must therefore be the same in all loops, and between two loops the index of the previous iteration comes from the
range of another loop (:meth:`_Chain.before`).  A chain that does not satisfy these conditions is not changed.

Where the first loop may have no iteration, because its bounds come from a runtime size or from a tensor, the chain is
copied once for each loop that may be the first one to have an iteration ::

    for once in 0..(1 if lo_0 < hi_0 else 0):                     the chain from loop 0 on, pipelined
    for once in 0..(1 if lo_0 >= hi_0 and lo_1 < hi_1 else 0):    the chain from loop 1 on, pipelined

At most one of these copies runs.  A chain of more than ``_COPIES`` loops is not copied, nor one whose copies NVRTC
would compile for too long (``analysis.code_size``): the plan then keeps its tiles.

Elementwise work of stage 1 on the results of its MMAs, such as the addition of a short sum to an accumulator, follows
R(t), which then runs beside these MMAs.

``WarpgroupPlan.rescale_placement`` places the elementwise work between a carried accumulator and its MMA: ``early`` in
stage 0, after the MMA that computed the accumulator; ``late`` in stage 1, before the MMA that reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Var
from nautilus.core.index.order import certainly_less
from nautilus.core.index.simplify import TRUE, Ranges, bounds, simplify
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, WarpgroupPlan
from nautilus.ma_tile.analysis.code_size import MOST, code_size
from nautilus.ma_tile.analysis.mma_stages import Stages, chains, dependences, is_wgmma, split
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import (
    ConstOp,
    ConvertOp,
    ForOp,
    Frag,
    GlobalLoad,
    IndexOp,
    LetOp,
    MapOp,
    MemKernel,
    MemModule,
    MemOp,
    ParamOp,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import (
    bound,
    defined,
    each_planned_kernel,
    reads,
    stored,
    variables,
)
from nautilus.ma_tile.rewriting.renaming import Names, Renaming, each_block, uniform_ranges, with_variables

#: longest chain that is copied for each loop which may be the first; the copies of three loops have six
_COPIES = 3


@dataclass(frozen=True, slots=True)
class PipelineMma:
    """``pipeline_mma`` and ``rescale_placement`` override the schedule's."""

    schedule: Schedule | None = None
    pipeline_mma: bool | None = None
    rescale_placement: str | None = None
    name = "pipeline-mma"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose loops run MMAs one iteration ahead.  Raises ScheduleError where one cannot."""

        def one(k: MemKernel, plan: WarpgroupPlan) -> MemKernel:
            return pipeline(k, plan.rescale_placement == "late") if plan.pipeline_mma else k

        return each_planned_kernel(module, self, WarpgroupPlan, one)


def pipeline(kernel: MemKernel, late_rescale: bool = False) -> MemKernel:
    """``kernel`` with each chain of loops pipelined whose body has two stages."""
    names, ranges = Names(kernel), uniform_ranges(kernel)
    uses = Counter(name for op in walk_ops(kernel.body) for name in reads(op))
    written, size = stored(walk_ops(kernel.body)), code_size(kernel)

    def block(body: tuple[MemOp, ...]) -> tuple[MemOp, ...]:
        out = list(body)
        for members in reversed(chains(body)):  # from the end, so that earlier positions do not change
            loops = tuple(op for n in members if isinstance(op := body[n], ForOp))
            stages = tuple(s for x in loops if (s := split(x, late_rescale)) is not None)
            if len(stages) < len(loops) or not _quiet_between(body, members, written):
                continue
            chain = _Chain(loops, stages, names, ranges, kernel.layouts, uses)
            if not chain.fits():
                continue
            first, last = members[0], members[-1]
            if chain.starts():
                prologue, new, epilogue = chain.rewritten()
                at = dict(zip(members, new, strict=True))
                middle = (x for n in range(first, last + 1) if (x := at.get(n, body[n])) is not None)
                out[first : last + 1] = (*prologue, *middle, *epilogue)
                continue
            between, results = _between(body, members), {r.name for x in loops for r in x.results}
            if len(loops) <= _COPIES and not any(results & set(reads(op)) for op in between):
                copies = _guarded(chain)
                if size + code_size(kernel, copies) - code_size(kernel, loops) <= MOST:
                    out[first : last + 1] = (*between, *copies)
        return tuple(out)

    new = each_block(kernel.body, block)
    return kernel if new == kernel.body else replace(kernel, body=new)


def _around(second: tuple[MemOp, ...], rest: tuple[MemOp, ...]) -> tuple[MemOp, ...]:
    """Both; elementwise work on the results of the MMAs in ``second`` follows ``rest``, which may not need it."""
    needs = dependences(second)
    issued = {n for n, op in enumerate(second) if is_wgmma(op)}
    for n in reversed(range(len(second))):
        issued |= needs[n] if n in issued else set()
    tail = tuple(op for n, op in enumerate(second) if n not in issued)
    made = {d.name for op in tail for d in defined(op)}
    results = {d.name for n in issued if is_wgmma(second[n]) for d in defined(second[n])}
    reads_mma = any(results & set(reads(op)) for op in tail)
    quiet = all(isinstance(op, ConstOp | MapOp | ConvertOp) for op in tail)
    if not (reads_mma and quiet) or any(made & set(reads(op)) for op in rest):
        return (*second, *rest)
    return (*(op for n, op in enumerate(second) if n in issued), *rest, *tail)


def _quiet_between(body: tuple[MemOp, ...], members: Sequence[int], written: set[str]) -> bool:
    """Whether only work in registers, and loads of what the kernel does not store, stand between the chain's loops."""
    quiet = (ConstOp, IndexOp, ParamOp, MapOp, ConvertOp, LetOp)
    return all(
        isinstance(op, quiet) or (isinstance(op, GlobalLoad) and op.buffer not in written)
        for op in _between(body, members)
    )


def _between(body: tuple[MemOp, ...], members: Sequence[int]) -> tuple[MemOp, ...]:
    """The ops between the loops of the chain."""
    return tuple(body[n] for n in range(members[0], members[-1]) if n not in members)


def _guarded(chain: _Chain) -> tuple[MemOp, ...]:
    """A copy of the chain for each loop that may be the first one to have an iteration."""
    names, last = chain.names, chain.loops[-1]
    state = [init for _, init in chain.loops[0].carried]
    idle: Expr = TRUE  # whether no loop before this one has an iteration
    out: list[MemOp] = []
    for k, loop in enumerate(chain.loops):
        runs = calc("lt", loop.lo, loop.hi)
        arguments = tuple(names.frag(arg, "start") for arg, _ in loop.carried)
        head = replace(loop, carried=tuple((arg, a) for (arg, _), a in zip(loop.carried, arguments, strict=True)))
        rest = replace(chain, loops=(head, *chain.loops[k + 1 :]), stages=chain.stages[k:], carried=[])
        prologue, loops, epilogue = rest.rewritten()
        left = [x for x in loops if x is not None and most_iterations(x, chain.ranges) != 0]
        ends: dict[str, Frag] = {}  # results of loops without iterations, by the values that they are
        for x in loops:
            for r, (_, init) in zip(x.results, x.carried, strict=True) if x is not None and x not in left else ():
                ends[r.name] = ends.get(init.name, init)
        whole = Renaming(ends).ops((*prologue, *left, *epilogue))
        copy, yields = _copied(whole, tuple(ends.get(r.name, r) for r in last.results), names, k > 0)
        once = simplify(calc("select", calc("and", idle, runs), integer(1), integer(0)), chain.ranges)
        idle = calc("and", idle, calc("not", runs))
        results = last.results if k == len(chain.loops) - 1 else tuple(names.frag(r, "so_far") for r in last.results)
        carried = tuple(zip(arguments, state, strict=True))
        var = names.variable("once")
        out.append(ForOp(results, var, integer(0), once, carried, copy, yields, span=loop.span))
        state = list(results)
    return tuple(out)


def most_iterations(loop: ForOp, ranges: Ranges) -> int | None:
    """How many iterations ``loop`` has at most, where that is known."""
    iterations = bounds(calc("sub", loop.hi, loop.lo), ranges)[1]
    return None if iterations is None else max(0, iterations)


def _copied(
    ops: tuple[MemOp, ...], results: tuple[Frag, ...], names: Names, everything: bool
) -> tuple[tuple[MemOp, ...], tuple[Frag, ...]]:
    """``ops`` with other names for ``results``, or for ``everything`` they define, and the names of the results."""
    taken = {r.name for r in results}
    made = {f.name: f for op in walk_ops(ops) for f in bound(op) if everything or f.name in taken}
    inner = dict.fromkeys(v for op in walk_ops(ops) for v in variables(op) if everything)
    to = Renaming({name: names.frag(f, "short" if everything else "end") for name, f in made.items()})
    fresh_variables = {v: names.variable(v) for v in inner}
    to = replace(to, variables={v: Var(new) for v, new in fresh_variables.items()})
    return with_variables(to.ops(ops), fresh_variables), tuple(to.frag(r) for r in results)


@dataclass
class _Chain:
    """The loops of one chain, their stages, and the names of the values in the rewritten loops."""

    loops: tuple[ForOp, ...]
    stages: tuple[Stages, ...]
    names: Names
    ranges: Ranges
    layouts: Mapping[str, FragLayout]
    uses: Counter[str]
    carried: list[int] = field(default_factory=list)  # values of stage 1 that stage 1 reads in the next iteration

    # -- legality -----------------------------------------------------------------------------
    def starts(self) -> bool:
        """Whether the first loop has an iteration in every block."""
        return certainly_less(self.loops[0].lo, self.loops[0].hi, self.ranges)

    def fits(self) -> bool:
        """Whether the loops satisfy the conditions of the module docstring, :meth:`starts` apart."""
        last = self.loops[-1]
        slots = self.stages[0].slots
        for (a, x), (b, y) in pairwise(zip(self.loops, self.stages, strict=True)):
            inits = tuple(init for _, init in b.carried)
            if x.slots != slots or y.slots != slots or inits != a.results:
                return False
            if any(late and self.uses[r.name] != 1 for r, late in zip(a.results, slots, strict=True)):
                return False
        made = [last.yields[n] for n, late in enumerate(slots) if late]
        if any((y.type, y.layout) != (r.type, r.layout) for y, r in zip(made, self._late_results(last), strict=True)):
            return False
        return len({self._canonical(k) for k in range(len(self.loops))}) == 1

    def _late_results(self, loop: ForOp) -> list[Frag]:
        return [r for r, late in zip(loop.results, self.stages[0].slots, strict=True) if late]

    def _canonical(self, k: int) -> tuple[object, ...]:
        """Stage 1 of loop ``k`` and its results, with names that do not depend on the loop, for comparison."""
        loop, stages = self.loops[k], self.stages[k]
        frags: dict[str, Frag] = {}
        for n, name in enumerate(stages.crossing):
            frags[name] = self._plain(self._crossing(k, name), f"@x{n}")
        for n, (arg, _) in enumerate(loop.carried):
            if stages.slots[n]:
                frags[arg.name] = self._plain(arg, f"@c{n}")
        for n, op in enumerate(stages.second):
            frags.update((d.name, self._plain(d, f"@{n}")) for d in defined(op))
        to = Renaming(frags, {loop.var: Var("?")})
        yields = tuple(to.frag(y) for y, late in zip(loop.yields, stages.slots, strict=True) if late)
        return to.ops(stages.second), yields, tuple(frags[x] for x in stages.crossing)

    def _plain(self, f: Frag, name: str) -> Frag:
        """``f`` with the name ``name`` and the first name of its layout."""
        layout = self.layouts[f.layout]
        return replace(f, name=name, layout=next(n for n, x in self.layouts.items() if x == layout))

    def _crossing(self, k: int, name: str) -> Frag:
        """The stage-0 value ``name`` of loop ``k``."""
        for op in self.stages[k].first:
            for d in defined(op):
                if d.name == name:
                    return d
        return next(arg for arg, _ in self.loops[k].carried if arg.name == name)

    # -- the new loops --------------------------------------------------------------------------
    def rewritten(self) -> tuple[tuple[MemOp, ...], list[ForOp | None], tuple[MemOp, ...]]:
        """(prologue, loops, epilogue); None stands for a loop whose only iteration is in the prologue."""
        used = {name for op in self.stages[0].second for name in reads(op)}
        first = self.loops[0]
        self.carried = [n for n, (arg, _) in enumerate(first.carried) if self.stages[0].slots[n] and arg.name in used]
        prologue, stable, crossing = self._prologue()
        late = [first.carried[n][1] for n in self.carried]
        new: list[ForOp | None] = []
        for k in range(len(self.loops)):
            loop = self._loop(k, stable, late, crossing)
            if self._superfluous(k, loop):
                new.append(None)
                continue
            a, b = len(stable), len(stable) + len(late)
            stable, late, crossing = list(loop.results[:a]), list(loop.results[a:b]), list(loop.results[b:])
            new.append(loop)
        return prologue, new, self._epilogue(late, crossing)

    def _superfluous(self, k: int, loop: ForOp) -> bool:
        """Whether loop ``k`` has no iteration and only the next loop reads its results."""
        if k == len(self.loops) - 1 or any(self.uses[r.name] > 1 for r in self.loops[k].results):
            return False
        return most_iterations(loop, self.ranges) == 0

    def _prologue(self) -> tuple[tuple[MemOp, ...], list[Frag], list[Frag]]:
        """Stage 0 of the first iteration, its carried values, and its values that stage 1 reads."""
        loop, stages = self.loops[0], self.stages[0]
        frags = {arg.name: init for arg, init in loop.carried}
        frags |= {d.name: self.names.frag(d, "first") for op in stages.first for d in defined(op)}
        to = Renaming(frags, {loop.var: loop.lo})
        stable = [to.frag(y) for y, late in zip(loop.yields, stages.slots, strict=True) if not late]
        crossing = [to.frag(self._crossing(0, name)) for name in stages.crossing]
        return to.ops(stages.first), stable, crossing

    def _loop(self, k: int, stable: list[Frag], late: list[Frag], crossing: list[Frag]) -> ForOp:
        """Loop ``k`` with the initial values of stage 0, of stage 1, and of what stage 1 reads from stage 0."""
        loop, stages = self.loops[k], self.stages[k]
        handed = [self._crossing(k, name) for name in stages.crossing]
        before = [self.names.frag(f, "before") for f in handed]
        second = Renaming(dict(zip(stages.crossing, before, strict=True)), {loop.var: self._index_before(k)}).ops(
            stages.second
        )
        newest = Renaming({arg.name: y for (arg, _), y, s in self._slots(k) if s})
        plain = [(arg, y) for (arg, _), y, s in self._slots(k) if not s]
        own = [(loop.carried[n][0], loop.yields[n]) for n in self.carried]
        kept = [r for r, s in zip(loop.results, stages.slots, strict=True) if not s]
        fresh = [self.names.frag(loop.results[n], "before") for n in self.carried]
        fresh += [self.names.frag(f, "last") for f in handed]
        return replace(
            loop,
            results=(*kept, *fresh),
            lo=simplify(calc("add", loop.lo, 1)) if k == 0 else loop.lo,
            carried=(
                *((arg, init) for (arg, _), init in zip(plain, stable, strict=True)),
                *((arg, init) for (arg, _), init in zip(own, late, strict=True)),
                *zip(before, crossing, strict=True),
            ),
            body=(*stages.ahead, *_around(second, newest.ops(stages.rest))),
            yields=(*(y for _, y in plain), *(y for _, y in own), *handed),
        )

    def _slots(self, k: int) -> list[tuple[tuple[Frag, Frag], Frag, bool]]:
        loop = self.loops[k]
        return list(zip(loop.carried, loop.yields, self.stages[k].slots, strict=True))

    def _epilogue(self, late: list[Frag], crossing: list[Frag]) -> tuple[MemOp, ...]:
        """Stage 1 of the last iteration, which defines the results of the last loop."""
        loop, stages = self.loops[-1], self.stages[-1]
        frags = dict(zip(stages.crossing, crossing, strict=True))
        frags |= {loop.carried[n][0].name: f for n, f in zip(self.carried, late, strict=True)}
        frags |= {d.name: self.names.frag(d, "last") for op in stages.second for d in defined(op)}
        frags |= {y.name: r for y, r, s in zip(loop.yields, loop.results, stages.slots, strict=True) if s}
        return Renaming(frags, {loop.var: self.before(len(self.loops))}).ops(stages.second)

    # -- indices --------------------------------------------------------------------------------
    def _index_before(self, k: int) -> Expr:
        """The index of the previous iteration, inside loop ``k``."""
        loop = self.loops[k]
        plain = calc("add", Var(loop.var), -1)
        if k == 0:
            return plain
        at_seam = self.before(k)
        if self._same(calc("add", at_seam, 1), loop.lo):
            return plain
        return calc("select", calc("eq", Var(loop.var), loop.lo), at_seam, plain)

    def before(self, k: int) -> Expr:
        """The index of the last iteration of the loops before loop ``k``, of which the first has an iteration."""
        last = simplify(calc("add", self.loops[0].hi, -1), self.ranges)
        for loop in self.loops[1:k]:
            own = calc("add", loop.hi, -1)
            least = bounds(calc("sub", loop.hi, loop.lo), self.ranges)[0]
            goes_on = least is not None and least >= 0 and self._same(calc("add", last, 1), loop.lo)
            choice = calc("select", calc("lt", loop.lo, loop.hi), own, last)
            last = simplify(own if goes_on else choice, self.ranges)
        return last

    def _same(self, a: Expr, b: Expr) -> bool:
        return simplify(calc("eq", a, b), self.ranges) == TRUE
