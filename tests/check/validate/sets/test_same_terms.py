"""The engine for reductions of the same terms along other axes proves what passes do, and no tampered rewrite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from nautilus.check.certificates.places import misplaced
from nautilus.check.certificates.rules import check
from nautilus.check.validate.sets.same_terms import same_results, same_terms
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Reduce, Var, rewrite
from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.axes.split_residues import SplitResidues
from nautilus.scalar.passes.positions.flatten_positions import FlattenPositions
from nautilus.scalar.passes.positions.separate_phases import SeparatePhases
from nautilus.scalar.passes.positions.solve_equations import SolveEquations
from nautilus.scalar.passes.results.choose_terms import ChooseTerms
from nautilus.scalar.passes.simplify import Simplify

_TENSORS = """
dim N = runtime <= 4096
input A: f32[5, 7], B: f32[3], ok: bool[7], X: f32[1030], Y: f32[1030], long: f32[N]
input at: i32[5], two: i32[5, 2], far: i64[5]
"""
_SOLVED = {
    "step": "output O: f32[4]\nO[i: 4] = sum[k: 5, j: 3 | k - i == 2 * j and ok[i]](A[k, i] * B[j])",
    "conditions": "output O: f32[9]\nO[k: 9] = max[i: 5, j: 7 | i + j == k and ok[i]](A[i, j])",
    "one": "output O: f32[5]\nO[i: 5] = sum[j: 7 | 2 * j == i and j > 0](A[i, j])",
    "diagonal": "output O: f32[5]\nO[i: 5] = prod[j: 7 | j == i](A[i, j])",
    "runtime": "output O: f32[9]\nO[i: 9] = sum[n, j: 3 | n == i + j](long[n] * B[j])",
}
_CHOSEN = {
    "one": "output O: f32[5]\nO[i: 5] = sum[j: 7 | at[i] == j and ok[j]](A[i, j])",
    "wide": "output O: f32[5]\nO[i: 5] = max[j: 7 | j == far[i]](A[i, j])",
    "pairs": "output O: f32[5]\nO[i: 5] = sum[k: 2, j: 7 | two[i, k] == j](A[i, j] * B[k])",
}
_PLACED = {
    "stride": (
        SplitResidues,
        "output O: f32[5, 31]\nO[c: 5, p: 31] = sum[r: 3 | (p + 1 - 2 * r) % 5 == 0 and 0 <= p + 1 - 2 * r]"
        "(B[r] * A[c, (p + 1 - 2 * r) // 5])",
    ),
    "plane": (
        SplitResidues,
        "output O: f32[8, 9]\nO[p: 8, q: 9] = max[r: 2, s: 3 | (p + r) % 2 == 1 and (q - s) % 3 == 0 and q >= s]"
        "(B[r] * A[(p + r) // 2, (q - s) // 3])",
    ),
    "phases": (SeparatePhases, "output O: f32[61]\nO[n: 61] = sum[t: 8](Y[3 * t + 2 * n % 3] * X[2 * n // 3 + t])"),
}
_FLAT = "output O: f32[3]\nO[r: 3] = sum[x: 1027](X[x + r] * Y[x])"


def _solved(name: str) -> Certificate:
    program = Simplify().apply(lower(load_text(_TENSORS + _SOLVED[name])))
    (found,) = SolveEquations().derive(program)[1]
    return found


def _flat() -> Certificate:
    (found,) = FlattenPositions().derive(lower(load_text(_TENSORS + _FLAT)))[1]
    return found


@cache
def _made(name: str) -> tuple[Program, Program, Certificate]:
    """The program before and after a pass that chooses terms or moves results, and its certificate."""
    rule, text = (ChooseTerms, _CHOSEN[name]) if name in _CHOSEN else _PLACED[name]
    before = Simplify().apply(lower(load_text(_TENSORS + text)))
    after, (found,) = rule().derive(before)
    return before, after, found


@pytest.mark.parametrize("name", [*_CHOSEN, *_PLACED])
def test_chosen_terms_and_other_places(name: str) -> None:
    before, after, found = _made(name)
    assert (check(found).status, misplaced(found, before, after)) == ("proved", "")
    other = _made("wide" if name == "one" else "one")
    assert misplaced(found, other[0], after) and (name in _CHOSEN or misplaced(found, before, other[1]))


@pytest.mark.parametrize("name", _SOLVED)
def test_an_equation_is_solved(name: str) -> None:
    found = check(_solved(name))
    assert (found.status, found.detail) == ("proved", "on the domain everything")


def test_positions_in_groups_are_all_positions() -> None:
    assert check(_flat()).status == "proved"


def _moved(e: Expr) -> Expr:
    """``e`` with the first index of each element of floats one further."""

    def rule(n: Expr) -> Expr | None:
        if isinstance(n, Load) and n.dtype.is_float:
            return replace(n, index=(calc("add", n.index[0], 1), *n.index[1:]))
        return None

    return rewrite(e, rule)


def _loosened(e: Expr) -> Expr:
    """``e`` with the first upper limit one higher."""
    done: list[Expr] = []

    def rule(n: Expr) -> Expr | None:
        if isinstance(n, Op) and n.op == "lt" and not done:
            done.append(n)
            return replace(n, args=(n.args[0], calc("add", n.args[1], 1)))
        return None

    return rewrite(e, rule)


def _without_condition(e: Expr) -> Expr:
    return replace(e, cond=None) if isinstance(e, Reduce) else e.args[1] if isinstance(e, Op) else e


def _longer(e: Expr) -> Expr:
    assert isinstance(e, Reduce) and isinstance(e.axes[-1].extent, int)
    return replace(e, axes=(*e.axes[:-1], replace(e.axes[-1], extent=e.axes[-1].extent + 1)))


_TAMPERED: dict[str, Callable[[Certificate], Certificate]] = {
    "element": lambda c: replace(c, after=_moved(c.after)),
    "no condition": lambda c: replace(c, after=_without_condition(c.after)),
    "value": lambda c: replace(c, bindings=tuple((n, calc("add", e, 1)) for n, e in c.bindings)),
    "no value": lambda c: replace(c, bindings=()),
    "strange axis": lambda c: replace(c, bindings=tuple((n, Var("nowhere")) for n, _ in c.bindings)),
    "equation": lambda c: replace(c, before=_without_condition(c.before)),
    "given": lambda c: replace(c, conditions=(Const(False, DType.BOOL),)),
}


@pytest.mark.parametrize("how", [*_TAMPERED, "limit", "extent", "combiner", "identity"])
def test_no_tampered_rewrite_is_proved(how: str) -> None:
    name = {"identity": "one", "limit": "conditions"}.get(how, "step")
    good = _solved(name)
    assert isinstance(good.before, Reduce)
    if how == "limit":
        bad = replace(good, after=_loosened(good.after))
    elif how == "extent":
        bad = replace(good, after=_longer(good.after))
    elif how == "combiner":
        bad = replace(good, before=replace(good.before, op="max"))
    elif how == "identity":
        assert isinstance(good.after, Op)
        bad = replace(good, after=replace(good.after, args=(*good.after.args[:2], Const(1.0, DType.F32))))
    else:
        bad = _TAMPERED[how](good)
    assert bad != good
    assert not check(bad).ok


@pytest.mark.parametrize("how", ["value", "no condition", "element", "no value", "extent"])
def test_no_tampered_group_is_proved(how: str) -> None:
    good = _flat()
    bad = replace(good, after=_longer(good.after)) if how == "extent" else _TAMPERED[how](good)
    assert not check(bad).ok


def test_a_condition_in_memory_stays() -> None:
    good = _solved("conditions")
    swapped = rewrite(
        good.after, lambda n: replace(n, buffer="OK") if isinstance(n, Load) and n.buffer == "ok" else None
    )
    found = check(replace(good, after=swapped))
    assert (found.status, found.detail) == ("not decided", "a condition that isl knows nothing of has changed")


def _position(c: Certificate, new: Callable[[Expr], Expr]) -> Certificate:
    """``c`` with another value for its first axis."""
    (name, e), *others = c.bindings
    return replace(c, bindings=((name, new(e)), *others))


_PLACES: dict[str, Callable[[Certificate], Certificate]] = {
    "element": _TAMPERED["element"],
    "condition": lambda c: replace(c, after=_loosened(c.after)),
    "extent": lambda c: replace(c, before=_longer(c.before)),
    "congruence": lambda c: replace(c, before=_without_condition(c.before)),
    "beside": lambda c: _position(c, lambda e: calc("add", e, 1)),
    "twice": lambda c: _position(c, lambda e: calc("mul", calc("floordiv", e, 2), 2)),
    "of a term": lambda c: _position(c, lambda e: calc("add", e, Var("r"))),
    "no place": lambda c: replace(c, bindings=c.bindings[1:]),
    "no term": lambda c: replace(c, bindings=c.bindings[:-1]),
    "given": lambda c: replace(c, conditions=()),
    "fewer results": lambda c: replace(c, conditions=c.conditions[:-1]),
    "combiner": lambda c: replace(c, before=replace(c.before, op="min") if isinstance(c.before, Reduce) else c.before),
}


@pytest.mark.parametrize("how", _PLACES)
def test_no_tampered_place_is_proved(how: str) -> None:
    good = _made("stride")[2]
    bad = _PLACES[how](good)
    assert bad != good
    assert not check(bad).ok


@pytest.mark.parametrize("how", ["element", "no condition", "value", "no value", "strange axis", "equation"])
@pytest.mark.parametrize("name", ["one", "pairs"])
def test_no_tampered_choice_is_proved(name: str, how: str) -> None:
    assert not check(_TAMPERED[how](_made(name)[2])).ok


def test_an_index_of_64_bits_is_one_of_32() -> None:
    """A conversion may give another index, so that what it gives says nothing of the element."""
    good = _made("wide")[2]
    ((_, index),) = good.bindings
    assert isinstance(good.after, Op) and isinstance(index, Op) and index.op == "cast"
    found = check(replace(good, after=rewrite(good.after, lambda n: index if n == index.args[0] else None)))
    assert found.status == "not decided"


def test_an_element_that_is_read_at_another_place_is_another_number() -> None:
    """Terms at ``(i, at[i])`` are not those at ``(1 - i, at[i])``, unless both elements of ``at`` are equal."""
    i, j = Axis("i", 2), Axis("j", 7)
    at = Load("at", (Var("i"),), DType.I32)
    there: dict[str, Expr] = {"i": calc("sub", 1, Var("i")), "j": at}
    before = Reduce("sum", (i, j), calc("eq", at, Var("j")), Load("A", (Var("i"), Var("j")), DType.F32), DType.F32)
    after = Reduce("sum", (i,), calc("and", *_index(at, 7)), Load("A", (there["i"], at), DType.F32), DType.F32)
    assert not same_terms(before, after, there).ok


def _index(e: Expr, extent: int) -> list[Expr]:
    return [calc("ge", e, 0), calc("lt", e, extent)]


def _count(name: str, low: int, high: int) -> list[Expr]:
    return [calc("ge", Var(name), low), calc("lt", Var(name), high)]


@pytest.mark.parametrize(("place", "last", "status"), [
    (Var("q"), 4, "proved"),
    (calc("min", Var("q"), 3), 6, "refuted"),  # the last place has three results
    (Var("q"), 3, "refuted"),  # the last place has none
    (calc("add", Var("q"), Var("r")), 4, "refuted"),  # a term has a place
])  # fmt: skip
def test_each_place_has_one_result(place: Expr, last: int, status: str) -> None:
    total = Reduce("sum", (Axis("r", 2),), None, Const(1.0, DType.F32), DType.F32)
    given = (*_count("y", 0, 4), *_count("q", 0, last))
    assert same_results(total, total, {"y": place}, given).status == status
