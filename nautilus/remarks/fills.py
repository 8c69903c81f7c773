"""``mask``: conditions on indices that fill scores with a large negative number, so that no term is left out.

A number is no mask: its exponential may be 0, but a row that holds nothing else is uniform.  The terms of ``-inf`` are
left out, as those of the condition of a reduction are.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import TypeGuard

from nautilus.core.expr.nodes import Const, Expr, Op, free_vars, loads, walk
from nautilus.core.expr.structural import LOGARITHMS
from nautilus.remarks.remark import Facts, Kind, Remark
from nautilus.scalar.analysis.definitions import Def, points
from nautilus.scalar.rewriting import find_defs

_FILL = -1e4  # numbers from here on stand for minus infinity in what models compute
_TERMS = 1 << 22  # fewer of them take no time


def remarks(facts: Facts) -> Iterator[Remark]:
    """A remark for each number that fills scores, at the first sum of their exponentials."""
    seen = set[float]()
    for d in find_defs(facts.ordered).values():
        for number in _fills(d) if d.op == "sum" and points(d.axes) >= _TERMS else ():
            if number not in seen:
                seen.add(number)
                message = f"the terms whose score is {number:g} are computed, because a number is not a mask"
                hint = "write -inf for the number if no row holds it alone; the terms are then left out"
                yield Remark(Kind.MASK, message, d.span, hint)


def _fills(d: Def) -> Iterator[float]:
    """The numbers of conditions on the indices of summed axes, in the exponentials of the sum ``d``."""
    names = frozenset(a.name for a in d.red)
    for e in walk(d.value):
        if isinstance(e, Op) and e.op in LOGARITHMS:
            for x in walk(e):
                match x:
                    case Op(op="select", args=(c, *branches)) if free_vars(c) & names and not loads(c):
                        yield from (b.value for b in branches if _is_fill(b))


def _is_fill(e: Expr) -> TypeGuard[Const]:
    return isinstance(e, Const) and isfinite(e.value) and e.value <= _FILL
