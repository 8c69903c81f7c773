"""Fields of integers: divisions by powers of two that are no constants as shifts, and remainders of them as masks.

How a spec takes words apart does not decide its speed: ``W[j, k // 2] // (16 if k % 2 == 1 else 1) % 16`` and
``W[k // 8, j] // 16 ** (k % 8) % 16`` become ``bit_and(shift_right(W, k % 2 * 4), 15)`` and so on.  A division by a
number that is not known takes some twenty instructions.  ``//`` and ``%`` round towards minus infinity, as shifts and
masks of numbers in two's complement do.  Positions within tensors stay as they are, and so do integers that are made
of index variables alone: their linear form says more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, children, loads, walk, with_children

Ranges: TypeAlias = Mapping[str, tuple[int, int]]

_SIGN = 2  # bits of an integer that no power of two in its type may have: the sign, and what the power itself takes


def bit_fields(e: Expr, ranges: Ranges) -> Expr:
    """``e`` with shifts and masks; ``e`` itself where nothing changed.

    ``ranges``: those of variables, both ends included.
    """
    divides = any(isinstance(n, Op) and n.op == "floordiv" and not isinstance(n.args[1], Const) for n in walk(e))
    return _rewritten(e, ranges, {}) if divides else e


def _rewritten(e: Expr, ranges: Ranges, done: dict[int, Expr]) -> Expr:
    """``e`` with shifts and masks; ``done``: by the id of a node."""
    if isinstance(e, Load):
        return e
    if id(e) not in done:
        old = children(e)
        new = tuple(_rewritten(x, ranges, done) for x in old)
        made = with_children(e, new) if any(a is not b for a, b in zip(new, old, strict=True)) else e
        done[id(e)] = _field(made, ranges) if isinstance(made, Op) and made.dtype.is_int else made
    return done[id(e)]


def _field(e: Op, ranges: Ranges) -> Expr:
    match e:
        case Op(op="floordiv", args=(x, by)) if not isinstance(by, Const) and loads(x):
            shift = _exponent(by, ranges)
            return e if shift is None else Op("shift_right", (x, shift), e.dtype, e.span)
        case Op(op="mod", args=(Op(op="shift_right") as x, Const(value=n) as by)) if _log2(int(n)) is not None:
            return Op("bit_and", (x, Const(int(n) - 1, by.dtype, by.span)), e.dtype, e.span)
    return e


def _log2(n: int) -> int | None:
    return n.bit_length() - 1 if n > 0 and n & (n - 1) == 0 else None


def _exponent(e: Expr, ranges: Ranges) -> Expr | None:
    """The exponent of ``e``, a power of two that fits its type; None where it is none, or not known to fit."""
    match e:
        case Const(value=n):
            power = _log2(int(n))
            return None if power is None else Const(power, e.dtype, e.span)
        case Op(op="select", args=(c, x, y)):
            return _chosen(e, c, _exponent(x, ranges), _exponent(y, ranges))
        case Op(op="pow", args=(Const(value=base), x)):
            power = _log2(int(base))
            most = _most(x, ranges)
            if power is None or most is None or power * most > e.dtype.bits - _SIGN:
                return None
            return Op("mul", (x, Const(power, e.dtype, e.span)), e.dtype, e.span)
    return None


def _chosen(e: Op, c: Expr, x: Expr | None, y: Expr | None) -> Expr | None:
    """``x`` where ``c``, else ``y``; a multiple of a parity where ``c`` compares it."""
    if x is None or y is None:
        return None
    match c, x, y:
        case Op(op="eq", args=(Op(op="mod", args=(_, Const(value=2))) as parity, Const(value=which))), Const(), Const():
            odd, even = (x, y) if which == 1 else (y, x)
            if even.value == 0 and which in (0, 1) and parity.dtype is e.dtype:
                return Op("mul", (parity, odd), e.dtype, e.span)
    return Op("select", (c, x, y), e.dtype, e.span)


def _most(e: Expr, ranges: Ranges) -> int | None:
    """A bound of an integer that is not negative; None where nothing is known."""
    match e:
        case Const(value=n) if n >= 0:
            return int(n)
        case Op(op="mod", args=(_, Const(value=n))) if n > 0:
            return int(n) - 1
        case Op(op="mul", args=(x, y)):
            a, b = _most(x, ranges), _most(y, ranges)
            return None if a is None or b is None else a * b
        case Op(op="cast", args=(x,)) if x.dtype.is_int and e.dtype.is_int and x.dtype.bits <= e.dtype.bits:
            return _most(x, ranges)
        case Var(name=name):
            low, high = ranges.get(name, (-1, -1))
            return high if low >= 0 else None
    return None
