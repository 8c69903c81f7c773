"""Expressions as keys."""

from __future__ import annotations

import copy
import pickle

from nautilus.core.expr.bit_fields import bit_fields
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Reduce, Var, details
from nautilus.core.source import Source, Span
from nautilus.core.types import DType

LOAD = Load("X", (Var("i"),), DType.F32)
SUM = Reduce("sum", (Axis("i", 8),), None, Op("exp", (LOAD,), DType.F32), DType.F32)


def test_equal_expressions_have_one_hash_wherever_they_stand() -> None:
    here = Span(Source("a.naut", "x + x"), 1, 1, 1, 6)
    a, b = Op("add", (SUM, LOAD), DType.F32), Op("add", (SUM, LOAD), DType.F32, here)
    assert a == b and hash(a) == hash(b) and len({a, b}) == 1
    assert a != Op("sub", (SUM, LOAD), DType.F32) and a != Op("add", (LOAD, SUM), DType.F32)


def test_a_kept_hash_stays_in_its_process() -> None:
    whole: Expr = Op("neg", (SUM,), DType.F32)
    hash(whole)
    for other in (pickle.loads(pickle.dumps(whole)), copy.copy(whole)):  # hashes of texts differ between processes
        assert other == whole and not hasattr(other, "_hash")
        assert hash(other) == hash(whole)


def doubled(times: int) -> Expr:
    """A sum with itself, so many times: the tree has 2^times leaves, in a few objects."""
    e: Expr = Var("i")
    for _ in range(times):
        e = Op("add", (e, e), DType.I32)
    return e


def test_equal_trees_with_shared_parts_are_compared_once() -> None:
    a, b = doubled(60), doubled(60)
    assert a == b and b == a and hash(a) == hash(b)
    assert a != doubled(61)


def test_equal_expressions_in_two_files_differ_in_details() -> None:
    spans = [Span(Source(name, "a + b"), 1, 1, 1, 2) for name in ("one", "two")]
    first, second = (Op("neg", (Var("i", span=s),), DType.I32, s) for s in spans)
    assert first == second and details(first) != details(second)
    assert details(first) == details(Op("neg", (Var("i", span=spans[0]),), DType.I32, spans[0]))


def test_a_division_by_a_power_of_two_is_a_shift() -> None:
    packed = Load("P", (Var("i"),), DType.I32)
    power = Op("pow", (Const(2, DType.I32), Var("n")), DType.I32)
    digits = Op("mod", (Op("floordiv", (packed, power), DType.I32), Const(16, DType.I32)), DType.I32)
    shifted = Op("shift_right", (packed, Op("mul", (Var("n"), Const(1, DType.I32)), DType.I32)), DType.I32)
    assert bit_fields(digits, {"n": (0, 28)}) == Op("bit_and", (shifted, Const(15, DType.I32)), DType.I32)
    assert bit_fields(digits, {"n": (0, 31)}) == digits, "the power may not fit"
    constant = Op("floordiv", (packed, Const(4, DType.I32)), DType.I32)
    assert bit_fields(constant, {}) is constant
