"""Compile-time numbers: the value of a ``const``, a size or a range, in Python's arithmetic."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from nautilus.core.functions import NAMED
from nautilus.core.types import Number
from nautilus.frontend.semantics.typed import Fault
from nautilus.frontend.syntax import ast

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_BITS: dict[str, Callable[[int, int], int]] = {
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip
_CALLS: dict[str, tuple[int, Callable[..., Any]]] = {
    **{f.name: (f.arity, f.python) for f in NAMED.values() if f.python is not None},
    "i32": (1, int), "i64": (1, int), "f32": (1, float), "f64": (1, float),
}  # fmt: skip


class NotConstant(Fault):
    """Raised with a diagnostic for an expression without a compile-time value."""


def evaluate(node: ast.Expr, lookup: Callable[[ast.Name], Number]) -> Number:
    """The value of ``node``.  Raises NotConstant, or the errors of ``lookup``."""
    try:
        value = _eval(node, lookup)
    except ZeroDivisionError:
        raise NotConstant("N0406", "division by zero in a compile-time number", node.span) from None
    except (OverflowError, ValueError):
        raise NotConstant("N0504", "this compile-time number has no value", node.span) from None
    if isinstance(value, int) and abs(value) >= 1 << 63:
        raise NotConstant("N0503", "this compile-time number does not fit 64 bits", node.span)
    return value


def _eval(node: ast.Expr, lookup: Callable[[ast.Name], Number]) -> Number:
    match node:
        case ast.Num(value=value):
            return value
        case ast.Name():
            return lookup(node)
        case ast.Unary(op=op, arg=arg):
            x = _eval(arg, lookup)
            if op == "~":
                return ~_integer(x, node)
            return not x if op == "not" else -x if op == "-" else +x
        case ast.Chain(ops=ops, args=args):
            total = _eval(args[0], lookup)
            for op, arg in zip(ops, args[1:], strict=True):
                total = _step(op, total, _eval(arg, lookup), node)
            return total
        case ast.Compare(ops=ops, args=args):
            values = [_eval(a, lookup) for a in args]
            return all(_BINARY[o](a, b) for o, a, b in zip(ops, values, values[1:], strict=False))
        case ast.Ternary(then=then, test=test, other=other):
            return _eval(then if _eval(test, lookup) else other, lookup)
        case ast.Call(name=name, args=args) if name.id in _CALLS and len(args) == _CALLS[name.id][0]:
            result: Number = _CALLS[name.id][1](*(_eval(a, lookup) for a in args))
            return result
    hint = "it is made of literals, dims, consts and arithmetic"
    raise NotConstant("N0504", "a compile-time number is expected", node.span, hint)


def _step(op: str, a: Number, b: Number, node: ast.Expr) -> Number:
    if op in ("and", "or"):
        return (a and b) if op == "and" else (a or b)
    if op == "**" and (abs(b) > 1024 or (isinstance(a, int) and abs(a) >= 1 << 63)):
        raise NotConstant("N0503", "this compile-time number does not fit 64 bits", node.span)
    if op in _BITS:
        return _bits(op, _integer(a, node), _integer(b, node), node)
    value: Number | complex = _BINARY[op](a, b)
    if isinstance(value, complex):
        raise NotConstant("N0504", "this compile-time number has no value", node.span)
    if isinstance(value, int) and abs(value) >= 1 << 63:
        raise NotConstant("N0503", "this compile-time number does not fit 64 bits", node.span)
    return value


def _integer(value: Number, node: ast.Expr) -> int:
    """``value`` as an operand of a bitwise operator. Raises NotConstant for a float and for a bool."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise NotConstant("N0401", "bitwise operators need integers", node.span)
    return value


def _bits(op: str, a: int, b: int, node: ast.Expr) -> int:
    if op in ("<<", ">>") and b < 0:
        raise NotConstant("N0407", f"'{op}' by a negative number", node.span)
    if op == "<<" and a and b >= 64:
        raise NotConstant("N0503", "this compile-time number does not fit 64 bits", node.span)
    value = _BITS[op](a, min(b, 64) if op in ("<<", ">>") else b)
    if abs(value) >= 1 << 63:
        raise NotConstant("N0503", "this compile-time number does not fit 64 bits", node.span)
    return value
