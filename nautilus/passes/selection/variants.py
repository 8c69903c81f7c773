"""Variants of a compilation with runtime sizes, and the dispatch among them, by the cost model.

One schedule does not serve all sizes: few rows leave multiprocessors idle unless a long reduction is split, and many
rows want large tiles.  A *variant* is the whole spec under one schedule.  Its sizes stay runtime sizes, so every
variant is right at every size, and the choice is a matter of speed alone.

1. The planner plans the spec at a few fixed sizes (:data:`PLANNED`).  Each schedule that it finds is applied to the
   spec with runtime sizes; one that is refused there is dropped.
2. The cost model predicts every variant on a grid of sizes (:data:`GRID`).  Variants join the chosen ones in the order
   of what they save, up to the number that the request allows, as long as one saves :data:`SAVES` at some size.
3. A decision tree over the sizes separates those at which different variants win.  With one varied dim, further
   predictions place each threshold between two points of the grid.

All dims beyond the first :data:`VARIED` have their nominal sizes meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import exp, log
from typing import TypeAlias

from nautilus.core.errors import DiagnosticError, ScheduleError, TargetLimitError, UnsupportedError
from nautilus.core.index.sizes import NOMINAL
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.core.schedule.dispatch import Dispatch, Threshold, compared, leaves, renumbered
from nautilus.cost.model import estimate
from nautilus.frontend.sizes import holds, nearest
from nautilus.frontend.spec import Dim, Spec
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.rewriting.at_sizes import at_sizes
from nautilus.passes.attempts import check_resources
from nautilus.passes.compilation import Prediction, Request, Result, Variant, Variants

VARIED = 3  # dims whose sizes vary
#: number of varied dims -> sizes for which the planner makes schedules, along each of them
PLANNED = {1: (16, 64, 256, 1024, 4096, 16384), 2: (16, 256, 4096), 3: (16, 2048)}
#: number of varied dims -> sizes at which variants are compared, along each of them
GRID = {
    1: (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536),
    2: (1, 16, 64, 256, 2048, 16384),
    3: (1, 32, 512, 8192),
}
LEVELS = 3  # thresholds one below the other in the decision tree
SAVES = 0.1  # least logarithm of the ratio of times that a variant or a threshold saves, summed over the grid
FINE = 16  # a threshold is found to one part in so many of the next size of the grid
GENERAL = "general"  # name of the variant that a compilation without variants would have
UNALIGNED = "unaligned"

Point: TypeAlias = "Mapping[str, int]"  # sizes of the varied dims


@dataclass(frozen=True)
class Candidate:
    """A schedule that is legal at every size. ``name``: the sizes for which the planner made it."""

    name: str
    schedule: Schedule
    module: MemModule


def find(
    request: Request, general: Result, compile_one: Callable[[Request], Result], without: Collection[str] = ()
) -> Variants | None:
    """The variants of ``general``, the result of ``request``; None where it serves all sizes and strides.

    ``compile_one`` runs the passes to the end of MA-tile IR.  ``without``: names of variants that failed later.
    """
    spec: Spec | None = general.modules.get("spec")
    if request.variants < 2 or spec is None or request.schedule is not None or general.context.schedule is None:
        return None
    sized = None if general.tuned or not spec.runtime_dims else _sized(request, general, spec, compile_one, without)
    whole = Candidate(GENERAL, general.context.schedule, general.modules["ma-tile"])
    own = _unaligned(request, spec, whole.module.name, compile_one)
    if own is None:
        return sized
    if sized is None:
        sized = Variants((_variant(whole, whole.module.name),), 0, ())
    return replace(sized, unaligned=own)


def _sized(
    request: Request, general: Result, spec: Spec, compile_one: Callable[[Request], Result], without: Collection[str]
) -> Variants | None:
    """The variants by sizes; None where one schedule serves all of them."""
    candidates = _candidates(request, general, spec, compile_one, without)
    if len(candidates) < 2:
        return None
    points = [*_points(spec, GRID)]
    times = _Times(candidates, request.arch)
    kept = _kept(times, points, request.variants)
    _, tree = _tree(times, points, kept)
    if len(points) > 1 and len(points[0]) == 1:
        tree = _refined(tree, times, points)
    used = list(dict.fromkeys(n for _, n in leaves(tree)))
    if used == [0]:
        return None
    tree = renumbered(tree, {n: k for k, n in enumerate(used)})
    made = tuple(_variant(candidates[n], candidates[0].module.name) for n in used)
    rows = tuple(Prediction(p, tuple(times.of(n, p) for n in used), times.of(0, p)) for p in points)
    return Variants(made, tree, rows)


def _variant(c: Candidate, name: str) -> Variant:
    return Variant(c.name, c.schedule, replace(c.module, name=f"{name}_{c.name}"))


def _candidates(
    request: Request, general: Result, spec: Spec, compile_one: Callable[[Request], Result], without: Collection[str]
) -> list[Candidate]:
    """The general variant and all others, no two of one schedule."""
    assert general.context.schedule is not None
    found = [Candidate(GENERAL, general.context.schedule, general.modules["ma-tile"])]
    seen = {general.context.schedule}
    plain = replace(request, lookup=None, variants=1, until="ma-tile")
    for sizes in _points(spec, PLANNED):
        name = "_".join(f"{dim}{size}" for dim, size in sizes.items())
        rest = {d.name: nearest(d, NOMINAL) for d in spec.runtime_dims if d.name not in sizes}
        fixed = replace(plain, dims={**request.dims, **rest, **sizes}, keep_runtime=False)
        try:
            schedule = compile_one(fixed).context.schedule
            if schedule is None or schedule in seen:
                continue
            seen.add(schedule)
            made = compile_one(replace(plain, schedule=schedule))
            check_resources(made.modules["ma-tile"], replace(made.context, fallbacks=general.context.fallbacks))
        except (ScheduleError, UnsupportedError, TargetLimitError, DiagnosticError):
            continue  # the plan needs a fixed size
        if name not in without:
            found.append(Candidate(name, schedule, made.modules["ma-tile"]))
    return found


def _points(spec: Spec, sizes: Mapping[int, Sequence[int]]) -> Iterator[Point]:
    """Allowed sizes of the varied dims."""
    varied = spec.runtime_dims[:VARIED]
    steps = [_steps(d, sizes[len(varied)]) for d in varied]
    for found in product(*steps):
        here = {d.name: n for d, n in zip(varied, found, strict=True)}
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
    made = compile_one(replace(request, lookup=None, variants=1, until="ma-tile", unaligned=True))
    assert made.context.schedule is not None
    return _variant(Candidate(UNALIGNED, made.context.schedule, made.modules["ma-tile"]), name)


class _Times:
    """Predicted seconds of every candidate at any sizes."""

    def __init__(self, candidates: Sequence[Candidate], arch: str) -> None:
        self.candidates, self.arch = candidates, arch
        self.known = dict[tuple[int, tuple[int, ...]], float]()

    def of(self, n: int, sizes: Point) -> float:
        return exp(self.log(n, sizes))

    def log(self, n: int, sizes: Point) -> float:
        key = (n, tuple(sizes.values()))
        if key not in self.known:
            self.known[key] = log(estimate(at_sizes(self.candidates[n].module, sizes), self.arch).seconds)
        return self.known[key]

    def logs(self, n: int, points: Sequence[Point]) -> float:
        return sum(self.log(n, p) for p in points)

    def best(self, kept: Sequence[int], points: Sequence[Point]) -> float:
        return sum(min(self.log(n, p) for n in kept) for p in points)


def _kept(times: _Times, points: Sequence[Point], most: int) -> list[int]:
    """At most ``most`` candidates, the general one among them, in the order in which they were found."""
    kept, rest = [0], list(range(1, len(times.candidates)))
    while rest and len(kept) < most:
        now, after = times.best(kept, points), {c: times.best((*kept, c), points) for c in rest}
        best = min(rest, key=lambda c: after[c])
        if now - after[best] < SAVES:
            break
        kept.append(best)
        rest.remove(best)
    return sorted(kept)


def _tree(times: _Times, points: Sequence[Point], kept: Sequence[int], levels: int = LEVELS) -> tuple[float, Dispatch]:
    """The best decision tree of at most ``levels`` thresholds one below the other, whose thresholds are ``points``.

    Its cost is the sum of the logarithms of all times, and :data:`SAVES` for each threshold.
    """
    best: tuple[float, Dispatch] = min((times.logs(n, points), n) for n in kept)
    least = times.best(kept, points)
    for name, most in _cuts(points) if levels else ():
        if best[0] - least <= SAVES:
            break  # no threshold can be worth its cost
        sides = [[p for p in points if (p[name] <= most) == side] for side in (True, False)]
        (a, within), (b, beyond) = (_tree(times, side, kept, levels - 1) for side in sides)
        if a + b + SAVES < best[0]:
            best = a + b + SAVES, Threshold(name, most, within, beyond)
    return best


def _cuts(points: Sequence[Point]) -> Iterator[tuple[str, int]]:
    """Every way to cut ``points`` in two parts by one size: the size, and its greatest value in the first part."""
    for name in points[0]:
        yield from ((name, most) for most in sorted({p[name] for p in points})[:-1])


def _refined(tree: Dispatch, times: _Times, points: Sequence[Point]) -> Dispatch:
    """``tree`` over one size, with each threshold where the variants of its two sides are predicted to be equal."""
    if isinstance(tree, int):
        return tree
    (name,) = compared(tree)
    grid = sorted(p[name] for p in points)
    low, high = tree.most, grid[grid.index(tree.most) + 1]
    a, b = [n for _, n in leaves(tree.within)][-1], next(n for _, n in leaves(tree.beyond))
    step = max(1, high // FINE)
    while high - low > step:
        middle = (low + high) // 2 // step * step
        middle = middle if low < middle < high else (low + high) // 2
        if times.of(a, {name: middle}) <= times.of(b, {name: middle}):
            low = middle
        else:
            high = middle
    return Threshold(name, low, _refined(tree.within, times, points), _refined(tree.beyond, times, points))
