"""Packed element types: ``i4 u4 f4e2m1``, two elements to a byte, the one of the lower index in the low half.

A tensor of a packed type is a tensor of bytes, whose last size is half of the declared one.  A read of an element is
arithmetic on its byte, and an output is made of the halves of its bytes.  So every stage after the frontend, its
interpreters and the launcher see bytes.  An intermediate of a packed type has an unpacked storage type that holds all
values of it.

``f4e2m1`` has 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.  A number becomes the nearest of them, one between two
of them that with an even last bit, a larger one 6, NaN 6, and a zero the positive one.

Source: Open Compute Project, "OCP Microscaling Formats (MX) Specification", version 1.0, section 5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var
from nautilus.core.records import dataclass
from nautilus.core.source import Span
from nautilus.core.types import DType
from nautilus.frontend.semantics import typed
from nautilus.frontend.spec import Definition


@dataclass(frozen=True, slots=True)
class Packed:
    """A packed type; ``unpacked``: the storage type of an intermediate, which holds all its values."""

    name: str
    unpacked: DType

    def __str__(self) -> str:
        return self.name

    def value(self, code: Expr, span: Span) -> Expr:
        """The number that the four bits ``code`` (an i32 in 0 .. 15) are."""
        if self.name == "u4":
            return code
        if self.name == "i4":
            return _of("sub", _of("bit_xor", code, 8, span), 8, span)
        magnitude = _of("bit_and", code, 7, span)
        number = typed.coerce(magnitude, DType.F32)
        largest = _of("sub", _of("mul", number, 2.0, span), 8.0, span)
        upper = _choice(magnitude, 6, _of("sub", number, 2.0, span), largest)
        found = _choice(magnitude, 4, _of("mul", number, 0.5, span), upper)
        return _choice(code, 8, found, typed.unary("neg", found, span))

    def code(self, e: Expr, span: Span) -> Expr:
        """The four bits of ``e``, rounded to this type, as an i32 in 0 .. 15."""
        if self.name != "f4e2m1":
            whole = typed.cast(e, DType.I32, span) if e.dtype is not DType.I32 else e
            return _of("bit_and", whole, 15, span)
        x = typed.coerce(typed.widen(e), DType.F32)
        size = typed.unary("abs", x, span)
        size = typed.select(typed.compare("lt", size, typed.number(6.0), span), size, typed.number(6.0), span)
        large = _of("add", typed.unary("round", _of("mul", size, 0.5, span), span), 4.0, span)
        middle = _choice(size, 4.0, _of("add", typed.unary("round", size, span), 2.0, span), large)
        magnitude = _choice(size, 2.0, typed.unary("round", _of("mul", size, 2.0, span), span), middle)
        sign = _choice(x, 0.0, typed.number(8), typed.number(0))
        return _of("add", typed.cast(magnitude, DType.I32, span), sign, span)

    def rounded(self, e: Expr, span: Span) -> Expr:
        """``e`` rounded to this type: a float to the nearest number, an integer to its last four bits."""
        return self.value(self.code(e, span), span)

    def element(self, buffer: str, index: tuple[Expr, ...], span: Span) -> Expr:
        """The element at ``index`` of the tensor ``buffer`` of this type."""
        last = index[-1]
        byte = Load(buffer, (*index[:-1], _of("floordiv", last, 2, span)), DType.U8, span)
        shift = _of("mul", _of("mod", last, 2, span), 4, span)
        return self.value(_of("bit_and", typed.arith("shift_right", typed.widen(byte), shift, span), 15, span), span)

    def fault(self, e: Expr, name: str, span: Span) -> typed.Fault | None:
        """The error where tensor ``name`` of this type cannot hold ``e``."""
        if e.dtype is not DType.BOOL and (e.dtype.is_int or self.unpacked.is_float):
            return None
        message = f"'{name}' holds {self}, but the expression is {e.dtype}"
        return typed.Fault("N0404", message, span, f"convert it: {self}(...)")


PACKED: Mapping[str, Packed] = {
    p.name: p for p in (Packed("i4", DType.I8), Packed("u4", DType.U8), Packed("f4e2m1", DType.F8E4M3))
}


def packed_output(codes: Definition, name: str) -> tuple[Definition, Definition]:
    """An output of a packed type from the definition of its codes, which becomes the intermediate tensor ``name``."""
    *outer, last = codes.axes
    assert isinstance(last.extent, int)
    half = Axis(last.name, last.extent // 2, last.span)
    at = tuple(Var(a.name, DType.I32, a.span) for a in codes.axes)
    twice = _of("mul", at[-1], 2, codes.span)
    low, high = (
        typed.widen(Load(name, (*at[:-1], place), DType.U8, codes.span))
        for place in (twice, _of("add", twice, 1, codes.span))
    )
    byte = _of("bit_or", low, _of("shift_left", high, 4, codes.span), codes.span)
    values = replace(codes, name=name, is_output=False, expr=Op("cast", (codes.expr,), DType.U8, codes.span))
    return values, replace(codes, axes=(*outer, half), expr=byte)


def _of(op: str, a: Expr, b: Expr | int | float, span: Span) -> Expr:
    return typed.arith(op, a, typed.number(b, span) if isinstance(b, int | float) else b, span)


def _choice(x: Expr, below: int | float, a: Expr, b: Expr) -> Expr:
    """``a`` where ``x`` is less than ``below``, else ``b``."""
    return typed.select(typed.compare("lt", x, typed.number(below), x.span), a, b, x.span)
