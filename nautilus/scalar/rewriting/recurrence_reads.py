"""Where the tensors of a recurrence are while it runs: in tiles on chip, or in memory (``tile-recurrences``).

A tensor of the recurrence is a tile over its *own* axes, those that are neither independent nor the steps, in their
whole extents.  A read of it finds the element in the same thread where each of its own axes is read at a plain
variable, and all such variables that meet have one name throughout a step.  Every other read goes through memory, to
which the tensor is stored: one of another element, or of a sum that is too long for one tile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import FALSE, TRUE
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Var, free_vars, loads, rewrite, substitute, walk
from nautilus.core.index.divisors import divisor
from nautilus.core.index.linear import linear
from nautilus.core.index.simplify import Ranges, simplify
from nautilus.core.index.sizes import Extent, as_extent, at_most, blocks, extent_expr
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.ir import Kind, Loop

COPIES = 8  # copies of a tensor that is only read at constant positions along an axis


@dataclass(frozen=True, slots=True)
class Steps:
    """A recurrence: its definitions in the order of a step, over the loops ``shared`` and ``step`` and own axes.

    They read tensors of the recurrence by the names that ``names`` maps to the tensors.
    """

    defs: tuple[Def, ...]
    shared: tuple[Loop, ...]
    step: Loop
    names: Mapping[str, str]
    made: dict[str, Def] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "made", {d.name: d for d in self.defs})

    @property
    def outer(self) -> frozenset[str]:
        """The variables of the independent axes and of the steps."""
        return frozenset(loop.var for loop in (*self.shared, self.step))

    def own(self, d: Def) -> tuple[Axis, ...]:
        """The axes of ``d`` that are neither independent nor the steps."""
        return tuple(a for a in d.axes if a.name not in self.outer)

    def places(self, d: Def) -> tuple[int, ...]:
        """The positions of the own axes of the tensor of ``d``."""
        return tuple(n for n, e in enumerate(d.index) if not free_vars(e) & self.outer)

    def reads(self, d: Def) -> tuple[Load, ...]:
        """The reads of tensors of the recurrence in ``d``."""
        return tuple(ld for ld in d.reads() if ld.buffer in self.names)

    def ready(self, d: Def, done: Collection[str]) -> bool:
        """Whether everything of its own step that ``d`` reads is in ``done``."""
        return all(self.names[ld.buffer] in done for ld in self.reads(d) if self.back(ld) == 0)

    def source(self, ld: Load) -> Def:
        """The definition of the element that ``ld`` reads."""
        return self.made[self.names[ld.buffer]]

    def back(self, ld: Load) -> int:
        """How many steps before its read the element of ``ld`` was computed."""
        source = self.source(ld)
        n = next(n for n, e in enumerate(source.index) if self.step.var in free_vars(e))
        at, read = linear(source.index[n]), linear(ld.index[n])
        return at.slope(self.step.var) * (at - read).const


@dataclass(frozen=True, slots=True)
class Placement:
    """``names``: own axis -> its name in the kernel.  ``memory``: the reads, as (reader, load), that go to memory."""

    names: Mapping[str, str]
    memory: frozenset[tuple[str, Load]]


def placement(steps: Steps, looped: Collection[str]) -> Placement:
    """Where each read finds its element; ``looped``: axes of sums that are cut into tiles, or read in memory."""
    parent = {a.name: a.name for d in steps.defs for a in steps.own(d)}
    memory: set[tuple[str, Load]] = set()
    reads = [(d, ld) for d in steps.defs for ld in steps.reads(d)]
    for d, ld in sorted(reads, key=lambda r: steps.back(r[1])):
        pairs = _pairs(steps, d, ld, looped)
        joined = None if pairs is None else _joined(steps, parent, pairs)
        if joined is None:
            memory.add((d.name, ld))
        else:
            parent = joined
    return Placement({name: _root(parent, name) for name in parent}, frozenset(memory))


def _pairs(steps: Steps, d: Def, ld: Load, looped: Collection[str]) -> list[tuple[str, str]] | None:
    """(axis of the tensor, axis of its reader) for all own axes; None where one is not read at an axis."""
    source = steps.source(ld)
    extents = {a.name: a.extent for a in steps.own(d)}
    pairs = []
    for n in steps.places(source):
        mine, theirs = source.index[n], ld.index[n]
        if isinstance(mine, Const) and mine == theirs:
            continue
        if not (isinstance(mine, Var) and isinstance(theirs, Var)) or theirs.name in looped:
            return None
        if extents.get(theirs.name) != source.buffer.shape[n]:
            return None
        pairs.append((mine.name, theirs.name))
    return pairs


def _joined(steps: Steps, parent: Mapping[str, str], pairs: Sequence[tuple[str, str]]) -> dict[str, str] | None:
    """``parent`` with the axes of each pair in one set; None where two axes of a definition would be in one."""
    made = dict(parent)
    for mine, theirs in pairs:
        made[_root(made, theirs)] = _root(made, mine)
    for d in steps.defs:
        own = [_root(made, a.name) for a in steps.own(d)]
        if len(set(own)) < len(own):
            return None
    return made


def _root(parent: Mapping[str, str], name: str) -> str:
    while parent[name] != name:
        name = parent[name]
    return name


# -- axes that are read at constants --------------------------------------------------------------


def without_constant_axes(steps: Steps, kept: Collection[str], taken: Collection[str] = ()) -> Steps:
    """``steps`` with a copy of a tensor for each position along an axis that is only read at constant positions.

    So the four gates of a cell are four tensors, each of which a thread holds.  ``kept``: tensors that stay;
    ``taken``: names that no copy has.
    """
    for d in reversed(steps.defs):
        reads = [ld for reader in steps.defs for ld in steps.reads(reader) if steps.names[ld.buffer] == d.name]
        places = [n for n in steps.places(d) if isinstance(d.index[n], Var)]
        for n in places if d.name not in kept and reads else ():
            positions = {at.value: at for ld in reads if isinstance(at := ld.index[n], Const)}
            if all(isinstance(ld.index[n], Const) for ld in reads) and len(positions) <= COPIES:
                copied = _copied(steps, d, n, [int(v) for v in sorted(positions)], taken)
                return without_constant_axes(copied, kept, taken)
    return steps


def _copied(steps: Steps, d: Def, place: int, positions: Sequence[int], others: Collection[str]) -> Steps:
    """``steps`` with a copy of ``d`` for each of ``positions`` along axis ``place``, which the readers read."""
    axis = d.index[place]
    assert isinstance(axis, Var)
    reading = next(read for read, name in steps.names.items() if name == d.name)
    taken = {*steps.names, *steps.names.values(), *steps.made, *others}
    copies: dict[int, Def] = {}
    names = {read: name for read, name in steps.names.items() if name != d.name}
    for p in positions:
        name = unused(f"{d.name}_{p}", taken)
        taken.add(name)
        names[f"{reading}_{p}"] = name
        buffer = replace(d.buffer.without([place]), name=name, space=Space.TEMP)
        copies[p] = _at(d, axis.name, p, place, name, buffer)

    def rule(e: Expr) -> Expr | None:
        if not (isinstance(e, Load) and e.buffer == reading):
            return None
        at = e.index[place]
        assert isinstance(at, Const)
        index = tuple(x for n, x in enumerate(e.index) if n != place)
        return replace(e, buffer=f"{reading}_{int(at.value)}", index=index)

    def redirected(x: Def) -> Def:
        guard = None if x.guard is None else rewrite(x.guard, rule)
        return replace(x, value=rewrite(x.value, rule), guard=guard)

    defs = [y for x in steps.defs for y in (copies.values() if x is d else [x])]
    return Steps(tuple(map(redirected, defs)), steps.shared, steps.step, names)


def _at(d: Def, axis: str, position: int, place: int, name: str, buffer: Buffer) -> Def:
    env: dict[str, Expr] = {axis: integer(position)}
    index = tuple(e for n, e in enumerate(d.index) if n != place)
    return replace(
        d,
        name=name,
        buffer=buffer,
        par=tuple(a for a in d.par if a.name != axis),
        value=substitute(d.value, env),
        guard=None if d.guard is None else substitute(d.guard, env),
        at=None if d.at is None else index,
    )


# -- before the first step ------------------------------------------------------------------------


def with_first_values(steps: Steps) -> tuple[Steps, dict[str, Expr]]:
    """``steps`` whose reads of the step before have no choice for the first step, and the values before the first step.

    They are those of tensors that are read one step back in such choices only, ``X[t - 1] if t > 0 else e``, with one
    ``e`` that is the same in all steps, over the axes of the tensor.
    """
    count = steps.step.hi
    last = int(count.value) - 1 if isinstance(count, Const) else 1
    later: Ranges = {steps.step.var: (1, max(last, 1))}
    known: dict[str, set[Expr]] = {}
    chosen: dict[Expr, Expr] = {}
    alone: set[str] = set()
    for d in steps.defs:
        found = [e for e in walk(d.value) if isinstance(e, Op) and e.op == "select" and e.args[1] in steps.reads(d)]
        inside = {e.args[1] for e in found}
        for e in found:
            condition, read, other = e.args
            assert isinstance(read, Load)
            names = _names_of(steps, read)
            first = simplify(substitute(condition, {steps.step.var: integer(0)})) == FALSE
            fixed = steps.step.var not in free_vars(other) and not any(ld.buffer in steps.names for ld in loads(other))
            if not first or simplify(condition, later) != TRUE or steps.back(read) != 1 or names is None or not fixed:
                alone.add(steps.names[read.buffer])
                continue
            chosen[e] = read
            known.setdefault(steps.names[read.buffer], set()).add(substitute(other, names))
        alone |= {steps.names[ld.buffer] for ld in steps.reads(d) if steps.back(ld) > 0 and ld not in inside}
    values = {name: next(iter(v)) for name, v in known.items() if len(v) == 1 and name not in alone}

    def rule(e: Expr) -> Expr | None:
        read = chosen.get(e)
        return read if isinstance(read, Load) and steps.names[read.buffer] in values else None

    defs = tuple(replace(d, value=rewrite(d.value, rule)) for d in steps.defs)
    return (Steps(defs, steps.shared, steps.step, steps.names), values) if values else (steps, values)


def _names_of(steps: Steps, ld: Load) -> dict[str, Expr] | None:
    """The variables at the own axes of ``ld`` as those of its tensor; None where one is none."""
    source = steps.source(ld)
    pairs = [(ld.index[n], source.index[n]) for n in steps.places(source)]
    if not all(isinstance(mine, Var) and isinstance(own, Var) for mine, own in pairs):
        return None
    return {mine.name: own for mine, own in pairs if isinstance(mine, Var)}


# -- what a block has ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lanes:
    """An independent axis in tiles of ``tile``, so that positions along it share a block.

    ``at_once``: how many tiles have blocks, which take more in the loop ``wave_name``; 0: all tiles have blocks.
    """

    loop: Loop
    extent: Extent
    tile: int
    block_name: str
    at_once: int = 0
    wave_name: str = ""

    @property
    def block(self) -> Loop:
        """The loop over the tiles with blocks of their own."""
        hi = integer(self.at_once) if self.at_once else extent_expr(blocks(self.extent, self.tile))
        return replace(self.loop, var=self.block_name, hi=hi)

    @property
    def waves(self) -> tuple[Loop, ...]:
        """The loop over the tiles that a block takes one after another; none where it takes one."""
        if not self.at_once:
            return ()
        count = extent_expr(blocks(self.extent, self.tile * self.at_once))
        return (replace(self.loop, var=self.wave_name, hi=count, kind=Kind.SEQ),)

    @property
    def position(self) -> Expr:
        """The position along the whole axis."""
        tile: Expr = Var(self.block.var)
        if self.at_once:
            tile = calc("add", calc("mul", Var(self.wave_name), self.at_once), tile)
        return calc("add", calc("mul", tile, self.tile), Var(self.loop.var))

    @property
    def guard(self) -> Expr | None:
        """The condition of the positions of the last tile; None where it is whole."""
        even = divisor(extent_expr(self.extent)) % (self.tile * max(1, self.at_once)) == 0
        return None if even else calc("lt", self.position, extent_expr(self.extent))


def lanes_of(steps: Steps, name: str, tile: int, at_once: int = 0) -> Lanes:
    """Lanes along the independent axis ``name``, ``tile`` of them in a block; ``at_once``: as for :class:`Lanes`."""
    taken = steps.outer | {a.name for d in steps.defs for a in d.axes}
    loop = next(loop for loop in steps.shared if loop.var == name)
    block = unused(f"{name}0", taken)
    return Lanes(loop, as_extent(loop.hi), tile, block, at_once, unused(f"{name}_wave", {*taken, block}))


@dataclass(frozen=True, slots=True)
class Slice:
    """``tile`` of ``extent`` positions along the axis ``name`` of tensors of a step, those of iteration ``block``."""

    name: str
    extent: int
    tile: int
    block: Loop

    @property
    def position(self) -> Expr:
        """The position along the whole axis."""
        return calc("add", calc("mul", Var(self.block.var), self.tile), Var(self.name))

    @property
    def guard(self) -> Expr | None:
        """The condition of the positions of the last slices; None where all are whole."""
        whole = at_most(as_extent(self.block.hi)) * self.tile == self.extent
        return None if whole else calc("lt", self.position, integer(self.extent))
