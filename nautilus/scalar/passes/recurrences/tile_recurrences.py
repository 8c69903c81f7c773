"""``tile-recurrences``: the kernel of a recurrence gets tiled form (``scalar.ir``).

:mod:`nautilus.scalar.analysis.states.recurrences` says what such a kernel is.

Tensors of a recurrence that fit into tiles on chip stay in such tiles
(:mod:`nautilus.scalar.rewriting.recurrence_tiles`), and elements of small states in registers of one thread
(:mod:`nautilus.scalar.rewriting.states.elements`).  Otherwise the nests of a step exchange them through memory:

Each nest of a step is tiled like a kernel of its own definition, by the passes that tile other kernels (``fuse``,
``split``, ``reorder``).  Its grid loops over the independent axes and over the steps become those of the whole kernel;
its other grid loops become sequential ones.  The result runs a block for each position along the independent axes, in
which the nests follow each other, and each exchanges its elements with the others through global memory.

Where no step reads a tensor in memory, and other kernels read it at one step only, such as the last one, the other
steps store nothing of it.  Where steps and other kernels read the last steps only, memory has no others
(:mod:`nautilus.scalar.rewriting.states.circular_buffers`).

Blocks of a team share the other grid loops of the nests where that is predicted to be faster
(:mod:`nautilus.scalar.rewriting.states.shared_nests`).

Tiles.  A nest has one axis of *lanes*, of up to :data:`LANES` elements at once; the other axes take one element at a
time.  The lanes are along the last axis of a nest that is not independent.  A reduction in a nest with fewer than
:data:`~nautilus.scalar.rewriting.recurrence_tiles.FEW` of these elements has its lanes along its own last axis instead,
where that one is longer.  If no nest has such elements to share among threads, an independent axis has the lanes: its
positions share a block.  No value is a tile of two axes, except that a reduction takes :data:`AT_ONCE` terms at once
beside its lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, free_vars, loads, rewrite
from nautilus.core.fallbacks import LIGHTER, NO_FALLBACKS, WITHOUT, Fallbacks
from nautilus.core.index.sizes import as_extent, at_most
from nautilus.core.records import dataclass
from nautilus.core.schedule import AxisPlan, KernelPlan, Schedule, parts_allowed
from nautilus.core.text.names import unused
from nautilus.core.tiles import ceil_pow2
from nautilus.scalar.analysis.definitions import Def, is_recurrence, read_def, reads_of, rename_axes, writes_of
from nautilus.scalar.analysis.derived_names import GRID, LOOP
from nautilus.scalar.analysis.states.recurrences import Form, nests
from nautilus.scalar.analysis.states.step_products import StepProducts, step_products
from nautilus.scalar.ir import (
    Kernel,
    Kind,
    Loop,
    Program,
    Stmt,
    Store,
    Update,
    expressions,
    statements,
    with_expressions,
)
from nautilus.scalar.passes.fuse import fuse_kernel
from nautilus.scalar.passes.reorder import reorder_kernel
from nautilus.scalar.passes.rolling_update import roll_kernel
from nautilus.scalar.passes.split import split_kernel
from nautilus.scalar.rewriting import grid_chain, map_kernels, map_statements, nest, with_body
from nautilus.scalar.rewriting.recurrence_reads import Steps
from nautilus.scalar.rewriting.recurrence_scans import in_steps, scan_form, scan_kernel
from nautilus.scalar.rewriting.recurrence_teams import Device, rounds_operands, team_kernel
from nautilus.scalar.rewriting.recurrence_tiles import FEW, on_chip, step_time
from nautilus.scalar.rewriting.states.circular_buffers import with_circular_buffers
from nautilus.scalar.rewriting.states.shared_nests import Nest, member_count, shared_nest
from nautilus.targets.limits import limits
from nautilus.targets.records import DEFAULT_TARGET

LANES = 128  # elements that the lanes of a nest compute at once
WIDE = 1024  # the same in the blocks of a team, which have few iterations
AT_ONCE = 8  # terms of a reduction that a lane combines at once
_EARLIER = "__earlier"  # after the name of a tensor of the recurrence, where a nest reads it; see _suffix


@dataclass(frozen=True, slots=True)
class TileRecurrences:
    """Tile every recurrence that has no tiles yet.

    One that the schedule plans has the tiles of products of matrices.  Where a later level refuses tiles, those of a
    block that is not spread over a cluster or a team follow, and at last the recurrence stays in memory.  ``strict``:
    operands of products are not rounded.  ``noncooperative``: there are no teams.  ``always``: they are
    wherever they may be.
    ``steps``: those of a tile of a scan, in place of as many as the rule says (for tests).
    """

    fallbacks: Fallbacks = NO_FALLBACKS
    schedule: Schedule | None = None
    target: str = ""
    strict: bool = False
    noncooperative: bool = False
    always: bool = False
    steps: int | None = None
    name = "tile-recurrences"
    sees_recurrences = True

    def _clusters(self) -> int:
        """The multiprocessors of the target that run clusters of blocks."""
        return limits(self.target).multiprocessors if self.target and limits(self.target).warpgroup else 0

    def apply(self, program: Program) -> Program:
        """The program with its recurrences in tiled form, without the tensors that stay on chip."""
        more, whole = dict[str, Buffer](), set[str]()
        rounds = not self.strict and (self.schedule is None or self.schedule.narrow)
        parts = parts_allowed("strict" if self.strict else "fast", self.schedule)
        teams = None if self.noncooperative or not self.target else _Teams(self.target, rounds, parts, self.always)
        planned = () if self.schedule is None else tuple(p.name for p in self.schedule.kernels)

        def tiled(k: Kernel) -> Kernel:
            if not is_recurrence(k) or _has_tiles(k):
                return k
            step = self.fallbacks.steps(k.name)
            k = in_steps(k) if step else k
            found = step_products(k)
            first = step <= (WITHOUT if found else LIGHTER)
            products = found if k.name in planned else None
            clusters = 0 if step else self._clusters()
            if (scan := scan_form(k)) is not None:
                return _scanned(program, k, scan, self.steps)
            kernel, stored = _tiled(program, k, first, products, clusters, None if step else teams, not step)
            more.update({b.name: b for b in stored})
            if kernel.team > 1 and stored:  # a step waits for the results of products more than for memory
                whole.add(k.name)
            return kernel

        made = map_kernels(program, tiled)
        written = frozenset[str]().union(*map(writes_of, made.kernels))
        known = {b.name for b in program.buffers}
        kept = [b for b in program.buffers if b.space is not Space.TEMP or b.name in written]
        made = replace(made, buffers=(*kept, *(b for name, b in more.items() if name not in known)))
        names = frozenset(k.name for k in program.kernels if is_recurrence(k) and not _has_tiles(k))
        made = _only_read(made, names)
        for name in sorted(names - whole):
            made = with_circular_buffers(made, name)
        return made


def _only_read(program: Program, names: frozenset[str]) -> Program:
    """``program`` without the elements of temps of the recurrences ``names`` that nothing reads (module docstring)."""
    for k in [k for k in program.kernels if k.name in names]:
        for name in sorted(writes_of(k) - reads_of(k)):
            b = program.buffer(name)
            reads = {ld.index for ld in _loads(program) if ld.buffer == name}
            for axis, extent in enumerate(b.shape if b.space is Space.TEMP and reads else ()):
                first, *others = {index[axis] for index in reads}
                if isinstance(first, Const) and not others and extent != 1:
                    program = _at_one(program, name, axis, first)
    return program


def _loads(program: Program) -> Iterator[Load]:
    return (ld for k in program.kernels for _, s in statements(k.body) for e in expressions(s) for ld in loads(e))


def _at_one(program: Program, name: str, axis: int, at: Expr) -> Program:
    """``program`` with the elements of the temp ``name`` that are at ``at`` along ``axis``.

    A position that several loops make, such as that of a step in a chunk, keeps its form, from which it is seen that
    their iterations write different elements.
    """

    def first(index: tuple[Expr, ...], place: Expr | None = None) -> tuple[Expr, ...]:
        return (*index[:axis], place or integer(0), *index[axis + 1 :])

    def read(e: Expr) -> Expr | None:
        return replace(e, index=first(e.index)) if isinstance(e, Load) and e.buffer == name else None

    def rule(_: tuple[Loop, ...], s: Store | Update) -> Store | Update:
        s = _rewritten(s, read)
        if s.buffer != name:
            return s
        own = s.index[axis]
        place = calc("sub", own, at) if len(free_vars(own)) > 1 else None
        return replace(s, index=first(s.index, place), guard=conjunction((calc("eq", own, at), s.guard)))

    buffers = tuple(
        replace(b, shape=(*b.shape[:axis], 1, *b.shape[axis + 1 :])) if b.name == name else b for b in program.buffers
    )
    kernels = tuple(with_body(k, map_statements(k.body, rule)) for k in program.kernels)
    return replace(program, buffers=buffers, kernels=kernels)


def _has_tiles(k: Kernel) -> bool:
    stack: list[Stmt] = list(k.body)
    while stack:
        s = stack.pop()
        if isinstance(s, Loop):
            if s.kind in (Kind.TILE, Kind.GRID):
                return True
            stack += s.body
    return False


@dataclass(frozen=True, slots=True)
class _Teams:
    """``rounds``, ``parts``: operands of products may be rounded, and be multiplied in parts; ``always``: teams
    wherever they are possible."""

    target: str
    rounds: bool
    parts: bool
    always: bool

    def kernel(
        self, name: str, steps: Steps, stored: set[str], taken: set[str], clusters: int
    ) -> tuple[Kernel, tuple[Buffer, ...]] | None:
        """The kernel of teams, where it is the fastest one; None where it is not.

        The stated error bound has the roundings of :data:`DEFAULT_TARGET`, so the other targets have no more.
        """
        device, time = Device.of(self.target), inf
        if not self.always:
            time = step_time(steps, stored, taken, device.multiprocessors, clusters > 0)
        rounds = self.rounds and (self.always or self.target == DEFAULT_TARGET or _rounds(steps, stored, taken))
        return team_kernel(name, steps, stored, taken, device, time, rounds, self.parts)


def _rounds(steps: Steps, stored: set[str], taken: set[str]) -> bool:
    """Whether the kernel for :data:`DEFAULT_TARGET` rounds operands of products."""
    device = Device.of(DEFAULT_TARGET)
    return rounds_operands(
        steps, stored, taken, device, step_time(steps, stored, taken, device.multiprocessors, clusters=True)
    )


def rounded_in_steps(program: Program) -> frozenset[str]:
    """The tensors of recurrences whose products read operands that the pass rounds."""
    found = frozenset[str]()
    for k in (k for k in program.kernels if is_recurrence(k) and not _has_tiles(k) and scan_form(k) is None):
        if _rounds(*_steps_of(program, k)):
            found |= writes_of(k)
    return found


def _steps_of(program: Program, k: Kernel) -> tuple[Steps, set[str], set[str]]:
    """The steps of ``k``, the tensors that others read, and the names of the program."""
    shared: list[Loop] = []
    body = k.body
    while isinstance(body[0], Loop) and body[0].kind is Kind.PAR:
        shared.append(body[0])
        body = body[0].body
    (steps,) = body
    assert isinstance(steps, Loop) and steps.kind is Kind.SEQ
    own = writes_of(k)
    taken = {b.name for b in program.buffers} | {p.name for p in program.params}
    suffix = _suffix(own, taken)
    apart = _apart(program, own, suffix)
    defs = [_definition(apart, n, (*shared, steps), own, suffix) for n in nests(steps.body)]
    stored = {n for n in own if program.buffer(n).space is Space.OUTPUT}
    stored |= {n for other in program.kernels if other.name != k.name for n in reads_of(other) & own}
    return Steps(tuple(defs), tuple(shared), steps, {n + suffix: n for n in own}), stored, taken


def _scanned(program: Program, k: Kernel, scan: Form, steps: int | None) -> Kernel:
    """``k``, whose steps are a scan, in tiled form."""
    others = frozenset[str]().union(*(reads_of(x) for x in program.kernels if x.name != k.name))
    kept = {b.name for b in program.buffers if b.space is Space.OUTPUT or b.name in others}
    known = {b.name for b in program.buffers} | {p.name for p in program.params}
    return scan_kernel(program, k, scan, kept & writes_of(k), known, steps)


def _tiled(
    program: Program, k: Kernel, on_chip_first: bool, products: StepProducts | None, clusters: int,
    teams: _Teams | None, elements: bool,
) -> tuple[Kernel, tuple[Buffer, ...]]:  # fmt: skip
    """``k`` in tiled form, and tensors that it stores. ``elements``: as for :func:`on_chip`."""
    every, stored, taken = _steps_of(program, k)
    if on_chip_first:
        held = None if products is None else on_chip(k.name, every, stored, taken, products)
        if held is None and teams is not None:
            held = teams.kernel(k.name, every, stored, taken, clusters)
        held = held or on_chip(k.name, every, stored, taken, clusters=clusters, elements=elements)
        if held is not None:
            return held
    apart = _apart(program, writes_of(k), _suffix(writes_of(k), taken))
    alone = _in_memory(k, apart, every, LANES)
    wide = _in_memory(k, apart, every, WIDE) if teams is not None else alone
    found = [(x.members(teams), x) for x in (alone, wide)]
    (count, _), best = min(found, key=lambda x: x[0][1])
    return best.kernel(count), ()


@dataclass(frozen=True, slots=True)
class _InMemory:
    """The tiled ``nests`` of a step of ``of``, over the loops ``grid`` and then ``steps``."""

    of: Kernel
    steps: Loop
    grid: tuple[Loop, ...]
    nests: tuple[Nest, ...]
    locals: tuple[Buffer, ...]

    def members(self, teams: _Teams | None) -> tuple[int, float]:
        """How many blocks share a step, 1 without ``teams``, and its predicted microseconds."""
        groups = [as_extent(loop.hi) for loop in self.grid]
        known = teams is not None and all(isinstance(n, int) for n in groups)
        many = Device.of(teams.target).multiprocessors if teams is not None and known else 1
        return member_count(self.nests, prod(int(str(n)) for n in groups) if known else 1, many)

    def kernel(self, count: int) -> Kernel:
        """The kernel with a team of ``count`` blocks for each position along the grid."""
        if count == 1:
            inner = tuple(s for loops, body in self.nests for s in nest(loops, body))
            whole = nest(self.grid, (replace(self.steps, body=inner),))
            return Kernel(self.of.name, self.locals, whole, self.of.span)
        taken = {loop.var for loops, _ in statements(self.of.body) for loop in loops}
        taken |= {loop.var for loops, _ in self.nests for loop in loops} | {loop.var for loop in self.grid}
        taken |= {loop.var for _, body in self.nests for loops, _ in statements(body) for loop in loops}
        member = unused("m", taken)
        inner = tuple(s for n in self.nests for s in shared_nest(n, member, count, {*taken, member}))
        team = Loop(member, integer(0), integer(count), Kind.GRID, (), self.of.span)
        whole = nest((*self.grid, team), (replace(self.steps, body=inner),))
        return Kernel(self.of.name, self.locals, whole, self.of.span, team=count)


def _in_memory(k: Kernel, apart: Program, every: Steps, most: int) -> _InMemory:
    """The steps ``every`` of ``k`` in memory, with at most ``most`` lanes."""
    shared, steps, read_names = every.shared, every.step, every.names
    names = {loop.var for loop in (*shared, steps)}
    defs = _with_free_names(every.defs)
    lanes = _shared_lanes(defs, shared, names)
    locals_: list[Buffer] = []
    inner: list[Nest] = []
    grid: dict[str, Loop] = {}
    for d in defs:
        plan = _plan(d, [loop.var for loop in shared], steps.var, lanes, most)
        kernel = _tile(apart, d, plan)
        chain, stmts = grid_chain(kernel)
        blocks = [loop for loop in chain if loop.var in names or loop.var == f"{lanes}0"]
        rest = tuple(replace(loop, kind=Kind.SEQ) for loop in chain if loop not in blocks)
        grid |= {loop.var: loop for loop in blocks if loop.var != steps.var}
        inner.append((rest, map_statements(stmts, lambda _, s: _together(s, read_names))))
        locals_ += kernel.locals
    return _InMemory(k, steps, tuple(grid.values()), tuple(inner), tuple(locals_))


def _with_free_names(defs: Sequence[Def]) -> list[Def]:
    """``defs`` without an axis whose name is that of the loop over the tiles of another axis."""
    taken = {a.name for d in defs for a in d.axes}
    blocks = {f"{name}0" for name in taken}
    names = {name: unused(f"{name}_", taken | blocks) for name in taken & blocks}
    return [rename_axes(d, {a.name: names.get(a.name, a.name) for a in d.axes}) for d in defs]


def _suffix(own: frozenset[str], taken: set[str]) -> str:
    """A suffix that turns the name of each tensor in ``own`` into one that is not in ``taken``."""
    suffix = _EARLIER
    while any(n + suffix in taken for n in own):
        suffix += "_"
    return suffix


def _apart(program: Program, own: frozenset[str], suffix: str) -> Program:
    """``program`` with a second name for each tensor of the recurrence, by which nests read it."""
    more = tuple(replace(b, name=b.name + suffix, space=Space.INPUT) for b in program.buffers if b.name in own)
    return replace(program, buffers=(*program.buffers, *more), kernels=())


def _definition(
    program: Program, body: tuple[Stmt, ...], outer: Sequence[Loop], own: frozenset[str], suffix: str
) -> Def:
    """The definition of a nest, over the loops ``outer`` too; it reads the recurrence by the second names."""

    def rule(e: Expr) -> Expr | None:
        return replace(e, buffer=e.buffer + suffix) if isinstance(e, Load) and e.buffer in own else None

    renamed = map_statements(body, lambda _, s: _rewritten(s, rule))
    loops = tuple(replace(loop, kind=Kind.PAR) for loop in outer)
    return read_def(program, Kernel("step", (), nest(loops, renamed)))


def _together(s: Store | Update, read_names: Mapping[str, str]) -> Store | Update:
    def rule(e: Expr) -> Expr | None:
        return replace(e, buffer=read_names[e.buffer]) if isinstance(e, Load) and e.buffer in read_names else None

    return _rewritten(s, rule)


def _rewritten(s: Store | Update, rule: Callable[[Expr], Expr | None]) -> Store | Update:
    return with_expressions(s, lambda e: rewrite(e, rule))


# -- tiles ----------------------------------------------------------------------------------------


def _size(a: Axis) -> int:
    return at_most(a.extent)


def _shared_lanes(defs: Sequence[Def], shared: Sequence[Loop], names: set[str]) -> str | None:
    """The independent axis that has the lanes, if one has: the longest one."""
    most = max(prod(_size(a) for a in d.axes if a.name not in names) for d in defs)
    extents = {a.name: _size(a) for a in defs[0].par if a.name in {loop.var for loop in shared}}
    longest = max(extents, key=lambda n: extents[n], default=None)
    if longest is None or extents[longest] == 1 or most >= FEW:
        return None
    return longest


def _plan(d: Def, shared: Sequence[str], step: str, lanes: str | None, most: int) -> KernelPlan:
    """The tiles of ``d``, of at most ``most`` lanes, in a kernel of its own."""
    own = [a for a in d.par if a.name not in (*shared, step) and _size(a) > 1]
    elements = prod(_size(a) for a in own)
    tiles: dict[str, int] = {}
    if lanes is not None:
        tiles[lanes] = _tile_of(next(a for a in d.par if a.name == lanes), most)
    elif d.red and elements < FEW and _size(d.red[-1]) > elements:
        tiles[d.red[-1].name] = _tile_of(d.red[-1], most)
    elif own:
        tiles[own[-1].name] = _tile_of(own[-1], most)
        if d.red:
            tiles[d.red[-1].name] = min(AT_ONCE, ceil_pow2(_size(d.red[-1])))
    order = {name: n for n, name in enumerate((*shared, step))}
    par = sorted(d.par, key=lambda a: order.get(a.name, len(order)))
    axes = [AxisPlan(a.name, GRID, tiles.get(a.name, 1)) for a in par]
    axes += [AxisPlan(a.name, LOOP, tiles.get(a.name, 1)) for a in d.red]
    return KernelPlan(d.name, (d.name,), tuple(axes), partition=False)


def _tile_of(a: Axis, most: int) -> int:
    return min(most, ceil_pow2(_size(a)))


def _tile(program: Program, d: Def, plan: KernelPlan) -> Kernel:
    kernel = fuse_kernel(program, plan, {d.name: d}, frozenset({d.name}))
    return roll_kernel(reorder_kernel(split_kernel(program, kernel, plan), plan), plan, [])
