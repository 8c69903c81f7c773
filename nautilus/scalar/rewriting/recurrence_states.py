"""Statements of a scan of states that need each other, in tiled form (:mod:`.recurrence_scans`).

The states of a step are the elements of one local along an axis of their own::

    tile.seq t { tile k: s[t, k] = (row k of A)(t) * s[t - 1, 0..] + b(t, k) }
    tile t { tile.red k: y[t] += s[t, k] where k == 0 }

Positions after the last step have the rest 0, so that they neither have large states nor reach others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nautilus.core.expr.build import calc, integer, number
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var
from nautilus.core.records import dataclass
from nautilus.core.source import Span
from nautilus.scalar.analysis.states.coupled_states import CoupledStates, Row
from nautilus.scalar.ir import Kind, Loop, Stmt, Store, Update
from nautilus.scalar.rewriting import nest


@dataclass(frozen=True, slots=True)
class StateTile:
    """The local ``name`` of the states ``of``, over the axes of a tile of rows, of which the last one is the steps.

    ``axis``: that of the states.  ``inside``: the condition of positions that are steps; None where all are.  ``put``:
    an expression of a step at the positions of the tile.
    """

    name: str
    of: CoupledStates
    axes: Sequence[tuple[str, int]]
    axis: str
    reverse: bool
    inside: Expr | None
    put: Callable[[Expr], Expr]
    span: Span

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
        terms: Expr | None = None
        for n, factor in enumerate(row.factors):
            if factor is None:
                continue
            here = factor if isinstance(factor, Const) else self.shown(self.put(factor))
            at: tuple[Expr, ...] = (*(Var(a) for a, _ in self.axes[:-1]), before, integer(n))
            state = Load(self.name, at, dtype, self.span)
            term = state if here == number(1, dtype) else Op("mul", (here, state), dtype)
            terms = term if terms is None else Op("add", (terms, term), dtype)
        rest = self.shown(self.put(row.rest))
        if terms is None:
            return rest
        size = self.axes[-1][1]
        follows = calc("lt", step, size - 1) if self.reverse else calc("ge", step, 1)
        moved = calc("select", follows, terms, number(0, dtype))
        return moved if rest == number(0, dtype) else Op("add", (moved, rest), dtype)

    def shown(self, e: Expr) -> Expr:
        """``e``, and 0 after the last step."""
        return e if self.inside is None or isinstance(e, Const) else calc("select", self.inside, e, number(0, e.dtype))

    def taken(self, number_: int, target: str) -> tuple[Stmt, Stmt]:
        """The nests that make the local ``target`` of state ``number_``."""
        here = tuple(Var(n) for n, _ in self.axes)
        start = Store(target, here, number(0, self.of.dtype), self.inside, self.span)
        value = Load(self.name, (*here, Var(self.axis)), self.of.dtype, self.span)
        found = calc("eq", Var(self.axis), number_)
        guard = found if self.inside is None else calc("and", self.inside, found)
        more = Update(target, "sum", here, value, guard, self.span)
        return self.loops(start, Kind.TILE, False), self.loops(more, Kind.TILE, True, Kind.TILE_RED)

    def loops(self, s: Store | Update, steps: Kind, states: bool = True, over: Kind = Kind.TILE) -> Stmt:
        """``s`` in the loops of the tile."""
        kinds = [Kind.TILE] * (len(self.axes) - 1) + [steps] + [over] * states
        axes = [*self.axes, (self.axis, self.size)] if states else self.axes
        loops = [Loop(n, integer(0), integer(k), kind, (), s.span) for (n, k), kind in zip(axes, kinds, strict=True)]
        (whole,) = nest(loops, (s,))
        return whole
