"""Issues warpgroup MMAs asynchronously, so that other work runs beside them, and waits only where it is necessary.

Before this pass every MMA is synchronous.  The pass makes each of them asynchronous in a group of its own
(``wg.fence``, MMA, ``wg.commit``) and places ``wg.wait n`` as late as it may stand.  An MMA that adds to the one right
before it, with both operands in shared memory, is in the group of that one.  Groups retire in
order, so n is the number of younger groups that may stay outstanding.  Each group has its fence, also where no fragment
was touched since the last one: the assembler may move registers there (its C7519).  A group must be retired before

* an op that reads its result, other than the next MMA of the same accumulator;
* a load of a vector from shared memory that is used with the result, such as the columns of a mask: the values that
  it gives for all elements of a tile need as many registers as the result (168 bytes of spills in a mask of two
  vectors);
* an op that makes the next value of a carried fragment which the group reads: it would be written to the
  registers that the matrix unit still reads (such a value is followed through conversions);
* an op that writes a shared buffer which the group reads, or a barrier where this code writes that buffer
  itself (the barrier then says that the buffer may be overwritten).  In a kernel without roles whose threads
  store to the buffer, any use of shared memory counts as a barrier: ``synchronize`` may put one before it;
* the end of the block: a loop body, a branch, a role.

An arrival after an MMA (``mbar.arrive``) says that its operands may be overwritten.  It moves after the
wait that retires the MMA, with the ``advance`` of its pipeline if that follows it.  Where the pipeline's state is
needed before, the advance stays and the stage to release is kept in a variable.  A pipeline of n stages has at
most n - 1 of them unreleased when the code waits for its next one, else no producer could fill that stage.

With ``outstanding_mma``, loops that only accumulate leave a group outstanding (``rewriting.outstanding_mma``).  An MMA
updates its accumulator in place.  Where the old value is used elsewhere too, the MMA gets a copy of it, made in front
of its fence.  PTX ISA, "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from nautilus.core.expr.nodes import Expr, Var, free_vars
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, WarpgroupPlan
from nautilus.ma_tile.analysis.mma_stages import is_wgmma
from nautilus.ma_tile.ir.async_ops import AdvanceOp, LetOp, WgCommit, WgFence, WgWait
from nautilus.ma_tile.ir.ops import (
    Barrier,
    ConvertOp,
    ForOp,
    Frag,
    IfOp,
    MbarArrive,
    MbarWait,
    MemKernel,
    MemModule,
    MemOp,
    MmaOp,
    RolesOp,
    SharedLoad,
    Slot,
    walk_ops,
)
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp
from nautilus.ma_tile.ir.traverse import (
    buffers_of,
    deep_touch,
    defined,
    each_planned_kernel,
    expressions,
    reads,
    touch,
)
from nautilus.ma_tile.rewriting.outstanding_mma import keep_outstanding
from nautilus.ma_tile.rewriting.renaming import Names


@dataclass(frozen=True, slots=True)
class AsyncMma:
    """``outstanding_mma`` and ``volatile_waits`` override the schedule's."""

    schedule: Schedule | None = None
    outstanding_mma: bool | None = None
    volatile_waits: bool | None = None
    name = "async-mma"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose warpgroup MMAs are asynchronous."""

        def one(k: MemKernel, plan: WarpgroupPlan) -> MemKernel:
            return order(k, plan.outstanding_mma, plan.volatile_waits)

        return each_planned_kernel(module, self, WarpgroupPlan, one)


def order(kernel: MemKernel, outstanding: bool = True, volatile: bool = False) -> MemKernel:
    """``kernel`` with its MMAs pending; one that has pending MMAs already stays as it is."""
    if any(isinstance(op, MmaOp) and op.is_async for op in walk_ops(kernel.body)):
        return kernel
    if outstanding:
        kernel = keep_outstanding(kernel, volatile)
    uses = Counter(name for op in walk_ops(kernel.body) for name in reads(op))
    roles = any(isinstance(op, RolesOp) for op in walk_ops(kernel.body))
    mmas = [op for op in walk_ops(kernel.body) if isinstance(op, MmaOp) and is_wgmma(op)]
    passed_on = frozenset(op.acc.name for op in mmas if op.acc is not None and uses[op.acc.name] == 1)
    work = _Order(Names(kernel), uses, volatile, {c.name: c.stages for c in kernel.pipelines}, roles, passed_on)
    body = work.scope(kernel.body)
    return kernel if body == kernel.body else replace(kernel, body=body)


@dataclass(slots=True)
class _Order:
    """The state of the rewrite that all blocks of a kernel share."""

    names: Names
    uses: Counter[str]
    volatile: bool
    depth: Mapping[str, int]  # stages of each pipeline, by its name
    roles: bool  # the kernel has roles: their barriers are all there
    passed_on: frozenset[str]  # results that only the next MMA reads, as its accumulator

    def scope(self, body: tuple[MemOp, ...]) -> tuple[MemOp, ...]:
        """The body of a role or of the kernel."""
        own = [x for op in body if not isinstance(op, RolesOp) for x in walk_ops((op,))]
        stored = frozenset(s.buffer for x in own for s in touch(x).writes if not self.roles)
        return self.block(body, _Writes(_written(own), stored), None)

    def block(self, body: tuple[MemOp, ...], written: _Writes, loop: ForOp | None) -> tuple[MemOp, ...]:
        """``body`` with its MMAs pending, all of them retired at its end."""
        local = {f.name for op in body for f in defined(op)}
        local |= {arg.name for arg, _ in loop.carried} if loop is not None else set()
        line = _Line(self, written, frozenset(local), _overwrites(loop, self.uses), _met(body))
        for op in body:
            line.add(op)
        line.retire(len(line.groups))
        return tuple(line.out)


@dataclass(frozen=True, slots=True)
class _Writes:
    """Shared buffers that a scope writes itself, and those of them that threads store to."""

    any: frozenset[str]
    stored: frozenset[str]


@dataclass(slots=True)
class _Later:
    """An arrival, or a move of ``pipeline``, put off; ``pipeline``: whose stage it releases."""

    op: MbarArrive | AdvanceOp
    pipeline: str | None


@dataclass(slots=True)
class _Group:
    """An outstanding MMA: what it makes, what it reads, and what is to happen when it is done."""

    result: Frag
    operand: str | None
    acc: str | None
    buffers: frozenset[str]
    after: list[_Later] = field(default_factory=list)


@dataclass(slots=True)
class _Line:
    """Straight-line code being written; ``groups`` are outstanding, the oldest first."""

    work: _Order
    written: _Writes
    local: frozenset[str]
    overwrites: Mapping[str, frozenset[str]]
    met: Mapping[str, frozenset[str]]
    out: list[MemOp] = field(default_factory=list)
    groups: list[_Group] = field(default_factory=list)
    spent: set[str] = field(default_factory=set)
    releasing: bool = False  # the op before this one was put off

    def add(self, op: MemOp) -> None:
        """The next op of the block, with what it has to wait for."""
        if self._put_off(op):
            return
        self.releasing = False
        mentioned = _variables(op)
        if isinstance(op, MbarWait):
            self.retire(self._blocking(mentioned))
        self._finalise(mentioned)
        if isinstance(op, MmaOp) and is_wgmma(op):
            self._issue(self._with_own_accumulator(op))
            return
        self.retire(self._needed(op))
        self.out.append(self._inside(op))

    def retire(self, count: int) -> None:
        """Wait for the ``count`` oldest groups; what waited for them follows."""
        if count == 0:
            return
        done, self.groups = self.groups[:count], self.groups[count:]
        ready = tuple(g.result for g in done if g.result.name not in self.spent | self.work.passed_on)
        self.out.append(WgWait(len(self.groups), ready, self.work.volatile))
        self.out += [x.op for g in done for x in g.after]

    # -- MMAs -----------------------------------------------------------------------------------
    def _with_own_accumulator(self, op: MmaOp) -> MmaOp:
        """``op`` with an accumulator that only it uses, so that it may be updated in place."""
        if op.acc is None or (op.acc.name in self.local and self.work.uses[op.acc.name] == 1):
            return op
        copy = ConvertOp(self.work.names.frag(op.acc, "copy"), op.acc, True, span=op.span)
        self.retire(self._needed(copy))
        self.out.append(copy)
        return replace(op, acc=copy.result)

    def _issue(self, op: MmaOp) -> None:
        self.retire(self._needed(op))
        if op.acc is not None:
            self.spent.add(op.acc.name)
        if self._continues(op):
            self.out[-1:] = [replace(op, is_async=True), WgCommit(op.span)]
            last = self.groups[-1]
            self.groups[-1] = replace(last, result=op.result, buffers=last.buffers | _buffers(op))
            return
        self.out += [WgFence(op.span), replace(op, is_async=True), WgCommit(op.span)]
        operand = op.a.name if isinstance(op.a, Frag) else None
        acc = op.acc.name if op.acc is not None else None
        self.groups.append(_Group(op.result, operand, acc, _buffers(op)))

    def _continues(self, op: MmaOp) -> bool:
        """Whether ``op`` adds to the MMA right before it, which releases nothing before, so that one group has both."""
        if not self.groups or not isinstance(self.out[-1], WgCommit) or isinstance(op.a, Frag):
            return False
        last = self.groups[-1]
        return op.acc == last.result and last.operand is None and not last.after and op.acc.name in self.work.passed_on

    def _needed(self, op: MemOp) -> int:
        """How many of the oldest groups ``op`` has to wait for."""
        if _is_boundary(op):
            return len(self.groups)
        inner = list(walk_ops((op,)))
        used = {name for x in inner for name in reads(x)}
        used |= {name for d in defined(op) for name in self.met.get(d.name, ())}
        own = isinstance(op, MmaOp) and is_wgmma(op)
        if own and isinstance(op, MmaOp) and op.acc is not None and op.acc not in (op.a, op.b):
            used.discard(op.acc.name)
        lost = {arg for x in inner for d in defined(x) for arg in self.overwrites.get(d.name, ())}
        written = _written((op,))
        if any(isinstance(x, Barrier) for x in inner):
            written |= self.written.any
        if any(True for x in inner for _ in buffers_of(x)):
            written |= self.written.stored
        for n, g in reversed(list(enumerate(self.groups))):
            clash = g.operand in lost or (g.acc in lost and not own)
            if g.result.name in used or clash or g.buffers & written:
                return n + 1
        return 0

    def _inside(self, op: MemOp) -> MemOp:
        """``op`` with its bodies done."""
        work = self.work
        match op:
            case ForOp():
                return op if _ordered(op) else replace(op, body=work.block(op.body, self.written, op))
            case IfOp() | TileSchedulerOp():
                return replace(op, body=work.block(op.body, self.written, None))
            case RolesOp(roles=roles):
                return replace(op, roles=tuple(replace(r, body=work.scope(r.body)) for r in roles))
        return op

    # -- releases -------------------------------------------------------------------------------
    def _put_off(self, op: MemOp) -> bool:
        """An arrival, and the advance right after it, happen when the MMAs so far are done."""
        if not self.groups:
            return False
        if isinstance(op, MbarArrive):
            pipelines = [c for c in self.work.depth if f"{c}_stage" in free_vars(op.stage)]
            later = _Later(op, pipelines[0] if len(pipelines) == 1 else None)
        elif isinstance(op, AdvanceOp) and self.releasing:
            later = _Later(op, op.pipeline)
        else:
            return False
        self.groups[-1].after.append(later)
        self.releasing = True
        return True

    def _blocking(self, mentioned: set[str]) -> int:
        """How many of the oldest groups hold a stage that a wait of the pipeline it mentions may need."""
        owed: Counter[tuple[str, str]] = Counter()
        for n, g in reversed(list(enumerate(self.groups))):
            for x in g.after:
                if not isinstance(x.op, MbarArrive):
                    continue
                if x.pipeline is None:
                    return n + 1  # an unknown pipeline
                owed[x.pipeline, x.op.mbar] += 1
                full = owed[x.pipeline, x.op.mbar] >= self.work.depth[x.pipeline]
                if full and {f"{x.pipeline}_stage", f"{x.pipeline}_phase"} & mentioned:
                    return n + 1
        return 0

    def _finalise(self, mentioned: set[str]) -> None:
        """Advances of pipelines that are needed now happen now; the stages before them are kept in variables."""
        moves = {x.pipeline for g in self.groups for x in g.after if isinstance(x.op, AdvanceOp) and x.pipeline}
        now = {c for c in moves if {c, f"{c}_stage", f"{c}_phase"} & mentioned}
        if not now:
            return
        stages = {f"{c}_stage" for c in now}
        for g in self.groups:
            for x in g.after:
                if isinstance(x.op, MbarArrive) and free_vars(x.op.stage) & stages:
                    x.op = replace(x.op, stage=self._kept(x.op.stage))
                elif isinstance(x.op, AdvanceOp) and x.pipeline in now:
                    self.out.append(x.op)
            g.after = [x for x in g.after if not (isinstance(x.op, AdvanceOp) and x.pipeline in now)]

    def _kept(self, stage: Expr) -> Expr:
        name = self.work.names.variable("done_stage")
        self.out.append(LetOp(name, stage))
        return Var(name, stage.dtype)


def _ordered(loop: ForOp) -> bool:
    """Whether the MMAs of ``loop``, but for those of loops inside it, are pending already."""
    return any(isinstance(x, MmaOp) and x.is_async for x in loop.body)


def _is_boundary(op: MemOp) -> bool:
    """No MMA is outstanding where ``op`` begins: it issues MMAs or releases stages itself, or is a scope."""
    match op:
        case ForOp() | TileSchedulerOp() | RolesOp():
            return True
        case IfOp():
            return any(isinstance(x, MbarArrive | WgWait) or is_wgmma(x) for x in walk_ops(op.body))
    return False


def _buffers(op: MmaOp) -> frozenset[str]:
    return frozenset(x.buffer for x in (op.a, op.b) if isinstance(x, Slot))


def _written(ops: Iterable[MemOp]) -> frozenset[str]:
    found = [deep_touch(op) for op in ops]
    return frozenset(s.buffer for t in found for s in (*t.writes, *t.copies))


def _variables(op: MemOp) -> set[str]:
    """Uniform variables and pipelines that ``op`` and what is inside it mention."""
    out: set[str] = set()
    for x in walk_ops((op,)):
        out |= {v for e in expressions(x) for v in free_vars(e)}
        if isinstance(x, AdvanceOp):
            out.add(x.pipeline)
    return out


def _met(body: Sequence[MemOp]) -> dict[str, frozenset[str]]:
    """Vectors that ``body`` loads from shared memory -> the results of MMAs that an op of it combines them with."""
    results = {x.result.name for x in body if isinstance(x, MmaOp) and is_wgmma(x)}
    made: dict[str, set[str]] = {}  # what is made of vectors alone -> the vectors
    met: dict[str, set[str]] = {}
    for op in body:
        if isinstance(op, SharedLoad) and len(op.result.type.axes) == 1:
            made[op.result.name] = {op.result.name}
            continue
        names = set(reads(op))
        vectors = {v for n in names for v in made.get(n, ())}
        for v in vectors if names & results else ():
            met.setdefault(v, set()).update(names & results)
        if not names & results:
            made |= {d.name: vectors for d in defined(op)}
    return {v: frozenset(x) for v, x in met.items()}


def _overwrites(loop: ForOp | None, uses: Counter[str]) -> dict[str, frozenset[str]]:
    """Name -> the carried fragments whose next value it is, itself or after conversions."""
    if loop is None:
        return {}
    made = {d.name: op for op in loop.body for d in defined(op)}
    out: dict[str, set[str]] = {}
    for (arg, _), y in zip(loop.carried, loop.yields, strict=True):
        value = y
        while value.name in made:
            out.setdefault(value.name, set()).add(arg.name)
            op = made[value.name]
            if not isinstance(op, ConvertOp) or uses[op.arg.name] != 1:
                break
            value = op.arg
    return {name: frozenset(args) for name, args in out.items()}
