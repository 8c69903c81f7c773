"""``fold-scale``: moves constant factors to the cheapest position, and forms ``fma`` from multiply-adds.

``k`` and ``c`` are constants (f32, finite, not 0).  The rules apply to one op after its operands::

    (x * c) * k             ->  x * (c * k)                     [1]
    (-x) * k                ->  x * -k                          [2] exact
    (a - b) * k             ->  fma(a, k, b * -k)               [3] b has fewer axes than the result
    (a + b) * k             ->  fma(a, k, b * k)                    (and with a and b exchanged)
    x * c - m               ->  fma(x, c, -m)                   [4] m has fewer axes than the result
    x * c + m               ->  fma(x, c, m)                        (and m + x * c)
    fma(x * c, k, m)        ->  fma(x, c * k, m)                [1]
    fma(x, k, m) * c        ->  fma(x, k * c, m * c)            m has fewer axes than the result
    reduce max (x * c)      ->  (reduce max x) * c              [5] exact: rounding is monotone; c > 0
    reduce sum (x * c)      ->  (reduce sum x) * c              [6]
    select(p, x * c, z)     ->  select(p, x, z) * c             [7] exact: z is 0, or inf and c > 0
    select(x * c == -inf, 0, x * c)  ->  select(x == -inf, 0, x) * c    [8] c > 0
    exp2((x * c - y * c) * k)        ->  exp2((x - y) * (c * k))        [9]

For example, ``exp2((s * c - m) * k)`` becomes ``exp2(fma(s, c * k, m * -k))``: one multiply-add and one exponential an
element, and ``m * -k`` once a row, while a running maximum reads unscaled scores.  Rule [3] requires a sum without
other readers, because otherwise it saves nothing.  Rule [7] applies only to the argument of a reduction, because
elsewhere it would move the factor away from an fma.  Rules [1] [3] [4] [6] round differently and require ``precision``
fast; the others are exact bit for bit.

All rules are equations over the reals, and keep inf and NaN with these exceptions.  A constant that two factors make
must be a normal f32 number.  Rules [1] [8] may avoid an overflow.  Rule [3] can overflow where ``a - b`` does not, and
its error is relative to ``b * k``, not to the difference: ``guard-exponents`` restores both where an exponential
depends on them.  It leaves large constants alone, such as -1e30 in place of a masked score: a difference from one is
exact where both are equal, and its products are not.
"""

from __future__ import annotations

import math

from nautilus.core.records import dataclass
from nautilus.core.tiles import TileType
from nautilus.core.types import DType, value_limits
from nautilus.vr_tile.ir import ConstOp, MapOp, ReduceOp, TileModule, TileOp, Value
from nautilus.vr_tile.rewriting import Peephole, each_kernel

_FAR = 2.0**16  # a constant beyond this has a rounding error that an exponential makes a relative one of 2^-8


@dataclass(frozen=True, slots=True)
class FoldScale:
    """Merge constant factors."""

    precision: str = "fast"

    name = "fold-scale"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` with factors folded; under strict, only the exact rules apply."""
        return each_kernel(module, lambda k: Peephole(k).run(self._rule))

    def _rule(self, p: Peephole, op: TileOp) -> Value | None:
        fast = self.precision == "fast"
        match op:
            case MapOp(result=r) | ReduceOp(result=r) if r.type.dtype is not DType.F32:
                return None
            case MapOp(op="mul", args=(a, b)):
                x, k = _split(p, a, b)
                return None if x is None else _product(p, x, k, op.result.type, fast)
            case MapOp(op="add" | "sub" as name, args=(a, b)) if fast:
                return _sum(p, name, a, b)
            case MapOp(op="fma", args=(x, k, m)) if fast:
                return _fma(p, x, k, m)
            case MapOp(op="select", args=(cond, z, v)) if fast:
                return _reference(p, cond, z, v)
            case MapOp(op="exp2", args=(x,)) if fast:
                return _power(p, x)
            case ReduceOp():
                return _reduction(p, op, fast)
        return None


def _number(p: Peephole, v: Value) -> float | None:
    """The value of ``v`` if it is a finite constant other than 0, else None."""
    c = p.constant(v)
    if c is None or isinstance(c, bool) or not math.isfinite(c) or c == 0:
        return None
    return float(c)


def _split(p: Peephole, a: Value, b: Value) -> tuple[Value | None, float]:
    """The varying side of a product and its constant factor."""
    for x, c in ((a, b), (b, a)):
        k = _number(p, c)
        if k is not None and not c.type.axes and p.constant(x) is None:
            return x, k
    return None, 0.0


def _scaled(p: Peephole, v: Value) -> tuple[Value, float] | None:
    """``(x, c)`` where ``v`` is ``x * c``."""
    op = p.producer(v)
    if isinstance(op, MapOp) and op.op == "mul":
        x, c = _split(p, *op.args)
        if x is not None:
            return x, c
    return None


def _normal(k: float) -> bool:
    """Whether ``k`` is in the range of normal f32 numbers, in which it is rounded with a relative error of 2^-24."""
    return 2.0**-126 <= abs(k) <= value_limits(DType.F32)[1]


def _factor(p: Peephole, k: float) -> Value:
    return p.const(k, TileType(DType.F32))


def _times(p: Peephole, v: Value, k: float) -> Value:
    """``v * k``, folded into the definition of ``v`` where a rule permits it."""
    c = p.constant(v)
    if c is not None:
        return p.const(float(c) * k, v.type)
    inner = _scaled(p, v)
    if inner is not None and _normal(inner[1] * k):
        return _times(p, inner[0], inner[1] * k)
    op = p.producer(v)
    if isinstance(op, MapOp) and op.op == "neg":
        return _times(p, op.args[0], -k)
    if k == 1.0:
        return v
    return p.map("neg", [v]) if k == -1.0 else p.map("mul", [v, _factor(p, k)])


def _fewer(v: Value, t: TileType) -> bool:
    return len(v.type.axes) < len(t.axes)


def _product(p: Peephole, x: Value, k: float, t: TileType, fast: bool) -> Value | None:
    """Rules 1 to 3 for ``x * k``."""
    op = p.producer(x)
    if not isinstance(op, MapOp) or x.type != t:
        return None
    match op.op, op.args:
        case "neg", (y,):
            return _times(p, y, -k) if fast or _scaled(p, y) is None else p.map("mul", [y, _factor(p, -k)])
        case _ if not fast:
            return None
        case "mul", _ if (inner := _scaled(p, x)) is not None and _normal(inner[1] * k):
            return _times(p, x, k)
        case _ if p.shared(x):
            return None
        case "add" | "sub", (a, b) if any(abs((_number(p, v) or 0.0) * k) > _FAR for v in (a, b)):
            return None
        case "add" | "sub" as name, (a, b) if _fewer(b, t) and a.type == t:
            return _multiply_add(p, a, k, _times(p, b, k if name == "add" else -k))
        case "add" | "sub" as name, (a, b) if _fewer(a, t) and b.type == t:
            return _multiply_add(p, b, k if name == "add" else -k, _times(p, a, k))
        case "fma", (y, c, m) if _fewer(m, t) and _normal((_number(p, c) or 0.0) * k):
            return _multiply_add(p, y, (_number(p, c) or 0.0) * k, _times(p, m, k))
    return None


def _multiply_add(p: Peephole, x: Value, k: float, m: Value) -> Value:
    """``x * k + m`` with the factors of ``x`` folded into ``k``."""
    inner = _scaled(p, x)
    while inner is not None and _normal(inner[1] * k):
        x, k = inner[0], inner[1] * k
        inner = _scaled(p, x)
    return p.map("fma", [x, _factor(p, k), m])


def _sum(p: Peephole, name: str, a: Value, b: Value) -> Value | None:
    """Rule 4."""
    left, right = _scaled(p, a), _scaled(p, b)
    full = p.type(DType.F32, (*a.type.names, *b.type.names))
    if left is not None and _fewer(b, full) and a.type == full:
        return _multiply_add(p, a, 1.0, b if name == "add" else _times(p, b, -1.0))
    if right is not None and _fewer(a, full) and b.type == full:
        return _multiply_add(p, b, 1.0 if name == "add" else -1.0, a)
    return None


def _fma(p: Peephole, x: Value, k: Value, m: Value) -> Value | None:
    c = _number(p, k)
    inner = _scaled(p, x)
    if c is None or k.type.axes or inner is None or not _normal(inner[1] * c):
        return None
    return _multiply_add(p, x, c, m)


def _reference(p: Peephole, cond: Value, z: Value, v: Value) -> Value | None:
    """Rule 8."""
    inner, test = _scaled(p, v), p.producer(cond)
    if inner is None or inner[1] < 0 or p.constant(z) != 0.0 or not (isinstance(test, MapOp) and test.op == "eq"):
        return None
    x, c = inner
    if test.args[0] != v or p.constant(test.args[1]) != -math.inf or x.type != v.type:
        return None
    return p.map("mul", [p.map("select", [p.map("eq", [x, test.args[1]]), z, x]), _factor(p, c)])


def _power(p: Peephole, x: Value) -> Value | None:
    """Rule 9."""
    t, k = _scaled(p, x) or (x, 1.0)
    op = p.producer(t)
    if not (isinstance(op, MapOp) and op.op == "sub"):
        return None
    a, b = (_scaled(p, v) for v in op.args)
    if a is None or b is None or a[1] != b[1] or t.type != x.type:
        return None
    difference = p.map("sub", [a[0], b[0]])
    return p.map("exp2", [_times(p, difference, a[1] * k)]) if difference.type == x.type else None


def _reduction(p: Peephole, op: ReduceOp, fast: bool) -> Value | None:
    """Rules 5 to 7: the factor leaves the reduction."""
    ordered = op.combiner in ("max", "min")
    if not (ordered or (op.combiner == "sum" and fast)):
        return None
    inner = _scaled(p, op.arg)
    arg: Value | None = None
    if inner is not None:
        arg, k = inner
    else:
        found = _through_select(p, op.arg)
        if found is None:
            return None
        cond, x, k, z = found
    combiner = op.combiner
    if ordered and k < 0:
        if inner is None:
            return None
        combiner = "min" if combiner == "max" else "max"
    if arg is None:
        arg = p.map("select", [cond, x, z])
    if any(a not in arg.type.names for a in op.axes):
        return None
    return p.map("mul", [p.reduce(combiner, arg, op.axes), _factor(p, k)])


def _through_select(p: Peephole, v: Value) -> tuple[Value, Value, float, Value] | None:
    """``(cond, x, k, z)`` where ``v`` is ``select(cond, x * k, z)`` and ``z * k`` is ``z``."""
    op = p.producer(v)
    if not (isinstance(op, MapOp) and op.op == "select"):
        return None
    cond, a, z = op.args
    inner, rest = _scaled(p, a), p.producer(z)
    if inner is None or not isinstance(rest, ConstOp):
        return None
    x, k = inner
    same = rest.value == 0 or (math.isinf(rest.value) and k > 0)
    return (cond, x, k, z) if same else None
