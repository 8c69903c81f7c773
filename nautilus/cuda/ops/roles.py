"""Printing of warp roles and of uniform integers."""

from __future__ import annotations

from nautilus.core.errors import UnsupportedError
from nautilus.core.index import simplify as index
from nautilus.cuda.ops.pipelines import declare_pipeline_states
from nautilus.cuda.writer import Body, Printers, Writer
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.async_ops import CONSUMER

_CHANGES = {ma.INCREASE: "registers_more", ma.DECREASE: "registers_less"}


def bind_consumer(w: Writer, first_warp: int, consumers: int) -> None:
    """Bind ``consumer``. The shuffle makes the value uniform in a warp for the compiler."""
    w.ranges[CONSUMER] = (0, consumers - 1)
    if consumers == 1:
        w.env[CONSUMER] = "0"
        return
    w.env[CONSUMER] = w.unique(CONSUMER)
    size = w.consumer_warps
    offset = f" - {first_warp // size}" if first_warp else ""
    w.line(f"const int {w.env[CONSUMER]} = __shfl_sync(0xffffffffu, threadIdx.x / {32 * size}, 0){offset};")


def print_roles(w: Writer, op: ma.RolesOp, body: Body) -> None:
    """Print one branch for each role, by the number of the thread. Raises UnsupportedError."""
    size = w.consumer_warps
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
        if role.change is None:
            raise UnsupportedError("registers without 'increase' or 'decrease' (request-registers)", role.name)
        w.line(f"{w.speller.use(_CHANGES[role.change])}<{role.registers}>();")
    if role.single:
        w.single = True
        with w.braces(f"if (threadIdx.x == {32 * role.first_warp})"):
            bind_consumer(w, role.first_warp, 1)
            declare_pipeline_states(w, role.body)
            body(w, role.body)
    else:
        bind_consumer(w, role.first_warp, role.consumers)
        declare_pipeline_states(w, role.body)
        body(w, role.body)
    w.env, w.ranges, w.single = saved


def print_let(w: Writer, op: ma.LetOp) -> None:
    """A uniform integer of the consumer."""
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
    elif not any(isinstance(x, ma.TileSchedulerOp) and x.var == op.var for x in ma.walk_ops(w.kernel.body)):
        w.ranges.pop(op.var, None)  # of another variable; a tile that is fetched has the range of its loop


#: op class -> what prints it
PRINTERS: Printers = {
    ma.LetOp: print_let,
}
