"""``factor``: empty domains give exactly 0, and results stay the same. What the pass does: ``factor.scalar``."""

from __future__ import annotations

import random
from math import prod
from pathlib import Path

import numpy as np
import pytest

from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Const, Expr, Op, Var
from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.factor import Factor, _product, quotient
from nautilus.scalar.passes.inline import Inline
from nautilus.scalar.passes.simplify import Simplify
from tests.scalar.expect import sound
from tests.scalar.programs.specs import LANGUAGE, SHIPPED, agree, language, random_inputs, small


def ready(spec: Spec) -> Program:
    return Dead().apply(Simplify().apply(Inline().apply(lower(spec))))


def factored(spec: Spec) -> tuple[Program, tuple[Certificate, ...]]:
    p, certificates = Factor().derive(ready(spec))
    sound(p)
    agree(spec, p)
    return p, certificates


def spec_of(text: str) -> Spec:
    return load_text("\n".join(line.strip() for line in text.strip().splitlines()) + "\n")


EMPTY_ROWS = """
    dim M = 6, N = 5, D = 3
    input X: f16[M, N]
    input V: f16[N, D]
    output O: f16[M, D]
    P[i, j] = softmax[j | j - i <= -2](X[i, j])
    O[i, d] = sum[j](P[i, j] * V[j, d])"""


def test_empty_rows_are_zero() -> None:
    spec = spec_of(EMPTY_ROWS)
    p, (c,) = factored(spec)
    out = run_program(p, random_inputs(spec))["O"]
    assert (out[:2] == 0).all() and (out[2:] != 0).any()
    assert "not being empty" in c.proof and c.conditions


def test_a_domain_without_closed_form_gets_an_any() -> None:
    spec = spec_of(EMPTY_ROWS.replace("j - i <= -2", "(i + j) % 4 == 3 and i < 4"))
    p, (c,) = factored(spec)
    assert (run_program(p, random_inputs(spec))["O"][4:] == 0).all()
    assert "any over the same domain" in c.proof


def test_the_schedule_may_forbid_it() -> None:
    p = ready(small(next(s for s in SHIPPED if s.stem == "causal_prefill")))
    assert Factor(Schedule((), (), factor=False)).apply(p) is p


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_specs(path: Path) -> None:
    factored(small(path))


@pytest.mark.parametrize("name", LANGUAGE)
def test_language(name: str) -> None:
    factored(language(name))


def test_adversarial_rows() -> None:
    spec = spec_of(EMPTY_ROWS)
    p, _ = factored(spec)
    x = random_inputs(spec)
    x["X"] = x["X"] * 0 + np.array([6e4, -6e4, 0, 1, 2])
    agree(spec, p, x)


def _random(r: random.Random, depth: int) -> Expr:
    if depth == 0:
        return Const(r.choice([2.0, 0.5, 4.0, -8.0]), DType.F64)
    name = r.choice(["mul", "div", "neg", "rcp"])
    return Op(name, tuple(_random(r, depth - 1) for _ in range(1 if name in ("neg", "rcp") else 2)), DType.F64)


def _value(e: Expr) -> float:
    match e:
        case Const(value=value):
            return float(value)
        case Op(op="neg", args=(a,)):
            return -_value(a)
        case Op(op="rcp", args=(a,)):
            return 1 / _value(a)
        case Op(op=op, args=(a, b)):
            return _value(a) * _value(b) if op == "mul" else _value(a) / _value(b)
    raise AssertionError(e)


@pytest.mark.parametrize("seed", range(30))
def test_factors_and_divisors_are_all_of_an_element(seed: int) -> None:
    e = _random(random.Random(seed), 3)
    up, down = quotient(e)
    assert prod(map(_value, up)) / prod(map(_value, down)) == _value(e)
    assert all(isinstance(x, Const) for x in (*up, *down))


def test_a_product_in_which_each_factor_occurs_an_even_number_of_times_is_a_square() -> None:
    a, b = (Var(n, DType.F32) for n in "ab")

    def times(x: Expr, y: Expr) -> Expr:
        return Op("mul", (x, y), DType.F32)

    assert _product([a, b, a, b], DType.F32) == times(times(a, b), times(a, b))
    assert _product([a] * 4, DType.F32) == times(times(a, a), times(a, a))
    assert _product([a, a], DType.F32) == times(a, a)
    assert _product([a, a, b], DType.F32) == times(times(a, a), b)
    assert _product([a], DType.F32) == a
    assert _product([], DType.F32) == Const(1.0, DType.F32)
