"""``flatten-contractions``: a matrix product over several axes that are not side by side is one over a single axis.

``sum[h, d](A[h, i, d] * B[h, d, j])`` has two contracted axes that no view of ``A`` joins.  It becomes

    sum[h_d](A[h_d // 128, i, h_d % 128] * B[h_d // 128, h_d % 128, j])

so that the product has one loop, which its engines pipeline without a break.  The innermost axis has a multiple of
:data:`ROW` bytes, hence a step of the loop stays inside of it: the quotient is the same for the whole step, and the
remainder increases by one in it, as copies of boxes need.  The order of the terms is that of nested loops.  Operands of
16 bits have shorter steps where that makes one loop of them: of :data:`SHORT` bytes, if there is no condition or if
elements have 8 bits, or of :data:`MMA_DEPTH` terms, if the axis is contiguous in no operand (the images of a batch, in
the gradient of a filter).

Operands of at most 16 bits an element may be shifted by the other axes, and the product may have a condition that holds
wherever all operands are inside of their tensors, because copies of boxes give zeros elsewhere, or where one of them
may differ from 0 by its support::

    sum[r, c | 0 <= y + r - 1 < H](X[y + r - 1, c] * F[r, c, k])

The innermost axis of such a product may also be shorter than a multiple of :data:`ROW` bytes: it is then padded to one,
under a condition, where that adds at most one term for :data:`PADDED` of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import TRUE, conjunction, conjuncts
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, children, free_vars, loads, substitute
from nautilus.core.expr.products import matrix_product
from nautilus.core.index.simplify import linear_in, simplify
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.contractions.scales import unscaled
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Kernel, Program
from nautilus.scalar.passes.operands.store_shifted import inside_of_operands
from nautilus.scalar.rewriting import find_defs, fresh_name, kernel_of
from nautilus.targets.limits import MMA_DEPTH

ROW = 128  # bytes of the longest step of a loop along one axis
SHORT = 64  # bytes of a step that is still faster than a loop for each axis
PADDED = 2  # padding adds at most one term for this many terms


@dataclass(frozen=True, slots=True)
class FlattenContractions:
    """Flatten the contracted axes of every matrix product."""

    name = "flatten-contractions"

    def apply(self, program: Program) -> Program:
        """The program with one contracted axis for each such product; the same object where there is none."""
        made = {
            d.name: _flat(program, d, axes) for d in find_defs(program).values() if (axes := contracted(program, d))
        }
        if not made:
            return program
        return replace(program, kernels=tuple(made.get(k.name, k) for k in program.kernels))


def contracted(program: Program, d: Def) -> tuple[Axis, ...]:
    """The axes of ``d`` that become one, outermost first; () for none."""
    part = unscaled(d)
    product = matrix_product(part, [a.name for a in d.par])
    if d.op != "sum" or product is None or len(d.red) < 2:
        return ()
    red, found = {a.name for a in d.red}, loads(part)
    if not red <= product.shared or any(size(a) is None for a in d.red) or not all(map(_is_tensor, children(part))):
        return ()
    inner = innermost(d)
    plain = d.guard is None and all(isinstance(e, Var) for ld in found for e in ld.index if free_vars(e) & red)
    if not plain and not _is_shifted(program, d, found, inner.name):
        return ()
    length = size(inner) or 0
    fits = length == padded(d, inner) or (not plain and PADDED * (padded(d, inner) - length) <= length)
    return (*(a for a in d.red if a is not inner), inner) if fits else ()


def innermost(d: Def) -> Axis:
    """The contracted axis that varies fastest in the one loop of ``d``.

    It is an axis of every operand by itself, if there is one, and contiguous in as many of them as possible.
    """
    found = loads(unscaled(d))

    def key(a: Axis) -> tuple[bool, int, int]:
        alone = all(isinstance(e, Var) for ld in found for e in ld.index if a.name in free_vars(e))
        return alone, sum(_is_last(ld, a.name) for ld in found), d.red.index(a)

    return max(d.red, key=key)


def padded(d: Def, inner: Axis) -> int:
    """The extent of ``inner`` as a multiple of :data:`ROW` bytes of each operand, or as it is if :func:`_fits`."""
    length, found = size(inner) or 0, loads(unscaled(d))
    step = ROW // min(ld.dtype.bytes for ld in found)
    return length if _fits(d, inner, length) else -(-length // step) * step


def _fits(d: Def, inner: Axis, length: int) -> bool:
    """Whether ``length`` elements of ``inner`` are whole steps of a loop (module docstring)."""
    found = loads(unscaled(d))
    along = [ld for ld in found if _is_last(ld, inner.name)]
    if any(ld.dtype.bits > 16 for ld in found):
        return False
    if not along:
        return length % MMA_DEPTH == 0
    bytes_ = all(ld.dtype.bits == 8 for ld in found)
    return (d.guard is None or bytes_) and all(length * ld.dtype.bytes % SHORT == 0 for ld in found)


def _is_shifted(program: Program, d: Def, found: Sequence[Load], inner: str) -> bool:
    """Whether the operands are tensors whose index is affine in the axes of ``d``, with ``inner`` itself in one place.

    The condition says no more than that the operands are inside of their tensors.
    """
    names = {a.name for a in d.axes}
    if any(ld.dtype.bits > 16 for ld in found):
        return False
    for e in (e for ld in found for e in ld.index):
        alone = isinstance(e, Var) or inner not in free_vars(e)
        if loads(e) or not alone or any(linear_in(e, x) is None for x in free_vars(e) & names):
            return False
    inside = list(inside_of_operands(program, d))
    ranges = {a.name: (0, n - 1) for a in d.axes if (n := size(a)) is not None}
    return all(c in inside or simplify(c, ranges, inside) == TRUE for c in conjuncts(d.guard))


def _is_tensor(e: Expr) -> bool:
    """Whether the factor ``e`` is an element of a tensor, whose axes a copy of boxes can follow."""
    while isinstance(e, Op) and e.op == "cast":
        e = e.args[0]
    return isinstance(e, Load)


def _is_last(ld: Load, axis: str) -> bool:
    return bool(ld.index) and isinstance(e := ld.index[-1], Var) and e.name == axis


def _flat(program: Program, d: Def, axes: Sequence[Axis]) -> Kernel:
    taken = [a.name for a in d.axes]
    name = fresh_name(program, "_".join(a.name for a in axes), taken)
    inner = axes[-1]
    sizes = [*(size(a) or 1 for a in axes[:-1]), padded(d, inner)]
    env: Mapping[str, Expr] = {
        a.name: _position(Var(name), prod(sizes[n + 1 :]), sizes[n] if n else 0) for n, a in enumerate(axes)
    }
    axis = Axis(name, prod(sizes), inner.span)
    guard = None if d.guard is None else substitute(d.guard, env)
    length = size(inner) or 0
    if sizes[-1] != length:
        guard = conjunction((calc("lt", env[inner.name], length), guard))
    return kernel_of(replace(d, red=(axis,), value=substitute(d.value, env), guard=guard))


def _position(flat: Expr, stride: int, extent: int) -> Expr:
    """Position ``flat`` along an axis of this stride; ``extent`` 0: the outermost axis."""
    e = calc("floordiv", flat, stride) if stride > 1 else flat
    return calc("mod", e, extent) if extent else e
