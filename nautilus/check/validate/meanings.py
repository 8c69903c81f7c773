"""The validator's meaning of every function on numbers, integers and bools; no code is shared with the compiler.

Integers wrap in their type.  A float becomes an integer by truncation; beyond the range it becomes the nearest end.

A function of constants alone is a constant, computed in float64.  Functions that are rational in exponentials
(``sigmoid``, ``tanh``) are written in them, so identities among them are decided.  All other functions are
uninterpreted but for their reals: ``sqrt(x) * sqrt(x) = x`` is not decided by residues.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nautilus.check.validate import numbers
from nautilus.check.validate.numbers import LOG2E, Constants, Number, Value
from nautilus.check.validate.residues import P, Q
from nautilus.core.numerics import Array
from nautilus.core.types import DType, holds, integer_limits

_NEAR = 1e-9  # a real that is this close to an integer is that integer


def apply(op: str, args: Sequence[Value], dtype: DType, source: DType, constants: Constants) -> Value:
    """``op`` of ``args``; ``dtype`` is the type of the result, ``source`` that of the first argument.

    The caller lets numpy ignore its warnings.  Raises KeyError for a function without a meaning.
    """
    if op in ("cast", "narrow"):
        return _converted(args[0], dtype, source, op == "narrow", constants)
    if op == "select":
        return numbers.choose(_array(args[0]), args[1], args[2])
    if not any(isinstance(a, Number) for a in args):
        return _on_integers(op, [_array(a) for a in args], dtype, constants)
    given = [_as_number(a) for a in args]
    if op in _COMPARISONS:
        return _COMPARISONS[op](*given)
    out = _ON_NUMBERS[op](constants, *given)
    if out.real.ndim == 0 and all(a.constant is not None for a in given):
        return constants.number(float(out.real))
    return out if op in _EXACT else constants.rounding(out)


def _array(x: Value) -> Array:
    if isinstance(x, Number):
        raise TypeError("a float stands where an integer or a bool is expected")
    return x


def _as_number(x: Value) -> Number:
    return x if isinstance(x, Number) else numbers.exactly(x)


# -- integers and bools -----------------------------------------------------------------------------


def _on_integers(op: str, args: list[Array], dtype: DType, constants: Constants) -> Value:
    if op in _INTEGER:
        return wrapped(np.asarray(_INTEGER[op](*args)), dtype)
    out = apply(op, [numbers.exactly(a) for a in args], dtype, dtype, constants)
    return _whole(out.real) if isinstance(out, Number) and not dtype.is_float else out


def wrapped(x: Array, dtype: DType) -> Array:
    """Integers as ``dtype`` holds them; bools and i64 as they are."""
    if x.dtype == np.bool_ or not dtype.is_int or dtype.bits == 64:
        return x
    low, _ = integer_limits(dtype)
    return np.asarray((x - low) % (1 << dtype.bits) + low)


def _floordiv(a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b)))


def _mod(a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b)))


def _pow(a: Array, b: Array) -> Array:
    return np.where(b < 0, np.where(np.abs(a) == 1, a ** np.abs(b), 0), a ** np.maximum(b, 0))


def _shift_left(a: Array, n: Array) -> Array:
    """A product with a power of two, in 64 bits; bits beyond these are lost."""
    inside = (n >= 0) & (n <= 63)
    low = np.minimum(np.where(inside, n, 0), 62)
    return np.where(inside, a * 2**low * np.where(n == 63, 2, 1), 0)


def _shift_right(a: Array, n: Array) -> Array:
    """A quotient by a power of two, rounded towards minus infinity."""
    inside = (n >= 0) & (n <= 62)
    return np.where(inside, np.floor_divide(a, 2 ** np.where(inside, n, 0)), np.where(a < 0, -1, 0))


def _ctpop(a: Array) -> Array:
    """How often a number is odd while its low 32 bits are halved."""
    word = np.mod(a, 1 << 32)
    return sum((np.mod(np.floor_divide(word, 1 << k), 2) for k in range(32)), np.zeros_like(word))


_INTEGER: Mapping[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "mul_unless_one": np.multiply,
    "fma": lambda a, b, c: a * b + c, "neg": np.negative, "abs": np.abs, "sign": np.sign,
    "floordiv": _floordiv, "mod": _mod, "fmod": lambda a, b: np.where(b == 0, 0, np.fmod(a, np.where(b == 0, 1, b))),
    "pow": _pow, "min": np.minimum, "max": np.maximum, "floor": lambda a: a, "ceil": lambda a: a, "round": lambda a: a,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor, "bit_not": lambda a: -1 - a,
    "shift_left": _shift_left, "shift_right": _shift_right, "ctpop": _ctpop,
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
    "implied": lambda a, b, c: a,
}  # fmt: skip


# -- conversions ------------------------------------------------------------------------------------


def _whole(x: Array, bits: int = 32) -> Array:
    """Truncation, with reals next to an integer taken as that integer; the nearest end beyond the range, 0 of NaN."""
    x = np.where(np.isnan(x), 0.0, x)
    near = np.rint(x)
    found = np.where(np.abs(x - near) <= _NEAR * np.maximum(1.0, np.abs(x)), near, np.trunc(x))
    end = 2.0 ** (bits - 1)
    inside = np.where(np.abs(found) < end, found, 0.0).astype(np.int64)
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return np.where(found >= end, most, np.where(found <= -end, least, inside))


def _converted(a: Value, dtype: DType, source: DType, permitted: bool, constants: Constants) -> Value:
    if dtype.is_float:
        if not isinstance(a, Number):
            exact = numbers.exactly(a)
            return constants.number(float(exact.real)) if a.ndim == 0 else exact
        return a if permitted else rounded(a, dtype, source)
    if dtype is DType.BOOL:
        return np.asarray((a.real if isinstance(a, Number) else a) != 0)
    found = _whole(a.real, max(dtype.bits, 32)) if isinstance(a, Number) else a.astype(np.int64)
    return wrapped(found, dtype)


def rounded(a: Number, dtype: DType, source: DType) -> Number:
    """``a`` rounded to ``dtype``: an uninterpreted function, unless the type holds the value."""
    if holds(dtype, source) or (a.held is not None and holds(dtype, a.held)):
        return a
    if a.constant is not None and (a.constant == 0.0 or not math.isfinite(a.constant)):
        return a
    return replace(numbers.unknown(f"round {dtype}", a.real, [a]), held=dtype)


# -- numbers ----------------------------------------------------------------------------------------


def _less(a: Number, b: Number) -> Array:
    return np.asarray((a.real < b.real) & ~numbers.equal(a, b))


def _at_most(a: Number, b: Number) -> Array:
    return np.asarray((a.real < b.real) | numbers.equal(a, b))


_COMPARISONS: Mapping[str, Callable[[Number, Number], Array]] = {
    "lt": _less, "le": _at_most, "gt": lambda a, b: _less(b, a), "ge": lambda a, b: _at_most(b, a),
    "eq": numbers.equal, "ne": lambda a, b: ~numbers.equal(a, b),
}  # fmt: skip


def _unknown(name: str, real: Callable[..., Any]) -> Callable[..., Number]:
    return lambda k, *args: numbers.unknown(name, np.asarray(real(*(a.real for a in args)), np.float64), args)


def _integral(real: Callable[[Array], Any]) -> Callable[..., Number]:
    """A function whose results are integers, of which residues are exact."""

    def found(k: Constants, a: Number) -> Number:
        near = np.rint(a.real)
        snapped = np.where(np.abs(a.real - near) <= _NEAR * np.maximum(1.0, np.abs(a.real)), near, a.real)
        return numbers.exactly(np.asarray(real(snapped), np.float64))

    return found


def _magnitude(k: Constants, a: Number) -> Number:
    out = numbers.choose(np.signbit(a.real), numbers.negative(a), a)
    assert isinstance(out, Number)
    return out


def _exponential(base: float) -> Callable[..., Number]:
    """``base ** x`` as ``2 ** (x * log2 base)``."""

    def found(k: Constants, a: Number) -> Number:
        factor = (1, 1) if base == 2.0 else k.residues(LOG2E if base == math.e else math.log2(base))
        real = np.exp2(a.real) if base == 2.0 else np.exp(a.real) if base == math.e else np.power(base, a.real)
        return numbers.exponential(a, factor, real)

    return found


_exp = _exponential(math.e)


def _with_real(n: Number, real: Any) -> Number:
    return numbers.number(np.asarray(real, np.float64), n.u, n.v)


def _sigmoid(k: Constants, a: Number) -> Number:
    one = k.number(1.0)
    found = numbers.reciprocal(numbers.add(one, _exp(k, numbers.negative(a))))
    return _with_real(found, 1.0 / (1.0 + np.exp(-a.real)))


def _hyperbolic(k: Constants, a: Number) -> tuple[Number, Number]:
    up, down = _exp(k, a), _exp(k, numbers.negative(a))
    half = k.number(0.5)
    minus = numbers.multiply(half, numbers.add(up, numbers.negative(down)))
    return _with_real(minus, np.sinh(a.real)), numbers.multiply(half, numbers.add(up, down))


def _tanh(k: Constants, a: Number) -> Number:
    """``1 - 2 / (1 + exp(2 x))``."""
    up = _exp(k, numbers.multiply(k.number(2.0), a))
    part = numbers.multiply(k.number(-2.0), numbers.reciprocal(numbers.add(k.number(1.0), up)))
    return _with_real(numbers.add(k.number(1.0), part), np.tanh(a.real))


def _expm1(k: Constants, a: Number) -> Number:
    return _with_real(numbers.add(_exp(k, a), k.number(-1.0)), np.expm1(a.real))


_log = _unknown("log", np.log)


def _log2(k: Constants, a: Number) -> Number:
    return _with_real(numbers.multiply(_log(k, a), k.number(LOG2E)), np.log2(a.real))


def _log1p(k: Constants, a: Number) -> Number:
    return _with_real(_log(k, numbers.add(a, k.number(1.0))), np.log1p(a.real))


_sqrt = _unknown("sqrt", np.sqrt)


def _rsqrt(k: Constants, a: Number) -> Number:
    return _with_real(numbers.reciprocal(_sqrt(k, a)), 1.0 / np.sqrt(a.real))


def _power(k: Constants, a: Number, b: Number) -> Number:
    n = b.constant
    if n is not None and n == int(n) and abs(n) <= 64:
        return numbers.power(a, int(n))
    if n == 0.5:
        return _sqrt(k, a)
    if n == -0.5:
        return _rsqrt(k, a)
    if a.constant == 2.0:
        return _exponential(2.0)(k, b)
    return _unknown("pow", np.power)(k, a, b)


def _floor_division(k: Constants, a: Number, b: Number) -> Number:
    return _integral(np.floor)(k, numbers.divide(a, b))


def _remainder(whole: Callable[[Array], Any]) -> Callable[..., Number]:
    def found(k: Constants, a: Number, b: Number) -> Number:
        quotient = _integral(whole)(k, numbers.divide(a, b))
        return numbers.add(a, numbers.negative(numbers.multiply(quotient, b)))

    return found


def _hypot(k: Constants, a: Number, b: Number) -> Number:
    return _sqrt(k, numbers.add(numbers.multiply(a, a), numbers.multiply(b, b)))


def _binade(k: Constants, a: Number) -> Number:
    """A power of two, which its own residues represent."""
    real = np.where(np.isnan(a.real), np.inf, a.real)
    return numbers.exactly(np.exp2(np.clip(np.floor(np.log2(np.maximum(real, 2.0**-101))), -100, 127)))


_erf, _erfc = np.frompyfunc(math.erf, 1, 1), np.frompyfunc(math.erfc, 1, 1)

_ON_NUMBERS: Mapping[str, Callable[..., Number]] = {
    "add": lambda k, a, b: numbers.add(a, b),
    "sub": lambda k, a, b: numbers.add(a, numbers.negative(b)),
    "mul": lambda k, a, b: numbers.multiply(a, b),
    "mul_unless_one": lambda k, a, b: numbers.multiply(a, b),
    "fma": lambda k, a, b, c: numbers.add(numbers.multiply(a, b), c),
    "div": lambda k, a, b: numbers.divide(a, b),
    "div_approx": lambda k, a, b: numbers.divide(a, b),
    "div_by": lambda k, a, b, c: numbers.divide(a, b),
    "rcp": lambda k, a: numbers.reciprocal(a),
    "rcp_approx": lambda k, a: numbers.reciprocal(a),
    "neg": lambda k, a: numbers.negative(a),
    "floordiv": _floor_division,
    "mod": _remainder(np.floor),
    "fmod": _remainder(np.trunc),
    "abs": _magnitude,
    "sign": _integral(np.sign),
    "floor": _integral(np.floor),
    "ceil": _integral(np.ceil),
    "round": _integral(np.rint),
    "min": lambda k, a, b: numbers.largest(a, b, -1.0),
    "max": lambda k, a, b: numbers.largest(a, b),
    "exp": _exp,
    "exp2": _exponential(2.0),
    "exp2_approx": _exponential(2.0),
    "exp10": _exponential(10.0),
    "expm1": _expm1,
    "log": _log,
    "log2": _log2,
    "log2_approx": _log2,
    "log1p": _log1p,
    "log1p_approx": _log1p,
    "pow": _power,
    "pow_approx": _power,
    "sqrt": _sqrt,
    "sqrt_approx": _sqrt,
    "rsqrt": _rsqrt,
    "rsqrt_approx": _rsqrt,
    "binade": _binade,
    "cbrt": _unknown("cbrt", np.cbrt),
    "hypot": _hypot,
    "hypot_approx": _hypot,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "tanh_approx": _tanh,
    "sinh": lambda k, a: _hyperbolic(k, a)[0],
    "cosh": lambda k, a: _hyperbolic(k, a)[1],
    "sin": _unknown("sin", np.sin),
    "cos": _unknown("cos", np.cos),
    "tan": _unknown("tan", np.tan),
    "asin": _unknown("asin", np.arcsin),
    "acos": _unknown("acos", np.arccos),
    "atan": _unknown("atan", np.arctan),
    "atan2": _unknown("atan2", np.arctan2),
    "atan2_approx": _unknown("atan2", np.arctan2),
    "asinh": _unknown("asinh", np.arcsinh),
    "acosh": _unknown("acosh", np.arccosh),
    "atanh": _unknown("atanh", np.arctanh),
    "erf": _unknown("erf", _erf),
    "erfc": _unknown("erfc", _erfc),
}

#: The functions of ``_ON_NUMBERS`` whose results are not rounded.
_EXACT = frozenset({"neg", "abs", "sign", "floor", "ceil", "round", "floordiv", "min", "max", "binade"})

#: The functions with a meaning; the completeness test compares them with the compiler's.
KNOWN = frozenset({"cast", "narrow", "select", *_INTEGER, *_ON_NUMBERS})
assert Q < P
