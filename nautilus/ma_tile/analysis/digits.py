"""Positions along several axes of a buffer that one tile axis counts, as the digits of a mixed-radix number.

A tile axis ``p`` of 128 positions may count 8 rows and 16 columns of an image: row ``p // 16``, column ``p % 16``.
Each of them is a *digit* ``p // stride % size``.  The digits of an axis are a box of the buffer if their strides and
sizes leave no gap, as in ``(16, 8), (1, 16)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from nautilus.core.expr.nodes import Const, Expr, Op, Var, free_vars
from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.access import affine


@dataclass(frozen=True, slots=True)
class Digit:
    """``axis // stride % size``."""

    axis: str
    stride: int
    size: int


def digit_of(e: Expr, sizes: Mapping[str, int]) -> Digit | None:
    """The digit of one tile axis that ``e`` counts in unit steps from a base that is the same for the whole tile.

    ``sizes``: those of the tile's axes.  None where ``e`` is of another form, or varies along no axis.
    """
    terms: dict[int, int] = {}
    axes = set[str]()
    for atom, coefficient in affine(e).terms.items():
        if not free_vars(atom) & sizes.keys():
            continue
        name, stride = _quotient(atom)
        if name not in sizes:
            return None
        axes.add(name)
        if stride < max(sizes[name], 2):  # the quotient is 0 otherwise
            terms[stride] = coefficient
    if len(axes) != 1 or not terms:
        return None
    (axis,), (stride, *rest) = axes, sorted(terms)
    end = rest[0] if rest else sizes[axis]
    whole = len(rest) <= 1 and terms[stride] == 1 and end % stride == 0
    if not whole or (rest and terms[end] != -(end // stride)):
        return None
    return Digit(axis, stride, end // stride)


def _quotient(e: Expr) -> tuple[str, int]:
    """The name and stride of a quotient ``name // stride`` of one variable; the name "" for anything else."""
    match e:
        case Var(name=name):
            return name, 1
        case Op(op="floordiv", args=(inner, Const(value=value))) if value > 0:
            name, stride = _quotient(inner)
            return name, stride * int(value)
    return "", 1


def is_whole(digits: Iterable[Digit], axis: str, size: int) -> bool:
    """Whether the digits of ``axis`` count each of its ``size`` positions once."""
    own = sorted((d for d in digits if d.axis == axis), key=lambda d: d.stride)
    return all(d.stride == prod(x.size for x in own[:n]) for n, d in enumerate(own)) and (
        prod(d.size for d in own) == size
    )
