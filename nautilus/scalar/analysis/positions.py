"""Definitions with an axis that is read at constant positions become definitions for each of the positions.

Two softmaxes of which a product takes the difference may be two positions of an axis::

    S[c: 2, i, j] = sum[d](Q[c, i, d] * K[c, j, d])    ;    m[c, i] = max[j](S[c, i, j])    ;    ...
    O[i, d] = sum[j]((P[0, i, j] - P[1, i, j]) * V[j, d])

No loop nest over ``c`` computes ``O``, because each element of it reads both positions.  Each definition is one for
each position instead (``S_at_0``, ``S_at_1``, ``m_at_0``, ``m_at_1``), so that one kernel has tiles of all of them.

A chain begins at a product of matrices, and has the definitions that read one of its members at their own axis.  All
other reads of members are at constants, or at the one axis of at most :data:`MOST` positions that a reduction has for
them, whose terms are then written out.  A matrix product over other axes too is no such reduction: it has partial sums
(``store-partial-sums``), which leaves one product of each kind.  A chain is taken apart

* where an elementwise definition with the other axes of the product reads :data:`FEW` positions at the same place, as
  that of a gate and what it scales does, and the axis has no others; or
* where the product has at least as many elements as it reads, so that reading it in another kernel takes longer than
  reading its operands there, and reductions read several positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce

from nautilus.core.buffers import Space
from nautilus.core.expr.build import integer
from nautilus.core.expr.nodes import COMBINERS, Const, Expr, Load, Op, Var, free_vars, identity, substitute
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.contractions.dense import keeps_products, multiplies_matrices
from nautilus.scalar.analysis.definitions import Def, points, size

MOST = 4  # positions of an axis
FEW = 2  # positions that one result needs: tiles of more products are narrow


@dataclass(frozen=True, slots=True)
class Chain:
    """Definitions and the dimension of each that has ``extent`` positions, of which each has its own definitions.

    ``sums``: the reductions over positions whose terms are written out, with the axis of each.
    """

    extent: int
    places: Mapping[str, int]
    sums: Mapping[str, str]


def find_chain(d: Def, defs: Mapping[str, Def]) -> Chain | None:
    """The chain that begins at the product ``d`` and is worth taking apart; None where there is none."""
    if not multiplies_matrices(d) or not is_plain(d):
        return None
    for at, a in enumerate(d.par):
        extent = size(a)
        chain = _chain(d, at, extent, defs) if extent is not None and 1 < extent <= MOST else None
        if chain is not None and (_combines(chain, defs) or _expands(d, chain, defs)):
            return chain
    return None


def is_plain(d: Def) -> bool:
    """Whether ``d`` is a temp at its own positions, which a definition for each position may replace."""
    return d.scatter is None and d.at is None and d.buffer.space is Space.TEMP and d.buffer.support is None


def _chain(d: Def, at: int, extent: int, defs: Mapping[str, Def]) -> Chain | None:
    """The chain that begins at dimension ``at`` of ``d``; None where a read is at another position."""
    places, sums, todo = {d.name: at}, dict[str, str](), [d.name]
    while todo:
        name = todo.pop()
        for r, ld in _reads(name, defs):
            e, others = ld.index[places[name]], [x for n, x in enumerate(ld.index) if n != places[name]]
            if isinstance(e, Const):
                continue
            a = r.axis(e.name) if isinstance(e, Var) else None
            if a is None or size(a) != extent or any(a.name in free_vars(x) for x in others):
                return None
            if a in r.red:
                if r.op not in COMBINERS or sums.setdefault(r.name, a.name) != a.name or _guards(r, a.name):
                    return None
                if len(r.red) > 1 and not keeps_products((r,), (written_out(r, a.name, extent),)):
                    return None
            elif not is_plain(r) or places.setdefault(r.name, r.par.index(a)) != r.par.index(a):
                return None
            elif r.name != name and r.name not in todo:
                todo.append(r.name)
    return Chain(extent, places, sums)


def _guards(r: Def, axis: str) -> bool:
    return r.guard is not None and axis in free_vars(r.guard)


def written_out(d: Def, axis: str, extent: int) -> Def:
    """``d`` with the terms of its reduction at the ``extent`` positions of ``axis`` written out."""
    assert d.op is not None
    binary, dtype = COMBINERS[d.op].binary, d.value.dtype
    terms = (substitute(d.value, {axis: integer(p)}) for p in range(extent))
    value = reduce(lambda x, y: Op(binary, (x, y), dtype, d.span), terms)
    red = tuple(a for a in d.red if a.name != axis)
    if red:
        return replace(d, red=red, value=value)
    if d.guard is not None:
        value = Op("select", (d.guard, value, identity(d.op, dtype)), dtype, d.span)
    return replace(d, red=(), op=None, value=value, guard=None)


def _reads(name: str, defs: Mapping[str, Def]) -> Iterator[tuple[Def, Load]]:
    return ((r, ld) for r in defs.values() for ld in r.reads() if ld.buffer == name)


def _exits(chain: Chain, defs: Mapping[str, Def]) -> Iterator[tuple[Def, str, tuple[Expr, ...], Expr]]:
    """The reads of members at constants or at axes that reductions have for them.

    Each has its reader, the member, the other positions, and the position in the chain.
    """
    for name, at in chain.places.items():
        for r, ld in _reads(name, defs):
            e = ld.index[at]
            if isinstance(e, Const) or (isinstance(e, Var) and chain.sums.get(r.name) == e.name):
                yield r, name, tuple(x for n, x in enumerate(ld.index) if n != at), e


def _combines(chain: Chain, defs: Mapping[str, Def]) -> bool:
    """Whether elementwise definitions combine the positions of one tensor alone, and compute no element of it twice."""
    found = list(_exits(chain, defs))
    if chain.extent != FEW or chain.sums or len(chain.places) > 1:
        return False
    wanted: dict[tuple[str, tuple[Expr, ...]], set[Expr]] = {}
    for r, _, others, e in found:
        if r.is_reduction or set(others) != {Var(a.name) for a in r.par} or len(others) != len(r.par):
            return False
        wanted.setdefault((r.name, others), set()).add(e)
    return bool(wanted) and all(len(at) == FEW for at in wanted.values())


def _expands(d: Def, chain: Chain, defs: Mapping[str, Def]) -> bool:
    """Whether ``d`` has as many elements as it reads, and its chain ends in reads at several positions."""
    read = sum(points(a for a in d.axes if a.name in free_vars(ld)) for ld in d.reads())
    found = list(_exits(chain, defs))
    several = bool(chain.sums) or len({e for *_, e in found}) > 1
    reduced = len(chain.places) > 1 or any(r.is_reduction for r, *_ in found)
    return several and reduced and points(d.par) >= read
