"""Variants of a compilation with runtime sizes, and the dispatch among them, by the cost model.

One schedule does not serve all sizes: few rows leave multiprocessors idle unless a long reduction is split, many rows
need large tiles, and a short row stays in registers.  A *variant* is the whole spec under one schedule.  Its sizes stay
runtime sizes.  It is right at every size at which its facts hold, and most variants have none.

1. The planner plans the spec at a few fixed sizes (:mod:`nautilus.passes.trials.sizes`).  Each schedule that it finds
   is applied to the spec with runtime sizes.  Where it is refused there, because the program has other definitions at
   small sizes, the spec is planned with runtime sizes which have the small ones as bounds; at large sizes, the kernels
   that both programs have take the plans of the refused schedule.  The planner also plans the spec with runtime sizes
   under other bounds (:mod:`.size_facts`).
2. The cost model predicts every variant on a grid of sizes, and :mod:`.dispatch_tree` makes a tree.
3. Where rows are whole vectors only at some sizes, and the kernels differ under that fact, the first two steps are done
   again under it; the launcher tests first whether it holds.

The sizes of some dims vary (:func:`~.size_facts.varied`).  All others have their nominal sizes meanwhile, or those that
facts such as ``assume B1 == B + 1`` demand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, permutations, product
from math import inf, lcm, prod

from nautilus.core.errors import AssemblerError, DiagnosticError, ScheduleError, TargetLimitError, UnsupportedError
from nautilus.core.index.sizes import MAX_DIM, NOMINAL
from nautilus.core.records import dataclass
from nautilus.core.schedule import KernelPlan, Schedule
from nautilus.core.schedule.dispatch import Dispatch, Divided, SizeFact, leaves, renumbered
from nautilus.frontend.sizes import holds, nearest
from nautilus.frontend.spec import Dim, Spec
from nautilus.passes.attempts import check_resources
from nautilus.passes.compilation import Prediction, Refusal, Request, Result, Variant, Variants
from nautilus.passes.pipelines import MA_TILE, SCALAR
from nautilus.passes.selection import size_facts
from nautilus.passes.selection.assembly import is_refused, refusal, without_accepted
from nautilus.passes.selection.dispatch_tree import (
    SAVES,
    Candidate,
    Point,
    Predicted,
    Predictions,
    best,
    decision_tree,
    kept,
    seconds_at,
)
from nautilus.passes.trials.sizes import WHOLE, Effort
from nautilus.scalar.ir import Kernel

FEW = 1024  # up to this size of one varied dim, it also does between two sizes whose schedules differ
#: bounds of the other sizes of a recurrence, under which its positions may leave the GPU idle: with bounds of the steps
#: too, and alone
FEW_POSITIONS, SOME_POSITIONS = 8, 64
POSITIONS = (8, 16, 32, 64, 128, 256)  # the same, where the number of steps is fixed
LONE = (1, 4096)  # sizes for which it makes schedules beside those, of two varied dims in either order
MANY_TERMS = (1 << 20, 1 << 24)  # lengths of a reduced dim whose terms are combined where their keys say
LONG = 65536  # length of a reduced dim for which it does, with each of these sizes of the other one
BESIDE = (1, 64)
MOST_POINTS = 400  # sizes at which variants are compared, with the bounds of candidates; each takes about 0.05 s
GENERAL = "general"  # name of the variant that a compilation without variants would have
UNALIGNED = "unaligned"  # name of the variant for tensors at any addresses
ALIGNED = "aligned"  # begins the names of those whose rows are whole vectors

Compile = Callable[[Request], Result]


@dataclass(frozen=True, slots=True)
class Dropped:
    """A variant that ptxas refused, and its plan of that kernel, which others with its ``divisors`` may have too."""

    name: str
    divisors: frozenset[SizeFact]
    refusals: tuple[Refusal, ...]

    def has(self, c: Candidate) -> bool:
        """Whether ``c`` has the plan of that variant.  The plan of the general variant was accepted before."""
        same = c.name != GENERAL and _divisors(c.assumed) == self.divisors and is_refused(c.schedule, self.refusals)
        return same or (c.name == self.name and not self.refusals)


def _left_out(c: Candidate, without: Collection[Dropped]) -> bool:
    """Whether ptxas refused the plan of ``c``, or two others of its name: one smaller plan is made."""
    return any(d.has(c) for d in without) or sum(d.name == c.name for d in without) > 1


def dropped_by(v: Variant, kernel: str) -> Iterator[Dropped]:
    """``v``, if ``kernel`` is one of its kernels, which ptxas refused."""
    name = kernel.removeprefix(f"{v.module.name}.")
    if name != kernel:
        error = AssemblerError("ptxas refused it for a variant", kernel=name)
        yield Dropped(v.name, _divisors(v.assumed), refusal(error, v.schedule))


def _divisors(facts: Iterable[SizeFact]) -> frozenset[SizeFact]:
    return frozenset(f for f in facts if f.multiple > 1)


def find(
    request: Request, general: Result, compile_one: Compile, without: Collection[Dropped] = (),
    predictions: Predictions | None = None,
) -> Variants | None:  # fmt: skip
    """The variants of ``general``, the result of ``request``; None where it serves all sizes and strides.

    ``compile_one`` runs the passes to the end of MA-tile IR, or of Scalar IR.  ``without``: what failed later.
    ``predictions``: those of an earlier choice.
    """
    spec: Spec | None = general.modules.get("spec")
    if request.variants < 2 or spec is None or request.schedule is not None or general.context.schedule is None:
        return None
    known, sized = predictions or Predictions(request.arch), None
    if not general.tuned and size_facts.varied(spec):
        sized = _sized(request, general, spec, compile_one, without, known)
    whole = Candidate(GENERAL, general.context.schedule, general.modules[MA_TILE.name])
    own = _unaligned(request, spec, whole.module.name, compile_one, without)
    if own is None:
        return sized
    if sized is None:
        sized = Variants((_variant(whole, whole.module.name),), 0, ())
    return replace(sized, unaligned=own)


def _sized(
    request: Request, general: Result, spec: Spec, compile_one: Compile, without: Collection[Dropped],
    predictions: Predictions,
) -> Variants | None:  # fmt: skip
    """The variants by sizes; None where one schedule serves all of them."""
    refused = without_accepted(general.refused, general.context.fallbacks.spilling)
    assert general.context.schedule is not None
    effort = Effort.of(general.context.schedule, general.modules[MA_TILE.name], len(size_facts.varied(spec)))
    schedules = _Schedules(replace(request, refused=refused), spec, compile_one, effort)
    candidates, bounds = list[Candidate](), {d.name: d.bound or MAX_DIM for d in size_facts.varied(spec)}
    times = Predicted(
        candidates, predictions, partial(size_facts.with_given, spec, set(size_facts.given_by_others(spec))),
        effort.tiles,
    )  # fmt: skip

    def add(found: Iterable[Candidate], to: Sequence[int] = ()) -> list[int]:
        """``to`` and the numbers of ``found``, candidates from now on, without what the first one beats."""
        first = len(candidates)
        candidates.extend(c for c in found if not _left_out(c, without))
        return _better(times, [*to, *range(first, len(candidates))])

    members = add(_Family(general, schedules, (), without).candidates())
    divisors = tuple(f for f in size_facts.whole_vectors(spec) if f.size in bounds)
    points = [*_points(spec, _grids(spec, effort.grid, candidates))]
    most = effort.variants(request.variants)
    chosen: list[int] = members
    tree: Dispatch = 0
    if len(members) > 1:
        chosen = kept(times, points, members[0], members[1:], most)
        tree = decision_tree(times, points, chosen, bounds)
    if divisors:
        family = _Family(general, schedules, divisors, without)
        tree = _divided(tree, times, spec, family, chosen, add, most, bounds)
    used = list(dict.fromkeys(x.variant for x in leaves(tree)))
    if used == [0]:
        return None
    tree = renumbered(tree, {n: k for k, n in enumerate(used)})
    made = tuple(_variant(candidates[n], candidates[0].module.name) for n in used)
    rows = tuple(Prediction(p, seconds_at(times, tree, used, p), times.of(0, p)) for p in points)
    return Variants(made, tree, rows)


def _better(times: Predicted, members: Sequence[int]) -> list[int]:
    """The first of ``members`` and those that are faster than it at the sizes for which they were made.

    Where one is faster at other sizes alone, the planner would have found it there if the difference were certain.
    """
    found = [*members[:1]]
    for n in members[1:]:
        made_for = times.candidates[n].made_for
        if not made_for or not times.of(members[0], made_for) <= times.of(n, made_for) < inf:
            found.append(n)
    return found


def _divided(
    tree: Dispatch, times: Predicted, spec: Spec, family: _Family, chosen: Sequence[int],
    add: Callable[..., list[int]], most: int, bounds: Mapping[str, int],
) -> Dispatch:  # fmt: skip
    """``tree`` below a choice for sizes at which the facts of ``family`` hold, where its variants save time there.

    ``add`` makes candidates of them.  Where the first one saves nothing, no access is faster, and there are no others.
    """
    members = add([] if family.first is None else [family.first])
    if not members:
        return tree
    by = {f.size: f.multiple for f in family.facts}
    points = [*_points(spec, _grids(spec, family.schedules.effort.grid, times.candidates, by))]
    before = best(times, points, chosen)
    if before - best(times, points, [*chosen, *members]) < SAVES:
        return tree
    members = add(family.others() if family.schedules.effort.whole else (), members)
    own = kept(times, points, members[0], members[1:], most)
    if before - best(times, points, own) < SAVES:
        return tree
    return Divided(tuple(by.items()), decision_tree(times, points, own, bounds), tree)


def _name(sizes: Point) -> str:
    return "_".join(f"{dim}{size}" for dim, size in sizes.items())


def _variant(c: Candidate, name: str) -> Variant:
    return Variant(c.name, c.schedule, replace(c.module, name=f"{name}_{c.name}"), c.assumed)


class _Schedules:
    """The schedules of the planner at fixed sizes; each is made once."""

    def __init__(self, request: Request, spec: Spec, compile_one: Compile, effort: Effort = WHOLE) -> None:
        self.plain = replace(request, lookup=None, variants=1, until=MA_TILE.name)
        self.spec, self.compile_one, self.effort = spec, compile_one, effort
        self.found = dict[tuple[str, str], Schedule | None]()

    def points(self) -> Iterator[tuple[str, Point]]:
        """The sizes, with their names."""
        grids = [_grids(self.spec, self.effort.planned), *(self._lone() if self.effort.whole else ())]
        if len(grids[0]) == 3:
            first = size_facts.varied(self.spec)[0]
            grids[0][first.name] = _steps(first, self.effort.batches)
        before: Point = {}
        for sizes in (p for g in grids for p in _points(self.spec, g)):
            yield from self._between(before, sizes)
            yield _name(sizes), sizes
            before = sizes

    def _lone(self) -> Iterator[dict[str, list[int]]]:
        """Points beside the grid of two varied dims: one of them small, and the other one not.

        No result has a reduced dim.  A long one may need chunks, and one of a single element needs no plan.
        """
        dims, reduced = size_facts.varied(self.spec), size_facts.reduced(self.spec)
        for small, other in permutations(dims) if len(dims) == 2 else ():
            if small.name not in reduced or other.name in reduced:
                yield {small.name: _steps(small, LONE[:1]), other.name: _steps(other, LONE[1:])}
            if other.name in reduced and small.name not in reduced:
                yield {small.name: _steps(small, BESIDE), other.name: _steps(other, [LONG])}

    def _between(self, low: Point, high: Point) -> Iterator[tuple[str, Point]]:
        """The power of 2 in the middle between two small sizes of the only varied dim whose schedules differ."""
        if not self.effort.whole or len(high) != 1 or len(low) != 1 or max(high.values()) > FEW:
            return
        first, last = (self.fixed(_name(x), x, SCALAR.name) for x in (low, high))
        (dim,) = size_facts.varied(self.spec)
        middle = nearest(dim, 1 << (low[dim.name] * high[dim.name]).bit_length() // 2)
        if first != last and low[dim.name] < middle < high[dim.name]:
            yield from ((_name(p), p) for p in _points(self.spec, {dim.name: [middle]}))

    def fixed(self, name: str, sizes: Point, until: str, refused: tuple[Refusal, ...] = ()) -> Schedule | None:
        """The schedule at ``sizes`` without what ptxas ``refused``, of a compilation to the end of stage ``until``."""
        if (name, until) not in self.found:
            self.found[name, until] = self._made(sizes, until)
        plan = self.found[name, until]
        return plan if plan is None or not is_refused(plan, refused) else self._made(sizes, until, refused)

    def _made(self, sizes: Point, until: str, refused: tuple[Refusal, ...] = ()) -> Schedule | None:
        launched = {d.name for d in self.spec.launch_dims}
        dims = self.plain.dims | {n: x for n, x in size_facts.all_sizes(self.spec, sizes).items() if n in launched}
        known = (*self.plain.refused, *refused)
        fixed = replace(self.plain, dims=dims, keep_runtime=False, verified=False, until=until, refused=known)
        try:
            return self.compile_one(fixed).context.schedule
        except REFUSED:
            return None


REFUSED = (ScheduleError, UnsupportedError, TargetLimitError, DiagnosticError)  # the plan needs fixed sizes


class _Family:
    """The variants under ``facts``, no two of one schedule; the first one is for all sizes at which they hold."""

    def __init__(
        self, general: Result, schedules: _Schedules, facts: tuple[SizeFact, ...], without: Collection[Dropped] = ()
    ) -> None:
        assert general.context.schedule is not None
        self.general, self.schedules, self.facts, self.without = general, schedules, facts, without
        self.spilled = tuple(r for d in without if d.divisors == _divisors(facts) for r in d.refusals)
        self.begin = f"{ALIGNED}_" if facts else ""
        self.first: Candidate | None = Candidate(GENERAL, general.context.schedule, general.modules[MA_TILE.name])
        self.seen: list[tuple[Schedule, tuple[SizeFact, ...]]] = [] if facts else [(general.context.schedule, ())]
        self.refused = list[tuple[Schedule | None, tuple[SizeFact, ...]]]()
        self.chunks = [general.context.schedule.splits]  # those that were tried
        if facts:
            self.first = self._made(ALIGNED)
            if self.first is not None and self.first.module.kernels == general.modules[MA_TILE.name].kernels:
                self.first = None  # no access is wider

    def candidates(self) -> Iterator[Candidate]:
        """All of them; none where ``facts`` change nothing."""
        if self.first is not None:
            yield self.first
            yield from self.others()

    def others(self) -> Iterator[Candidate]:
        """All but the first one, of which there must be one."""
        assert self.first is not None
        scans, effort = size_facts.chunked_scans(self.first.module), self.schedules.effort
        rows = size_facts.below_bounds(self.schedules.spec, self.first.module, effort.some(size_facts.BOUNDS))
        others = [
            *(self._fixed(self.first, name, sizes) for name, sizes in islice(self.schedules.points(), effort.points)),
            *islice(self._bounded(), effort.bounded),
            *(self._made(f"{self.begin}{f.size}_to_{f.most}", (f,)) for f in rows),
            *self._chunked(scans),
            *self._counted(),
        ]
        yield from (c for c in others if c is not None)

    def _chunked(self, scans: Collection[str]) -> Iterator[Candidate | None]:
        """The plans under bounds of numbers of steps, on which chunks depend, also those of equal schedules.

        Where the number of steps is fixed, whether there are chunks depends on the other sizes alone.
        """
        spec = self.schedules.spec
        steps = size_facts.steps(spec)
        if not steps and any(d.recurrence is not None for d in spec.definitions):
            yield from (self._made(f"{self.begin}positions_to_{n}", f, known=False) for n, f in self._positions())
        for d in size_facts.varied(spec):
            among = size_facts.STEPS if d.name in steps else size_facts.SCANS if d.name in scans else ()
            others = [o for o in size_facts.varied(spec) if o.name not in steps] if d.name in steps else []
            few, some = (
                tuple(f for o in others for f in size_facts.bounds(o, (n,))) for n in (FEW_POSITIONS, SOME_POSITIONS)
            )
            yield from (self._made(f"{self.begin}{x}", f, known=False) for x, f in (("few", few), ("some", some)) if f)
            for f in size_facts.bounds(d, self.schedules.effort.some(among)):
                name = f"{self.begin}{d.name}_to_{f.most}_chunked"
                yield self._made(name, (f,), known=d.name not in steps)
                if few and f.most is not None and f.most >= FEW:
                    yield self._made(f"{name}_few", (f, *few), known=False)

    def _positions(self) -> Iterator[tuple[int, tuple[SizeFact, ...]]]:
        """The least of :data:`POSITIONS`, and the greatest one of those with equal kernels; each with its facts."""
        found, given = list[tuple[tuple[Kernel, ...], int, tuple[SizeFact, ...]]](), self.schedules.plain.dims
        for n in POSITIONS:
            facts = tuple(f for d in size_facts.varied(self.schedules.spec) for f in size_facts.bounds(d, (n,)))
            if not facts or any(f.size in given and not f.holds(given[f.size]) for f in facts):
                continue
            if n == POSITIONS[0]:
                yield n, facts
            plain = replace(self.schedules.plain, until=SCALAR.name, verified=False)
            program = self.schedules.compile_one(replace(plain, assumed=(*self.facts, *facts))).modules[SCALAR.name]
            found = [x for x in found if x[0] != program.kernels] + [(program.kernels, n, facts)]
        yield from ((n, facts) for _, n, facts in found if n != POSITIONS[0])

    def _counted(self) -> Iterator[Candidate | None]:
        """The plan under bounds of sizes below which axes collapse."""
        spec = self.schedules.spec
        facts = size_facts.counted(spec, [d.name for d in size_facts.varied(spec)])
        if facts:
            yield self._made(f"{self.begin}counted", facts)

    def _compiled(
        self, name: str, schedule: Schedule | None, more: tuple[SizeFact, ...] = (), made_for: Point | None = None,
        known: bool = True,
    ) -> Candidate | None:  # fmt: skip
        """The variant of ``schedule``; None where it is refused, or one that is ``known`` has an equal schedule.

        Without a schedule, the planner does not make the plans again that ptxas refused under this ``name``.
        """
        assumed, plain = (*self.facts, *more), self.schedules.plain
        refused = [r for d in self.without if schedule is None and d.name == name for r in d.refusals]
        request = replace(plain, schedule=schedule, assumed=assumed, refused=(*plain.refused, *refused))
        result = self.schedules.compile_one(request)
        own, module = result.context.schedule, result.modules[MA_TILE.name]
        if own is None or (known and any(own == other and set(f) <= set(assumed) for other, f in self.seen)):
            return None
        check_resources(module, replace(result.context, fallbacks=self.general.context.fallbacks))
        self.seen.append((own, assumed))
        return Candidate(name, own, module, assumed, made_for or {})

    def _made(self, name: str, more: tuple[SizeFact, ...] = (), known: bool = True) -> Candidate | None:
        """The plan at runtime sizes under the facts ``more``; None as in :meth:`_compiled`."""
        try:
            return self._compiled(name, None, more, known=known)
        except REFUSED:
            return None

    def _fixed(self, first: Candidate, name: str, sizes: Point) -> Candidate | None:
        """A plan that is refused at runtime sizes may be refused at fixed ones too, where another one follows.

        It is refused as well where the program has other definitions at these sizes, or a kernel of it a tile as long
        as a row; its chunks of reductions may be legal then, with the plans of kernels that the program has too.
        """
        tried: Schedule | None = None
        for until in (SCALAR.name, MA_TILE.name):
            plan = self.schedules.fixed(name, sizes, until, self.spilled)
            if any(plan == s and set(f) <= set(self.facts) for s, f in self.seen):
                return None
            if plan is None or plan == tried:
                break
            try:
                return self._compiled(self.begin + name, plan, made_for=sizes)
            except REFUSED:
                tried = plan
        below, found = _below(self.schedules.spec, sizes), None
        self.refused.append((tried, below))
        own = None if below or tried is None else _grafted(first.schedule, tried)
        if tried is not None and tried.splits and tried.splits not in self.chunks:
            self.chunks.append(tried.splits)
            own = Schedule(splits=tried.splits)
        try:
            found = None if own is None else self._compiled(self.begin + name, own, made_for=sizes)
            again = None if found is None or tried is None else _grafted(found.schedule, tried)
            return found if again is None else self._compiled(self.begin + name, again, made_for=sizes) or found
        except REFUSED:
            return found

    def _bounded(self) -> Iterator[Candidate | None]:
        """The plans at runtime sizes under the bounds of the refused ones.  Of one plan, the largest bounds suffice."""
        known = list[tuple[Schedule, dict[str, int]]]()
        for plan, more in sorted(self.refused, key=lambda r: _share(r[1]), reverse=True):
            most = {f.size: f.most for f in more if f.most is not None}
            legal = all(f.multiple <= most.get(f.size, f.multiple) for f in self.facts)
            beyond = any(p == plan and all(most.get(x, inf) <= n for x, n in m.items()) for p, m in known)
            if more and legal and not beyond:
                known += [] if plan is None else [(plan, most)]
                yield self._made(self.begin + "_".join(f"{x}_to_{n}" for x, n in most.items()), more)


def _share(below: Sequence[SizeFact]) -> float:
    """The sizes under the bounds ``below``, as a share of those up to the nominal ones."""
    return prod((f.most or NOMINAL) / NOMINAL for f in below)


def _grafted(own: Schedule, other: Schedule) -> Schedule | None:
    """``own`` with the plans of ``other`` for equal kernels whose whole axes have tiles as long; None without any."""

    def planned(k: KernelPlan) -> object:
        return k.name, k.ops, k.phases, [(a.name, a.role, a.tile if a.role == "tile" else 0) for a in k.axes]

    plans = {k.name: o for o in other.kernels for k in own.kernels if planned(o) == planned(k)}
    made = replace(own, kernels=tuple(plans.get(k.name, k) for k in own.kernels))
    return None if made == own else made


def _below(spec: Spec, sizes: Point) -> tuple[SizeFact, ...]:
    """Those of ``sizes`` as bounds that are below the nominal ones."""
    dims = {d.name: d for d in size_facts.varied(spec)}
    return tuple(SizeFact(n, size) for n, size in sizes.items() if size < nearest(dims[n], NOMINAL))


def _grids(
    spec: Spec, sizes: Mapping[int, Sequence[int]], candidates: Sequence[Candidate] = (),
    divisors: Mapping[str, int] | None = None,
) -> dict[str, list[int]]:  # fmt: skip
    """The allowed sizes of the varied dims that are nearest to ``sizes`` and to the bounds of ``candidates``.

    Without those bounds where they make more than :data:`MOST_POINTS`: thresholds are placed between sizes anyway.
    """
    dims = size_facts.varied(spec)
    found, terms = dict[str, list[int]](), set[str]()
    if candidates and size_facts.scattered_to(candidates[0].module):
        terms = size_facts.reduced(spec)
    for d in dims:
        by = (divisors or {}).get(d.name, 1)
        dim = replace(d, multiple=lcm(by, d.multiple))
        own = {f.most for c in candidates for f in c.assumed if f.size == d.name and f.most is not None}
        found[d.name] = _steps(dim, [*sizes[len(dims)], *own, *(MANY_TERMS if d.name in terms else ())])
    if candidates and prod(map(len, found.values())) > MOST_POINTS:
        return _grids(spec, sizes, (), divisors)
    return found


def _points(spec: Spec, grids: Mapping[str, Sequence[int]]) -> Iterator[Point]:
    """The sizes of ``grids`` that the facts of ``spec`` allow."""
    for found in product(*grids.values()):
        here = dict(zip(grids, found, strict=True))
        known = size_facts.all_sizes(spec, here)
        if all(holds(f, known) is not False for f in spec.facts):
            yield here


def _steps(dim: Dim, sizes: Sequence[int]) -> list[int]:
    """The allowed sizes of ``dim`` that are nearest to ``sizes``, but none without elements."""
    return sorted({n for size in sizes if (n := nearest(dim, size)) > 0})


def _unaligned(
    request: Request, spec: Spec, name: str, compile_one: Callable[[Request], Result], without: Collection[Dropped] = ()
) -> Variant | None:  # fmt: skip
    """The variant for any strides and addresses; None where no tensor has strides with a promise about them.

    Nor is there one where ptxas refused the plans of two: the launcher then demands what the others promise.
    """
    if request.unaligned or not any(p.multiple > 1 for p in spec.stride_params):
        return None
    before = [d for d in without if d.name == UNALIGNED]
    if len(before) > 1:
        return None
    refused = (*request.refused, *(r for d in before for r in d.refusals))
    plain = replace(request, lookup=None, variants=1, until=MA_TILE.name, refused=refused)
    made = compile_one(replace(plain, unaligned=True, verified_later=False))
    assert made.context.schedule is not None
    return _variant(Candidate(UNALIGNED, made.context.schedule, made.modules[MA_TILE.name]), name)
