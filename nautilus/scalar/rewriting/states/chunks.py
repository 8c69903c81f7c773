"""The definitions of a matrix state in chunks of steps, for ``chunk-matrix-states``, which says what they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Final

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer, number
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars, substitute
from nautilus.core.expr.products import factors, product_of, strip_conversions
from nautilus.core.index.divisors import divisor
from nautilus.core.index.sizes import Extent, before_last, blocks, extent_expr, total
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def, reads_of
from nautilus.scalar.analysis.states.matrix_states import MatrixState, Reader
from nautilus.scalar.analysis.symbolic import multiplied
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, statements
from nautilus.scalar.rewriting import fresh_name, kernel_of
from nautilus.scalar.rewriting.states.corrections import Corrections
from nautilus.scalar.rewriting.states.decays import Decays
from nautilus.scalar.rewriting.states.fading_columns import FadingColumns
from nautilus.scalar.rewriting.states.infinities import without_infinities
from nautilus.scalar.rewriting.states.last import last_state, with_last
from nautilus.scalar.rewriting.states.pairs import Pairs, weights

TOGETHER: Final = 256  # columns of a chain of two products in one kernel


@dataclass(frozen=True, slots=True)
class Found:
    """A matrix state whose decay is ``exp(exponent)``; no exponent: it does not decay.

    ``marks``: None where the decay has the sign of an exponential; else it is ``exp(exponent)`` times a sign, and
    ``marks`` is ``ZERO`` (:mod:`.decays`) where it is 0, 1 where it is negative, and 0 elsewhere.

    ``column_exponent``: that of the factor of the decay in which columns differ; None where they do not.

    ``short``: the type of 16 bits of all operands, None where there is none.  ``types``: those of some of them.
    ``computed``: the number of operands that are computed from tensors of that type.
    """

    state: MatrixState
    exponent: Expr | None
    marks: Expr | None = None
    column_exponent: Expr | None = None
    short: DType | None = None
    types: frozenset[DType] = frozenset()
    computed: int = 0

    @property
    def by_row(self) -> bool:
        """Whether rows decay by different factors."""
        return self.exponent is not None and bool(free_vars(self.exponent) & {a.name for a in self.state.rows})

    @property
    def by_column(self) -> bool:
        """Whether columns decay by different factors."""
        return self.column_exponent is not None


def short_type(m: MatrixState) -> DType | None:
    """The type of 16 bits of elements in all products of matrices; None where one has none, or they differ.

    ``x`` meets ``u`` and what readers sum, so that it may be computed where these have elements of 16 bits.
    """
    operands = operands_of(m) if m.correction is not None else operands_of(m)[1:]
    types = short_types(m)
    return next(iter(types)) if all(map(halves, operands)) and len(types) == 1 else None


def short_types(m: MatrixState) -> frozenset[DType]:
    """The types of 16 bits of elements in products of matrices."""
    return frozenset[DType]().union(*map(halves, operands_of(m)))


def operands_of(m: MatrixState) -> tuple[Expr, ...]:
    """What products of matrices multiply: what a step adds, and what readers sum."""
    return (m.x, m.u, *(r.inside for r in m.readers))


def halves(e: Expr) -> frozenset[DType]:
    """The types of 16 bits of tensors whose elements are factors of ``e``."""
    found = (strip_conversions(f) for f in factors(e))
    return frozenset(x.dtype for x in found if isinstance(x, Load) and x.dtype.is_half)


def volume(axes: Sequence[Axis]) -> int:
    """The number of points of those ``axes`` whose extents are known."""
    return prod(a.extent for a in axes if isinstance(a.extent, int))


class StateChunks:
    """The definitions that replace the recurrence ``k`` in chunks of ``length`` steps.

    ``rounds``: computed operands may have the 16 bits of what they are multiplied by.
    """

    def __init__(self, program: Program, k: Kernel, found: Found, length: int, rounds: bool) -> None:
        self.given, self.kernel, self.m, self.length = program, k, found.state, length
        m = self.m
        self.steps = m.time.extent
        self.count = blocks(self.steps, length)
        self.several = self.count != 1
        self.ragged = divisor(extent_expr(self.steps)) % length != 0
        self.has_states = self.several or m.initial is not None
        self.initial: Expr = number(0, DType.F32) if m.initial is None else m.initial
        self.dtype = DType.F32
        taken = {loop.var for loops_, _ in statements(k.body) for loop in loops_}
        self.t = m.time.name
        self.s = unused(f"{self.t}_from", taken)
        self.chunk = unused(f"{self.t}_chunk", taken | {self.s})
        self.place = unused(f"{self.t}_step", taken | {self.s, self.chunk})
        self.source = unused(f"{self.t}_until", taken | {self.s, self.chunk, self.place})
        self.buffers: list[Buffer] = []
        self.kernels: list[Kernel] = []
        self.short = found.short if rounds else None
        self.by_row, self.given_decays = found.by_row, found
        self.stores_pairs = found.by_row or found.by_column or volume(m.columns) > TOGETHER
        self.decay: Decays | None = None  # of rows and heads
        self.fade: Decays | None = None  # of columns
        self.found: Buffer | None = None  # corrections
        self.place_of: Callable[[Expr], tuple[Expr, Expr]] = lambda t: (t, t)

    def program(self) -> Program:
        """The program with the definitions in place of the steps."""
        m = self.m
        decays = self.given_decays
        if decays.exponent is not None:
            self.decay = Decays(self, decays.exponent, decays.marks)
        if decays.column_exponent is not None:
            self.fade = Decays(self, decays.column_exponent, None, "column_")
        states = entry = None
        if m.correction is not None:
            corrections = Corrections(self)
            self.found, states, entry = corrections.made()
            self.place_of = corrections.place
        elif self.has_states:
            states, entry = self.states()
        others = [k for k in self.given.kernels if k is not self.kernel]
        last = last_state(self, entry) if any(m.name in reads_of(k) for k in others) else None
        needed = self.needed()
        for x in needed:
            if isinstance(x, Reader):
                self.reader(x, states)
            else:
                self.kernels.append(kernel_of(x))
        kernels = [x for k in self.given.kernels for x in (self.kernels if k is self.kernel else [k])]
        dropped = {m.name, *(_name(x) for x in m.members if x not in needed)}
        known = tuple(b for b in self.given.buffers if b.name not in dropped)
        made = replace(self.given, buffers=(*known, *self.buffers), kernels=tuple(kernels))
        return made if last is None else with_last(made, m, last)

    def needed(self) -> list[Reader | Def]:
        """The members that are outputs, or that others read."""
        own = set(map(_name, self.m.members))
        wanted = {b.name for b in self.given.buffers if b.space is Space.OUTPUT}
        wanted |= {n for k in self.given.kernels if k is not self.kernel for n in reads_of(k)}
        out: list[Reader | Def] = []
        for x in reversed(self.m.members):
            if _name(x) in wanted:
                d = x.target if isinstance(x, Reader) else x
                wanted |= {ld.buffer for ld in d.reads()} & own
                out.insert(0, x)
        return out

    # -- products of the decay --------------------------------------------------------------------
    def behind(self, s: Expr, t: Expr, before: bool = False) -> Expr | None:
        """``G(s, t)``; ``before``: up to the step before ``t``."""
        return None if self.decay is None else self.decay.behind(s, t, before)

    def entering(self, t: Expr, before: bool) -> Expr | None:
        """The product of the factors from the first step of the chunk to ``t``; ``before``: to the step before it."""
        return None if self.decay is None else self.decay.entering(t, before)

    def whole(self, chunk: Expr) -> Expr | None:
        """The product of all factors of a chunk that another one follows."""
        return None if self.decay is None else self.decay.whole(chunk)

    def last(self, chunk: Expr) -> Expr:
        """The position of the last step of a chunk that another one follows."""
        start = calc("mul", chunk, self.length)
        return start if self.m.reverse else calc("add", start, self.length - 1)

    def added(self, at: Expr) -> tuple[Expr | None, Expr, Expr]:
        """The factors of what the step at ``at`` adds."""
        m = self.m
        if self.found is not None:
            outer, columns = ([Var(a.name) for a in axes] for axes in (m.outer, m.columns))
            chunk, place = self.place_of(at)
            return None, substitute(m.x, {self.t: at}), self.element(self.found, (*outer, chunk, *columns, place))
        x, u = (substitute(e, {self.t: at}) for e in (m.x, m.u))
        return None if m.scale is None else substitute(m.scale, {self.t: at}), x, u

    # -- the states before chunks -----------------------------------------------------------------
    def states(self) -> tuple[Buffer, Buffer]:
        """The states before chunks, as readers multiply them and in f32."""
        m = self.m
        if not self.several:
            par = (*m.outer, self.axis(self.chunk, 1), *m.rows, *m.columns)
            entry = self.elementwise("entry", par, self.initial)
            return entry, entry
        chunk, place = Var(self.chunk), Var(self.place)
        first = 1 if m.reverse else 0  # the chunk of the first element of the sums
        of = calc("add", chunk, first) if first else chunk
        at = calc("add", calc("mul", of, self.length), place)
        scale, x, u = self.added(at)
        factor = self.behind(at, self.last(of))
        if self.by_row and factor is not None:
            t = calc("add", calc("mul", chunk, self.length), place)
            moved = product_of([f for f in (self.behind(t, self.last(chunk)), substitute(m.x, {self.t: t})) if f])
            made = self.operand_of("operand", moved, t, m.rows)
            outer, rows = ([Var(a.name) for a in axes] for axes in (m.outer, m.rows))
            factor, x = None, self.element(made, (*outer, of, place, *rows))
        if self.fade is not None:
            t = calc("add", calc("mul", chunk, self.length), place)
            faded = multiplied(self.fade.behind(t, self.last(chunk)), substitute(m.u, {self.t: t}))
            made = self.operand_of("column_operand", faded, t, m.columns)
            outer, columns = ([Var(a.name) for a in axes] for axes in (m.outer, m.columns))
            u = self.element(made, (*outer, of, place, *columns))
        parts = [f for f in (factor, scale, x, u) if f is not None]
        par = (*m.outer, self.axis(self.chunk, before_last(self.steps, self.length)), *m.rows, *m.columns)
        inside = self.inside_of(at) if m.reverse else None
        sums = self.define("added", par, product_of(parts), (self.axis(self.place, self.length),), inside)
        return self.carried(sums)

    def carried(self, added: Buffer) -> tuple[Buffer, Buffer]:
        """The recurrence of the states before chunks, of which each chunk adds ``added``."""
        m = self.m
        outer, own = [Var(a.name) for a in m.outer], [Var(a.name) for a in (*m.rows, *m.columns)]
        axes = (*m.outer, self.axis(self.chunk, self.count), *m.rows, *m.columns)
        state = entry = self.made("entry", axes)
        chunk: Expr = Var(self.chunk)
        here = calc("sub", total(self.count, -1), chunk) if m.reverse else chunk
        before = calc("add", here, 1) if m.reverse else calc("sub", here, 1)
        sums = Load(added.name, (*outer, here if m.reverse else before, *own), self.dtype, m.span)
        old: Expr = Load(state.name, (*outer, before, *own), self.dtype, m.span)
        factors_ = (self.whole(before), None if self.fade is None else self.fade.whole(before))
        moved = product_of([*(f for f in factors_ if f is not None), old])
        later = calc("lt", integer(0), chunk)
        value = calc("select", later, Op("add", (moved, sums), self.dtype), self.initial)
        body: list[Stmt] = [Store(state.name, (*outer, here, *own), value, None, m.span)]
        if self.short is DType.BF16:
            rounded = self.made("entry_short", axes, self.short)
            new = Op("narrow", (Load(state.name, (*outer, here, *own), self.dtype, m.span),), self.short)
            body.append(Store(rounded.name, (*outer, here, *own), Op("cast", (new,), self.dtype), None, m.span))
            state = rounded
        self.kernels.append(
            self.nest(body[-1], (*m.outer, *m.rows, *m.columns), self.axis(self.chunk, self.count), body)
        )
        return state, entry

    # -- the readers ------------------------------------------------------------------------------
    def reader(self, r: Reader, states: Buffer | None) -> None:
        """The definitions of a reader."""
        m = self.m
        times: Expr | None = None
        if not r.finite:
            q, times = without_infinities(self, r)
            r = replace(r, inside=q, rest=None if r.rest is None else multiplied(q, r.rest))
        par = (*m.outer, m.time, *m.columns)
        index = tuple(Var(a.name) for a in par)
        total: Expr = self.inside_of_pairs(r) if self.stores_pairs else self.inside(r)
        if states is not None:
            total = Op("add", (self.from_state(r, states, par, index), total), self.dtype)
        if r.outside is not None:
            total = multiplied(total, r.outside)
        if r.rest is not None:
            total = Op("add", (total, self.beside(r, r.rest)), self.dtype)
        if times is not None:
            total = multiplied(total, times)
        self.kernels.append(kernel_of(replace(r.target, red=(), op=None, value=total, guard=None)))

    def beside(self, r: Reader, element: Expr) -> Expr:
        """The sum of ``element``, which has no state; factors without rows are outside of a sum that is never empty."""
        m = self.m
        rows = {a.name for a in m.rows}
        parts = factors(element) if r.target.guard is None else [element]
        summed = [f for f in parts if free_vars(f) & rows] or parts
        used = frozenset[str]().union(*map(free_vars, summed))
        par = tuple(a for a in (*m.outer, m.time, *m.columns) if a.name in used or r.target.guard is not None)
        made = self.define(f"{r.target.name}_rest", par, product_of(summed), m.rows, r.target.guard)
        found: Expr = Load(made.name, tuple(Var(a.name) for a in par), self.dtype, m.span)
        return product_of([found, *(f for f in parts if f not in summed)])

    def inside(self, r: Reader) -> Expr:
        """What the steps of its chunk give to a reader at its position: a chain of two products of matrices."""
        m, t, s = self.m, Var(self.t), Var(self.s)
        scale, x, u = self.added(s)
        source = self.axis(self.s, self.steps)
        both = self.define(f"{r.target.name}_product", (*m.outer, m.time, source), multiplied(r.inside, x), m.rows)
        product = Load(both.name, (*(Var(a.name) for a in m.outer), t, s), self.dtype, m.span)
        parts = [f for f in (self.behind(s, t, r.before), scale, product, u) if f is not None]
        par = (*m.outer, m.time, *m.columns)
        made = self.define(f"{r.target.name}_inside", par, product_of(parts), (source,), self.earlier(s, t, r.before))
        return Load(made.name, tuple(Var(a.name) for a in par), self.dtype, m.span)

    def inside_of_pairs(self, r: Reader) -> Expr:
        """What :meth:`inside` gives, where the products of pairs of steps of each chunk are stored."""
        m, t, source = self.m, Var(self.t), Var(self.source)
        chunk, place = calc("floordiv", t, self.length), calc("mod", t, self.length)
        s = calc("add", calc("mul", chunk, self.length), source)
        start = calc("mul", Var(self.chunk), self.length)
        later, earlier = (calc("add", start, Var(x)) for x in (self.place, self.source))
        scale, x, _ = self.added(Var(self.t))
        factor = None if self.by_row else self.behind(earlier, later, r.before)
        parts = [f for f in (factor, scale and substitute(scale, {self.t: earlier})) if f is not None]
        made = weights(self, r.target.name, Pairs(self, r.target.name, r.inside, x, r.before), parts, r.before)
        if self.fade is not None:
            return FadingColumns(self, r.target.name, self.fade, made, r.before).value()
        weight = self.element(made, [*(Var(a.name) for a in m.outer), chunk, place, source])
        guard = conjunction((self.in_order(place, source, r.before), self.inside_of(s) if m.reverse else None))
        par = (*m.outer, m.time, *m.columns)
        value = product_of([weight, self.added(s)[2]])
        total = self.define(f"{r.target.name}_inside", par, value, (self.axis(self.source, self.length),), guard)
        return Load(total.name, tuple(Var(a.name) for a in par), self.dtype, m.span)

    def in_order(self, place: Expr, source: Expr, before: bool) -> Expr:
        """The condition that ``source`` is not a later step of a chunk than ``place``; ``before``: an earlier one."""
        return calc("lt" if before else "le", *((place, source) if self.m.reverse else (source, place)))

    def inside_of(self, t: Expr) -> Expr | None:
        """The condition that ``t`` is a position, in the last chunk too."""
        return calc("lt", t, self.steps) if self.ragged else None

    def from_state(self, r: Reader, states: Buffer, par: Sequence[Axis], index: Sequence[Expr]) -> Expr:
        """What the state before the chunk gives to a reader."""
        m, t = self.m, Var(self.t)
        own = [Var(a.name) for a in (*m.rows, *m.columns)]
        outer = [Var(a.name) for a in m.outer]
        if m.correction is not None:
            own = [Var(a.name) for a in (*m.columns, *m.rows)]
        read = self.element(states, (*outer, calc("floordiv", t, self.length), *own))
        factor = self.entering(t, r.before)
        q = r.inside
        if factor is not None and self.by_row:
            moved = self.operand_of(f"{r.target.name}_moved", multiplied(r.inside, factor), t, m.rows, by_chunk=False)
            q = self.element(moved, [Var(a.name) for a in (*m.outer, m.time, *m.rows)])
        carried = self.define(f"{r.target.name}_carried", par, multiplied(q, read), m.rows)
        found: Expr = Load(carried.name, tuple(index), self.dtype, m.span)
        found = found if factor is None or self.by_row else multiplied(factor, found)
        found = found if self.fade is None else multiplied(self.fade.entering(t, r.before), found)
        if not r.before or m.initial is not None:
            return found
        inside = calc("le", self.length, t)
        if m.reverse:
            inside = calc("lt", t, calc("mul", extent_expr(total(self.count, -1)), self.length))
        return calc("select", inside, found, number(0, self.dtype))  # no product with NaN before the first step

    def earlier(self, s: Expr, t: Expr, before: bool) -> Expr | None:
        """The condition that step ``s`` is in the chunk of ``t``, and not after it; ``before``: before it."""
        start = calc("mul", calc("floordiv", t, self.length), self.length)
        compare = "lt" if before else "le"
        if self.m.reverse:
            bound = calc("lt", s, calc("add", start, self.length)) if self.several else None
            return conjunction((calc(compare, t, s), bound))
        return conjunction((calc("le", start, s) if self.several else None, calc(compare, s, t)))

    # -- buffers, definitions and loops -----------------------------------------------------------
    def axis(self, name: str, extent: Extent) -> Axis:
        """A new axis."""
        return Axis(name, extent, self.m.span)

    def made(self, suffix: str, axes: Sequence[Axis], dtype: DType = DType.F32) -> Buffer:
        """A new tensor in memory over ``axes``."""
        taken = {b.name for b in self.buffers} | {k.name for k in self.given.kernels}
        wanted = (
            suffix if suffix.startswith(tuple(r.target.name for r in self.m.readers)) else f"{self.m.name}_{suffix}"
        )
        name = fresh_name(self.given, wanted, taken)
        self.buffers.append(Buffer(name, dtype, tuple(a.extent for a in axes), Space.TEMP, self.m.span))
        return self.buffers[-1]

    def define(
        self,
        suffix: str,
        par: Sequence[Axis],
        value: Expr,
        red: Sequence[Axis],
        guard: Expr | None = None,
        combiner: str = "sum",
    ) -> Buffer:
        """A reduction over ``red``."""
        b = self.made(suffix, par, value.dtype)
        self.kernels.append(kernel_of(Def(b.name, b, tuple(par), tuple(red), combiner, value, guard, self.m.span)))
        return b

    def elementwise(self, suffix: str, par: Sequence[Axis], value: Expr, dtype: DType = DType.F32) -> Buffer:
        """A tensor of ``value`` at each position."""
        b = self.made(suffix, par, dtype)
        self.kernels.append(kernel_of(Def(b.name, b, tuple(par), (), None, value, None, self.m.span)))
        return b

    def operand_of(self, suffix: str, value: Expr, t: Expr, axes: Sequence[Axis], by_chunk: bool = True) -> Buffer:
        """The factor ``value`` of a product of matrices at the position ``t``, 0 beyond the last one, along ``axes``.

        ``by_chunk``: for each chunk and place, else for each step.
        """
        inside = self.inside_of(t) if by_chunk else None
        value = value if inside is None else calc("select", inside, value, number(0, self.dtype))
        steps = (self.axis(self.chunk, self.count), self.axis(self.place, self.length)) if by_chunk else (self.m.time,)
        return self.rounded_elementwise(suffix, (*self.m.outer, *steps, *axes), value)

    def rounded_elementwise(self, suffix: str, par: Sequence[Axis], value: Expr) -> Buffer:
        """A tensor of ``value`` with the 16 bits that factors of products of matrices have."""
        if self.short is not DType.BF16:
            return self.elementwise(suffix, par, value)
        narrowed = Op("cast", (Op("narrow", (value,), self.short),), self.dtype)
        return self.elementwise(suffix, par, narrowed, self.short)

    def element(self, b: Buffer, index: Sequence[Expr]) -> Expr:
        """The element of ``b`` at ``index`` as a number of the type of computations."""
        ld = Load(b.name, tuple(index), b.dtype, self.m.span)
        return ld if b.dtype is self.dtype else Op("cast", (ld,), self.dtype)

    def read(self, b: Buffer, axes: Sequence[Axis]) -> Expr:
        """The element of ``b`` at the positions along ``axes``."""
        return Load(b.name, tuple(Var(a.name) for a in axes), b.dtype, self.m.span)

    def nest(self, last: Stmt, outer: Sequence[Axis], step: Axis, body: Sequence[Stmt]) -> Kernel:
        """A recurrence over ``step``."""
        assert isinstance(last, Store)

        def loop(a: Axis, kind: Kind, inner: Sequence[Stmt]) -> tuple[Stmt, ...]:
            return (Loop(a.name, integer(0), extent_expr(a.extent), kind, tuple(inner), self.m.span),)

        whole = loop(step, Kind.SEQ, body)
        for a in reversed(outer):
            whole = loop(a, Kind.PAR, whole)
        return Kernel(last.buffer, (), whole, self.m.span)


def _name(x: Reader | Def) -> str:
    return x.target.name if isinstance(x, Reader) else x.name
