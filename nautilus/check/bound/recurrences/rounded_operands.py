"""Roundings of the operands of products in the steps of recurrences (``tile-recurrences``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nautilus.core.expr.nodes import Expr, Op, Reduce, loads, rewrite
from nautilus.core.expr.products import factors, product_of
from nautilus.core.schedule import Schedule
from nautilus.frontend.spec import Definition, Spec
from nautilus.scalar.lowering import lower


def rounded_steps(spec: Spec, precision: str, schedule: Schedule | None) -> frozenset[str]:
    """The tensors of ``spec`` that recurrences with such roundings compute."""
    recurs = any(d.recurrence is not None for d in spec.definitions)
    if not recurs or precision == "strict" or (schedule is not None and not schedule.narrow):
        return frozenset()
    from nautilus.scalar.passes.recurrences.members.join_recurrences import JoinRecurrences
    from nautilus.scalar.passes.recurrences.tile_recurrences import rounded_in_steps

    return rounded_in_steps(JoinRecurrences().apply(lower(spec)))


def with_rounded_operands(members: Sequence[Definition]) -> list[Definition]:
    """``members`` of a recurrence, whose sums round what they multiply elements of matrices of 16 bits by."""
    from nautilus.scalar.rewriting.recurrence_operands import half

    names = {d.name for d in members}

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Reduce) or e.op != "sum":
            return None
        parts = factors(e.body)
        matrices = [f for f in parts if (ld := half(f)) is not None and ld.buffer not in names]
        left = [f for f in parts if f not in matrices]
        if len(matrices) != 1 or not any(ld.buffer in names for f in left for ld in loads(f)):
            return None
        found, (matrix,) = half(matrices[0]), matrices
        assert found is not None
        x = product_of(left)
        rounded = Op("cast", (Op("narrow", (x,), found.dtype),), x.dtype)
        return replace(e, body=Op("mul", (rounded, matrix), e.body.dtype))

    return [replace(d, expr=rewrite(d.expr, rule)) for d in members]
