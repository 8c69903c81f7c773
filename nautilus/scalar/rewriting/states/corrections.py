"""The corrections of a matrix state in chunks of steps, for ``chunk-matrix-states``, which says what they are.

``o`` and ``s`` are places of steps in the order in which the chunk ``n`` runs, and ``t(n, o)`` are their positions.
The corrections ``w`` of a chunk solve a system of equations, whose matrix is triangular::

    w[n, o] = u[n, o] + f[o] * G(start, o - 1) * sum[d](k[o, d] * S0[n, d]) + sum[s < o](L[n, o, s] * w[n, s])
    L[n, o, s] = f[o] * G(s, o - 1) * sum[d](k[o, d] * x[s, d])

With ``inverse = (1 - L) ** -1`` of each chunk, all of them at the same time::

    given[n, o, e]  = sum[s <= o](inverse[n, o, s] * u[s, e])
    moved[n, o, d]  = sum[s <= o](inverse[n, o, s] * f[s] * G(start, s - 1) * k[s, d])

and one chunk after another ``w[n, o, e] = given[n, o, e] + sum[d](moved[n, o, d] * S0[n, d, e])``.

The inverse has a recurrence over the rows of blocks of :data:`BLOCK` rows on the diagonal, and one over these blocks.
It is found by columns ``c``, and stored as ``[n, c, o]``, once with the factors of ``u[c]`` that have no columns, and
once with ``f[c] * G(start, c - 1)``: products of matrices then read tensors.

Range.  Elements of the inverse and of ``L`` are kept at :data:`MOST` in magnitude while rows are found, because zeros
of other rows meet them; in the tensors they are inf where they have reached it.  What the recurrence computes then
leaves the range of f32 in the same row, unless ``u`` is tiny.  A NaN in ``L`` comes from one in ``f``, ``k``, ``x`` or
``a``; it is left out, because it is in ``moved`` too, or in what the readers multiply.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import calc, integer, number
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Var, free_vars, substitute
from nautilus.core.expr.products import factors, product_of, strip_conversions
from nautilus.core.index.sizes import extent_expr, total
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.rewriting.recurrences import recurrence_kernel
from nautilus.scalar.rewriting.states.pairs import Pairs

if TYPE_CHECKING:
    from nautilus.scalar.rewriting.states.chunks import StateChunks

BLOCK: Final = 16  # rows of a block of the matrix whose inverse has a recurrence of its own
MOST: Final = 2.0**120  # largest magnitude of elements of the matrix and of its inverse


class Corrections:
    """The definitions of the corrections of ``chunks``, which it adds to them."""

    def __init__(self, chunks: StateChunks) -> None:
        assert chunks.m.correction is not None
        self.c, self.m, self.correction = chunks, chunks.m, chunks.m.correction
        self.rows = BLOCK if chunks.length % BLOCK == 0 else chunks.length
        taken = {chunks.t, chunks.s, chunks.chunk, chunks.place, chunks.source}
        taken |= {a.name for a in (*self.m.outer, *self.m.rows, *self.m.columns)}
        self.column = unused(f"{chunks.t}_column", taken)
        self.block = unused(f"{chunks.t}_block", taken | {self.column})
        outer = tuple(Var(a.name) for a in self.m.outer)
        self.here: tuple[Expr, ...] = (*outer, Var(chunks.chunk))
        self.par = (*self.m.outer, chunks.axis(chunks.chunk, chunks.count))
        self.first = extent_expr(total(chunks.steps, -1)) if self.m.reverse else integer(0)
        self.short = chunks.short if chunks.short is DType.BF16 else None

    def made(self) -> tuple[Buffer, Buffer | None, Buffer | None]:
        """The corrections ``[p, n, e, o]``, and the states before chunks, as readers multiply them and in f32.

        None where there is one chunk.
        """
        given, moved = self.solved(*self.inverse(self.matrix()))
        return (given, None, None) if moved is None else self.carried(given, moved)

    # -- positions --------------------------------------------------------------------------------
    def position(self, chunk: Expr, place: Expr) -> Expr:
        """The position of the step at ``place`` of ``chunk``."""
        return calc("add", calc("mul", chunk, self.c.length), self.within(place))

    def within(self, place: Expr) -> Expr:
        """The position in its chunk of the step at ``place``."""
        return calc("sub", self.c.length - 1, place) if self.m.reverse else place

    def place(self, t: Expr) -> tuple[Expr, Expr]:
        """The chunk of the position ``t``, and the place of its step there."""
        return calc("floordiv", t, self.c.length), self.within(calc("mod", t, self.c.length))

    def inside(self, t: Expr) -> Expr | None:
        """The condition that ``t`` is a position, in the last chunk too."""
        return self.c.inside_of(t)

    # -- the matrix and its inverse ---------------------------------------------------------------
    def matrix(self) -> Buffer:
        """The matrix ``L`` of the system of equations (module docstring)."""
        c, m = self.c, self.m
        o, s = Var(c.place), Var(c.source)
        t, at = (self.position(Var(c.chunk), x) for x in (o, s))
        earlier = conjunction((calc("lt", s, o), self.inside(at if m.reverse else t)))
        assert earlier is not None
        par = (*self.par, c.axis(c.place, c.length), c.axis(c.source, c.length))
        k, x = substitute(self.correction.inside, {c.t: t}), substitute(m.x, {c.t: at})
        parts: list[Expr] = [substitute(self.correction.factor, {c.t: t})]
        if c.by_row:
            pairs = Pairs(c, "overlap", self.correction.inside, m.x, before=True)
            parts.append(substitute(pairs.value(), {c.place: self.within(o), c.source: self.within(s)}))
        else:
            sums = c.define("overlap", par, product_of([k, x]), m.rows, earlier)
            between = c.behind(at, t, before=True)
            parts += [Load(sums.name, tuple(Var(a.name) for a in par), c.dtype, m.span)]
            parts += [] if between is None else [between]
        known = self.kept(product_of(parts), number(0, c.dtype))
        return c.elementwise("matrix", par, calc("select", earlier, known, number(0, c.dtype)))

    def kept(self, e: Expr, missing: Expr | None = None) -> Expr:
        """``e``, at most :data:`MOST` in magnitude, and ``missing`` (None: this number) where it is NaN."""
        dtype = self.c.dtype
        most, zero = Const(MOST, dtype), number(0, dtype)
        inside = Op("le", (Op("abs", (e,), dtype), most), DType.BOOL)
        above = most if missing is None else calc("select", Op("lt", (zero, e), DType.BOOL), most, missing)
        outside = calc("select", Op("lt", (e, zero), DType.BOOL), Const(-MOST, dtype), above)
        return calc("select", inside, e, outside)

    def inverse(self, matrix: Buffer) -> tuple[Expr, Expr]:
        """Elements of the inverse of each chunk, in row ``place`` and column ``source``, with the factors of ``u`` and
        of ``k``."""
        c = self.c
        if self.rows == c.length:
            _, found = self.of_blocks(matrix, last=True)
        else:
            blocks, _ = self.of_blocks(matrix, last=False)
            found = self.of_chunks(matrix, blocks)
        at = (*self.here, Var(c.source), integer(c.length // self.rows - 1 if self.rows < c.length else self.rows - 1))
        of_u, of_k = (self.read(b, (*at, Var(c.place))) for b in found)
        return of_u, of_k

    def scaled(self, state: Buffer, par: Sequence[Axis]) -> list[Def]:
        """The elements of the inverse with the factors of ``u`` and of ``k``; inf where they are :data:`MOST`."""
        c, m = self.c, self.m
        at = self.position(Var(c.chunk), Var(self.column))
        inside = self.inside(at)
        columns = {a.name for a in m.columns}
        of_u = [f for f in factors(m.u) if free_vars(f).isdisjoint(columns)]
        decay = None if c.by_row else c.entering(at, before=True)
        of_k = [*factors(self.correction.factor)]
        out = []
        for name, parts, more in (("of_u", of_u, []), ("of_k", of_k, [] if decay is None else [decay])):
            element = self.read(state, tuple(Var(a.name) for a in par))
            large = Op("le", (Const(MOST, c.dtype), Op("abs", (element,), c.dtype)), DType.BOOL)
            whole = calc("select", large, product_of([element, Const(math.inf, c.dtype)]), element)
            value = product_of([whole, *(substitute(f, {c.t: at}) for f in parts), *more])
            value = value if inside is None else calc("select", inside, value, number(0, c.dtype))
            made = c.made(f"inverse_{name}", par, self.short or c.dtype)
            out.append(self.element_of(made, par, self.rounded(value)))
        return out

    def of_blocks(self, matrix: Buffer, last: bool) -> tuple[Buffer, list[Buffer]]:
        """The inverses of the blocks on the diagonal, row by row; ``last``: they are those of the chunks.

        The element in row ``r`` of a column ``c`` is ``[c, o, r]`` after row ``o``.
        """
        c, zero = self.c, number(0, self.c.dtype)
        column, row, o = Var(self.column), Var(c.source), Var(c.place)
        shared = (*self.par, c.axis(self.column, c.length))
        step, rows = c.axis(c.place, self.rows), c.axis(c.source, self.rows)
        state, sums = c.made("rows", (*shared, step, rows)), c.made("rows_sum", (*shared, step))
        start, own = calc("mul", calc("floordiv", column, self.rows), self.rows), calc("mod", column, self.rows)
        element = self.read(matrix, (*self.here, calc("add", start, o), calc("add", start, row)))
        before = self.read(state, (*self.here, column, calc("sub", o, 1), row))
        earlier = calc("lt", row, o)
        one = calc("select", calc("eq", o, own), number(1, c.dtype), zero)
        new = self.kept(Op("add", (one, self.read(sums, (*self.here, column, o))), c.dtype))
        old = calc("select", calc("lt", integer(0), o), before, zero)
        value = calc("select", calc("eq", row, o), new, old)
        whole = self.scaled(state, (*shared, step, rows)) if last else []
        defs = (
            self.sum_of(sums, (*shared, step), (rows,), product_of([element, before]), earlier),
            self.element_of(state, (*shared, step, rows), value),
            *whole,
        )
        self.recurrence(defs, shared, step)
        return state, [d.buffer for d in whole]

    def of_chunks(self, matrix: Buffer, blocks: Buffer) -> list[Buffer]:
        """The inverse of each chunk, whose rows are found block by block.

        The element in row ``r`` of a column ``c`` is ``[c, b, r]`` after the block ``b``.
        """
        c, zero = self.c, number(0, self.c.dtype)
        column, row, o, b = Var(self.column), Var(c.source), Var(c.place), Var(self.block)
        shared = (*self.par, c.axis(self.column, c.length))
        step = c.axis(self.block, c.length // self.rows)
        rows, whole = c.axis(c.place, self.rows), c.axis(c.source, c.length)
        state, grown = (c.made(n, (*shared, step, whole)) for n in ("inverse", "inverse_rows"))
        sums = c.made("inverse_sum", (*shared, step, rows))
        start, later = calc("mul", b, self.rows), calc("lt", integer(0), b)
        before = calc("select", later, self.read(state, (*self.here, column, calc("sub", b, 1), row)), zero)
        element = self.read(matrix, (*self.here, calc("add", start, o), row))
        left = calc("select", calc("lt", row, start), element, zero)
        own = calc("select", calc("eq", column, calc("add", start, o)), number(1, c.dtype), zero)
        right = self.kept(Op("add", (own, self.read(sums, (*self.here, column, b, o))), c.dtype))
        inside = calc("eq", calc("floordiv", row, self.rows), b)
        of_row = self.read(
            blocks, (*self.here, calc("add", start, o), integer(self.rows - 1), calc("mod", row, self.rows))
        )
        value = self.kept(Op("add", (before, self.read(grown, (*self.here, column, b, row))), c.dtype))
        product = product_of([self.in_bits(right), self.in_bits(calc("select", inside, of_row, zero))])
        scaled = self.scaled(state, (*shared, step, whole))
        defs = (
            self.sum_of(sums, (*shared, step, rows), (whole,), product_of([self.in_bits(before), self.in_bits(left)])),
            self.sum_of(grown, (*shared, step, whole), (rows,), product),
            self.element_of(state, (*shared, step, whole), value),
            *scaled,
        )
        self.recurrence(defs, shared, step)
        return [d.buffer for d in scaled]

    # -- what the inverse makes of the steps of a chunk -------------------------------------------
    def solved(self, of_u: Expr, of_k: Expr) -> tuple[Buffer, Buffer | None]:
        """``given`` and ``moved``, from the elements of the inverse with the factors of ``u`` and of ``k``."""
        c, m = self.c, self.m
        o, s = Var(c.place), Var(c.source)
        t, at = (self.position(Var(c.chunk), x) for x in (o, s))
        order = (calc("le", s, o), self.inside(at if m.reverse else t))
        par = (*self.par, c.axis(c.place, c.length))
        red = (c.axis(c.source, c.length),)
        columns = {a.name for a in m.columns}
        u = [substitute(f, {c.t: at}) for f in factors(m.u) if free_vars(f) & columns]
        by_column = (*self.par, *m.columns, c.axis(c.place, c.length))
        given = c.define("given", by_column, product_of([of_u, *u]), red, conjunction(order))
        given = self.stored(given, by_column)
        if not c.has_states:
            return self.with_missing(given), None
        later = None if m.initial is not None else calc("ne", at, self.first)  # else the first step has no state
        decay = c.entering(at, before=True) if c.by_row else None
        k = factors(substitute(self.correction.inside, {c.t: at}))
        parts = [of_k, *([] if decay is None else [decay]), *k]
        moved = c.define("moved", (*par, *m.rows), product_of(parts), red, conjunction((*order, later)))
        return given, self.stored(moved, (*par, *m.rows))

    def stored(self, b: Buffer, par: Sequence[Axis]) -> Buffer:
        """``b`` as the factor of a product of matrices, or as a part of it."""
        if self.short is None:
            return b
        value = self.rounded(self.read(b, tuple(Var(a.name) for a in par)))
        return self.c.elementwise(f"{b.name.removeprefix(self.m.name + '_')}_short", par, value, self.short)

    def with_missing(self, given: Buffer) -> Buffer:
        """``given`` with NaN where ``f`` or ``k`` have it, in the only chunk."""
        c, m = self.c, self.m
        t = self.position(Var(c.chunk), Var(c.place))
        par = (*self.par, c.axis(c.place, c.length))
        parts = (substitute(e, {c.t: t}) for e in (self.correction.factor, self.correction.inside))
        zero = Op("mul", (product_of(list(parts)), number(0, c.dtype)), c.dtype)
        found = conjunction((calc("ne", t, self.first), self.inside(t)))
        missing = c.define("missing", par, zero, m.rows, found)
        both = (*self.par, *m.columns, c.axis(c.place, c.length))
        parts = (self.read(b, tuple(Var(a.name) for a in axes)) for b, axes in ((given, both), (missing, par)))
        value = Op("add", tuple(parts), c.dtype)
        if self.short is None:
            return c.elementwise("change", both, value)
        return c.elementwise("change_short", both, self.rounded(value), self.short)

    # -- one chunk after another ------------------------------------------------------------------
    def carried(self, given: Buffer, moved: Buffer) -> tuple[Buffer, Buffer, Buffer]:
        """The corrections, and the states before chunks, as readers multiply them and in f32."""
        c, m = self.c, self.m
        outer, n, o = tuple(Var(a.name) for a in m.outer), Var(c.chunk), Var(c.place)
        own, columns = (tuple(Var(a.name) for a in axes) for axes in (m.rows, m.columns))
        step, places = c.axis(c.chunk, c.count), c.axis(c.place, c.length)
        states, steps = (*m.outer, step, *m.columns, *m.rows), (*m.outer, step, *m.columns, places)
        entry, end = c.made("entry", states), c.made("end", states)
        added, sums, change = c.made("added", states), c.made("change_sum", steps), c.made("change", steps)
        before = calc("add", n, 1) if m.reverse else calc("sub", n, 1)
        later = calc("lt", n, total(c.count, -1)) if m.reverse else calc("lt", integer(0), n)
        operand = self.operand()
        here, at = (*outer, n, *columns, *own), (*outer, n, *columns, o)
        old, factor = self.read(entry, here), c.whole(n)
        t = self.position(n, o)
        decay = None if c.by_row else c.behind(t, c.last(n))
        change_of = right = self.read(change, at)
        state = self.rounded(self.read(entry, here))
        early: list[Def] = []  # first in a step, so that the parts are loaded first
        if decay is not None:
            early.append(self.element_of(c.made("fade", steps), steps, decay))
            right = product_of([self.read(early[-1].buffer, at), right])
        if factor is not None:
            kept = (*m.outer, step, *m.columns, *(m.rows if c.by_row else ()))
            early.append(self.element_of(c.made("kept", kept), kept, factor))
            old = product_of([self.read(early[-1].buffer, [Var(a.name) for a in kept]), old])
        defs = [
            *early,
            self.element_of(
                entry, states, calc("select", later, self.read(end, (*outer, before, *columns, *own)), c.initial)
            ),
            self.sum_of(sums, steps, m.rows, product_of([state, self.read(moved, (*outer, n, o, *own))])),
            self.element_of(change, steps, Op("add", (self.read(given, at), self.read(sums, at)), c.dtype)),
        ]
        found, states_of = change, entry
        if self.short is not None:
            states_of, found = c.made("entry_short", states, self.short), c.made("change_short", steps, self.short)
            defs += [self.element_of(states_of, states, state), self.element_of(found, steps, self.rounded(change_of))]
        value = Op("add", (old, self.read(added, here)), c.dtype)
        defs += [
            self.sum_of(added, states, (places,), product_of([self.rounded(right), operand])),
            self.element_of(end, states, value),
        ]
        self.recurrence(defs, (*m.outer, *m.columns), step, m.reverse)
        return found, states_of, entry

    def operand(self) -> Expr:
        """``x`` at a place of a chunk, and 0 beyond the last position.

        It is a tensor where it is computed.  Where rows decay differently, it has the decay to the end of the chunk.
        """
        c, m = self.c, self.m
        n, o = Var(c.chunk), Var(c.place)
        t = self.position(n, o)
        x, inside = substitute(m.x, {c.t: t}), self.inside(t)
        decay = c.behind(t, c.last(n)) if c.by_row else None
        if inside is None and decay is None and isinstance(strip_conversions(x), Load):
            return x
        x = x if inside is None else calc("select", inside, x, number(0, c.dtype))
        par = (*self.par, c.axis(c.place, c.length), *m.rows)
        value = self.rounded(x if decay is None else product_of([decay, x]))
        made = c.elementwise("operand", par, value, self.short or c.dtype)
        return self.read(made, tuple(Var(a.name) for a in par))

    # -- definitions ------------------------------------------------------------------------------
    def read(self, b: Buffer, index: Sequence[Expr]) -> Expr:
        """The element of ``b`` at ``index``."""
        return self.c.element(b, index)

    def rounded(self, e: Expr) -> Expr:
        """``e`` as the factor of a product of matrices, which has 16 bits where those of the spec have."""
        return e if self.short is None else Op("cast", (Op("narrow", (e,), self.short),), self.c.dtype)

    def in_bits(self, e: Expr) -> Expr:
        """``e`` as the factor of a product that makes the inverse, in more bits than the inverse has in the end."""
        return e if self.short is None else Op("cast", (Op("narrow", (e,), DType.TF32),), self.c.dtype)

    def sum_of(
        self, b: Buffer, par: Sequence[Axis], red: Sequence[Axis], value: Expr, guard: Expr | None = None
    ) -> Def:
        """The sum of ``value`` over ``red``, stored in ``b``."""
        return Def(b.name, b, tuple(par), tuple(red), "sum", value, guard, self.m.span)

    def element_of(self, b: Buffer, par: Sequence[Axis], value: Expr) -> Def:
        """The elementwise ``value``, stored in ``b``."""
        return Def(b.name, b, tuple(par), (), None, value, None, self.m.span)

    def recurrence(self, defs: Sequence[Def], shared: Sequence[Axis], step: Axis, reverse: bool = False) -> None:
        """The kernel of the recurrence ``defs`` over ``step``, which never meet along the axes ``shared``."""
        names = {a.name: a.name for a in (*shared, step)}
        nests = [(d, names) for d in defs]
        self.c.kernels.append(recurrence_kernel(defs[-1].name, nests, shared, step, reverse))
