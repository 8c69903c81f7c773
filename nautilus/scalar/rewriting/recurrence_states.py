"""Statements of a scan of states that need each other, in tiled form (:mod:`.recurrence_scans`).

The states of a step are the elements of one local along an axis of their own::

    tile.seq t { tile k: s[t, k] = (row k of A)(t) * s[t - 1, 0..] + b(t, k) }
    tile t { tile.red k: y[t] += s[t, k] where k == 0 }

Where a block has one tile after another, what the states after a tile give to the first step of the next one is in its
rest, and there is a local for each state (:class:`Carry`).

Positions after the last step have the rest 0, so that they neither have large states nor reach others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer, number
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var
from nautilus.core.records import dataclass
from nautilus.core.source import Span
from nautilus.scalar.analysis.states.coupled_states import CoupledStates, Row
from nautilus.scalar.ir import Kind, Loop, Stmt, Store, Update
from nautilus.scalar.rewriting import nest


@dataclass(frozen=True, slots=True)
class Carry:
    """The local ``name`` of a ``value`` at the position ``last`` of the steps, over the other ``axes`` of a tile.

    ``over``: axes besides, of which ``value`` is taken where ``found`` holds.  ``first``: what is before the first
    tile; None for 0.
    """

    name: str
    value: Load
    axes: Sequence[tuple[str, int]]
    last: int
    over: Sequence[tuple[str, int]] = ()
    found: Expr | None = None
    first: Const | None = None

    @property
    def local(self) -> Buffer:
        """The local."""
        return Buffer(self.name, self.value.dtype, tuple(n for _, n in self.axes[:-1]), Space.LOCAL, self.value.span)

    @property
    def place(self) -> tuple[Expr, ...]:
        """The position in the local."""
        return tuple(Var(a) for a, _ in self.axes[:-1])

    def start(self, first: Const | None = None) -> tuple[Stmt, ...]:
        """The statement that makes it ``first``, or 0."""
        store = Store(self.name, self.place, first or number(0, self.value.dtype), None, self.value.span)
        return nest([self.loop(a, n, Kind.TILE) for a, n in self.axes[:-1]], (store,))

    def end(self) -> tuple[Stmt, ...]:
        """The statements that make it the value at the last step of a tile."""
        step, _ = self.axes[-1]
        guard = conjunction((calc("eq", Var(step), self.last), self.found))
        more = Update(self.name, "sum", self.place, self.value, guard, self.value.span)
        loops = [self.loop(a, n, Kind.TILE) for a, n in self.axes[:-1]]
        loops += [self.loop(a, n, Kind.TILE_RED) for a, n in (self.axes[-1], *self.over)]
        return (*self.start(), *nest(loops, (more,)))

    def loop(self, name: str, count: int, kind: Kind) -> Loop:
        """A loop of the tile."""
        return Loop(name, integer(0), integer(count), kind, (), self.value.span)


@dataclass(frozen=True, slots=True)
class StateTile:
    """The local ``name`` of the states ``of``, over the axes of a tile of rows, of which the last one is the steps.

    ``axis``: that of the states.  ``inside``: the condition of positions that are steps; None where all are.  ``put``:
    an expression of a step at the positions of the tile.  ``carries``: the locals of the states that steps read after
    the tile before, where a block has one tile after another; ``later``: in which tiles there is one before.
    """

    name: str
    of: CoupledStates
    axes: Sequence[tuple[str, int]]
    axis: str
    reverse: bool
    inside: Expr | None
    put: Callable[[Expr], Expr]
    span: Span
    carries: Sequence[str]
    later: Expr

    @property
    def size(self) -> int:
        """The number of states."""
        return len(self.of.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the local."""
        return (*(n for _, n in self.axes), self.size)

    def scan(self) -> Stmt:
        """The steps."""
        *_, last = self.of.rows
        value = self.row(last)
        for n, row in reversed(list(enumerate(self.of.rows[:-1]))):
            value = calc("select", calc("eq", Var(self.axis), n), self.row(row), value)
        index = (*(Var(n) for n, _ in self.axes), Var(self.axis))
        steps = Kind.TILE_DOWN if self.reverse else Kind.TILE_SEQ
        return self.loops(Store(self.name, index, value, None, self.span), steps)

    def row(self, row: Row) -> Expr:
        """The value of ``row`` at a step."""
        step, dtype = Var(self.axes[-1][0]), self.of.dtype
        before = calc("add" if self.reverse else "sub", step, 1)
        place: tuple[Expr, ...] = tuple(Var(a) for a, _ in self.axes[:-1])
        terms = self.terms(row, [Load(self.name, (*place, before, integer(n)), dtype, self.span) for n in self.columns])
        rest, zero = self.shown(self.put(row.rest)), number(0, dtype)
        if terms is None:
            return rest
        size = self.axes[-1][1]
        follows = calc("lt", step, size - 1) if self.reverse else calc("ge", step, 1)
        if self.carries:
            carried = self.terms(row, [Load(name, place, dtype, self.span) for name in self.carries])
            assert carried is not None
            first = calc("select", follows, zero, calc("select", self.later, carried, zero))
            rest = first if rest == zero else Op("add", (first, rest), dtype)
        moved = calc("select", follows, terms, zero)
        return moved if rest == zero else Op("add", (moved, rest), dtype)

    @property
    def columns(self) -> range:
        """The numbers of the states that steps read."""
        return range(len(self.of.columns))

    def terms(self, row: Row, states: Sequence[Load]) -> Expr | None:
        """The factors of ``row`` times ``states``; None where there are none."""
        dtype, terms = self.of.dtype, list[Expr]()
        for factor, state in zip(row.factors, states, strict=True):
            if factor is not None:
                here = factor if isinstance(factor, Const) else self.shown(self.put(factor))
                terms.append(state if here == number(1, dtype) else Op("mul", (here, state), dtype))
        return reduce(lambda a, b: Op("add", (a, b), dtype), terms) if terms else None

    def carried(self) -> list[Carry]:
        """The values of the states that steps read after a tile."""
        here = (*(Var(a) for a, _ in self.axes), Var(self.axis))
        last = 0 if self.reverse else self.axes[-1][1] - 1
        value, over = Load(self.name, here, self.of.dtype, self.span), ((self.axis, self.size),)
        return [
            Carry(name, value, self.axes, last, over, calc("eq", Var(self.axis), n))
            for n, name in enumerate(self.carries)
        ]

    def shown(self, e: Expr) -> Expr:
        """``e``, and 0 after the last step."""
        return e if self.inside is None or isinstance(e, Const) else calc("select", self.inside, e, number(0, e.dtype))

    def taken(self, number_: int, target: str) -> tuple[Stmt, Stmt]:
        """The nests that make the local ``target`` of state ``number_``."""
        here = tuple(Var(n) for n, _ in self.axes)
        inside = None if self.carries else self.inside
        start = Store(target, here, number(0, self.of.dtype), inside, self.span)
        value = Load(self.name, (*here, Var(self.axis)), self.of.dtype, self.span)
        found = calc("eq", Var(self.axis), number_)
        guard = found if inside is None else calc("and", inside, found)
        more = Update(target, "sum", here, value, guard, self.span)
        return self.loops(start, Kind.TILE, False), self.loops(more, Kind.TILE, True, Kind.TILE_RED)

    def loops(self, s: Store | Update, steps: Kind, states: bool = True, over: Kind = Kind.TILE) -> Stmt:
        """``s`` in the loops of the tile."""
        kinds = [Kind.TILE] * (len(self.axes) - 1) + [steps] + [over] * states
        axes = [*self.axes, (self.axis, self.size)] if states else self.axes
        loops = [Loop(n, integer(0), integer(k), kind, (), s.span) for (n, k), kind in zip(axes, kinds, strict=True)]
        (whole,) = nest(loops, (s,))
        return whole
