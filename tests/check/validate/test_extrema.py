"""The conditions of repair terms of extrema are proved on the module that the pass made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from nautilus.check.certificates.extrema import unproved
from nautilus.check.levels import Trace
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import integer
from nautilus.core.expr.nodes import Expr, Load, Op, Var, rewrite, walk
from nautilus.core.types import DType
from nautilus.driver import Request, compile_file
from nautilus.scalar.ir import Kind, Loop, Program, Stmt, Store, Update

SPEC = """
dim M = 64, N = 262144
input X: f16[M, N]
input keep: bool[N]
output A: i32[M], C: i32[M], L: i32[M]
A[i] = argmin[j | keep[j]](X[i, j])
C[i] = sum[j | X[i, j] == max[k](X[i, k])](1)
L[i] = max[j | keep[j] and X[i, j] == max[k](X[i, k])](j)
"""
PASSES = ("split-k-update", "rolling-update")


@cache
def made() -> dict[str, tuple[Program, tuple[Certificate, ...]]]:
    """By pass: the module that it made, and its certificates."""
    trace = Trace()
    compile_file(Request(Path("given.naut"), "sm_90a", text=SPEC.lstrip(), until="scalar"), [trace])
    pairs = [(b.base, (b.module, b.certificates)) for _, b in pairwise(trace.records) if b.base in PASSES]
    return {name: found for name, found in pairs if found[1]}


Change = Callable[[Stmt], Stmt | None]


def changed(program: Program, change: Change) -> Program:
    """``program`` with ``change`` at every store and update; None removes it."""

    def body(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        new = (replace(s, body=body(s.body)) if isinstance(s, Loop) else change(s) for s in statements)
        return tuple(s for s in new if s is not None)

    return replace(program, kernels=tuple(replace(k, body=body(k.body)) for k in program.kernels))


def of_an_extremum(s: Stmt) -> bool:
    return isinstance(s, Update) and s.value.dtype is DType.F32


def fewer(s: Stmt) -> Stmt:
    """Extrema of some elements only."""
    if not (isinstance(s, Update) and of_an_extremum(s)):
        return s
    other = Op("gt", (s.value, s.value), DType.BOOL)
    return replace(s, guard=other if s.guard is None else Op("and", (s.guard, other), DType.BOOL))


def other_elements(s: Stmt) -> Stmt:
    return replace(s, value=Op("neg", (s.value,), s.value.dtype)) if isinstance(s, Update) and of_an_extremum(s) else s


def opposite(s: Stmt) -> Stmt:
    swap = {"min": "max", "max": "min"}
    return replace(s, op=swap[s.op]) if isinstance(s, Update) and of_an_extremum(s) else s


def unasked(s: Stmt) -> Stmt:
    """Every element counts."""
    return s if of_an_extremum(s) or not isinstance(s, Update) else replace(s, guard=None)


def shorter(s: Stmt) -> Stmt:
    """Extrema over another loop: their elements stand under another variable."""
    if not of_an_extremum(s):
        return s
    return Loop("other", integer(0), integer(1), Kind.SEQ, (s,))


def unlinked(s: Stmt) -> Stmt | None:
    """Nothing copies one extremum to another one."""
    return None if isinstance(s, Store | Update) and isinstance(s.value, Load) and s.value.dtype is DType.F32 else s


FAULTS: dict[str, Change] = {f.__name__: f for f in (fewer, other_elements, opposite, unasked, shorter, unlinked)}


@pytest.mark.parametrize("name", PASSES)
def test_the_conditions_of_the_compiler_are_proved(name: str) -> None:
    program, certificates = made()[name]
    assert len(certificates) == 6 and all(len(c.conditions) == 2 for c in certificates)
    for c in certificates:
        assert unproved(c, program) == ""


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", PASSES)
def test_a_module_in_which_they_do_not_hold_is_found(name: str, fault: str) -> None:
    program, certificates = made()[name]
    wrong = changed(program, FAULTS[fault])
    assert wrong != program
    for c in certificates:
        assert "implies" in unproved(c, wrong)


@pytest.mark.parametrize("name", PASSES)
def test_another_condition_is_not_proved(name: str) -> None:
    program, certificates = made()[name]
    for c in certificates:
        for n, condition in enumerate(c.conditions):
            for wrong in edits(condition):
                conditions = (*c.conditions[:n], wrong, *c.conditions[n + 1 :])
                assert unproved(replace(c, conditions=conditions), program)


def edits(e: Expr) -> list[Expr]:
    """``e`` with another comparison, and with another variable."""
    others = {"le": "lt", "ge": "gt", "ne": "eq", "or": "and"}
    found: list[Expr] = []
    for part in walk(e):
        if isinstance(part, Op) and part.op in others:
            op = others[part.op]
            found.append(rewrite(e, lambda n, p=part, o=op: replace(n, op=o) if n is p else None))  # type: ignore[misc]
        if isinstance(part, Var):
            found.append(rewrite(e, lambda n, p=part: replace(n, name="x9") if n == p else None))  # type: ignore[misc]
    return found


def test_a_reference_that_may_be_zero_is_not_proved() -> None:
    program, (c, *_) = made()[PASSES[1]]
    old = next(n for n in walk(c.after) if isinstance(n, Var) and n.name == "old0")
    zero = Op("ne", (old, Op("sub", (old, old), old.dtype)), DType.BOOL)
    assert unproved(replace(c, conditions=(zero,)), program)
