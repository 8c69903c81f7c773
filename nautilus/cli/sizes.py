"""Values of ``--dim``: integers, and arithmetic on them (``N=1e4``, ``N=2**14``, ``M=4096,N=M//2 + 1``)."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction

_MOST = 1 << 63
_BINARY: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: lambda a, b: Fraction(a // b), ast.Mod: operator.mod,
}  # fmt: skip


def read_sizes(text: str, known: Mapping[str, int]) -> dict[str, int]:
    """The sizes of ``NAME=EXPRESSION,...``; an expression may use sizes left of it and those of ``known``.

    Raises ValueError with what is wrong.
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        name, equals, right = (piece.strip() for piece in part.partition("="))
        if not equals or not name.isidentifier() or not right:
            raise ValueError(f"{part!r} is not NAME=INTEGER")
        found[name] = _integer(part, right, {**known, **found})
    return found


def _integer(part: str, text: str, known: Mapping[str, int]) -> int:
    try:
        return int(text.replace("_", ""), 0)
    except ValueError:
        pass
    try:
        value = _value(ast.parse(text, mode="eval").body, known)
    except ZeroDivisionError:
        raise ValueError(f"{part!r} divides by zero") from None
    except (SyntaxError, TypeError, RecursionError, MemoryError):
        raise ValueError(f"{part!r} is not NAME=INTEGER") from None
    if value.denominator != 1:
        raise ValueError(f"{part!r} is {float(value):g}, which is not an integer")
    return int(value)


def _value(node: ast.expr, known: Mapping[str, int]) -> Fraction:
    """The exact value.  Raises TypeError for what is no arithmetic, and ValueError for what is too large."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            found = Fraction(str(number)) if abs(number) <= _MOST else Fraction(_MOST + 1)
        case ast.Name(id=name):
            if name not in known:
                raise ValueError(f"{name!r} is no number, and no size that is given before it")
            found = Fraction(known[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            found = -_value(operand, known)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            base, power = _value(left, known), _value(right, known)
            if power.denominator != 1 or not 0 <= power <= 64:
                raise ValueError(f"the exponent {power} is not an integer from 0 to 64")
            found = base ** int(power)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            found = _BINARY[type(op)](_value(left, known), _value(right, known))
        case _:
            raise TypeError(ast.dump(node))
    if abs(found) > _MOST:
        raise ValueError("a size is too large")
    return found
