"""Records of elementary and special functions.

``ulps`` are the maximum errors in the CUDA C++ Programming Guide ("Mathematical Functions", "Standard Functions",
single and double precision), the larger one where editions differ.  Issue slots are instructions of the usual path
in NVRTC's PTX for sm_90, and ``issued`` are those of its machine code (ptxas 13.5).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from nautilus.core.functions import intervals as iv
from nautilus.core.functions.arithmetic import AT_MULTIPLES
from nautilus.core.functions.intervals import Interval
from nautilus.core.functions.record import Approximation, Call, Function, Singular, Steps, Types


def _function(
    name: str,
    doc: str,
    example: str,
    *,
    numpy: str,
    python: Callable[..., Any],
    interval: Callable[..., Interval],
    ulps: tuple[float, float],
    slots: float,
    special: float,
    derivative: tuple[str, ...],
    arity: int = 1,
    types: Types = Types.FLOAT,
    torch: str = "",
    c: Call | None = None,
    **others: Any,
) -> Function:
    """A function that specs call by name, as in ``example``.  C and torch call it ``name`` unless another is given."""
    return Function(
        name=name, doc=doc, example=example, arity=arity, types=types, numpy=numpy, python=python, interval=interval,
        c=c or Call(f"{name}f", name), ulps=ulps, slots=slots, special=special,
        torch=torch or name, derivative=derivative, elementary=True, **others,
    )  # fmt: skip


def _sigmoid(x: float) -> float:
    e = math.exp(-abs(x))
    return 1 / (1 + e) if x >= 0 else e / (1 + e)


_EXPONENTIALS = (
    _function(
        "exp", "e to the power x", "exp(1)",
        numpy="np.exp", python=math.exp, interval=iv.increasing(iv.exp), ulps=(2, 1), slots=2, special=1,
        issued=7, integer=1, derivative=("exp(x)",), inverse="log", scales_argument=True,
        approximations=(Approximation("exp2_approx(x * log2 e)", ulps=3),),
    ),
    _function(
        "exp2", "2 to the power x", "exp2(3)",
        numpy="np.exp2", python=math.exp2, interval=iv.increasing(iv.exp2), ulps=(2, 1), slots=1, special=1,
        issued=3, integer=1, derivative=("0.6931471805599453 * exp2(x)",), inverse="log2", scales_argument=True,
        approximations=(Approximation("ex2.approx.ftz.f32", "exp2_approx", ulps=2, slots=1, special=1),),
    ),
    _function(
        "exp10", "10 to the power x", "exp10(2)",
        numpy="arrays.exp10", python=lambda x: 10.0**x, interval=iv.increasing(iv.exp10), ulps=(2, 1), slots=12,
        special=1, issued=7, integer=1, derivative=("2.302585092994046 * exp10(x)",), torch="torch.pow(10.0, {0})",
    ),
    _function(
        "expm1", "exp(x) - 1, accurate for small x", "expm1(1)",
        numpy="np.expm1", python=math.expm1, interval=iv.increasing(math.expm1), ulps=(1, 1), slots=30, special=1,
        issued=22, integer=9, derivative=("exp(x)",), inverse="log1p",
    ),
    _function(
        "pow", "x to the power y; of integers, a negative exponent truncates towards zero", "pow(2, 10)",
        arity=2, types=Types.NUMBER, numpy="arrays.power", python=lambda x, y: x**y,
        interval=iv.raised, ulps=(8, 2), slots=100, special=2,
        issued=91, integer=35, branches=True,
        derivative=("y * pow(x, y - 1.0)", "pow(x, y) * log(x)"), singular=Singular("x", 2.0, one_sided=True),
        c=Call("power", "pow", "int_pow"),
        torch="({0} ** {1})", symbol="**",
        approximations=(Approximation("exp2_approx(y * log2 x)", "pow_approx", ulps=8, slots=18, special=2),),
    ),
    _function(
        "log", "natural logarithm", "log(2)",
        numpy="np.log", python=math.log, interval=iv.increasing(iv.log), ulps=(1, 1), slots=2, special=1,
        issued=24, integer=9, derivative=("1.0 / x",), inverse="exp", singular=Singular("x", 1.0, one_sided=True),
        approximations=(Approximation("log2(x) * log 2", ulps=11, large=3, absolute=2.1),),
    ),
    _function(
        "log2", "logarithm to the base 2", "log2(8)",
        numpy="np.log2", python=math.log2, interval=iv.increasing(iv.log2), ulps=(2, 1), slots=1, special=1,
        issued=26, integer=9,
        derivative=("1.4426950408889634 / x",), inverse="exp2", singular=Singular("x", 1.0, one_sided=True),
        approximations=(
            Approximation(
                "lg2.approx.f32, near 1 a polynomial", "log2_approx", ulps=10, large=2, absolute=2, slots=15, special=1,
                integer=5,
            ),
        ),
    ),
    _function(
        "log1p", "log(1 + x), accurate for small x", "log1p(1)",
        numpy="np.log1p", python=math.log1p, interval=iv.increasing(math.log1p), ulps=(1, 1), slots=36, special=0,
        issued=28, integer=10, branches=True,
        derivative=("1.0 / (1.0 + x)",), inverse="expm1", singular=Singular("1.0 + x", 1.0, one_sided=True),
        approximations=(
            Approximation(
                "lg2.approx.ftz.f32, near 0 a polynomial", "log1p_approx", ulps=18, large=4, absolute=2.6, slots=12,
                special=1, integer=2,
            ),
        ),
    ),
    _function(
        "sigmoid", "1 / (1 + exp(-x))", "sigmoid(1)",
        numpy="arrays.sigmoid", python=_sigmoid, interval=iv.increasing(iv.sigmoid), ulps=(5, 5), slots=4, special=2,
        issued=21, branches=True, integer=4, derivative=("sigmoid(x) * (1.0 - sigmoid(x))",), scales_argument=True,
        # exp(-x) overflows in f64 where the result is a number that is not normal, and that is not flushed
        c=Call("(1.0f / (1.0f + expf(-({0}))))", "(({0}) >= -700.0 ? 1.0 / (1.0 + exp(-({0}))) : exp({0}))"),
        # with the halves of correct rounding, the reciprocal has 1.5 ulp, the power 2.5 and the sum 0.5; close to 1,
        # the power is a small part of the sum
        approximations=(Approximation("rcp_approx(1 + exp2_approx(x * -log2 e))", ulps=5, at_one=1.5),),
    ),
)  # fmt: skip

_ROOTS = (
    _function(
        "sqrt", "square root", "sqrt(2)",
        numpy="np.sqrt", python=math.sqrt, interval=iv.sqrt, ulps=(1, 0.5), slots=3, special=1,
        c=Call("root", "sqrt"), issued=13, integer=6, derivative=("0.5 * rsqrt(x)",),
        singular=Singular("x", 0.5, one_sided=True), native="float",
        approximations=(Approximation("sqrt.approx.f32", "sqrt_approx", ulps=2, slots=4, special=1),),
    ),
    _function(
        "rsqrt", "1 / sqrt(x)", "rsqrt(4)",
        numpy="arrays.rsqrt", python=lambda x: 1 / math.sqrt(x), interval=iv.rsqrt, ulps=(2, 1), slots=2, special=1,
        derivative=("-0.5 * rsqrt(x) / x",), singular=Singular("x", 1.5, one_sided=True),
        approximations=(Approximation("rsqrt.approx.ftz.f32", "rsqrt_approx", ulps=2, slots=2, special=1),),
    ),
    _function(
        "cbrt", "cube root, of negative numbers too", "cbrt(-27)",
        numpy="np.cbrt", python=math.cbrt, interval=iv.increasing(math.cbrt), ulps=(1, 1), slots=17, special=2,
        issued=15, integer=5, derivative=("cbrt(x) / (3.0 * x)",), singular=Singular("x", 2.0 / 3.0),
        torch="(torch.sign({0}) * torch.pow(torch.abs({0}), 1 / 3))",
    ),
    _function(
        "hypot", "sqrt(x * x + y * y) without overflow", "hypot(3, 4)",
        arity=2, numpy="np.hypot", python=math.hypot, interval=iv.hypot, ulps=(3, 2), slots=25, special=1,
        issued=28, branches=True, integer=12, derivative=("x / hypot(x, y)", "y / hypot(x, y)"),
        approximations=(Approximation("s * rsqrt_approx(s)", "hypot_approx", ulps=4, slots=8, special=1),),
    ),
    _function(
        "fmod", "remainder of the quotient rounded towards zero; it has the sign of x, and % that of y",
        "fmod(-7.0, 3.0)",
        arity=2, numpy="np.fmod", python=math.fmod, interval=iv.fmod, ulps=(0.5, 0.5), slots=40, special=1,
        issued=72, branches=True, integer=28, derivative=(), steps=Steps(None, whole=False), singular=AT_MULTIPLES,
    ),
)  # fmt: skip

_AT_ONE = Singular("1.0 - abs(x)", 0.5, one_sided=True)

_TRIGONOMETRIC = (
    _function(
        "sin", "sine of an angle in radians", "sin(1)",
        numpy="np.sin", python=math.sin, interval=iv.within(-1.0, 1.0), ulps=(2, 2), slots=24, special=1,
        c=Call("sine", "sin"), branches=True, integer=5, derivative=("cos(x)",), inverse="asin",
    ),
    _function(
        "cos", "cosine of an angle in radians", "cos(1)",
        numpy="np.cos", python=math.cos, interval=iv.within(-1.0, 1.0), ulps=(2, 2), slots=24, special=1,
        c=Call("cosine", "cos"), branches=True, integer=5, derivative=("-sin(x)",), inverse="acos",
    ),
    _function(
        "tan", "tangent of an angle in radians", "tan(1)",
        numpy="np.tan", python=math.tan, interval=iv.tan, ulps=(4, 2), slots=30, special=1,
        c=Call("tangent", "tan"), branches=True, integer=6,
        derivative=("1.0 + tan(x) * tan(x)",), inverse="atan", singular=Singular("cos(x)", 2.0),
    ),
    _function(
        "asin", "arc sine in [-pi/2, pi/2]; NaN outside [-1, 1]", "asin(1)",
        numpy="np.arcsin", python=math.asin, interval=iv.increasing(math.asin, -1.0, 1.0), ulps=(4, 2), slots=32,
        special=1, issued=21, integer=7, derivative=("rsqrt(1.0 - x * x)",), inverse="sin", singular=_AT_ONE,
    ),
    _function(
        "acos", "arc cosine in [0, pi]; NaN outside [-1, 1]", "acos(0)",
        numpy="np.arccos", python=math.acos, interval=iv.decreasing(math.acos, -1.0, 1.0), ulps=(3, 2), slots=36,
        special=1, issued=22, integer=7, derivative=("-rsqrt(1.0 - x * x)",), inverse="cos", singular=_AT_ONE,
    ),
    _function(
        "atan", "arc tangent in [-pi/2, pi/2]", "atan(1)",
        numpy="np.arctan", python=math.atan, interval=iv.increasing(math.atan), ulps=(2, 2), slots=30, special=1,
        issued=17, integer=6, derivative=("1.0 / (1.0 + x * x)",), inverse="tan",
    ),
    _function(
        "atan2", "the angle of the point (y, x) with the positive x axis, in [-pi, pi]; the first argument is y",
        "atan2(1, -1)",
        arity=2, numpy="np.arctan2", python=math.atan2, interval=iv.within(-math.pi, math.pi), ulps=(3, 2), slots=50,
        special=1, branches=True, integer=18, derivative=("y / (x * x + y * y)", "-x / (x * x + y * y)"),
        singular=Singular("select(y < 0.0, x, inf)", None),  # the border between -pi and pi
        approximations=(
            Approximation("a polynomial in y * rcp_approx(x)", "atan2_approx", ulps=6, slots=28, special=1),
        ),
    ),
)  # fmt: skip

_HYPERBOLIC = (
    _function(
        "sinh", "hyperbolic sine", "sinh(1)",
        numpy="np.sinh", python=math.sinh, interval=iv.increasing(math.sinh), ulps=(3, 2), slots=36, special=2,
        issued=22, integer=6, derivative=("cosh(x)",), inverse="asinh",
    ),
    _function(
        "cosh", "hyperbolic cosine", "cosh(1)",
        numpy="np.cosh", python=math.cosh, interval=iv.even(math.cosh), ulps=(2, 1), slots=24, special=2,
        issued=14, integer=4, derivative=("sinh(x)",), inverse="acosh",
    ),
    _function(
        "tanh", "hyperbolic tangent", "tanh(1)",
        numpy="np.tanh", python=math.tanh, interval=iv.increasing(math.tanh), ulps=(2, 2), slots=6, special=2,
        issued=14, integer=4, derivative=("1.0 - tanh(x) * tanh(x)",), inverse="atanh",
        approximations=(
            Approximation("tanh.approx.f32", "tanh_approx", relative=2.0**-11, narrow=True, slots=1, special=1),
        ),
    ),
    _function(
        "asinh", "inverse of sinh", "asinh(1)",
        numpy="np.arcsinh", python=math.asinh, interval=iv.increasing(math.asinh), ulps=(3, 3), slots=56, special=2,
        issued=40, branches=True, integer=15, derivative=("rsqrt(x * x + 1.0)",), inverse="sinh",
    ),
    _function(
        "acosh", "inverse of cosh, not negative; NaN below 1", "acosh(2)",
        numpy="np.arccosh", python=math.acosh, interval=iv.increasing(math.acosh, lo=1.0), ulps=(4, 3), slots=58,
        special=1, issued=42, branches=True, integer=14, derivative=("rsqrt(x * x - 1.0)",), inverse="cosh",
        singular=Singular("x - 1.0", 0.5, one_sided=True),
    ),
    _function(
        "atanh", "inverse of tanh; infinite at -1 and 1, NaN beyond", "atanh(0.5)",
        numpy="np.arctanh", python=math.atanh, interval=iv.increasing(math.atanh, -1.0, 1.0), ulps=(3, 2), slots=52,
        special=1, issued=36, branches=True, integer=13, derivative=("1.0 / (1.0 - x * x)",), inverse="tanh",
        singular=Singular("1.0 - abs(x)", 1.0, one_sided=True),
    ),
)  # fmt: skip

_ERROR_FUNCTIONS = (
    _function(
        "erf", "error function", "erf(0.5)",
        numpy="arrays.erf", python=math.erf, interval=iv.increasing(math.erf), ulps=(2, 2), slots=16, special=0,
        issued=19, integer=10, derivative=("1.1283791670955126 * exp(-(x * x))",),
        approximations=(
            Approximation("tanh_approx(x * (a + b * x * x))", relative=2.0**-10, form_error=3.7e-4, narrow=True),
        ),
    ),
    _function(
        "erfc", "1 - erf(x), accurate where erf(x) is close to 1", "erfc(0.5)",
        numpy="arrays.erfc", python=math.erfc, interval=iv.decreasing(math.erfc), ulps=(4, 5), slots=68, special=3,
        issued=44, integer=7, derivative=("-1.1283791670955126 * exp(-(x * x))",),
    ),
)  # fmt: skip

RECORDS = (*_EXPONENTIALS, *_ROOTS, *_TRIGONOMETRIC, *_HYPERBOLIC, *_ERROR_FUNCTIONS)
