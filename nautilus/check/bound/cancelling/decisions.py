"""Which outputs of floats depend on decisions that are made by comparisons of computed floats.

The mean of ``argmax[c](L[b, c]) == label[b]`` is a count of integers, but roundings of ``L`` decide about them where
its two largest elements tie.  A choice between floats, such as ``x if x > 0 else 0``, is no such decision: its values
may agree at the border, which :mod:`nautilus.check.bound.cancelling` finds out.  A conversion to integers is none
either: the evaluation with errors moves some of its results (:mod:`nautilus.check.bound.errors`).
"""

from __future__ import annotations

from collections.abc import Iterator

from nautilus.check.bound.exactness import is_rounded
from nautilus.core.expr.nodes import COMPARISONS, Expr, Load, Op, Reduce, children
from nautilus.frontend.spec import Spec

_LOGICAL = frozenset({"and", "or", "not"})


def is_decided(program: Spec, name: str, computed: frozenset[str]) -> bool:
    """Whether ``name`` depends on integers or bools about which comparisons of ``computed`` floats decide."""
    made = {d.name: d.expr for d in program.definitions}
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in seen or current not in computed:
            continue
        seen.add(current)
        for e in _values(made[current]):
            if isinstance(e, Load) and e.buffer in made:
                waiting.append(e.buffer)
            elif _compares(e) and any(is_rounded(x, computed) for x in children(e)):
                return True
    return False


def _values(e: Expr) -> Iterator[Expr]:
    """The nodes of ``e``, without the comparisons of floats that choose between floats or terms of floats."""
    waiting = [(e, False)]
    while waiting:
        node, chooses = waiting.pop()
        if not (chooses and _compares(node)):
            yield node
        keeps = chooses and isinstance(node, Op) and node.op in _LOGICAL
        parts = children(node)
        cond = _condition(node)
        waiting += [(x, keeps or x is cond) for x in parts]


def _condition(e: Expr) -> Expr | None:
    """The condition of a choice between floats, or of the terms of a reduction of floats."""
    match e:
        case Reduce(cond=cond, dtype=dtype) if dtype.is_float:
            return cond
        case Op(op="select", args=(cond, _, _), dtype=dtype) if dtype.is_float:
            return cond
    return None


def _compares(e: Expr) -> bool:
    """Whether ``e`` is a comparison of floats."""
    return isinstance(e, Op) and e.op in COMPARISONS and e.args[0].dtype.is_float
