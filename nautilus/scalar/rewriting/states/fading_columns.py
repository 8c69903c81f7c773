"""What the steps of a chunk give to a reader where columns decay by different factors, for ``chunk-matrix-states``.

With the products ``W[t, s]`` of pairs of steps (:mod:`.pairs`), which have no columns, that is, for each column ``e``::

    y[t, e] = sum[s <= t](W[t, s] * G(s, t)[e] * u[s, e])

As the pairs of rows, the sum over all pairs on two sides of a boundary ``r`` between steps is a product of matrices,
because ``G(s, t) = G(s, r) * G(r, t)``, and both factors are at most 1::

    faded[s, e] = G(s, r)[e] * u[s, e]                       for the steps up to r
    y[t, e]     = G(r, t)[e] * sum[s](W[t, s] * faded[s, e])    for the steps after r

The pairs within :data:`BLOCK` steps are sums with ``G(s, t)`` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import calc, number
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Axis, Expr, Op, Var, substitute
from nautilus.core.expr.products import product_of
from nautilus.scalar.analysis.symbolic import multiplied
from nautilus.scalar.rewriting.states.decays import Decays
from nautilus.scalar.rewriting.states.pairs import BLOCK

if TYPE_CHECKING:
    from nautilus.scalar.rewriting.states.chunks import StateChunks


class FadingColumns:
    """The sums over the steps of the chunks ``c`` with the decays ``fade`` of columns.

    ``weights``: the products of pairs by chunk, place and source, 0 where the steps are not in order.  ``before``: they
    are of readers of the state before their step.
    """

    def __init__(self, c: StateChunks, name: str, fade: Decays, weights: Buffer, before: bool) -> None:
        self.c, self.m, self.name, self.fade, self.weights, self.before = c, c.m, name, fade, weights, before
        self.outer = tuple(Var(a.name) for a in c.m.outer)
        self.columns = tuple(Var(a.name) for a in c.m.columns)
        self.start = calc("mul", Var(c.chunk), c.length)
        self.block = f"{c.place}_block"

    def value(self) -> Expr:
        """The sum at the position of the reader."""
        c, t = self.c, Var(self.c.t)
        chunk, place = calc("floordiv", t, c.length), calc("mod", t, c.length)
        size = BLOCK if c.length % BLOCK == 0 and c.length & (c.length - 1) == 0 else c.length

        def at(size: int, whole: int) -> tuple[Expr, ...]:
            return chunk, calc("floordiv", place, whole), calc("mod", place, size)

        total = self.read(self.within(size), (*at(size, size), *self.columns))
        while size < c.length:
            product = self.read(self.across(size), (*at(size, 2 * size), *self.columns))
            boundary = calc("add", calc("mul", chunk, c.length), self.boundary(place, size))
            later = multiplied(self.fade.behind(boundary, t, self.before), product)
            term = calc("select", self.is_later(place, size), later, number(0, c.dtype))
            total = Op("add", (total, term), c.dtype)
            size *= 2
        return total

    def boundary(self, place: Expr, size: int) -> Expr:
        """The last place before the later half of the block of ``2 * size`` steps that ``place`` is in."""
        whole = calc("mul", calc("floordiv", place, 2 * size), 2 * size)
        return calc("add", whole, size if self.m.reverse else size - 1)

    def is_later(self, place: Expr, size: int) -> Expr:
        """The condition that ``place`` is in the later half of its block of ``2 * size`` steps."""
        return calc("eq", calc("mod", calc("floordiv", place, size), 2), 0 if self.m.reverse else 1)

    def within(self, size: int) -> Buffer:
        """The sums over the steps of the same block of ``size`` steps."""
        c = self.c
        first = calc("mul", Var(self.block), size)
        place, source = (calc("add", first, Var(n)) for n in (c.place, c.source))
        t, s = (calc("add", self.start, x) for x in (place, source))
        weight = self.read(self.weights, (Var(c.chunk), place, source))
        u = substitute(self.m.u, {c.t: s})
        guard = conjunction((
            c.in_order(Var(c.place), Var(c.source), self.before), c.inside_of(s if self.m.reverse else t)
        ))  # fmt: skip
        return self.sums("block", size, size, product_of([weight, self.fade.behind(s, t, self.before), u]), guard)

    def across(self, size: int) -> Buffer:
        """The sums over the steps of the earlier half of each block of ``2 * size`` steps, up to the boundary."""
        c = self.c
        first = calc("mul", Var(self.block), 2 * size)
        second = calc("add", first, size)
        later, earlier = (first, second) if self.m.reverse else (second, first)
        place, source = calc("add", later, Var(c.place)), calc("add", earlier, Var(c.source))
        weight = self.read(self.weights, (Var(c.chunk), place, source))
        faded = self.read(self.faded(size), (Var(c.chunk), source, *self.columns))
        return self.sums(f"block_{size}", 2 * size, size, product_of([weight, faded]), None)

    def faded(self, size: int) -> Buffer:
        """``faded`` of the steps before a boundary (module docstring), and 0 of the others."""
        c, place = self.c, Var(self.c.place)
        t = calc("add", self.start, place)
        decay = self.fade.behind(t, calc("add", self.start, self.boundary(place, size)))
        value = multiplied(decay, substitute(self.m.u, {c.t: t}))
        value = calc("select", self.is_later(place, size), number(0, c.dtype), value)
        return c.operand_of(f"{self.name}_faded_{size}", value, t, self.m.columns)

    def sums(self, suffix: str, block: int, size: int, element: Expr, guard: Expr | None) -> Buffer:
        """The sums of ``element`` over ``size`` sources, for ``size`` places of each ``block`` and all columns."""
        c = self.c
        blocks = (c.axis(c.chunk, c.count), c.axis(self.block, c.length // block))
        par: tuple[Axis, ...] = (*self.m.outer, *blocks, c.axis(c.place, size), *self.m.columns)
        return c.define(f"{self.name}_{suffix}", par, element, (c.axis(c.source, size),), guard)

    def read(self, b: Buffer, index: tuple[Expr, ...]) -> Expr:
        """The element of ``b`` at ``index``, whose first one is the chunk."""
        return self.c.element(b, (*self.outer, *index))
