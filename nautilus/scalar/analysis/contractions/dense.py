"""Products of matrices, what keeps them, and those whose operands can be stored in an order of their own.

A pass that rewrites sums, or that stores tensors in another order, asks :func:`keeps_products` and
:func:`stored_operands` first: matrix units compute a sum that has another form many times more slowly.
"""

from __future__ import annotations

from collections.abc import Iterable

from nautilus.core.expr.nodes import Load, Op, loads
from nautilus.core.expr.products import MatrixProduct, factors, matrix_product, strip_conversions, two_sides
from nautilus.core.index.groups import in_groups
from nautilus.scalar.analysis.contractions.scales import scaled_product, unscaled
from nautilus.scalar.analysis.definitions import Def, size


def multiplies_matrices(d: Def) -> bool:
    """Whether ``d`` is a sum of products of two factors, of which each has parallel axes of its own.

    The sums of groups of terms may have scales (:mod:`nautilus.scalar.analysis.contractions.scales`).
    """
    return d.op == "sum" and matrix_product(unscaled(d), [a.name for a in d.par]) is not None


def keeps_products(before: Iterable[Def], after: Iterable[Def]) -> bool:
    """Whether matrix units compute all of ``after``, what a rewrite makes of ``before``, if they compute any of those.

    The factors of such a sum are those of rows, those of columns, and scales of groups of terms.
    """
    return all(map(_has_sides, after)) or not any(map(multiplies_matrices, before))


def _has_sides(d: Def) -> bool:
    parts, par, red = factors(d.value), [a.name for a in d.par], [a.name for a in d.red]
    groups = ((), *(in_groups(parts, a) for a in par))
    sides = d.op == "sum" and any(True for g in groups for _ in two_sides(parts, par, red, g))
    return sides or scaled_product(d) is not None


def stored_operands(d: Def) -> frozenset[str]:
    """The tensors whose elements, as they are stored, are operands of the matrix product ``d``; none of another sum.

    A stored operand has the order that its product wants, whose rows copy units load.
    """
    parts = map(strip_conversions, factors(d.value)) if multiplies_matrices(d) else ()
    return frozenset(e.buffer for e in parts if isinstance(e, Load))


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
