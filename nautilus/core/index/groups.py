"""Axes that an expression has in groups: ``h // 4`` is the same for four neighbours of ``h``.

A factor of a product that has a parallel axis only in groups is the same for all points of a group.  These points are
then rows of a tile of the product, as the points of an axis are that the factor does not have at all.  So a spec may
write heads that share keys with a row axis of their own or without one.

An expression may also have several axes in one sum alone, such as the distance ``j - i`` of two positions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import (
    COMPARISONS,
    Axis,
    Const,
    Expr,
    Load,
    Op,
    Var,
    children,
    free_vars,
    loads,
    replaced,
    rewrite,
    walk,
)
from nautilus.core.index.linear import Linear, affine, build
from nautilus.core.types import DType

Function = tuple[Expr, tuple[Axis, ...], tuple[Expr, ...]]  # a function, its axes, and its arguments


def quotients(e: Expr, axis: str) -> frozenset[int]:
    """Every ``G`` with which ``e`` has ``axis // G``; 0 for ``axis`` otherwise."""
    if axis not in free_vars(e):
        return frozenset()
    match e:
        case Var():
            return frozenset({0})
        case Op(op="floordiv", args=(Var(name=name), Const(value=n))) if name == axis and n > 1:
            return frozenset({int(n)})
    return frozenset().union(*(quotients(c, axis) for c in children(e)))


def count_elements(ld: Load, tiles: Mapping[str, int]) -> int:
    """The elements that ``ld`` reads in a tile, at most; an axis that it has only as ``axis // G`` counts in groups.

    ``tiles``: axis -> its size in the tile, 1 for an axis that is not there.
    """
    found = 1
    for axis in free_vars(ld):
        group = min(quotients(ld, axis), default=0)
        found *= -(-tiles.get(axis, 1) // max(group, 1))
    return found


def shared_group(a: Expr, b: Expr, axis: str) -> int | None:
    """``G`` where one of ``a`` and ``b`` has ``axis`` only as ``axis // G`` and the other one has it otherwise."""
    found = [quotients(e, axis) for e in (a, b)]
    sizes = [next(iter(q)) for q in found if len(q) == 1 and 0 not in q]
    return sizes[0] if len(sizes) == 1 and any(0 in q for q in found) else None


def named_group(a: Expr, b: Expr, axis: str, rows: Collection[str]) -> bool:
    """Whether ``axis`` names the matrix that one of ``a`` and ``b`` is an element of, ``W[expert[t], k, n]``.

    That one has ``axis`` only in positions that memory gives, and these depend on those of ``rows`` that the other has.
    """
    return _is_named(a, b, axis, rows) != _is_named(b, a, axis, rows)


def _is_named(e: Expr, other: Expr, axis: str, rows: Collection[str]) -> bool:
    given = [i for ld in loads(e) for i in ld.index if loads(i)]

    def outside(x: Expr) -> Expr | None:
        if not isinstance(x, Load) or not any(map(loads, x.index)):
            return None
        return replace(x, index=tuple(integer(0) if loads(i) else i for i in x.index))

    own = frozenset[str]().union(*map(free_vars, given))
    return axis in own <= free_vars(other).intersection(rows) and axis not in free_vars(rewrite(e, outside))


def in_groups(parts: Sequence[Expr], axis: str) -> tuple[frozenset[str], ...]:
    """For each of ``parts``, ``axis`` where it has that in groups of one size, while another part has it otherwise."""
    found = [quotients(p, axis) for p in parts]
    whole = any(0 in q for q in found)
    return tuple(frozenset({axis} if whole and len(q) == 1 and 0 not in q else ()) for q in found)


def digits(e: Expr, axis: str) -> frozenset[tuple[int, int]]:
    """The digits of ``axis`` on which ``e`` depends: ``(low, high)`` for ``axis % high // low``.

    ``high`` is 0 where there is no modulus, and a multiple of ``low`` otherwise.
    """
    own = _digit(e, axis)
    return frozenset({own}) if own else frozenset().union(*(digits(c, axis) for c in children(e)))


def _digit(e: Expr, axis: str) -> tuple[int, int] | None:
    """``e`` as a digit of ``axis``; None for another expression."""
    match e:
        case Var(name=name) if name == axis:
            return 1, 0
        case Op(op="floordiv" | "mod" as op, args=(inner, Const(value=value))) if value > 1:
            low, high = _digit(inner, axis) or (0, 0)
            more = low * int(value)
            if not low or (high and high % more and (op == "floordiv" or more % high)):
                return None
            if op == "floordiv":
                return more, high
            return low, min(more, high or more)
    return None


def parts_at(e: Expr, axis: str, size: int) -> frozenset[bool]:
    """The parts of ``axis = size * group + member`` on which ``e`` depends; False: the group, True: the member."""
    found = set[bool]()
    for low, high in digits(e, axis):
        if not (high and size % high == 0):
            found.add(False)
        if low % size:
            found.add(True)
    return frozenset(found)


def over_groups(e: Expr, axes: Sequence[Axis]) -> Function:
    """``e`` as a function of groups: the function, its axes, and the arguments that give ``e``.

    An axis of ``axes`` that ``e`` has only as ``axis // G`` becomes one of the groups; the others stay as they are.
    """
    made: list[Axis] = []
    index: list[Expr] = []
    for a in axes:
        (group, *more) = quotients(e, a.name) or {0}
        if more or not group or not isinstance(a.extent, int):
            made.append(a)
            index.append(Var(a.name))
            continue
        whole = calc("floordiv", Var(a.name), integer(group))
        made.append(Axis(a.name, -(-a.extent // group), a.span))
        index.append(whole)
        e = _by_group(e, a.name)
    return e, tuple(made), tuple(index)


def _by_group(e: Expr, axis: str) -> Expr:
    def rule(n: Expr) -> Expr | None:
        match n:
            case Op(op="floordiv", args=(Var(name=name), Const())) if name == axis:
                return Var(axis)
        return None

    return rewrite(e, rule)


def remainder(e: Expr, axis: str) -> Op | None:
    """The ``axis % c``, with a constant ``c``, that alone in ``e`` depends on ``axis``."""
    found = {n for n in walk(e) if isinstance(n, Op) and n.op == "mod" and n.args[0] == Var(axis)}
    if len(found) != 1:
        return None
    (n,) = found
    alone = isinstance(n.args[1], Const) and axis not in free_vars(replaced(e, n, Const(0, n.dtype)))
    return n if alone else None


def over_remainders(e: Expr, axes: Sequence[Axis]) -> Function:
    """``e`` as a function of the remainders of axes, where these alone depend on an axis, and of other axes."""
    made, index = list[Axis](), list[Expr]()
    for a in axes:
        n = remainder(e, a.name)
        if n is not None and isinstance(c := n.args[1], Const):
            e, a = replaced(e, n, Var(a.name)), replace(a, extent=int(c.value))
        made.append(a)
        index.append(n or Var(a.name))
    return e, tuple(made), tuple(index)


def over_sum(e: Expr, axes: Sequence[Axis], last: Axis) -> Function | None:
    """``e`` over one axis for the sum with ``last`` that alone in ``e`` depends on the axes of the sum.

    The result is an expression, the axes that are no part of the sum and the new one, which has the name of ``last``,
    and the position at which the expression is ``e``.  None where ``e`` depends on these axes in another way, where
    ``last`` has a coefficient other than 1 or -1 in the sum, or where the sum does not have every value of its range.
    """
    found = {n: x for n in _positions(e, last.name) if (x := _sum(n)) is not None}
    forms = {_upwards(x, last.name) for x in found.values()}
    if len(forms) != 1:
        return None
    (form,) = forms
    merged = {a.name: a for a in axes if form.coeff(a.name)}
    low = form.shift(-(least := _least(form, merged)))
    extent = _extent(form, merged, last)
    if len(merged) < 2 or len(merged) != len(form.terms) or extent is None:
        return None

    def rule(n: Expr) -> Expr | None:
        x = found.get(n)
        if x is None:
            return None
        sign = x.slope(last.name)
        alone = Linear({Var(last.name): sign}, x.const + sign * least)
        if isinstance(n, Op) and n.op in COMPARISONS:
            return calc(n.op, build(alone, n.args[0].dtype), 0)
        return build(alone, n.dtype)

    value = rewrite(e, rule)
    if not free_vars(value).isdisjoint(merged.keys() - {last.name}):
        return None
    rest = tuple(a for a in axes if a.name not in merged)
    index = (*(Var(a.name) for a in rest), build(low, Var(last.name).dtype))
    return value, (*rest, replace(last, extent=extent)), index


def _positions(e: Expr, name: str) -> Iterator[Expr]:
    """The largest integer parts of ``e`` that are sums of axes with ``name``; the variable itself where it is alone.

    So is a comparison of two sums, such as ``j > i``, which depends on their difference.
    """
    if name not in free_vars(e):
        return
    if _sum(e) is not None:
        yield e
        return
    for c in children(e):
        yield from _positions(c, name)


def _sum(e: Expr) -> Linear | None:
    """The sum of axes that ``e`` is, or that it compares with 0; None where it is neither."""
    match e:
        case Op(op=op, args=(a, b)) if op in COMPARISONS and a.dtype is b.dtype is DType.I32:
            left, right = affine(a), affine(b)
            return None if left is None or right is None else left - right
    return affine(e) if e.dtype.is_int else None


def _upwards(x: Linear, name: str) -> Linear:
    """``x`` without its constant, with the sign by which it grows with the axis ``name``."""
    return Linear(x.terms).scale(1 if x.slope(name) > 0 else -1)


def _least(form: Linear, axes: dict[str, Axis]) -> int:
    return sum(min(0, form.coeff(n)) * (a.extent - 1) for n, a in axes.items() if isinstance(a.extent, int))


def _extent(form: Linear, axes: dict[str, Axis], last: Axis) -> int | None:
    """The number of values of ``form``, where it takes all between its least and its greatest one."""
    if form.slope(last.name) != 1:
        return None
    values = 1
    for n, a in sorted(axes.items(), key=lambda x: abs(form.coeff(x[0]))):
        step = abs(form.coeff(n))
        if not isinstance(a.extent, int) or step > values:
            return None
        values += step * (a.extent - 1)
    return values
