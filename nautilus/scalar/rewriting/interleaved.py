"""Definitions with an axis of which readers need a few positions for each position of an axis of their own.

The two softmaxes of a difference may be even and odd positions of one axis, or the halves of it::

    S[h: 2 * H, i, j] = sum[d](Q[h, i, d] * K[h, j, d])    ;    m[h, i] = max[j](S[h, i, j])    ;    ...
    O[h, i, d] = sum[j]((P[2 * h, i, j] - P[2 * h + 1, i, j]) * V[h, j, d])

With ``h = 2 * h_group + h_member`` the positions that one element needs are constants on an axis of their own
(:mod:`nautilus.scalar.analysis.positions`).  Every other read of these definitions is at their own axis.  A product
alone is no such chain: its columns would be read with a stride.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Var, rewrite, substitute
from nautilus.core.index.simplify import linear_in, simplify
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.analysis.positions import MOST, is_plain


@dataclass(frozen=True, slots=True)
class Members:
    """Dimension ``places[name]`` of definition ``name`` has ``count`` members for each of ``groups`` positions.

    ``apart``: the distance of the members of a group; 1, or ``groups``.
    """

    places: Mapping[str, int]
    groups: int
    count: int
    apart: int


def find_members(d: Def, defs: Mapping[str, Def]) -> Members | None:
    """The definitions from the product ``d`` on whose readers need members of groups; None where there are none."""
    if not multiplies_matrices(d) or not is_plain(d):
        return None
    return next((m for at in range(len(d.par)) if (m := _members(d, at, defs)) is not None), None)


def _members(d: Def, at: int, defs: Mapping[str, Def]) -> Members | None:
    whole = size(d.par[at])
    places, todo, kinds = {d.name: at}, [d.name], set[tuple[int, int, int]]()
    several: set[int] = set()
    while todo and whole is not None:
        name = todo.pop()
        for r, ld in ((d, ld) for d in defs.values() for ld in d.reads() if ld.buffer == name):
            e = ld.index[places[name]]
            own = r.axis(e.name) if isinstance(e, Var) else None
            if own is not None and size(own) == whole:
                if own in r.red or not is_plain(r) or places.setdefault(r.name, r.par.index(own)) != r.par.index(own):
                    return None
                todo += [] if r.name == name or r.name in todo else [r.name]
                continue
            found = _exit(r, e, whole)
            if found is None:
                return None
            kinds.add(found[0])
            several.add(found[1])
    if len(kinds) != 1 or len(several) < 2 or len(places) < 2:
        return None
    return Members(places, *kinds.pop())


def _exit(r: Def, e: Expr, whole: int) -> tuple[tuple[int, int, int], int] | None:
    """Groups, members and their distance of the read at ``e`` of an axis of ``whole`` positions, and the member."""
    for a in r.par:
        form, groups = linear_in(e, a.name), size(a)
        if form is None or not form[0] or not isinstance(form[1], Const) or not groups or whole % groups:
            continue
        count, first = whole // groups, int(form[1].value)
        if not 1 < count <= MOST or form[0] not in (1, count):
            return None
        apart = groups if form[0] == 1 else 1
        member = first // apart
        return ((groups, count, apart), member) if first == member * apart and 0 <= member < count else None
    return None


def in_groups(d: Def, members: Members, names: tuple[str, str]) -> Def:
    """``d`` with an axis for groups and one for members, of the given names, and its reads of such definitions."""
    axis = d.par[members.places[d.name]] if d.name in members.places else None
    group, member = (Var(n) for n in names)

    def rule(n: Expr) -> Expr | None:
        if not isinstance(n, Load) or n.buffer not in members.places:
            return None
        at = members.places[n.buffer]
        e = n.index[at]
        if axis is not None and e == Var(axis.name):
            pair: tuple[Expr, Expr] = (group, member)
        elif members.apart == 1:
            pair = (calc("floordiv", e, members.count), calc("mod", e, members.count))
        else:
            pair = (calc("mod", e, members.groups), calc("floordiv", e, members.groups))
        return replace(n, index=(*n.index[:at], *pair, *n.index[at + 1 :]))

    value = rewrite(d.value, rule)
    guard = None if d.guard is None else rewrite(d.guard, rule)
    if axis is None:
        return replace(d, value=value, guard=guard)
    factors = (members.count, 1) if members.apart == 1 else (1, members.groups)
    whole = calc("add", calc("mul", group, factors[0]), calc("mul", member, factors[1]))
    env = {axis.name: simplify(whole)}
    axes = (Axis(names[0], members.groups, axis.span), Axis(names[1], members.count, axis.span))
    par = tuple(x for a in d.par for x in (axes if a is axis else (a,)))
    buffer = replace(d.buffer, shape=tuple(a.extent for a in par))
    guard = None if guard is None else substitute(guard, env)
    return replace(d, buffer=buffer, par=par, value=substitute(value, env), guard=guard)
