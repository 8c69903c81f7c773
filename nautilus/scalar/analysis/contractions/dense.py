"""Products of matrices, and those whose operands can be stored in an order of their own.

Every element of such an operand is at a known place.
"""

from __future__ import annotations

from nautilus.core.expr.nodes import Op, loads
from nautilus.core.expr.products import MatrixProduct, matrix_product
from nautilus.scalar.analysis.contractions.scales import unscaled
from nautilus.scalar.analysis.definitions import Def, size


def multiplies_matrices(d: Def) -> bool:
    """Whether ``d`` is a sum of products of two factors, of which each has parallel axes of its own.

    The sums of groups of terms may have scales (:mod:`nautilus.scalar.analysis.contractions.scales`).
    """
    return d.op == "sum" and matrix_product(unscaled(d), [a.name for a in d.par]) is not None


def dense_product(d: Def, sized: bool = True) -> MatrixProduct | None:
    """``d`` as a sum of products of two factors that both have all contracted axes; None for any other definition.

    No place depends on elements of tensors, and where ``sized``, the sizes of all axes are known.
    """
    product = matrix_product(d.value, [a.name for a in d.par])
    if d.op != "sum" or product is None or not isinstance(d.value, Op):
        return None
    if not {a.name for a in d.red} <= product.shared or (sized and any(size(a) is None for a in d.axes)):
        return None
    return None if any(loads(e) for ld in loads(d.value) for e in ld.index) else product
