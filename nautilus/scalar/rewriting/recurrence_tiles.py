"""The kernel of a recurrence whose tensors stay on chip (``tile-recurrences``).

Every tensor of the recurrence is a local tile over its own axes (:mod:`nautilus.scalar.rewriting.recurrence_reads`).
A read of an earlier step is a read of a second local, which every step replaces at its end::

    h__1[i] = 0
    seq t { h__now[i] = f(h__1[i], x[t, i]);  h[t, i] = h__now[i];  h__1[i] = h__now[i] }

``X__now`` has the values of this step and ``X__k`` those of k steps before; before the first step they are 0, which
nothing uses, because every such read is guarded.  Only outputs, what other kernels read, and what a nest reads at the
positions of other threads go to memory.

A reduction has one tile, over its own axes and what it reduces, where that has at most :data:`TERMS` elements in all
reductions of a step together.  Otherwise its last axis is cut into tiles, in a loop that reductions over the same
axes share.  The loop combines tile by tile, element by element, and after it what is in the last tile is combined.
Products of matrices (:mod:`nautilus.scalar.analysis.states.step_products`) have whole tiles, with their lanes.

Where that is faster, the block is spread over the blocks of a cluster (:func:`_spread`): all reductions then have whole
tiles, so that what they read in each step, such as the matrices of a gated recurrence, stays in registers.  The blocks
exchange states in memory, and wait for each other in each step.
:func:`on_chip` gives None where the tile of a nest has more than :data:`ELEMENTS` elements.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import short_circuit
from nautilus.core.expr.nodes import Expr, Load, Op, Var, free_vars, identity, loads, rewrite, substitute
from nautilus.core.index.sizes import as_extent, at_most, blocks, extent_expr, nominal
from nautilus.core.text.names import unused
from nautilus.core.tiles import ceil_pow2, floor_pow2
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.states.step_products import StepProducts
from nautilus.scalar.ir import Kernel, Kind, Loop, Stmt, Store, Update
from nautilus.scalar.rewriting import nest
from nautilus.scalar.rewriting.recurrence_reads import (
    Lanes,
    Placement,
    Slice,
    Steps,
    lanes_of,
    placement,
    with_first_values,
    without_constant_axes,
)
from nautilus.scalar.rewriting.states.elements import as_elements

ELEMENTS = 4096  # elements of the tile of a nest
TERMS = 16384  # elements of the tiles of all reductions of a step: 32 registers of each of 512 threads
FEW = 32  # elements of a tile that leave most of a block without work
HELD = 36864  # terms of the reductions of a step for each block of a cluster: 72 registers of each of 512 threads
WARPS = 64  # that share the rows of a tile in a cluster
_SPREADS = (2, 4, 8)
#: Microseconds of a step in a cluster, and of each time in it that its blocks wait for each other and read memory;
#: on an H200 1.0 to 1.9 for a step that waits once, and 2.9 to 3.1 for one that waits twice.
_SPREAD_STEP, _EXCHANGE = 0.7, 1.2
#: Microseconds of a tile of a sum that is cut, and bytes that a block loads from the L2 cache in a microsecond.
_TILE, _LOADED = 0.25, 1.1e5
_BLOCKS = 1024  # a tile of lanes is wider where this many blocks remain
_LANES = (128, 64, 32)


def on_chip(
    name: str, steps: Steps, stored: Collection[str], taken: Collection[str] = (), products: StepProducts | None = None,
    clusters: int = 0, elements: bool = False,
) -> tuple[Kernel, tuple[Buffer, ...]] | None:  # fmt: skip
    """The kernel of ``steps`` in tiled form and the tensors that it stores, of which ``stored`` are read elsewhere.

    ``products``: those that the sums of a step are.  ``taken``: the names of the program, which no local has.
    ``clusters``: the multiprocessors that clusters of blocks run on; 0: there are none.  ``elements``: those of small
    states that nests would exchange in memory are numbers (:mod:`nautilus.scalar.rewriting.states.elements`).
    """
    every, steps = steps, without_constant_axes(steps, stored, taken)
    first: Mapping[str, Expr] = {}
    if products is not None:
        steps, first = with_first_values(steps)
    if any(not isinstance(a.extent, int) for d in steps.defs for a in steps.own(d)):
        return None
    apart = _spread(steps, clusters)[0] if products is None and clusters else 1
    whole = products is not None or apart > 1
    terms = dict.fromkeys((d.name for d in steps.defs), 0) if whole else _terms(steps)
    alone = {a.name for d in steps.defs for a in d.red[-1:] if terms[d.name]}
    alone |= {a.name for d in steps.defs for a in d.red if apart > 1}
    where = placement(steps, alone)
    memory = frozenset(steps.names[ld.buffer] for _, ld in where.memory)
    if memory and elements and products is None and (single := as_elements(every, taken)) is not None:
        return on_chip(name, single, {d.name for d in single.defs if d.buffer.name in stored}, taken)
    size = max(_size(steps, replace(d, red=())) for d in steps.defs)
    if products is not None:
        lanes = None if memory else lanes_of(steps, products.lanes.var, products.tile)
        if lanes is None:
            return None
    else:
        lanes = _lanes(steps, max(_size(steps, d) for d in steps.defs)) if not memory else None
        if size * (1 if lanes is None else lanes.tile) > ELEMENTS:
            return None
    kept = frozenset(stored) | memory
    unit = FEW if apart == 1 else WARPS
    kernel = Emitter(steps, where, lanes, kept, terms, taken, first, unit).kernel(name)
    kernel = replace(kernel, spread=apart)
    return kernel, tuple({d.buffer.name: d.buffer for d in steps.defs if d.name in kept}.values())


def _size(steps: Steps, d: Def) -> int:
    """The elements of the tile of the nest of ``d`` in one step."""
    return prod(padded(at_most(a.extent)) for a in steps.own(d))


def _terms(steps: Steps) -> dict[str, int]:
    """For each definition, the size of the tiles that its last reduced axis is cut into; 0 where it is whole."""
    sizes = {d.name: _size(steps, d) for d in steps.defs if d.red}
    out = dict.fromkeys((d.name for d in steps.defs), 0)
    if sum(sizes.values()) <= TERMS:
        return out
    each = TERMS // len(sizes)
    for d in steps.defs:
        if d.red and sizes[d.name] > min(each, ELEMENTS):
            rest = max(1, min(each, ELEMENTS) // _size(steps, replace(d, red=())))
            out[d.name] = min(floor_pow2(rest), ceil_pow2(at_most(d.red[-1].extent)))
    return out


def step_time(steps: Steps, stored: Collection[str], taken: Collection[str], processors: int, clusters: bool) -> float:
    """The predicted microseconds of a step in the form that :func:`on_chip` gives; ``clusters``: there are some."""
    return _spread(without_constant_axes(steps, stored, taken), processors, clusters)[1]


def _spread(steps: Steps, multiprocessors: int, clusters: bool = True) -> tuple[int, float]:
    """Over how many blocks of a cluster a block is spread, for the fewest waves; 1 where one block is faster.

    Also the microseconds of a step.
    """
    sizes = {d.name: _size(steps, d) for d in steps.defs if d.red}
    total, terms = sum(sizes.values()), _terms(steps)
    positions = prod(nominal(as_extent(loop.hi)) for loop in steps.shared)
    sums: dict[str, int] = {}  # how many reductions follow each other in a step until a definition is known
    tiles: dict[tuple[object, ...], int] = {}  # of the loops of sums that are cut, which those of one kind share
    loaded = 0
    for d in steps.defs:
        earlier = (sums.get(steps.names[ld.buffer], 0) for ld in steps.reads(d) if not steps.back(ld))
        sums[d.name] = max(earlier, default=0) + bool(d.red)
        if terms[d.name]:
            extents = tuple(at_most(a.extent) for a in d.red)
            tiles[sums[d.name], terms[d.name], extents] = prod(extents) // terms[d.name]
            width = max((ld.dtype.bytes for ld in d.reads() if ld.buffer not in steps.names), default=0)
            loaded += sizes[d.name] * width
    alone = _TILE * sum(tiles.values()) + loaded / _LOADED
    spread = _SPREAD_STEP + _EXCHANGE * max(sums.values(), default=0)

    def time(n: int) -> float:
        return -(-positions * n // multiprocessors) * (spread if n > 1 else alone)

    fitting = [n for n in _SPREADS if clusters and total <= HELD * n]
    best = min(fitting, key=lambda n: (time(n), -n), default=1)
    return (best, time(best)) if total > TERMS and time(best) < time(1) else (1, time(1))


# -- lanes ----------------------------------------------------------------------------------------


def _lanes(steps: Steps, largest: int) -> Lanes | None:
    """The independent axis that has lanes where tiles are small: one that is contiguous in memory, or the longest."""
    if largest >= FEW:
        return None
    extents = {loop.var: nominal(as_extent(loop.hi)) for loop in steps.shared}
    extents = {name: n for name, n in extents.items() if n > 1}
    if not extents:
        return None
    ends = [d.index[-1] for d in steps.defs] + [ld.index[-1] for d in steps.defs for ld in d.reads() if ld.index]
    best = max(extents, key=lambda v: (min(extents[v], _LANES[-1]), ends.count(Var(v)), extents[v]))
    count = prod(extents.values())
    tile = next((n for n in _LANES if count >= n * _BLOCKS), _LANES[-1])
    return lanes_of(steps, best, min(tile, ceil_pow2(extents[best])))


# -- statements -----------------------------------------------------------------------------------


class Emitter:
    """Emits the statements of a step.

    ``terms``: the tiles of reductions (:func:`_terms`).  ``first``: what tensors are before the first step, else 0.
    ``unit``: of which the sizes of longer tiles are multiples.  ``cuts``: the slices of own axes that a block has, all
    of one loop.
    """

    def __init__(
        self, steps: Steps, where: Placement, lanes: Lanes | None, stored: frozenset[str], terms: Mapping[str, int],
        taken: Collection[str], first: Mapping[str, Expr], unit: int = FEW, cuts: Sequence[Slice] = (),
    ) -> None:  # fmt: skip
        self.steps, self.where, self.lanes, self.stored, self.terms = steps, where, lanes, stored, terms
        self.before_first, self.unit, self.cuts = first, unit, cuts
        held = [ld for d in steps.defs for ld in steps.reads(d) if (d.name, ld) not in where.memory]
        self.depths: dict[str, int] = {}
        for ld in held:
            name = steps.names[ld.buffer]
            self.depths[name] = max(self.depths.get(name, 0), steps.back(ld))
        self.taken = {*where.names.values(), *steps.outer}
        self.taken |= set() if lanes is None else {lanes.block_name, lanes.wave_name}
        self.known = {*taken, *steps.made}  # names of buffers
        self.locals: dict[str, str] = {}
        self.parts: list[Buffer] = []
        self.extents = {where.names[a.name]: at_most(a.extent) for d in steps.defs for a in steps.own(d)}
        self.env: dict[str, Expr] = {old: Var(new) for old, new in where.names.items()}
        if lanes is not None:
            self.env[lanes.loop.var] = lanes.position
        for cut in cuts:
            self.extents[cut.name] = cut.tile
            self.env |= {old: cut.position for old, new in where.names.items() if new == cut.name}

    def kernel(self, name: str) -> Kernel:
        """The kernel of all steps."""
        steps = self.steps
        first = [s for d in steps.defs for n in range(self.depth(d)) for s in self.zero(d, n + 1)]
        body = [s for group in self.groups() for s in self.computed(group)]
        body += [s for d in steps.defs for s in self.shifted(d)]
        loop = replace(steps.step, kind=Kind.SEQ, body=tuple(body))
        grid = [self.lanes.block if self.lanes and x is self.lanes.loop else x for x in steps.shared]
        grid += [cut.block for cut in self.cuts[:1]]
        waves = () if self.lanes is None else self.lanes.waves
        whole = nest((*(replace(x, kind=Kind.GRID) for x in grid), *waves), (*first, loop))
        locals_ = [self.buffer(d, n) for d in steps.defs for n in range(self.depth(d) + 1) if n or not self.direct(d)]
        return Kernel(name, (*locals_, *self.parts), whole, steps.defs[-1].span)

    def depth(self, d: Def) -> int:
        """How many earlier steps of ``d`` are kept."""
        return self.depths.get(d.name, 0)

    def direct(self, d: Def) -> bool:
        """Whether ``d`` goes straight to memory, because no nest reads a local of it."""
        return d.op is None and d.name not in self.depths and d.name in self.stored

    def axes(self, d: Def) -> list[tuple[str, int]]:
        """The axes of the local tiles of ``d``."""
        lanes = [] if self.lanes is None else [(self.lanes.loop.var, self.lanes.tile)]
        own = [e.name for n in self.steps.places(d) if isinstance(e := d.index[n], Var)]
        return lanes + [(name, padded(self.extents[name], self.unit)) for name in (self.where.names[n] for n in own)]

    def buffer(self, d: Def, back: int) -> Buffer:
        """The local with the elements of ``d`` from ``back`` steps before."""
        shape = tuple(n for _, n in self.axes(d))
        return Buffer(self.local(d.name, back), d.buffer.dtype, shape, Space.LOCAL, d.span)

    def groups(self) -> list[list[Def]]:
        """The definitions in an order of one step: reductions that are cut alike side by side, in one group."""
        steps, left, done = self.steps, list(self.steps.defs), set[str]()
        out: list[list[Def]] = []
        while left:
            first, *left = left
            group = [first]
            done_before = frozenset(done)
            group += [d for d in left if self.cut_alike(first, d) and steps.ready(d, done_before)]
            left = [d for d in left if d not in group]
            done |= {d.name for d in group}
            out.append(group)
        return out

    def cut_alike(self, a: Def, b: Def) -> bool:
        """Whether the last axes of both are cut into tiles, and the reductions may share one loop."""
        names = {self.where.names[x.name] for x in self.steps.own(b)} - {self.where.names[x.name] for x in b.red}
        extents = [x.extent for x in a.red] == [x.extent for x in b.red]
        free = names.isdisjoint(self.where.names[x.name] for x in a.red)
        return bool(self.terms[a.name]) and self.terms[a.name] == self.terms[b.name] and extents and free

    # -- nests ------------------------------------------------------------------------------------
    def computed(self, group: Sequence[Def]) -> Sequence[Stmt]:
        """The nests of ``group``, one definition or reductions that share a loop, and their stores to memory."""
        out: list[Stmt] = []
        if group[0].op is None:
            (d,) = group
            target = d.buffer.name if self.direct(d) else self.local(d.name, 0)
            index = self.place(d) if self.direct(d) else self.at(d)
            guard = self.guarded(d, self.condition(d))
            guard = both(self.stores(d), guard) if self.direct(d) else guard
            out += self.tiled(d, Store(target, index, self.put(d, d.value), guard, d.span))
        else:
            out += [s for d in group for s in self.tiled(d, Store(*self.target(d), d.init(), None, d.span))]
            out += self.reduced(group)
        stored = [d for d in group if d.name in self.stored and not self.direct(d)]
        for d in stored:
            guard = both(self.stores(d), self.guarded(d, self.condition(d) if d.op is None else None))
            out += self.tiled(d, Store(d.buffer.name, self.place(d), self.whole(d, 0), guard, d.span))
        return out

    def stores(self, d: Def) -> Expr | None:
        """The condition under which a block stores the tensor of ``d``; None: always."""
        return None

    def reduced(self, group: Sequence[Def]) -> Sequence[Stmt]:
        """The updates of reductions: one of its own, or several in a loop over tiles of their last axis."""
        (first, *_), tile = group, self.terms[group[0].name]
        names = self.where.names
        axes = [(names[a.name], at_most(a.extent)) for a in first.red]
        if not tile:
            whole = [(n, padded(size)) for n, size in axes]
            return self.combined(first, self.put(first, first.value), self.condition(first), whole)
        (*outer, (name, extent)), last = axes, first.red[-1]
        block = Loop(unused(f"{name}0", self.taken), integer(0), extent_expr(blocks(extent, tile)), Kind.SEQ, ())
        self.taken.add(block.var)
        at = calc("add", calc("mul", Var(block.var), tile), Var(name))
        bound = None if extent % tile == 0 else calc("lt", at, integer(extent))
        guards = {_invariant(d, self.steps) for d in group}
        always = guards.pop() if len(guards) == 1 else None
        if always is not None:  # a condition of the whole loop
            block = replace(block, hi=calc("select", always, block.hi, integer(0)))
        before, inside, after = list[Stmt](), list[Stmt](), list[Stmt]()
        for d in group:
            env: dict[str, Expr] = {names[a.name]: Var(n) for a, (n, _) in zip(d.red, axes, strict=True)}
            env[names[d.red[-1].name]] = at
            shape = (*(n for _, n in self.axes(d)), tile)
            part = Buffer(self.unique(f"{d.name}__part"), d.buffer.dtype, shape, Space.LOCAL, d.span)
            self.parts.append(part)
            place = (*self.at(d), Var(name))
            assert d.op is not None
            guard = None if always is not None else self.condition(d)
            guard = both(bound, None if guard is None else substitute(guard, env))
            value = substitute(self.put(d, d.value), env)
            init = Store(part.name, place, d.init(), None, d.span)
            update = Update(part.name, d.op, place, value, self.guarded(d, guard), d.span)
            tiles = Loop(name, integer(0), integer(tile), Kind.TILE, (), last.span)
            before += self.tiled(d, replace(tiles, body=(init,)))
            inside += self.tiled(d, replace(tiles, body=(update,)))
            after += self.combined(d, Load(part.name, place, d.buffer.dtype, d.span), None, [(name, tile)], False)
        loops = [Loop(n, integer(0), integer(size), Kind.SEQ, ()) for n, size in outer]
        return [*before, *nest((*loops, block), tuple(inside)), *after]

    def combined(
        self, d: Def, value: Expr, guard: Expr | None, axes: Sequence[tuple[str, int]], ragged: bool = True
    ) -> Sequence[Stmt]:
        """The nest that combines ``value`` over ``axes``; ``ragged``: inside of their extents."""
        target, index = self.target(d)
        assert d.op is not None
        inside = self.guarded(d, guard, [n for n, _ in axes] if ragged else ())
        inner: tuple[Stmt, ...] = (Update(target, d.op, index, value, inside, d.span),)
        for name, size in reversed(axes):
            inner = (Loop(name, integer(0), integer(size), Kind.TILE_RED, inner, d.span),)
        return self.tiled(d, *inner)

    def condition(self, d: Def) -> Expr | None:
        """The condition of the terms of ``d``."""
        return None if d.guard is None else self.put(d, d.guard)

    def shifted(self, d: Def) -> Sequence[Stmt]:
        """The statements by which the step becomes an earlier one, the oldest first."""
        out: list[Stmt] = []
        for n in range(self.depth(d), 0, -1):
            store = Store(self.local(d.name, n), self.at(d), self.whole(d, n - 1), self.guarded(d), d.span)
            out += self.tiled(d, store)
        return out

    def zero(self, d: Def, back: int) -> Sequence[Stmt]:
        """The statements that set ``d`` before the first step."""
        compute = d.buffer.dtype.compute
        value: Expr = identity("any" if compute is DType.BOOL else "sum", compute)
        if d.name in self.before_first:
            value = self.put(d, self.before_first[d.name])
        return self.tiled(d, Store(self.local(d.name, back), self.at(d), value, None, d.span))

    # -- parts of statements ----------------------------------------------------------------------
    def local(self, name: str, back: int) -> str:
        """The local with the values of tensor ``name`` from ``back`` steps before."""
        return self.unique(f"{name}__{back}" if back else f"{name}__now")

    def unique(self, wanted: str) -> str:
        """The name of the local ``wanted``, which no other buffer has."""
        if wanted not in self.locals:
            self.locals[wanted] = unused(wanted, self.known)
            self.known.add(self.locals[wanted])
        return self.locals[wanted]

    def target(self, d: Def) -> tuple[str, tuple[Expr, ...]]:
        """The local of ``d`` and the place in it."""
        return self.local(d.name, 0), self.at(d)

    def at(self, d: Def) -> tuple[Expr, ...]:
        """The place of an element in the local tiles of ``d``."""
        return tuple(Var(name) for name, _ in self.axes(d))

    def place(self, d: Def) -> tuple[Expr, ...]:
        """The place of an element of ``d`` in memory."""
        return tuple(substitute(e, self.env) for e in d.index)

    def whole(self, d: Def, back: int) -> Expr:
        """The element of ``d`` in the compute type."""
        here = Load(self.local(d.name, back), self.at(d), d.buffer.dtype, d.span)
        compute = d.buffer.dtype.compute
        return here if compute is d.buffer.dtype else Op("cast", (here,), compute, d.span)

    def put(self, d: Def, e: Expr) -> Expr:
        """``e`` of ``d`` with locals in place of tensors of the recurrence, but for those in memory."""
        steps, names = self.steps, self.where.names
        held: dict[str, Expr] = {}  # locals: their index has the names of the kernel already

        def rule(n: Expr) -> Expr | None:
            if not (isinstance(n, Load) and n.buffer in steps.names):
                return None
            source = steps.source(n)
            if (d.name, n) in self.where.memory:
                return Load(source.name, tuple(rewrite(i, rule) for i in n.index), n.dtype, n.span)
            own = [n.index[p] for p in steps.places(source)]
            lanes: list[Expr] = [] if self.lanes is None else [Var(self.lanes.loop.var)]
            index = (*lanes, *(Var(names[v.name]) for v in own if isinstance(v, Var)))
            name = f"%{len(held)}"
            held[name] = Load(self.local(source.name, steps.back(n)), index, n.dtype, n.span)
            return Var(name, n.dtype)

        return substitute(substitute(rewrite(e, rule), self.env), held)

    def guarded(self, d: Def, guard: Expr | None = None, reduced: Sequence[str] = ()) -> Expr | None:
        """``guard`` inside of the extents of the axes of ``d`` and of those in ``reduced``."""
        bounds = [None if self.lanes is None else self.lanes.guard]
        for name, size in (*self.axes(d), *((n, padded(self.extents[n])) for n in reduced)):
            extent = self.extents.get(name)
            if extent is not None and size > extent:
                bounds.append(calc("lt", Var(name), integer(extent)))
        for bound in reversed(bounds):
            guard = both(bound, guard)
        return guard

    def tiled(self, d: Def, *body: Stmt) -> tuple[Stmt, ...]:
        """``body`` in the loops over the local tile of ``d``."""
        for name, size in reversed(self.axes(d)):
            body = (Loop(name, integer(0), integer(size), Kind.TILE, body, d.span),)
        return tuple(body)


def padded(extent: int, unit: int = FEW) -> int:
    """The size of the tile of an axis, which lanes divide: a power of two, or a multiple of ``unit``."""
    return ceil_pow2(extent) if extent < FEW else -(-extent // unit) * unit


def _invariant(d: Def, steps: Steps) -> Expr | None:
    """The condition of all terms of ``d``, where it is one on steps alone."""
    plain = d.guard is not None and not loads(d.guard) and free_vars(d.guard) <= {steps.step.var}
    return d.guard if plain else None


def both(a: Expr | None, b: Expr | None) -> Expr | None:
    """The conjunction of two conditions, of which None always holds."""
    return a or b if a is None or b is None else short_circuit(a, b)
