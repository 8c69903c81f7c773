"""Printing warp roles and the tiles of a persistent block."""

from __future__ import annotations

from collections.abc import Callable

from nautilus.core.errors import UnsupportedError
from nautilus.core.expr.nodes import Var
from nautilus.core.index import simplify as index
from nautilus.cuda.ops import pipelines as rings
from nautilus.cuda.ops.pipelines import declare_cursors
from nautilus.cuda.writer import Writer
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.async_ops import UNIT, SchedulerQueue

#: the kernel parameter that counts tiles: 0 before a launch, and again behind it
COUNTER = "tile_counter"
_NEXT = "#next"  # what the leading role asked for last

Body = Callable[[Writer, tuple[ma.MemOp, ...]], None]


def start_unit(w: Writer, first_warp: int, units: int) -> None:
    """Bind ``unit``; the shuffle tells the compiler that a warp agrees on it."""
    w.ranges[UNIT] = (0, units - 1)
    if units == 1:
        w.env[UNIT] = "0"
        return
    w.env[UNIT] = w.unique(UNIT)
    size = w.unit_warps
    offset = f" - {first_warp // size}" if first_warp else ""
    w.line(f"const int {w.env[UNIT]} = __shfl_sync(0xffffffffu, threadIdx.x / {32 * size}, 0){offset};")


def print_roles(w: Writer, op: ma.RolesOp, body: Body) -> None:
    """One branch a role, on the warp's number."""
    size = w.unit_warps
    for n, role in enumerate(op.roles):
        if role.first_warp % size:
            raise UnsupportedError(f"a role from warp {role.first_warp} on", role.name)
        word = "" if n == 0 else "else "
        first, last = 32 * role.first_warp, 32 * role.last_warp
        rest = n + 1 == len(op.roles) and last == 32 * w.kernel.warps
        lower = f"threadIdx.x >= {first} && " if first else ""
        whole = rest and (n > 0 or first == 0)
        condition = "" if whole else f"if ({lower}threadIdx.x < {last})"
        w.line(f"// {role.name}")
        with w.braces(f"{word}{condition}".strip()):
            _print_role(w, role, body)


def _print_role(w: Writer, role: ma.Role, body: Body) -> None:
    saved = dict(w.env), dict(w.ranges), w.single
    if role.registers is not None:
        launched = 65536 // (32 * w.kernel.warps) // 8 * 8
        name = "registers_less" if role.registers < launched else "registers_more"
        w.line(f"{w.speller.use(name)}<{role.registers}>();")
    if role.single:
        w.single = True
        with w.braces(f"if (threadIdx.x == {32 * role.first_warp})"):
            start_unit(w, role.first_warp, 1)
            declare_cursors(w, role.body)
            body(w, role.body)
    else:
        start_unit(w, role.first_warp, role.units)
        declare_cursors(w, role.body)
        body(w, role.body)
    w.env, w.ranges, w.single = saved


def print_let(w: Writer, op: ma.LetOp) -> None:
    """A uniform integer of the unit."""
    low, high = index.bounds(op.expr, w.ranges)
    text = w.expr(op.expr)
    if text.isdigit():
        w.env[op.var] = text
    else:
        name = w.unique(op.var)
        w.line(f"const int {name} = {text};")
        w.env[op.var] = name
    if low is not None and high is not None:
        w.ranges[op.var] = (low, high)


def _fetch(w: Writer, box: SchedulerQueue, var: str, seq: str, count: str) -> None:
    """The next tile: the leading role takes it from the launch's counter and sends it to the others."""
    cursor = next(c for c in w.kernel.cursors if c.name == box.cursor)
    stage, phase = Var(cursor.stage), w.env[cursor.phase]
    full, empty = (rings.barrier_address(w, name, stage) for name in (box.full, box.empty))
    wait, arrive = w.speller.use("mbarrier_wait"), w.speller.use("mbarrier_arrive")
    place = f"reinterpret_cast<volatile int*>(smem + {w.smem[box.smem].offset})[{w.env[cursor.stage]}]"
    if box.leads:
        w.line(f"{wait}({empty}, 1 - {phase});")
        w.line(f"const int {var} = {w.env[_NEXT]};")
        # every block asks once for each tile it gets, so that one of them is the last to ask
        w.line(f"if ({var} == gridDim.x + {count} - 1) *{COUNTER} = 0;")
        w.line(f"{place} = {var};")
        w.line(f"{arrive}({full});")
    else:
        w.line(f"{wait}({full}, {phase});")
        # the lane that reads is the one that gives the place back
        read = place if w.single else f"__shfl_sync(0xffffffffu, lane == 0 ? {place} : 0, 0)"
        w.line(f"const int {var} = {read};")
        rings.print_arrive(w, ma.MbarArrive(box.empty, stage, "warp"))
    rings.print_advance(w, ma.AdvanceOp(box.cursor))


def takes_counter(kernel: ma.MemKernel) -> bool:
    """Whether tiles are handed out while the kernel runs: then it has a counter in global memory."""
    return any(isinstance(op, ma.TileSchedulerOp) and op.mailbox is not None for op in ma.walk_ops(kernel.body))


def print_tiles(w: Writer, op: ma.TileSchedulerOp, body: Body) -> None:
    """The loop over the block's tiles."""
    saved = dict(w.env), dict(w.ranges)
    var, seq, count = w.unique(op.var), w.unique(op.seq), w.expr(op.count)
    w.env[op.var], w.env[op.seq] = var, seq
    bounds = index.bounds(op.count, w.ranges)
    w.ranges[op.var] = (0, (bounds[1] or 2**31) - 1)
    w.ranges[op.seq] = (0, (bounds[1] or 2**31) - 1)
    if op.mailbox is not None:
        if op.mailbox.leads:
            w.env[_NEXT] = w.unique("next")
            w.line(f"int {w.env[_NEXT]} = block;")
        with w.braces(f"for (int {seq} = 0;; ++{seq})"):
            _fetch(w, op.mailbox, var, seq, count)
            w.line(f"if ({var} >= {count}) break;")
            body(w, op.body)
            if op.mailbox.leads:
                # the stages of this tile are full, so the answer is there in time; asked for earlier, a tile goes to
                # a block that is far from done (H200: 1 % slower with many tiles a block, 23 % with 1.3)
                w.line(f"{w.env[_NEXT]} = gridDim.x + atomicAdd({COUNTER}, 1u);")
        w.env, w.ranges = saved
        return
    size = w.kernel.cluster
    first, stride = ("block", "gridDim.x") if size == 1 else (f"block / {size}", f"(gridDim.x / {size})")
    step = f"{var} += {stride}"
    if op.order == "snake":
        step = f"{var} = {seq} * {stride} + ({seq} % 2 ? {stride} - 1 - {first} : {first})"
    with w.braces(f"for (int {seq} = 0, {var} = {first}; {var} < {count}; ++{seq}, {step})"):
        body(w, op.body)
    w.env, w.ranges = saved
