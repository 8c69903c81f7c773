"""``store-transposed``: a tensor that a sum shifts along its contiguous axis gets another axis last.

The gradient of a filter sums over the positions of an image, which taps shift::

    G[k, c, r, s] = sum[b, y, x](D[b, k, y, x] * X[b, c, y + r - 1, x + s - 1])

Copies of boxes do not load rows along ``x`` that start anywhere: those start at multiples of 16 bytes.  An axis of the
result that nothing shifts, here ``c``, may be the contiguous one of an operand, so the tensor is stored with it last::

    X_turned[b, y, x, c] = X[b, c, y, x]
    G[k, c, r, s] = sum[b, y, x](D[b, k, y, x] * X_turned[b, y + r - 1, x + s - 1, c])

The temp has the elements of the tensor and no others, so the condition of the sum is what it was.

The pass applies to products of two tensors of 16 bits, or of f32 where their parts may be stored, on targets with
warpgroup MMAs.  The tensor is an input in row-major order.  Its contiguous axis counts a contracted axis that others
shift, and the new one has at least :data:`LEAST` elements, whole vectors of them.  Each element is an operand of
:data:`AGAIN` terms at least, so that the product is worth the kernel that stores.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from nautilus.core.buffers import Space
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars, rewrite
from nautilus.core.expr.products import strip_lossless_conversions
from nautilus.core.index.linear import linear
from nautilus.core.index.sizes import nominal
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, parts_allowed
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.dense import dense_product
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.windows.order_operands import ordered_temp
from nautilus.scalar.rewriting import equal_temp, find_defs, fresh_name, put_defs
from nautilus.targets.limits import VECTOR_BYTES, limits
from nautilus.targets.records import DEFAULT_TARGET

LEAST = 64  # elements of the new contiguous axis: rows of 128 bytes
AGAIN = 256  # terms of each element


@dataclass(frozen=True, slots=True)
class StoreTransposed:
    """Store such tensors.  ``arch``: the target; ``schedule`` and ``precision`` may forbid parts of f32."""

    arch: str = DEFAULT_TARGET
    precision: str = "fast"
    schedule: Schedule | None = None

    name = "store-transposed"

    def apply(self, program: Program) -> Program:
        """The program with one more definition for each such tensor."""
        if not limits(self.arch).warpgroup:
            return program
        in_parts = parts_allowed(self.precision, self.schedule)
        for name in find_defs(program):
            found = shifted_rows(program, find_defs(program)[name], in_parts)
            if found is not None:
                program = _stored(program, find_defs(program)[name], *found)
        return program


def shifted_rows(program: Program, d: Def, in_parts: bool) -> tuple[Load, int] | None:
    """The factor of ``d`` whose tensor is stored, and the axis of the tensor that becomes the last one; else None."""
    product = dense_product(d)
    if product is None or not isinstance(d.value, Op):
        return None
    factors = [e for e in map(_tensor, d.value.args) if e is not None]
    types = {ld.dtype for ld in factors}
    if len(factors) < len(d.value.args) or not all(t.is_half or (t is DType.F32 and in_parts) for t in types):
        return None
    terms = prod(size(a) or 0 for a in d.axes)
    for ld in factors:
        own = product.rows if any(x in free_vars(ld) for x in product.rows) else product.columns
        place = _place(program, d, ld, own)
        elements = prod(n for n in program.buffer(ld.buffer).shape if isinstance(n, int))
        if place is not None and terms >= AGAIN * elements:
            return ld, place
    return None


def _tensor(e: Expr) -> Load | None:
    e = strip_lossless_conversions(e) if isinstance(e, Op) and e.op == "cast" else e
    return e if isinstance(e, Load) else None


def _place(program: Program, d: Def, ld: Load, own: frozenset[str]) -> int | None:
    """The axis of the tensor of ``ld`` that is an axis of the result by itself, where its last one is shifted."""
    b = program.buffer(ld.buffer)
    if b.space is not Space.INPUT or b.strides is not None or not all(isinstance(n, int) for n in b.shape):
        return None
    summed = {a.name for a in d.red}
    last = linear(ld.index[-1])
    along = [x for x in summed if last.slope(x)]
    if len(along) != 1 or not free_vars(ld.index[-1]) & own:
        return None
    alone = [
        n
        for n, (e, length) in enumerate(zip(ld.index, b.shape, strict=True))
        if isinstance(e, Var) and e.name in own and isinstance(length, int) and _is_row(length, b.dtype)
    ]
    others = {x for n, e in enumerate(ld.index) if n not in alone for x in free_vars(e)}
    free = [n for n in alone if not free_vars(ld.index[n]) & others]
    return max(free, key=lambda n: nominal(b.shape[n]), default=None)


def _is_row(length: int, dtype: DType) -> bool:
    return length >= LEAST and length * dtype.bytes % VECTOR_BYTES == 0


def _stored(program: Program, d: Def, ld: Load, place: int) -> Program:
    """``program`` where ``d`` reads a temp with axis ``place`` of the tensor of ``ld`` last."""
    b = program.buffer(ld.buffer)
    order = [*(n for n in range(len(b.shape)) if n != place), place]
    axes = [Axis(f"i{n}", extent, ld.span) for n, extent in enumerate(b.shape)]
    temp = ordered_temp(fresh_name(program, f"{ld.buffer}_turned"), b, axes, order)
    known = equal_temp(program, temp, d.name)
    name = known or temp.name

    def rule(e: Expr) -> Expr | None:
        return Load(name, tuple(ld.index[n] for n in order), ld.dtype, e.span) if e == ld else None

    made = replace(d, value=rewrite(d.value, rule))
    return put_defs(program, d.name, (made,) if known else (temp, made))
