"""The validator rejects identities that are false, or that fail at some point of their domain, and accepts others."""

from __future__ import annotations

import pytest

from nautilus.check.validate.identities import DOMAINS, Domain, _lacks_same_elements, decide
from nautilus.check.validate.verdict import Verdict
from nautilus.core.expr.nodes import Axis, Load, Reduce, Var
from nautilus.core.text.expressions import parse_expr
from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.operands.mark_undefined import MarkUndefined

FLOATS = dict.fromkeys(("x", "y", "z", "eps"), DType.F32)
PARAMS = {**FLOATS, "n": DType.I32, "m": DType.I32, "p": DType.BOOL, "q": DType.BOOL}
BUFFERS = {"A": DType.F32, "B": DType.F32, "H": DType.F16, "C": DType.BOOL}

#: both sides, of which the second is not the first; the comment says where they differ
WRONG = [
    # at one point
    ("x / x", "1.0"),
    ("x * 0.0", "0.0"),
    ("max(x, 5.0)", "5.0"),
    ("min(x, 5.0)", "x"),
    ("x - x", "0.0"),
    ("x * y / y", "x"),
    ("x / y * y", "x"),
    ("0.0 / x", "0.0"),
    ("x + y - y", "x"),
    ("1.0 / (x - x + 1.0)", "1.0"),
    ("x / (y / z)", "x / y * z + 0.0 * y"),
    # on half of the reals
    ("sqrt(x * x)", "x"),
    ("sqrt(x) * sqrt(x)", "abs(x)"),
    ("abs(x)", "x"),
    ("log(exp(x))", "x + 1e-9"),
    ("exp(log(x))", "x"),
    ("log(x * x)", "2.0 * log(x)"),
    ("log(x * y)", "log(x) + log(y)"),
    ("abs(x + y)", "abs(x) + abs(y)"),
    ("max(x * z, y * z)", "max(x, y) * z"),
    ("max(-x, -y)", "-max(x, y)"),
    ("select(x < y, y, x)", "min(x, y)"),
    ("select(x <= 0.0, 0.0, x)", "abs(x)"),
    ("select(p, x, y)", "select(q, x, y)"),
    ("sign(x) * x", "x"),
    ("floor(x)", "x"),
    ("round(x)", "floor(x + 0.5)"),
    # a wrong constant, sign, operator or operand
    ("exp(x)", "exp2(x * 1.4426)"),
    ("exp(x)", "exp2(x * 1.442695040889)"),
    ("exp(x - y)", "exp(y - x)"),
    ("exp(x + y)", "exp(x) + exp(y)"),
    ("exp(x * y)", "exp(x) * exp(y)"),
    ("x / 3.0", "x * 0.333333"),
    ("x + 1e-12", "x"),
    ("x * 0.044715 * 0.7978845608028654", "x * 0.0356774081"),
    ("(x - y) * z", "fma(x, z, y * z)"),
    ("x * (y + z)", "x * y + z"),
    ("x / y / z", "x / (y / z)"),
    ("sigmoid(x)", "rcp(1.0 + exp(x))"),
    ("tanh(x)", "1.0 - rcp(1.0 + exp(2.0 * x))"),
    ("sin(x + y)", "sin(x) + sin(y)"),
    # integers
    ("cast<f32>(cast<i32>(x))", "x"),
    ("n // 2 * 2", "n"),
    ("n % 8", "n - n // 8 * 7"),
    ("-n // 2", "-(n // 2)"),
    ("n // 4 // 2", "n // 6"),
    ("n < m", "n <= m"),
    ("n * 2 < m * 2 + 1", "n < m"),
    ("n - m", "m - n"),
    ("-7 // 2 + n", "n - 3"),
    ("-n // 4", "-(n // 4)"),
    ("-n % 4", "-(n % 4)"),
    ("fmod(x, 4.0)", "x % 4.0"),
    # integers that wrap
    ("n * 2 // 2", "n"),
    ("n + 1 > n", "true"),
    ("n * m // m", "n"),
    ("max(n + 1, n)", "n + 1"),
    ("abs(n)", "max(n, -n) + 0 * m + select(n < -2147483647, 1, 0)"),
    ("n * n >= 0", "true"),
    ("(n + m) // 2", "n + (m - n) // 2"),
    ("n - m < 0", "n < m"),
    ("cast<i64>(n + 1)", "cast<i64>(n) + 1i64"),
    # casts
    ("cast<i32>(cast<f32>(cast<i8>(n)))", "n"),
    ("cast<f32>(cast<i32>(x * 2.0))", "cast<f32>(cast<i32>(x)) * 2.0"),
    ("cast<f32>(cast<u8>(n))", "cast<f32>(n)"),
    ("cast<i32>(-x)", "cast<i32>(x)"),
    ("cast<bool>(x)", "x > 0.0"),
    # NaN, inf and zeros
    ("x < y or x >= y", "true"),
    ("not (x < y)", "x >= y"),
    ("x == x", "true"),
    ("max(x, y)", "select(x < y, y, x)"),
    ("min(x, y)", "select(x > y, y, x)"),
    ("max(x, -inf)", "select(x == x, x, -inf)"),
    ("min(max(x, 0.0), 1.0)", "select(x > 0.0, min(x, 1.0), 0.0)"),
    ("max(min(x, y), y)", "y"),
    ("(x / y) * y", "x"),
    ("x * y / x", "y"),
    ("pow(x, 0.5) * pow(x, 0.5)", "x"),
    ("exp(x) / exp(x)", "1.0"),
    ("exp(x) - exp(x)", "0.0"),
    ("exp(x - y) * exp(y)", "exp(x)"),
    ("log(exp(x))", "x"),
    ("1.0 / (1.0 / x)", "x + 0.0 / x"),
    ("rsqrt(x) * sqrt(x)", "1.0"),
    ("floor(x) + 1.0", "ceil(x)"),
    ("pow(x, 2.0)", "pow(abs(x), 3.0) / abs(x)"),
    # loads and reductions
    ("sum[j: 4](A[j]) - sum[j: 4](A[j])", "0.0"),
    ("max[j: 4](A[j] - max[k: 4](A[k]))", "0.0"),
    ("sum[j: 4 | j > 7](A[j] / x) ", "sum[j: 4 | j > 7](A[j]) / x"),
    ("max[j: 4](A[j] + x)", "max[j: 4](A[j]) + y"),
    ("prod[j: 4](A[j] * x)", "prod[j: 4](A[j]) * x"),
    ("A[n]", "A[m]"),
    ("A[n + 1]", "A[n]"),
    ("A[n]", "B[n]"),
    ("sum[j: 8](A[j] * x)", "sum[j: 8](A[j]) + x"),
    ("sum[j: 8](A[j] + x)", "sum[j: 8](A[j]) + x"),
    ("max[j: 8](A[j] * x)", "max[j: 8](A[j]) * x"),
    ("sum[j: 8 | j < n](A[j])", "sum[j: 8](A[j])"),
    ("sum[j: 8 | j < n](A[j])", "sum[j: 8 | j <= n](A[j])"),
    ("sum[j: 8](A[j] / x)", "sum[j: 8](A[j] * x)"),
    ("sum[j: 8](A[j] * B[j])", "sum[j: 8](A[j]) * sum[j: 8](B[j])"),
    ("max[j: 8](A[j])", "min[j: 8](A[j])"),
    ("sum[j: 8](exp(A[j] - x))", "sum[j: 8](exp(A[j])) * exp(x)"),
]

#: both sides, equal wherever the left one is defined, with the domain
RIGHT: list[tuple[str, str, Domain]] = [
    ("x * 1.0", "x", "everything"),
    ("x / 4.0", "x * 0.25", "everything"),
    ("x / 3.0", "x * 0.3333333333333333", "everything"),
    ("x - y", "x + -y", "everything"),
    ("pow(x, 0.5)", "sqrt(x)", "generic"),
    ("pow(x, -0.5)", "rsqrt(x)", "generic"),
    ("rcp(rcp(x))", "x", "everything"),
    ("fma(x, y, z)", "x * y + z", "everything"),
    ("exp(x)", "exp2(x * 1.4426950408889634)", "everything"),
    ("x / y", "x * rcp(y)", "generic"),
    ("log2(x)", "log(x) * 1.4426950408889634", "everything"),
    ("max(max(x, y), z)", "max(x, max(z, y))", "everything"),
    ("max(x * 2.0, y * 2.0)", "max(x, y) * 2.0", "everything"),
    ("max(-x, -y)", "-min(x, y)", "everything"),
    ("abs(-x)", "abs(x)", "everything"),
    ("select(not p, x, y)", "select(p, y, x)", "everything"),
    ("(x + y) * z", "x * z + y * z", "finite"),
    ("x + y - y", "x", "finite"),
    ("x * 0.0", "0.0", "finite"),
    ("(x - y) * (x + y)", "x * x - y * y", "finite"),
    ("exp(x - y) * exp(y - z)", "exp(x - z)", "generic"),
    ("sigmoid(x)", "rcp(1.0 + exp2(x * -1.4426950408889634))", "generic"),
    ("x * 0.044715 * 0.7978845608028654", "x * 0.035677408136300125", "everything"),
    ("x / sqrt(128.0) * 1.4426950408889634", "x * 0.12751743082459868", "everything"),
    ("n // 4 // 2", "n // 8", "everything"),
    ("n // 8 * 8 + n % 8", "n", "everything"),
    ("n * 2 < m * 2", "n < m", "finite"),
    ("(n + m) - m", "n", "everything"),
    ("n * 3 - n", "n + n", "everything"),
    ("min(n, m) // 2", "min(n, m) // 2", "everything"),
    ("(n * 4 + m) // 4", "n + m // 4", "finite"),
    ("sum[j: 8](A[j] * x)", "sum[j: 8](A[j]) * x", "finite"),
    ("sum[j: 8 | j < n](A[j])", "sum[j: 8](select(j < n, A[j], 0.0))", "everything"),
    ("max[j: 8](A[j] * 2.0)", "max[j: 8](A[j]) * 2.0", "everything"),
    ("sum[i: 39, j: 50](A[i] * B[j])", "sum[i: 40, j: 50 | i < 39](A[i] * B[j])", "everything"),
    ("exp(x - y)", "exp(x - A[n - 1]) * exp(A[n - 1] - y)", "generic"),
    ("cast<f32>(cast<f16>(cast<f32>(H[n])))", "cast<f32>(H[n])", "everything"),
]


def verdict(before: str, after: str, domain: Domain = "everything") -> Verdict:
    left, right = (parse_expr(text, BUFFERS, PARAMS) for text in (before, after))
    return decide(left, right, domain=domain)


@pytest.mark.parametrize(("before", "after", "domain"), [("x * 0.0", "0.0", "finite"), ("x / x", "1.0", "generic")])
def test_an_unsafe_identity_holds_on_a_smaller_domain(before: str, after: str, domain: Domain) -> None:
    assert next(d for d in DOMAINS if verdict(before, after, d).status == "proved") == domain


@pytest.mark.parametrize(("before", "after"), WRONG)
def test_a_false_identity_is_refuted(before: str, after: str) -> None:
    assert verdict(before, after).status == "refuted"


def test_a_rounding_is_not_dropped() -> None:
    assert verdict("cast<f32>(cast<f16>(x))", "x").status == "tested"


def test_an_identity_without_a_rule_is_tested_and_not_proved() -> None:
    found = verdict("select(x < 0.0, 1.0, sqrt(x) * sqrt(x))", "select(x < 0.0, 1.0, x)", "generic")
    assert found.status == "tested"


@pytest.mark.parametrize("after", ["i: 40, j: 50 | i < 38", "i: 40, j: 50", "i: 39, j: 51", "i: 40, j: 50 | j < 39"])
def test_terms_beyond_the_sampled_ones_count(after: str) -> None:
    """A few elements along each axis agree, and isl says that others differ."""
    assert verdict("sum[i: 39, j: 50](A[i] * B[j])", f"sum[{after}](A[i] * B[j])").status != "proved"


@pytest.mark.parametrize(("before", "after", "domain"), RIGHT)
def test_a_true_identity_is_proved_on_its_domain(before: str, after: str, domain: Domain) -> None:
    assert verdict(before, after, domain).status == "proved"


def test_reductions_over_one_axis_have_the_same_elements() -> None:
    """The condition that a domain has an element is one over the same elements as a sum relative to their maximum."""
    spec = load_text(
        "dim B = 5, T = 37\ninput x: f16[B, T]\noutput y: f32[B, T]\ny[b, t] = logsumexp[u | u >= t](x[b, u])\n"
    )
    (found,) = MarkUndefined().derive(lower(spec))[1]
    assert decide(found.before, found.after, found.conditions).status == "proved"


def test_elements_may_be_inside_of_a_reduction_on_one_side_alone() -> None:
    """Such a side keeps its elements where the other one has unknowns, which refutes nothing."""
    before = parse_expr("sum[k: 2](B[k * 2 + n] * A[(m - k) % 512])", BUFFERS, PARAMS)
    after = parse_expr("B[0 * 2 + n] * A[(m - 0) % 512] + B[1 * 2 + n] * A[(m - 1) % 512]", BUFFERS, PARAMS)
    assert decide(before, after).ok


def test_sides_lack_the_same_elements() -> None:
    """Where one side alone is evaluated at a part of its elements, a difference says nothing."""
    long, short = (Reduce("sum", (Axis(n, size),), None, Load("X", (Var(n),), DType.F32), DType.F32)
                   for n, size in (("i", 100), ("j", 3)))  # fmt: skip
    counts = {"i": 4, "j": 3}
    assert _lacks_same_elements(long, long, counts) and _lacks_same_elements(short, short, counts)
    assert not _lacks_same_elements(long, short, counts) and not _lacks_same_elements(short, long, counts)
