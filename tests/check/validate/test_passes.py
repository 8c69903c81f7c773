"""The verdict on every pass of compilations, and on faulty passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nautilus.check.inputs import generate
from nautilus.check.levels import Level, Trace
from nautilus.check.validate.meanings import KNOWN
from nautilus.check.validate.verdict import Verdict
from nautilus.check.validation import verdicts
from nautilus.core.expr.nodes import OPS, Op
from nautilus.core.numerics import Array
from nautilus.driver import Request, compile_checked
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.ir import Update
from tests.check.planted import drop_repair, invert_repair, mutated, shift_mask, swap_tile

SPECS = {
    "running maximum": """
dim M = 33, N = 77, D = 16
input Q: f16[M, D]
input K: f16[N, D]
input V: f16[N, D]
output O: f16[M, D]
S[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(D)
P[i, j] = softmax[j | j <= i + 40](S[i, j])
O[i, d] = sum[j](P[i, j] * V[j, d])
""",
    "rows": """
dim M = 5, N = 77
input X: f16[M, N]
input W: f16[N]
output Y: f16[M, N]
scalar eps: f32 = 1e-5
S[i] = mean[j](X[i, j] * X[i, j])
Y[i, j] = X[i, j] * rsqrt(S[i] + eps) * W[j]
""",
    "integers": """
dim M = 40, N = 33
input X: i8[M, N]
input P: i32[M]
output Y: i32[M]
output Z: i32[M]
Y[i] = sum[j | j % 3 == 1](X[P[i], j] * (j // 2))
Z[i] = argmax[j](X[i, j])
""",
    "gates": """
dim M = 17, N = 20, K = 40
input A: bf16[M, K]
input B: bf16[K, N]
output C: bf16[M, N]
G[i, j] = sum[k](A[i, k] * B[k, j])
C[i, j] = G[i, j] * sigmoid(1.702 * G[i, j]) + tanh(G[i, j] / 3) + max(G[i, j], 0.5)
""",
}


def levels(text: str) -> list[Level]:
    trace = Trace()
    compile_checked(Request(Path("t.naut"), text=text, until="vr-tile"), [trace])
    return [x for x in trace.levels if x.stage in ("scalar", "vr-tile")]


def found(text: str, given: list[Level]) -> dict[str, Verdict]:
    return {level.subject: v for level, v in verdicts(given, *points(text), 0)}


def points(text: str) -> tuple[list[Mapping[str, Array]], dict[str, Any]]:
    """Sets of inputs and the parameters."""
    sets = [generate(load_text(text), kind) for kind in ("random", "equal", "descending", "ascending")]
    return [x.arrays for x in sets], {**sets[0].scalars, **sets[0].sizes}


@pytest.mark.parametrize("name", SPECS)
def test_every_pass_is_proved(name: str) -> None:
    made = levels(SPECS[name])
    got = found(SPECS[name], made)
    assert len(got) == len(made) - 1
    assert {k: v.text for k, v in got.items() if v.status != "proved"} == {}


RULES: dict[str, list[Callable[[Any], Any]]] = {
    "rolling-update": [drop_repair, invert_repair],
    "split": [shift_mask],
    "fold-scale": [swap_tile("mul", "add"), swap_tile("max", "min")],
    "hoist": [swap_tile("exp2", "exp")],
}


@pytest.mark.parametrize("name", RULES)
def test_a_faulty_pass_is_refuted(name: str) -> None:
    text = SPECS["running maximum"]
    made = levels(text)
    at = next(k for k, x in enumerate(made) if x.step == name)
    for rule in RULES[name]:
        wrong = mutated(made[at].module, rule)
        assert wrong != made[at].module
        changed = [*made[:at], replace(made[at], module=wrong)]
        assert found(text, changed)[made[at].subject].status == "refuted"


def test_an_iteration_that_runs_twice_is_refuted() -> None:
    text = SPECS["rows"]
    made = levels(text)
    at = next(k for k, x in enumerate(made) if x.step == "split")

    def rule(n: Any) -> Any:
        if isinstance(n, tuple) and any(isinstance(x, Update) for x in n):
            return tuple(y for x in n for y in ((x, x) if isinstance(x, Update) else (x,)))
        return None

    wrong = mutated(made[at].module, rule)
    assert found(text, [*made[:at], replace(made[at], module=wrong)])[made[at].subject].status == "refuted"


def test_every_function_has_a_meaning() -> None:
    assert OPS.keys() <= KNOWN


def test_a_root_of_a_negative_number_is_no_number() -> None:
    text = "input X: f32[8]\noutput Y: f32[8]\nY[i] = sqrt(X[i]) * sqrt(X[i])\n"
    made = levels(text)

    def rule(n: Any) -> Any:
        match n:
            case Op(op="mul", args=(Op(op="sqrt", args=(x,)), Op(op="sqrt"))):
                return x
        return None

    wrong = replace(made[1], module=mutated(made[0].module, rule))
    assert found(text, [made[0], wrong])[made[1].subject].status == "refuted"
