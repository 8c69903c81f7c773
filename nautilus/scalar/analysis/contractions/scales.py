"""Products of 8-bit and 16-bit elements with scales for groups of the contracted axis.

``sum[k](A[i, k] * s[i, k // 128] * B[j, k] * t[j // 128, k // 128])`` is a matrix product of ``A`` and ``B`` whose sums
over groups of 128 are multiplied by ``s * t`` before they are added.  The instructions of 8-bit floats add in few bits,
and the sums of their steps are added in f32 anyway, so the scale costs one multiplication where the addition is.  A
step of the reduction loop lies within a group.  Sums of products of 8-bit integers are exact in i32, and each of them
becomes f32 where it is scaled.  Groups are multiples of :data:`SHORT_DEPTH`: with shorter steps the additions
take longer than the product, and operands that ``narrow`` rounds to 16 bits are faster by the cost model.

Sums of groups of products of 16-bit floats are scaled in the same way where few results use an element of the side that
has the scales, as in decoding.  Weights of few bits, ``X[i, k] * ((Q[k, j] - z[k // 128, j]) * s[k // 128, j])``, are
then exact operands: no maximum of the factor has to be known so that 16 bits hold it, and no element is multiplied by
its scale.  Where many results use an element, a kernel of its own stores the scaled factor
(``store-operands``), and a second set of accumulators would take more time.  A step of the loop has fewer terms where
the elements of a tensor are not contiguous along it, so shorter groups suffice.

The groups may also be an axis of their own, ``sum[t, k](A[i, t, k] * s[i, t] * B[j, t, k])``, which
``flatten-contractions`` joins with the one inside of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars, loads
from nautilus.core.expr.products import (
    MOST_FACTORS,
    factors,
    matrix_product,
    product_of,
    strip_conversions,
    strip_lossless_conversions,
)
from nautilus.core.index.groups import quotients
from nautilus.core.records import dataclass
from nautilus.core.types import BYTES, DType
from nautilus.scalar.analysis.definitions import Def, points, size
from nautilus.targets.limits import SHORT_DEPTH

LEAST_GROUP = 32  # terms of the shortest steps of a loop over matrices that are not contiguous along it
#: results that use an element of the side with the scales, at most, where it is computed and where it is a tensor's:
#: from 256 on, a kernel of its own scales it; steps of many rows of computed elements have no registers for two sums
FEW_USES, MOST_USES = 32, 128


@dataclass(frozen=True, slots=True)
class ScaledProduct:
    """The element of a sum: ``product``, that of two tensors, times ``scale``, which ``group`` neighbours share."""

    product: Op
    scale: Expr
    group: int

    @property
    def element(self) -> Op:
        """The product times its scale."""
        return Op("mul", (self.product, self.scale), DType.F32, self.product.span)


def scaled_product(d: Def) -> ScaledProduct | None:
    """``d`` as such a product; None for another definition."""
    value = strip_lossless_conversions(d.value)  # a product that the spec rounds has no scale
    if d.op != "sum" or d.value.dtype is not DType.F32 or not (isinstance(value, Op) and value.op == "mul"):
        return None  # a sum of f64 has conversions of products of f32, which no instruction adds
    parts = factors(value)
    inner = _inner(parts, d)
    if inner is None:
        return None
    tensors = [p for p in parts if operand_type(p) is not None and _group(p, d, inner) is None]
    scales = [p for p in parts if p not in tensors]
    if not 2 < len(parts) <= MOST_FACTORS or len(tensors) != 2:
        return None
    one, other = (t for p in tensors if (t := operand_type(p)) is not None)
    if one.is_half or other.is_half:
        least = _least_group(d, tensors, scales, inner) if one is other else None
    else:
        least = SHORT_DEPTH if one.is_float8 is other.is_float8 else None
    groups = [_group(p, d, inner) for p in scales]
    group = gcd(*(g for g in groups if g is not None))
    found = Op("mul", (tensors[0], tensors[1]), DType.F32, value.span)
    if least is None or None in groups or not group or group % least:
        return None
    if matrix_product(found, [a.name for a in d.par]) is None:
        return None
    return ScaledProduct(found, product_of(scales), group)


def unscaled(d: Def) -> Expr:
    """The element of ``d``, without its scale where it is such a product."""
    found = scaled_product(d)
    return d.value if found is None else found.product


def matrix_part(d: Def) -> Expr:
    """The element of ``d`` without its scale and without the conversions around it."""
    return strip_conversions(unscaled(d))


def operand_type(e: Expr) -> DType | None:
    """The type of an operand of matrix units under a conversion to f32: an element of a tensor, or a 16-bit number."""
    match e:
        case Op(op="cast", dtype=DType.F32, args=(Load(dtype=dtype),)) if dtype.is_float8 or dtype in BYTES:
            return dtype
        case Op(op="cast", dtype=DType.F32, args=(Load(dtype=dtype) | Op(op="narrow", dtype=dtype),)) if dtype.is_half:
            return dtype
    return None


def _least_group(d: Def, operands: Sequence[Expr], scales: Sequence[Expr], inner: Axis) -> int | None:
    """The terms that share a scale of the 16-bit ``operands``, at least; None where no steps of ``d`` have scales."""
    par = frozenset(a.name for a in d.par)
    used = frozenset[str]().union(*map(free_vars, scales)) & par
    for one, other in (operands, operands[::-1]):
        own = free_vars(one) & par
        most = MOST_USES if _is_plain(one) else FEW_USES
        uses = points(a for a in d.par if a.name in free_vars(other) - own)
        if used <= own and uses <= most and not (uses <= FEW_USES and _is_half(one)):
            read = [ld for e in operands for ld in loads(e) if ld.index and not any(map(loads, ld.index))]
            apart = any(inner.name in free_vars(ld) - free_vars(ld.index[-1]) for ld in read)
            return LEAST_GROUP if apart else SHORT_DEPTH
    return None


def _is_half(e: Expr) -> bool:
    """Whether the operand is an element of a tensor of 16 bits.

    Beside few rows such products wait for memory, and a second sum takes more time (H200, 4096 x 8192 weights: 39 us
    beside 16 rows and 33 without; 42 beside 64 rows and 73 without).
    """
    inner = strip_conversions(e)
    return isinstance(inner, Load) and inner.dtype.is_half


def _is_plain(e: Expr) -> bool:
    """Whether the operand is an element of a tensor at a place that no other tensor gives."""
    inner = strip_conversions(e)
    return isinstance(inner, Load) and not any(map(loads, inner.index))


def _inner(parts: Sequence[Expr], d: Def) -> Axis | None:
    """The summed axis along which a group lies: the only one, or the one that is contiguous in both tensors."""
    if len(d.red) == 1:
        return d.red[0]
    names = {a.name: a for a in d.red}
    places = [p.args[0].index for p in parts if isinstance(p, Op) and isinstance(p.args[0], Load) and operand_type(p)]
    last = {index[-1:] for index in places}
    found = next(iter(last)) if len(places) == 2 and len(last) == 1 else ()  # a number without axes has none
    return names.get(found[0].name) if found and isinstance(found[0], Var) else None


def _group(e: Expr, d: Def, inner: Axis) -> int | None:
    """The terms that share ``e``: a divisor of the groups along ``inner``, 0 for all; None: each has its own."""
    used = free_vars(e)
    found = 0
    if inner.name in used:
        own = quotients(e, inner.name)
        if 0 in own:
            return None
        found = gcd(*own)
    if any(a.name in used for a in d.red if a is not inner):
        return None if size(inner) is None else gcd(found, size(inner) or 0)
    return found
