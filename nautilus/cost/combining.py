"""The work of reductions and scans, which combine the elements of a tile, and iterations that wait for each other."""

from __future__ import annotations

from collections.abc import Container, Mapping
from math import prod

from nautilus.core.ops import declaration
from nautilus.core.records import dataclass
from nautilus.cost.instructions import SPECIAL, issue_slots, operation
from nautilus.ma_tile.analysis.code_size import code_size
from nautilus.ma_tile.analysis.mma_stages import is_wgmma, stored_from
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.instruction_tables import MMA
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import Frag, MemOp, walk_ops
from nautilus.ma_tile.ir.scan import scan_levels
from nautilus.ma_tile.ir.traverse import bound, reads
from nautilus.ma_tile.passes.copies.prefetch_steps import registers


@dataclass(frozen=True, slots=True)
class Combining:
    """Instructions of a warp, those of which that are steps between lanes, and barriers of the block."""

    slots: float
    shuffles: int
    barriers: float


def combining(op: ma.ReduceOp | ma.ScanOp, layouts: Mapping[str, FragLayout]) -> Combining:
    """The work of ``op``. A barrier counts twice, because the next use of the scratch needs another one."""
    barriers = 2.0 if op.scratch is not None else 0.0
    layout = layouts[op.arg.layout]
    if isinstance(op, ma.ReduceOp):
        lanes = prod(x.size for x in layout.lane if x.axis in op.axes)
        shuffles = 0 if op.into is not None else max(0, lanes.bit_length() - 1)
        return Combining(layout.registers + 3.0 * shuffles * layouts[op.result.layout].registers, shuffles, barriers)
    levels = scan_levels(layout, op.axis)
    assert levels is not None
    steps = levels.lanes.size.bit_length() + 1 if levels.lanes.size > 1 else 0
    exchanged = 3.0 * steps + (3.0 * levels.warps.size if levels.warps.size > 1 else 0.0)
    return Combining(2.0 * layout.registers + exchanged * levels.totals, steps, barriers)


STEP = 4.5  # cycles until a dependent instruction can start
SHUFFLE = 25.0  # the same for a step between lanes
UNIT = 18.0  # the same for a result of the special-function unit, beside its instructions


def chain(loop: ma.ForOp, layouts: Mapping[str, FragLayout], twos: Container[str]) -> float:
    """Cycles from the values that an iteration of ``loop`` receives to those that it carries on; 0 without such a path.

    Loops inside of the loop count for themselves.  ``twos``: :func:`~nautilus.cost.instructions.squares`.
    """
    ready = {f.name: 0.0 for f, _ in loop.carried}
    for op in loop.body:
        before = [ready[x.name] for x in declaration(type(op)).operands(op) if isinstance(x, Frag) and x.name in ready]
        if before and not isinstance(op, ma.ForOp | ma.IfOp):
            ready |= {f.name: max(before) + _latency(op, layouts, twos) for f in bound(op)}
    taken = {f.name for f, _ in loop.carried}
    return max((ready[f.name] for f in loop.yields if f.name in ready and f.name not in taken), default=0.0)


def _latency(op: MemOp, layouts: Mapping[str, FragLayout], twos: Container[str]) -> float:
    match op:
        case ma.MapOp(args=args, result=r):
            name = operation(op, twos)
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
        awaited = stored_from(loop.body)
    elif any(x.instr in MMA for x in mmas):
        awaited = frozenset(x.result.name for x in loop.body if isinstance(x, ma.GlobalLoad))
    else:
        return 0.0
    arrives, now, waited = dict[str, float](), 0.0, 0.0
    for _ in range(2):  # in the second iteration the times at which the loads of the first one arrive are known
        waited = 0.0
        for op in loop.body:
            wait = max((arrives[x] - now for x in reads(op) if x in arrives), default=0.0)
            now, waited = now + max(0.0, wait), waited + max(0.0, wait)
            same = 1
            if isinstance(op, ma.GlobalLoad):
                same = op.repeat or 1  # registers with one element
                if op.result.name in awaited or op.result in loop.yields:
                    arrives[op.result.name] = now + AWAIT
            now += code_size(kernel, (op,)) / same
        arrives |= {
            f.name: arrives[y.name] for (f, _), y in zip(loop.carried, loop.yields, strict=True) if y.name in arrives
        }
    return waited / AWAIT


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
