"""``factor``: invariant factors leave sums, and an empty domain stays exactly 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nautilus.core.certificate import Certificate
from nautilus.core.schedule import Schedule
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.factor import Factor
from nautilus.scalar.passes.inline import Inline
from nautilus.scalar.passes.simplify import Simplify
from tests.scalar.expect import expect, sound
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


def test_the_division_leaves_the_sum() -> None:
    p, (c,) = factored(small(next(s for s in SHIPPED if s.stem == "causal_prefill")))
    expect(
        p,
        """
        kernel O_acc {
        sum= exp(S_sum[b, h, i, j] * 0.35355339059327373 - P_max[b, h, i]) * cast<f32>(V[b, h, j, d]) where j <= i + 4
        O[b, h, i, d] = O_acc[b, h, i, d] / P_sum[b, h, i]
        """,
    )
    assert c.rule == "factor" and c.subject == "O_acc" and "never empty" in c.proof
    assert "divisor 0 = P_sum[b, h, i]" in c.text()


EMPTY_ROWS = """
    dim M = 6, N = 5, D = 3
    input X: f16[M, N]
    input V: f16[N, D]
    output O: f16[M, D]
    P[i, j] = softmax[j | j - i <= -2](X[i, j])
    O[i, d] = sum[j](P[i, j] * V[j, d])"""


def test_empty_rows_are_selected_in_closed_form() -> None:
    spec = spec_of(EMPTY_ROWS)
    p, (c,) = factored(spec)
    expect(p, "O[i, d] = select(i >= 2, O_acc[i, d] / P_sum[i], 0.0)")
    out = run_program(p, random_inputs(spec))["O"]
    assert (out[:2] == 0).all() and (out[2:] != 0).any()
    assert "not being empty" in c.proof and c.conditions


def test_a_domain_without_closed_form_gets_an_any() -> None:
    spec = spec_of(EMPTY_ROWS.replace("j - i <= -2", "(i + j) % 4 == 3 and i < 4"))
    p, (c,) = factored(spec)
    expect(
        p,
        """
        temp O_acc_any: bool[6]
        kernel O_acc_any {
        O_acc_any[i] any= true where
        O[i, d] = select(O_acc_any[i], O_acc[i, d] / P_sum[i], 0.0)
        """,
    )
    assert (run_program(p, random_inputs(spec))["O"][4:] == 0).all()
    assert "any over the same domain" in c.proof


def test_finite_factors_need_no_condition() -> None:
    p, (c,) = factored(
        spec_of("""
        dim M = 4, N = 5
        input X: f32[M, N]
        scalar s: f32 = 3
        output Y: f32[M]
        Y[i] = sum[j | j < i](X[i, j] * 0.5 * s)""")
    )
    expect(p, "kernel Y_acc {\nY_acc[i] sum= X[i, j] where j < i\nY[i] = Y_acc[i] * 0.5 * s\n!select")
    assert "finite" in c.proof


def test_both_sides_of_the_bar_and_signs() -> None:
    p, _ = factored(
        spec_of("""
        dim M = 4, N = 5
        input X: f32[M, N]
        input a: f32[M]
        output Y: f32[M]
        Y[i] = sum[j](-(a[i] * X[i, j] / (a[i] + 9)) / exp(X[i, j]))""")
    )
    expect(p, "Y_acc[i] sum= X[i, j] / exp(X[i, j])\nY[i] = Y_acc[i] * a[i] * -1.0 / (a[i] + 9.0)")


@pytest.mark.parametrize(
    "body",
    [
        "Y[i] = f32(sum[j](L[j] // 2 * L[i]))",  # integers
        "Y[i] = max[j](X[i, j] * X[i, 0])",  # not a sum
        "Y[i] = sum[j](X[i, j] * X[i, j])",  # nothing invariant
        "Y[i] = sum[j](X[i, 0] * 1.5)",  # nothing else
    ],
)
def test_left_alone(body: str) -> None:
    head = "dim M = 5\ninput X: f32[M, M]\ninput L: i32[M]\noutput Y: f32[M]\n"
    spec = spec_of(head + body.replace("sum[j]", "sum[j: M]"))
    p = ready(spec)
    assert Factor().derive(p) == (p, ())


def test_the_schedule_may_forbid_it() -> None:
    p = ready(small(next(s for s in SHIPPED if s.stem == "causal_prefill")))
    assert Factor(Schedule((), (), factor=False)).apply(p) is p


def test_a_sum_read_twice_gives_its_factor_to_both_readers() -> None:
    p, _ = factored(
        spec_of("""
        dim M = 4, N = 5
        input X: f32[M, N]
        input a: f32[M]
        output Y: f32[M]
        output Z: f32[M]
        T[i] = sum[j](X[i, j] / a[i])
        Y[i] = exp(T[i])
        Z[i] = T[i] + T[(i + 1) % 4]""")
    )
    expect(p, "Y[i] = exp(T[i] / a[i])\nZ[i] = T[i] / a[i] + T[(i + 1) % 4] / a[(i + 1) % 4]")


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
