"""Printing of the persistent tile scheduler: the loop over tiles, the tile counter and the queue."""

from __future__ import annotations

from nautilus.core.index import simplify as index
from nautilus.cuda.expr import SUM, operand
from nautilus.cuda.writer import Body, Printers, Writer
from nautilus.ma_tile.ir import ops as ma

#: The kernel parameter that points to the tile counter.
COUNTER = "tile_counter"


def uses_counter(kernel: ma.MemKernel) -> bool:
    """Whether the blocks of a launch fetch tiles: the kernel has a counter in global memory then."""
    return any(isinstance(op, ma.TileFetch) for op in ma.walk_ops(kernel.body))


def print_loop(w: Writer, op: ma.TileSchedulerOp, body: Body) -> None:
    """Print the loop over the tiles of the block; the body of a dynamic loop binds the tile and ends the loop."""
    saved = dict(w.env), dict(w.ranges)
    count = operand(w.expr(op.count), SUM)
    last = (index.bounds(op.count, w.ranges)[1] or 2**31) - 1
    w.ranges |= {op.var: (0, last), op.iteration: (0, last)}
    if op.order == "dynamic":
        iteration = w.env[op.iteration] = w.unique(op.iteration)
        head = f"for (int {iteration} = 0;; ++{iteration})"
    else:
        var, iteration = w.visible(op.var), w.unique(op.iteration)
        w.env |= {op.var: var, op.iteration: iteration}
        size = w.kernel.cluster
        first, stride = (w.block, "gridDim.x") if size == 1 else (f"{w.block} / {size}", f"(gridDim.x / {size})")
        step = f"{var} += {stride}"
        if op.order == "snake":
            step = f"{var} = {iteration} * {stride} + ({iteration} % 2 ? {stride} - 1 - {first} : {first})"
        head = f"for (int {iteration} = 0, {var} = {first}; {var} < {count}; ++{iteration}, {step})"
    with w.braces(head):
        body(w, op.body)
    w.env, w.ranges = saved


def print_break(w: Writer, op: ma.BreakOp) -> None:
    """Leave the loop."""
    w.line(f"if ({w.expr(op.cond)}) break;")


def print_first(w: Writer, op: ma.TileFirst) -> None:
    """A variable that fetches rewrite."""
    name = w.env[op.var] = w.unique(op.var)
    w.line(f"int {name} = {w.block};")


def print_fetch(w: Writer, op: ma.TileFetch) -> None:
    """Add to the counter of the launch."""
    w.line(f"{w.env[op.var]} = gridDim.x + atomicAdd({COUNTER}, 1u);")


def print_reset(w: Writer, op: ma.TileReset) -> None:
    """Clear the counter after the last fetch."""
    tile, count = operand(w.expr(op.tile), SUM), operand(w.expr(op.count), SUM)
    w.line(f"if ({tile} == gridDim.x + {count} - 1) *{COUNTER} = 0;")


def _place(w: Writer, slot: ma.Slot) -> str:
    return f"reinterpret_cast<volatile int*>({w.pointer} + {w.place(slot.buffer)})[{w.expr(slot.stage)}]"


def print_push(w: Writer, op: ma.QueuePush) -> None:
    """Store to a stage."""
    w.line(f"{_place(w, op.slot)} = {w.expr(op.value)};")


def print_pop(w: Writer, op: ma.QueuePop) -> None:
    """Read a stage; lane 0 reads for its warp, because its arrival releases the stage."""
    place, name = _place(w, op.slot), w.unique(op.var)
    read = place if w.single else f"__shfl_sync(0xffffffffu, {w.lane} == 0 ? {place} : 0, 0)"
    w.line(f"const int {name} = {read};")
    w.env[op.var] = name


#: op class -> what prints it
PRINTERS: Printers = {
    ma.BreakOp: print_break,
    ma.TileFirst: print_first,
    ma.TileFetch: print_fetch,
    ma.TileReset: print_reset,
    ma.QueuePush: print_push,
    ma.QueuePop: print_pop,
}
