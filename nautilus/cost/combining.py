"""The work of reductions and scans, which combine the elements of a tile, and iterations that wait for each other."""

from __future__ import annotations

from collections.abc import Container, Mapping
from math import prod

from nautilus.core.ops import declaration
from nautilus.core.records import dataclass
from nautilus.cost.instructions import SPECIAL, issue_slots, operation
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.instruction_tables import MMA
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import Frag, MemOp
from nautilus.ma_tile.ir.scan import scan_levels
from nautilus.ma_tile.ir.traverse import bound


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
    """Cycles from the values that an iteration of ``loop`` takes over to those that it hands on; 0 without such a path.

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


def awaited_loads(loop: ma.ForOp) -> int:
    """The runs of loads in a loop of warp MMAs that the same iteration uses; those between two MMAs are one run."""
    if not any(isinstance(x, ma.MmaOp) and x.instr in MMA for x in loop.body):
        return 0
    later, found, waits = {f.name for f in loop.yields}, 0, False
    for op in loop.body:
        waits |= isinstance(op, ma.GlobalLoad) and op.result.name not in later
        if isinstance(op, ma.MmaOp) and waits:
            found, waits = found + 1, False
    return found + waits
