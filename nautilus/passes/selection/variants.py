"""Variants of a compilation with runtime sizes, and the dispatch among them, by the cost model.

One schedule does not serve all sizes: few rows leave multiprocessors idle unless a long reduction is split, many rows
need large tiles, and a short row stays in registers.  A *variant* is the whole spec under one schedule.  Its sizes stay
runtime sizes.  It is right at every size at which its facts hold, and most variants have none.

1. The planner plans the spec at a few fixed sizes (:data:`PLANNED`).  Each schedule that it finds is applied to the
   spec with runtime sizes; one that is refused there is dropped.  The planner also plans the spec with runtime sizes
   under bounds (:mod:`.size_facts`).
2. The cost model predicts every variant on a grid of sizes (:data:`GRID`), and :mod:`.dispatch_tree` makes a tree.
3. Where rows are whole vectors only at some sizes, and the kernels differ under that fact, the first two steps are done
   again under it; the launcher tests first whether it holds.

All dims beyond the first :data:`VARIED` have their nominal sizes meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import lcm

from nautilus.core.errors import AssemblerError, DiagnosticError, ScheduleError, TargetLimitError, UnsupportedError
from nautilus.core.index.sizes import MAX_DIM, NOMINAL
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.core.schedule.dispatch import Dispatch, Divided, SizeFact, leaves, renumbered
from nautilus.frontend.sizes import holds, nearest
from nautilus.frontend.spec import Dim, Spec
from nautilus.passes.attempts import check_resources
from nautilus.passes.compilation import Prediction, Refusal, Request, Result, Variant, Variants
from nautilus.passes.pipelines import MA_TILE, SCALAR
from nautilus.passes.selection import size_facts
from nautilus.passes.selection.assembly import is_refused, refusal
from nautilus.passes.selection.dispatch_tree import SAVES, Candidate, Point, Predicted, best, decision_tree, kept

VARIED = 3  # dims whose sizes vary
#: number of varied dims -> sizes for which the planner makes schedules, along each of them
PLANNED = {1: (16, 64, 256, 1024, 4096, 16384), 2: (16, 256, 4096), 3: (16, 2048)}
#: number of varied dims -> sizes at which variants are compared, along each of them
GRID = {
    1: (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 1 << 20),
    2: (1, 16, 64, 256, 2048, 16384),
    3: (1, 32, 512, 8192),
}
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
        """Whether ``c`` is that variant, or has its plan.  The plan of the general variant was accepted before."""
        same = c.name != GENERAL and _divisors(c.assumed) == self.divisors and is_refused(c.schedule, self.refusals)
        return same or c.name == self.name


def dropped_by(v: Variant, kernel: str) -> Iterator[Dropped]:
    """``v``, if ``kernel`` is one of its kernels, which ptxas refused."""
    name = kernel.removeprefix(f"{v.module.name}.")
    if name != kernel:
        error = AssemblerError("ptxas refused it for a variant", kernel=name)
        yield Dropped(v.name, _divisors(v.assumed), refusal(error, v.schedule))


def _divisors(facts: Iterable[SizeFact]) -> frozenset[SizeFact]:
    return frozenset(f for f in facts if f.multiple > 1)


def find(request: Request, general: Result, compile_one: Compile, without: Collection[Dropped] = ()) -> Variants | None:
    """The variants of ``general``, the result of ``request``; None where it serves all sizes and strides.

    ``compile_one`` runs the passes to the end of MA-tile IR, or of Scalar IR.  ``without``: what failed later.
    """
    spec: Spec | None = general.modules.get("spec")
    if request.variants < 2 or spec is None or request.schedule is not None or general.context.schedule is None:
        return None
    sized = None if general.tuned or not spec.launch_dims else _sized(request, general, spec, compile_one, without)
    whole = Candidate(GENERAL, general.context.schedule, general.modules[MA_TILE.name])
    own = _unaligned(request, spec, whole.module.name, compile_one)
    if own is None:
        return sized
    if sized is None:
        sized = Variants((_variant(whole, whole.module.name),), 0, ())
    return replace(sized, unaligned=own)


def _sized(
    request: Request, general: Result, spec: Spec, compile_one: Compile, without: Collection[Dropped]
) -> Variants | None:
    """The variants by sizes; None where one schedule serves all of them."""
    schedules = _Schedules(replace(request, refused=general.refused), spec, compile_one)
    divisors = size_facts.whole_vectors(spec)
    families = [(), *([divisors] if divisors else [])]
    candidates, members = list[Candidate](), list[list[int]]()
    for facts in families:
        found = [c for c in _candidates(general, schedules, facts) if not any(d.has(c) for d in without)]
        members.append([*range(len(candidates), len(candidates) + len(found))])
        candidates += found
    if len(candidates) < 2:
        return None
    times = Predicted(candidates, request.arch)
    points = [*_points(spec, _grids(spec, GRID, candidates))]
    bounds = {d.name: d.bound or MAX_DIM for d in spec.launch_dims[:VARIED]}
    chosen = kept(times, points, 0, members[0][1:], request.variants)
    tree = decision_tree(times, points, chosen, bounds)
    if divisors and members[1]:
        tree = _divided(tree, times, spec, divisors, chosen, members[1], request.variants, bounds)
    used = list(dict.fromkeys(x.variant for x in leaves(tree)))
    if used == [0]:
        return None
    tree = renumbered(tree, {n: k for k, n in enumerate(used)})
    made = tuple(_variant(candidates[n], candidates[0].module.name) for n in used)
    rows = tuple(Prediction(p, tuple(times.of(n, p) for n in used), times.of(0, p)) for p in points)
    return Variants(made, tree, rows)


def _divided(
    tree: Dispatch, times: Predicted, spec: Spec, facts: Sequence[SizeFact], chosen: Sequence[int],
    members: Sequence[int], most: int, bounds: Mapping[str, int],
) -> Dispatch:  # fmt: skip
    """``tree`` below a choice for sizes at which ``facts`` hold, where the variants ``members`` save time there."""
    by = {f.size: f.multiple for f in facts}
    points = [*_points(spec, _grids(spec, GRID, times.candidates, by))]
    start = min(members, key=lambda n: sum(times.log(n, p) for p in points))
    if any(times.most(start, d) < most_ for d, most_ in bounds.items()):
        start = members[0]
    own = kept(times, points, start, [n for n in members if n != start], most)
    if best(times, points, chosen) - best(times, points, own) < SAVES:
        return tree
    return Divided(tuple(by.items()), decision_tree(times, points, own, bounds), tree)


def _variant(c: Candidate, name: str) -> Variant:
    return Variant(c.name, c.schedule, replace(c.module, name=f"{name}_{c.name}"), c.assumed)


class _Schedules:
    """The schedules of the planner at fixed sizes; each is made once."""

    def __init__(self, request: Request, spec: Spec, compile_one: Compile) -> None:
        self.plain = replace(request, lookup=None, variants=1, until=MA_TILE.name)
        self.spec, self.compile_one = spec, compile_one
        self.found = dict[tuple[str, str], Schedule | None]()

    def points(self) -> Iterator[tuple[str, Point]]:
        """The sizes, with their names."""
        for sizes in _points(self.spec, _grids(self.spec, PLANNED)):
            yield "_".join(f"{dim}{size}" for dim, size in sizes.items()), sizes

    def fixed(self, name: str, sizes: Point, until: str) -> Schedule | None:
        """The schedule at ``sizes``, of a compilation to the end of stage ``until``, which must not refuse it."""
        if (name, until) not in self.found:
            self.found[name, until] = self._made(sizes, until)
        return self.found[name, until]

    def _made(self, sizes: Point, until: str) -> Schedule | None:
        rest = {d.name: nearest(d, NOMINAL) for d in self.spec.launch_dims if d.name not in sizes}
        dims = {**self.plain.dims, **rest, **sizes}
        fixed = replace(self.plain, dims=dims, keep_runtime=False, verified=False, until=until)
        try:
            return self.compile_one(fixed).context.schedule
        except REFUSED:
            return None


REFUSED = (ScheduleError, UnsupportedError, TargetLimitError, DiagnosticError)  # the plan needs fixed sizes


def _candidates(general: Result, schedules: _Schedules, facts: tuple[SizeFact, ...]) -> Iterator[Candidate]:
    """The variants under ``facts``, no two of one schedule; the first one is for all sizes at which they hold."""
    assert general.context.schedule is not None
    begin = f"{ALIGNED}_" if facts else ""
    seen = list[tuple[Schedule, tuple[SizeFact, ...]]]()

    def compiled(name: str, schedule: Schedule | None, more: tuple[SizeFact, ...] = ()) -> Candidate | None:
        assumed = (*facts, *more)
        result = schedules.compile_one(replace(schedules.plain, schedule=schedule, assumed=assumed))
        own, module = result.context.schedule, result.modules[MA_TILE.name]
        if own is None or any(own == other and set(f) <= set(assumed) for other, f in seen):
            return None
        check_resources(module, replace(result.context, fallbacks=general.context.fallbacks))
        seen.append((own, assumed))
        return Candidate(name, own, module, assumed)

    def made(name: str, more: tuple[SizeFact, ...] = ()) -> Candidate | None:
        try:
            return compiled(name, None, more)
        except REFUSED:
            return None

    def fixed(name: str, sizes: Point) -> Candidate | None:
        """A plan that is refused at runtime sizes may be refused at fixed ones too, where another one follows."""
        tried: Schedule | None = None
        for until in (SCALAR.name, MA_TILE.name):
            plan = schedules.fixed(name, sizes, until)
            if plan is None or plan == tried or any(plan == s for s, _ in seen):
                return None
            try:
                return compiled(begin + name, plan)
            except REFUSED:
                tried = plan
        return None

    first = Candidate(GENERAL, general.context.schedule, general.modules[MA_TILE.name])
    if facts:
        found = made(ALIGNED)
        if found is None or found.module.kernels == general.modules[MA_TILE.name].kernels:  # no access is wider
            return
        first = found
    else:
        seen.append((first.schedule, ()))
    yield first
    rules = (size_facts.read_again, size_facts.whole_rows, size_facts.chunked_scans)
    rows = frozenset[str]().union(*(rule(first.module) for rule in rules))
    short = [d for d in schedules.spec.launch_dims[:VARIED] if d.name in rows]
    others = [
        *(fixed(name, sizes) for name, sizes in schedules.points()),
        *(made(f"{begin}{d.name}_to_{f.most}", (f,)) for d in short for f in size_facts.bounds(d)),
    ]
    yield from (c for c in others if c is not None)


def _grids(
    spec: Spec, sizes: Mapping[int, Sequence[int]], candidates: Sequence[Candidate] = (),
    divisors: Mapping[str, int] | None = None,
) -> dict[str, list[int]]:  # fmt: skip
    """The allowed sizes of the varied dims that are nearest to ``sizes`` and to the bounds of ``candidates``."""
    varied = spec.launch_dims[:VARIED]
    found = dict[str, list[int]]()
    for d in varied:
        by = (divisors or {}).get(d.name, 1)
        dim = replace(d, multiple=lcm(by, d.multiple))
        own = {f.most for c in candidates for f in c.assumed if f.size == d.name and f.most is not None}
        found[d.name] = _steps(dim, [*sizes[len(varied)], *own])
    return found


def _points(spec: Spec, grids: Mapping[str, Sequence[int]]) -> Iterator[Point]:
    """The sizes of ``grids`` that the facts of ``spec`` allow."""
    for found in product(*grids.values()):
        here = dict(zip(grids, found, strict=True))
        known = {d.name: nearest(d, NOMINAL) for d in spec.runtime_dims} | here
        if all(holds(f, known) is not False for f in spec.facts):
            yield here


def _steps(dim: Dim, sizes: Sequence[int]) -> list[int]:
    """The allowed sizes of ``dim`` that are nearest to ``sizes``, but none without elements."""
    return sorted({n for size in sizes if (n := nearest(dim, size)) > 0})


def _unaligned(request: Request, spec: Spec, name: str, compile_one: Callable[[Request], Result]) -> Variant | None:
    """The variant for any strides and addresses; None where no tensor has strides with a promise about them."""
    if request.unaligned or not any(p.multiple > 1 for p in spec.stride_params):
        return None
    made = compile_one(
        replace(request, lookup=None, variants=1, until=MA_TILE.name, unaligned=True, verified_later=False)
    )
    assert made.context.schedule is not None
    return _variant(Candidate(UNALIGNED, made.context.schedule, made.modules[MA_TILE.name]), name)
