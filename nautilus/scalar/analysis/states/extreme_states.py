"""The parts of an extreme state of a recurrence, and where a choice leaves a state out.

An *extreme* state is the larger, or the smaller, of what a step makes from the state and of a rest::

    h = max(h' + a, b)          h = max(h' * a, b), where a is not negative

Its steps are combined as those of a linear one are, with ``max`` in place of sums, and sums in place of products.  A
condition may leave the state out, but not in products, and operations on the state may be nested, as in
``max(max(h', x) + a, b)``.  Where steps add infinite numbers of both signs, a state may be NaN.
"""

from __future__ import annotations

from nautilus.core.expr.build import calc, number
from nautilus.core.expr.nodes import Const, Expr, Load, Op, identity, loads
from nautilus.core.index.simplify import FALSE, Ranges, simplify
from nautilus.core.types import DType


def extreme(e: Expr, state: Load, later: Ranges) -> tuple[str, str] | None:
    """How ``e`` joins the extreme ``state`` with its rest, and how it moves it; None where it is no such state.

    ``later``: the steps that have one before them.
    """
    ops = _path(e, state)
    joins = {op for op in ops or () if op in ("max", "min")}
    moves = {op for op in ops or () if op not in joins}
    if ops is None or len(joins) != 1 or len(moves) > 1 or (moves and not e.dtype.is_float):
        return None  # a sum of integers may wrap where no step does
    join, move = joins.pop(), moves.pop() if moves else "add"
    last = max(n for n, op in enumerate(ops) if op == join)
    if move == "mul":
        forgets = left_out(e, state)
        if move in ops[:last] or (forgets is not None and simplify(forgets, later) != FALSE):
            return None  # the sign of a factor around an extreme would decide what is one
    return join, move


def _path(e: Expr, state: Load) -> list[str] | None:
    """The operations on ``state`` in ``e``, the outermost one first; None where there is another one."""
    if e == state:
        return []
    inner = [a for a in e.args if state in loads(a)] if isinstance(e, Op) else []
    if not isinstance(e, Op) or not inner:
        return None
    found = [_path(a, state) for a in inner]
    first = found[0]
    if first is None or any(f != first for f in found[1:]):
        return None
    match e.op:
        case "select" if state not in loads(e.args[0]):
            return first
        case "max" | "min" | "add" | "mul" if len(inner) == 1:
            return [e.op, *first]
        case "sub" | "div" if len(inner) == 1 and inner[0] is e.args[0]:
            return ["add" if e.op == "sub" else "mul", *first]
    return None


def moved(e: Expr, state: Load, x: Expr, join: str, none: Expr) -> Expr:
    """What ``e`` makes of ``state``, with ``x`` in place of it, and ``none`` where it leaves it out."""
    if e == state:
        return x
    if not isinstance(e, Op) or state not in loads(e):
        return none
    if e.op == "select":
        c, a, b = e.args
        return Op("select", (c, moved(a, state, x, join, none), moved(b, state, x, join, none)), e.dtype)
    (inner,) = (a for a in e.args if state in loads(a))
    made = moved(inner, state, x, join, none)
    if e.op == join:
        return made
    (other,) = (a for a in e.args if a is not inner)
    if (e.op, made) in (("add", number(0, e.dtype)), ("mul", number(1, e.dtype))):
        return other
    return _each(e, made, other, none)


def beside(e: Expr, state: Load, join: str) -> Expr | None:
    """What ``e`` joins with ``state``, moved as the state is; None where there is nothing."""
    if e == state:
        return None
    if not isinstance(e, Op) or state not in loads(e):
        return e
    if e.op == "select":
        c, a, b = e.args
        left, right = beside(a, state, join), beside(b, state, join)
        none = identity(join, e.dtype)
        return None if left is right is None else Op("select", (c, left or none, right or none), e.dtype)
    (inner,) = (a for a in e.args if state in loads(a))
    (other,) = (a for a in e.args if a is not inner)
    made = beside(inner, state, join)
    if made is None:
        return other if e.op == join else None
    return Op(e.op, (made, other), e.dtype) if e.op == join else _each(e, made, other, identity(join, e.dtype))


def _each(e: Op, made: Expr, other: Expr, none: Expr) -> Expr:
    """``e`` of ``made`` and ``other``, but ``none`` where a choice in ``made`` is that: no factor of it is 0 or inf."""
    match made:
        case Op(op="select", args=(c, a, b)) if none in (a, b):
            return Op("select", (c, _each(e, a, other, none), _each(e, b, other, none)), e.dtype)
    return none if made == none else Op(e.op, (made, other), e.dtype)


def left_out(e: Expr, state: Load) -> Expr | None:
    """Where a choice in the linear ``e`` leaves out ``state``; None where none does."""
    if not isinstance(e, Op):
        return None
    inner = [a for a in e.args if state in loads(a)]
    if e.op == "select":
        c, a, b = e.args
        left, right = (left_out(x, state) if state in loads(x) else Const(True, DType.BOOL) for x in (a, b))
        if left is None and right is None:
            return None
        no = Const(False, DType.BOOL)
        return calc("select", c, left or no, right or no)
    found = [left_out(a, state) for a in inner]
    if not found or any(f is None for f in found):
        return None
    return found[0] if len(found) == 1 else calc("and", *(f for f in found if f is not None))
