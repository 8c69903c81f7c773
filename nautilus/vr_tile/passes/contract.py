"""``contract``: reduces the instructions of an element where different rounding is permitted (``precision`` fast, f32).

    (t + 1) * h              ->  fma(t, h, h)                      [1]
    b * c + a, a + b * c     ->  fma(b, c, a)                      [2] the product has no other reader
    polynomials in one value ->  Horner's form, in x * x where only every other power occurs    [3]

Domain.  All rules are equations over the reals.  Rule [1] keeps inf and NaN only where t is 1 or -1 at an infinite h,
because ``t * inf + inf`` is NaN for a negative t where ``(t + 1) * inf`` is inf; so t must be the tanh or erf of a
polynomial in h.  Rule [2] rounds once instead of twice; it can only avoid an overflow of ``b * c``.  Rule [3] forms
powers up to the degree that the polynomial has, and keeps inf and NaN but for the order of terms of different signs.
It multiplies and adds single terms to polynomials, and nothing else: a product ``(x - 1) * (x - 2)`` is accurate close
to its roots, where the terms of ``x * x - 3 * x + 2`` cancel.

A rule applies where it saves an operation.  Rule [2] applies only to products with the result's axes in the same
block, because a product that ``hoist`` moved out of a loop is cheap.  It does not apply to repairs of carried values.
Code that computes a value twice and compares the two (an index of a maximum) requires equal rounding, but contraction
depends on the readers of a value.  Therefore modules that compare computed floats with each other are not changed.
"""

from __future__ import annotations

from nautilus.core.expr.nodes import COMPARISONS
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileType
from nautilus.core.types import DType
from nautilus.vr_tile.ir import ConstOp, MapOp, TileModule, TileOp, Value, walk_ops
from nautilus.vr_tile.rewriting import Peephole, each_kernel

_MOST = 8  # degree of a polynomial
_DEEPEST = 3 * _MOST  # nested operations of a polynomial: at most a power, a product and a sum for each degree
_POLYNOMIAL = frozenset({"add", "sub", "mul", "neg", "fma"})
_SATURATING = frozenset({"tanh", "tanh_approx", "erf"})
_Coefficients = dict[int, float]


@dataclass(frozen=True, slots=True)
class Contract:
    """Contract multiply-adds and polynomials; no change under ``precision`` strict."""

    precision: str = "fast"

    name = "contract"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` with fewer f32 operations."""
        if self.precision != "fast" or _compares(module):
            return module
        return each_kernel(module, lambda k: Peephole(k).run(_rule))


def _compares(m: TileModule) -> bool:
    """Whether any op compares two computed floats."""
    constants = {op.result.name for k in m.kernels for op in walk_ops(k.body) if isinstance(op, ConstOp)}
    return any(
        isinstance(op, MapOp) and op.op in COMPARISONS
        and all(a.type.dtype.is_float and a.name not in constants for a in op.args)
        for k in m.kernels for op in walk_ops(k.body)
    )  # fmt: skip


def _rule(p: Peephole, op: TileOp) -> Value | None:
    if not (isinstance(op, MapOp) and op.result.type.dtype is DType.F32):
        return None
    if op.op in _POLYNOMIAL:
        new = _horner(p, op)
        if new is not None:
            return new
    match op.op, op.args:
        case "mul", (a, b):
            return _times_one_more(p, a, b) or _times_one_more(p, b, a)
        case "add", (a, b):
            return _multiply_add(p, op, a, b) or _multiply_add(p, op, b, a)
    return None


def _here(p: Peephole, v: Value, name: str) -> MapOp | None:
    """The op ``name`` in this block that defines ``v``, if ``v`` has one reader; else None."""
    op = p.producer(v)
    fits = isinstance(op, MapOp) and op.op == name and not p.shared(v) and p.is_here(v)
    return op if fits and isinstance(op, MapOp) else None


def _times_one_more(p: Peephole, a: Value, h: Value) -> Value | None:
    """Rule [1]."""
    inner = _here(p, a, "add")
    if inner is None or a.type != p.type(DType.F32, (*a.type.names, *h.type.names)) or p.constant(h) is not None:
        return None
    for t, one in (inner.args, inner.args[::-1]):
        if p.constant(one) == 1.0 and t.type == a.type and _saturates(p, t, h):
            return p.map("fma", [t, h, h])
    return None


def _saturates(p: Peephole, t: Value, h: Value) -> bool:
    """Whether ``t`` is 1, -1 or NaN where ``h`` is infinite: the tanh or erf of a polynomial in ``h``."""
    op = p.producer(t)
    return isinstance(op, MapOp) and op.op in _SATURATING and _grows(p, op.args[0], _unscaled(p, h))


def _grows(p: Peephole, v: Value, base: Value) -> bool:
    """Whether ``v`` is a polynomial in ``base``, which is infinite or NaN where ``base`` is."""
    op = p.producer(v)
    if v == base or not isinstance(op, MapOp) or op.op not in _POLYNOMIAL:
        return v == base
    return all(_grows(p, a, base) for a in op.args if p.constant(a) is None)


def _unscaled(p: Peephole, v: Value) -> Value:
    """``x`` where ``v`` is ``x * c`` with a constant other than 0, also of several products."""
    op = p.producer(v)
    if isinstance(op, MapOp) and op.op == "mul":
        for x, c in (op.args, op.args[::-1]):
            if p.constant(c):
                return _unscaled(p, x)
    return v


def _multiply_add(p: Peephole, op: MapOp, a: Value, m: Value) -> Value | None:
    """Rule [2]."""
    inner = _here(p, m, "mul")
    if inner is None or m.type != op.result.type or p.constant(a) is not None:
        return None
    if any(p.producer(x) is None for x in inner.args):  # the repair of a carried value
        return None
    return p.map("fma", [*inner.args, a])


# -- [3] --------------------------------------------------------------------------------------------


def _horner(p: Peephole, op: MapOp) -> Value | None:
    seen: set[str] = set()
    found = _combined(p, op, seen)
    if found is None:
        return None
    base, c = found
    least, most = min(c), max(c)
    step = 2 if all((d - least) % 2 == 0 for d in c) else 1
    if base.type != op.result.type or most < 2 or least == most or least > 1:
        return None
    terms = (most - least) // step
    if (step == 2) + terms + (least == 1) >= len(seen) + 1:
        return None
    y = p.map("mul", [base, base]) if step == 2 else base
    one = TileType(DType.F32)
    value = p.const(c[most], one)
    for d in range(most - step, least - 1, -step):
        more = c.get(d, 0.0)
        value = p.map("fma", [y, value, p.const(more, one)]) if more else p.map("mul", [y, value])
    return p.map("mul", [value, base]) if least == 1 else value


def _combined(p: Peephole, op: MapOp, seen: set[str], depth: int = 0) -> tuple[Value, _Coefficients] | None:
    """``op`` as a polynomial in one value; ``seen`` collects the operations that it replaces."""
    if depth > _DEEPEST:
        return None
    parts = [_polynomial(p, a, seen, depth + 1) for a in op.args]
    bases = {b for b, _ in parts if b is not None}
    if len(bases) != 1:
        return None
    cs = [c for _, c in parts]
    out: _Coefficients | None
    match op.op:
        case "neg":
            out = {d: -x for d, x in cs[0].items()}
        case "add" | "sub":
            out = _plus(cs[0], cs[1], 1.0 if op.op == "add" else -1.0)
        case "mul":
            out = _times(cs[0], cs[1])
        case _:
            product = _times(cs[0], cs[1])
            out = None if product is None else _plus(product, cs[2], 1.0)
    if out is None:
        return None
    out = {d: x for d, x in out.items() if x != 0.0}
    return (bases.pop(), out) if out and max(out) <= _MOST else None


def _polynomial(p: Peephole, v: Value, seen: set[str], depth: int) -> tuple[Value | None, _Coefficients]:
    c = p.constant(v)
    if c is not None and not v.type.axes:
        return None, {0: float(c)}
    op = p.producer(v)
    if isinstance(op, MapOp) and op.op in _POLYNOMIAL and not p.shared(v) and p.is_here(v):
        inner: set[str] = set()
        found = _combined(p, op, inner, depth)
        if found is not None:
            seen |= inner | {v.name}
            return found
    return v, {1: 1.0}


def _plus(a: _Coefficients, b: _Coefficients, sign: float) -> _Coefficients | None:
    """``a + sign * b``; None where both have several terms, of which those of one power may cancel."""
    if len(a) > 1 < len(b):
        return None
    return {d: a.get(d, 0.0) + sign * b.get(d, 0.0) for d in a.keys() | b.keys()}


def _times(a: _Coefficients, b: _Coefficients) -> _Coefficients | None:
    """``a * b``; None where both have several terms."""
    if len(a) > 1 < len(b):
        return None
    return {d + e: x * y for d, x in a.items() for e, y in b.items()}
