"""``lookahead-mma``: the first MMAs of a pipelined loop are issued one more iteration ahead, into a second accumulator.

``pipeline-mma`` makes of each iteration ``A(t); B(t-1); R(t)``: MMAs that read only what is loaded, MMAs that read the
iteration before, and the elementwise work R on the results of A.  R waits for A, so the matrix unit has
nothing of the warpgroup to do during most of R where B is short.  Here A runs two iterations ahead of B ::

    A(lo-1); A(lo); R(lo-1)
    for t in lo..hi, s = the results of A(lo):  s' = A(t+1); B(t-1); R(t) on s;  yield s'

The results of A are then complete when an iteration begins, and all of its MMAs run beside R.  The second accumulator
takes registers.  The last iteration repeats the A of its own position, whose result nothing reads: the loop needs no
copy of its body.

The loops of a chain are treated as one.  Behind the last iteration of a loop comes the first one of the next loop that
has an iteration.  A must be the same in all of them, alone in its shared buffers, and stand before the first loop too,
for the position before it: that is the copy which ``pipeline-mma`` made, behind which the new one is placed.

Where their number is known, two iterations are unrolled together, so that the accumulators change places without
moves; else the rest of an odd number would need registers.
Lam, "Software Pipelining", PLDI 1988 (modulo schedules; unrolling replaces rotating registers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Expr, Var
from nautilus.core.index.simplify import Ranges, simplify
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.ma_tile.analysis.mma_stages import chains, dependences, is_wgmma
from nautilus.ma_tile.ir.async_ops import TmaLoad
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import ForOp, Frag, MemKernel, MemModule, MemOp, MmaOp
from nautilus.ma_tile.ir.traverse import buffers_of, defined, each_kernel, reads, warpgroup_plan_of
from nautilus.ma_tile.rewriting.renaming import Names, Renaming, each_block, uniform_ranges

UNROLL = 2  # iterations, one for each accumulator


@dataclass(frozen=True, slots=True)
class LookaheadMma:
    """``lookahead_mma`` overrides the schedule's switch."""

    schedule: Schedule | None = None
    lookahead_mma: bool | None = None
    name = "lookahead-mma"

    def apply(self, module: MemModule) -> MemModule:
        def one(k: MemKernel) -> MemKernel:
            plan = warpgroup_plan_of(self.schedule, k)
            wanted = (plan is not None and plan.lookahead_mma) if self.lookahead_mma is None else self.lookahead_mma
            return lookahead(k) if wanted else k

        return each_kernel(module, one)


def lookahead(kernel: MemKernel) -> MemKernel:
    """``kernel`` with a second accumulator in each chain of loops that satisfies the conditions."""
    names, ranges = Names(kernel), uniform_ranges(kernel)

    def block(body: tuple[MemOp, ...]) -> tuple[MemOp, ...]:
        out = list(body)
        for members in reversed(chains(body)):
            loops = tuple(op for n in members if isinstance(op := body[n], ForOp))
            heads = tuple(h for x in loops if (h := head_of(x)) is not None)
            alike = {_canonical(h, x, kernel.layouts) for h, x in zip(heads, loops, strict=False)}
            if len(heads) < len(loops) or len(alike) > 1:
                continue
            place = _first_copy(body[: members[0]], heads[0], loops[0], kernel.layouts)
            if place is None:
                continue
            start, new = _rewritten(loops, heads, names, ranges)
            for n, loop in zip(members, new, strict=True):
                out[n] = loop
            out[place + 1 : place + 1] = start
        return tuple(out)

    new = each_block(kernel.body, block)
    return kernel if new == kernel.body else replace(kernel, body=new)


def head_of(loop: ForOp) -> tuple[MemOp, ...] | None:
    """The MMAs of an iteration that read only what it loads, and these loads; None where they may not move."""
    body, needs = loop.body, dependences(loop.body)
    carried = {arg.name for arg, _ in loop.carried}
    found, behind = set[int](), False
    for n, op in enumerate(body):
        if not (isinstance(op, MmaOp) and is_wgmma(op)):
            continue
        before = needs[n] | {m for k in needs[n] for m in needs[k]}
        loads = all(isinstance(body[m], TmaLoad) and not needs[m] - {*before} for m in before)
        if op.acc is None and not op.is_async and loads and not carried & set(reads(op)):
            found |= before | {n}
        else:
            behind = behind or bool(carried & set(reads(op)))
    mine = {b for n in found for b in buffers_of(body[n]) if any(b in _filled(body[m]) for m in found)}
    others = {b for n, op in enumerate(body) if n not in found for b in buffers_of(op)}
    results = {d.name for n in found for d in defined(body[n])}
    if not (found and behind) or mine & others or results & {y.name for y in loop.yields}:
        return None
    return tuple(body[n] for n in sorted(found))


def _filled(op: MemOp) -> tuple[str, ...]:
    return (op.slot.buffer,) if isinstance(op, TmaLoad) else ()


def _results(ops: Sequence[MemOp]) -> list[Frag]:
    return [d for op in ops for d in defined(op)]


def _canonical(head: Sequence[MemOp], loop: ForOp, layouts: Mapping[str, FragLayout]) -> tuple[object, ...]:
    """``head`` under names that do not depend on the loop, and the layouts of its results."""
    made = _results(head)
    frags = {f.name: replace(f, name=f"@{n}", layout="@") for n, f in enumerate(made)}
    return Renaming(frags, {loop.var: Var("?")}).ops(head), tuple(layouts[f.layout] for f in made)


def _first_copy(
    before: Sequence[MemOp], head: Sequence[MemOp], loop: ForOp, layouts: Mapping[str, FragLayout]
) -> int | None:
    """Where the copy of ``head`` for the position before ``loop`` ends; None where there is none."""
    first = replace(loop, var="?")
    to = Renaming({}, {loop.var: simplify(calc("add", loop.lo, -1))})
    wanted = _canonical(to.ops(head), first, layouts)
    for n in range(len(before) - len(head), -1, -1):
        if _canonical(before[n : n + len(head)], first, layouts) == wanted:
            return n + len(head) - 1
    return None


def _rewritten(
    loops: Sequence[ForOp], heads: Sequence[tuple[MemOp, ...]], names: Names, ranges: Ranges
) -> tuple[tuple[MemOp, ...], list[ForOp]]:
    """The copy of the head before the loops, and the loops."""
    first = loops[0]
    copies = {f.name: names.frag(f, "ahead") for f in _results(heads[0])}
    at = _next(loops, simplify(calc("add", first.lo, -1)))
    start = Renaming(copies, {first.var: simplify(at, ranges)}).ops(heads[0])
    state, new = [copies[f.name] for f in _results(heads[0])], list[ForOp]()
    for k, (loop, head) in enumerate(zip(loops, heads, strict=True)):
        arguments = _results(head)
        ahead = {f.name: names.frag(f, "next") for f in arguments}
        follows = calc("add", Var(loop.var), 1)
        after = _next(loops[k + 1 :], Var(loop.var))
        following = simplify(calc("select", calc("lt", follows, loop.hi), follows, after), ranges)
        ends = [names.frag(f, "end") for f in arguments]
        rest = tuple(op for op in loop.body if not any(op is x for x in head))
        carried = (*zip(arguments, state, strict=True), *loop.carried)
        body = (*Renaming(ahead, {loop.var: following}).ops(head), *rest)
        yields = (*(ahead[f.name] for f in arguments), *loop.yields)
        number = simplify(calc("sub", loop.hi, loop.lo), ranges)
        unroll = UNROLL if isinstance(number, Const) and number.value > 1 else None
        results = (*ends, *loop.results)
        new.append(replace(loop, results=results, carried=carried, body=body, yields=yields, unroll=unroll))
        state = ends
    return start, new


def _next(loops: Sequence[ForOp], otherwise: Expr) -> Expr:
    """The first position of the first of ``loops`` that has an iteration, or ``otherwise``."""
    for loop in reversed(loops):
        otherwise = calc("select", calc("lt", loop.lo, loop.hi), loop.lo, otherwise)
    return otherwise
