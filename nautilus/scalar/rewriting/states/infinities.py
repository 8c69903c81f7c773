"""Operands of readers that may be infinite, for ``chunk-matrix-states``, which says what takes their place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nautilus.core.expr.build import calc, integer, number
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, free_vars
from nautilus.core.expr.products import strip_conversions
from nautilus.core.index.sizes import extent_expr, total
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.states.matrix_states import Reader
from nautilus.scalar.rewriting import kernel_of

if TYPE_CHECKING:
    from nautilus.scalar.rewriting.states.chunks import StateChunks


def without_infinities(c: StateChunks, r: Reader) -> tuple[Expr, Expr]:
    """``q`` without infinite elements, and what multiplies the result (module docstring)."""
    m, q = c.m, r.inside
    used = free_vars(q)
    par = tuple(a for a in (*m.outer, m.time) if a.name in used)
    name = r.target.name

    def op(name: str, *args: Expr) -> Expr:
        return Op(name, args, c.dtype)

    huge = Op("eq", (op("abs", q), Const(math.inf, c.dtype)), DType.BOOL)
    some = c.define(f"{name}_infinite", par, huge, m.rows, None, "any")
    bad: Expr = Load(some.name, tuple(Var(a.name) for a in par), DType.BOOL, m.span)
    zero, one = number(0, c.dtype), number(1, c.dtype)
    sign = op("select", Op("lt", (q, zero), DType.BOOL), Const(-1.0, c.dtype), one)
    value = op("select", bad, op("select", huge, sign, op("mul", q, zero)), q)
    axes = (*par, *m.rows)
    stored = strip_conversions(q)
    short = stored.dtype if isinstance(stored, Load) and stored.dtype.is_half else c.dtype
    made = c.made(f"{name}_operand", axes, short)
    index = tuple(Var(a.name) for a in axes)
    c.kernels.append(kernel_of(Def(made.name, made, axes, (), None, value, None, m.span)))
    read: Expr = Load(made.name, index, short, m.span)
    read = read if short is c.dtype else Op("cast", (read,), c.dtype)
    if (
        r.before and m.initial is None and (r.rest is None or r.target.guard is not None)
    ):  # the first step has no product
        first = extent_expr(total(c.steps, -1)) if m.reverse else integer(0)
        bad = calc("and", bad, calc("ne", Var(c.t), first))
    return read, op("select", bad, Const(math.inf, c.dtype), one)
