"""The kernel of a recurrence whose products are spread over the blocks of a team (``tile-recurrences``).

All reductions of a step are products of matrices of 16-bit elements: a tensor of the recurrence, with an independent
axis ``b`` and the contracted one, times a matrix in memory that is the same in all steps::

    G[b, t, i] sum= h[b, t - 1, j] * U[j, i]

A block has a tile of ``b`` and a slice of ``i``, for all products of the step.  Its part of the matrices stays in its
registers for all steps, or else in its shared memory.  The blocks of one tile of ``b`` are a *team*
(``scalar.ir.Kernel.team``): they run at the same time, and each reads in memory the states that the others have stored.
Independent rows have other teams, which do not wait for each other; where there are more tiles of them than teams run
at the same time, each team takes one after another, in waves.

The warps of a block divide the contracted axis, so that each loads its part of the states from memory, once, and has
its part of the matrices::

    G__part[w, b, i] sum= h[b, t - 1, w * K + j] * U[w * K + j, i]
    G__now[b, i] sum= G__part[w, b, i]

Everything else of a step is computed for the elements of the slice, in registers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Load, Var, free_vars, loads, substitute
from nautilus.core.expr.products import factors
from nautilus.core.index.sizes import Extent, as_extent, at_most, blocks, nominal
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.ir import Kernel, Kind, Loop, Stmt, Store, Update
from nautilus.scalar.rewriting.recurrence_operands import half, with_operands
from nautilus.scalar.rewriting.recurrence_reads import Placement, Steps, placement, without_constant_axes
from nautilus.scalar.rewriting.recurrence_tiles import Emitter, Slice, lanes_of
from nautilus.targets.limits import held_registers, limits
from nautilus.targets.rates import machine

ROWS = (16, 32, 64)  # positions along the independent axis in a block: those of MMAs
SLICES = (8, 16, 32, 64)  # columns of a product in a block
WARPS = (8, 16, 4)  # that divide a product
DEPTH, WIDTH = 16, 8  # terms and columns of an MMA
MATRICES = 1 << 17  # most bytes of matrices in the registers or in the shared memory of a block
SEPARATES = 11 << 10  # bytes of shared memory that separate rows of matrices and of partial results
#: Microseconds of a step, and of each time in it that the blocks of a team wait for each other and read memory; on an
#: H200 2.0 for one product of 16 columns, 2.6 for four, and 4.0 for three in two turns.
STEP, EXCHANGE = 0.4, 1.4
WORK = 0.0125  # of each column of a product of 16 rows
MEMBER = 0.004  # of each block of a team
#: Of each row where a block has the columns of one MMA, whose results all warps compute, and store to memory: on an
#: H200 a step of 1 row took 2.3, and one of 16 rows 3.4.
ALIKE = 0.07
LOADED = 1.0e5  # bytes that a block loads from the L2 cache in a microsecond
READ = 2.0e5  # bytes that it reads from shared memory


@dataclass(frozen=True, slots=True)
class Team:
    """The blocks of a step: ``rows`` along ``lanes``, ``columns`` of each product, ``warps`` that divide its terms.

    ``at_once``: how many tiles of rows have teams of their own; 0: all.  ``microseconds``: predicted, of a step of all.
    """

    lanes: str
    rows: int
    columns: int
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
    rounds: bool = True,
) -> tuple[Kernel, tuple[Buffer, ...]] | None:  # fmt: skip
    """The kernel of ``steps`` for teams and the tensors that it stores, of which ``stored`` are read elsewhere.

    None where a rule of the module docstring does not hold, or where another form takes less than ``others``
    microseconds a step.  ``rounds``: operands of products may be rounded to 16 bits.
    """
    steps = without_constant_axes(steps, stored, taken)
    steps = with_operands(steps, taken)[0] if rounds else steps
    found = _team(steps, device)
    if found is None or found.microseconds >= others:
        return None
    where = placement(steps, {a.name for d in steps.defs for a in d.red})
    axis = _own_axis(steps, where)
    if axis is None:
        return None
    memory = frozenset(steps.names[ld.buffer] for _, ld in where.memory)
    kept = frozenset(stored) | memory
    kernel = _TeamEmitter(steps, where, kept, taken, found, axis).kernel(name)
    kernel = replace(kernel, team=found.count)
    return kernel, tuple(d.buffer for d in steps.defs if d.name in kept)


def rounds_operands(
    steps: Steps, stored: Collection[str], taken: Collection[str], device: Device, others: float
) -> bool:
    """Whether :func:`team_kernel` gives a kernel in which operands of products are rounded."""
    steps, rounded = with_operands(without_constant_axes(steps, stored, taken), taken)
    found = _team(steps, device) if rounded else None
    return found is not None and found.microseconds < others


def _own_axis(steps: Steps, where: Placement) -> str | None:
    """The only name that the axes of results have in the kernel; None where there are several."""
    sums = {a.name for d in steps.defs for a in d.red}
    found = {where.names[a.name] for d in steps.defs for a in steps.own(d) if a.name not in sums}
    return next(iter(found)) if len(found) == 1 else None


def _team(steps: Steps, device: Device) -> Team | None:
    """The tiles that take the least time; None where a rule does not hold or nothing fits."""
    sums = [d for d in steps.defs if d.op is not None]
    extents = {a.extent for d in steps.defs for a in steps.own(d) if a not in d.red}
    if not sums or len(extents) != 1 or any(len(steps.own(replace(d, red=()))) != 1 for d in steps.defs):
        return None
    (columns,) = extents
    shared = {loop.var: as_extent(loop.hi) for loop in steps.shared}
    depths = [_depth(steps, d) for d in sums]
    if not isinstance(columns, int) or not shared or any(n is None for n in depths):
        return None
    lanes = max(shared, key=lambda v: (not isinstance(shared[v], int), nominal(shared[v])))
    outer = [n for v, n in shared.items() if v != lanes]
    if not all(isinstance(n, int) for n in outer):
        return None
    others = prod(int(str(n)) for n in outer)
    if any(lanes in free_vars(ld) for d in sums for ld in d.reads() if ld.buffer not in steps.names):
        return None
    size, exchanges = (shared[lanes], columns, [n for n in depths if n is not None]), _exchanges(steps)
    tried = (_fitting(lanes, size, others, r, c, w, device) for r in ROWS for c in SLICES for w in WARPS)
    waits = STEP + EXCHANGE * exchanges
    fitting = [replace(t, microseconds=_waves(t, size[0]) * (t.microseconds + waits)) for t in tried if t is not None]
    return min(fitting, key=lambda t: (t.microseconds, -t.count), default=None)


def _waves(t: Team, extent: Extent) -> int:
    """How many tiles of rows a team takes one after another."""
    return -(-nominal(extent) // (t.rows * t.at_once)) if t.at_once else 1


def _fitting(
    lanes: str, size: tuple[Extent, int, list[int]], others: int, rows: int, columns: int, warps: int, device: Device
) -> Team | None:
    """A team of these tiles, if its blocks run at the same time and their registers hold the matrices."""
    extent, width, depths = size
    if width % columns or any(n % (DEPTH * warps) for n in depths) or width == columns:
        return None
    count, groups = width // columns, blocks(extent, rows)
    most, at_once = device.multiprocessors // (count * others), 0
    matrices = sum(n * columns * 2 for n in depths)
    parts = 4 * warps * rows * columns * len(depths)
    if not most or matrices > MATRICES or parts > device.shared:
        return None
    if not isinstance(groups, int):
        at_once = min(most, blocks(at_most(extent), rows))
    elif groups > most:
        at_once = -(-groups // -(-groups // most))
    states = max(depths) * rows * 2
    results = rows * columns // 32  # registers of one product in a warp
    time = states / LOADED + MEMBER * count + WORK * columns * len(depths) * rows / ROWS[0]
    time += ALIKE * min(rows, nominal(extent)) if columns == WIDTH else 0.0
    if (matrices + states) // (128 * warps) + results > held_registers(warps):
        time += matrices / READ
        if matrices + parts > device.shared or states // (128 * warps) + 2 * results > held_registers(warps):
            return None
    return Team(lanes, rows, columns, warps, count, at_once, time)


def _exchanges(steps: Steps) -> int:
    """How many sums of a step follow each other."""
    sums: dict[str, int] = {}
    for d in steps.defs:
        earlier = (sums.get(steps.names[ld.buffer], 0) for ld in steps.reads(d) if not steps.back(ld))
        sums[d.name] = max(earlier, default=0) + (d.op is not None)
    return max(sums.values(), default=0)


def _depth(steps: Steps, d: Def) -> int | None:
    """The terms of the product that ``d`` is (module docstring); None where it is none."""
    kept = {a.name for a in steps.own(d)} - {a.name for a in d.red}
    if d.op != "sum" or len(d.red) != 1 or not isinstance(d.red[0].extent, int):
        return None
    red, parts = d.red[0].name, [half(f) for f in factors(d.value)]
    if len(parts) != 2 or None in parts:
        return None
    left, right = sorted((ld for ld in parts if ld is not None), key=lambda ld: ld.buffer not in steps.names)
    if left.dtype is not right.dtype or left.buffer not in steps.names or right.buffer in steps.names:
        return None
    rows = free_vars(left) == {red} | steps.outer and all(
        left.index[n] == Var(red) for n in steps.places(steps.source(left))
    )
    plain = d.guard is None or (not loads(d.guard) and free_vars(d.guard) == {steps.step.var})
    same = free_vars(right) == {red} | kept and not any(loads(e) for e in right.index)
    return d.red[0].extent if rows and same and plain else None


class _TeamEmitter(Emitter):
    """Emits the statements of a step for a block of a team."""

    def __init__(
        self, steps: Steps, where: Placement, stored: frozenset[str], taken: Collection[str], team: Team, axis: str
    ) -> None:
        lanes = lanes_of(steps, team.lanes, team.rows, team.at_once)
        outer = {*where.names.values(), *steps.outer, lanes.block_name, lanes.wave_name}
        block = Loop(unused(f"{axis}0", outer), integer(0), integer(team.count), Kind.PAR, ())
        cut = Slice(axis, team.columns, block)
        super().__init__(steps, where, lanes, stored, {d.name: 0 for d in steps.defs}, taken, {}, cut=cut)
        self.warps = team.warps
        self.warp = unused("w", {*outer, block.var})
        self.taken.add(self.warp)

    def cut_alike(self, a: Def, b: Def) -> bool:
        """Whether both are products, which then wait for the states together."""
        return a.op is not None and b.op is not None

    def reduced(self, group: Sequence[Def]) -> Sequence[Stmt]:
        """The products of ``group`` in the parts of all warps, and then their sums."""
        before, inside, after = list[Stmt](), list[Stmt](), list[Stmt]()
        for d in group:
            (axis,) = d.red
            name, depth = self.where.names[axis.name], int(str(axis.extent)) // self.warps
            at = calc("add", calc("mul", Var(self.warp), depth), Var(name))
            shape = (self.warps, *(n for _, n in self.axes(d)))
            part = Buffer(self.unique(f"{d.name}__part"), d.buffer.dtype, shape, Space.LOCAL, d.span)
            self.parts.append(part)
            place = (Var(self.warp), *self.at(d))
            guard, value = self.condition(d), substitute(self.put(d, d.value), {name: at})
            assert d.op is not None
            update = Update(part.name, d.op, place, value, self.guarded(d, guard), d.span)
            terms = Loop(name, integer(0), integer(depth), Kind.TILE_RED, (update,), d.span)
            before += self.of_warps(d, Store(part.name, place, d.init(), None, d.span))
            inside += self.of_warps(d, terms)
            whole = Load(part.name, place, d.buffer.dtype, d.span)
            after += self.combined(d, whole, None, [(self.warp, self.warps)], ragged=False)
        return [*before, *inside, *after]

    def of_warps(self, d: Def, *body: Stmt) -> tuple[Stmt, ...]:
        """The nest of ``body`` over the elements of ``d`` in the parts of all warps."""
        return (Loop(self.warp, integer(0), integer(self.warps), Kind.TILE, self.tiled(d, *body), d.span),)
