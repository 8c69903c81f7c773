"""What roundings and the range of float64 decide: neither a refutation nor an excuse for a wrong pass."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nautilus.check import compare, validation
from nautilus.check.inputs import InputSet, generate, validation_inputs
from nautilus.check.validate.memory import Memory, Unsupported
from nautilus.check.validate.refinement import Validator, _factored
from nautilus.check.validate.verdict import Verdict
from nautilus.check.validation import _close
from nautilus.core.numerics import Array
from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.text import parse_program

SPEC = """
dim N = 400
input Y: f32[N], W: f32[N]
output C: i16[N]
C[i] = i16(round(({}) / W[i]))
"""
FLOATS = """
dim N = 4000
input Y: f32[N], W: f32[N]
output C: f32[N]
C[i] = {}
"""
SUM = "0.1 * Y[i] + 0.2 * Y[i] - 0.3 * Y[i]"


def program(body: str) -> Program:
    return lower(load_text(SPEC.format(body)))


def validator() -> Validator:
    spec = load_text(SPEC.format(SUM))
    return Validator(validation_inputs(spec), dict(generate(spec).scalars))


def test_integers_at_ties_are_not_decided() -> None:
    """Where ``W`` is 0, the sign of a sum that cancels makes the quotient inf or -inf."""
    old, new = program(SUM), program("0.3 * Y[i] - 0.1 * Y[i] - 0.2 * Y[i]")
    made = validator()
    a, b = (made.results(x)["special"] for x in (old, new))
    assert isinstance(a, dict) and isinstance(b, dict)
    assert np.any(a["C"].real != b["C"].real)
    found = made.validate(old, new)
    assert (found.status, found.detail) == ("tested", "roundings of numbers at ties decide about C")


@pytest.mark.parametrize("body", ["0.1 * Y[i] + 0.2 * Y[i] - 0.29 * Y[i]", "0.3 * Y[i] - 0.3 * Y[i] + 1e-4"])
def test_integers_that_differ_elsewhere_are_refuted(body: str) -> None:
    assert validator().validate(program(SUM), program(body)).status == "refuted"


@pytest.mark.parametrize(("free", "status"), [(1, "tested"), (2, "refuted")])
def test_another_order_of_sums_may_change_integers_at_ties(free: int, status: str) -> None:
    old = {"C": np.array([3, 4, 5]), "Y": np.array([1.0])}
    new = {"C": np.array([3, 5, 5]), "Y": np.array([1.0 + 1e-9])}

    def exactly(name: str, got: Array, want: Array) -> compare.Difference | None:
        return compare.exact(got, want, free=lambda: np.arange(3) == free)

    found = _close(old, new, InputSet("random", 0, {}), lambda: {"C": 0.0, "Y": 1e-8}, exactly, Verdict("refuted"))
    assert found.status == status


@pytest.mark.parametrize(("old", "new", "status"), [
    ("exp(8 * Y[i]) * W[i] * 1e-30", "exp(8 * Y[i]) * 1e-30 * W[i]", "proved"),  # close to 1e308 one of them is inf
    ("exp(8 * Y[i]) * W[i] * 1e-30", "exp(min(8 * Y[i], 700)) * W[i] * 1e-30", "refuted"),
    ("(expm1(Y[i]) + 1) / (exp(Y[i]) + 1e-17)", "exp(Y[i]) / (exp(Y[i]) + 1e-17)", "proved"),  # -1 + 1 for exp(-60)
    ("(expm1(Y[i]) + 1) / (exp(Y[i]) + 1e-17)", "exp(Y[i]) / (2 * exp(Y[i]) + 1e-17)", "refuted"),
])  # fmt: skip
def test_overflows_and_roundings_of_large_numbers(old: str, new: str, status: str) -> None:
    spec = load_text(FLOATS.format(old))
    made = Validator(validation_inputs(spec), dict(generate(spec).scalars))
    assert made.validate(lower(spec), lower(load_text(FLOATS.format(new)))).status == status


@pytest.mark.parametrize(("old", "new"), [
    ("max(Y[i], W[i])", "Y[i] if Y[i] > W[i] else W[i]"),  # a NaN of Y
    ("Y[i] * 0", "0.0"),
    ("Y[i] - Y[i] + W[i]", "W[i]"),
    ("sqrt(Y[i] * Y[i])", "abs(Y[i]) if Y[i] == Y[i] else 0"),
    ("1 / (1 + exp(-Y[i]))", "exp(Y[i]) / (1 + exp(Y[i]))"),
])  # fmt: skip
def test_identities_of_finite_numbers_alone_are_refuted(old: str, new: str) -> None:
    spec = load_text(FLOATS.format(old + " + 0 * W[i]"))
    made = Validator(validation_inputs(spec), dict(generate(spec).scalars))
    before, after = lower(spec), lower(load_text(FLOATS.format(new + " + 0 * W[i]")))
    assert made.validate(before, after).ok
    assert "point infinite" in made.displaced and made.misplaced(after)
    assert made.validate(after, before).ok and not made.displaced


def test_an_output_is_compared_where_another_one_moves_infinities() -> None:
    text = "dim N = 400\ninput Y: f32[N], W: f32[N]\noutput C: f32[N], D: f32[N]\nC[i] = {} + 0 * W[i]\nD[i] = {}\n"
    wide = "Y[i] if abs(Y[i]) < 3e38 else 7"
    for first, second, status in (("0.0", "Y[i]", "proved"), ("Y[i] * 0", wide, "refuted"), ("0.0", wide, "refuted")):
        before, after = load_text(text.format("Y[i] * 0", "Y[i]")), load_text(text.format(first, second))
        made = Validator(validation_inputs(before), dict(generate(before).scalars))
        found = made.validate(lower(before), lower(after))
        assert found.status == status, found
        assert status == "proved" or (found.detail.startswith("D") and found.detail.endswith("point infinite"))


def test_a_number_that_is_promised_to_be_finite_is_finite() -> None:
    spec = load_text("assume abs(Y[i]) < inf\n" + FLOATS.format("Y[i] * 0 + W[i]"))
    made = Validator(validation_inputs(spec), dict(generate(spec).scalars))
    assert made.validate(lower(spec), lower(load_text(FLOATS.format("0 * Y[i] + W[i]")))).status == "proved"
    assert all(np.isfinite(x["Y"]).all() for x in validation_inputs(spec))


@pytest.mark.parametrize("other", ["output C: f16[N]", "output C: f32[N], D: f32[N]"])
def test_a_module_of_another_interface_is_refuted(other: str) -> None:
    text = FLOATS.format("Y[i] + W[i]")
    more = "\nD[i] = Y[i]" if "D:" in other else ""
    spec, changed = (load_text(x) for x in (text, text.replace("output C: f32[N]", other) + more))
    made = Validator(validation_inputs(spec), dict(generate(spec).scalars))
    assert made.validate(lower(spec), lower(changed)).detail == "the inputs or the outputs differ"


def test_an_infinite_factor_that_leaves_a_sum_may_make_an_infinity_of_no_number() -> None:
    text = "dim M = 40, N = 7\ninput X: f32[M, N], W: f32[M]\noutput C: f32[M]\nC[i] = {}\n"
    before, after = (load_text(text.format(x)) for x in ("sum[j](X[i, j] * W[i])", "sum[j](X[i, j]) * W[i]"))
    made = Validator(validation_inputs(before), dict(generate(before).scalars))
    assert made.validate(lower(before), lower(after)).status == "proved" and not made.displaced
    assert made.validate(lower(after), lower(before)).ok and made.displaced


def test_a_product_of_the_steps_of_a_chunk_may_be_no_number_where_it_was_one() -> None:
    old, new = (Memory("S", DType.F32, (4,)) for _ in range(2))
    old.real[:], new.real[:] = [1.0, np.nan, np.nan, 2.0], [np.nan, np.inf, 1.0, 2.0]
    assert _factored(old, new).tolist() == [False, True, False, False]
    assert _factored(old, new, chunks=True).tolist() == [True, True, False, False]


def test_what_moves_back_inf_and_nan_is_no_fault_where_the_pass_before_it_was_too_large_to_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = load_text(FLOATS.format("W[i]"))
    made = Validator(validation_inputs(spec), dict(generate(spec).scalars))
    first, moved, last = (lower(load_text(FLOATS.format(x))) for x in ("W[i]", "W[i] + 0 * Y[i]", "W[i]"))
    run = made._run
    monkeypatch.setattr(made, "_run", lambda m, *rest: Unsupported("large") if m is first else run(m, *rest))
    made.validate(first, moved)
    assert made.validate(moved, last).ok and not made.displaced


UNWRITTEN = """program p {{
  input X: i32[5]
  output Y: i32[5]
  temp T: i32[5]
  kernel T {{ par i in {}..5 {{ T[i] = X[i] * i }} }}
  kernel Y {{ par i in 0..5 {{ Y[i] = T[i] }} }}
}}
"""


def test_an_integer_that_nothing_has_written_is_no_0() -> None:
    """The first element of ``T`` is 0, whether it is written or not."""
    whole, part = (parse_program(UNWRITTEN.format(first)) for first in (0, 1))
    inputs = [{"X": np.arange(5) + n} for n in range(4)]
    assert Validator(inputs, {}).validate(whole, whole).status == "proved"
    assert Validator(inputs, {}).validate(whole, part).status == "refuted"


def test_a_point_with_infinities_alone_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass whose module is too large to run at another point is not decided."""
    old, new, made = program(SUM), program(SUM), validator()
    for kind, detail in (("special", "the module before: too large"), ("infinite", "without inf and NaN: too large")):
        made._kept = {id(new): (new, {})}
        monkeypatch.setattr(Validator, "results", lambda self, module, kind=kind: {kind: Unsupported("too large")})
        found = made.validate(old, new)
        assert found.detail == detail


@pytest.mark.parametrize(("reorders", "status"), [(True, "tested"), (False, "refuted")])
def test_a_pass_that_reorders_a_sum_may_change_its_roundings(
    reorders: bool, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels: list[Any] = [SimpleNamespace(stage="ma-tile", reorders=reorders, y=1.0 + n * 1e-6) for n in range(2)]
    monkeypatch.setattr(validation, "_outputs", lambda level, *_: {"Y": np.full(3, level.y)})
    (given,) = [generate(load_text(FLOATS.format("Y[i]")))]
    (found,) = validation.same_bits(levels, [given], lambda: {"Y": 1e-3}, lambda *_: None, 10.0)
    assert found[1].status == status
