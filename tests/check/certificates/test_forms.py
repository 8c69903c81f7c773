"""The form that each rule demands of a certificate: what holds, and one fault for each part of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nautilus.check.certificates.rules import check
from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Reduce, Var
from nautilus.core.types import DType

F32, F16, I8 = DType.F32, DType.F16, DType.I8


def var(name: str) -> Var:
    return Var(name, F32)


def calc(op: str, a: Expr, b: Expr) -> Op:
    return Op(op, (a, b), F32)


def exp(e: Expr) -> Expr:
    return Op("exp", (e,), F32)


def element(name: str, dtype: DType = F32, at: str = "k") -> Expr:
    read = Load(name, (Var(at, DType.I32),), dtype)
    return read if dtype is F32 else Op("cast", (read,), F32)


def narrowed(e: Expr, dtype: DType = F16, op: str = "narrow") -> Expr:
    return Op("cast", (Op(op, (e,), dtype),), F32)


def total(e: Expr) -> Expr:
    return Reduce("sum", (Axis("k", 8),), None, e, F32)


def described(c: Certificate) -> str:
    found = check(c)
    return "" if found.status == "proved" else found.detail or found.status


a, x, old, new, r = var("a"), var("x0"), var("old0"), var("new0"), var("r0")
ROLLING = Certificate(
    "rolling-update", "S", exp(calc("sub", x, new)),
    calc("mul", exp(calc("sub", x, old)), exp(calc("sub", old, new))),
    (("f", exp(calc("sub", x, r))), ("t", calc("mul", a, exp(calc("sub", old, new))))),
)  # fmt: skip


@pytest.mark.parametrize("rule", ["rolling-update", "split-k-update"])
def test_the_form_of_a_repair(rule: str) -> None:
    good = replace(ROLLING, rule=rule)
    assert check(good).ok
    for bindings in ((), good.bindings[:1], good.bindings[1:]):
        assert described(replace(good, bindings=bindings)) == "a repair term needs the bindings f and t"
    sides = "the two sides are not f(x, new) and t(f(x, old), old, new)"
    assert described(replace(good, before=good.after)) == sides
    assert described(replace(good, after=good.before)) == sides
    other = calc("mul", a, exp(calc("sub", x, x)))  # of an element that is summed
    f = good.bindings[0]
    swapped = replace(
        good, after=calc("mul", exp(calc("sub", x, old)), exp(calc("sub", x, x))), bindings=(f, ("t", other))
    )
    assert described(swapped) == "t depends on a summed element"
    read = calc("mul", a, element("Z"))
    loaded = replace(good, after=calc("mul", exp(calc("sub", x, old)), element("Z")), bindings=(f, ("t", read)))
    assert described(loaded) == "t depends on a summed element"


def test_the_form_of_a_distribution() -> None:
    b, c = var("x0"), var("x1")
    t = calc("mul", a, exp(new))
    good = Certificate(
        "distribute", "S", calc("mul", calc("add", b, c), exp(new)),
        calc("add", calc("mul", b, exp(new)), calc("mul", c, exp(new))), (("t", t), ("combined", calc("add", b, c))),
    )  # fmt: skip
    assert check(good).ok
    for bindings in ((), good.bindings[:1], good.bindings[1:]):
        assert described(replace(good, bindings=bindings)) == "distribution needs the bindings t and combined"
    for both in (calc("sub", b, c), b):
        made = replace(good, bindings=(("t", t), ("combined", both)))
        assert described(made) == "the combined value is not the result of a combiner"
    for wrong in (replace(good, before=good.after), replace(good, after=good.before)):
        assert described(wrong) == "the two sides are not t(a + b) and t(a) + t(b)"
    largest = calc("max", calc("mul", b, new), calc("mul", c, new))
    bindings = (("t", calc("mul", a, new)), ("combined", calc("max", b, c)))
    found = check(Certificate("distribute", "S", calc("mul", calc("max", b, c), new), largest, bindings))
    assert found.detail == "on the domain positive"  # a factor below 0 makes the largest one the least


UNMET = "a narrowed factor must meet a 16-bit or 8-bit operand, or two must be made from such tensors"
TWICE = "the factor is not rounded exactly once, or the type is narrower than that of the other factor"


@pytest.mark.parametrize(("factor", "meets", "problem"), [
    (narrowed(element("P")), element("V", F16), ""),
    (narrowed(element("P")), element("V", I8), ""),  # a wider type than that of the tensor
    (narrowed(element("P")), element("V"), UNMET),  # no narrow tensor
    (element("P"), element("V", F16), TWICE),
    (narrowed(element("P"), DType.F8E4M3), element("V", F16), TWICE),  # narrower than the tensor
    (narrowed(narrowed(element("P"))), element("V", F16), TWICE),
])  # fmt: skip
def test_the_form_of_a_narrowed_factor(factor: Expr, meets: Expr, problem: str) -> None:
    before, after = (total(calc("mul", f, meets)) for f in (element("P"), factor))
    made = check(Certificate("narrow", "S", before, after, (("meets", meets),)))
    assert (made.detail if made.status == "refuted" else "") == problem
    assert check(Certificate("narrow", "S", before, after)).detail == UNMET
    assert check(Certificate("narrow", "S", before, after, (("of", meets),))).detail == UNMET


def test_the_form_of_a_deferred_rounding() -> None:
    meets = element("V", F16)
    before, after = narrowed(element("P"), op="cast"), narrowed(element("P"))
    good = Certificate("defer-roundings", "S", before, after, (("meets", meets),))
    assert described(good) == ""
    problem = "the factor is not rounded once on each side, to the type of the number that it meets"
    for wrong in (
        replace(good, bindings=()), replace(good, bindings=(("of", meets),)),
        replace(good, bindings=(("meets", element("V")),)), replace(good, before=after), replace(good, after=before),
        replace(good, after=element("P")), replace(good, after=narrowed(element("P"), DType.BF16)),
        replace(good, after=narrowed(after)), replace(good, before=element("P")),
    ):  # fmt: skip
        assert described(wrong) == problem


def test_the_form_of_an_inlined_definition() -> None:
    value = calc("mul", element("X"), Const(2.0, F32))
    read, moved = element("T"), element("T", at="j")
    good = Certificate("inline", "S", calc("add", read, moved), calc("add", value, exp(value)),
                       (("T[...]", value), ("T[...]", exp(value))))  # fmt: skip
    assert described(good) == ""
    assert described(replace(good, bindings=good.bindings[::-1])) == ""  # in another order
    assert described(replace(good, bindings=())) == "inlining needs the values of the replaced reads"
    for bindings in (good.bindings[:1], (*good.bindings, good.bindings[0]), (("U[...]", value),)):
        assert "which differs from the number of replacements" in described(replace(good, bindings=bindings))
    assert check(replace(good, after=calc("add", value, value))).status == "refuted"


def test_the_form_of_a_lazy_rescale() -> None:
    d, value = var("d"), calc("mul", element("acc"), Const(3.0, F32))

    def scaled(e: Expr, by: Expr) -> Expr:
        return calc("mul", e, Op("exp2", (by,), F32))

    good = Certificate("lazy-rescale", "S", calc("mul", scaled(element("acc"), d), Const(3.0, F32)), scaled(value, d),
                       (("value", value), ("acc", scaled(element("acc"), d))))  # fmt: skip
    assert described(good) == ""
    needs = "lazy rescaling needs the value and its offset inputs"
    assert [described(replace(good, bindings=b)) for b in ((), good.bindings[:1], good.bindings[1:])] == [needs] * 3
    other = (*good.bindings, ("mx", calc("add", element("mx"), d)))
    assert described(replace(good, bindings=other)) == "an offset input does not occur in the value"
    changed = "an input is changed by more than a shift or a power of two"
    for by in (calc("mul", d, exp(d)), element("Z"), calc("div", d, Const(2.0, F32))):
        assert described(replace(good, after=scaled(value, by))) == changed
    for to in (exp(element("acc")), calc("sub", element("acc"), d), calc("mul", element("acc"), d)):
        assert described(replace(good, bindings=(good.bindings[0], ("acc", to)))) == changed
    assert described(replace(good, before=value)) == "the left side is not the value with its inputs offset"
    assert check(replace(good, after=value)).status == "refuted"
