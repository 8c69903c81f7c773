"""The kernel of a recurrence whose steps are a scan, in tiled form (``tile-recurrences``).

A block has a tile of whole rows, and every tensor of the recurrence is a local of such a tile::

    tile t { tile.seq: h[t] = a(t) * h[t - 1] + b(t) }         a scan
    tile t { y[t] = f(h[t], x[t]) }                            what else a step computes

States that need each other are one scan (:mod:`.recurrence_states`).

The axis of the tile numbers positions in memory, so that steps from the last position on are a scan from there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import gcd

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Load, Op, Var, loads, rewrite, substitute
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.core.tiles import ceil_pow2, floor_pow2
from nautilus.scalar.analysis.states.coupled_states import CoupledStates, coupled_states, states_apart
from nautilus.scalar.analysis.states.linear_states import steps_back
from nautilus.scalar.analysis.states.recurrences import Form, form_of
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, extent, statements
from nautilus.scalar.rewriting import nest
from nautilus.scalar.rewriting.recurrence_states import StateTile

TILE = 2048  # elements of the tile of a block that has several short rows
ALIGNED = 1024  # a longer row has a tile of a multiple of so many elements


def scan_form(k: Kernel) -> Form | None:
    """The loops of the recurrence ``k`` whose steps are a scan; None for another kernel."""
    one_by_one = in_steps(k)
    return None if one_by_one is k else form_of(one_by_one)


def in_steps(k: Kernel) -> Kernel:
    """The recurrence ``k`` whose steps are a scan with its steps one after another; another kernel as it is."""
    body, loops = k.body, list[Loop]()
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind is Kind.PAR:
        loops.append(body[0])
        body = body[0].body
    if not (len(body) == 1 and isinstance(body[0], Loop) and body[0].kind is Kind.TILE_SEQ):
        return k
    return replace(k, body=nest(loops, (replace(body[0], kind=Kind.SEQ),)))


def scan_kernel(program: Program, k: Kernel, form: Form, stored: Collection[str], taken: Collection[str]) -> Kernel:
    """The kernel ``k`` in tiled form; ``stored``: what it stores, ``taken``: the names of the program."""
    return _Emitter(program, form, frozenset(stored), taken).kernel(k)


def tile_of(steps: int) -> int:
    """The elements of the tile of a row."""
    return ceil_pow2(steps) if steps <= ALIGNED else -(-steps // ALIGNED) * ALIGNED


@dataclass(frozen=True, slots=True)
class _Axis:
    """A loop over rows as blocks of ``tile`` rows each."""

    loop: Loop
    block: Loop
    tile: int

    @property
    def position(self) -> Expr:
        if self.tile == 1:
            return Var(self.block.var)
        return calc("add", calc("mul", Var(self.block.var), self.tile), Var(self.loop.var))


class _Emitter:
    def __init__(self, program: Program, form: Form, stored: frozenset[str], taken: Collection[str]) -> None:
        self.program, self.form, self.stored = program, form, stored
        self.steps = extent(form.step) or 0
        self.tile = tile_of(self.steps)
        names = {x.var for x in (*form.shared, form.step)}
        self.rows = [self.row(x, x is form.shared[-1], names) for x in form.shared]
        known = {*taken, *names, *(x.block.var for x in self.rows)}
        self.stores = [s for _, s in statements(form.step.body) if isinstance(s, Store)]
        self.locals = {s.buffer: unused(f"{s.buffer}__row", known) for s in self.stores}
        self.written = {s.buffer: s.index for s in self.stores}
        states = coupled_states(form) if states_apart(form) is None else None
        rows = () if states is None else states.rows
        self.rows_of = {r.store.buffer: n for n, r in enumerate(rows) if r.store is not None}
        self.states = {s.buffer for s in self.stores if any(ld.buffer == s.buffer for ld in loads(s.value))}
        read = {ld.buffer for s in self.stores for ld in loads(s.value)}
        self.held = [s for s in self.stores if s.buffer in read or s.buffer in self.rows_of]
        at: Expr = Var(form.step.var)
        self.env: dict[str, Expr] = {x.loop.var: x.position for x in self.rows}
        self.env[form.step.var] = calc("sub", integer(self.steps - 1), at) if form.reverse else at
        self.inside = None if self.tile == self.steps else calc("lt", at, self.steps)
        self.tile_of_states = None if states is None else self.state_tile(states, known)

    def row(self, loop: Loop, last: bool, names: Collection[str]) -> _Axis:
        """The blocks of the rows of ``loop``; the last one has several rows of a block where rows are short."""
        count = extent(loop)
        tile = 1
        if last and count is not None and self.tile < TILE:
            tile = gcd(count, floor_pow2(TILE // self.tile))
        name = unused(f"{loop.var}0", names) if tile > 1 else loop.var
        hi = loop.hi if count is None or tile == 1 else integer(count // tile)
        return _Axis(loop, replace(loop, var=name, hi=hi, kind=Kind.GRID, body=()), tile)

    def state_tile(self, states: CoupledStates, known: Collection[str]) -> StateTile:
        """The tile of states that need each other."""
        step = self.form.step
        name, axis = unused("states__row", {*known, *self.locals.values()}), unused(f"{step.var}_state", known)
        return StateTile(name, states, self.axes(), axis, self.form.reverse, self.inside, self.put, step.span)

    def kernel(self, k: Kernel) -> Kernel:
        tile = self.tile_of_states
        body: tuple[Stmt, ...] = () if tile is None else (tile.scan(),)
        body += tuple(x for s in self.stores if s.buffer in self.rows_of for x in self.computed(s))
        body += tuple(x for s in self.stores if s.buffer not in self.rows_of for x in self.computed(s))
        shape = tuple(n for _, n in self.axes())
        locals_ = tuple(
            Buffer(self.locals[s.buffer], self.program.buffer(s.buffer).dtype, shape, Space.LOCAL, s.span)
            for s in self.held
        )
        if tile is not None:
            locals_ += (Buffer(tile.name, tile.of.dtype, tile.shape, Space.LOCAL, tile.span),)
        return Kernel(k.name, locals_, nest([x.block for x in self.rows], body), k.span)

    def axes(self) -> list[tuple[str, int]]:
        """The axes of a tile."""
        return [(x.loop.var, x.tile) for x in self.rows if x.tile > 1] + [(self.form.step.var, self.tile)]

    def here(self) -> tuple[Expr, ...]:
        return tuple(Var(name) for name, _ in self.axes())

    def computed(self, s: Store) -> list[Stmt]:
        """The nests of one store of a step: in a local, if the step reads it, and in memory."""
        held, scanned = s in self.held, s.buffer in self.states
        target, index = (self.locals[s.buffer], self.here()) if held else (s.buffer, self.place(s))
        if self.tile_of_states is not None and s.buffer in self.rows_of:
            out = list(self.tile_of_states.taken(self.rows_of[s.buffer], target))
        else:
            out = [self.tiled(Store(target, index, self.put(s.value), self.inside, s.span), scanned)]
        if held and s.buffer in self.stored:
            value: Expr = Load(target, index, self.program.buffer(s.buffer).dtype, s.span)
            if value.dtype is not value.dtype.compute:
                value = Op("cast", (value,), value.dtype.compute, s.span)
            out.append(self.tiled(Store(s.buffer, self.place(s), value, self.inside, s.span), False))
        return out

    def tiled(self, s: Store, scanned: bool) -> Stmt:
        axes = self.axes()
        steps = Kind.TILE_DOWN if self.form.reverse else Kind.TILE_SEQ
        kinds = [Kind.TILE] * (len(axes) - 1) + [steps if scanned else Kind.TILE]
        loops = [
            Loop(n, integer(0), integer(size), kind, (), s.span) for (n, size), kind in zip(axes, kinds, strict=True)
        ]
        (whole,) = nest(loops, (s,))
        return whole

    def place(self, s: Store) -> tuple[Expr, ...]:
        return tuple(simplify(substitute(e, self.env)) for e in s.index)

    def put(self, e: Expr) -> Expr:
        """``e`` with locals in place of tensors of the recurrence, at the positions of the tile."""
        before = calc("add" if self.form.reverse else "sub", Var(self.form.step.var), 1)
        moved: dict[Expr, Expr] = {}
        for ld in loads(e):
            if ld.buffer in self.written:
                back = steps_back(self.form, self.written, ld)
                at = (*self.here()[:-1], before) if back else self.here()
                moved[substitute(ld, self.env)] = Load(self.locals[ld.buffer], at, ld.dtype, ld.span)
        made = rewrite(substitute(e, self.env), moved.get)
        return simplify(made, {self.form.step.var: (0, self.steps - 1)})
