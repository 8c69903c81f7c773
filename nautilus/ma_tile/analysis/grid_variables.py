"""The grid variables of a kernel: their value in every block of a launch, and as digits of the block's number.

The number of blocks may be known only at launch.  ``decode`` writes the digit with stride S and extent E as
``block // S % E``; the last one has no ``% E``.  Strides and extents are monomials in the runtime sizes
(:class:`Monomial`), so that they can be compared and divided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Var, free_vars, loads, walk
from nautilus.core.index.simplify import bounds, simplify
from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.access import affine
from nautilus.ma_tile.ir.layout import Ints
from nautilus.ma_tile.ir.ops import MemKernel

BLOCK = "block"


def grid_values(kernel: MemKernel, count: int) -> dict[str, Ints]:
    """Variable -> its value in blocks 0 .. ``count`` - 1; the block's own number too.

    Without the variables that are read from tensors or are scalars of the caller, and those that depend on them.
    """
    values: dict[str, Ints] = {BLOCK: np.arange(count, dtype=np.int64)}
    for name, e in kernel.decode:
        given = any(isinstance(n, Load | Param) for n in walk(e))
        if not given and free_vars(e) <= values.keys():
            values[name] = np.broadcast_to(evaluate(e, values), count)
    return values


@dataclass(frozen=True, slots=True)
class Monomial:
    """``number`` times the ``factors``: runtime sizes, or other expressions that are no integers."""

    number: int = 1
    factors: tuple[Expr, ...] = ()

    @staticmethod
    def of(e: Expr) -> Monomial:
        """``e`` as a monomial."""
        e = simplify(e)
        match e:
            case Const(value=value):
                return Monomial(int(value))
            case Op(op="mul", args=(a, b)):
                return Monomial.of(a) * Monomial.of(b)
        return Monomial(1, (e,))

    def __mul__(self, other: Monomial) -> Monomial:
        return Monomial(self.number * other.number, tuple(sorted((*self.factors, *other.factors), key=repr)))

    def divided(self, by: Monomial) -> Monomial | None:
        """The exact quotient; None where there is none."""
        rest = Counter(self.factors)
        rest.subtract(Counter(by.factors))
        if by.number == 0 or self.number % by.number or min(rest.values(), default=0) < 0:
            return None
        return Monomial(self.number // by.number, tuple(sorted(rest.elements(), key=repr)))

    def without_units(self) -> Monomial:
        """The monomial without factors that are 0 or 1: equal wherever it is not 0."""
        return replace(self, factors=tuple(e for e in self.factors if bounds(e) != (0, 1)))


ONE = Monomial()


@dataclass(frozen=True, slots=True)
class _Digit:
    """``block // stride % extent``; None: without ``% extent``."""

    name: str
    stride: Monomial
    extent: Monomial | None


def from_tensors(kernel: MemKernel) -> frozenset[str]:
    """The grid variables that are read from tensors, or depend on such."""
    found: set[str] = set()
    for name, e in kernel.decode:
        if loads(e) or free_vars(e) & found:
            found.add(name)
    return frozenset(found)


def extents(kernel: MemKernel) -> Mapping[str, Monomial] | None:
    """The extents of the grid variables that number the blocks; None where ``decode`` has another form.

    A factor of at most 1 in the number of blocks is 1 wherever there is a block.
    """
    read = from_tensors(kernel)
    found = [_digit(name, simplify(e)) for name, e in kernel.decode if name not in read]
    if None in found:
        return None
    out: dict[str, Monomial] = {}
    stride, total = ONE, Monomial.of(kernel.blocks).without_units()
    rest = [d for d in found if d is not None and d.extent != ONE]
    while rest:
        d = next((d for d in rest if d.stride == stride), None)
        extent = total.divided(stride) if d is not None and d.extent is None else None if d is None else d.extent
        if d is None or extent is None:
            return None
        rest.remove(d)
        out[d.name] = extent
        stride = stride * extent
    return out if stride == total else None


def _digit(name: str, e: Expr) -> _Digit | None:
    match e:
        case Const():
            return _Digit(name, ONE, ONE)
        case Var(name=var) if var == BLOCK:
            return _Digit(name, ONE, None)
        case Op(op="floordiv", args=(Var(name=var), s)) if var == BLOCK:
            return _Digit(name, Monomial.of(s), None)
        case Op(op="mod", args=(x, n)) if (inner := _digit(name, x)) is not None and inner.extent is None:
            return replace(inner, extent=Monomial.of(n))
    return None


def bijective(ours: Mapping[str, Monomial], theirs: Mapping[str, Monomial], solved: Mapping[str, Expr]) -> bool:
    """Whether ``solved``, our digits in terms of theirs, takes every value of ours once.

    Each of our digits is one of theirs with the same extent, or ``n * x + y`` of two of theirs where y has extent n.
    """
    left = {name: extent for name, extent in theirs.items() if extent != ONE}
    for name, extent in ours.items():
        if extent == ONE:
            continue
        form = affine(solved[name])
        parts = sorted(((n, t.name) for t, n in form.terms.items() if isinstance(t, Var)), reverse=True)
        if form.const != 0 or len(parts) != len(form.terms) or any(t not in left for _, t in parts):
            return False
        found = ONE
        for n, t in reversed(parts):  # the least significant one first
            if found != Monomial(n):
                return False
            found = found * left.pop(t)
        if found != extent:
            return False
    return not left
