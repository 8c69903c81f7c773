"""Steps of a recurrence that leave a state as it is.

A factor of a step is often exactly 1, as the exponential of the change of a running maximum is where that stays.  The
product is then the state itself, whose error does not grow.  The errors of the additions of a running sum are those of
any sum: they are independent, and grow with the square root of the number of terms, unless the terms follow a rule.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nautilus.core.expr.nodes import Const, Expr, Op, walk
from nautilus.core.numerics import Array
from nautilus.core.records.memo import by_identity
from nautilus.frontend.spec import Definition
from nautilus.frontend.values import Value, line_up

_ONE_AT_ZERO = frozenset({"exp", "exp2"})


@by_identity(1 << 8)
def is_running_sum(d: Definition) -> bool:
    """Whether ``d``, a step of a recurrence, is that of a running sum relative to its largest term so far."""
    return any(_is_falling(e) for e in walk(d.expr))


def _is_falling(e: Expr) -> bool:
    """Whether ``e`` is a factor that is at most 1 and exactly 1 where a reference stays."""
    match e:
        case Op(op="exp", args=(Op(op="min", args=(Op(op="sub"), Const(value=0.0))),)):
            return True
    return False


def unchanged(op: str, args: Sequence[Value], exact: Value, moved: Array) -> Array:
    """``moved``, the result of ``op`` with its error, but ``exact`` where an argument makes it exact."""
    if op == "mul":
        ones = [line_up(x, exact.names) == 1.0 for x in args]
        keeps = ones[0] | ones[1]
    elif op in _ONE_AT_ZERO:
        keeps = line_up(args[0], exact.names) == 0.0
    else:
        return moved
    return np.where(keeps, exact.array, moved) if keeps.any() else moved
