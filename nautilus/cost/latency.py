"""What the threads of a kernel wait for: loads, earlier results, and earlier iterations.

A warp issues the loads of straight code together, ahead of their first use, and waits for them once.  It waits again
for loads whose positions are loaded, after a barrier, and in the next iteration: the compiler moves no load across a
branch.  Functions with branches (``core.functions``) divide the code in the same way, and it loads their arguments one
by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nautilus.core.expr.nodes import Const
from nautilus.core.functions import FUNCTIONS
from nautilus.core.ops import declaration
from nautilus.core.tiles import floor_pow2
from nautilus.cost.instructions import SPECIAL, Forms, combining, issue_slots, operation
from nautilus.ma_tile.analysis.code_size import code_size
from nautilus.ma_tile.analysis.mma_stages import is_wgmma, operands_from
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.instruction_tables import MMA
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import Frag, MemOp, walk_ops
from nautilus.ma_tile.ir.traverse import bound, reads
from nautilus.ma_tile.passes.steps.prefetch_steps import registers

STEP = 4.5  # cycles until a dependent instruction can start
SHUFFLE = 25.0  # the same for a step between lanes
UNIT = 18.0  # the same for a result of the special-function unit, beside its instructions


def chain(loop: ma.ForOp, layouts: Mapping[str, FragLayout], found: Forms) -> float:
    """Cycles from the values that an iteration of ``loop`` receives to those that it carries on; 0 without such a path.

    Loops inside of the loop count for themselves.  ``found``: :func:`~nautilus.cost.instructions.forms`.
    """
    ready = {f.name: 0.0 for f, _ in loop.carried}
    for op in loop.body:
        before = [ready[x.name] for x in declaration(type(op)).operands(op) if isinstance(x, Frag) and x.name in ready]
        if before and not isinstance(op, ma.ForOp | ma.IfOp):
            ready |= {f.name: max(before) + _latency(op, layouts, found) for f in bound(op)}
    taken = {f.name for f, _ in loop.carried}
    return max((ready[f.name] for f in loop.yields if f.name in ready and f.name not in taken), default=0.0)


def _latency(op: MemOp, layouts: Mapping[str, FragLayout], found: Forms) -> float:
    match op:
        case ma.MapOp(args=args, result=r):
            name = operation(op, found)
            return STEP * max(1.0, issue_slots(name, args[0].type.dtype, r.type.dtype)) + UNIT * SPECIAL.get(name, 0.0)
        case ma.ReduceOp() | ma.ScanOp():
            return SHUFFLE * combining(op, layouts).shuffles
    return 0.0


AWAIT = 256.0  # instructions that a warp executes in the time in which a load arrives


def awaited_loads(loop: ma.ForOp, kernel: ma.MemKernel) -> float:
    """Loads for whose whole time a warp waits in an iteration of ``loop``, one of MMAs.

    A warp executes other instructions between a load and its use, of the next iteration too, and loads that it issues
    together arrive together.  In a loop of warpgroup MMAs, consumers wait for what they make operands in shared memory
    from; outstanding MMAs cover other loads.
    """
    mmas = [x for x in loop.body if isinstance(x, ma.MmaOp)]
    if any(map(is_wgmma, mmas)):
        awaited = operands_from(loop.body)
    elif any(x.instr in MMA for x in mmas):
        awaited = frozenset(x.result.name for x in loop.body if isinstance(x, ma.GlobalLoad))
    else:
        return 0.0
    arrives, now, waited = dict[str, float](), 0.0, 0.0
    known = [(op, reads(op), code_size(kernel, (op,))) for op in loop.body]
    for _ in range(2):  # in the second iteration the times at which the loads of the first one arrive are known
        waited = 0.0
        for op, read, size in known:
            wait = max((arrives[x] - now for x in read if x in arrives), default=0.0)
            now, waited = now + max(0.0, wait), waited + max(0.0, wait)
            same = 1
            if isinstance(op, ma.GlobalLoad):
                same = op.repeat or 1  # registers with one element
                if op.result.name in awaited or op.result in loop.yields:
                    arrives[op.result.name] = now + AWAIT
            now += size / same
        arrives |= {
            f.name: arrives[y.name] for (f, _), y in zip(loop.carried, loop.yields, strict=True) if y.name in arrives
        }
    return waited / AWAIT


_UNROLLED = 160  # instructions of a loop's copies up to which NVRTC unrolls it unasked
_COPIES = 8  # iterations of such a loop
# cycles of a lone warp, which tell how much of a load's time other work hides
_ISSUED = 2.0  # an instruction
_ALONE = 2.5  # further ones of an instruction that is alone between two branches
_BRANCHED = 30.0  # further ones of a function with a branch, after which the lanes meet again
_BARRIER = 60.0
_LOAD = 600.0


class Waits:
    """The waits of a warp for plain loads and for functions with branches, counted in the order of the ops.

    ``loads``: how often a warp waits for the time of a load, for each tile; ``reloads``: for that of a value that the
    kernel stores itself; ``requests``: the vectors that it loads.  ``serial``: cycles in which a thread computes one
    result after another.  The loads of straight code are issued at its beginning, and awaited at their first use.
    """

    def __init__(self, kernel: ma.MemKernel) -> None:
        self.loads: Any = 0.0
        self.reloads: Any = 0.0
        self.requests: Any = 0.0
        self.serial: Any = 0.0
        self._kernel = kernel
        self._stored = {op.buffer for op in walk_ops(kernel.body) if isinstance(op, ma.GlobalStore)}
        self._own = set[str]()  # values loaded from what the kernel stores
        self._arrive: dict[str, float] = {}  # values -> when they arrive
        self._times: Any = 0.0  # of the op before
        self._together = 1.0  # iterations whose loads are outstanding together
        self._now = 0.0
        self._branch()

    def _branch(self) -> None:
        """Begin straight code."""
        self._start = self._now
        self._vectors: dict[str, int] = {}  # values -> the loads that made them
        self._slots: dict[int, float] = {}  # registers of results -> instructions of elementwise operations for each

    def enter(self, loop: ma.ForOp | None = None) -> float:
        """Begin a body, that of ``loop`` if it is one; returns what ``leave`` takes.

        What a loop reads and that is loaded before it arrives once.
        """
        used = {x for op in walk_ops(loop.body) for x in reads(op)} if loop is not None else set()
        self._arrived(max((self._arrive.get(x, 0.0) for x in used), default=0.0), self._times, own=False)
        around, self._together = self._together, 1.0
        self._branch()
        if loop is not None and all(_is_straight(op) for op in loop.body):
            self._together = float(loop.unroll or self._unasked(loop))
        return around

    def leave(self, around: float) -> None:
        """End a body; ``around``: the result of ``enter``.  Loads for later iterations are not awaited."""
        self._together = around
        self._branch()

    def _unasked(self, loop: ma.ForOp) -> int:
        """The iterations of ``loop`` that NVRTC unrolls together."""
        if not (isinstance(loop.lo, Const) and isinstance(loop.hi, Const)):
            return 1
        size = max(1, code_size(self._kernel, loop.body))
        return floor_pow2(max(1, min(_COPIES, _UNROLLED // size, int(loop.hi.value) - int(loop.lo.value))))

    def add(self, op: MemOp, times: Any) -> None:
        """Count ``op``, which runs ``times`` for each tile."""
        used = reads(op)
        last = max(used, key=lambda x: self._arrive.get(x, 0.0), default="")
        self._times = times
        self._arrived(self._arrive.get(last, 0.0), times, last in self._own)
        vectors = max((self._vectors.get(x, 1) for x in used), default=1)
        match op:
            case ma.GlobalLoad(result=r, buffer=buffer):
                vectors = max(1, self._registers(r) // max(1, op.vec) // (op.repeat or 1))
                self.requests = self.requests + times * vectors
                if buffer in self._stored:
                    self._own.add(r.name)
                    vectors = 1
                self._arrive[r.name] = (self._now if last in self._arrive else self._start) + _LOAD
            case ma.MapOp():
                self._mapped(op, times, min(vectors, self._registers(op.result)))
            case ma.ReduceOp() | ma.ScanOp():
                found = combining(op, self._kernel.layouts)
                shuffles = SHUFFLE * found.shuffles
                self.serial = self.serial + times * shuffles
                self._now += _ISSUED * found.slots + shuffles + _BARRIER * found.barriers
            case _:
                self._now += _ISSUED * code_size(self._kernel, (op,))
        self._vectors |= {f.name: min(vectors, self._registers(f)) for f in bound(op)}
        if not _is_straight(op):
            self._branch()

    def _arrived(self, at: float, times: Any, own: bool) -> None:
        if at > self._now:
            self._awaited(times * ((at - self._now) / _LOAD), own)
            self._now = at

    def _awaited(self, waits: Any, own: bool) -> None:
        if own:
            self.reloads = self.reloads + waits / self._together
        else:
            self.loads = self.loads + waits / self._together

    def _mapped(self, op: ma.MapOp, times: Any, vectors: int) -> None:
        """Count an elementwise operation; a branch in it awaits the ``vectors`` of its arguments one by one."""
        f, count = FUNCTIONS[op.op], self._registers(op.result)
        slots = issue_slots(op.op, op.args[0].type.dtype, op.result.type.dtype)
        if _is_straight(op):
            self._slots[count] = self._slots.get(count, 0.0) + slots + UNIT / _ALONE * f.special
            self._now += _ISSUED * count * slots
            return
        each = _ISSUED * slots + UNIT * f.special + _BRANCHED + _ALONE * self._slots.get(count, 0.0)
        self.serial = self.serial + times * count * each
        self._awaited(times * (vectors - 1), False)
        self._now += count * each

    def _registers(self, f: Frag) -> int:
        return self._kernel.layouts[f.layout].registers


def _is_straight(op: MemOp) -> bool:
    """Whether the compiler moves loads across ``op``."""
    if isinstance(op, ma.MapOp):
        return not (op.result.type.dtype.is_float and FUNCTIONS[op.op].branches)
    ends = isinstance(op, ma.ForOp | ma.IfOp | ma.Barrier | ma.AsyncWait)
    return not ends and getattr(op, "scratch", None) is None


#: The share of a kernel's time that each register costs in which a thread holds loads ahead of MMAs of warps.  ptxas
#: takes up to 30 registers more or fewer than the model estimates, so any one may cost a block (4-bit weights times
#: 32 rows on an H200: 126 -> 135 registers, four blocks -> three, and 47 -> 56 us).
REGISTER = 0.015


def loads_ahead(kernel: ma.MemKernel) -> int:
    """The most registers of a thread for loads of the next iteration, in a loop of MMAs of warps."""
    loops = [op for op in walk_ops(kernel.body) if isinstance(op, ma.ForOp) and _multiplies(op)]
    return max((_carried(kernel, op) for op in loops), default=0)


def _multiplies(loop: ma.ForOp) -> bool:
    return any(isinstance(x, ma.MmaOp) and x.instr in MMA and not is_wgmma(x) for x in loop.body)


def _carried(kernel: ma.MemKernel, loop: ma.ForOp) -> int:
    """Registers for what ``loop`` loads, carries on and computes with; those with the same element count once.

    Positions of later copies, which are carried on as well, wait for no memory.
    """
    loads = {x.result.name: x.repeat or 1 for x in loop.body if isinstance(x, ma.GlobalLoad)}
    computing = [op for op in walk_ops(loop.body) if not isinstance(op, ma.GlobalLoad | ma.AsyncCopy | ma.IfOp)]
    used = frozenset[str]().union(*map(reads, computing))
    handed = zip(loop.carried, loop.yields, strict=True)
    found = [y for (f, _), y in handed if y.name in loads and f.name in used]
    return sum(-(-registers(kernel, y) // loads[y.name]) for y in found)
