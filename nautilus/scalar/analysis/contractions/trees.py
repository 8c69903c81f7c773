"""The order of a contraction: a tree of sums of products, found by dynamic programming over subsets of operands.

A :class:`Sum` multiplies items, which are operands or earlier sums, and sums over every axis that no operand outside of
it has: ``sum_jk(a_ik * b_kj)`` is ``sum_k(a_ik * t_k)`` with ``t_k = sum_j(b_kj)``.  The search splits a set of
operands in two, each of which is one sum, or its bare operands, or the best product of both, so it takes ``3 ** n``
splits for ``n`` operands.  A fence (:mod:`.terms`) excludes a sum over its axes with the operand inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import TypeAlias

from nautilus.core.records import dataclass

MOST_OPERANDS = 6

Item: TypeAlias = "int | Sum"  # the number of an operand, or an earlier sum


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum over ``over`` of the product of ``items``; ``axes``: of the result.  ``over`` may be empty at the top."""

    items: tuple[Item, ...]
    over: frozenset[str]
    axes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Factor:
    """An operand of the search: its axes, and those over which no sum may include it."""

    axes: frozenset[str]
    fence: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Choice:
    """Items whose product is a set of operands, the axes of the product, and what the sums among them cost."""

    items: tuple[Item, ...]
    axes: frozenset[str]
    cost: float


Price = Callable[[Sum, bool], float]  # the price of a sum, and whether it is the one at the top


def cheapest(
    factors: Sequence[Factor], red: frozenset[str], late: frozenset[str], price: Price
) -> tuple[Sum, float] | None:
    """The tree with the least total price, and that price; None where every tree crosses a fence.

    ``late``: axes of the last sum, because they may have no element.
    """
    return _Search(tuple(factors), red, late, price).top()


class _Search:
    def __init__(self, factors: tuple[Factor, ...], red: frozenset[str], late: frozenset[str], price: Price) -> None:
        self.factors, self.red, self.late, self.price = factors, red, late, price
        self.full = (1 << len(factors)) - 1
        self.axes = [self.union(s) for s in range(self.full + 1)]
        self.fences = [frozenset[str]().union(*(factors[n].fence for n in _members(s))) for s in range(self.full + 1)]
        self.known: dict[int, tuple[_Choice, ...]] = {}

    def union(self, s: int) -> frozenset[str]:
        return frozenset[str]().union(*(self.factors[n].axes for n in _members(s)))

    def private(self, s: int) -> frozenset[str]:
        """The summed axes that only operands of ``s`` have."""
        own = (self.axes[s] & self.red) - self.axes[self.full ^ s]
        return own if s == self.full else own - self.late

    def choices(self, s: int) -> tuple[_Choice, ...]:
        """The ways to have the product of ``s``: one sum, bare operands, and a product of sums."""
        if s not in self.known:
            bare = _Choice(tuple(_members(s)), self.axes[s], 0.0)
            products = [c for c in self.products(s) if c.items != bare.items]
            found = [bare, *sorted(products, key=lambda c: c.cost)[:1]]
            if self.private(s):
                summed = self.best(s, (bare, *products))
                found += [] if summed is None else [_Choice((summed[0],), summed[0].axes, summed[1])]
            self.known[s] = tuple(found)
        return self.known[s]

    def products(self, s: int) -> list[_Choice]:
        """Both halves of every split of ``s``, each in every way."""
        found: list[_Choice] = []
        low = s & -s
        part = (s - 1) & s
        while part:
            if part & low:
                others = self.choices(s ^ part)
                for a in self.choices(part):
                    found += [_Choice(a.items + b.items, a.axes | b.axes, a.cost + b.cost) for b in others]
            part = (part - 1) & s
        return found

    def best(self, s: int, options: Sequence[_Choice], at_top: bool = False) -> tuple[Sum, float] | None:
        """The cheapest sum over the private axes of ``s``."""
        best: tuple[Sum, float] | None = None
        for c in options:
            over = self.private(s) & c.axes
            if (not over and not at_top) or over & self.fences[s] or (best is not None and c.cost >= best[1]):
                continue
            made = Sum(c.items, over, c.axes - over)
            cost = c.cost + self.price(made, at_top)
            if best is None or cost < best[1]:
                best = made, cost
        return best

    def top(self) -> tuple[Sum, float] | None:
        bare = _Choice(tuple(_members(self.full)), self.axes[self.full], 0.0)
        return self.best(self.full, (bare, *self.products(self.full)), at_top=True)


def _members(s: int) -> list[int]:
    return [n for n in range(s.bit_length()) if s >> n & 1]


def inside(tree: Sum) -> tuple[Sum, ...]:
    """The sums of ``tree`` in dependence order, itself last."""
    return (*(x for i in tree.items if isinstance(i, Sum) for x in inside(i)), tree)


@dataclass(frozen=True, slots=True)
class Matrix:
    """A side of a matrix product: its axes, and whether it is a product of several factors."""

    axes: frozenset[str]
    computed: bool


def matrix_sides(sides: Sequence[frozenset[str]], over: frozenset[str]) -> tuple[Matrix, Matrix] | None:
    """The two sides of a sum over ``over`` of a product of factors with these axes; None if it is no matrix product.

    The factors with an axis of the rows are one side, those with an axis of the columns the other one, and the rest
    belongs to either.  Both sides have every axis of the sum.
    """
    for x, y in combinations(sorted(frozenset[str]().union(*sides) - over), 2):
        if not over or any(x in s and y in s for s in sides):
            continue
        rest = [s for s in sides if x not in s and y not in s]
        for left in (rest, []):
            rows = [s for s in sides if x in s] + left
            columns = [s for s in sides if y in s] + [s for s in rest if not left]
            both = [frozenset[str]().union(*side) for side in (rows, columns)]
            if over <= both[0] & both[1]:
                return Matrix(both[0], len(rows) > 1), Matrix(both[1], len(columns) > 1)
    return None


def points(axes: frozenset[str], extents: Mapping[str, int]) -> float:
    """The number of points of ``axes``."""
    total = 1.0
    for a in axes:
        total *= extents[a]
    return total
