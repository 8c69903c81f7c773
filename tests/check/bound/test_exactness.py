"""Which conversions and operations round, and other small rules of the bound and of the validator, one by one."""

from __future__ import annotations

import math
from textwrap import dedent

import numpy as np
import pytest

from nautilus.check.bound.exactness import (
    U32,
    U64,
    hardware_error,
    inexact,
    instruction_error,
    is_inexact_number,
    keeps,
    scales,
    unit,
)
from nautilus.check.bound.recurrences.follows import following
from nautilus.check.bound.sampling import _ratio
from nautilus.check.bound.stated import stated
from nautilus.check.bound.sums.orders import LARGEST, LARGEST_STORED
from nautilus.check.inputs import generate
from nautilus.check.validate.identities import decide
from nautilus.check.validate.verdict import Verdict
from nautilus.check.validation import _weighed
from nautilus.core.expr.nodes import Const, Load, Op, Reduce
from nautilus.core.functions import FUNCTIONS
from nautilus.core.numerics import round_to
from nautilus.core.text.expressions import parse_expr
from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.analysis.ranges.precision import _multiple


def eight_bits(mantissa: int, bias: int, largest: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The finite numbers of a float of 8 bits."""
    code, unit = np.arange(128), 1 << mantissa
    exponent, rest = code // unit, code % unit
    size = np.where(exponent == 0, rest * 2.0 ** (1 - bias), (rest + unit) * 2.0 ** (exponent - bias)) / unit
    size = size[size <= largest]
    return np.concatenate([size, -size])


ALL = {
    DType.BOOL: np.array([0.0, 1.0]),
    DType.I8: np.arange(-128.0, 128.0),
    DType.U8: np.arange(256.0),
    DType.I16: np.arange(-(2.0**15), 2.0**15),
    DType.F8E4M3: eight_bits(3, 7, 448.0),
    DType.F8E5M2: eight_bits(2, 15, 57344.0),
    DType.F16: np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64),
    DType.BF16: (np.arange(0x7F80, dtype=np.uint32) << 16).view(np.float32).astype(np.float64),
}
FLOATS = (DType.F8E4M3, DType.F8E5M2, DType.F16, DType.BF16, DType.F32, DType.F64)


@pytest.mark.parametrize("source", ALL)
@pytest.mark.parametrize("target", FLOATS)
def test_a_conversion_is_exact_if_the_type_has_all_values(target: DType, source: DType) -> None:
    finite = ALL[source][np.isfinite(ALL[source])]
    exact = np.array_equal(round_to(finite, target), finite)
    assert keeps(target, source) == exact


@pytest.mark.parametrize(("target", "source", "exact"), [
    (DType.F32, DType.I32, False), (DType.F64, DType.I32, True), (DType.F64, DType.I64, False),
    (DType.F64, DType.F32, True), (DType.F32, DType.F64, False), (DType.F32, DType.I16, True),
])  # fmt: skip
def test_wide_types(target: DType, source: DType, exact: bool) -> None:
    assert keeps(target, source) == exact


TYPES = {"X": DType.F32, "H": DType.F16, "N": DType.I32}


@pytest.mark.parametrize(("text", "rounds"), [
    ("X[i] + X[j]", True), ("X[i] * X[j]", True), ("X[i] * 0.25", False), ("X[i] * 0.3", True), ("X[i] / 8.0", False),
    ("8.0 / X[i]", True), ("-X[i]", False), ("abs(X[i])", False), ("max(X[i], X[j])", False), ("X[i] < X[j]", False),
    ("exp(X[i])", True), ("sqrt(X[i])", True), ("floor(X[i])", False), ("N[i] * N[j]", False),
    ("cast<f32>(H[i])", False), ("cast<f16>(X[i])", True), ("cast<f32>(N[i])", True), ("cast<i32>(X[i])", False),
    ("select(N[i] < 3, X[i], 0.0)", False),
])  # fmt: skip
def test_operations_that_round(text: str, rounds: bool) -> None:
    assert inexact(parse_expr(text, TYPES)) == rounds


def test_sums_and_products_round_and_extremes_do_not() -> None:
    body = Load("X", (), DType.F32)
    assert {op: inexact(Reduce(op, (), None, body, DType.F32)) for op in ("sum", "prod", "max", "min")} == {
        "sum": True, "prod": True, "max": False, "min": False,
    }  # fmt: skip
    assert not inexact(Reduce("sum", (), None, Load("N", (), DType.I32), DType.I32))


@pytest.mark.parametrize(("text", "found"), [
    ("X[i] * 2.0", True), ("0.5 * X[i]", True), ("X[i] / 4.0", True), ("4.0 / X[i]", False), ("X[i] * 3.0", False),
    ("X[i] + 2.0", False),
])  # fmt: skip
def test_scales(text: str, found: bool) -> None:
    e = parse_expr(text, TYPES)
    assert isinstance(e, Op) and scales(e) == found


def test_numbers_that_a_type_does_not_have() -> None:
    assert is_inexact_number(Const(0.1, DType.F32), DType.F32) and is_inexact_number(
        Const(2049.0, DType.F32), DType.F16
    )
    assert not is_inexact_number(Const(2048.0, DType.F32), DType.F16)
    assert not is_inexact_number(Const(math.inf, DType.F32), DType.F16) and not is_inexact_number(
        Const(3, DType.I32), DType.F16
    )


def test_units_and_errors_of_instructions() -> None:
    assert [unit(t) for t in (DType.F16, DType.BF16, DType.F32, DType.F64)] == [2.0**-11, 2.0**-8, U32, U64]
    assert (U32, U64) == (2.0**-24, 2.0**-53)
    for name, f in FUNCTIONS.items():
        assert instruction_error(name, U64, True) == 2.0 * f.ulps[1] * U64
        assert instruction_error(name, U32, False) == 2.0 * f.ulps[0] * U32
        approximate = [a.ulps for a in f.approximations]
        assert instruction_error(name, U32, True) == 2.0 * U32 * max(f.ulps[0], *approximate, 0.0)
        assert hardware_error(name) == max([a.relative for a in f.approximations if a.narrow], default=0.0)
    assert hardware_error("tanh") > 0.0 and instruction_error("add", U32, True) == U32


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


def test_integers_that_a_conversion_wraps_stay_integers() -> None:
    source = """
    dim N = 64
    input k: i32[N]
    output u: f32[N]
    h[n] = i32((i64(k[n]) & 4294967295) * 3528531795 >> 32) ^ k[n]
    u[n] = f32(h[n] & 8388607) / 8388608
    """
    assert stated(load_text(dedent(source)))["u"].relative < 1e-6
