"""The decision tree over sizes that chooses among variants, by predicted times.

A variant is legal at some sizes only (:mod:`nautilus.core.schedule.dispatch`).  Its predicted time is infinite at other
ones, and a leaf has a variant only if the bounds of its path keep all sizes within those of the variant.  A tree has
the cost of the sum of the logarithms of all times, and :data:`COMPARES` for each threshold.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice, product
from math import exp, inf, log
from typing import Protocol, TypeAlias

from nautilus.core.index.sizes import MAX_DIM
from nautilus.core.records import dataclass
from nautilus.core.records.memo import Same
from nautilus.core.schedule import Schedule
from nautilus.core.schedule.dispatch import Dispatch, SizeFact, Threshold, chosen, compared, leaves
from nautilus.cost.model import KernelEstimate, estimate, together
from nautilus.cost.registers import estimate_registers
from nautilus.cost.work import MOST_TILES
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.rewriting.at_sizes import at_sizes, sizes_of
from nautilus.passes.manager import divided
from nautilus.targets.limits import limits

LEVELS = 4  # thresholds one below the other in the decision tree
SAVES = 0.1  # least logarithm of the ratio of times that a variant saves, summed over the grid
COMPARES = 0.03  # the same for a threshold, which is one comparison on the host
FAR = 0.5  # logarithm of the ratio of times, beyond which a candidate is not predicted at sizes further away
NEAR = 8  # times a size of the grid, the next one up to which thresholds are placed in factors of 2; else of 4
FINE = 16  # a threshold is found to within 1 / FINE of the next size of the grid

Point: TypeAlias = "Mapping[str, int]"  # sizes of the varied dims


@dataclass(frozen=True)
class Candidate:
    """A schedule that is legal at every size at which ``assumed`` holds.

    ``name``: the sizes for which the planner made it, ``made_for`` as numbers; empty for ranges of sizes.
    """

    name: str
    schedule: Schedule
    module: MemModule
    assumed: tuple[SizeFact, ...] = ()
    made_for: Point = field(default_factory=dict)

    def holds(self, sizes: Point) -> bool:
        """Whether the variant is legal at ``sizes``."""
        return all(f.size not in sizes or f.holds(sizes[f.size]) for f in self.assumed)


class Times(Protocol):
    """Predicted times of candidates, by their numbers."""

    def of(self, n: int, sizes: Point) -> float:
        """Seconds of candidate ``n`` at ``sizes``; inf where it is not legal."""
        ...

    def log(self, n: int, sizes: Point) -> float:
        """The logarithm of these seconds."""
        ...

    def compared(self, n: int, sizes: Point) -> float:
        """The same, where it was asked for before; inf elsewhere."""
        ...

    def most(self, n: int, size: str) -> int:
        """The largest value of ``size`` at which candidate ``n`` is legal."""
        ...

    def made_for(self, n: int) -> Point:
        """The sizes for which the planner made candidate ``n``; empty for ranges of sizes."""
        ...


class Predictions:
    """Predictions for kernels at any sizes, each of which is made once.

    Candidates have kernels in common, and the next choice among them, without those that ptxas refused, has the others.
    """

    def __init__(self, arch: str) -> None:
        self.arch = arch
        self._equal = dict[Same, Same]()
        self._first = dict[str, list[Same]]()
        self._registers = dict[Same, int]()
        self._known = dict[tuple[Same, int, tuple[tuple[str, int], ...]], KernelEstimate]()

    def seconds(self, module: MemModule, sizes: Point, tiles: int = MOST_TILES) -> float:
        """Predicted seconds of ``module`` at ``sizes``, by the first ``tiles`` of each kernel."""
        return together((self._kernel(alone, sizes, tiles) for alone in divided(module).alone), self.arch).seconds

    def _kernel(self, alone: MemModule, sizes: Point, tiles: int) -> KernelEstimate:
        """The estimate of the only kernel of ``alone``."""
        same, named = self._first_equal(alone), sizes_of(alone)
        own = {name: size for name, size in sizes.items() if name in named}
        key = (same, tiles, tuple(own.items()))
        if key not in self._known:
            if same not in self._registers:
                self._registers[same] = estimate_registers(alone.kernels[0], limits(self.arch))
            (self._known[key],) = estimate(at_sizes(alone, own), self.arch, (self._registers[same],), tiles).kernels
        return self._known[key]

    def _first_equal(self, alone: MemModule) -> Same:
        """The first module equal to ``alone``; their facts about sizes may differ, and do not matter at given sizes."""
        same = Same(alone)
        if same not in self._equal:
            known = self._first.setdefault(alone.kernels[0].name, [])
            found = next((x for x in known if x.value == alone), None)
            if found is None:
                known.append(found := same)
            self._equal[same] = found
        return self._equal[same]


class Predicted:
    """Predicted seconds of every candidate at any sizes; infinite where it is not legal.

    ``whole``: the sizes of a point with those of other dims that follow from them.  ``tiles`` of each kernel are
    evaluated.
    """

    def __init__(
        self, candidates: Sequence[Candidate], predictions: Predictions, whole: Callable[[Point], Point] = dict,
        tiles: int = MOST_TILES,
    ) -> None:  # fmt: skip
        self.candidates, self.predictions, self.whole, self.tiles = candidates, predictions, whole, tiles
        self.known = dict[tuple[int, tuple[int, ...]], float]()

    def of(self, n: int, sizes: Point) -> float:
        """Seconds of candidate ``n`` at ``sizes``; inf where it is not legal."""
        return exp(self.log(n, sizes))

    def log(self, n: int, sizes: Point) -> float:
        """The logarithm of these seconds."""
        key = (n, tuple(sizes.values()))
        if key not in self.known:
            c = self.candidates[n]
            holds = c.holds(sizes)
            self.known[key] = log(self.predictions.seconds(c.module, self.whole(sizes), self.tiles)) if holds else inf
        return self.known[key]

    def compared(self, n: int, sizes: Point) -> float:
        """The same, where it was asked for before; inf elsewhere."""
        return self.known.get((n, tuple(sizes.values())), inf)

    def most(self, n: int, size: str) -> int:
        """The largest value of ``size`` at which candidate ``n`` is legal."""
        found = [f.most for f in self.candidates[n].assumed if f.size == size and f.most is not None]
        return min(found, default=MAX_DIM)

    def made_for(self, n: int) -> Point:
        """The sizes for which the planner made candidate ``n``; empty for ranges of sizes."""
        return self.candidates[n].made_for


class _Neighbours:
    """The points of a grid of sizes, by their numbers, with those next to each along every dim."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.names = tuple(points[0])
        self.numbers = {tuple(p.values()): n for n, p in enumerate(points)}
        self.at = list(self.numbers)
        self.along = [sorted(set(sizes)) for sizes in zip(*self.at, strict=True)]

    def around(self, sizes: Point) -> list[int]:
        """The points whose sizes are the next ones to ``sizes`` in both directions."""
        ends = []
        for along, size in zip(self.along, map(sizes.__getitem__, self.names), strict=True) if sizes else ():
            k = bisect_left(along, size)
            ends.append({along[min(k, len(along) - 1)], along[max(0, k - 1)]})
        return [self.numbers[at] for at in product(*ends) if at in self.numbers]

    def ends(self, times: Times, c: int) -> list[int]:
        """The points with the largest or least sizes at which candidate ``c`` is legal, along each dim with a bound."""
        most = [min(times.most(c, name), along[-1]) for name, along in zip(self.names, self.along, strict=True)]
        last = [along[bisect_right(along, m) - 1] for along, m in zip(self.along, most, strict=True)]
        bounded = [k for k, along in enumerate(self.along) if last[k] < along[-1]]
        found = [n for n, at in enumerate(self.at) if all(at[k] in (last[k], self.along[k][0]) for k in bounded)]
        return found or [*self.numbers.values()]

    def next_to(self, n: int) -> Iterator[int]:
        """The points next to point ``n``: one in either direction along each dim."""
        at = self.at[n]
        for axis, along in enumerate(self.along):
            k = along.index(at[axis])
            for sizes in (along[k + 1 :], along[:k][::-1]):
                others = ((*at[:axis], size, *at[axis + 1 :]) for size in sizes)
                yield from islice((self.numbers[x] for x in others if x in self.numbers), 1)


def _with(times: Times, points: Sequence[Point], grid: _Neighbours, c: int, now: Sequence[float]) -> list[float]:
    """The least of ``now``, the logarithms of the times at ``points``, and of those of candidate ``c``.

    A candidate is predicted at the points around the sizes that it was made for, or at the ends of its ranges, and
    further away as long as it is not slower by :data:`FAR`.
    """
    out, todo, seen = list(now), grid.around(times.made_for(c)) or grid.ends(times, c), set[int]()
    while todo:
        n = todo.pop()
        if n in seen:
            continue
        seen.add(n)
        found = times.log(c, points[n])
        out[n] = min(now[n], found)
        if found < now[n] + FAR:
            todo += grid.next_to(n)
    return out


def kept(times: Times, points: Sequence[Point], start: int, among: Sequence[int], most: int) -> list[int]:
    """At most ``most`` candidates, ``start`` and those of ``among``, in the order in which they were found.

    They join in the order of what they save, as long as one saves :data:`SAVES` at some size.
    """
    now, chosen, rest = [times.log(start, p) for p in points], [start], list(among)
    grid = _Neighbours(points)
    while rest and len(chosen) < most:
        after = {c: _with(times, points, grid, c, now) for c in rest}
        best = min(rest, key=lambda c: sum(after[c]))
        if sum(now) - sum(after[best]) < SAVES:
            break
        chosen.append(best)
        rest.remove(best)
        now = after[best]
    return sorted(chosen)


def best(times: Times, points: Sequence[Point], among: Sequence[int]) -> float:
    """The sum of the logarithms of the least times."""
    return sum(min(times.log(n, p) for n in among) for p in points)


def decision_tree(times: Times, points: Sequence[Point], among: Sequence[int], bounds: Mapping[str, int]) -> Dispatch:
    """The best decision tree of at most :data:`LEVELS` thresholds one below the other.

    ``bounds``: the largest size of each dim.  One of ``among`` is legal at all sizes.  Further predictions, between the
    sizes of the grid, place the thresholds.
    """
    names = tuple(points[0])
    box = tuple((0, bounds[name]) for name in names)
    found = _Search(times, names, points, among).tree(box, LEVELS)[1]
    return refined(found, times, points) if len(names) == 1 else placed(found, times, points)


def seconds_at(times: Times, tree: Dispatch, among: Sequence[int], sizes: Point) -> tuple[float, ...]:
    """The seconds of the candidates ``among``, which ``tree`` numbers: of the chosen one, and of those compared."""
    own = chosen(tree, sizes)
    return tuple(times.of(c, sizes) if n == own else exp(times.compared(c, sizes)) for n, c in enumerate(among))


_Box: TypeAlias = tuple[tuple[int, int], ...]  # least and greatest value of each size


class _Search:
    """The best trees of boxes of sizes; each is found once.

    All but the first one of ``among``, which are legal at some sizes, were compared where they may be the fastest ones
    (:func:`kept`); a prediction for many tiles takes 0.1 s.
    """

    def __init__(self, times: Times, names: tuple[str, ...], points: Sequence[Point], among: Sequence[int]) -> None:
        self.times, self.names, self.among = times, names, among
        first = min(among)
        of = [times.log if n == first else times.compared for n in among]
        self.rows = [(tuple(p[x] for x in names), [f(n, p) for f, n in zip(of, among, strict=True)]) for p in points]
        self.known = dict[tuple[_Box, int], tuple[float, Dispatch]]()
        self.inside = dict[_Box, list[tuple[tuple[int, ...], list[float]]]]()

    def rows_of(self, box: _Box) -> list[tuple[tuple[int, ...], list[float]]]:
        """The points in ``box`` with the times of all candidates."""
        if box not in self.inside:
            self.inside[box] = [
                row for row in self.rows if all(a <= n <= b for n, (a, b) in zip(row[0], box, strict=True))
            ]
        return self.inside[box]

    def tree(self, box: _Box, levels: int) -> tuple[float, Dispatch]:
        """The cost and the tree whose thresholds are sizes of points."""
        if (box, levels) not in self.known:
            self.known[box, levels] = self._tree(box, levels)
        return self.known[box, levels]

    def _tree(self, box: _Box, levels: int) -> tuple[float, Dispatch]:
        rows, found = self.rows_of(box), self._leaf(box)
        least = sum(min(times) for _, times in rows)
        for axis, most in self._cuts(rows) if levels else ():
            if found[0] - least <= COMPARES:
                break  # no threshold can be worth its cost
            low, high = box[axis]
            a, within = self.tree((*box[:axis], (low, most), *box[axis + 1 :]), levels - 1)
            b, beyond = self.tree((*box[:axis], (most + 1, high), *box[axis + 1 :]), levels - 1)
            if a + b + COMPARES < found[0]:
                found = a + b + COMPARES, Threshold(self.names[axis], most, within, beyond)
        return found

    def _leaf(self, box: _Box) -> tuple[float, Dispatch]:
        rows = self.rows_of(box)
        bounds = {name: most for name, (_, most) in zip(self.names, box, strict=True)}
        legal = [k for k, n in enumerate(self.among) if all(self.times.most(n, d) >= m for d, m in bounds.items())]
        return min((sum(times[k] for _, times in rows), self.among[k]) for k in legal)

    def _cuts(self, rows: Sequence[tuple[tuple[int, ...], list[float]]]) -> Iterator[tuple[int, int]]:
        """Every way to cut ``rows`` in two parts by one size: the size, and its greatest value in the first part."""
        for axis in range(len(self.names)):
            yield from ((axis, most) for most in sorted({at[axis] for at, _ in rows})[:-1])


def refined(tree: Dispatch, times: Times, points: Sequence[Point]) -> Dispatch:
    """``tree`` over one size, with each threshold where the variants of its two sides are predicted to be equal."""
    if not isinstance(tree, Threshold):
        return tree
    (name,) = compared(tree)
    grid = sorted(p[name] for p in points)
    low, high = tree.most, grid[grid.index(tree.most) + 1]
    a, b = [x.variant for x in leaves(tree.within)][-1], next(x.variant for x in leaves(tree.beyond))
    step = max(1, high // FINE)
    while high - low > step:
        middle = (low + high) // 2 // step * step
        middle = middle if low < middle < high else (low + high) // 2
        if middle <= times.most(a, name) and times.of(a, {name: middle}) <= times.of(b, {name: middle}):
            low = middle
        else:
            high = middle
    return Threshold(name, low, refined(tree.within, times, points), refined(tree.beyond, times, points))


def placed(tree: Dispatch, times: Times, points: Sequence[Point]) -> Dispatch:
    """``tree`` over several sizes, with each threshold at the one with the least times among those that double it.

    ``points``: those for which the tree chooses.  These have one size of the grid, and the next one is far away.
    """
    if not isinstance(tree, Threshold):
        return tree
    name = tree.size
    along = sorted({p[name] for p in points})
    here, high = [p for p in points if p[name] == tree.most], along[along.index(tree.most) + 1]
    step = 1 if high <= NEAR * tree.most else 2
    doubled = [tree.most << k for k in range(step, high.bit_length(), step) if tree.most << k < high]

    def cost(most: int) -> float:
        """The sum of the logarithms of times at the sizes ``doubled``, if the threshold is ``most``."""
        if any(times.most(x.variant, name) < most for x in leaves(tree.within)):
            return inf
        at = [(n, {**p, name: n}) for p in here for n in doubled]
        return sum(times.log(chosen(tree.within if n <= most else tree.beyond, p), p) for n, p in at)

    most = min((tree.most, *doubled), key=cost)
    parts = ([p for p in points if (p[name] <= tree.most) is side] for side in (True, False))
    within, beyond = (placed(x, times, own) for x, own in zip((tree.within, tree.beyond), parts, strict=True))
    return Threshold(name, most, within, beyond)
