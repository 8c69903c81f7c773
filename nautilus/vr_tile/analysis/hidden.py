"""Results of dots of which a mask hides elements: every reader chooses another value where the mask is false.

Their operands may then be loaded under that mask, as those of another product are, so that both dots read one tile::

    %k = load C[j, f] : f16[j: 64, f: 512]                     %k = load C[j, f] where j < %n : f16[j: 64, f: 512]
    %s = dot %q, %k over f                                     %s = dot %q, %k over f
    %t = add %s, %x                                     ->     %t = add %s, %x
    %p = select %inside, %t, %minus_infinity                   %p = select %inside, %t, %minus_infinity
    %v = load C[j, r] where j < %n : f16[j: 64, r: 512]        %v = load C[j, r] where j < %n : f16[j: 64, r: 512]

The condition of the reader may ask for more, as that positions are within a size that is known only at launch.
Elementwise ops keep positions apart, so an element that differs reaches elements at its own position alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Const, Expr, Op, Ref
from nautilus.core.expr.nodes import refs as refs_of
from nautilus.vr_tile.ir import (
    ConstOp,
    DotOp,
    ForOp,
    IndexOp,
    MapOp,
    TileOp,
    Value,
    expressions,
    operands,
    walk_ops,
)


def hides(
    kernel: Sequence[TileOp], block: Sequence[TileOp], dot: DotOp, mask: Expr, defs: Mapping[str, TileOp]
) -> bool:
    """Whether nothing outside of ``block``, which contains ``dot``, sees an element of it where ``mask`` is false.

    ``kernel``: the ops around ``block``.  ``defs``: the op that defines each value.
    """
    asked, shown = {*conjuncts(mask)}, {dot.result.name}
    for op in block:
        if op is dot or _reads((op,)).isdisjoint(shown):
            continue
        match op:
            case MapOp(op="select", args=(cond, a, b), result=result) if not {cond.name, b.name} & shown:
                hidden = a.name not in shown or asked <= {*conjuncts(expression(cond, defs))}
                shown |= set() if hidden else {result.name}
            case MapOp(result=result):
                shown.add(result.name)
            case DotOp(result=result, mask=None) if not {op.a.name, op.b.name} & shown:
                shown.add(result.name)  # the sum begins with it
            case _:
                return False
    own = {id(x) for op in block for x in walk_ops((op,))}
    return all(_reads((op,), inner=False).isdisjoint(shown) for op in walk_ops(tuple(kernel)) if id(op) not in own)


def _reads(ops: tuple[TileOp, ...], inner: bool = True) -> set[str]:
    """The values that ``ops`` read: operands, what loops yield, and references in expressions."""
    found: set[str] = set()
    for op in walk_ops(ops) if inner else ops:
        found |= {v.name for v in operands(op)}.union(*map(refs_of, expressions(op)))
        found |= {v.name for v in op.yields} if isinstance(op, ForOp) else set()
    return found


def expression(v: Value, defs: Mapping[str, TileOp]) -> Expr:
    """``v`` as an expression of variables, axes and values that are no comparisons and no indices."""
    match defs.get(v.name):
        case IndexOp(expr=e):
            return e
        case ConstOp(value=value) if v.type.dtype.is_int:
            return Const(value, v.type.dtype)
        case MapOp(op="lt" | "le" | "gt" | "ge" | "eq" | "ne" | "and" | "or" as op, args=args):
            return Op(op, tuple(expression(x, defs) for x in args), v.type.dtype)
    return Ref(v.name, v.type.dtype)
