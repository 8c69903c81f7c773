"""``order``: steps that run one after another because each of them rounds the state.

A state that an output of 16 bits shows is rounded in each step, so that a step is no linear map of the one before.
What the remark says is tried: without the rounding, ``chunk-recurrences`` cuts the steps into chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nautilus.core.expr.nodes import Expr, Load, Op, rewrite
from nautilus.remarks.remark import Facts, Kind, Remark
from nautilus.scalar.analysis.contractions.promises import promised_ranges
from nautilus.scalar.analysis.definitions import is_recurrence
from nautilus.scalar.analysis.states.linear_states import linear_states
from nautilus.scalar.analysis.states.recurrences import form_of
from nautilus.scalar.ir import Program, extent, with_expressions
from nautilus.scalar.passes.recurrences.chunk_recurrences import bounded, chunk_length
from nautilus.scalar.rewriting import map_statements, with_body


def remarks(facts: Facts) -> Iterator[Remark]:
    """The remarks on recurrences that would run in chunks if no step rounded its state."""
    given = promised_ranges(facts.spec)
    for k in facts.planned.kernels:
        form = form_of(k) if is_recurrence(k) else None
        names = () if form is None else tuple(n for n in form.roles if _is_narrow(facts.planned, n))
        if form is None or not names or linear_states(form, extremes=True) is not None:
            continue
        wide = _without_roundings(facts.planned, k.name, frozenset(names))
        form = next(f for x in wide.kernels if x.name == k.name and (f := form_of(x)) is not None)
        states = linear_states(form, extremes=True)
        if states is None or not all(bounded(wide, form, s, given) for s in states):
            continue
        if length := chunk_length(wide, form, states):
            name = next((s.name for s in states if s.name in names), names[0])
            dtype = facts.planned.buffer(name).dtype.value
            message = (
                f"the {extent(form.step) or 0} steps of {name} run one after another because each rounds {name} to "
                f"{dtype}; chunks of {length} steps would run at the same time"
            )
            hint = f"define the state without a type, and {name} as its elements, which are then rounded once"
            yield Remark(Kind.ORDER, message, k.span, hint)


def _is_narrow(program: Program, name: str) -> bool:
    dtype = program.buffer(name).dtype
    return dtype.is_float and dtype.compute is not dtype


def _without_roundings(program: Program, kernel: str, names: frozenset[str]) -> Program:
    """``program`` in which the tensors ``names`` of the recurrence ``kernel`` have the type of their values."""

    def rule(e: Expr) -> Expr | None:
        match e:
            case Op(op="cast", args=(Load(buffer=name) as read,)) if name in names:
                return replace(read, index=tuple(rewrite(i, rule) for i in read.index), dtype=e.dtype)
        return None

    buffers = tuple(replace(b, dtype=b.dtype.compute) if b.name in names else b for b in program.buffers)
    kernels = tuple(
        with_body(k, map_statements(k.body, lambda _, s: with_expressions(s, lambda e: rewrite(e, rule))))
        if k.name == kernel else k
        for k in program.kernels
    )  # fmt: skip
    return replace(program, buffers=buffers, kernels=kernels)
