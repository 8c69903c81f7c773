"""``guard-exponents``: an exponent ``(x - r) * k`` stays accurate where ``r * k`` is large.

``fold-scale`` computes it as ``fma(x, k, -K)`` with ``K = r * k`` rounded.  The rounding error of ``K`` is an absolute
error of the exponent: where x = r = -1e9 (a row whose scores are all masked), the exponent is up to 64 away from 0, and
where ``K`` overflows it is NaN.  With |K| at most 2^10 the error is at most 2^-15, a factor of at most 1 + 2^-15.4 that
all elements under one reference share.  Where the types of the inputs do not prove that |K| is so small:

* In a kernel without products, which memory bounds, the subtraction comes first: ``(x - r) * k``.
* In a kernel with products, rows of a large ``K`` are shifted, and all other rows keep their multiply-add::

      near = |K| <= 2^10
      d = select(near, 0, r);  K' = select(near, K, 0)        (once a row)
      exp2(fma(sub_unless_zero(x, d), k, -K'))

  ``sub_unless_zero`` is a subtraction that a warp skips while its ``d`` are 0; ``x`` has more axes than ``d``, else it
  is a ``sub``.

Both forms are equations over the reals.  An r of inf or NaN is not near, so the element is ``x - r`` as written.
Requires: ``x``, ``r`` in f32.  The pass needs no other range, because it only shortens the way from ``x`` to 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from nautilus.core.tiles import TileType
from nautilus.core.types import DType
from nautilus.vr_tile.analysis.value_range import Ranges, value_ranges
from nautilus.vr_tile.ir import DotOp, MapOp, TileKernel, TileModule, TileOp, Value, walk_ops
from nautilus.vr_tile.rewriting import Peephole, each_kernel

#: The largest |K| of an exponent in one multiply-add.
NEAR = 2.0**10


@dataclass(frozen=True, slots=True)
class GuardExponents:
    """Subtract large references before the multiplication."""

    name = "guard-exponents"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` with accurate exponents."""
        return each_kernel(module, _kernel)


def _kernel(k: TileKernel) -> TileKernel:
    if not any(isinstance(op, MapOp) and op.op == "exp2" for op in walk_ops(k.body)):
        return k
    guard = _Guard(value_ranges(k), any(isinstance(op, DotOp) for op in walk_ops(k.body)))
    return Peephole(k).run(guard.rule)


@dataclass(slots=True)
class _Guard:
    ranges: Ranges
    products: bool
    rows: dict[str, tuple[Value, Value]] = field(default_factory=dict)  # -K -> d, -K'

    def rule(self, p: Peephole, op: TileOp) -> Value | None:
        if not (isinstance(op, MapOp) and op.op == "exp2"):
            return None
        found = difference(p, op.args[0])
        if found is None:
            return None
        x, k, r, below = found
        scale = abs(float(p.constant(k) or 0.0))
        if self.ranges.largest(r) * scale <= NEAR:
            return None
        if not self.products and raised(p, below) == 0.0:
            return p.map("exp2", [p.map("mul", [p.map("sub", [x, r]), k])])
        shift, rest = self._row(p, r, below)
        apart = "sub_unless_zero" if len(shift.type.axes) < len(x.type.axes) else "sub"
        return p.map("exp2", [p.map("fma", [p.map(apart, [x, shift]), k, rest])])

    def _row(self, p: Peephole, r: Value, below: Value) -> tuple[Value, Value]:
        """``d`` and ``-K'`` of the reference, once in a block."""
        if below.name not in self.rows or not p.is_here(self.rows[below.name][0]):
            zero, limit, rest = (p.const(c, TileType(DType.F32)) for c in (0.0, NEAR, raised(p, below)))
            near = p.map("le", [p.map("abs", [below]), limit])
            self.rows[below.name] = p.map("select", [near, zero, r]), p.map("select", [near, below, rest])
        return self.rows[below.name]


def raised(p: Peephole, below: Value) -> float:
    """The constant in an exponent (``raise-exponents``): ``n`` where ``below`` is ``fma(r, -k, n)``, else 0."""
    op = p.producer(below)
    return float(p.constant(op.args[2]) or 0.0) if isinstance(op, MapOp) and op.op == "fma" else 0.0


def difference(p: Peephole, v: Value) -> tuple[Value, Value, Value, Value] | None:
    """``(x, k, r, b)`` where ``v`` is ``fma(x, k, b)`` and ``b`` is ``r * -k``, plus a constant, with fewer axes."""
    op = p.producer(v)
    if not (isinstance(op, MapOp) and op.op == "fma") or op.args[0].type != v.type:
        return None
    x, k, b = op.args
    c, below = p.constant(k), p.producer(b)
    if c is None or k.type.axes or len(b.type.axes) >= len(x.type.axes):
        return None
    if not (isinstance(below, MapOp) and below.op in ("mul", "neg", "fma")):
        return None
    if below.op == "fma" and (p.constant(below.args[2]) is None or below.args[2].type.axes):
        return None
    if below.op == "neg":
        return (x, k, below.args[0], b) if c == 1.0 else None
    for r, factor in (below.args[:2], below.args[1::-1]):
        n = p.constant(factor)
        if n is not None and not factor.type.axes and math.isclose(n, -c, rel_tol=1e-12):
            return x, k, r, b
    return None
