"""The places of a tensor that the windows of a reduction visit, in the place of the axes that count them.

The operand of a convolution depends on the position ``y`` of a result and on a tap ``r`` by ``y + r - 1`` alone, and so
does the condition that it is inside of a tensor.  With one axis for the place, from 0 to the number of places, the
operand is computed once for each element, and not for each of its terms.  So is a tensor that is read at a function of
the position, as in reflected, repeated and circular padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import RELATIONAL, Axis, Expr, Load, Op, Var, children, free_vars, loads, substitute
from nautilus.core.index.linear import Linear, linear
from nautilus.core.index.simplify import TRUE, simplify
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.definitions import Def, size


@dataclass(frozen=True, slots=True)
class Places:
    """``element`` over ``par`` and ``red``, which stand for those of a definition.

    ``guard``: the conditions that are left.  ``positions``: by new axis, its place as the definition has it.
    """

    element: Expr
    guard: Expr | None
    par: tuple[Axis, ...]
    red: tuple[Axis, ...]
    positions: Mapping[str, Expr]


def window_places(d: Def, element: Expr) -> Places | None:
    """``element``, a part of the terms of the reduction ``d``, over the places that its windows visit.

    None where it has no windows, or depends on the position in one or on the tap by more than their sum.
    """
    guard = [] if d.guard is None else list(conjuncts(d.guard))
    par, red, positions = list(d.par), list(d.red), dict[str, Expr]()
    sizes = {a.name: size(a) for a in d.axes}
    for e in _positions(d, element):
        names = free_vars(e)
        if not names <= {a.name for a in (*par, *red)} or any(sizes[x] is None for x in names):
            return None
        found = _place(e, guard, {x: sizes[x] or 0 for x in names})
        if found is None:
            return None
        first, count = found
        moved = next((a.name for a in d.axes if a.name in names and abs(linear(e).slope(a.name)) == 1), None)
        if moved is None:
            return None
        axis = Axis(f"{moved}_place", count)
        ranges = {axis.name: (0, count - 1)}
        at = _solved(e, moved, calc("add", Var(axis.name), first))
        element = simplify(substitute(element, {moved: at}), ranges)
        guard = [c for g in guard if (c := simplify(substitute(g, {moved: at}), ranges)) != TRUE]
        if any(names & free_vars(x) for x in (element, *guard)):
            return None
        positions[axis.name] = simplify(calc("sub", e, first), {x: (0, (sizes[x] or 1) - 1) for x in names})
        par = [a for a in par if a.name not in names]
        red = [*(a for a in red if a.name not in names), axis]
    rest = conjunction(guard) if guard else None
    return Places(element, rest, tuple(par), tuple(red), positions) if positions else None


def _positions(d: Def, element: Expr) -> Iterator[Expr]:
    """The positions in ``element`` that an axis of the result and a reduced one move, those of one place once."""
    par, red = ({a.name for a in axes} for axes in (d.par, d.red))
    seen = set[Linear]()
    for e in (x for ld in loads(element) for index in ld.index for x in _sums(index)):
        moves = Linear(linear(e).terms)
        if moves not in seen and free_vars(e) & par and free_vars(e) & red:
            seen.add(moves)
            yield e


def _sums(e: Expr) -> Iterator[Expr]:
    """The sums of axes in the position ``e``, such as ``y + r - 1`` in the reflected one ``abs(y + r - 1)``."""
    form = linear(e)
    if all(isinstance(a, Var) for a in form.terms):
        yield e
        return
    for a in form.terms:
        if not isinstance(a, Load):
            yield from (x for child in children(a) for x in _sums(child))


def _place(e: Expr, guard: Sequence[Expr], sizes: Mapping[str, int]) -> tuple[int, int] | None:
    """The first value of ``e`` that a term has, and the number of values; None where some between them have no term.

    The conditions ``guard`` on the place alone leave out others.
    """
    form = linear(e)
    first, last = form.const, form.const
    reach = 0
    for x in sorted(sizes, key=lambda x: abs(form.slope(x))):
        step = form.slope(x)
        if abs(step) > reach + 1:
            return None
        reach += abs(step) * (sizes[x] - 1)
        first, last = first + min(0, step * (sizes[x] - 1)), last + max(0, step * (sizes[x] - 1))
    for c in guard:
        if isinstance(c, Op) and c.op in RELATIONAL:
            less, more = (linear(x) for x in (c.args if c.op in ("lt", "le") else c.args[::-1]))
            strict, above, below = c.op in ("lt", "gt"), more - form, less - form
            if not above.terms and not less.terms:
                first = max(first, less.const - above.const + strict)
            elif not below.terms and not more.terms:
                last = min(last, more.const - below.const - strict)
    return (first, last - first + 1) if first <= last else None


def _solved(e: Expr, name: str, value: Expr) -> Expr:
    """The value of the variable ``name``, which moves ``e`` by 1 or -1, where ``e`` is ``value``."""
    step = linear(e).slope(name)
    rest = simplify(calc("sub", e, calc("mul", Var(name), step)))
    return simplify(calc("mul", calc("sub", value, rest), step))
