"""Records of arithmetic, rounding, comparison, logic, selection and conversion.

Issue slots are those of the machine code.  Of 459 instructions in the loop of a fused 128 x 128 back-to-back GEMM on
an H200, 66 are MUFU, 66 FFMA, 64 FADD, 68 FMNMX, 64 FMUL and 32 F2FP (two values each).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from nautilus.core.functions import intervals as iv
from nautilus.core.functions.record import Approximation, Call, Function, Operator, Singular, Steps, Types
from nautilus.core.records import dataclass


def _fma(a: float, b: float, c: float) -> float:
    return a * b + c


def binade(a: float) -> float:
    """The largest power of two that is at most ``a``, and within [2^-100, 2^127]; 2^127 of inf and NaN."""
    if math.isnan(a) or a == math.inf:
        return 2.0**127
    return 2.0 ** min(max(math.frexp(a)[1] - 1, -100), 127) if a > 0 else 2.0**-100


def _sign(a: float) -> float:
    return (a > 0) - (a < 0)


def _whole(f: Callable[..., int]) -> Callable[..., int]:
    """``f`` of numbers that are integers. Raises ValueError for others."""

    def found(*args: float) -> int:
        if any(a != int(a) for a in args):
            raise ValueError("bits of a fraction")
        return f(*map(int, args))

    return found


_BITS_OF_I64 = 64


@_whole
def _shift_left(a: int, n: int) -> int:
    return a << n if 0 <= n < _BITS_OF_I64 else 0


@_whole
def _shift_right(a: int, n: int) -> int:
    return a >> (n if 0 <= n < _BITS_OF_I64 else _BITS_OF_I64)


@_whole
def _ctpop(a: int) -> int:
    return (a & 0xFFFFFFFF).bit_count()


@dataclass(frozen=True, slots=True)
class _Shared:
    """Entries that the records of one group share."""

    types: Types
    ulps: tuple[float, float]
    slots: float = 1.0
    issued: float = 0.0
    integer: float = 0.0

    def __call__(
        self,
        name: str,
        arity: int,
        doc: str,
        numpy: str,
        python: Callable[..., Any] | None,
        c: Call | Operator | None,
        torch: str,
        **others: Any,
    ) -> Function:
        common = {
            "interval": None,
            "slots": self.slots,
            "issued": self.issued,
            "special": 0.0,
            "derivative": (),
            "integer": self.integer,
        }
        shared: dict[str, Any] = {"types": self.types, "ulps": self.ulps, **common, **others}
        return Function(name=name, arity=arity, doc=doc, numpy=numpy, python=python, c=c, torch=torch, **shared)


#: The point of remainders: where the quotient is whole.
AT_MULTIPLES = Singular("x / y - round(x / y)", None)

_ROUNDED = _Shared(Types.NUMBER, (0.5, 0.5))
_EXACT = _Shared(Types.NUMBER, (0.0, 0.0))
_EXTREME = _Shared(Types.ANY, (0.0, 0.0), integer=1.0)
_QUOTIENT = _Shared(Types.FLOAT, (0.5, 0.5))
_COMPARISON = _Shared(Types.COMPARISON, (0.0, 0.0), integer=1.0)
_BITWISE = _Shared(Types.INTEGER, (0.0, 0.0))
_LOGIC = _Shared(Types.LOGIC, (0.0, 0.0), issued=0.25, integer=0.25)  # most are part of a comparison
_SELECT = _Shared(Types.SELECT, (0.0, 0.0), integer=1.0)
_CONVERSION = _Shared(Types.CONVERSION, (0.0, 0.0))

_ARITHMETIC = (
    _ROUNDED("add", 2, "sum", "np.add", operator.add, Operator("+", 12), "({0} + {1})",
             interval=iv.add, derivative=("1.0", "1.0"), symbol="+", native="any"),
    _ROUNDED("sub", 2, "difference", "np.subtract", operator.sub, Operator("-", 12), "({0} - {1})",
             interval=iv.sub, derivative=("1.0", "-1.0"), symbol="-", native="any"),
    _ROUNDED("mul", 2, "product", "np.multiply", operator.mul, Operator("*", 13), "({0} * {1})",
             interval=iv.mul, derivative=("y", "x"), symbol="*", native="any"),
    _QUOTIENT("div", 2, "quotient of floats", "np.divide", operator.truediv, Operator("/", 13), "({0} / {1})",
              interval=iv.div, derivative=("1.0 / y", "-(x / (y * y))"), symbol="/", native="float",
              singular=Singular("y", 2.0), slots=8.0, issued=13.0, integer=3.0, special=1.0, branches=True,
              approximations=(Approximation("x * rcp_approx(y)", ulps=2.0),
                              Approximation("div.full.f32", "div_approx", ulps=2.0, slots=8, special=1))),
    _ROUNDED("floordiv", 2, "quotient rounded towards minus infinity", "arrays.floordiv", operator.floordiv, None,
             "({0} // {1})", interval=iv.within(*iv.EVERYTHING), symbol="//", slots=12.0, steps=Steps(None)),
    _ROUNDED("mod", 2, "remainder of the quotient rounded towards minus infinity; it has the sign of y", "arrays.mod",
             operator.mod, Call("floor_mod_float", "floor_mod_float", "floor_mod"), "({0} % {1})",
             interval=iv.within(*iv.EVERYTHING), symbol="%", slots=12.0, integer=4.0, steps=Steps(None, whole=False),
             singular=AT_MULTIPLES),
    _EXACT("neg", 1, "negative", "np.negative", operator.neg, None, "(-{0})",
           interval=iv.neg, derivative=("-1.0",), inverse="neg", native="any"),
    _ROUNDED("fma", 3, "x * y + z, rounded once; the compiler makes it", "arrays.fma", _fma,
             Call("fmaf", "fma", "({0} * {1} + {2})"), "({0} * {1} + {2})",
             interval=iv.fma, derivative=("y", "x", "1.0")),
    _QUOTIENT("rcp", 1, "1 / x; the compiler makes it", "arrays.rcp", lambda a: 1 / a, None, "reciprocal",
              interval=iv.rcp, derivative=("-(1.0 / (x * x))",), inverse="rcp", slots=2.0, special=1.0,
              singular=Singular("x", 2.0),
              approximations=(Approximation("rcp.approx.ftz.f32", "rcp_approx", ulps=1.0, slots=2, special=1),)),
    _QUOTIENT("div_by", 3, "x / y by z, which is 1 / y rounded to nearest; the compiler makes it", "arrays.div_by",
              lambda a, b, c: a / b, Call("div_by", "div_by"), "({0} / {1})",
              interval=lambda a, b, c: iv.div(a, b), derivative=("1.0 / y", "-(x / (y * y))", "0.0"),
              slots=5.0, integer=2.0),
    _ROUNDED("mul_unless_one", 2, "x * y, skipped while y is 1; the compiler makes it",
             "np.multiply", operator.mul, None, "({0} * {1})", interval=iv.mul, derivative=("y", "x"),
             skips=("mul", 1.0)),
)  # fmt: skip

_ROUNDING = (
    _EXACT("abs", 1, "magnitude", "np.abs", abs, Call("fabsf", "fabs", "abs"), "abs",
           interval=iv.magnitude, derivative=("sign(x)",), example="abs(-3)", native="any"),
    _EXACT("sign", 1, "-1, 0 or 1; NaN of NaN", "np.sign", _sign, Call("sign_of", "sign_of", "sign_of"), "sign",
           interval=iv.within(-1.0, 1.0), derivative=("0.0",), example="sign(-3)", steps=Steps(0.0), integer=1.0),
    _EXACT("floor", 1, "the largest integer that is not above x", "np.floor", math.floor,
           Call("floorf", "floor", "{0}"), "floor",
           interval=iv.widened(1, 0), derivative=("0.0",), example="floor(-2.5)", steps=Steps(1.0)),
    _EXACT("ceil", 1, "the least integer that is not below x", "np.ceil", math.ceil,
           Call("ceilf", "ceil", "{0}"), "ceil",
           interval=iv.widened(0, 1), derivative=("0.0",), example="ceil(-2.5)", steps=Steps(1.0)),
    _EXACT("binade", 1, "the largest power of two that is at most x, and within [2^-100, 2^127]; the compiler makes it",
           "arrays.binade", binade, Call("binade", "binade"),
           "torch.ldexp(torch.ones_like({0}), torch.clamp(torch.frexp({0})[1] - 1, -100, 127))", types=Types.FLOAT,
           interval=iv.within(2.0**-100, 2.0**127), slots=3.0, integer=3.0),
    _EXACT("round", 1, "the nearest integer, ties to even", "np.rint", round,
           Call("rintf", "rint", "{0}"), "round",
           interval=iv.widened(1, 1), derivative=("0.0",), example="round(2.5)", steps=Steps(1.0, 0.5)),
    _EXTREME("min", 2, "the smaller one; NaN if one is NaN; -0 is less than +0", "arrays.minimum", min,
             Call("min_nan", "min_nan_f64", "min"), "", interval=iv.least, example="min(3, 1, 2)", native="any"),
    _EXTREME("max", 2, "the larger one; NaN if one is NaN; -0 is less than +0", "arrays.maximum", max,
             Call("max_nan", "max_nan_f64", "max"), "", interval=iv.greatest, example="max(3, 1, 2)", native="any"),
)  # fmt: skip

_BITS = (
    _BITWISE("bit_and", 2, "bits that both have", "np.bitwise_and", _whole(operator.and_), Operator("&", 8),
             "({0} & {1})", interval=iv.bit_and, symbol="&", native="any"),
    _BITWISE("bit_or", 2, "bits that one has", "np.bitwise_or", _whole(operator.or_), Operator("|", 6),
             "({0} | {1})", interval=iv.bit_or, symbol="|", native="any"),
    _BITWISE("bit_xor", 2, "bits that differ", "np.bitwise_xor", _whole(operator.xor), Operator("^", 7),
             "({0} ^ {1})", interval=iv.bit_xor, symbol="^", native="any"),
    _BITWISE("bit_not", 1, "all bits inverted, -1 - x", "np.invert", _whole(operator.invert), None, "(~{0})",
             interval=iv.bit_not, inverse="bit_not", native="any"),
    _BITWISE("shift_left", 2, "x * 2 ** y; 0 where y is negative or no less than the bits of the type",
             "arrays.shift_left", _shift_left, Call("", "", "shift_left"), "({0} << {1})",
             interval=iv.shift_left, symbol="<<"),
    _BITWISE("shift_right", 2, "x // 2 ** y; 0 or -1, by the sign of x, where y is negative or no less than the bits",
             "arrays.shift_right", _shift_right, Call("", "", "shift_right"), "({0} >> {1})",
             interval=iv.shift_right, symbol=">>"),
    _BITWISE("ctpop", 1, "how many of the low 32 bits are set; the compiler makes it", "arrays.ctpop",
             _ctpop, Call("", "", "ctpop"), "", interval=iv.within(0.0, 32.0), special=1.0),
)  # fmt: skip

_CONDITIONS = (
    _COMPARISON("lt", 2, "x < y", "np.less", operator.lt, Operator("<", 10), "({0} < {1})", symbol="<", native="any"),
    _COMPARISON("le", 2, "x <= y", "np.less_equal", operator.le, Operator("<=", 10), "({0} <= {1})",
                symbol="<=", native="any"),
    _COMPARISON("gt", 2, "x > y", "np.greater", operator.gt, Operator(">", 10), "({0} > {1})",
                symbol=">", native="any"),
    _COMPARISON("ge", 2, "x >= y", "np.greater_equal", operator.ge, Operator(">=", 10), "({0} >= {1})",
                symbol=">=", native="any"),
    _COMPARISON("eq", 2, "x == y", "np.equal", operator.eq, Operator("==", 9), "({0} == {1})",
                symbol="==", native="any"),
    _COMPARISON("ne", 2, "x != y", "np.not_equal", operator.ne, Operator("!=", 9), "({0} != {1})",
                symbol="!=", native="any"),
    _LOGIC("and", 2, "both hold", "np.logical_and", lambda a, b: a and b, Operator("&&", 5), "({0} & {1})",
           symbol="and", native="any"),
    _LOGIC("or", 2, "one holds", "np.logical_or", lambda a, b: a or b, Operator("||", 4), "({0} | {1})",
           symbol="or", native="any"),
    _LOGIC("not", 1, "does not hold", "np.logical_not", operator.not_, None, "logical_not",
           symbol="not", native="any"),
    _LOGIC("implied", 3, "x, which y implies and which implies z; the compiler makes it", "arrays.first_of",
           lambda a, b, c: a, Call("{0}", "{0}", "{0}"), "{0}", native="any"),
    _SELECT("select", 3, "y where x holds, z elsewhere; the other one is not evaluated", "np.where", None, None,
            "where", native="any"),
    _CONVERSION("cast", 1, "x rounded to a type; a float becomes an integer by truncation", "", None, None, ""),
    _CONVERSION("narrow", 1, "a rounding that the numeric contract permits; the compiler makes it", "", None, None,
                ""),
)  # fmt: skip

RECORDS = (*_ARITHMETIC, *_ROUNDING, *_BITS, *_CONDITIONS)
