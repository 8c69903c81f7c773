"""The kernel of a recurrence whose tensors stay on chip (``tile-recurrences``).

Every tensor of the recurrence is a local tile over its own axes, those that are neither independent nor the steps, in
their whole extents.  A read of an earlier step is a read of a second local, which every step replaces at its end::

    h__1[i] = 0
    seq t { h__now[i] = f(h__1[i], x[t, i]);  h[t, i] = h__now[i];  h__1[i] = h__now[i] }

``X__now`` has the values of this step and ``X__k`` those of k steps before; before the first step they are 0, which
nothing uses, because every such read is guarded.  Only outputs, and what other kernels read, go to memory.

Preconditions, where :func:`on_chip` gives None without them:

* a read of a tensor of the recurrence has a plain variable at each own axis, of the extent of the axis;
* these variables have one name for each axis throughout a step: what a thread reads, it holds itself;
* the tile of a nest has at most :data:`ELEMENTS` elements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Var, free_vars, rewrite, substitute
from nautilus.core.index.linear import linear
from nautilus.core.index.sizes import at_most, blocks, extent_expr
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import nest
from nautilus.scalar.ir import Kernel, Kind, Loop, Stmt, Store, Update

ELEMENTS = 4096  # of the tile of a nest: 32 registers of each of 128 threads
FEW = 32  # elements of a tile that leave most of a block without work
_BLOCKS = 1024  # a tile of lanes is wider where this many blocks remain
_LANES = (128, 64, 32)


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a tensor of the recurrence, ``back`` steps before."""

    reader: str
    load: Load
    back: int


@dataclass(frozen=True, slots=True)
class Steps:
    """A recurrence: its definitions in the order of a step, over the loops ``shared`` and ``step`` and own axes.

    They read tensors of the recurrence by the names that ``names`` maps to the tensors.
    """

    defs: tuple[Def, ...]
    shared: tuple[Loop, ...]
    step: Loop
    names: Mapping[str, str]

    @property
    def outer(self) -> frozenset[str]:
        return frozenset(loop.var for loop in (*self.shared, self.step))

    def own(self, d: Def) -> tuple[Axis, ...]:
        """The axes of ``d`` that are neither independent nor the steps."""
        return tuple(a for a in d.axes if a.name not in self.outer)

    def places(self, d: Def) -> tuple[int, ...]:
        """The positions of the own axes of the tensor of ``d``."""
        return tuple(n for n, e in enumerate(d.index) if not free_vars(e) & self.outer)


def on_chip(name: str, steps: Steps, stored: Collection[str]) -> Kernel | None:
    """The kernel of ``steps`` in tiled form, in which tensors outside of ``stored`` are not in memory."""
    reads = _reads(steps)
    if reads is None:
        return None
    names = _axis_names(steps, reads)
    if names is None or any(not isinstance(a.extent, int) for d in steps.defs for a in steps.own(d)):
        return None
    sizes = [prod(at_most(a.extent) for a in steps.own(d)) for d in steps.defs]
    lanes = _lanes(steps, max(sizes))
    if max(sizes) * (1 if lanes is None else lanes.tile) > ELEMENTS:
        return None
    return _Emitter(steps, names, lanes, frozenset(stored), _depths(reads)).kernel(name)


# -- reads ----------------------------------------------------------------------------------------


def _reads(steps: Steps) -> list[Read] | None:
    """Every read of a tensor of the recurrence; None where one is not at plain variables."""
    made = {d.name: d for d in steps.defs}
    found: list[Read] = []
    for d in steps.defs:
        extents = {a.name: a.extent for a in steps.own(d)}
        for ld in d.reads():
            if ld.buffer not in steps.names:
                continue
            source = made[steps.names[ld.buffer]]
            for n in steps.places(source):
                at = ld.index[n]
                if not isinstance(at, Var) or extents.get(at.name) != source.buffer.shape[n]:
                    return None
            if len({ld.index[n] for n in steps.places(source)}) < len(steps.places(source)):
                return None
            found.append(Read(d.name, ld, _steps_back(steps, source, ld)))
    return found


def _steps_back(steps: Steps, source: Def, ld: Load) -> int:
    """How many steps before its read an element was computed."""
    n = next(n for n, e in enumerate(source.index) if steps.step.var in free_vars(e))
    at, read = linear(source.index[n]), linear(ld.index[n])
    return at.slope(steps.step.var) * (at - read).const


def _depths(reads: Iterable[Read]) -> dict[str, int]:
    """For each tensor, by the name of its reads, how many earlier steps are read."""
    out: dict[str, int] = {}
    for r in reads:
        out[r.load.buffer] = max(out.get(r.load.buffer, 0), r.back)
    return out


def _axis_names(steps: Steps, reads: Sequence[Read]) -> dict[str, str] | None:
    """One name for all own axes that meet in reads; None where a definition would have one name for two axes."""
    parent: dict[str, str] = {a.name: a.name for d in steps.defs for a in steps.own(d)}

    def root(name: str) -> str:
        while parent[name] != name:
            name = parent[name]
        return name

    made = {d.name: d for d in steps.defs}
    for r in reads:
        source = made[steps.names[r.load.buffer]]
        for n in steps.places(source):
            mine, theirs = source.index[n], r.load.index[n]
            assert isinstance(mine, Var) and isinstance(theirs, Var)
            parent[root(theirs.name)] = root(mine.name)
    names = {n: root(n) for n in parent}
    for d in steps.defs:
        own = [names[a.name] for a in steps.own(d)]
        if len(set(own)) < len(own):
            return None
    return names


# -- lanes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Lanes:
    """An independent axis in tiles of ``tile``, so that positions along it share a block."""

    loop: Loop
    extent: int
    tile: int

    @property
    def block(self) -> Loop:
        return replace(self.loop, var=f"{self.loop.var}0", hi=extent_expr(blocks(self.extent, self.tile)))

    @property
    def position(self) -> Expr:
        return calc("add", calc("mul", Var(self.block.var), self.tile), Var(self.loop.var))

    @property
    def guard(self) -> Expr | None:
        return None if self.extent % self.tile == 0 else calc("lt", self.position, integer(self.extent))


def _lanes(steps: Steps, largest: int) -> _Lanes | None:
    """The independent axis that has lanes where tiles are small: one that is contiguous in memory, or the longest."""
    if largest >= FEW:
        return None
    extents = {loop.var: int(loop.hi.value) for loop in steps.shared if isinstance(loop.hi, Const)}
    extents = {name: n for name, n in extents.items() if n > 1}
    if not extents:
        return None
    ends = [d.index[-1] for d in steps.defs] + [ld.index[-1] for d in steps.defs for ld in d.reads() if ld.index]
    best = max(extents, key=lambda v: (min(extents[v], _LANES[-1]), ends.count(Var(v)), extents[v]))
    count = prod(extents.values())
    tile = next((n for n in _LANES if count >= n * _BLOCKS), _LANES[-1])
    tile = min(tile, 1 << (extents[best] - 1).bit_length())
    return _Lanes(next(loop for loop in steps.shared if loop.var == best), extents[best], tile)


# -- statements -----------------------------------------------------------------------------------


class _Emitter:
    """Emits the statements of a step; ``depths``: the earlier steps that are read of a tensor, by the read name."""

    def __init__(
        self, steps: Steps, names: Mapping[str, str], lanes: _Lanes | None, stored: frozenset[str],
        depths: Mapping[str, int],
    ) -> None:  # fmt: skip
        self.steps, self.names, self.lanes, self.stored = steps, names, lanes, stored
        self.depths = {steps.names[read]: n for read, n in depths.items()}
        self.made = {d.name: d for d in steps.defs}
        self.env: dict[str, Expr] = {old: Var(new) for old, new in names.items()}
        if lanes is not None:
            self.env[lanes.loop.var] = lanes.position

    def kernel(self, name: str) -> Kernel:
        steps = self.steps
        first = [s for d in steps.defs for n in range(self.depth(d)) for s in self.zero(d, n + 1)]
        body = [s for d in steps.defs for s in self.computed(d)]
        body += [s for d in steps.defs for s in self.shifted(d)]
        loop = replace(steps.step, kind=Kind.SEQ, body=tuple(body))
        grid = [self.lanes.block if self.lanes and x is self.lanes.loop else x for x in steps.shared]
        whole = nest(tuple(replace(x, kind=Kind.GRID) for x in grid), (*first, loop))
        locals_ = [self.buffer(d, n) for d in steps.defs for n in range(self.depth(d) + 1) if n or not self.direct(d)]
        return Kernel(name, tuple(locals_), whole, steps.defs[-1].span)

    def depth(self, d: Def) -> int:
        return self.depths.get(d.name, 0)

    def direct(self, d: Def) -> bool:
        """Whether ``d`` goes straight to memory, because no nest reads it."""
        return d.op is None and d.name not in self.depths and d.name in self.stored

    def axes(self, d: Def) -> list[tuple[str, int]]:
        """The axes of the local tiles of ``d``."""
        lanes = [] if self.lanes is None else [(self.lanes.loop.var, self.lanes.tile)]
        own = [d.index[n] for n in self.steps.places(d)]
        extents = {a.name: at_most(a.extent) for a in d.axes}
        return lanes + [(self.names[e.name], extents[e.name]) for e in own if isinstance(e, Var)]

    def buffer(self, d: Def, back: int) -> Buffer:
        shape = tuple(n for _, n in self.axes(d))
        return Buffer(_local(d.name, back), d.buffer.dtype, shape, Space.LOCAL, d.span)

    def computed(self, d: Def) -> Sequence[Stmt]:
        """The nests of ``d``, and its store to memory."""
        target, index = _local(d.name, 0), self.at(d)
        guard = None if d.guard is None else self.put(d.guard)
        if self.direct(d):
            store = Store(d.name, self.place(d), self.put(d.value), self.guarded(guard), d.span)
            return self.tiled(d, store)
        out: list[Stmt] = []
        if d.op is None:
            out += self.tiled(d, Store(target, index, self.put(d.value), self.guarded(guard), d.span))
        else:
            out += self.tiled(d, Store(target, index, d.init(), None, d.span))
            update = Update(target, d.op, index, self.put(d.value), self.guarded(guard), d.span)
            inner: tuple[Stmt, ...] = (update,)
            for a in reversed(d.red):
                inner = (_tile(self.names[a.name], at_most(a.extent), Kind.TILE_RED, inner, a),)
            out += self.tiled(d, *inner)
        if d.name in self.stored:
            out += self.tiled(d, Store(d.name, self.place(d), self.whole(d, 0), self.guarded(None), d.span))
        return out

    def shifted(self, d: Def) -> Sequence[Stmt]:
        """The step becomes an earlier one: the oldest first."""
        out: list[Stmt] = []
        for n in range(self.depth(d), 0, -1):
            store = Store(_local(d.name, n), self.at(d), self.whole(d, n - 1), self.guarded(None), d.span)
            out += self.tiled(d, store)
        return out

    def zero(self, d: Def, back: int) -> Sequence[Stmt]:
        value = _zero(d.buffer.dtype.compute)
        return self.tiled(d, Store(_local(d.name, back), self.at(d), value, None, d.span))

    # -- parts of statements ----------------------------------------------------------------------
    def at(self, d: Def) -> tuple[Expr, ...]:
        return tuple(Var(name) for name, _ in self.axes(d))

    def place(self, d: Def) -> tuple[Expr, ...]:
        return tuple(substitute(e, self.env) for e in d.index)

    def whole(self, d: Def, back: int) -> Expr:
        """The element of ``d`` in the compute type."""
        here = Load(_local(d.name, back), self.at(d), d.buffer.dtype, d.span)
        compute = d.buffer.dtype.compute
        return here if compute is d.buffer.dtype else Op("cast", (here,), compute, d.span)

    def put(self, e: Expr) -> Expr:
        """``e`` with locals in place of tensors of the recurrence."""

        def rule(n: Expr) -> Expr | None:
            if not (isinstance(n, Load) and n.buffer in self.steps.names):
                return None
            source = self.made[self.steps.names[n.buffer]]
            own = [n.index[p] for p in self.steps.places(source)]
            lanes: list[Expr] = [] if self.lanes is None else [Var(self.lanes.loop.var)]
            index = (*lanes, *(Var(self.names[v.name]) for v in own if isinstance(v, Var)))
            return Load(_local(source.name, _steps_back(self.steps, source, n)), index, n.dtype, n.span)

        # Locals first: their index has the names of this pass already, and the position of lanes is that of tensors.
        held: dict[str, Expr] = {}

        def hidden(n: Expr) -> Expr | None:
            made = rule(n)
            if made is None:
                return None
            name = f"%{len(held)}"
            held[name] = made
            return Var(name, made.dtype)

        return substitute(substitute(rewrite(e, hidden), self.env), held)

    def guarded(self, guard: Expr | None) -> Expr | None:
        bound = None if self.lanes is None else self.lanes.guard
        if bound is None or guard is None:
            return bound or guard
        return Op("select", (bound, guard, Const(False, DType.BOOL)), DType.BOOL)

    def tiled(self, d: Def, *body: Stmt) -> tuple[Stmt, ...]:
        for name, size in reversed(self.axes(d)):
            body = (_tile(name, size, Kind.TILE, body, None),)
        return tuple(body)


def _tile(name: str, size: int, kind: Kind, body: tuple[Stmt, ...], axis: Axis | None) -> Loop:
    loop = Loop(name, integer(0), integer(size), kind, body)
    return loop if axis is None else replace(loop, span=axis.span)


def _local(name: str, back: int) -> str:
    return f"{name}__{back}" if back else f"{name}__now"


def _zero(dtype: DType) -> Const:
    return Const(False if dtype is DType.BOOL else 0.0 if dtype.is_float else 0, dtype)
