"""``store-partial-sums``: a sum of products over two axes of another product has partial sums over one of them.

Gradients of keys that several heads share are sums over the heads ``r`` of a group and over their queries ``i``::

    dV[g, j, d] = sum[r, i | j <= i](exp(S[g, r, i, j]) * dO[g, r, i, d])

``S`` is itself a product of matrices, for each ``g`` and ``r``.  A kernel of both products has one loop, over ``i``.
Where no single axis stands for ``r`` and ``i`` (``collapse-axes``), because a condition depends on one of them, the sum
over ``i`` is stored for each ``r``::

    T[r, g, j, d] = sum[i | j <= i](exp(S[g, r, i, j]) * dO[g, r, i, d])        ;    dV[g, j, d] = sum[r](T[r, g, j, d])

The axis is the shortest one that the condition does not have, of at most :data:`MOST` elements, and both factors depend
on it.  The factors read no reduction over either axis, such as the maximum of a softmax, of which one kernel computes
running results along both.
"""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.expr.nodes import Axis, Load, Var, free_vars
from nautilus.core.expr.products import matrix_product
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, in_two_steps, put_defs

MOST = 16  # partial sums of an element: more take longer to store than the products take


@dataclass(frozen=True, slots=True)
class StorePartialSums:
    """Store partial sums of products of products."""

    name = "store-partial-sums"

    def apply(self, program: Program) -> Program:
        """The program with one more definition for each such sum; the same object where there is none."""
        defs = find_defs(program)
        for d in defs.values():
            axis = _apart(d, defs)
            if axis is not None:
                program = put_defs(program, d.name, in_two_steps(program, d, (axis,)))
        return program


def _apart(d: Def, defs: Mapping[str, Def]) -> Axis | None:
    """The axis of whose elements ``d`` has partial sums; None where it is no such sum."""
    product = matrix_product(d.value, [a.name for a in d.par]) if d.op == "sum" else None
    if product is None or d.at is not None or len(d.red) < 2 or not {a.name for a in d.red} <= product.shared:
        return None
    read = [(ld, defs[ld.buffer]) for ld in d.reads() if ld.buffer in defs]
    sums = [(ld, made) for ld, made in read if made.is_reduction]
    if any(not _has(ld, a) for ld, _ in sums for a in d.red) or not any(_multiplies_matrices(made) for _, made in sums):
        return None
    held = frozenset() if d.guard is None else free_vars(d.guard)
    free = [a for a in d.red if a.name not in held and (size(a) or MOST + 1) <= MOST]
    apart = bool(held & {a.name for a in d.red})
    return min(free, key=lambda a: size(a) or 0, default=None) if apart and len(free) < len(d.red) else None


def _has(ld: Load, axis: Axis) -> bool:
    return Var(axis.name) in ld.index


def _multiplies_matrices(d: Def) -> bool:
    return d.op == "sum" and matrix_product(d.value, [a.name for a in d.par]) is not None
