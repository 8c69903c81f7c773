"""Products of 8-bit floats with scales for groups of the contracted axis.

``sum[k](A[i, k] * s[i, k // 128] * B[j, k] * t[j // 128, k // 128])`` is a matrix product of ``A`` and ``B`` whose sums
over groups of 128 are multiplied by ``s * t`` before they are added.  The instructions of 8-bit floats add in few bits,
and the sums of their steps are added in f32 anyway, so the scale costs one multiplication where the addition is.  A
step of the reduction loop lies within a group, so the group is a multiple of the depth of an instruction.
"""

from __future__ import annotations

from math import gcd

from nautilus.core.expr.nodes import Expr, Load, Op, free_vars
from nautilus.core.expr.products import bare, factors, matrix_product, product_of
from nautilus.core.index.groups import quotients
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def

DEPTH = 32  # elements of an 8-bit operand in one instruction
_MOST_FACTORS = 64


@dataclass(frozen=True, slots=True)
class ScaledProduct:
    """The element of a sum: ``product``, that of two tensors, times ``scale``, which ``group`` neighbours share."""

    product: Op
    scale: Expr
    group: int

    @property
    def element(self) -> Op:
        return Op("mul", (self.product, self.scale), DType.F32, self.product.span)


def scaled_product(d: Def) -> ScaledProduct | None:
    """``d`` as such a product; None for another definition."""
    value = bare(d.value)
    if d.op != "sum" or not (isinstance(value, Op) and value.op == "mul" and value.dtype is DType.F32):
        return None
    parts = factors(value)
    tensors = [p for p in parts if _float8(p) is not None]
    scales = [p for p in parts if _float8(p) is None or _group(p, d)]
    tensors = [p for p in tensors if p not in scales]
    if not 2 < len(parts) <= _MOST_FACTORS or len(tensors) != 2 or _float8(tensors[0]) is not _float8(tensors[1]):
        return None
    groups = [_group(p, d) for p in scales]
    group = gcd(*(g for g in groups if g is not None))
    found = Op("mul", (tensors[0], tensors[1]), DType.F32, value.span)
    if None in groups or not group or group % DEPTH or matrix_product(found, [a.name for a in d.par]) is None:
        return None
    return ScaledProduct(found, product_of(scales), group)


def matrix_part(d: Def) -> Expr:
    """The element of ``d`` without conversions around it and, where it is such a product, without its scale."""
    found = scaled_product(d)
    return bare(d.value) if found is None else found.product


def _float8(e: Expr) -> DType | None:
    """The type of an element of a tensor of 8-bit floats under a conversion."""
    match e:
        case Op(op="cast", args=(Load(dtype=dtype),)) if dtype.is_float8:
            return dtype
    return None


def _group(e: Expr, d: Def) -> int | None:
    """The terms that share ``e``: a divisor of the groups along each summed axis, 0 for all; None: each has its own."""
    found = 0
    for a in d.red:
        if a.name not in free_vars(e):
            continue
        own = quotients(e, a.name)
        if 0 in own:
            return None
        found = gcd(found, *own)
    return found
