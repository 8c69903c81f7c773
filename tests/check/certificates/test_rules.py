"""The separate checker accepts the certificates of the passes and rejects changed ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nautilus.check.certificates.places import _conjuncts, misplaced
from nautilus.check.certificates.recheck import placed
from nautilus.check.certificates.rules import check
from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, rewrite
from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from nautilus.planner.kernels import default_schedule
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.factor import Factor
from nautilus.scalar.passes.fuse import Fuse
from nautilus.scalar.passes.inline import Inline
from nautilus.scalar.passes.narrow import Narrow
from nautilus.scalar.passes.reorder import Reorder
from nautilus.scalar.passes.rolling_update import RollingUpdate
from nautilus.scalar.passes.roundings.defer_roundings import DeferRoundings
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.passes.split import Split

SPEC = """
dim M = 20, N = 77, D = 16
input Q: f16[M, D]
input K: f16[N, D]
input V: f16[N, D]
output O: f16[M, D]
S[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(D)
P[i, j] = softmax[j | j <= i](S[i, j])
O[i, d] = sum[j](P[i, j] * V[j, d])
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Certificate]:
    """The last certificate of each rule for one spec."""
    program = Simplify().apply(lower(load_text(SPEC)))
    program, inlined = Inline().derive(program)
    program, factored = Factor().derive(program)
    program, narrowed = Narrow().derive(program)
    program = Dead().apply(Simplify().apply(program))
    schedule = default_schedule(program)
    program = Reorder(schedule).apply(Split(schedule).apply(Fuse(schedule).apply(program)))
    _, rolled = RollingUpdate(schedule).derive(program)
    return {c.rule: c for c in (*inlined, *factored, *narrowed, *rolled)}


@pytest.mark.parametrize("rule", ["inline", "factor", "narrow", "rolling-update", "distribute"])
def test_what_the_passes_certify_holds(rule: str, found: dict[str, Certificate]) -> None:
    assert check(found[rule]).ok


def swapped(e: Expr) -> Expr:
    """``e`` with its multiplications and additions made subtractions."""

    def rule(n: Expr) -> Expr | None:
        if isinstance(n, Op) and n.op in ("mul", "add") and n.dtype.is_float:
            return replace(n, op="sub")
        return None

    return rewrite(e, rule)


@pytest.mark.parametrize("rule", ["inline", "factor", "rolling-update", "distribute"])
def test_a_planted_wrong_rewrite_fails(rule: str, found: dict[str, Certificate]) -> None:
    good = found[rule]
    assert swapped(good.after) != good.after
    assert not check(replace(good, after=swapped(good.after))).ok


def test_a_wrong_repair_fails_even_when_its_two_sides_agree_with_it(found: dict[str, Certificate]) -> None:
    good = found["rolling-update"]
    parts = dict(good.bindings)
    wrong = swapped(parts["t"])
    bindings = tuple((n, wrong if n == "t" else e) for n, e in good.bindings)
    assert not check(replace(good, bindings=bindings)).ok


def test_two_computed_factors_are_made_from_narrow_tensors() -> None:
    spec = load_text(
        "dim M = 5, N = 6, K = 7\ninput X: f16[M, K]\ninput W: f16[K, N]\noutput Y: f16[M, N]\n"
        "Y[i, j] = sum[k]((X[i, k] + X[i, 0]) * tanh(W[k, j]))\n"
    )
    (c,) = Narrow().derive(Factor().apply(Simplify().apply(lower(spec))))[1]
    assert check(c).ok
    assert [name for name, _ in c.bindings] == ["from", "from"]
    assert not check(replace(c, bindings=c.bindings[:1])).ok
    assert not check(replace(c, bindings=(("meets", c.bindings[0][1]), c.bindings[1]))).ok


def test_a_narrowed_factor_may_be_apart_in_the_product() -> None:
    """``(A * W) * s`` has no part ``W * s``, so that the certificate is about the whole element."""
    text = (
        "dim M = 5, N = 6, K = 7\ninput A: bf16[M, K]\ninput W: i8[K, N]\ninput s: bf16[N, K]\noutput C: bf16[M, N]\n"
    )
    program = Simplify().apply(lower(load_text(text + "C[i, j] = sum[k](A[i, k] * (f32(W[k, j]) - 8) * s[j, k])\n")))
    after, (certificate,) = Narrow().derive(program)
    assert check(certificate).ok
    assert misplaced(certificate, program, after) == ""


def test_equal_factors_of_sums_of_sums_are_put_back_one_by_one() -> None:
    text = "dim N = 5\ninput X: f16[8 * N], g: f32[2]\noutput Y: f32[N]\nA[y: 4 * N] = 0.5 * sum[i: 2](X[2 * y + i])\n"
    text += "B[y: 2 * N] = 0.5 * sum[i: 2](A[2 * y + i])\nY[y: N] = 0.5 * sum[i: 2](g[i] * B[2 * y + i])\n"
    program = Simplify().apply(Dead().apply(Inline().apply(lower(load_text(text)))))
    after, found = Factor().derive(program)
    places = [placed(found, n, program, after) for n in range(len(found))]
    assert places == ["", ""]


def test_a_narrowing_that_meets_no_narrow_tensor_fails(found: dict[str, Certificate]) -> None:
    assert not check(replace(found["narrow"], bindings=())).ok


def test_a_deferred_rounding_stays_one_to_the_type_that_it_meets() -> None:
    program = Simplify().apply(Inline().apply(lower(load_text(SPEC.replace("P[i, j] =", "P: f16[i, j] =")))))
    _, (c,) = DeferRoundings().derive(program)
    assert check(c).ok
    other = rewrite(c.after, lambda n: replace(n, dtype=DType.BF16) if isinstance(n, Op) and n.op == "narrow" else None)
    twice = rewrite(c.after, lambda n: Op("mul", (n, n), n.dtype) if isinstance(n, Op) and n.op == "div" else None)
    assert not any(check(replace(c, after=e)).ok for e in (other, twice, c.before))


@pytest.mark.parametrize("rule", ["factor", "simplify", "contract"])
def test_a_rounding_of_the_spec_is_no_permitted_one(rule: str) -> None:
    """Rules but for that of deferred roundings may leave out, or put in, what the spec does not round."""
    x = Load("X", (Var("i"),), DType.F32)

    def doubled(op: str) -> Expr:
        inner = x if not op else Op("cast", (Op(op, (x,), DType.F16),), DType.F32)
        return Op("mul", (inner, Const(2.0, DType.F32)), DType.F32)

    for before, after in (("cast", ""), ("", "cast"), ("cast", "narrow")):
        assert check(Certificate(rule, "Y", doubled(before), doubled(after))).status != "proved"
    for before, after in (("narrow", ""), ("", "narrow"), ("cast", "cast")):
        assert check(Certificate(rule, "Y", doubled(before), doubled(after))).status == "proved"


def test_conditions_are_taken_apart() -> None:
    a, b, c = (Var(n, DType.BOOL) for n in "abc")

    def both(x: Expr, y: Expr) -> Op:
        return Op("and", (x, y), DType.BOOL)

    assert _conjuncts(both(a, both(b, c))) == _conjuncts(both(both(a, b), c)) == (a, b, c)
    either = Op("or", (a, both(b, c)), DType.BOOL)
    assert _conjuncts(both(either, c)) == (either, c) and _conjuncts(either) == _conjuncts(a) == ()


def test_conditions_that_never_hold_prove_nothing(found: dict[str, Certificate]) -> None:
    assert not check(replace(found["factor"], conditions=(Const(False, DType.BOOL),))).ok


def test_many_reads_of_an_inlined_definition() -> None:
    text = "dim X = 6, Y = 5\ninput u: f32[X, Y]\noutput w: f32[X, Y]\n"
    text += "def S(T, i, j) = 2 * T[i, j] + T[max(i - 1, 0), j] + 3 * T[min(i + 1, X - 1), j] + 5 * T[i, max(j - 1, 0)]"
    text += " + 0.5 * T[i, min(j + 1, Y - 1)]\na[i: X, j: Y] = S(u, i, j)\nw[i, j] = S(a, i, j)\n"
    _, (c,) = Inline().derive(Simplify().apply(lower(load_text(text))))
    assert len(c.bindings) == 5 and check(c).ok
    assert not check(replace(c, bindings=(*c.bindings[:4], c.bindings[0]))).ok


def test_a_certificate_is_placed_between_those_of_its_step(
    found: dict[str, Certificate], monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates, seen = [*found.values()][:3], list[tuple[object, ...]]()

    def misplaced(*args: object) -> str:
        seen.append(args)
        return ""

    monkeypatch.setattr("nautilus.check.certificates.recheck.load", lambda _: misplaced)
    assert placed(certificates, 1, "before", "after") == ""
    assert seen == [(certificates[1], "before", "after", certificates[:1], certificates[2:])]
