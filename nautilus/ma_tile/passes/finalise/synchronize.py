"""Insert the waits and barriers that accesses to shared memory need, and no others.

The pass first removes every wait and every barrier of all threads, so it may run again after any change.  Named
barriers stay; one that all threads of the block reach is a barrier of all threads too.  A synchronous ``tma.load`` acts
as a barrier before it and after it: all threads reach it, and all threads see its bytes afterwards.  A forward analysis
computes for each op which shared bytes were written or read since the last barrier, and which copies may be
outstanding.  The pass inserts

* a barrier before an op that touches bytes that a thread touched since the last barrier, if one of the two accesses
  is a write (the threads of one warp count as different threads, because they do not run in lockstep);
* a wait and a barrier before an op that touches bytes of a copy that may not have arrived; the wait alone before the
  copy itself, if no other op writes to its buffer, because each thread copies to its own bytes again;
* a barrier before a load from a tensor in global memory that the kernel stored to since the last barrier, one of the
  team where other blocks store it too.  An element is stored once (``vr_tile.ir``, recurrences), so a store needs none.

A barrier is placed together with the wait that the next reader of an outstanding copy needs, if no other barrier is
needed before that reader.  A loop over a pipeline then has one barrier an iteration.  The wait is dropped again if the
reader has one of its own and all else stays the same, as where the first iteration of a loop needs that one.

Stages of a pipeline are compared symbolically: the numerator of ``expr % stages`` is an affine form of the loop
variable, and it is shifted by one at the back edge.  Two forms whose difference is not constant may be equal.  The
analysis of a loop runs to a fixed point; a loop of one iteration has no back edge.  After a loop, copies of the last
iterations count only if their conditions may hold there: a pipeline fetches nothing in them.  A commit without which
the waits and barriers are the same, or fewer waits, is dropped: its copies then belong to the next group.

Kernels with warp roles do not change, because ``specialise-warps`` has synchronised them.  Kernels whose TMA loads
have waits already do not change either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import reduce
from itertools import zip_longest

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Var, free_vars
from nautilus.core.index.linear import Linear, atom
from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.access import affine
from nautilus.ma_tile.analysis.outstanding.code import Chain, Frame, Loop
from nautilus.ma_tile.analysis.outstanding.iterations import Iterations
from nautilus.ma_tile.analysis.outstanding.repeated import commits_of, has_fewer_waits, repeated, without_commit
from nautilus.ma_tile.analysis.outstanding.states import NONE, Accesses, Stages, State
from nautilus.ma_tile.analysis.outstanding.touched import Touched, copied_once
from nautilus.ma_tile.ir.async_ops import TmaLoad
from nautilus.ma_tile.ir.ops import (
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    ForOp,
    IfOp,
    MemKernel,
    MemModule,
    MemOp,
    ReduceOp,
    RolesOp,
    ScanOp,
    Smem,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import each_kernel, exchanged, rebuild, touch
from nautilus.ma_tile.rewriting.renaming import chosen_ranges, known_ranges, launch_facts, uniform_ranges

_GROUPS = (AsyncCopy, AsyncCommit, AsyncWait, TmaLoad)


@dataclass(frozen=True, slots=True)
class Synchronize:
    """The pass ``synchronize``, which has no options."""

    name = "synchronize"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` with the waits and barriers that it needs."""
        return each_kernel(module, synchronize)


def synchronize(kernel: MemKernel) -> MemKernel:
    """``kernel`` with new waits and barriers in place of those that it has."""
    if any(isinstance(op, RolesOp) or (isinstance(op, TmaLoad) and op.mbar) for op in walk_ops(kernel.body)):
        return kernel
    bare = rebuild(kernel.body, lambda op: () if _replaced(op) else (op,))
    smem = {s.name: s for s in kernel.smem}
    ranges = {**uniform_ranges(kernel), **known_ranges(kernel), **chosen_ranges(kernel)}
    touched = Touched(smem, exchanged(kernel.body), copied_once(kernel.body))
    runs = Iterations(ranges, launch_facts(kernel), max(touched.stages.values(), default=0))
    work = _Sync(smem, runs, touched, 32 * kernel.warps, kernel.team > 1)
    body, _ = work.block(bare, State())
    commits = commits_of(bare)
    work.places_commits = commits_of(body) > commits
    for n in reversed(range(commits)):
        fewer = without_commit(bare, n)
        work.wanted = fewer, without_commit(body, n)
        with suppress(_CommitNeeded):
            made = work.block(fewer, State())[0]
            if has_fewer_waits(made, work.wanted[1]):
                bare, body = fewer, made
    work.places_commits, work.wanted = True, None
    for op in repeated(body):
        if id(op) not in work.early:
            continue  # nothing would change
        alone = work.without(op)
        fewer = alone.block(bare, State())[0]
        if fewer != body and has_fewer_waits(fewer, body):
            work, body = alone, fewer
    return replace(kernel, body=body)


class _CommitNeeded(Exception):
    """An op needs a copy that no group has; this also holds in all states of which the present one is a part.

    Or what a commit orders is other than before in more than waits, which the rest of the kernel does not mend.
    """


def _replaced(op: MemOp) -> bool:
    return isinstance(op, AsyncWait) or (isinstance(op, Barrier) and op.threads is None)


@dataclass(slots=True)
class _Sync:
    smem: dict[str, Smem]
    runs: Iterations
    touched: Touched
    threads: int  # of the block
    team: bool  # whether tensors in global memory are exchanged between blocks
    alone: frozenset[int] = frozenset()  # identities of ops whose barriers have no wait for a later reader
    places_commits: bool = True  # else the analysis ends where one is needed
    #: a body, and the result without which its analysis ends: that, or the same with fewer waits
    wanted: tuple[tuple[MemOp, ...], tuple[MemOp, ...]] | None = None
    early: set[int] = field(init=False, default_factory=set)  # identities of ops whose barriers have such a wait
    stages: Stages = field(init=False)
    _elsewhere: Accesses = field(init=False)  # to these tensors
    # Known results. Their keys are identities, because the hash of a loop traverses its body; an entry holds its op, so
    # that no other op has the identity.
    loops: dict[tuple[int, State], tuple[ForOp, tuple[MemOp, ...], State, State]] = field(
        init=False, default_factory=dict
    )
    moving: dict[int, tuple[ForOp, frozenset[str]]] = field(init=False, default_factory=dict)
    inner: dict[int, tuple[ForOp, tuple[Accesses, Accesses] | None]] = field(init=False, default_factory=dict)
    blocks: dict[tuple[int, State, int], tuple[Frame, tuple[tuple[MemOp, ...], State]]] = field(
        init=False, default_factory=dict
    )
    fronts: dict[tuple[int, State, int, int, int], tuple[MemOp, Frame, list[MemOp], State]] = field(
        init=False, default_factory=dict
    )
    replayed: dict[tuple[object, ...], tuple[tuple[MemOp, ...], State | None]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.stages = Stages(self.touched.stages)
        self._elsewhere = self.touched.elsewhere

    def without(self, op: MemOp) -> _Sync:
        """The analysis without waits for later readers at the barriers of ``op``, with what is known of other ops."""
        made = replace(self, alone=self.alone | {id(op)})
        made.moving, made.inner, made.replayed = self.moving, self.inner, self.replayed
        made.stages = self.stages
        made.fronts = {key: found for key, found in self.fronts.items() if key[0] != id(op)}
        made.early = self.early - {id(op)}
        return made

    # -- blocks and loops ---------------------------------------------------------------------
    def block(
        self, body: tuple[MemOp, ...], state: State, loop: ForOp | None = None
    ) -> tuple[tuple[MemOp, ...], State]:
        """``body`` with its waits and barriers, if it starts in ``state``; and the state after it."""
        key = id(body), state, id(loop)
        if key not in self.blocks:
            self.blocks[key] = (Frame(body, 0, loop), self._block(body, state, loop))
        return self.blocks[key][1]

    def _block(self, body: tuple[MemOp, ...], state: State, loop: ForOp | None) -> tuple[tuple[MemOp, ...], State]:
        out: list[MemOp] = []
        start, chain, done = state, Chain((), state, state), 0
        active = self.touched.active(body)
        for (n, op), (_, behind) in zip_longest(active, active[1:], fillvalue=(0, None)):
            assert op is not None
            out += body[done:n]
            done = n + 1
            if isinstance(op, ForOp):
                if (id(op), state) not in self.loops:
                    self.loops[id(op), state] = (op, *self._loop(op, state))
                _, inside, head, left = self.loops[id(op), state]
                *first, new = inside
                self._check_wanted(body, [*out, *inside])
                if first or not chain.goes_on(op):
                    entry = self._replay(tuple(first), state, {}) or state
                    chain = Chain((*out, *first), start, entry)
                assert isinstance(new, ForOp)
                chain = replace(chain, loops=(*chain.loops, Loop(op, new.body, head)))
                state = self._ends(chain, behind) or left
                out += inside
                continue
            touches = any(self.touched.of(op))
            if touches or isinstance(op, TmaLoad | AsyncCommit | Barrier):
                chain = Chain((), state, state)
            if isinstance(op, IfOp) and self.touched.loads_by_tma(op):
                inner, left = self.block(op.body, state)
                out.append(replace(op, body=inner))
                state = state.join(left)
                continue
            if isinstance(op, Barrier) and op.threads in (None, self.threads):
                state = self._met(state, op.team)
            if isinstance(op, AsyncWait):  # of a body that has its waits and barriers
                state = state.wait(op.pending)
            if touches or isinstance(op, TmaLoad | AsyncCommit):
                state = self._after(op, self._before(op, state, Frame(body, n, loop), out))
            out.append(op)
        out += body[done:]
        return tuple(out), state

    def _check_wanted(self, body: tuple[MemOp, ...], begin: Sequence[MemOp]) -> None:
        """Raise _CommitNeeded where ``begin`` begins no wanted result of ``body``: the rest costs most of the time."""
        if self.wanted is None or body is not self.wanted[0]:
            return
        if not has_fewer_waits(begin, self.wanted[1], begins=True):
            raise _CommitNeeded

    def _loop(self, op: ForOp, state: State) -> tuple[tuple[MemOp, ...], State, State]:
        """The loop after the wait and the barrier that only its first iteration needs.

        The states in which each iteration may begin, and after the loop.
        """
        plain, head, left = self._fixed_point(op, state)
        pending = self._ahead(Frame(op.body, 0, None), self._enter(op, state))
        first = (Barrier(),) if pending is None else (AsyncWait(pending), Barrier())
        if pending is not None or (
            (state.read or state.written) and self.runs.iterations(op)[1] > 1 and _barriers(plain)
        ):
            ready = self._met(state if pending is None else state.wait(pending))
            inside, begin, after = self._fixed_point(op, ready)
            if _barriers(inside) < _barriers(plain):
                again, *states = self._fixed_point(inside, state)  # its own waits and barriers may do for all of it
                if again == inside and states[1] == after:
                    return (inside,), states[0], after
                return (*first, inside), begin, after
        return (plain,), head, left

    def _fixed_point(self, op: ForOp, state: State) -> tuple[ForOp, State, State]:
        """The loop with a body that is right for every iteration, the state that begins one, and the state after it."""
        at = atom(Var(op.var))
        head = self._enter(op, state)
        least, most = self.runs.iterations(op)
        if most <= 1:
            body, end = self.block(op.body, head)
            left = end if least else head.join(end)
            return replace(op, body=body), head, self.stages.renamed(left, op.var, affine(op.lo))
        while True:
            body, end = self.block(op.body, head, op)
            back = self.stages.renamed(end, op.var, at.shift(-1))
            new = head.join(back)
            if new == head:
                left = self.stages.renamed(back if least else head, op.var, affine(op.hi))
                return replace(op, body=body), head, left
            head = new

    def _ends(self, chain: Chain, behind: MemOp | None) -> State | None:
        """The state after the loops of ``chain``, by the conditions that hold in the last iterations of all of them.

        No iteration, exactly one, and so on have paths of their own, as far as there are stages.  None where loops in
        the bodies copy.  ``behind``: the next op that orders or touches anything.
        """
        lo, hi = chain.loops[0].op.lo, chain.loops[-1].op.hi
        ends: list[State] = []
        for n, given, more in self.runs.paths(lo, hi):
            states: list[State | None] = [x.head for x in chain.loops]
            if not more:
                entry = self._replay(chain.before, chain.start, {}, given) or chain.entry
                states = [self._enter(x.op, entry, lo) for x in chain.loops] if n else [entry]
            for left in range(n, 0, -1):
                found = self._step(chain, states, left, given)
                if found is None:
                    return None
                states = found
            left_in = [x for x in states if x is not None]
            if n:
                ends += [self.stages.renamed(x, chain.loops[-1].op.var, affine(hi)) for x in left_in]
            elif isinstance(behind, ForOp) and chain.goes_on(behind) and self.runs.may_be_empty(lo, hi):
                ends += [x.moved(self._moving(behind), affine(hi) - affine(lo)) for x in left_in]
            else:
                ends += left_in
        return self.stages.reduced(reduce(State.join, ends)) if ends else None

    def _step(
        self, chain: Chain, states: Sequence[State | None], left: int, given: Sequence[Expr]
    ) -> list[State | None] | None:
        """The states in which an iteration of each loop begins, if one began in ``states`` with ``left`` to go.

        None for a loop that ends before it; no loop comes to the iterations that those behind it have.
        """
        out: list[list[State]] = [[] for _ in chain.loops]
        at = calc("sub", chain.loops[-1].op.hi, left)
        for k, (loop, state) in enumerate(zip(chain.loops, states, strict=True)):
            if state is None or sum(self.runs.iterations(x.op)[0] for x in chain.loops[k + 1 :]) >= left:
                continue
            end = self._replay(loop.body, state, {loop.op.var: at}, given)
            if end is None:
                return None
            for later in range(k, len(chain.loops)):
                to = atom(Var(chain.loops[later].op.var)).shift(-1)
                out[later].append(self.stages.renamed(end, loop.op.var, to))
        return [reduce(State.join, found) if found else None for found in out]

    def _replay(
        self, body: tuple[MemOp, ...], state: State, at: Mapping[str, Expr], given: Sequence[Expr] = ()
    ) -> State | None:
        """The state after ``body`` with its waits and barriers in iteration ``at`` where conditions are ``given``.

        None if loops in it copy.
        """
        key = id(body), state, *at.items(), *given
        if key not in self.replayed:
            self.replayed[key] = (body, self._replayed(body, state, at, given))
        return self.replayed[key][1]

    def _replayed(
        self, body: tuple[MemOp, ...], state: State, at: Mapping[str, Expr], given: Sequence[Expr]
    ) -> State | None:
        for _, op in self.touched.active(body):
            match op:
                case ForOp():
                    inside = self._inside(op)
                    if inside is None:
                        return None
                    state = State(state.written | inside[1], state.read | inside[0], state.groups, state.open)
                case TmaLoad():
                    return None
                case AsyncWait(pending=pending):
                    state = state.wait(pending)
                case Barrier(threads=threads, team=team) if threads in (None, self.threads):
                    state = self._met(state, team)
                case IfOp(cond=cond) if self.runs.is_false(cond, at, given):
                    continue
                case IfOp() if self.touched.loads_by_tma(op):
                    return None
                case _:
                    state = self._after(op, state)
        return state

    def _inside(self, op: ForOp) -> tuple[Accesses, Accesses] | None:
        """What the loop reads and writes in any order, whatever its barriers order; None where it copies or moves."""
        if id(op) not in self.inner:
            found = None
            if not self._moving(op) and not any(isinstance(x, _GROUPS) for x in walk_ops(op.body)):
                parts = [self.touched.of(x) for x in walk_ops(op.body)]
                found = NONE.union(*(r for r, _, _ in parts)), NONE.union(*(w for _, w, _ in parts))
            self.inner[id(op)] = (op, found)
        return self.inner[id(op)][1]

    def _enter(self, op: ForOp, state: State, lo: Expr | None = None) -> State:
        """``state`` with stages as forms of the variable of ``op``, which is ``lo`` (``op.lo``) in the first iteration.

        Stages of buffers that no iteration addresses by the variable stay as they are.
        """
        first = affine(op.lo if lo is None else lo)
        return self.stages.reduced(state.moved(self._moving(op), atom(Var(op.var)) - first))

    def _moving(self, op: ForOp) -> frozenset[str]:
        """The buffers whose stages ``op`` addresses by its variable."""
        if id(op) not in self.moving:
            slots = (s for x in walk_ops(op.body) for t in (touch(x),) for s in (*t.reads, *t.writes, *t.copies))
            self.moving[id(op)] = (op, frozenset(s.buffer for s in slots if op.var in free_vars(s.stage)))
        return self.moving[id(op)][1]

    # -- one op -------------------------------------------------------------------------------
    def _before(self, op: MemOp, state: State, frame: Frame, out: list[MemOp]) -> State:
        """Append the waits and the barrier that ``op`` needs to ``out``; the state in front of ``op``."""
        key = id(op), state, frame.at, id(frame.body), id(frame.loop)
        if key not in self.fronts:
            needed: list[MemOp] = []
            self.fronts[key] = (op, frame, needed, self._in_front(op, state, frame, needed))
        _, _, needed, ready = self.fronts[key]
        out += needed
        return ready

    def _in_front(self, op: MemOp, state: State, frame: Frame, out: list[MemOp]) -> State:
        reads, writes, copies = self.touched.of(op)
        writes = frozenset(x for x in writes if x.buffer in self.smem)
        touched = reads | writes | copies
        if isinstance(op, TmaLoad):
            pending = self._pending(touched, state)
            if pending is not None:
                out.append(AsyncWait(pending))
            return (state if pending is None else state.wait(pending)).barrier()
        if self.touched.overlap(touched, state.open):
            if not self.places_commits:
                raise _CommitNeeded
            out.append(AsyncCommit())
            state = state.commit()
        pending = self._pending(touched, state)
        awaited = state if pending is None else state.wait(pending)
        if not self._clash(reads, writes | copies, awaited):
            return self._waited(state, pending, out)
        if pending is None and id(op) not in self.alone:
            pending = self._ahead(frame, state)
            if pending is not None:
                self.early.add(id(op))
        state = self._waited(state, pending, out)
        across = self.team and not touched.isdisjoint(self._elsewhere & state.written)
        out.append(Barrier(team=across))
        return self._met(state, across)

    def _clash(self, reads: Accesses, writes: Accesses, state: State) -> bool:
        """Whether ``reads`` or ``writes`` need a barrier after ``state``, in which no copy to them is outstanding."""
        overlap, overwrites = self.touched.overlap, self.touched.overwrites
        return overlap(reads, state.written) or overlap(writes, state.read) or overwrites(writes, state.written)

    def _waited(self, state: State, pending: int | None, out: list[MemOp]) -> State:
        """The state after a wait until ``pending`` groups are outstanding, appended to ``out``; None: after no wait."""
        if pending is None:
            return state
        out.append(AsyncWait(pending))
        return state.wait(pending)

    def _met(self, state: State, team: bool = False) -> State:
        """The state after a barrier of the block; ``team``: after one of all its blocks."""
        if team or not self.team:
            return state.barrier()
        return replace(state.barrier(), written=self._elsewhere & state.written)

    def _after(self, op: MemOp, state: State) -> State:
        reads, writes, copies = self.touched.of(op)
        if isinstance(op, ReduceOp | ScanOp) and op.scratch is not None:  # it has a barrier between its halves
            return replace(self._met(state), read=writes)
        if isinstance(op, AsyncCommit):
            return state.commit()
        if isinstance(op, TmaLoad) or not (reads or writes or copies):
            return state
        return State(state.written | writes, state.read | reads, state.groups, state.open | copies)

    def _pending(self, xs: Accesses, state: State) -> int | None:
        """The number of groups that may be outstanding when ``xs`` have arrived; None if ``xs`` need no wait."""
        for n, group in enumerate(state.groups):
            if self.touched.overlap(xs, group):
                return n
        return None

    # -- looking ahead --------------------------------------------------------------------------
    def _ahead(self, frame: Frame, state: State) -> int | None:
        """The wait that the next reader of an outstanding copy needs.

        None if a barrier comes before that reader, or if the reader has to wait for a copy that is still to come.
        """
        fresh, coming, overlap = state.barrier(), NONE, self.touched.overlap
        for op, shift in self._upcoming(frame):
            if isinstance(op, ForOp | RolesOp):
                return None
            reads, writes, copies = self.touched.of(op)
            if not (reads or writes or copies):
                continue
            if self.touched.loads_by_tma(op):
                return None
            if shift is not None:
                moved = self.stages.renamed(State(reads, writes, (copies,)), *shift)
                reads, writes, (copies,) = moved.written, moved.read, moved.groups
            pending = self._pending(reads | writes, state)
            if pending is not None:
                return None if overlap(reads | writes, coming) else pending
            if overlap(reads | writes | copies, fresh.written) or overlap(writes | copies, fresh.read):
                return None
            fresh = State(fresh.written | writes, fresh.read | reads, fresh.groups, fresh.open)
            coming |= copies
        return None

    def _upcoming(self, frame: Frame) -> Iterator[tuple[MemOp, tuple[str, Linear] | None]]:
        for n, op in self.touched.active(frame.body):
            if n >= frame.at:
                yield op, None
        if frame.loop is not None:
            var = frame.loop.var
            shift = (var, atom(Var(var)).shift(1))
            for _, op in self.touched.active(frame.loop.body):
                yield op, shift


def _barriers(op: MemOp) -> int:
    return sum(isinstance(x, Barrier) for x in walk_ops((op,)))
