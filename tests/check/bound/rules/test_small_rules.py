"""Small rules of the bound and of the validator, one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nautilus.check.bound.follows import following
from nautilus.check.bound.sampling import _ratio
from nautilus.check.bound.stated import stated
from nautilus.check.bound.sums.orders import LARGEST, LARGEST_STORED
from nautilus.check.inputs import generate
from nautilus.check.validate.identities import decide
from nautilus.check.validate.verdict import Verdict
from nautilus.check.validation import _weighed
from nautilus.core.expr.nodes import Const
from nautilus.core.text.expressions import parse_expr
from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.analysis.ranges.precision import _multiple


@pytest.mark.parametrize(("error", "size", "found"), [
    (2.0, 4.0, 0.5), (0.0, 4.0, 0.0), (0.5, 0.0, math.inf), (1e-30, 0.0, math.inf), (0.0, 0.0, math.nan),
])  # fmt: skip
def test_errors_relative_to_terms_that_cancel(error: float, size: float, found: float) -> None:
    assert _ratio(error, size) == pytest.approx(found, nan_ok=True)


def test_numbers_beyond_which_a_result_is_infinite() -> None:
    assert float(np.finfo(np.float32).max) == LARGEST_STORED and LARGEST == 2.0**120


def test_verdicts_on_several_inputs() -> None:
    tested, other = Verdict("tested", 3, "a"), Verdict("tested", 4, "b")
    unknown, refuted = Verdict("not decided", detail="c"), Verdict("refuted", detail="d")
    assert _weighed([tested, unknown, other]) == Verdict("tested", 7, "a")
    assert _weighed([unknown, Verdict("not decided", detail="e")]) == unknown
    assert _weighed([tested, refuted, other]) == refuted
    assert Verdict("proved").points == 0


@pytest.mark.parametrize(("before", "after", "refuted"), [
    (DType.F32, DType.F64, True), (DType.F32, DType.I32, True), (DType.F32, DType.F32, False),
])  # fmt: skip
def test_an_identity_keeps_the_type(before: DType, after: DType, refuted: bool) -> None:
    found = decide(Const(2, before), Const(2, after))
    assert (found.status == "refuted" and "types" in found.detail) == refuted


def test_constant_columns_have_equal_rows() -> None:
    spec = load_text("dim M = 7, N = 5\ninput X: f32[M, N]\noutput Y: f32[M]\nY[i] = sum[j](X[i, j])\n")
    x = generate(spec, "constant-columns").arrays["X"]
    assert x.shape == (7, 5) and np.array_equal(x, np.broadcast_to(x[0], x.shape)) and len({*x[0].tolist()}) == 5


@pytest.mark.parametrize("precision", ["fast", "strict"])
def test_forms_of_the_hardware_are_those_of_fast_precision(precision: str) -> None:
    spec = load_text("dim N = 64\ninput X: f16[N]\noutput Y: f16[N], Z: f16[N]\nY[i] = erf(X[i])\nZ[i] = X[i] * 3\n")
    assert stated(spec, precision)["Y"].form == (precision == "fast")


RECURRENCE = """
dim N = 9
input X: f32[N]
output Y: f32[N]
recur H[t] = 0.5 * H[t {back}] + X[t] if {inside} else X[t]
Y[i] = {read}
"""


@pytest.mark.parametrize(("read", "forward", "reverse"), [
    ("H[i]", True, True), ("H[max(i - 1, 0)]", False, False), ("H[i] + (H[i - 1] if i > 0 else 0)", True, False),
    ("H[i] + (H[i + 1] if i < N - 1 else 0)", False, True), ("H[8 - i]", False, False),
    ("sum[t: N](H[t])", False, False),
])  # fmt: skip
def test_a_reader_follows_steps_that_it_has_reached(read: str, forward: bool, reverse: bool) -> None:
    for back, inside, follows in (("- 1", "t > 0", forward), ("+ 1", "t < N - 1", reverse)):
        found = following(load_text(RECURRENCE.format(back=back, inside=inside, read=read).lstrip()))
        assert found["H"].axis == 0 and found["H"].total == 9 and found["H"].reverse == (back == "+ 1")
        assert (found["Y"].axis == 0) == follows, read


@pytest.mark.parametrize(("text", "found"), [
    ("0.75", (-2, 0.75)), ("12.0", (2, 12.0)), ("-0.5", (-1, 0.5)), ("cast<f32>(B[i])", (0, 256.0)),
    ("cast<f32>(C[i])", (0, 128.0)), ("cast<f32>(B[i]) * 0.25", (-2, 64.0)), ("cast<f32>(B[i]) * 12.0", (2, 3072.0)),
    ("cast<f32>(B[i]) + 0.5", (-1, 256.5)), ("cast<f32>(C[i]) - 8.0", (0, 136.0)),
    ("select(i < 3, cast<f32>(B[i]), 0.5)", (-1, 256.0)), ("-cast<f32>(B[i])", (0, 256.0)), ("X[i]", None),
    ("X[i] * 2.0", None), ("cast<f32>(bit_and(cast<i32>(B[i]), 15))", (0, 15.0)), ("inf", None),
])  # fmt: skip
def test_multiples_of_a_power_of_two(text: str, found: tuple[int, float] | None) -> None:
    assert _multiple(parse_expr(text, {"B": DType.U8, "C": DType.I8, "X": DType.F32})) == found
