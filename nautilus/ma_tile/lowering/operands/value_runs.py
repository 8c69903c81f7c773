"""Runs of neighbours for which a value has one element, because it depends on a position through a quotient alone.

An example is a byte that names a row of a table for eight weights.  The elements of the row are then one vector,
because the values that give their position are equal.
"""

from __future__ import annotations

from nautilus.ma_tile.analysis.access import RefAxes
from nautilus.ma_tile.analysis.repeated_values import run_along
from nautilus.vr_tile import ir as vr
from nautilus.vr_tile.ir import TileKernel, Value


def value_runs(kernel: TileKernel) -> RefAxes:
    """The tile axes that each value varies with, and along each the length of the runs with one element."""
    out: dict[str, dict[str, int]] = {}
    for op in vr.walk_ops(kernel.body):
        if isinstance(op, vr.ForOp):
            out |= {arg.name: dict.fromkeys(arg.type.names, 1) for arg, _ in op.carried}
        for v in vr.results(op):
            out[v.name] = _runs(v, op, out)
    return out


def _runs(v: Value, op: vr.TileOp, known: RefAxes) -> dict[str, int]:
    match op:
        case vr.MapOp(args=args):
            return {a: min((known[x.name][a] for x in args if a in known[x.name]), default=1) for a in v.type.names}
        case vr.LoadOp(index=index, mask=mask):
            read = index if mask is None else (*index, mask)
        case vr.IndexOp(expr=e):
            read = (e,)
        case _:
            return dict.fromkeys(v.type.names, 1)
    return {a.name: run_along(read, a.name, a.size, known) for a in v.type.axes}
