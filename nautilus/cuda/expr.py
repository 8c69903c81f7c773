"""Scalar operations and index expressions as C++ text.

Index arithmetic is 32-bit ``int`` (64-bit where the node's type says i64) and does not overflow.  Arithmetic on
elements of tensors wraps, and a compiler of C assumes that signed arithmetic does not: it is spelled by unsigned
operations.  ``/`` and ``%`` of C round towards zero: they are printed only where interval analysis shows both sides
non-negative, and the flooring helpers otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field

from nautilus.core.errors import UnsupportedError
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Reduce, Ref, Var, walk
from nautilus.core.functions import FUNCTIONS, Call, Function, Operator, Types
from nautilus.core.index import simplify as index
from nautilus.core.records import dataclass
from nautilus.core.types import FORMATS, DType
from nautilus.cuda.ctypes import literal
from nautilus.cuda.intrinsics import BITS, HELPERS

#: precedence of operators in C: an operand whose own is below the one of its place needs parentheses
_TERNARY, CONDITION, SUM, PRODUCT, UNARY, _ATOM = 3, 4, 12, 13, 14, 20

#: Operations that are not spelled by their operators, so that no option of a C compiler changes their value.  It may
#: not contract a product into a multiply-add: the IR says which ones are fused, and a value that is computed twice (to
#: find where a maximum was) must have the same bits both times.
_ROUNDED = {
    ("mul", DType.F32): "__fmul_rn",
    ("mul", DType.F64): "__dmul_rn",
    ("div", DType.F32): "__fdiv_rn",
}


#: integer operation on elements -> the helper that wraps, or the operator to be used on unsigned operands
_WRAPS = {"add": "+", "sub": "-", "mul": "*"}
_UNSIGNED = {DType.I32: ("int", "u32"), DType.I64: ("long long", "u64")}


class Text(str):
    """C text of an expression, with the precedence of its outermost operator."""

    strength: int = _ATOM

    @staticmethod
    def of(text: str, strength: int) -> Text:
        """``text`` with binding strength ``strength``."""
        out = Text(text)
        out.strength = strength
        return out


def operand(x: str, strength: int) -> str:
    """``x``, in parentheses if its precedence is below ``strength``. Plain strings are atoms."""
    return f"({x})" if isinstance(x, Text) and x.strength < strength else str(x)


def _infix(symbol: str, strength: int, a: str, b: str) -> Text:
    return Text.of(f"{operand(a, strength)} {symbol} {operand(b, strength + 1)}", strength)


_RULES = frozenset({"floordiv", "neg", "not", "bit_not", "select", "cast", "narrow", "rcp"})
assert {f.name for f in FUNCTIONS.values() if f.c is None and f.skips is None} == _RULES
#: the types of which a cast is one in C
_C_CAST = {d: f.c for d, f in FORMATS.items() if d.is_int or d in (DType.F64, DType.F32)}


@dataclass
class Speller:
    """Spells operations; collects the helpers it used."""

    helpers: set[str] = field(default_factory=set)
    mentioned: set[str] = field(default_factory=set)  # C names of variables in the expressions spelled so far

    def use(self, helper: str) -> str:
        """The name of ``helper``, noted as needed."""
        self.helpers.add(helper)
        return helper

    @contextmanager
    def mentions(self) -> Iterator[set[str]]:
        """The names that expressions spelled inside mention; they do not join :attr:`mentioned`."""
        outer, self.mentioned = self.mentioned, set()
        yield self.mentioned
        self.mentioned = outer

    def op(self, op: str, args: list[str], dtypes: list[DType], out: DType, *, wraps: bool = True) -> str:
        """C text of ``op`` on operand texts of types ``dtypes``; integers overflow only if it ``wraps``.

        Raises UnsupportedError.
        """
        f = FUNCTIONS[op]
        if wraps and out in _UNSIGNED and op in ("add", "sub", "mul", "neg", "abs"):
            return self.wrapped(op, args, out)
        if op in _RULES:
            return self.rule(op, args, dtypes, out)
        if f.skips is not None:  # one element; the vote is printed around all of them
            return self.op(f.skips[0], args, dtypes, out)
        if (op, out) in _ROUNDED:
            return f"{_ROUNDED[op, out]}({args[0]}, {args[1]})"
        if isinstance(f.c, Operator):
            if f.types is Types.COMPARISON and dtypes[0] is DType.BOOL:
                args = [Text.of(f"(int){operand(a, UNARY)}", UNARY) for a in args]
            return _infix(f.c.symbol, f.c.strength, args[0], args[1])
        if out is DType.BOOL:
            return self.op("or" if op == "max" else "and", args, dtypes, out)
        return self.call(f, args, out)

    def wrapped(self, op: str, args: list[str], out: DType) -> str:
        """Integer arithmetic that wraps in ``out``."""
        signed, unsigned = _UNSIGNED[out]
        if op == "abs":
            return f"{self.use('wrapping_abs')}({args[0]})"
        values = [Text.of(f"({unsigned}){operand(a, UNARY)}", UNARY) for a in args]
        if op == "neg":
            return Text.of(f"({signed})(0 - {values[0]})", UNARY)
        return Text.of(f"({signed})({values[0]} {_WRAPS[op]} {values[1]})", UNARY)

    def rule(self, op: str, args: list[str], dtypes: list[DType], out: DType) -> str:
        """The operations that are no call and no operator of C."""
        match op:
            case "not":
                return Text.of(f"!{operand(args[0], UNARY)}", UNARY)
            case "bit_not":
                return Text.of(f"~{operand(args[0], UNARY)}", UNARY)
            case "neg":
                inner = operand(args[0], UNARY + 1)
                return Text.of(f"-({inner})" if inner.startswith("-") else f"-{inner}", UNARY)
            case "select":
                a, b = (operand(x, _TERNARY + 1) for x in args[1:])
                return Text.of(f"{operand(args[0], _TERNARY + 1)} ? {a} : {b}", _TERNARY)
            case "floordiv" if out.is_float:
                return f"floor({_infix('/', 13, args[0], args[1])})"
            case "floordiv":
                return f"{self.use('floor_div')}({args[0]}, {args[1]})"
            case "rcp":
                return _infix("/", 13, literal(1.0, out), args[0])
            case "narrow" if out is DType.TF32:
                return f"{self.use('to_tf32')}({self.cast(args[0], dtypes[0], DType.F32)})"
        return self.cast(args[0], dtypes[0], out)

    def call(self, f: Function, args: list[str], out: DType) -> str:
        """A function in the precision of ``out``. Raises UnsupportedError."""
        assert isinstance(f.c, Call)
        name = f.c.f64 if out is DType.F64 else f.c.f32 if out.is_float else f.c.integer
        if not name:
            raise UnsupportedError(f"{f.name} of {out} in CUDA C++")
        if name == "{0}":
            return args[0]
        if "{" in name:
            return name.format(*(operand(a, UNARY) for a in args))
        return f"{self.use(name) if name in HELPERS else name}({', '.join(args)})"

    def cast(self, x: str, src: DType, dst: DType) -> str:
        """Conversion of an element, rounded once; 16-bit and 8-bit floats go through f32. Raises UnsupportedError."""
        if src is dst:
            return x
        if src in BITS:
            x, src = f"{self.use(BITS[src][0])}({x})", DType.F32
            return x if dst is DType.F32 else self.cast(x, src, dst)
        if dst in BITS:
            return f"{self.use(BITS[dst][1])}({self.before_rounding(x, src, dst)})"
        if dst is DType.TF32:
            return f"{self.use('round_tf32')}({self.before_rounding(x, src, dst)})"
        if src is DType.TF32:
            return self.cast(x, DType.F32, dst)
        if dst is DType.BOOL:
            return _infix("!=", 9, x, "0")
        if dst not in _C_CAST:
            raise UnsupportedError(f"a cast to {dst} below the Scalar level")
        if src.is_float and dst.is_int:
            wide = DType.I64 if dst is DType.I64 else DType.I32  # a narrower integer has its last bits
            number = Text.of(f"({_C_CAST[wide]}){operand(x, UNARY)}", UNARY)
            if src is DType.F64 or wide is DType.I64:
                number = Text.of(f"{self.use('to_integer')}<{_C_CAST[wide]}>({x})", UNARY)
            return number if dst is wide else Text.of(f"({_C_CAST[dst]}){number}", UNARY)
        return Text.of(f"({_C_CAST[dst]}){operand(x, UNARY)}", UNARY)

    def before_rounding(self, x: str, src: DType, dst: DType) -> str:
        """``x`` in f32, such that its rounding to ``dst``, of fewer bits, is the rounding of ``x`` itself.

        Integers above 2^24, which f32 does not have, are above all numbers of the other types.
        """
        inexact = dst in (DType.BF16, DType.TF32) if src in (DType.I32, DType.I64) else src is DType.F64
        if inexact and dst is not DType.F32:
            return f"{self.use(f'{src}_to_odd')}({x})"
        return self.cast(x, src, DType.F32)

    def expr(
        self, e: Expr, env: Mapping[str, str], ranges: index.Ranges, ref: Callable[[Ref], str],
        load: Callable[[Load], str],
    ) -> str:  # fmt: skip
        """C text of an index expression; ``env`` spells variables and params, ``ref`` SSA values, ``load`` elements."""

        def go(x: Expr) -> str:
            match x:
                case Const(value=value, dtype=dtype):
                    text = literal(value, dtype)
                    return Text.of(text, UNARY) if text.startswith("-") else text
                case Var(name=name) | Param(name=name):
                    self.mentioned.add(env[name])
                    return env[name]
                case Ref():
                    return ref(x)
                case Op(op="floordiv", args=(a, Const() as b), dtype=DType.I64) if _is_power(b):
                    return _infix(">>", 11, go(a), str(int(b.value).bit_length() - 1))
                case Op(op="mod", args=(a, Const() as b), dtype=DType.I64) if _is_power(b):
                    return _infix("&", 8, go(a), literal(int(b.value) - 1, DType.I64))
                case Op(op="floordiv" | "mod" as name, args=(a, b), dtype=DType.I64) if _in_u32(a, b, ranges):
                    divided, by = (f"(u32){operand(t, UNARY)}" for t in (go(a), self.divisor(b, go(b), ranges)))
                    return Text.of(f"(long long)({divided} {'/' if name == 'floordiv' else '%'} {by})", UNARY)
                case Op(op="floordiv" | "mod" as name, args=(a, b)) if _non_negative(a, b, ranges):
                    return _infix("/" if name == "floordiv" else "%", 13, go(a), self.divisor(b, go(b), ranges))
                case Op(op="mod", args=(a, Const() as b), dtype=DType.I32) if _is_power(b):
                    return _infix("&", 8, go(a), str(int(b.value) - 1))  # in two's complement, of negative numbers too
                case Op(op="and" | "or" as name, args=(a, b)) if _divides(b):
                    both = [operand(go(x), UNARY) for x in (a, b)]
                    return self.op(f"bit_{name}", both, [DType.BOOL, DType.BOOL], DType.BOOL)
                case Op(op=name, args=args, dtype=dtype):
                    texts = [go(a) for a in args]
                    if (same := _operand_alone(name, texts, dtype)) is not None:
                        return same
                    wraps = any(isinstance(n, Ref | Load) for n in walk(x))
                    return self.op(name, texts, [a.dtype for a in args], dtype, wraps=wraps)
                case Load():
                    return load(x)
                case Reduce():
                    raise AssertionError("reductions do not occur in MA-tile index expressions")

        return go(e)

    def divisor(self, b: Expr, text: str, ranges: index.Ranges) -> str:
        """C text of the divisor ``b``, which is ``text``, and not 0.

        It is 0 where a condition excludes the quotient, or in the padding of a tile.  Such a quotient has no meaning in
        C++, from which its compiler might conclude that the divisor is not 0.  The helpers for quotients never divide
        by 0 either.
        """
        low = index.bounds(b, ranges)[0]
        if low is not None and low > 0:
            return text
        return self.op("max", [text, literal(1, b.dtype)], [b.dtype, b.dtype], b.dtype)


def _operand_alone(op: str, texts: list[str], dtype: DType) -> str | None:
    """The operand that an integer operation gives: a tile of one element has its position 0 in sums. None: another."""
    match op, texts:
        case ("add" | "sub", [x, "0"]) | ("add", ["0", x]) | ("mul", [x, "1"] | ["1", x]) if dtype is DType.I32:
            return x
    return None


def _divides(condition: Expr) -> bool:
    """Whether ``condition`` has a division and reads no memory, so that it may be evaluated without need.

    A compiler of C makes a branch of ``a && b`` where ``b`` is costly.  Without one, the elements of a tile share the
    quotients of their rows and of their columns (a neighbourhood mask of 64 elements a thread: 1048 instructions of a
    step for 1370, and no branch for 64).
    """
    parts = list(walk(condition))
    divisions = (n.args[1] for n in parts if isinstance(n, Op) and n.op in ("floordiv", "mod"))
    return not any(isinstance(n, Load) for n in parts) and any(
        not (isinstance(b, Const) and _is_power(b)) for b in divisions
    )


def _is_power(b: Const) -> bool:
    """Whether ``b`` is a power of two."""
    return b.value > 0 and int(b.value) & (int(b.value) - 1) == 0


def _in_u32(a: Expr, b: Expr, ranges: index.Ranges) -> bool:
    """Whether both fit in 32 bits without a sign: the quotient takes a fifth of the instructions of one of 64 bits."""
    bounds = [index.bounds(x, ranges) for x in (a, b)]
    return all(low is not None and low >= 0 and high is not None and high < 1 << 32 for low, high in bounds)


def _non_negative(a: Expr, b: Expr, ranges: index.Ranges) -> bool:
    low_a, low_b = index.bounds(a, ranges)[0], index.bounds(b, ranges)[0]
    return low_a is not None and low_b is not None and low_a >= 0 and low_b >= 0
