"""Neighbouring registers that hold one value: the C++ compiler computes it once.

Scales and zero points of groups are such values: they depend on a position only through a quotient.
"""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.expr.nodes import Expr
from nautilus.ma_tile.analysis.access import RefAxes, constant_in_vector, register_run
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.traverse import defined


def repeated_values(kernel: ma.MemKernel) -> Mapping[str, int]:
    """Fragment name -> how many neighbouring registers hold one value, where they are several."""
    out: dict[str, int] = {}
    whole: set[str] = set()  # fragments of one value
    for op in ma.walk_ops(kernel.body):
        match op:
            case ma.GlobalLoad(result=r, repeat=int(n)):
                out[r.name] = n
            case ma.ConstOp(result=r) | ma.ParamOp(result=r):
                whole.add(r.name)
            case ma.IndexOp(result=r, expr=e):
                out[r.name] = _run(e, kernel.layouts[r.layout])
            case ma.MapOp(result=r, args=args):
                out[r.name] = min((_of(a, r, out) for a in args if a.name not in whole), default=1)
    return {name: n for name, n in out.items() if n > 1}


def _of(arg: ma.Frag, result: ma.Frag, known: Mapping[str, int]) -> int:
    """How many neighbouring registers of ``result`` read one value of ``arg``; 1 where the layouts differ."""
    return known.get(arg.name, 1) if arg.layout == result.layout else 1


def fragment_runs(body: tuple[ma.MemOp, ...]) -> RefAxes:
    """The tile axes that each fragment varies with, and along each the length of the aligned runs with one element."""
    out: dict[str, dict[str, int]] = {}
    for op in ma.walk_ops(body):
        if isinstance(op, ma.ForOp):
            out |= {arg.name: dict.fromkeys(arg.type.names, 1) for arg, _ in op.carried}
        for f in defined(op):
            out[f.name] = _runs(f, op, out)
    return out


def _runs(f: ma.Frag, op: ma.MemOp, known: RefAxes) -> dict[str, int]:
    match op:
        case ma.MapOp(args=args):
            every = {a: [known[x.name][a] for x in args if a in known.get(x.name, {})] for a in f.type.names}
            return {a: min(runs, default=1) for a, runs in every.items()}
        case ma.ConvertOp(arg=arg, interleaved=None):
            return dict(known.get(arg.name, dict.fromkeys(f.type.names, 1)))
        case ma.GlobalLoad(index=index, mask=mask):
            read = index if mask is None else (*index, mask)
        case ma.IndexOp(expr=e):
            read = (e,)
        case _:
            return dict.fromkeys(f.type.names, 1)
    return {a.name: run_along(read, a.name, a.size, known) for a in f.type.axes}


def run_along(read: tuple[Expr, ...], axis: str, size: int, known: RefAxes) -> int:
    """The length of the aligned runs along ``axis``, which divides ``size``, in which ``read`` have one value each."""
    run = size & -size
    while run > 1 and not all(constant_in_vector(e, axis, run, known) for e in read):
        run //= 2
    return run


def _run(e: Expr, layout: FragLayout) -> int:
    first = next((m.axis for m in layout.reg if m.size > 1), None)
    run = 1 if first is None else register_run(layout, first)
    while first is not None and run > 1 and not constant_in_vector(e, first, run, {}):
        run //= 2
    return run
