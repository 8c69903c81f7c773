"""Products of matrices of which one reads the other across its matrices.

In ``u[b, p, q] = sum[r](L[p, q, r] * X[b, p, r])`` and ``v[b, q, s] = sum[p](R[q, p, s] * u[b, p, q])``, as in products
with monarch matrices, a matrix of ``v`` has one column of each matrix of ``u``.  A block that computes a matrix of
``v`` would compute vectors of ``u``, for which matrix instructions are of no use, so ``u`` is in memory between them.
"""

from __future__ import annotations

from collections.abc import Sequence

from nautilus.core.expr.nodes import Expr, Var
from nautilus.core.expr.products import MatrixProduct, matrix_product
from nautilus.scalar.analysis.contractions.scales import matrix_part
from nautilus.scalar.analysis.definitions import Def


def product_axes(d: Def) -> MatrixProduct | None:
    """The axes of the sum of products ``d``; None for any other definition."""
    return matrix_product(matrix_part(d), [a.name for a in d.par]) if d.op == "sum" and d.red else None


def numbering(reader: Def) -> frozenset[str]:
    """The axes that number the matrices of the product ``reader``."""
    found = product_axes(reader)
    return frozenset[str]() if found is None else found.shared & {a.name for a in reader.par}


def crosses(made: Def, reader: Def, at: Sequence[Expr]) -> bool:
    """Whether the product ``reader`` has elements ``at`` of the product ``made`` across its matrices.

    A matrix of ``reader`` has one row or column of each matrix of ``made``, or sums over elements of different ones.
    """
    found, one = product_axes(made), numbering(reader)
    if found is None or not one:
        return False
    names = [(a.name, e.name) for a, e in zip(made.par, at, strict=True) if isinstance(e, Var)]
    single = {a for a, e in names if e in one}
    summed = {a for a, e in names if e in {x.name for x in reader.red}}
    return not (found.rows - single and found.columns - single and summed - numbering(made))
