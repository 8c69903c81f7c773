"""Products of pairs of steps of a chunk, for ``chunk-matrix-states``, which says what they are for.

For steps ``s`` before ``t`` of a chunk they are ``sum[d](q[t, d] * G(s, t)[d] * x[s, d])``.  Where rows ``d`` decay by
different factors, that is no product of matrices.  It is one for all pairs on two sides of a boundary ``r`` between
steps, because ``G(s, t) = G(s, r) * G(r, t)``, and both factors are at most 1 in magnitude::

    later[t, d] = q[t, d] * G(r, t)[d]            for the steps after r
    earlier[s, d] = x[s, d] * G(s, r)[d]          for the steps up to r

A chunk is cut in halves, each of them in halves, and so on down to :data:`BLOCK` steps.  At each of these levels every
step is on one side of one boundary, so that one tensor holds both factors, and the pairs are a product of matrices for
each boundary.  The pairs within :data:`BLOCK` steps are sums over rows with ``G(s, t)`` itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import calc, number
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Axis, Expr, Var, substitute
from nautilus.core.expr.products import product_of

if TYPE_CHECKING:
    from nautilus.scalar.rewriting.states.chunks import StateChunks

BLOCK: Final = 16  # steps whose pairs have a factor of their own for each row


class Pairs:
    """The products of pairs of steps of the chunks ``c``: ``q`` and ``x`` are expressions over the position of a step.

    ``before``: a pair has the decay up to the step before the later one, and no step is paired with itself.
    """

    def __init__(self, c: StateChunks, name: str, q: Expr, x: Expr, before: bool) -> None:
        self.c, self.m, self.name, self.q, self.x, self.before = c, c.m, name, q, x, before
        self.outer = tuple(Var(a.name) for a in c.m.outer)
        self.rows = tuple(Var(a.name) for a in c.m.rows)
        self.start = calc("mul", Var(c.chunk), c.length)
        self.block = f"{c.place}_block"

    def value(self) -> Expr:
        """The product of the steps at the places ``place`` and ``source``, of which the first is the later one."""
        c = self.c
        if not c.by_row:
            return self.read(self.plain(), (Var(c.place), Var(c.source)))
        size = BLOCK if c.length % BLOCK == 0 and c.length & (c.length - 1) == 0 else c.length
        within = (calc("mod", Var(n), size) for n in (c.place, c.source))
        found = self.read(self.inside(size), (calc("floordiv", Var(c.place), size), *within))
        while size < c.length:
            product = self.across(size)
            block, both = self.among(2 * size), (calc("mod", Var(n), size) for n in (c.place, c.source))
            found = calc("select", self.together(size), found, self.read(product, (block, *both)))
            size *= 2
        return found

    def among(self, size: int) -> Expr:
        """The block of ``size`` steps in which the later step is."""
        return calc("floordiv", Var(self.c.place), size)

    def together(self, size: int) -> Expr:
        """The condition that both steps are in one block of ``size`` steps."""
        return calc("eq", self.among(size), calc("floordiv", Var(self.c.source), size))

    def plain(self) -> Buffer:
        """The products without a decay, of all pairs of a chunk."""
        c = self.c
        t, s = (calc("add", self.start, Var(n)) for n in (c.place, c.source))
        axes = (c.axis(c.place, c.length), c.axis(c.source, c.length))
        guard = conjunction((c.in_order(Var(c.place), Var(c.source), self.before), c.inside_of(t), c.inside_of(s)))
        return self.sums("product", axes, [substitute(self.q, {c.t: t}), substitute(self.x, {c.t: s})], guard)

    def inside(self, size: int) -> Buffer:
        """The products of the pairs within each block of ``size`` steps: ``[block, place, source]``."""
        c = self.c
        block = calc("add", self.start, calc("mul", Var(self.block), size))
        t, s = (calc("add", block, Var(n)) for n in (c.place, c.source))
        axes = (self.blocks(size), c.axis(c.place, size), c.axis(c.source, size))
        factor = c.behind(s, t, self.before)
        assert factor is not None
        later = c.inside_of(s if self.m.reverse else t)
        guard = conjunction((c.in_order(Var(c.place), Var(c.source), self.before), later))
        return self.sums("product", axes, [factor, substitute(self.q, {c.t: t}), substitute(self.x, {c.t: s})], guard)

    def across(self, size: int) -> Buffer:
        """The products of the pairs in both halves of each block of ``2 * size`` steps: ``[block, place, source]``."""
        c, reverse = self.c, self.m.reverse
        factors = self.both_sides(size)
        first = calc("mul", Var(self.block), 2 * size)
        second = calc("add", first, size)
        starts = (first, second) if reverse else (second, first)
        places = (calc("add", x, Var(n)) for x, n in zip(starts, (c.place, c.source), strict=True))
        axes = (self.blocks(2 * size), c.axis(c.place, size), c.axis(c.source, size))
        parts = [self.read(factors, (at, *self.rows)) for at in places]
        return self.sums(f"product_{size}", axes, parts, None)

    def both_sides(self, size: int) -> Buffer:
        """``later`` of the steps after a boundary, and ``earlier`` of the others (module docstring)."""
        c = self.c
        place = Var(c.place)
        t = calc("add", self.start, place)
        whole = calc("mul", calc("floordiv", place, 2 * size), 2 * size)
        boundary = calc("add", self.start, calc("add", whole, size if self.m.reverse else size - 1))
        far = calc("eq", calc("mod", calc("floordiv", place, size), 2), 0 if self.m.reverse else 1)
        later, earlier = c.behind(boundary, t, self.before), c.behind(t, boundary)
        assert later is not None and earlier is not None
        sides = (product_of([f, substitute(e, {c.t: t})]) for f, e in ((later, self.q), (earlier, self.x)))
        return c.operand_of(f"{self.name}_sides_{size}", calc("select", far, *sides), t, self.m.rows)

    # -- definitions ------------------------------------------------------------------------------
    def blocks(self, size: int) -> Axis:
        """The axis of the blocks of ``size`` steps of a chunk."""
        return self.c.axis(self.block, self.c.length // size)

    def sums(self, suffix: str, axes: Sequence[Axis], parts: Sequence[Expr], guard: Expr | None) -> Buffer:
        """The sums over rows of the product of ``parts``, in a new tensor over chunks and ``axes``."""
        c = self.c
        par = (*self.m.outer, c.axis(c.chunk, c.count), *axes)
        return c.define(f"{self.name}_{suffix}", par, product_of(list(parts)), self.m.rows, guard)

    def read(self, b: Buffer, index: Sequence[Expr]) -> Expr:
        """The element of ``b`` in this chunk at ``index``."""
        return self.c.element(b, (*self.outer, Var(self.c.chunk), *index))


def weights(c: StateChunks, name: str, pairs: Pairs, factors: Sequence[Expr], before: bool) -> Buffer:
    """The products ``pairs`` times ``factors``, by chunk, place and source; 0 where the steps are not in order."""
    places = (Var(c.place), Var(c.source))
    own = (calc("add", pairs.start, x) for x in places)
    order = conjunction((c.in_order(*places, before), *(c.inside_of(t) for t in own)))
    assert order is not None
    value = calc("select", order, product_of([*factors, pairs.value()]), number(0, c.dtype))
    par = (*c.m.outer, c.axis(c.chunk, c.count), c.axis(c.place, c.length), c.axis(c.source, c.length))
    return c.rounded_elementwise(f"{name}_weights", par, value)
