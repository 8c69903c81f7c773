"""Typing rules of the language: builds ``Op`` nodes whose arguments share one compute type.

Conversions are explicit ``cast`` nodes, inserted here.  Integer constants (literals, dims, consts)
are folded and have the type of the other side.  No other arithmetic is folded, so the Spec resembles
the source.  Every function raises :class:`Fault` for an ill-typed combination.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

from nautilus.core.errors import Diagnostic, Note
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, walk
from nautilus.core.functions import BY_SYMBOL, FUNCTIONS, Types
from nautilus.core.source import NO_SPAN, Span
from nautilus.core.types import DType, promote

_KINDS = (Types.NUMBER, Types.FLOAT, Types.INTEGER)
ARITH = {s: f.name for s, f in BY_SYMBOL.items() if f.arity == 2 and f.types in _KINDS}
COMPARE = {s: f.name for s, f in BY_SYMBOL.items() if f.types is Types.COMPARISON}
_SYMBOL = {v: k for k, v in {**ARITH, **COMPARE}.items()}
_I32 = range(-(1 << 31), 1 << 31)
_I64 = range(-(1 << 63), 1 << 63)


def _python(name: str) -> Callable[..., Any]:
    """The value of function ``name`` for Python numbers."""
    found = FUNCTIONS[name].python
    assert found is not None
    return found


_FOLD = {n: _python(n) for n in ("add", "sub", "mul", "floordiv", "mod", "min", "max", "bit_and", "bit_or", "bit_xor")}
_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "floordiv": 1, "pow": 1}  # the neutral right side, over integers
_FOLD_COMPARE = {n: _python(n) for n in COMPARE.values()}


class Fault(Exception):
    """Raised with one diagnostic about an expression; the caller records it and continues."""

    def __init__(self, code: str, message: str, span: Span, hint: str | None = None, *notes: Note) -> None:
        super().__init__(message)
        self.diagnostic = Diagnostic(code, message, span, notes, hint)

    @classmethod
    def of(cls, found: Diagnostic) -> Self:
        """The fault with the diagnostic ``found``."""
        return cls(found.code, found.message, found.span, found.hint, *found.notes)


def number(value: int | float | bool, span: Span = NO_SPAN) -> Const:
    """The constant of the smallest compute type that holds ``value``. Raises Fault."""
    if isinstance(value, bool):
        return Const(value, DType.BOOL, span)
    if isinstance(value, float):
        return Const(value, DType.F32, span)
    if value in _I32:
        return Const(value, DType.I32, span)
    if value in _I64:
        return Const(value, DType.I64, span)
    raise Fault("N0109", "the integer does not fit 64 bits", span)


def is_true(e: Expr) -> bool:
    """Whether ``e`` is the literal true."""
    return isinstance(e, Const) and e.value is True


def is_false(e: Expr) -> bool:
    """Whether ``e`` is the literal false."""
    return isinstance(e, Const) and e.value is False


def coerce(e: Expr, dtype: DType) -> Expr:
    """``e`` in ``dtype``: itself, a constant of that type, or a cast."""
    if e.dtype is dtype:
        return e
    if isinstance(e, Const) and dtype is not DType.BOOL and e.dtype is not DType.BOOL:
        if dtype.is_float:
            return replace(e, value=float(e.value), dtype=dtype)
        if e.dtype.is_int and e.value in (_I64 if dtype is DType.I64 else _I32):
            return replace(e, dtype=dtype)
    return Op("cast", (e,), dtype, e.span)


def widen(e: Expr) -> Expr:
    """``e`` in its compute type."""
    return coerce(e, e.dtype.compute)


#: what stands between conditions instead of a bitwise operator
_CONDITIONS = {"'&'": "and", "'|'": "or", "'^'": "!=", "'~'": "not"}


def numbers(what: str, span: Span, *args: Expr) -> None:
    """Raise Fault for an operand of ``what`` that is a bool."""
    if any(a.dtype is DType.BOOL for a in args):
        hint = "f32(...) or i32(...) turns a bool into 1 or 0"
        if what in _CONDITIONS:
            hint = f"for conditions, write '{_CONDITIONS[what]}'"
        raise Fault("N0401", f"{what} needs numbers, but got bool", span, hint)


def _integers(symbol: str, span: Span, *args: Expr) -> None:
    """The operands of a bitwise operator; bools are refused before."""
    for a in args:
        if not a.dtype.is_int:
            hint = "a power is written 'x ** y'" if symbol == "^" else integer_hint(a)
            raise Fault("N0401", f"'{symbol}' needs integers, but got {a.dtype}", span, hint)


def integer_hint(e: Expr) -> str | None:
    """How ``e``, which is not an integer, becomes one; None for a bool."""
    if any(isinstance(x, Op) and x.op == "div" for x in walk(e)):
        return "'//' divides integers"
    return "i32(...) truncates towards zero" if e.dtype.is_float else None


def arith(op: str, a: Expr, b: Expr, span: Span) -> Expr:
    """A binary arithmetic operation or function, named as in ``core.functions``. Raises Fault."""
    numbers(f"'{_SYMBOL.get(op, op)}'", span, a, b)
    t = promote(a.dtype, b.dtype)
    negative = isinstance(b, Const) and b.value < 0
    if FUNCTIONS[op].types is Types.INTEGER:
        _integers(_SYMBOL[op], span, a, b)
    if op in ("shift_left", "shift_right") and negative:
        raise Fault("N0407", f"'{_SYMBOL[op]}' by a negative number", span)
    if FUNCTIONS[op].types is Types.FLOAT or (op == "pow" and t.is_int and negative):
        t = promote(t, DType.F32)
    if t.is_int and op in ("floordiv", "mod") and isinstance(b, Const) and b.value == 0:
        hint = f"integers have no inf: where a divisor may be 0, write 'x {_SYMBOL[op]} max(n, 1)'"
        raise Fault("N0406", f"'{_SYMBOL[op]}' by zero", span, hint)
    if t.is_int and isinstance(a, Const) and isinstance(b, Const):
        x, y = int(a.value), int(b.value)
        if op == "pow" and (abs(x) <= 1 or y <= 64):
            return number(x**y, span)
        if op in ("shift_left", "shift_right"):
            return number(x << min(y, 64) if op == "shift_left" else x >> min(y, 64), span)
        if op in _FOLD:
            return number(_FOLD[op](x, y), span)
    if t.is_int and isinstance(b, Const) and op in _NEUTRAL and b.value == _NEUTRAL[op]:
        return coerce(a, t)
    return Op(op, (coerce(a, t), coerce(b, t)), t, span)


def compare(op: str, a: Expr, b: Expr, span: Span) -> Expr:
    """A comparison; bools may only be compared with bools, for equality. Raises Fault."""
    if (a.dtype is DType.BOOL) != (b.dtype is DType.BOOL):
        raise Fault("N0401", f"'{_SYMBOL[op]}' between {a.dtype} and {b.dtype}", span)
    if a.dtype is DType.BOOL and op not in ("eq", "ne"):
        raise Fault("N0401", f"'{_SYMBOL[op]}' needs numbers, but got bool", span)
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(_FOLD_COMPARE[op](a.value, b.value), DType.BOOL, span)
    t = promote(a.dtype, b.dtype)
    return Op(op, (coerce(a, t), coerce(b, t)), DType.BOOL, span)


def logic(op: str, a: Expr, b: Expr, span: Span) -> Expr:
    """``and``/``or``. Where the right side could read outside a tensor it becomes a ``select``."""
    for x in (a, b):
        condition(x, f"'{op}'", span)
    absorbing = is_false if op == "and" else is_true
    neutral = is_true if op == "and" else is_false
    if absorbing(a) or neutral(b):
        return a
    if neutral(a):
        return b
    if absorbing(b):
        return b
    if any(isinstance(n, Load) and not all(isinstance(i, Var) for i in n.index) for n in walk(b)):
        other = Const(op == "or", DType.BOOL, span)
        return Op("select", (a, b, other) if op == "and" else (a, other, b), DType.BOOL, span)
    return Op(op, (a, b), DType.BOOL, span)


def condition(e: Expr, what: str, span: Span) -> Expr:
    """``e``, which ``what`` needs as a condition. Raises Fault where it is no bool."""
    if e.dtype is not DType.BOOL:
        raise Fault("N0402", f"{what} needs a condition, but got {e.dtype}", span, "compare it, as in 'x != 0'")
    return e


def unary(op: str, a: Expr, span: Span) -> Expr:
    """``neg``, ``not`` and the one-argument functions."""
    if op == "not":
        condition(a, "'not'", span)
        return Const(not a.value, DType.BOOL, span) if isinstance(a, Const) else Op("not", (a,), a.dtype, span)
    numbers({"neg": "'-'", "pos": "'+'", "bit_not": "'~'"}.get(op, f"'{op}'"), span, a)
    if op == "pos":
        return a
    if FUNCTIONS[op].types is Types.FLOAT:
        t = promote(a.dtype, DType.F32)
        return Op(op, (coerce(a, t),), t, span)
    if op == "bit_not":
        _integers("~", span, a)
        if isinstance(a, Const):
            return number(~int(a.value), span)
    if op == "neg" and isinstance(a, Const):
        return number(-a.value, span) if a.dtype.is_int else replace(a, value=-a.value, span=span)
    if a.dtype.is_int and FUNCTIONS[op].is_rounding:
        return widen(a)
    if isinstance(a, Const) and a.dtype.is_int and op == "abs":
        return number(abs(int(a.value)), span)
    wide = widen(a)
    return Op(op, (wide,), wide.dtype, span)


def select(test: Expr, then: Expr, other: Expr, span: Span) -> Expr:
    """``then if test else other``, of the common compute type. Raises Fault."""
    condition(test, "'if'", test.span if test.span.line else span)
    if (then.dtype is DType.BOOL) != (other.dtype is DType.BOOL):
        raise Fault("N0401", f"the two sides of 'if' are {then.dtype} and {other.dtype}", span)
    t = promote(then.dtype, other.dtype)
    a, b = coerce(then, t), coerce(other, t)
    if isinstance(test, Const):
        return a if test.value else b
    return Op("select", (test, a, b), t, span)


def cast(e: Expr, dtype: DType, span: Span) -> Expr:
    """The user's ``f16(x)``: rounds to nearest even; floats to integers truncate, integers wrap."""
    if dtype is DType.BOOL:
        return e if e.dtype is DType.BOOL else compare("ne", widen(e), number(0, span), span)
    return Op("cast", (e,), dtype, span)


def store(e: Expr, dtype: DType, name: str, span: Span) -> Expr:
    """``e`` as the value of ``name: dtype``: in a compute type that rounds once to ``dtype``. Raises Fault."""
    wide = widen(e)
    if wide.dtype is dtype or (isinstance(wide, Const) and wide.dtype.is_int and dtype.is_float):
        return coerce(wide, dtype.compute)
    legal = wide.dtype is not DType.BOOL and dtype is not DType.BOOL and not (wide.dtype.is_float and dtype.is_int)
    if not legal:
        message = f"'{name}' holds {dtype}, but the expression is {wide.dtype}"
        raise Fault("N0404", message, span, f"convert it: {dtype}(...)")
    if dtype.is_float or dtype is DType.I64:
        return coerce(wide, promote(wide.dtype, dtype))
    return wide
