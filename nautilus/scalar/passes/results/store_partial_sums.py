"""``store-partial-sums``: reductions over two axes of a product of matrices have partial results over one of them.

Gradients of keys that several heads share are sums over the heads ``r`` of a group and over their queries ``i``::

    dV[g, j, d] = sum[r, i | j <= i](exp(S[g, r, i, j]) * dO[g, r, i, d])

``S`` is itself a product of matrices, for each ``g`` and ``r``.  A kernel of both products has one loop, over ``i``.
Where no single axis stands for ``r`` and ``i`` (``collapse-axes``), because a condition depends on one of them, the sum
over ``i`` is stored for each ``r``::

    T[r, g, j, d] = sum[i | j <= i](exp(S[g, r, i, j]) * dO[g, r, i, d])        ;    dV[g, j, d] = sum[r](T[r, g, j, d])

The axis is the shortest one that the condition does not have, of at most :data:`MOST` elements, and both factors depend
on it.  The factors read no reduction over either axis, such as the maximum of a softmax, of which one kernel computes
running results along both.

A total beside a chain of products, as the gradient of a slope beside that of queries, has one loop with the chain::

    dQ[i, d] = sum[j](exp(S[i, j]) * K[j, d])        ;    g[] = sum[i, j](exp(S[i, j]) * (j - i))
    T[i] = sum[j](exp(S[i, j]) * (j - i))            ;    g[] = sum[i](T[i])

Its partial results are over the axis over which another definition reduces what it reads of the same product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Var, free_vars, rewrite
from nautilus.core.expr.products import matrix_product
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, in_two_steps, put_defs

MOST = 16  # largest number of partial sums of an element: more take longer to store than the products take


@dataclass(frozen=True, slots=True)
class StorePartialSums:
    """Store partial results of reductions of products."""

    name = "store-partial-sums"

    def apply(self, program: Program) -> Program:
        """The program with one more definition for each such sum; the same object where there is none."""
        defs = find_defs(program)
        for d in defs.values():
            outer = _apart(d, defs)
            if not outer:
                d = _with_unit_axes(d, defs)
                outer = _beside_chain(d, defs)
            if outer:
                program = put_defs(program, d.name, in_two_steps(program, d, outer))
        return program


def _apart(d: Def, defs: Mapping[str, Def]) -> tuple[Axis, ...]:
    """The axis of whose elements the product ``d`` has partial sums; () where it is no such sum."""
    product = matrix_product(d.value, [a.name for a in d.par]) if d.op == "sum" else None
    if product is None or d.at is not None or not {a.name for a in d.red} <= product.shared:
        return ()
    read = [(ld, defs[ld.buffer]) for ld in d.reads() if ld.buffer in defs]
    sums = [(ld, made) for ld, made in read if made.is_reduction]
    if any(not _has(ld, a) for ld, _ in sums for a in d.red) or not any(multiplies_matrices(made) for _, made in sums):
        return ()
    held = frozenset() if d.guard is None else free_vars(d.guard)
    free = [a for a in d.red if a.name not in held and (size(a) or MOST + 1) <= MOST]
    apart = bool(held & {a.name for a in d.red})
    return (min(free, key=lambda a: size(a) or 0),) if free and apart and len(free) < len(d.red) else ()


def _beside_chain(d: Def, defs: Mapping[str, Def]) -> tuple[Axis, ...]:
    """The reduced axes of ``d`` but the one that a chain of products has, beside which it is a total; else ()."""
    if not d.is_reduction or d.at is not None or multiplies_matrices(d):
        return ()
    reads = {ld: defs[ld.buffer] for ld in d.reads() if ld.buffer in defs}
    sources = [ld for ld, made in reads.items() if multiplies_matrices(made)]
    chained = [a for a in d.red if sources and all(_is_chained(ld, a, d, defs) for ld in sources)]
    if len(chained) != 1:
        return ()
    place = {e.name: n for n, e in enumerate(sources[0].index) if isinstance(e, Var)}
    return tuple(sorted((a for a in d.red if a is not chained[0]), key=lambda a: place.get(a.name, 0)))


def _is_chained(ld: Load, axis: Axis, d: Def, defs: Mapping[str, Def]) -> bool:
    """Whether another product of matrices reduces along ``axis`` what ``d`` reads as ``ld``, and along no other one."""
    at = [n for n, e in enumerate(ld.index) if e == Var(axis.name)]
    others = [x for x in defs.values() if x.name != d.name and multiplies_matrices(x)]
    found = [(x, other) for x in others for other in x.reads() if other.buffer == ld.buffer]
    plain = len(set(ld.index)) == len(ld.index) and all(isinstance(e, Var) for e in ld.index)
    return plain and any([n for n, e in enumerate(other.index) if e in _reduced(x)] == at for x, other in found)


def _with_unit_axes(d: Def, defs: Mapping[str, Def]) -> Def:
    """``d``, reduced also over the axes of one element that the products that it reads have.

    Partial results then have the axes of the other definitions in a chain.
    """
    if not d.is_reduction or d.at is not None:
        return d
    units: dict[str, Axis] = {}
    taken = {a.name for a in d.axes}

    def rule(n: Expr) -> Expr | None:
        made = defs.get(n.buffer) if isinstance(n, Load) else None
        if made is None or not isinstance(n, Load) or not multiplies_matrices(made):
            return None
        index = list(n.index)
        for at, a in enumerate(made.par):
            if isinstance(index[at], Const) and size(a) == 1 and a.name not in taken:
                units[a.name], index[at] = a, Var(a.name)
        return replace(n, index=tuple(index))

    value = rewrite(d.value, rule)
    return replace(d, value=value, red=(*units.values(), *d.red)) if units else d


def _reduced(d: Def) -> list[Var]:
    return [Var(a.name) for a in d.red]


def _has(ld: Load, axis: Axis) -> bool:
    return Var(axis.name) in ld.index
