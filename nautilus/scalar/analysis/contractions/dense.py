"""Products of matrices, what keeps them, and those whose operands can be stored in an order of their own.

A pass that rewrites sums, or that stores tensors in another order, asks :func:`keeps_products` and
:func:`stored_operands` first: matrix units compute a sum that has another form many times more slowly.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from nautilus.core.expr.nodes import Load, Op, free_vars, loads
from nautilus.core.expr.products import MatrixProduct, factors, matrix_product, strip_conversions, two_sides
from nautilus.core.index.groups import in_groups
from nautilus.core.index.linear import linear
from nautilus.scalar.analysis.contractions.scales import scaled_product, unscaled
from nautilus.scalar.analysis.definitions import Def, size

LANES = 16  # positions, at least, along which the operands of a product are contiguous
#: multiply-adds for each byte of operands and results, at most, that the threads compute in about twice the time of the
#: memory; matrix units are several times faster, but gather single elements, or need other kernels that turn operands
FEW_PRODUCTS = 15


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


def lanes_of(d: Def) -> str | None:
    """The axis of the results of ``d`` along which all operands of its terms are contiguous; None where there is none.

    The terms are products of two tensors, or sums of such.  The position along the axis may have a displacement that
    the results have, but none that is summed, as in a window.
    """
    par, red = {a.name for a in d.par}, {a.name for a in d.red}
    read = [ld for ld in d.reads() if ld.index and red <= free_vars(ld)]
    if d.op != "sum" or not red or len({ld.buffer for ld in read}) < 2 or len(read) != len(d.reads()):
        return None
    lanes = set(par)
    for last in (ld.index[-1] for ld in read):
        form = linear(last)
        lanes &= {x for x in par & free_vars(last) if form.slope(x) == 1} if not free_vars(last) & red else set()
    plain = not any(loads(e) for ld in read for e in ld.index)
    return lanes.pop() if plain and len(lanes) == 1 else None


def multiplies_lanes(d: Def) -> bool:
    """Whether ``d`` has few products for each element of operands that are all contiguous along its results.

    Threads compute such a sum in the order of the memory: a matrix for each mode, ``sum[c](A[b, c, x] * W[c, o, x])``.
    """
    lane = lanes_of(d)
    if lane is None or len(d.red) != 1 or d.par[-1].name != lane:
        return False
    sizes = {a.name: n for a in d.axes if (n := size(a)) is not None}
    if len(sizes) < len(d.axes) or sizes[lane] < LANES:
        return False
    moved = d.buffer.dtype.bytes * prod(sizes[a.name] for a in d.par)
    read = {ld.buffer: ld.dtype.bytes * prod(sizes[x] for x in free_vars(ld)) for ld in d.reads()}
    return prod(sizes.values()) <= FEW_PRODUCTS * (moved + sum(read.values()))
