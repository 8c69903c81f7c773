"""Scalar operations and index expressions as C++ text.

Index arithmetic is 32-bit ``int`` (64-bit where the node's type says i64).  ``/`` and ``%`` of C round
towards zero: they are printed only where interval analysis shows both sides non-negative, and the
flooring helpers otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nautilus.core.errors import UnsupportedError
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Reduce, Ref, Var
from nautilus.core.index import simplify as index
from nautilus.core.types import DType
from nautilus.cuda.ctypes import literal
from nautilus.cuda.intrinsics import BITS

#: operator and its binding strength (larger binds tighter), as in C++.
_INFIX = {
    "mul": ("*", 13), "div": ("/", 13), "add": ("+", 12), "sub": ("-", 12), "lt": ("<", 10), "le": ("<=", 10),
    "gt": (">", 10), "ge": (">=", 10), "eq": ("==", 9), "ne": ("!=", 9), "and": ("&&", 5), "or": ("||", 4),
}  # fmt: skip
UNARY, _TERNARY, _ATOM = 14, 3, 20

#: Products that the C compiler may not contract into a multiply-add: the IR says which ones are fused, and a
#: value that is computed twice (to find where a maximum was) must have the same bits both times.
_PRODUCT = {DType.F32: "__fmul_rn", DType.F64: "__dmul_rn"}


class Text(str):
    """C text of an expression that knows how tightly its outermost operator binds."""

    strength: int = _ATOM

    @staticmethod
    def of(text: str, strength: int) -> Text:
        """``text`` with binding strength ``strength``."""
        out = Text(text)
        out.strength = strength
        return out


def operand(x: str, strength: int) -> str:
    """``x``, in parentheses where it binds looser than its place demands. Plain strings are atoms."""
    return f"({x})" if isinstance(x, Text) and x.strength < strength else str(x)


def _infix(symbol: str, strength: int, a: str, b: str) -> Text:
    return Text.of(f"{operand(a, strength)} {symbol} {operand(b, strength + 1)}", strength)


_F32 = {
    "sin": "sinf", "cos": "cosf", "tanh": "tanhf", "erf": "erff", "floor": "floorf", "ceil": "ceilf",
    "round": "rintf", "abs": "fabsf", "exp": "expf", "exp2": "exp2f", "log": "logf", "log2": "log2f",
    "sqrt": "sqrtf", "rsqrt": "rsqrtf", "pow": "powf", "fma": "fmaf",
}  # fmt: skip
_F64 = {
    "sin": "sin", "cos": "cos", "tanh": "tanh", "erf": "erf", "floor": "floor", "ceil": "ceil", "round": "rint",
    "abs": "fabs", "exp": "exp", "exp2": "exp2", "log": "log", "log2": "log2", "sqrt": "sqrt", "rsqrt": "rsqrt",
    "pow": "pow", "fma": "fma",
}  # fmt: skip
_FAST = {"exp2": "exp2_approx", "rcp": "rcp_approx", "rsqrt": "rsqrt_approx"}
_C_CAST = {DType.F64: "double", DType.F32: "float", DType.I64: "long long", DType.I32: "int", DType.I16: "short",
           DType.I8: "signed char", DType.U8: "unsigned char", DType.BOOL: "bool"}  # fmt: skip


@dataclass
class Speller:
    """Spells operations; collects the helpers it used."""

    fast: bool
    helpers: set[str] = field(default_factory=set)

    def use(self, helper: str) -> str:
        """The name of ``helper``, noted as needed."""
        self.helpers.add(helper)
        return helper

    def op(self, op: str, args: list[str], dtypes: list[DType], out: DType) -> str:
        """C text of ``op`` on operand texts of types ``dtypes``. Raises UnsupportedError."""
        if op == "mul_unless_one":  # skipping is the printer's choice; the value is a product's
            return self.op("mul", args, dtypes, out)
        if op == "mul" and out in _PRODUCT:
            return f"{_PRODUCT[out]}({args[0]}, {args[1]})"
        if op in _INFIX and op != "div":
            if op not in ("and", "or") and dtypes[0] is DType.BOOL:
                args = [Text.of(f"(int){operand(a, UNARY)}", UNARY) for a in args]
            return _infix(*_INFIX[op], args[0], args[1])
        match op:
            case "not":
                return Text.of(f"!{operand(args[0], UNARY)}", UNARY)
            case "neg":
                inner = operand(args[0], UNARY + 1)
                return Text.of(f"-({inner})" if inner.startswith("-") else f"-{inner}", UNARY)
            case "select":
                a, b = (operand(x, _TERNARY + 1) for x in args[1:])
                return Text.of(f"{operand(args[0], _TERNARY + 1)} ? {a} : {b}", _TERNARY)
            case "cast" | "narrow":
                return self.cast(args[0], dtypes[0], out)
            case "min" | "max":
                return self.min_max(op, args, out)
            case "floordiv" | "mod":
                return self.floor(op, args, out)
        return self.function(op, args, out)

    def min_max(self, op: str, args: list[str], out: DType) -> str:
        """min or max; NaN wins, as in numpy."""
        if out.is_float:
            name = self.use(f"{op}_nan_f64" if out is DType.F64 else f"{op}_nan")
            return f"{name}({args[0]}, {args[1]})"
        if out is DType.BOOL:
            return _infix(*_INFIX["or" if op == "max" else "and"], args[0], args[1])
        return f"{op}({args[0]}, {args[1]})"

    def floor(self, op: str, args: list[str], out: DType) -> str:
        """Division or remainder rounded towards minus infinity."""
        if out.is_float:
            if op == "floordiv":
                return f"floor({_infix('/', 13, args[0], args[1])})"
            return f"{self.use('floor_mod_float')}({args[0]}, {args[1]})"
        name = self.use("floor_div" if op == "floordiv" else "floor_mod")
        return f"{name}({args[0]}, {args[1]})"

    def function(self, op: str, args: list[str], out: DType) -> str:
        """A named mathematical function in the precision of ``out``."""
        listed = ", ".join(args)
        if op == "div":
            exact = self.fast or out is DType.F64
            return _infix("/", 13, args[0], args[1]) if exact else f"__fdiv_rn({listed})"
        if op == "sign":
            return f"{self.use('sign_of')}({listed})"
        if not out.is_float:
            if op == "abs":
                return f"abs({listed})"
            if op == "pow":
                return f"{self.use('int_pow')}({listed})"
            if op in ("floor", "ceil", "round"):
                return args[0]
            if op == "fma":
                return _infix("+", 12, _infix("*", 13, args[0], args[1]), args[2])
            raise UnsupportedError(f"{op} of {out}")
        if op == "tanh_approx" and out is DType.F32:
            return f"{self.use('tanh_approx')}({listed})"
        if self.fast and out is DType.F32 and op in _FAST:
            return f"{self.use(_FAST[op])}({listed})"
        if op == "rcp":
            return _infix("/", 13, literal(1.0, out), args[0])
        if op == "sigmoid":
            e = self.function("exp", [self.op("neg", [args[0]], [out], out)], out)
            return _infix("/", 13, literal(1.0, out), _infix("+", 12, literal(1.0, out), e))
        table = _F64 if out is DType.F64 else _F32
        if op not in table:
            raise UnsupportedError(f"{op} of {out} in CUDA C++")
        return f"{table[op]}({listed})"

    def cast(self, x: str, src: DType, dst: DType) -> str:
        """Conversion of an element; 16-bit and 8-bit floats go through f32."""
        if src is dst:
            return x
        if src in BITS:
            x, src = f"{self.use(BITS[src][0])}({x})", DType.F32
            return x if dst is DType.F32 else self.cast(x, src, dst)
        if dst in BITS:
            return f"{self.use(BITS[dst][1])}({self.cast(x, src, DType.F32)})"
        if dst is DType.TF32:
            return f"{self.use('to_tf32')}({self.cast(x, src, DType.F32)})"
        if src is DType.TF32:
            return self.cast(x, DType.F32, dst)
        if dst is DType.BOOL:
            return _infix("!=", 9, x, "0")
        if dst not in _C_CAST:
            raise UnsupportedError(f"a cast to {dst} below the Scalar level")
        if src.is_float and dst in (DType.I16, DType.I8, DType.U8):
            return Text.of(
                f"({_C_CAST[dst]})(int){operand(x, UNARY)}", UNARY
            )  # through int: narrowing wraps instead of being undefined
        return Text.of(f"({_C_CAST[dst]}){operand(x, UNARY)}", UNARY)

    def expr(self, e: Expr, env: Mapping[str, str], ranges: index.Ranges, ref: Callable[[Ref], str]) -> str:
        """C text of an index expression; ``env`` spells variables and params, ``ref`` SSA values."""

        def go(x: Expr) -> str:
            match x:
                case Const(value=value, dtype=dtype):
                    text = literal(value, dtype)
                    return Text.of(text, UNARY) if text.startswith("-") else text
                case Var(name=name) | Param(name=name):
                    return env[name]
                case Ref():
                    return ref(x)
                case Op(op="floordiv" | "mod" as name, args=(a, b)) if _non_negative(a, b, ranges):
                    return _infix("/" if name == "floordiv" else "%", 13, go(a), go(b))
                case Op(op=name, args=args, dtype=dtype):
                    return self.op(name, [go(a) for a in args], [a.dtype for a in args], dtype)
                case Load() | Reduce():
                    raise AssertionError("loads and reductions do not occur in MA-tile index expressions")

        return go(e)


def _non_negative(a: Expr, b: Expr, ranges: index.Ranges) -> bool:
    low_a, low_b = index.bounds(a, ranges)[0], index.bounds(b, ranges)[0]
    return low_a is not None and low_b is not None and low_a >= 0 and low_b > 0
