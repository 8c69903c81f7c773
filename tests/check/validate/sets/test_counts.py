"""The engine for numbers of points proves what ``count-terms`` does, and no tampered rewrite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from nautilus.check.certificates.places import misplaced
from nautilus.check.certificates.rules import check
from nautilus.check.validate.sets.counts import counted_terms
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Axis, Const, Expr, Op, Reduce, Var, rewrite
from nautilus.core.index.simplify import TRUE
from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.passes.windows.count_terms import CountTerms

_SUMS = {
    "window": "sum[r: 5, s: 4 | 0 <= y + r - 2 and y + r - 2 < 11 and u + s < 9](1.0)",
    "integers": "sum[r: 9, s: 4 | 2 * y - r >= 3 and 3 * r <= y + 4 and s > u](2)",
    "may be infinite": "sum[r: 9 | r > y + 2](1 / (y - 9.0))",
}


@cache
def _program(name: str) -> Program:
    text = "input X: f32[11, 7]\noutput O: f32[11, 7]\nT[y: 11, u: 7] = {}\nO[y, u] = X[y, u] * T[y, u]"
    return Simplify().apply(lower(load_text(text.format(_SUMS[name]))))


@cache
def _counted(name: str) -> tuple[Program, Certificate]:
    made, (found,) = CountTerms().derive(_program(name))
    return made, found


@pytest.mark.parametrize("name", _SUMS)
def test_points_are_counted(name: str) -> None:
    made, found = _counted(name)
    assert (check(found).status, misplaced(found, _program(name), made)) == ("proved", "")


def _sum(c: Certificate) -> Reduce:
    assert isinstance(c.before, Reduce)
    return c.before


def _with_counts(c: Certificate, new: Callable[[Expr], Expr]) -> Certificate:
    """``c`` with another count for its last axis, also in the result."""
    (name, old) = c.bindings[-1]
    after = rewrite(c.after, lambda n: new(old) if n == old else None)
    return replace(c, bindings=(*c.bindings[:-1], (name, new(old))), after=after)


_TAMPERED: dict[str, Callable[[Certificate], Certificate]] = {
    "count": lambda c: _with_counts(c, lambda e: calc("add", e, 1)),
    "counts of other axes": lambda c: replace(
        c, bindings=tuple(zip("rs", (e for _, e in c.bindings[::-1]), strict=True))
    ),
    "order": lambda c: replace(c, bindings=c.bindings[::-1]),
    "no count": lambda c: replace(c, bindings=c.bindings[:-1]),
    "result": lambda c: replace(c, after=calc("mul", c.after, Const(2.0, DType.F32))),
    "term": lambda c: replace(c, before=replace(_sum(c), body=Const(3.0, DType.F32))),
    "term of the point": lambda c: replace(c, before=replace(_sum(c), body=Op("cast", (Var("r"),), DType.F32))),
    "no condition": lambda c: replace(c, before=replace(_sum(c), cond=None)),
    "extent": lambda c: replace(c, before=replace(_sum(c), axes=(*_sum(c).axes[:-1], Axis("s", 6)))),
    "combiner": lambda c: replace(c, before=replace(_sum(c), op="max")),
    "condition on the result": lambda c: replace(
        c, before=replace(_sum(c), cond=Op("and", (_sum(c).cond or TRUE, calc("lt", Var("y"), 5)), DType.BOOL))
    ),
    "two axes": lambda c: replace(c, before=replace(_sum(c), cond=calc("lt", calc("add", Var("r"), Var("s")), 5))),
    "given": lambda c: replace(c, conditions=(Const(False, DType.BOOL),)),
    "no sum": lambda c: replace(c, before=c.after),
}


@pytest.mark.parametrize("how", _TAMPERED)
def test_no_tampered_count_is_proved(how: str) -> None:
    good = _counted("window")[1]
    bad = _TAMPERED[how](good)
    assert bad != good
    assert check(bad).status != "proved"


def test_an_infinite_term_counts_where_there_is_a_point_alone() -> None:
    good = _counted("may be infinite")[1]
    assert isinstance(good.after, Op) and good.after.op == "select"
    assert check(replace(good, after=good.after.args[1])).status == "refuted"


@pytest.mark.parametrize(("extent", "ok"), [(1 << 22, True), ((1 << 22) + 1, False)])
def test_f32_holds_the_number(extent: int, ok: bool) -> None:
    ends = (extent, 4)
    total = Reduce("sum", (Axis("r", extent), Axis("s", 4)), None, Const(1.0, DType.F32), DType.F32)
    after: Expr = total.body
    for n in ends:
        after = Op("mul", (after, Op("cast", (Const(n, DType.I32),), DType.F32)), DType.F32)
    counts = {"r": Const(extent, DType.I32), "s": Const(4, DType.I32)}
    assert counted_terms(total, after, counts).ok == ok


def test_a_count_is_not_negative() -> None:
    good = _counted("integers")[1]
    bad = _with_counts(good, lambda e: e.args[0] if isinstance(e, Op) and e.op == "max" else e)
    assert bad != good
    assert check(bad).status == "refuted"


def test_points_with_gaps_are_not_decided() -> None:
    good = _counted("may be infinite")[1]
    odd = calc("eq", calc("mod", Var("r"), 2), 1)
    found = check(replace(good, before=replace(_sum(good), cond=odd)))
    assert (found.status, found.detail) == ("not decided", "the points along r are no range")


def test_a_count_of_another_program_is_misplaced() -> None:
    made, found = _counted("window")
    other = _program("integers")
    assert misplaced(found, other, made).startswith("no statement contains")
