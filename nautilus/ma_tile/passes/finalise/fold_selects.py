"""``fold-selects``: choices that the range of a loop decides.

A loop over several ranges of blocks reads the block of an iteration as ``select(v < a, v - s, v)``, in all pieces of
the loop alike, so that these share the stages of their copies.  Where stages are placed, the pieces that begin at ``a``
or later read ``v``.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.expr.nodes import Expr, Op, Var, free_vars, rewrite
from nautilus.core.index.linear import linear
from nautilus.core.ops import Kind, Rules, map_fields
from nautilus.core.records import dataclass
from nautilus.ma_tile.ir.ops import ForOp, MemModule, MemOp
from nautilus.ma_tile.ir.traverse import each_kernel, rebuild


@dataclass(frozen=True, slots=True)
class FoldSelects:
    """The pass ``fold-selects``, which has no options."""

    name = "fold-selects"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` without choices that ranges decide."""
        return each_kernel(module, lambda k: replace(k, body=rebuild(k.body, _folded)))


def _folded(op: MemOp) -> tuple[MemOp, ...]:
    if not isinstance(op, ForOp):
        return (op,)
    var, lo = op.var, op.lo

    def decided(e: Expr) -> Expr | None:
        match e:
            case Op(op="select", args=(Op(op="lt", args=(Var(name=name), least)), _, other)) if name == var:
                return other if _reaches(lo, least) else None
        return None

    rules: Rules = {Kind.EXPR: lambda e: rewrite(e, decided) if var in free_vars(e) else e}

    def inner(x: MemOp) -> tuple[MemOp, ...]:
        new: MemOp = map_fields(x, rules)
        return (new,)

    return (replace(op, body=rebuild(op.body, inner)),)


def _reaches(e: Expr, least: Expr) -> bool:
    """Whether the minima and maxima of which ``e`` is made show that it is at least ``least``."""
    more = linear(e) - linear(least)
    match e:
        case _ if not more.terms:
            return more.const >= 0
        case Op(op="max", args=args):
            return any(_reaches(a, least) for a in args)
        case Op(op="min", args=args):
            return all(_reaches(a, least) for a in args)
    return False
