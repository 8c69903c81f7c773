"""The kernel of a recurrence whose products are spread over the blocks of a team (``tile-recurrences``).

The reductions of a step are products of matrices, at least one of them: a tensor of the recurrence, with an independent
axis ``b`` and the contracted one, times a matrix in memory that is the same in all steps.  Both have elements of 16
bits, or of f32, which matrix units multiply in parts::

    G[b, t, i] sum= h[b, t - 1, j] * U[j, i]

A block has a tile of ``b`` and a slice of ``i``, and of every other axis that results have.  The last slices may end
beyond their axis.  Its part of the matrices stays in its registers for all steps, or else in its shared memory.  The
blocks of one tile of ``b`` are a *team* (``scalar.ir.Kernel.team``): they run at the same time, and each reads in
memory the states that the others have stored.  Independent rows have other teams, which do not wait for each other;
where there are more tiles of them than teams run at the same time, each team takes one after another, in waves.

The warps of a block divide the contracted axis, so that each loads its part of the states from memory, once, and has
its part of the matrices::

    G__part[w, b, i] sum= h[b, t - 1, w * K + j] * U[w * K + j, i]
    G__now[b, i] sum= G__part[w, b, i]

Other reductions are over a whole axis of results, as those of a norm are.  Each block reduces its slice, and all blocks
of the team combine what each of them has stored::

    m__part[b] sum= c__now[b, i];  m__slices[b, t, block] = m__part[b];  m__now[b] sum= m__slices[b, t, s]

Everything else of a step is computed for the elements of the slice, in registers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Load, Var, free_vars, loads, substitute
from nautilus.core.expr.products import factors
from nautilus.core.index.sizes import Extent, as_extent, at_most, blocks, nominal
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.ir import Kernel, Kind, Loop, Stmt, Store, Update
from nautilus.scalar.rewriting.recurrence_operands import half, with_operands
from nautilus.scalar.rewriting.recurrence_reads import (
    Placement,
    Slice,
    Steps,
    lanes_of,
    placement,
    without_constant_axes,
)
from nautilus.scalar.rewriting.recurrence_tiles import Emitter, both, padded
from nautilus.targets.limits import held_registers, limits
from nautilus.targets.rates import machine

ROWS = (16, 32, 64)  # positions along the independent axis in a block: those of MMAs
SLICES = (8, 16, 32, 64)  # columns of a product in a block
WARPS = (8, 16, 4)  # that divide a product
DEPTH = 16  # terms of an MMA
MATRICES = 1 << 17  # most bytes of matrices in the registers or in the shared memory of a block
SEPARATES = 11 << 10  # bytes of shared memory that separate rows of matrices and of partial results
#: Microseconds of a step, and of each time in it that the blocks of a team wait for each other and read memory; on an
#: H200 2.0 for one product of 16 columns, 2.5 for four, and 4.0 for three in two turns.
STEP, EXCHANGE = 0.4, 1.4
WORK = 0.004  # of each column of a product of 16 rows
WORK_PARTS = 0.02  # the same of f32 in parts, judged by its instructions
MEMBER = 0.004  # of each block of a team
#: Of each partial result that a thread adds, and of each element that it computes from sums.  On an H200 four products
#: of 16 rows took 4.4, 3.4, 3.2 and 2.7 a step with 256, 128, 128 and 64 partial results and 8, 8, 4 and 4 elements.
ADDED, ELEMENT = 0.0075, 0.06
LOADED = 1.0e5  # bytes that a block loads from the L2 cache in a microsecond
READ = 0.8e5  # bytes that it reads from shared memory


@dataclass(frozen=True, slots=True)
class Team:
    """The blocks of a step: ``rows`` along ``lanes``, ``columns`` along each axis, ``warps`` that divide products.

    ``at_once``: how many tiles of rows have teams of their own; 0: all.  ``microseconds``: predicted, of a step of all.
    """

    lanes: str
    rows: int
    columns: Mapping[str, int]
    warps: int
    count: int
    at_once: int
    microseconds: float


@dataclass(frozen=True, slots=True)
class Device:
    """What blocks that run at the same time have: ``multiprocessors``, and ``shared`` bytes for operands on each."""

    multiprocessors: int
    shared: int

    @classmethod
    def of(cls, target: str) -> Device:
        """The largest device of ``target``. Raises UnsupportedError."""
        return cls(machine(target).multiprocessors, limits(target).smem_block - SEPARATES)


def team_kernel(
    name: str, steps: Steps, stored: Collection[str], taken: Collection[str], device: Device, others: float,
    rounds: bool = True, parts: bool = True,
) -> tuple[Kernel, tuple[Buffer, ...]] | None:  # fmt: skip
    """The kernel of ``steps`` for teams and the tensors that it stores, of which ``stored`` are read elsewhere.

    None where a rule of the module docstring does not hold, or where another form takes less than ``others``
    microseconds a step.  ``rounds``: operands of products may be rounded to 16 bits; ``parts``: matrix units
    may multiply f32 in parts.
    """
    steps = without_constant_axes(steps, stored, taken)
    steps = with_operands(steps, taken)[0] if rounds else steps
    shape = _shape(steps, parts)
    found = None if shape is None else _team(steps, shape, device)
    if shape is None or found is None or found.microseconds >= others:
        return None
    memory = frozenset(steps.names[ld.buffer] for _, ld in shape.where.memory)
    kept = frozenset(stored) | memory
    emitter = _TeamEmitter(steps, shape, kept, taken, found)
    kernel = replace(emitter.kernel(name), team=found.count)
    return kernel, (*(d.buffer for d in steps.defs if d.name in kept), *emitter.slices)


def rounds_operands(
    steps: Steps, stored: Collection[str], taken: Collection[str], device: Device, others: float
) -> bool:
    """Whether :func:`team_kernel` gives a kernel in which operands of products are rounded."""
    steps, rounded = with_operands(without_constant_axes(steps, stored, taken), taken)
    shape = _shape(steps) if rounded else None
    found = None if shape is None else _team(steps, shape, device)
    return found is not None and found.microseconds < others


@dataclass(frozen=True, slots=True)
class _Shape:
    """``where``: of the tensors of a step.  ``extents``: of the axes that results have, by their names in the kernel.

    ``products``: the terms of each product, the axis of its results, and the type of its operands.  ``across``:
    reductions over such an axis.
    """

    where: Placement
    extents: Mapping[str, int]
    products: Mapping[str, tuple[int, str, DType]]
    across: frozenset[str]


def _shape(steps: Steps, parts: bool = True) -> _Shape | None:
    """The axes of a step; None where a rule of the module docstring does not hold."""
    sums = [d for d in steps.defs if d.op is not None]
    depths = {d.name: found for d in sums if (found := _depth(steps, d, parts)) is not None}
    looped = {a.name for d in sums if d.name in depths for a in d.red}
    where, extents = placement(steps, looped), dict[str, int]()
    for a in (a for d in steps.defs for a in steps.own(d) if a.name not in looped):
        if not isinstance(a.extent, int) or extents.setdefault(where.names[a.name], a.extent) != a.extent:
            return None
    results = {d.name: [where.names[a.name] for a in steps.own(replace(d, red=()))] for d in steps.defs}
    across = frozenset(d.name for d in sums if d.name not in depths)
    if not depths or any(len(axes) > 1 for axes in results.values()):
        return None
    memory = {name for name, _ in where.memory}
    if any(results[d.name] or len(d.red) != 1 or d.name in memory for d in sums if d.name in across):
        return None
    products = {name: (n, results[name][0], dtype) for name, (n, dtype) in depths.items()}
    sliced = {axis for axes in results.values() for axis in axes}
    return _Shape(where, extents, products, across) if sliced == set(extents) else None


def _team(steps: Steps, shape: _Shape, device: Device) -> Team | None:
    """The tiles that take the least time; None where a rule does not hold or nothing fits."""
    shared = {loop.var: as_extent(loop.hi) for loop in steps.shared}
    if not shared:
        return None
    lanes = max(shared, key=lambda v: (not isinstance(shared[v], int), nominal(shared[v])))
    outer = [n for v, n in shared.items() if v != lanes]
    if not all(isinstance(n, int) for n in outer):
        return None
    others = prod(int(str(n)) for n in outer)
    products = [d for d in steps.defs if d.name in shape.products]
    if any(lanes in free_vars(ld) for d in products for ld in d.reads() if ld.buffer not in steps.names):
        return None
    size = shared[lanes]
    tried = (_fitting(lanes, size, shape, others, r, c, w, device) for r in ROWS for c in SLICES for w in WARPS)
    waits = STEP + EXCHANGE * _exchanges(steps)
    fitting = [replace(t, microseconds=_waves(t, size) * (t.microseconds + waits)) for t in tried if t is not None]
    return min(fitting, key=lambda t: (t.microseconds, -t.count), default=None)


def _waves(t: Team, extent: Extent) -> int:
    """How many tiles of rows a team takes one after another."""
    return -(-nominal(extent) // (t.rows * t.at_once)) if t.at_once else 1


def _fitting(
    lanes: str, extent: Extent, shape: _Shape, others: int, rows: int, columns: int, warps: int, device: Device
) -> Team | None:
    """A team whose longest slices have ``columns``, if its blocks run at the same time and hold the matrices."""
    width = max(shape.extents.values())
    count, groups = -(-width // columns), blocks(extent, rows)
    tiles = {name: next(n for n in SLICES if n * count >= size) for name, size in shape.extents.items()}
    if count == 1:
        return None
    most, at_once = device.multiprocessors // (count * others), 0
    depths = {name: DEPTH * warps * -(-n // (DEPTH * warps)) for name, (n, *_) in shape.products.items()}
    sums = [(depths[name], tiles[axis]) for name, (_, axis, _) in shape.products.items()]
    matrices = sum(n * c * x.bytes for (n, c), (*_, x) in zip(sums, shape.products.values(), strict=True))
    total = sum(c for _, c in sums)
    parts = 4 * warps * rows * total
    if not most or matrices > MATRICES or parts > device.shared:
        return None
    if not isinstance(groups, int):
        at_once = min(most, blocks(at_most(extent), rows))
    elif groups > most:
        at_once = -(-groups // -(-groups // most))
    states = max(depths[name] * x.bytes for name, (*_, x) in shape.products.items()) * rows
    results = rows * max(c for _, c in sums) // 32  # registers of one product in a warp
    time = (states + len(shape.across) * rows * count * 4) / LOADED + MEMBER * count
    in_parts = any(x is DType.F32 for *_, x in shape.products.values())
    time += (WORK_PARTS if in_parts else WORK) * total * rows / ROWS[0]
    own = {c: -(-rows * c // (32 * warps)) for _, c in sums}  # elements of a thread
    time += ADDED * warps * sum(own[c] for _, c in sums) + ELEMENT * max(own.values())
    held = held_registers(warps, in_parts)
    if (matrices + states) // (128 * warps) + results > held:
        time += matrices / READ
        if matrices + parts > device.shared or states // (128 * warps) + 2 * results > held:
            return None
    return Team(lanes, rows, tiles, warps, count, at_once, time)


def _exchanges(steps: Steps) -> int:
    """How many sums of a step follow each other."""
    sums: dict[str, int] = {}
    for d in steps.defs:
        earlier = (sums.get(steps.names[ld.buffer], 0) for ld in steps.reads(d) if not steps.back(ld))
        sums[d.name] = max(earlier, default=0) + (d.op is not None)
    return max(sums.values(), default=0)


def _depth(steps: Steps, d: Def, parts: bool) -> tuple[int, DType] | None:
    """The terms and the type of the product that ``d`` is (module docstring); None where it is none."""
    kept = {a.name for a in steps.own(d)} - {a.name for a in d.red}
    if d.op != "sum" or not kept or len(d.red) != 1 or not isinstance(d.red[0].extent, int):
        return None
    red, found = d.red[0].name, [half(f) or _single(f) for f in factors(d.value)]
    if len(found) != 2 or None in found:
        return None
    left, right = sorted((ld for ld in found if ld is not None), key=lambda ld: ld.buffer not in steps.names)
    if left.dtype is DType.F32 and not parts:
        return None
    if left.dtype is not right.dtype or left.buffer not in steps.names or right.buffer in steps.names:
        return None
    rows = free_vars(left) == {red} | steps.outer and all(
        left.index[n] == Var(red) for n in steps.places(steps.source(left))
    )
    plain = d.guard is None or (not loads(d.guard) and free_vars(d.guard) == {steps.step.var})
    same = free_vars(right) == {red} | kept and not any(loads(e) for e in right.index)
    return (d.red[0].extent, left.dtype) if rows and same and plain else None


def _single(e: Expr) -> Load | None:
    """The element of f32 that ``e`` is."""
    return e if isinstance(e, Load) and e.dtype is DType.F32 else None


class _TeamEmitter(Emitter):
    """Emits the statements of a step for a block of a team.  ``slices``: the temps in which blocks exchange results."""

    def __init__(self, steps: Steps, shape: _Shape, stored: frozenset[str], taken: Collection[str], team: Team) -> None:
        where, lanes = shape.where, lanes_of(steps, team.lanes, team.rows, team.at_once)
        outer = {*where.names.values(), *steps.outer, lanes.block_name, lanes.wave_name}
        longest = max(shape.extents, key=lambda name: shape.extents[name])
        block = Loop(unused(f"{longest}0", outer), integer(0), integer(team.count), Kind.PAR, ())
        cuts = tuple(Slice(name, n, team.columns[name], block) for name, n in shape.extents.items())
        super().__init__(steps, where, lanes, stored, {d.name: 0 for d in steps.defs}, taken, {}, cuts=cuts)
        self.warps, self.count, self.shape, self.block = team.warps, team.count, shape, Var(block.var)
        self.warp = unused("w", {*outer, block.var})
        self.member = unused("s", {*outer, block.var, self.warp})
        self.taken |= {self.warp, self.member, block.var}
        self.extents[self.member] = team.count
        self.slices = list[Buffer]()

    def cut_alike(self, a: Def, b: Def) -> bool:
        """Whether both are reductions, which then wait for other blocks together."""
        return a.op is not None and b.op is not None

    def guarded(self, d: Def, guard: Expr | None = None, reduced: Sequence[str] = ()) -> Expr | None:
        """``guard`` inside of the tiles and of the whole axes."""
        names = {*(name for name, _ in self.axes(d)), *reduced}
        for cut in self.cuts:
            guard = both(cut.guard, guard) if cut.name in names else guard
        return super().guarded(d, guard, reduced)

    def stores(self, d: Def) -> Expr | None:
        """One block of a team stores what all of them compute alike."""
        return None if self.steps.own(replace(d, red=())) else calc("eq", self.block, integer(0))

    def reduced(self, group: Sequence[Def]) -> Sequence[Stmt]:
        """The parts that a block computes of the results of ``group``, and then what they are together."""
        before, inside, after = list[Stmt](), list[Stmt](), list[Stmt]()
        for d in group:
            for out, nests in zip((before, inside, after), self.across(d) or self.product(d), strict=True):
                out += nests
        return [*before, *inside, *after]

    def product(self, d: Def) -> tuple[Sequence[Stmt], Sequence[Stmt], Sequence[Stmt]]:
        """The first values of a product in the parts of all warps, its terms, and the sum of the parts."""
        (axis,) = d.red
        name, terms = self.where.names[axis.name], int(str(axis.extent))
        depth = DEPTH * -(-terms // (DEPTH * self.warps))
        at = calc("add", calc("mul", Var(self.warp), depth), Var(name))
        shape = (self.warps, *(n for _, n in self.axes(d)))
        part = self.part(d, shape)
        place = (Var(self.warp), *self.at(d))
        guard, value = self.condition(d), substitute(self.put(d, d.value), {name: at})
        guard = both(None if depth * self.warps == terms else calc("lt", at, integer(terms)), guard)
        assert d.op is not None
        update = Update(part.name, d.op, place, value, self.guarded(d, guard), d.span)
        loop = Loop(name, integer(0), integer(depth), Kind.TILE_RED, (update,), d.span)
        before = self.of_warps(d, Store(part.name, place, d.init(), None, d.span))
        whole = Load(part.name, place, d.buffer.dtype, d.span)
        after = self.combined(d, whole, None, [(self.warp, self.warps)], ragged=False)
        return before, self.of_warps(d, loop), after

    def across(self, d: Def) -> tuple[Sequence[Stmt], Sequence[Stmt], Sequence[Stmt]] | None:
        """The same of a reduction over an axis of which each block has a slice; None for products."""
        if d.name not in self.shape.across:
            return None
        name = self.where.names[d.red[0].name]
        part = self.part(d, tuple(n for _, n in self.axes(d)))
        shape = (*d.buffer.shape, self.count)
        self.slices.append(Buffer(self.unique(f"{d.name}__slices"), d.buffer.dtype, shape, Space.TEMP, d.span))
        guard, slices = self.guarded(d, self.condition(d), [name]), self.slices[-1].name
        assert d.op is not None
        update = Update(part.name, d.op, self.at(d), self.put(d, d.value), guard, d.span)
        terms = Loop(name, integer(0), integer(self.extents[name]), Kind.TILE_RED, (update,), d.span)
        found = Load(part.name, self.at(d), d.buffer.dtype, d.span)
        store = Store(slices, (*self.place(d), self.block), found, self.guarded(d), d.span)
        inside = [*self.tiled(d, terms), *self.tiled(d, store)]
        whole = Load(slices, (*self.place(d), Var(self.member)), d.buffer.dtype, d.span)
        after = self.combined(d, whole, None, [(self.member, padded(self.count))])
        return self.tiled(d, Store(part.name, self.at(d), d.init(), None, d.span)), inside, after

    def part(self, d: Def, shape: tuple[int, ...]) -> Buffer:
        """The local with the part of the results of ``d`` that a block computes."""
        self.parts.append(Buffer(self.unique(f"{d.name}__part"), d.buffer.dtype, shape, Space.LOCAL, d.span))
        return self.parts[-1]

    def of_warps(self, d: Def, *body: Stmt) -> tuple[Stmt, ...]:
        """The nest of ``body`` over the elements of ``d`` in the parts of all warps."""
        return (Loop(self.warp, integer(0), integer(self.warps), Kind.TILE, self.tiled(d, *body), d.span),)
