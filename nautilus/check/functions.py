"""The checker's own meaning of every function, for numbers and for symbols; no code is shared with ``core.functions``.

``number`` takes finite Python numbers and may raise ArithmeticError or ValueError where the maths is undefined.
``symbol`` makes a sympy expression; None where sympy has no useful form, so that a certificate with the function is
tested on numbers but not proved.  ``tests/check/test_functions.py`` compares this table with the compiler's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy


@dataclass(frozen=True, slots=True)
class Meaning:
    """One function of ``arity`` arguments."""

    arity: int
    number: Callable[..., Any]
    symbol: Callable[..., Any] | None


def _power(base: int) -> Callable[[Any], Any]:
    return lambda a: sympy.Integer(base) ** a


_ARITHMETIC: Mapping[str, Meaning] = {
    "add": Meaning(2, lambda a, b: a + b, lambda a, b: a + b),
    "sub": Meaning(2, lambda a, b: a - b, lambda a, b: a - b),
    "mul": Meaning(2, lambda a, b: a * b, lambda a, b: a * b),
    "mul_unless_one": Meaning(2, lambda a, b: a * b, lambda a, b: a * b),
    "sub_unless_zero": Meaning(2, lambda a, b: a - b, lambda a, b: a - b),
    "div": Meaning(2, lambda a, b: a / b, lambda a, b: a / b),
    "floordiv": Meaning(2, lambda a, b: a // b, None),
    "mod": Meaning(2, lambda a, b: a % b, None),
    "neg": Meaning(1, lambda a: -a, lambda a: -a),
    "fma": Meaning(3, lambda a, b, c: a * b + c, lambda a, b, c: a * b + c),
    "rcp": Meaning(1, lambda a: 1 / a, lambda a: 1 / a),
    "abs": Meaning(1, abs, sympy.Abs),
    "sign": Meaning(1, lambda a: (a > 0) - (a < 0), sympy.sign),
    "floor": Meaning(1, math.floor, sympy.floor),
    "ceil": Meaning(1, math.ceil, sympy.ceiling),
    "round": Meaning(1, round, None),
    "min": Meaning(2, min, sympy.Min),
    "max": Meaning(2, max, sympy.Max),
}
_CONDITIONS: Mapping[str, Meaning] = {
    "lt": Meaning(2, lambda a, b: a < b, None),
    "le": Meaning(2, lambda a, b: a <= b, None),
    "gt": Meaning(2, lambda a, b: a > b, None),
    "ge": Meaning(2, lambda a, b: a >= b, None),
    "eq": Meaning(2, lambda a, b: a == b, None),
    "ne": Meaning(2, lambda a, b: a != b, None),
    "and": Meaning(2, lambda a, b: a and b, None),
    "or": Meaning(2, lambda a, b: a or b, None),
    "not": Meaning(1, lambda a: not a, None),
    "select": Meaning(3, lambda a, b, c: b if a else c, None),
}
_ELEMENTARY: Mapping[str, Meaning] = {
    "exp": Meaning(1, math.exp, sympy.exp),
    "exp2": Meaning(1, lambda a: 2.0**a, _power(2)),
    "exp10": Meaning(1, lambda a: 10.0**a, _power(10)),
    "expm1": Meaning(1, math.expm1, lambda a: sympy.exp(a) - 1),
    "log": Meaning(1, math.log, sympy.log),
    "log2": Meaning(1, math.log2, lambda a: sympy.log(a) / sympy.log(2)),
    "log1p": Meaning(1, math.log1p, lambda a: sympy.log(1 + a)),
    "pow": Meaning(2, lambda a, b: a**b, lambda a, b: a**b),
    "sqrt": Meaning(1, math.sqrt, sympy.sqrt),
    "rsqrt": Meaning(1, lambda a: 1 / math.sqrt(a), lambda a: 1 / sympy.sqrt(a)),
    "cbrt": Meaning(1, math.cbrt, lambda a: sympy.sign(a) * sympy.Abs(a) ** sympy.Rational(1, 3)),
    "hypot": Meaning(2, lambda a, b: math.sqrt(a * a + b * b), lambda a, b: sympy.sqrt(a**2 + b**2)),
    "fmod": Meaning(2, lambda a, b: a - b * math.trunc(a / b), None),
    "sigmoid": Meaning(1, lambda a: 1 / (1 + math.exp(-a)), lambda a: 1 / (1 + sympy.exp(-a))),
    "sin": Meaning(1, math.sin, sympy.sin),
    "cos": Meaning(1, math.cos, sympy.cos),
    "tan": Meaning(1, math.tan, sympy.tan),
    "asin": Meaning(1, math.asin, sympy.asin),
    "acos": Meaning(1, math.acos, sympy.acos),
    "atan": Meaning(1, math.atan, sympy.atan),
    "atan2": Meaning(2, math.atan2, sympy.atan2),
    "sinh": Meaning(1, math.sinh, sympy.sinh),
    "cosh": Meaning(1, math.cosh, sympy.cosh),
    "tanh": Meaning(1, math.tanh, sympy.tanh),
    "asinh": Meaning(1, math.asinh, sympy.asinh),
    "acosh": Meaning(1, math.acosh, sympy.acosh),
    "atanh": Meaning(1, math.atanh, sympy.atanh),
    "erf": Meaning(1, math.erf, sympy.erf),
    "erfc": Meaning(1, math.erfc, sympy.erfc),
}

#: Hardware approximations of functions; the meaning is that of the function.
_APPROXIMATE: Mapping[str, Meaning] = {
    "exp2_approx": Meaning(1, lambda a: 2.0**a, _power(2)),
    "rcp_approx": Meaning(1, lambda a: 1 / a, lambda a: 1 / a),
    "rsqrt_approx": Meaning(1, lambda a: 1 / math.sqrt(a), lambda a: 1 / sympy.sqrt(a)),
    "tanh_approx": Meaning(1, math.tanh, sympy.tanh),
}

#: Every function but the conversions, whose rules stand in ``check.certificates``.
MEANINGS: Mapping[str, Meaning] = {**_ARITHMETIC, **_CONDITIONS, **_ELEMENTARY, **_APPROXIMATE}
