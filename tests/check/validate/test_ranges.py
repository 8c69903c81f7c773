"""Intervals round outwards, and a factor of f16 whose range is not proved finite is not decided."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from nautilus.check.validate.ranges import intervals
from nautilus.check.validate.ranges.intervals import FUNCTIONS, Interval
from nautilus.check.validate.ranges.narrowing import validate
from nautilus.core.expr.nodes import Const, Op
from nautilus.core.types import DType
from nautilus.scalar.ir import Loop, Program
from nautilus.scalar.text import parse_program
from tests.check.planted import mutated

PROGRAM = """
program t {
  input S: f32[20, 33]
  input V: f16[33, 8]
  input W: u8[33, 8]
  output O: f32[20, 8]
  temp m: f32[20]
  temp l: f32[20]
  kernel m {
    par i in 0..20 {
      m[i] = -inf
      red j in 0..33 {
        m[i] max= S[i, j] where j <= i + 13
      }
    }
  }
  kernel l {
    par i in 0..20 {
      l[i] = 0.0
      red j in 0..33 {
        l[i] sum= exp(S[i, j] - m[i]) where j <= i + 13
      }
    }
  }
  kernel O {
    par i in 0..20, d in 0..8 {
      O[i, d] = 0.0
      red j in 0..33 {
        O[i, d] sum= cast<f32>(narrow<f16>(%s)) * cast<f32>(V[j, d]) where %s
      }
    }
  }
}
"""


def program(factor: str, guard: str = "j <= i + 13") -> Program:
    return parse_program(PROGRAM % (factor, guard), "t")


@pytest.mark.parametrize(("factor", "guard", "status"), [
    ("exp(S[i, j] - m[i])", "j <= i + 13", "proved"),
    ("exp(S[i, j] - m[i])", "j + 2 <= i", "proved"),  # fewer elements
    ("exp(S[i, j] - m[i])", "j <= i + 14", "not decided"),  # an element that the maximum does not have
    ("exp(S[i, j] - max(cast<f32>(V[0, d]), m[i]))", "j <= i + 13", "proved"),
    ("exp(S[i, j] - max(m[i], max(cast<f32>(V[0, d]), 2.0)))", "j <= i + 13", "proved"),
    ("exp(S[i, j] - min(cast<f32>(V[0, d]), m[i]))", "j <= i + 13", "not decided"),
    ("exp(S[i, j] - (m[i] + log(l[i])))", "j <= i + 13", "proved"),
    ("exp(S[i, j] - (m[i] + log(l[i] + exp(cast<f32>(V[0, d])))))", "j <= i + 13", "proved"),
    ("exp(S[i, j] - (m[i] + log(l[i] + cast<f32>(V[0, d]))))", "j <= i + 13", "not decided"),
    ("exp(S[i, j] - (cast<f32>(V[0, d]) + log(l[i])))", "j <= i + 13", "not decided"),
    ("exp(S[i, j] - m[i]) / l[i] * 65000.0", "j <= i + 13", "proved"),
    ("exp(S[i, j] - m[i]) / (exp(cast<f32>(V[0, d])) + l[i]) * 65000.0", "j <= i + 13", "proved"),
    ("cast<f32>(cast<i32>(W[j, d]) % 16 - 8) * 8189.0", "true", "proved"),  # 65512
    ("cast<f32>(cast<i32>(W[j, d]) // 16 - 8) * 8189.0", "true", "proved"),
    ("cast<f32>(select(j == 2, cast<i32>(W[j, d]) // 16, cast<i32>(W[j, d])))", "true", "proved"),
    ("cast<f32>(cast<i32>(W[j, d]) % 16 - 9) * 8189.0", "true", "not decided"),
    ("cast<f32>(cast<i32>(W[j, d]) * cast<i32>(W[j, d]))", "true", "proved"),  # 65025
    ("cast<f32>(cast<i32>(W[j, d]) * cast<i32>(W[j, d]) * 2)", "true", "not decided"),
    ("cast<f32>(j) * 2000.0", "true", "proved"),  # 64000
    ("cast<f32>(j) * 2048.0", "true", "not decided"),  # 65536
    ("cast<f32>(bit_or(cast<i32>(W[j, d]) + 1, 256)) * 128.0", "true", "proved"),  # 65408
    ("cast<f32>(bit_or(cast<i32>(W[j, d]) - 1, 256)) * 128.0", "true", "not decided"),  # -1 has all bits
    ("exp(m[i] - S[i, j])", "j <= i + 13", "not decided"),
    ("exp(S[i, j] + m[i])", "j <= i + 13", "not decided"),
    ("exp(S[j, i] - m[i])", "j <= i + 13", "not decided"),
    ("exp(S[i, j] - m[i] + 11.0)", "j <= i + 13", "proved"),
    ("exp(S[i, j] - m[i] + 11.1)", "j <= i + 13", "not decided"),  # 66171
    ("tanh(S[i, j]) * 65000.0", "j <= i + 13", "proved"),
    ("tanh(S[i, j]) * 65519.9", "j <= i + 13", "not decided"),
    ("S[i, j]", "j <= i + 13", "not decided"),
    ("cast<f32>(V[j, d]) / 0.5", "j <= i + 13", "not decided"),
    ("cast<f32>(V[j, d]) * 0.5", "j <= i + 13", "proved"),
    ("1.0 / S[i, j]", "j <= i + 13", "not decided"),
    ("l[i] * 1900.0", "true", "proved"),  # a sum of 33 exponentials that are at most 1
    ("l[i] * 2000.0", "true", "not decided"),
])  # fmt: skip
def test_a_factor_is_proved_finite_or_not_decided(factor: str, guard: str, status: str) -> None:
    assert validate(program(factor, guard)).status == status


def test_a_loop_that_leaves_the_reduction_is_not_decided() -> None:
    def longer(n: Any) -> Any:
        if isinstance(n, Loop) and n.var == "j" and n.kind.is_reduction and isinstance(n.hi, Const):
            return Loop(n.var, n.lo, Const(int(n.hi.value) - 1, n.hi.dtype), n.kind, n.body)
        return None

    good = program("exp(S[i, j] - m[i])", "true")
    first = mutated(good.kernels[0], longer)
    assert validate(Program(good.name, good.buffers, good.params, (first, *good.kernels[1:]))).status == "not decided"


@pytest.mark.parametrize(("value", "guard", "factor", "status"), [
    ("tanh(S[i, 0])", "", "t[i] * 65000.0", "proved"),
    ("tanh(S[i, 0])", " where i < 7", "t[i] * 65000.0", "not decided"),  # the others are what the memory held
    ("tanh(S[i, 0])", "", "t[i] * 65520.0", "not decided"),
])  # fmt: skip
def test_a_tensor_has_the_range_of_its_definition(value: str, guard: str, factor: str, status: str) -> None:
    stored = f"kernel t {{\n    par i in 0..20 {{\n      t[i] = {value}{guard}\n    }}\n  }}\n  kernel O"
    text = (PROGRAM % (factor, "true")).replace("temp m", "temp t: f32[20]\n  temp m").replace("kernel O", stored)
    assert validate(parse_program(text, "t")).status == status


@pytest.mark.parametrize(("term", "status"), [("max(S[i, j], 0.0)", "proved"), ("max(S[i, j], -0.5)", "not decided")])
def test_a_share_is_one_of_numbers_that_are_not_negative(term: str, status: str) -> None:
    text = PROGRAM.replace("exp(S[i, j] - m[i])", term) % (f"{term} / l[i] * 65000.0", "j <= i + 13")
    assert validate(parse_program(text, "t")).status == status


def test_a_scale_from_another_tensor_is_not_decided() -> None:
    scaled = "S[i, j] * (16384.0 / binade(m[i]))"
    with_magnitudes = mutated(program(scaled), _magnitudes)
    assert validate(with_magnitudes).status == "proved"
    assert validate(program(scaled)).status == "not decided"  # the maximum is not one of magnitudes


def _magnitudes(n: Any) -> Any:
    from nautilus.scalar.ir import Update

    if isinstance(n, Update) and n.op == "max":
        size = Op("abs", (n.value,), DType.F32)
        finite = Op("lt", (size, Const(math.inf, DType.F32)), DType.BOOL)
        value = Op("select", (finite, size, Const(0.0, DType.F32)), DType.F32)
        return Update(n.buffer, n.op, n.index, value, n.guard)
    return None


EXACT = {"add": lambda x, y: x + y, "multiply": lambda x, y: x * y, "divide": lambda x, y: x / y}


@pytest.mark.parametrize("name", EXACT)
def test_results_of_f32_and_of_rationals_lie_inside(name: str) -> None:
    rng = random.Random(name)
    for _ in range(300):
        ends = [sorted(np.float32(rng.uniform(-1, 1) * 2.0 ** rng.randint(-30, 30)) for _ in range(2)) for _ in "ab"]
        a, b = ((float(x), float(y)) for x, y in ends)
        if name == "divide" and b[0] <= 0.0 <= b[1]:
            assert intervals.divide(a, b) == intervals.EVERYTHING
            continue
        lo, hi = getattr(intervals, name)(a, b)
        for x in a:
            for y in b:
                exact = EXACT[name](Fraction(x), Fraction(y))
                rounded = EXACT[name](np.float32(x), np.float32(y))
                assert lo <= exact <= hi and lo <= float(rounded) <= hi


@pytest.mark.parametrize("name", ["exp", "exp2", "sqrt", "rsqrt", "rcp", "tanh", "sigmoid", "abs", "neg"])
def test_functions_lie_inside(name: str) -> None:
    real: dict[str, Any] = {
        "exp": math.exp, "exp2": lambda x: 2.0**x, "sqrt": math.sqrt, "rsqrt": lambda x: 1 / math.sqrt(x),
        "rcp": lambda x: 1 / x, "tanh": math.tanh, "sigmoid": lambda x: 1 / (1 + math.exp(-x)), "abs": abs,
        "neg": lambda x: -x,
    }  # fmt: skip
    for lo, hi in ((0.5, 2.0), (1e-3, 80.0), (3.0, 3.0)):
        found: Interval = FUNCTIONS[name]((lo, hi))
        for k in range(21):
            assert found[0] <= real[name](lo + (hi - lo) * k / 20) <= found[1]


def test_what_may_overflow_has_an_infinite_end() -> None:
    assert FUNCTIONS["exp"]((0.0, 89.0))[1] == math.inf
    assert intervals.multiply((1e20, 1e30), (1e10, 1e10))[1] == math.inf
    assert intervals.multiply((0.0, 0.0), intervals.EVERYTHING)[1] < 1e-30
    assert intervals.repeated((1.0, 1.0), 1e6)[1] >= 1e6
    assert FUNCTIONS["rcp"]((-1.0, 1.0)) == intervals.EVERYTHING
