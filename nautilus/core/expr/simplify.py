"""Simplification of float and bool values that is safe over the reals and keeps IEEE specials.

Applied: ``x * 1``, ``x + 0``, ``x - 0``, ``x / c`` -> ``x * (1 / c)``, constants folded and gathered,
small powers as products and roots, ``neg neg``, ``select`` of a constant, conversions that undo or
repeat an exact one, ``and``/``or`` with a constant, ``max(x, -inf)``, ``expm1(x) + 1`` -> ``exp(x)`` (also after a
``select``), which is cheaper and accurate for x far below 0; the conversion of a product of small integers is a product
of conversions, so that sums of such products times a scale are matrix products.  Not applied, because inf and NaN
disagree: ``x * 0``, ``x - x``, ``x / x``, ``not (a < b)`` on floats.  A division stays where its last bit may decide
(:mod:`nautilus.core.expr.quotients`).  A folded f32 constant keeps its
float64 value ("f32 or better").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from nautilus.core.expr.nodes import COMPARISONS, Const, Expr, Load, Op, children, loads, rewrite
from nautilus.core.expr.quotients import decided
from nautilus.core.functions import FUNCTIONS
from nautilus.core.types import DType, holds


def simplify_value(e: Expr) -> Expr:
    """``e`` simplified bottom-up by the rules of the module docstring."""
    if not decided(e):
        return rewrite(e, _rule)
    e = rewrite(e, lambda n: None if _is_quotient(n) else _rule(n))
    kept = decided(e)
    return rewrite(e, lambda n: None if n in kept else _rule(n))


def _is_quotient(e: Expr) -> bool:
    return isinstance(e, Op) and e.op == "div"


def _rule(e: Expr) -> Expr | None:
    """Rules at one node, repeated until none applies."""
    changed = False
    for _ in range(8):
        new = _step(e) if isinstance(e, Op) else None
        if new is None or new == e:
            break
        e, changed = new, True
    return e if changed else None


def _step(e: Op) -> Expr | None:
    if all(isinstance(a, Const) for a in e.args):
        folded = _fold(e)
        if folded is not None:
            return folded
    rule = _RULES.get(e.op)
    return None if rule is None else rule(e)


_INT_BITS = 64
_SMALL_BITS = 8  # of integers whose products f32 has exactly
_MOST_FACTORS = 16  # factors of a power that becomes a product
_MOST_LEAVES = 64  # leaves of the tree of such a product: powers of powers would grow without a bound
_FOLD = {f.name: f.python for f in FUNCTIONS.values() if f.python is not None}


def _fold(e: Op) -> Const | None:
    """The constant value of ``e`` if Python computes it accurately enough, else None. inf and NaN are not folded."""
    values = [a.value for a in e.args if isinstance(a, Const)]
    if e.dtype.is_float and e.op not in COMPARISONS:
        values = [float(v) for v in values]
    if e.op == "pow" and e.dtype.is_int and abs(values[0]) > 1 and values[1] > _INT_BITS:
        return None  # the exact power has no place in memory; it wraps at run time
    known = e.op in COMPARISONS or all(math.isfinite(v) for v in values)
    if e.op not in _FOLD or not known:
        return None
    try:
        value = _FOLD[e.op](*values)
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    if isinstance(value, complex) or (e.dtype is not DType.BOOL and not math.isfinite(value)):
        return None
    if e.dtype.is_int and (not isinstance(value, int) or abs(value) >> (e.dtype.bits - 1)):
        return None
    if e.dtype is DType.BOOL:
        return Const(bool(value), e.dtype, e.span)
    return Const(int(value) if e.dtype.is_int else float(value), e.dtype, e.span)


def _is(e: Expr, value: float) -> bool:
    return isinstance(e, Const) and e.dtype is not DType.BOOL and e.value == value


def _constants_right(e: Op) -> Op | None:
    a, b = e.args
    if isinstance(a, Const) and not isinstance(b, Const):
        return Op(e.op, (b, a), e.dtype, e.span)
    return None


def _gather(e: Op) -> Expr | None:
    """``(x op c) op d`` -> ``x op (c op d)``."""
    a, b = e.args
    match a:
        case Op(op=op, args=(x, Const() as c)) if op == e.op and isinstance(b, Const):
            folded = _fold(Op(e.op, (c, b), e.dtype, e.span))
            if folded is not None:
                return Op(e.op, (x, folded), e.dtype, e.span)
    return None


def _add(e: Op) -> Expr | None:
    a, b = e.args
    if _is(b, 0):
        return a
    if isinstance(b, Op) and b.op == "neg":
        return Op("sub", (a, b.args[0]), e.dtype, e.span)
    if isinstance(a, Op) and a.op == "neg" and not isinstance(b, Const):
        return Op("sub", (b, a.args[0]), e.dtype, e.span)
    if _is(b, 1) and _ends_in_expm1(a):
        return _plus_one(a, e)
    return _constants_right(e) or _gather(e)


def _ends_in_expm1(a: Expr) -> bool:
    match a:
        case Op(op="expm1"):
            return True
        case Op(op="select", args=(_, x, y)):
            return _ends_in_expm1(x) or _ends_in_expm1(y)
    return False


def _plus_one(a: Expr, e: Op) -> Expr:
    """``a + 1``, which ``e`` is, with ``exp`` for ``expm1``."""
    match a:
        case Op(op="expm1"):
            return Op("exp", a.args, e.dtype, e.span)
        case Op(op="select", args=(c, x, y)) if _ends_in_expm1(a):
            return Op("select", (c, _plus_one(x, e), _plus_one(y, e)), e.dtype, e.span)
    sum_ = Op("add", (a, e.args[1]), e.dtype, e.span)
    return _rule(sum_) or sum_


def _sub(e: Op) -> Expr | None:
    a, b = e.args
    if _is(b, 0):
        return a
    if isinstance(b, Op) and b.op == "neg":
        return Op("add", (a, b.args[0]), e.dtype, e.span)
    return Op("neg", (b,), e.dtype, e.span) if _is(a, 0) else None


def _mul(e: Op) -> Expr | None:
    a, b = e.args
    if _is(b, 1):
        return a
    if _is(b, -1):
        return Op("neg", (a,), e.dtype, e.span)
    if isinstance(a, Op) and isinstance(b, Op) and a.op == b.op == "neg":
        return Op("mul", (a.args[0], b.args[0]), e.dtype, e.span)
    return _constants_right(e) or _gather(e)


def _div(e: Op) -> Expr | None:
    a, b = e.args
    if _is(b, 1):
        return a
    if isinstance(b, Const) and b.value != 0 and 2.0**-126 < abs(b.value) < 2.0**126:
        return Op("mul", (a, Const(1.0 / b.value, b.dtype, b.span)), e.dtype, e.span)
    return None


def _neg(e: Op) -> Expr | None:
    (a,) = e.args
    match a:
        case Op(op="neg", args=(x,)):
            return x
        case Op(op="sub", args=(x, y)):
            return Op("sub", (y, x), e.dtype, e.span)
        case Op(op="mul", args=(x, Const() as c)):
            return Op("mul", (x, Const(-c.value, c.dtype, c.span)), e.dtype, e.span)
    return None


def _extreme(e: Op) -> Expr | None:
    a, b = e.args
    if a == b or _is(b, -math.inf if e.op == "max" else math.inf):
        return a
    return _constants_right(e)


def _pow(e: Op) -> Expr | None:
    a, b = e.args
    if not isinstance(b, Const):
        return None
    if _is(b, 0):
        return Const(1 if e.dtype.is_int else 1.0, e.dtype, e.span)  # of NaN too
    if _is(b, 1) or _is(b, 2) or (b.value in range(3, _MOST_FACTORS + 1) and _leaves(a) * b.value <= _MOST_LEAVES):
        return _repeated(a, int(b.value), e)
    if b.value == 0.5 and _leaves(a) * 2 <= _MOST_LEAVES:  # IEEE: pow(-inf, 0.5) is inf, and sqrt(-inf) is NaN
        root, inf = Op("sqrt", (a,), e.dtype, e.span), Const(math.inf, e.dtype)
        return Op("select", (Op("eq", (a, Const(-math.inf, a.dtype)), DType.BOOL), inf, root), e.dtype, e.span)
    return None


def _repeated(a: Expr, n: int, e: Op) -> Expr:
    """The product of ``n`` factors ``a`` by repeated squaring."""
    if n == 1:
        return a
    half = _repeated(a, n // 2, e)
    square = Op("mul", (half, half), e.dtype, e.span)
    return square if n % 2 == 0 else Op("mul", (square, a), e.dtype, e.span)


def _leaves(e: Expr) -> int:
    """Leaves of the tree of ``e``, in which a shared expression counts as often as it is used; few are counted."""
    found, stack = 0, [e]
    while stack and found <= _MOST_LEAVES:
        parts = children(stack.pop())
        stack.extend(parts)
        found += not parts
    return found


def _select(e: Op) -> Expr | None:
    c, a, b = e.args
    if isinstance(c, Const):
        return a if c.value else b
    if a == b:
        return a
    if isinstance(c, Op) and c.op == "not":
        return Op("select", (c.args[0], b, a), e.dtype, e.span)
    return None


def _logic(e: Op) -> Expr | None:
    absorbing = e.op == "or"  # true absorbs or, false absorbs and
    a, b = e.args
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Const):
            return x if bool(x.value) is absorbing else y
    return a if a == b else None


def _not(e: Op) -> Expr | None:
    (a,) = e.args
    return a.args[0] if isinstance(a, Op) and a.op == "not" else None


def _implied(e: Op) -> Expr | None:
    return e.args[0] if isinstance(e.args[0], Const) else None


def _convert(e: Op) -> Expr | None:
    (a,) = e.args
    if a.dtype is e.dtype:
        return a
    if isinstance(a, Op) and a.op == "cast" and widens(a.args[0].dtype, a.dtype):
        return Op(e.op, a.args, e.dtype, e.span)
    if e.op == "cast" and e.dtype in (DType.F32, DType.F64) and _is_small_product(a):
        made = (Op("cast", (x,), e.dtype, e.span) for x in children(a))
        return Op("mul", tuple(_rule(x) or x for x in made), e.dtype, e.span)
    if isinstance(a, Const) and e.dtype is e.dtype.compute and (widens(a.dtype, e.dtype) or _has(e.dtype, a)):
        return Const(float(a.value) if e.dtype in (DType.F32, DType.F64) else int(a.value), e.dtype, e.span)
    return None


def _has(dtype: DType, c: Const) -> bool:
    """Whether the float type ``dtype`` has the integer ``c`` exactly."""
    return c.dtype.is_int and dtype in (DType.F32, DType.F64) and abs(int(c.value)) <= 1 << DType.F32.mantissa


def _is_small_product(e: Expr) -> bool:
    """Whether ``e`` is a product of elements of integer tensors that f32 has exactly: its factors are operands then."""
    most = _magnitude(e) if isinstance(e, Op) and e.op == "mul" and e.dtype.is_int else None
    return most is not None and most <= 1 << DType.F32.mantissa and all(any(loads(x)) for x in children(e))


def _magnitude(e: Expr) -> int | None:
    """The largest magnitude of the integer ``e``; None where none is known that its type holds."""
    match e:
        case Const(value=value):
            return abs(int(value))
        case Load() if e.dtype.is_int and e.dtype.bits <= _SMALL_BITS:
            return 1 << e.dtype.bits
        case Op(op="cast", args=(x,)) if x.dtype.is_int and widens(x.dtype, e.dtype):
            return _magnitude(x)
        case Op(op="bit_and", args=(_, Const(value=value))) if value >= 0:
            return int(value)
        case Op(op="bit_or" | "bit_xor", args=(x, Const(value=value))) if value >= 0 and _is_field(x):
            return (1 << max((_magnitude(x) or 0).bit_length(), int(value).bit_length())) - 1
        case Op(op="add" | "sub" | "mul" as op, args=(x, y)) if e.dtype.is_int and e.dtype.bits >= 32:
            a, b = _magnitude(x), _magnitude(y)
            most = None if a is None or b is None else a * b if op == "mul" else a + b
            return most if most is not None and most < 1 << (e.dtype.bits - 1) else None
    return None


def _is_field(e: Expr) -> bool:
    """Whether ``e`` has a few bits of a number, so that it is not negative."""
    match e:
        case Op(op="bit_and", args=(_, Const(value=value))):
            return value >= 0
    return False


_RULES: Mapping[str, Callable[[Op], Expr | None]] = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "neg": _neg, "min": _extreme, "max": _extreme,
    "pow": _pow, "select": _select, "and": _logic, "or": _logic, "not": _not, "implied": _implied,
    "cast": _convert, "narrow": _convert,
}  # fmt: skip


def widens(source: DType, target: DType) -> bool:
    """Every value of ``source`` is a value of ``target``."""
    return holds(target, source)
