"""Neighbouring registers that hold one value: the C++ compiler computes it once.

Scales and zero points of groups are such values: they depend on a position only through a quotient.
"""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.expr.nodes import Expr
from nautilus.ma_tile.analysis.access import constant_in_vector, register_run
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.layout import FragLayout


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


def _run(e: Expr, layout: FragLayout) -> int:
    first = next((m.axis for m in layout.reg if m.size > 1), None)
    run = 1 if first is None else register_run(layout, first)
    while first is not None and run > 1 and not constant_in_vector(e, first, run, {}):
        run //= 2
    return run
