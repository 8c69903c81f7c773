"""Double-buffer operand fragments across the iterations of an MMA loop.

A loop whose work is MMAs of two pipelines is cut into k-steps.  The fragments of step s + 1
are read before the MMAs of step s, and those of the next iteration's first step before the
MMAs of this one's last: the wait and the barrier for the next stage then stand in front of
MMAs whose operands are in registers already.  The copies of a future iteration are issued after
the first step.  The last iteration is peeled, as it has no next one::

    a, b = ld.matrix stage(lo) step 0
    for j in lo..hi-1 carry(a, b, c):
        a', b' = ld.matrix stage(j) step 1;      c += a . b;    copies of a later stage
        ...                                                     (c += steps 1 .. n-2)
        a, b = ld.matrix stage(j+1) step 0;      c += a'. b'    (step n-1)
    the last iteration, without the load of a next stage

The pass applies to loops of constant bounds with at least two iterations.  Their body has nothing but copies and 16-bit
MMAs of two shared operands that accumulate into carried values; several MMAs may share an operand.  No copy goes to a
stage that its own iteration reads.  The pass runs after ``pipeline-copies`` and before ``synchronize``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Const, Expr, Var, free_vars, substitute
from nautilus.core.index.simplify import FALSE, TRUE, simplify
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.core.text.names import fresh
from nautilus.core.tiles import TileAxis, TileType
from nautilus.ma_tile.analysis.outstanding.states import stage_number
from nautilus.ma_tile.ir.instruction_tables import MMA, a_layout, b_layout
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import (
    AsyncCommit,
    AsyncCopy,
    ForOp,
    Frag,
    IfOp,
    MatrixLoad,
    MemKernel,
    MemModule,
    MemOp,
    MmaOp,
    Slot,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import each_kernel, map_slots, rebuild, substitute_copy, touch, warp_plan_of
from nautilus.ma_tile.rewriting.renaming import Names, layout_name
from nautilus.ma_tile.verify.layout import acc_grid


@dataclass(frozen=True, slots=True)
class DoubleBufferFragments:
    """``double_buffer_fragments`` overrides the schedule's."""

    schedule: Schedule | None = None
    double_buffer_fragments: bool | None = None
    name = "double-buffer-fragments"
    reorders = True  # one MMA for each slice of k

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose MMA loops carry the fragments of the next iteration."""

        def one(k: MemKernel) -> MemKernel:
            plan = warp_plan_of(self.schedule, k)
            wanted = plan is not None and plan.double_buffer_fragments
            return carry(k) if (wanted if self.double_buffer_fragments is None else self.double_buffer_fragments) else k

        return each_kernel(module, one)


def carry(kernel: MemKernel) -> MemKernel:
    """``kernel`` with its MMA loops rotated."""
    work = _Carry(kernel, dict(kernel.layouts), Names(kernel).frags)
    body = rebuild(kernel.body, lambda op: work.loop(op) if isinstance(op, ForOp) else (op,))
    return kernel if body == kernel.body else replace(kernel, body=body, layouts=work.layouts)


@dataclass(frozen=True, slots=True)
class _Operand:
    """A shared operand of an MMA and the fragment of one k-step of it."""

    slot: Slot
    side: str
    type: TileType
    layout: str


@dataclass(slots=True)
class _Carry:
    kernel: MemKernel
    layouts: dict[str, FragLayout]
    names: set[str]
    operands: dict[tuple[str, str], _Operand] = field(default_factory=dict)

    # -- legality -----------------------------------------------------------------------------
    def loop(self, op: ForOp) -> tuple[MemOp, ...]:
        """``op`` rotated, or as it is where the transformation does not apply."""
        mmas = [x for x in op.body if isinstance(x, MmaOp)]
        copies: list[MemOp] = [x for x in op.body if not isinstance(x, MmaOp)]
        if not (isinstance(op.lo, Const) and isinstance(op.hi, Const)) or int(op.hi.value) - int(op.lo.value) < 2:
            return (op,)
        if not mmas or not all(_only_copies(x) for x in copies) or op.chain is not None:
            return (op,)
        if len({(x.instr, x.over) for x in mmas}) != 1 or not all(self._fits(x, op) for x in mmas):
            return (op,)
        if [x.result.name for x in mmas] != [y.name for y in op.yields]:
            return (op,)
        if [x.acc.name for x in mmas if x.acc is not None] != [arg.name for arg, _ in op.carried]:
            return (op,)
        if not self._ordered(mmas, copies):
            return (op,)
        return self._rotate(op, mmas, copies)

    def _fits(self, x: MmaOp, loop: ForOp) -> bool:
        instr = MMA.get(x.instr)
        if instr is None or not isinstance(x.a, Slot) or not isinstance(x.b, Slot):
            return False
        for slot in (x.a, x.b):
            buffer = next(s for s in self.kernel.smem if s.name == slot.buffer)
            depth = next((a.size for a in buffer.axes if a.name == x.over), 0)
            wide = buffer.dtype.bytes == 2 and buffer.stages >= 2 and loop.var in free_vars(slot.stage)
            if not wide or depth < 2 * instr.k or len(buffer.axes) != 2:
                return False
        return True

    def _ordered(self, mmas: list[MmaOp], copies: list[MemOp]) -> bool:
        """Copies and MMAs may change places; MMAs of one pipeline read the same stage of it alike.

        Step 0 is read before the copies of its iteration, later steps after them: no copy may go to a
        stage that the same iteration reads.
        """
        stages = {s.name: s.stages for s in self.kernel.smem}
        read: dict[str, Expr] = {}
        grids: dict[tuple[str, str], str] = {}
        for x in mmas:
            for side, slot in (("a", x.a), ("b", x.b)):
                assert isinstance(slot, Slot)
                same_stage = read.setdefault(slot.buffer, slot.stage) == slot.stage
                if not same_stage or grids.setdefault((slot.buffer, side), x.result.layout) != x.result.layout:
                    return False
        for y in walk_ops(tuple(copies)):
            for slot in touch(y).copies:
                if slot.buffer in read and not _apart(slot.stage, read[slot.buffer], stages[slot.buffer]):
                    return False
        return True

    # -- building -----------------------------------------------------------------------------
    def _rotate(self, op: ForOp, mmas: list[MmaOp], copies: list[MemOp]) -> tuple[MemOp, ...]:
        self.operands = {}
        for x in mmas:
            self._describe(x)
        keys = list(self.operands)
        instr, over = MMA[mmas[0].instr], mmas[0].over
        first = mmas[0].a
        assert isinstance(first, Slot) and isinstance(op.hi, Const)
        buffer = next(s for s in self.kernel.smem if s.name == first.buffer)
        steps = next(a.size for a in buffer.axes if a.name == over) // instr.k
        ahead = [self._load(k, 0, {op.var: op.lo}, over, instr.k) for k in keys]
        args = [replace(x.result, name=fresh(x.result.name, self.names)) for x in ahead]
        last = integer(int(op.hi.value) - 1)
        body, nexts, accs = self._iteration(
            op, mmas, copies, args, [a for a, _ in op.carried], steps, Var(op.var), True
        )
        partial = [replace(r, name=fresh(r.name, self.names)) for r in op.results]
        left = [replace(x, name=fresh(x.name, self.names)) for x in args]
        carried = (*op.carried, *zip(args, [x.result for x in ahead], strict=True))
        main = replace(
            op, hi=last, results=(*partial, *left), carried=carried, body=tuple(body), yields=(*accs, *nexts)
        )
        tail, _, ends = self._iteration(op, mmas, copies, left, partial, steps, last, False)
        named = {e.name: r for e, r in zip(ends, op.results, strict=True)}
        tail = [
            replace(x, result=named[x.result.name]) if isinstance(x, MmaOp) and x.result.name in named else x
            for x in tail
        ]
        return (*ahead, main, *tail)

    def _describe(self, x: MmaOp) -> None:
        """The operands of ``x``: axes, layout of one k-step."""
        assert isinstance(x.a, Slot) and isinstance(x.b, Slot)
        instr, k = MMA[x.instr], x.over
        stage = {s.name: s for s in self.kernel.smem}
        m = next(a for a in stage[x.a.buffer].axes if a.name != k)
        n = next(a for a in stage[x.b.buffer].axes if a.name != k)
        grid = acc_grid(self.kernel.layouts[x.result.layout], (m.name, m.size), (n.name, n.size))
        assert grid is not None, "the verifier demands accumulator layouts"
        step = TileAxis(k, instr.k)
        sides = (
            ("a", x.a, m, a_layout(x.instr, m.name, k, (m.size, instr.k), grid)),
            ("b", x.b, n, b_layout(x.instr, k, n.name, (instr.k, n.size), grid)),
        )
        for side, slot, axis, layout in sides:
            if (slot.buffer, side) not in self.operands:
                type_ = TileType(stage[slot.buffer].dtype, (axis, step))
                name = layout_name(self.layouts, layout, f"step_{axis.name}")
                self.operands[slot.buffer, side] = _Operand(slot, side, type_, name)

    def _load(self, key: tuple[str, str], step: int, env: dict[str, Expr], over: str, depth: int) -> MatrixLoad:
        o = self.operands[key]
        slot = replace(o.slot, stage=simplify(substitute(o.slot.stage, env)))
        frag = Frag(fresh(f"{o.slot.buffer}_f", self.names), o.type, o.layout)
        return MatrixLoad(frag, slot, over, step * depth)

    def _iteration(
        self, op: ForOp, mmas: list[MmaOp], copies: list[MemOp], now: Sequence[Frag],
        accs: Sequence[Frag], steps: int, at: Expr, more: bool,
    ) -> tuple[list[MemOp], list[Frag], list[Frag]]:  # fmt: skip
        """One iteration at ``at``: (ops, fragments for the next one if ``more``, accumulators)."""
        keys, over, depth = list(self.operands), mmas[0].over, MMA[mmas[0].instr].k
        out: list[MemOp] = []
        frags, sums = list(now), list(accs)
        for step in range(steps):
            ahead: list[MatrixLoad] = []
            if step + 1 < steps:
                ahead = [self._load(k, step + 1, {op.var: at}, over, depth) for k in keys]
            elif more:
                after = calc("add", at, 1)
                ahead = [self._load(k, 0, {op.var: after}, over, depth) for k in keys]
            out += ahead
            of = dict(zip(keys, frags, strict=True))
            for n, x in enumerate(mmas):
                assert isinstance(x.a, Slot) and isinstance(x.b, Slot)
                result = replace(x.result, name=fresh(x.result.name, self.names))
                a, b = of[x.a.buffer, "a"], of[x.b.buffer, "b"]
                out.append(replace(x, result=result, a=a, b=b, acc=sums[n]))
                sums[n] = result
            frags = [x.result for x in ahead]
            if step == 0:
                out += [y for x in copies for y in _at(x, op.var, at)]
        return out, frags, sums


def _apart(a: Expr, b: Expr, stages: int) -> bool:
    """Whether two stages of a pipeline always differ."""
    gap = stage_number(a, stages) - stage_number(b, stages)
    return not gap.terms and gap.const % stages != 0


def _only_copies(op: MemOp) -> bool:
    if isinstance(op, IfOp):
        return all(isinstance(x, AsyncCopy) for x in op.body)
    return isinstance(op, AsyncCommit | AsyncCopy)


def _at(op: MemOp, var: str, at: Expr) -> tuple[MemOp, ...]:
    """A copy, or copies under a condition, of the iteration ``var`` = ``at``; none where provably off."""
    env = {var: at}
    if at == Var(var):
        return (op,)
    match op:
        case IfOp(cond=cond, body=body):
            cond = simplify(substitute(cond, env))
            inner = tuple(y for x in body for y in _at(x, var, at))
            if cond == FALSE:
                return ()
            return inner if cond == TRUE else (replace(op, cond=cond, body=inner),)
        case AsyncCopy():
            moved = map_slots(op, lambda s: replace(s, stage=simplify(substitute(s.stage, env))))
            assert isinstance(moved, AsyncCopy)
            return (substitute_copy(moved, env),)
    return (op,)
