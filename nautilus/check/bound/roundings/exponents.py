"""The arguments of exponentials, which code multiplies by a constant first.

``fold-scale`` distributes the constant over a difference: ``exp((x - r) * s)`` is ``exp2(fma(x, k, -t))``, where
``t`` is the rounded product of ``r``, which has fewer axes, and ``k``.  So the product of ``x`` is exact, the error of
``t`` is that of a row, and the constant itself is rounded.  Sums and elements of a softmax have the same ``t``, which
cancels, but where something else reads the difference, it is computed, and has the rounding of a difference instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from nautilus.check.bound.roundings.alike import skeleton
from nautilus.core.expr.nodes import Const, Expr, Op, children, walk
from nautilus.core.functions import FUNCTIONS
from nautilus.core.numerics import Array
from nautilus.core.records.memo import by_identity
from nautilus.frontend.spec import Spec
from nautilus.frontend.values import Value, line_up

if TYPE_CHECKING:
    from nautilus.check.bound.errors import Rounding

#: Units in the last place of the terms of an exponent from which on a row is far, and the error of one relative to it.
_FAR: Final = 2.0
_GUARDED: Final = 0.51


def argument_errors(run: Rounding, e: Expr, names: tuple[str, ...], argument: Array, u: float) -> Array:
    """The errors that the terms of ``argument``, the value of ``e``, have: ``u`` of each element of a term.

    The product of one of the terms is exact.  The factor itself is rounded, which is an error of the whole argument,
    and so is the product of each argument.  Where the terms are as large as those of far rows of
    ``vr_tile.passes.exponents.guard_exponents``, the errors are at most a part of the argument: equal terms cancel.
    """
    e, factor = difference(e)
    terms = e.args if isinstance(e, Op) and e.op in ("add", "sub") else ()
    finite = np.where(np.isfinite(argument), argument, 0.0)
    total = u * run.signs(()) * finite + u * run.alike(argument, e.dtype.compute) * run.signs_of(finite) * finite
    largest = 0.0
    whole = next((t for t in terms if set(run.value(t).names) == set(names)), None)
    for t in terms:
        term = run.value(t)
        size = np.where(np.isfinite(term.array), abs(factor) * np.abs(term.array), 0.0)
        largest += u * float(size.max(initial=0.0))
        if t is not whole:
            drawn = size * run.signs_of(term.array) * run.alike(term.array, e.dtype.compute)
            total = total + u * line_up(Value(drawn, term.names), names)
    if largest < _FAR:
        return np.asarray(total)
    far = u * abs(factor) * sum(np.abs(line_up(run.value(t), names)) for t in terms) >= _FAR
    most = np.where(far, _GUARDED * np.abs(argument), np.inf)
    return np.asarray(np.clip(total, -most, most))


def difference(e: Expr) -> tuple[Expr, float]:
    """The argument ``e`` without constant factors, and their product."""
    factor = 1.0
    while isinstance(e, Op) and e.op in ("mul", "neg"):
        if e.op == "neg":
            e, factor = e.args[0], -factor
            continue
        numbers = [n for n, a in enumerate(e.args) if isinstance(a, Const)]
        if len(numbers) != 1:
            break
        factor, e = factor * float(_value(e.args[numbers[0]])), e.args[1 - numbers[0]]
    return e, factor


def _value(e: Expr) -> float:
    assert isinstance(e, Const)
    return float(e.value)


def arguments(spec: Spec) -> frozenset[Expr]:
    """The arguments, without indices, that several definitions have, and whose difference nothing else reads."""
    found = Counter[Expr]()
    others = set[Expr]()
    for d in spec.definitions:
        mine = set[Expr]()
        for reader, e in _readers(d.expr):
            if _scales(reader):
                mine.add(skeleton(e))
            elif isinstance(e, Op) and e.op in ("add", "sub") and e.dtype.is_float:
                others.add(skeleton(e))
        found.update(mine)
    return frozenset(f for f, n in found.items() if n > 1 and skeleton(difference(f)[0]) not in others)


@by_identity(1 << 8)
def names_of_arguments(e: Expr, known: frozenset[Expr]) -> Mapping[int, str]:
    """By identity, the arguments in ``e`` that are ``known``, with a name of each."""
    if not known:
        return {}
    args = (n.args[0] for n in walk(e) if isinstance(n, Op) and _scales(n))
    return {id(a): f"argument {f!r}" for a in args if (f := skeleton(a)) in known}


def _readers(e: Expr) -> Iterator[tuple[Expr | None, Expr]]:
    """The nodes of ``e`` with what reads them; constant factors of an argument read nothing."""
    waiting: list[tuple[Expr | None, Expr]] = [(None, e)]
    while waiting:
        reader, node = waiting.pop()
        yield reader, node
        if _scales(reader):
            node = difference(node)[0]
        waiting += [(node, x) for x in children(node)]


def _scales(e: Expr | None) -> bool:
    return isinstance(e, Op) and e.op in FUNCTIONS and FUNCTIONS[e.op].scales_argument
