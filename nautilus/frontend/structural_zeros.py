"""Structural zeros: the elements of an expression that are absent from a sum.

An expression is a structural zero at an index if it is one of these there:

* a conditional expression whose selected branch is the literal 0 or a structural zero;
* a product with a factor that is a structural zero, a quotient whose dividend is one, its negation, or its conversion
  to a float type, as that of ``1 if c else 0`` beside a float;
* an element of a definition whose expression is a structural zero at that element.  Whether the definition is stored,
  rounded or inlined makes no difference, because the condition decides and not the stored number.

The elements of a recurrence are ordinary numbers, also where its expression is a structural zero.

Any other zero is an ordinary number: a literal outside a conditional expression, an element of an input, a sum over an
empty domain, and a result that rounds to 0.

A term of a ``sum`` that is a structural zero is absent from it, whatever the other factors hold, NaN and inf included.
The terms are the operands of additions and subtractions in the element of the sum.
The distinction matters for factors that are not finite: a product of finite factors and a zero is 0.
Scalar IR expresses the same rule by guards (:mod:`nautilus.scalar.analysis.masking`).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from nautilus.core.expr.nodes import Const, Expr, Load, Op
from nautilus.core.numerics import Array, eval_op
from nautilus.core.types import DType
from nautilus.frontend.values import Value, line_up, union


class Evaluation(Protocol):
    """The part of an evaluation of a definition that this module uses."""

    order: dict[str, int]

    def value(self, e: Expr) -> Value:
        """The value of ``e``."""

    def gather(self, array: Array, e: Load) -> Value:
        """The elements of ``array`` at the index of ``e``."""

    def zeros(self, name: str) -> Array | None:
        """The structural zeros of the definition ``name``; an axis of size 1 stands for all; None if it has none."""


def absent(run: Evaluation, e: Expr) -> Value | None:
    """Where ``e`` is a structural zero, as booleans; None if it is one nowhere."""
    return _Search(run).absent(e)


def element(run: Evaluation, e: Expr) -> Value:
    """The element ``e`` of a sum without the terms that are structural zeros."""
    if isinstance(e, Op) and e.op in ("add", "sub"):
        parts = [element(run, x) for x in e.args]
        names = union(parts, run.order)
        return Value(eval_op(e.op, [line_up(v, names) for v in parts], e.dtype), names)
    value, missing = run.value(e), absent(run, e)
    if missing is None:
        return value
    names = union((value, missing), run.order)
    array = line_up(value, names)
    return Value(np.where(line_up(missing, names), np.zeros((), array.dtype), array), names)


class _Search:
    def __init__(self, run: Evaluation) -> None:
        self.run = run
        self.memo: dict[int, Value | None] = {}

    def absent(self, e: Expr) -> Value | None:
        if id(e) not in self.memo:
            self.memo[id(e)] = self.compute(e)
        return self.memo[id(e)]

    def compute(self, e: Expr) -> Value | None:
        match e:
            case Op(op="select", args=(c, a, b)):
                yes, no = self.branch(a), self.branch(b)
                if yes is None and no is None:
                    return None
                never = Value(np.asarray(False), ())
                return self.joined("select", self.run.value(c), yes or never, no or never)
            case Op(op="mul", args=(a, b)):
                found = [v for v in (self.absent(a), self.absent(b)) if v is not None]
                return self.joined("or", *found) if len(found) == 2 else found[0] if found else None
            case Op(op="div" | "neg", args=(x, *_)):
                return self.absent(x)
            case Op(op="cast" | "narrow", args=(x,)) if x.dtype is not DType.BOOL and e.dtype.is_float:
                return self.absent(x)
            case Load():
                zeros = self.run.zeros(e.buffer)
                return None if zeros is None else self.run.gather(zeros, e)
        return None

    def branch(self, e: Expr) -> Value | None:
        if isinstance(e, Const) and e.value == 0:
            return Value(np.asarray(True), ())
        return self.absent(e)

    def joined(self, op: str, *values: Value) -> Value:
        names = union(values, self.run.order)
        arrays = [line_up(v, names) for v in values]
        return Value(eval_op(op, arrays, DType.BOOL), names)
