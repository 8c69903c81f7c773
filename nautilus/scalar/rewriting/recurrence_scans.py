"""The kernel of a recurrence whose steps are a scan, in tiled form (``tile-recurrences``).

A block has a tile of steps (:mod:`nautilus.scalar.analysis.states.scan_tile`), and every tensor of the recurrence is a
local of such a tile::

    tile t { tile.seq: h[t] = a(t) * h[t - 1] + b(t) }         a scan
    tile t { y[t] = f(h[t], x[t]) }                            what else a step computes

Where there are more steps than those of a tile, a block has one tile after another, and each state has a local for its
value after the tile before, which is 0 before the first one::

    seq n { tile.seq: h[t] = a(t) * (h[t - 1] if t > 0 else carry) + b(t);  ..;  carry = sum[t | t == last](h[t]) }

A running extreme that other statements read at the step before has that as a scan, from which it follows::

    tile t { r[t] = x(t) };  tile t { e[t] = carry };  tile t, tile.red u { e[t] max= r[u] where u < t }
    tile t { m[t] = max(e[t], r[t]) }

States that need each other are one scan (:mod:`.recurrence_states`).

The axis of the tile numbers positions in memory, so that steps from the last position on are a scan from there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import gcd

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer, number
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Expr, Load, Op, Var, free_vars, identity, loads, rewrite, substitute
from nautilus.core.index.simplify import FALSE, simplify
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.core.tiles import floor_pow2
from nautilus.scalar.analysis.states.coupled_states import CoupledStates, coupled_states, read_before, states_apart
from nautilus.scalar.analysis.states.extreme_states import left_out
from nautilus.scalar.analysis.states.linear_states import (
    State,
    after_first,
    linear_part,
    other_part,
    steps_back,
    without_terms,
    without_zeros,
)
from nautilus.scalar.analysis.states.recurrences import Form, form_of
from nautilus.scalar.analysis.states.scan_tile import scan_tile
from nautilus.scalar.ir import Kernel, Kind, Loop, Program, Stmt, Store, Update, extent, statements
from nautilus.scalar.rewriting import nest
from nautilus.scalar.rewriting.recurrence_states import Carry, StateTile

TILE = 2048  # elements of the tile of a block that has several short rows


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


def scan_kernel(
    program: Program, k: Kernel, form: Form, stored: Collection[str], taken: Collection[str], steps: int | None = None
) -> Kernel:  # fmt: skip
    """The kernel ``k`` in tiled form; ``stored``: what it stores, ``taken``: the names of the program.

    ``steps``: those of a tile, in place of as many as the rule says (for tests).
    """
    return _Emitter(program, form, frozenset(stored), taken, steps).kernel(k)


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

    @property
    def inside(self) -> Expr | None:
        """Where a row exists; None where all rows of all blocks do."""
        count = extent(self.loop)
        return None if count is None or count % self.tile == 0 else calc("lt", self.position, count)


class _Emitter:
    def __init__(
        self, program: Program, form: Form, stored: frozenset[str], taken: Collection[str], steps: int | None
    ) -> None:  # fmt: skip
        self.program, self.form, self.stored = program, form, stored
        self.steps = extent(form.step) or 0
        shape = scan_tile(program, form, steps)
        assert shape is not None, "scans are made of recurrences that have such tiles"
        self.shape, self.tile = shape, shape.steps
        names = {x.var for x in (*form.shared, form.step)}
        self.rows = [self.row(x, x is form.shared[-1], names) for x in form.shared]
        known = {*taken, *names, *(x.block.var for x in self.rows)}
        self.turn = unused(f"{form.step.var}0", known)
        known.add(self.turn)
        self.stores = [s for _, s in statements(form.step.body) if isinstance(s, Store)]
        self.locals = {s.buffer: unused(f"{s.buffer}__row", known) for s in self.stores}
        self.carries = {s.buffer: unused(f"{s.buffer}__carry", known) for s in self.stores}
        self.written = {s.buffer: s.index for s in self.stores}
        states = coupled_states(form) if states_apart(form) is None else None
        rows = () if states is None else states.rows
        self.rows_of = {r.store.buffer: n for n, r in enumerate(rows) if r.store is not None}
        self.states = {s.buffer for s in self.stores if any(ld.buffer == s.buffer for ld in loads(s.value))}
        read = {ld.buffer for s in self.stores for ld in loads(s.value)}
        self.extremes = {x.name: x for x in (states_apart(form) or ()) if x.is_extreme}
        self.held = [s for s in self.stores if s.buffer in read or s.buffer in self.rows_of]
        self.earlier = {
            n: (unused(f"{n}__own", known), unused(f"{n}__before", known))
            for n in self.extremes
            if n in read_before(form)
        }
        self.env: dict[str, Expr] = {x.loop.var: x.position for x in self.rows}
        self.env[form.step.var] = self.step()
        after = None if self.shape.count * self.tile == self.steps else self.within()
        self.inside = conjunction((after, *(x.inside for x in self.rows)))
        self.tile_of_states = None if states is None else self.state_tile(states, known)

    @property
    def repeats(self) -> bool:
        """Whether a block has one tile after another."""
        return self.shape.count > 1

    def step(self) -> Expr:
        """The number of the step at a position of the tile."""
        at: Expr = Var(self.form.step.var)
        if not self.repeats:
            return calc("sub", integer(self.steps - 1), at) if self.form.reverse else at
        at = calc("sub", integer(self.tile - 1), at) if self.form.reverse else at
        return calc("add", calc("mul", Var(self.turn), self.tile), at)

    def within(self) -> Expr:
        """Where a position of the tile is that of a step."""
        return calc("lt", self.step() if self.repeats else Var(self.form.step.var), self.steps)

    def follows(self) -> Expr:
        """Where the step before is in the same tile."""
        at = Var(self.form.step.var)
        return calc("lt", at, self.tile - 1) if self.form.reverse else calc("ge", at, 1)

    def row(self, loop: Loop, last: bool, names: Collection[str]) -> _Axis:
        """The blocks of the rows of ``loop``: several columns, or several rows of the last loop if they are short."""
        count = extent(loop)
        tile = 1
        if self.shape.across is not None:
            tile = self.shape.columns if loop is self.shape.across else 1
        elif last and count is not None and self.tile < TILE and not self.repeats:
            tile = gcd(count, floor_pow2(TILE // self.tile))
        name = unused(f"{loop.var}0", names) if tile > 1 else loop.var
        hi = loop.hi if count is None or tile == 1 else integer(-(-count // tile))
        return _Axis(loop, replace(loop, var=name, hi=hi, kind=Kind.GRID, body=()), tile)

    def state_tile(self, states: CoupledStates, known: Collection[str]) -> StateTile:
        """The tile of states that need each other."""
        step = self.form.step
        name, axis = unused("states__row", {*known, *self.locals.values()}), unused(f"{step.var}_state", known)
        count = len(states.columns) if self.repeats else 0
        carries = tuple(unused(f"states__carry{n}", known) for n in range(count))
        later = calc("ge", Var(self.turn), 1)
        return StateTile(
            name, states, self.axes(), axis, self.form.reverse, self.inside, self.put, step.span, carries, later
        )  # fmt: skip

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
        both = ((s, name) for s in self.held for name in self.earlier.get(s.buffer, ()))
        locals_ += tuple(Buffer(x, self.program.buffer(s.buffer).dtype, shape, Space.LOCAL, s.span) for s, x in both)
        if tile is not None:
            locals_ += (Buffer(tile.name, tile.of.dtype, tile.shape, Space.LOCAL, tile.span),)
        if self.repeats:
            carries = self.carried() if tile is None else tile.carried()
            before = tuple(x for c in carries for x in c.start(c.first))
            after = tuple(x for c in carries for x in c.end())
            turns = Loop(self.turn, integer(0), integer(self.shape.count), Kind.SEQ, (*body, *after), k.span)
            body = (*before, turns)
            locals_ += tuple(c.local for c in carries)
        return Kernel(k.name, locals_, nest([x.block for x in self.rows], body), k.span)

    def carried(self) -> list[Carry]:
        """The values of the states after a tile."""
        last = 0 if self.form.reverse else self.tile - 1
        out = []
        for s in self.stores:
            if s.buffer in self.states:
                dtype = self.program.buffer(s.buffer).dtype
                value = Load(self.locals[s.buffer], self.here(), dtype, s.span)
                extreme = self.extremes.get(s.buffer)
                first = number(0, dtype) if extreme is None else identity(extreme.joins, dtype)
                out.append(Carry(self.carries[s.buffer], value, self.axes(), last, first=first))
        return out

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
            extreme = self.extremes.get(s.buffer)
            plain = extreme is not None or (scanned and self.repeats and not self.forgets(s))
            value = self.put(s.value) if not plain else self.stepped(s) if extreme is None else self.further(extreme)
            guard = self.inside if extreme is None else None
            if held and self.repeats:  # a local that keeps elements of the tile before would be another register
                value, guard = value if plain else self.shown(value), None
            if s.buffer in self.earlier:
                assert extreme is not None
                out = self.after_earlier(extreme, target)
            else:
                out = [self.tiled(Store(target, index, value, guard, s.span), scanned)]
        if held and s.buffer in self.stored:
            value = Load(target, index, self.program.buffer(s.buffer).dtype, s.span)
            if value.dtype is not value.dtype.compute:
                value = Op("cast", (value,), value.dtype.compute, s.span)
            out.append(self.tiled(Store(s.buffer, self.place(s), value, self.inside, s.span), False))
        return out

    def before(self, s: Store) -> Load:
        """The state of ``s`` after the step before."""
        (found,) = {ld for ld in loads(s.value) if ld.buffer == s.buffer}
        return found

    def forgets(self, s: Store) -> bool:
        """Whether a step after the first one may leave out the state of ``s`` by a condition."""
        found = left_out(s.value, self.before(s)) if s.value.dtype.is_float else None
        return found is not None and simplify(found, {self.form.step.var: (1, self.steps - 1)}) != FALSE

    def stepped(self, s: Store) -> Expr:
        """The value of a state, as a factor of the state before and what does not depend on it.

        No state is before the first step, so that its factor may be any number.
        """
        before, dtype = self.before(s), s.value.dtype
        factor = linear_part(s.value, before, number(1, dtype))
        rest = other_part(s.value, before)
        assert factor is not None, "the states of a scan are linear"
        factor, state = after_first(factor, {self.form.step.var: (1, self.steps - 1)}), self.put(before)
        rest = None if rest is None else without_terms(rest, factor)
        moved = state if factor == number(1, dtype) else Op("mul", (self.shown(self.put(factor)), state), dtype)
        if rest is None or rest == number(0, dtype):
            return moved
        return Op("add", (moved, self.shown(self.put(rest))), dtype)

    def further(self, x: State) -> Expr:
        """The value of a running extreme: that before it, and what does not depend on it; the identity elsewhere."""
        none, before = identity(x.joins, x.value.dtype), self.put(x.before)
        before = before if self.repeats else calc("select", self.follows(), before, none)
        rest = self.put(without_zeros(x.rest))
        rest = rest if self.inside is None else calc("select", self.inside, rest, none)
        return Op(x.joins, (before, rest), x.value.dtype)

    def after_earlier(self, x: State, target: str) -> list[Stmt]:
        """The running extreme ``x`` in ``target``, and its values at the step before (module docstring)."""
        name, axis, span, dtype = x.name, self.form.step.var, x.store.span, x.value.dtype
        (own, before), here = self.earlier[name], self.here()
        none, rest = identity(x.joins, dtype), self.put(without_zeros(x.rest))
        rest = rest if self.inside is None else calc("select", self.inside, rest, none)
        first: Expr = Load(self.carries[name], here[:-1], dtype, span) if self.repeats else none
        u = unused(f"{axis}_before", {n for n, _ in self.axes()})
        ordered = calc("lt", *((Var(axis), Var(u)) if self.form.reverse else (Var(u), Var(axis))))
        op = "max" if x.joins == "max" else "min"
        scan = Update(before, op, here, Load(own, (*here[:-1], Var(u)), dtype, span), ordered, span)
        over = Loop(u, integer(0), integer(self.tile), Kind.TILE_RED, (scan,), span)
        both = Op(x.joins, tuple(Load(n, here, dtype, span) for n in (before, own)), dtype)
        made: list[Stmt] = [Store(own, here, rest, None, span), Store(before, here, first, None, span), over]
        return [self.tiled(s, False) for s in (*made, Store(target, here, both, None, span))]

    def shown(self, e: Expr) -> Expr:
        """``e`` where a position of the tile is that of a step; 0 elsewhere."""
        if self.inside is None or not (free_vars(e) or loads(e)):
            return e
        return calc("select", self.inside, e, number(0, e.dtype))

    def tiled(self, s: Stmt, scanned: bool) -> Stmt:
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
                if back and ld.buffer in self.earlier:
                    moved[substitute(ld, self.env)] = Load(self.earlier[ld.buffer][1], self.here(), ld.dtype, ld.span)
                    continue
                at = (*self.here()[:-1], before) if back else self.here()
                state: Expr = Load(self.locals[ld.buffer], at, ld.dtype, ld.span)
                if back and self.repeats:
                    carry = Load(self.carries[ld.buffer], self.here()[:-1], ld.dtype, ld.span)
                    state = calc("select", self.follows(), state, carry)
                moved[substitute(ld, self.env)] = state
        made = rewrite(substitute(e, self.env), moved.get)
        last = self.tile if self.repeats else self.steps
        return simplify(made, {self.form.step.var: (0, last - 1)})
