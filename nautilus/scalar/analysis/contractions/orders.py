"""The cheapest order of a term of a sum, and what the sum costs as it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from nautilus.core.expr.build import number
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Axis, Expr, Op, free_vars
from nautilus.core.expr.products import product_of
from nautilus.core.index.simplify import bounds
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.price import Part, Price, Shapes
from nautilus.scalar.analysis.contractions.terms import Operand, Term, terms
from nautilus.scalar.analysis.contractions.trees import MOST_OPERANDS, Factor, Sum, cheapest
from nautilus.scalar.analysis.definitions import Def
from nautilus.targets.rates import Machine


@dataclass(frozen=True, slots=True)
class Ordered:
    """A term with its order. Operands with equal axes and fences are one group; ``scale`` has no axes."""

    term: Term
    groups: tuple[tuple[Operand, ...], ...]
    scale: tuple[Operand, ...]
    absent: tuple[Axis, ...]  # summed axes on which nothing depends
    tree: Sum
    seconds: float

    def operands(self, s: Sum) -> tuple[Operand, ...]:
        """The operands among the items of ``s``."""
        return tuple(o for i in s.items if isinstance(i, int) for o in self.groups[i])

    def guard(self, s: Sum) -> Expr | None:
        """The conditions among the items of ``s``."""
        return conjunction(o.value for o in self.operands(s) if o.condition)

    def value(self, s: Sum, inner: Sequence[Expr], dtype: DType) -> Expr:
        """The product of the items of ``s``, whose sums are ``inner``."""
        return product([*(o for o in self.operands(s) if not o.condition), *map(Operand, inner)], dtype)

    @property
    def count(self) -> int:
        """The number of equal terms."""
        return prod(a.extent for a in self.absent if isinstance(a.extent, int))


def product(operands: Sequence[Operand], dtype: DType) -> Expr:
    """The product of ``operands``; 1 for none.

    A divisor divides the first factor that has all of its axes, so that each side of a matrix product is one factor.
    """
    up, rest = [o.value for o in operands if not o.inverse], list[Expr]()
    for o in (o.value for o in operands if o.inverse):
        n = next((n for n, e in enumerate(up) if free_vars(o) <= free_vars(e)), None)
        if n is None:
            rest.append(o)
        else:
            up[n] = Op("div", (up[n], o), dtype)
    total = product_of(up) if up else number(1, dtype)
    for o in rest:
        total = Op("div", (total, o), dtype)
    return total


def has_orders(t: Term) -> bool:
    """Whether an operand lacks an axis of the sum, so that there are several orders."""
    used = [u for o in t.operands if not o.condition and (u := free_vars(o.value))]
    return any(not all(a.name in u for u in used) for a in t.red) or (not used and bool(t.red))


def ordered(t: Term, d: Def, price: Price) -> Ordered | None:
    """The cheapest order of ``t``; None where there is none, too many operands, or an absent axis may be empty.

    None, too, where a condition leaves elements out of some results.  They may hold inf, and the order decides whether
    the other results are inf or NaN, where terms of both signs are infinite.
    """
    names = frozenset(a.name for a in (*d.par, *t.red))
    groups: dict[tuple[frozenset[str], frozenset[str], bool], list[Operand]] = {}
    scale: list[Operand] = []
    for o in t.operands:
        axes = free_vars(o.value) & names
        if o.condition and any(a.name in axes for a in d.par):
            return None
        if axes:
            groups.setdefault((axes, o.fence, o.condition), []).append(o)
        elif o.condition:
            return None
        else:
            scale.append(o)
    used = frozenset[str]().union(*(k[0] for k in groups))
    absent = tuple(a for a in t.red if a.name not in used)
    if not 0 < len(groups) <= MOST_OPERANDS or any(not isinstance(a.extent, int) or a.extent < 1 for a in absent):
        return None
    parts = [_part(price, ops) for ops in groups.values()]
    factors = [Factor(axes, fence) for axes, fence, _ in groups]
    late = frozenset(a.name for a in t.red if least(a) < 1)
    red = frozenset(a.name for a in t.red)
    found = cheapest(factors, red, late, lambda s, top: price.sum(s, parts, top))
    if found is None:
        return None
    conditions = {n: axes for n, (axes, _, condition) in enumerate(groups) if condition}
    tree, _ = _with_late_conditions(found[0], [f.axes for f in factors], conditions)
    return Ordered(t, tuple(map(tuple, groups.values())), tuple(scale), absent, tree, found[1])


def _with_late_conditions(
    s: Sum, axes: Sequence[frozenset[str]], conditions: Mapping[int, frozenset[str]], last: bool = True
) -> tuple[Sum, tuple[int, ...]]:
    """``s`` without the ``conditions`` of sums inside on none of their summed axes, and those that its reader takes.

    A product whose results are all computed needs no mask for them, and so may run on warpgroups.
    """
    items = list[int | Sum]()
    for i in s.items:
        inner, taken = _with_late_conditions(i, axes, conditions, False) if isinstance(i, Sum) else (i, ())
        items += [inner, *taken] if s.over else [i]
    found = (i for i in items if isinstance(i, int) and not conditions.get(i, s.over) & s.over)
    late = () if last else tuple(found)
    items = [i for i in items if i not in late]
    used = frozenset[str]().union(*(i.axes if isinstance(i, Sum) else axes[i] for i in items))
    return Sum(tuple(items), s.over, used - s.over), late


def least(a: Axis) -> int:
    """The least extent that ``a`` may have."""
    return a.extent if isinstance(a.extent, int) else bounds(a.extent)[0] or 0


def _part(price: Price, ops: Sequence[Operand]) -> Part:
    parts = [price.part(o.value) for o in ops]
    axes = frozenset[str]().union(*(p.axes for p in parts))
    bits = parts[0].bits if len(parts) == 1 else price.dtype.bits
    return Part(axes, bits, sum(p.bytes for p in parts), ops[0].condition)


def seconds(d: Def, on_chip: frozenset[str], shapes: Shapes, rates: Machine) -> float:
    """The time of ``d`` as it is written, in one kernel."""
    price = Price.of(d.buffer.dtype, d.axes, shapes, rates)
    over = frozenset(a.name for a in d.red)
    own = terms(d, {}, lambda _: False) or (Term(d.red, (Operand(d.value),)),)
    each = [[price.part(o.value, on_chip) for o in t.operands if not o.condition and free_vars(o.value)] for t in own]
    return sum(price.seconds(parts, over, 0.0) for parts in each) - (len(each) - 1) * rates.launch
