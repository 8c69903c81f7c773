"""Axes that an expression has in groups: ``h // 4`` is the same for four neighbours of ``h``.

A factor of a product that has a parallel axis only in groups is the same for all points of a group.  These points are
then rows of a tile of the product, as the points of an axis are that the factor does not have at all.  So a spec may
write heads that share keys with a row axis of their own or without one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Var, children, free_vars, loads, rewrite


def quotients(e: Expr, axis: str) -> frozenset[int]:
    """Every ``G`` with which ``e`` has ``axis // G``; 0 for ``axis`` otherwise."""
    match e:
        case Var(name=name):
            return frozenset({0}) if name == axis else frozenset()
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


def over_groups(e: Expr, axes: Sequence[Axis]) -> tuple[Expr, tuple[Axis, ...], tuple[Expr, ...]]:
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
