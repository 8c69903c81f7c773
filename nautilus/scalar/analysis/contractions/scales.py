"""Products of 8-bit elements with scales for groups of the contracted axis.

``sum[k](A[i, k] * s[i, k // 128] * B[j, k] * t[j // 128, k // 128])`` is a matrix product of ``A`` and ``B`` whose sums
over groups of 128 are multiplied by ``s * t`` before they are added.  The instructions of 8-bit floats add in few bits,
and the sums of their steps are added in f32 anyway, so the scale costs one multiplication where the addition is.  A
step of the reduction loop lies within a group.  Sums of products of 8-bit integers are exact in i32, and each of them
becomes f32 where it is scaled.  Groups are multiples of :data:`SHORT_DEPTH`: with shorter steps the additions
take longer than the product, and operands that ``narrow`` rounds to 16 bits are faster by the cost model.

The groups may also be an axis of their own, ``sum[t, k](A[i, t, k] * s[i, t] * B[j, t, k])``, which
``flatten-contractions`` joins with the one inside of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars
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
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.targets.limits import SHORT_DEPTH


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
    tensors = [p for p in parts if _byte(p) is not None and _group(p, d, inner) is None]
    scales = [p for p in parts if p not in tensors]
    if not 2 < len(parts) <= MOST_FACTORS or len(tensors) != 2:
        return None
    one, other = (t for p in tensors if (t := _byte(p)) is not None)
    if one.is_float8 is not other.is_float8:
        return None
    groups = [_group(p, d, inner) for p in scales]
    group = gcd(*(g for g in groups if g is not None))
    found = Op("mul", (tensors[0], tensors[1]), DType.F32, value.span)
    if None in groups or not group or group % SHORT_DEPTH or matrix_product(found, [a.name for a in d.par]) is None:
        return None
    return ScaledProduct(found, product_of(scales), group)


def unscaled(d: Def) -> Expr:
    """The element of ``d``, without its scale where it is such a product."""
    found = scaled_product(d)
    return d.value if found is None else found.product


def matrix_part(d: Def) -> Expr:
    """The element of ``d`` without its scale and without the conversions around it."""
    return strip_conversions(unscaled(d))


def _byte(e: Expr) -> DType | None:
    """The type of an element of a tensor of 8-bit floats or integers under a conversion to f32."""
    match e:
        case Op(op="cast", dtype=DType.F32, args=(Load(dtype=dtype),)) if dtype.is_float8 or dtype in BYTES:
            return dtype
    return None


def _inner(parts: Sequence[Expr], d: Def) -> Axis | None:
    """The summed axis along which a group lies: the only one, or the one that is contiguous in both tensors."""
    if len(d.red) == 1:
        return d.red[0]
    names = {a.name: a for a in d.red}
    places = [p.args[0].index for p in parts if isinstance(p, Op) and isinstance(p.args[0], Load) and _byte(p)]
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
