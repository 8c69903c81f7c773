"""Structural values: the elements of an expression that are absent from a reduction.

An expression is a structural zero at an index if it is one of these there:

* a conditional expression whose selected branch is the literal 0 or a structural zero;
* a product with a factor that is a structural zero, a quotient whose dividend is one, its negation, or its conversion
  to a float type, as that of ``1 if c else 0`` beside a float;
* the conversion of a false condition to a number, which is ``1 if c else 0``;
* the exponential of a structural minus infinity;
* an element of a definition whose expression is a structural zero at that element.  Whether the definition is stored,
  rounded or inlined makes no difference, because the condition decides and not the stored number.

It is a structural minus infinity if it is one of these there:

* a conditional expression whose selected branch is the literal ``-inf`` or a structural minus infinity;
* a sum with a term that is one, or the difference between one and anything;
* the negation of a structural infinity, which has the same rules with the other sign;
* a product of one with a positive number, or its quotient by one (:func:`nautilus.core.expr.structural.sign`); a
  negative number turns the sign;
* its conversion to a float type that has infinities, or the logarithm of a structural zero;
* an element of a definition, as above.

The elements of a recurrence are ordinary numbers, also where its expression is a structural value.

Any other zero or infinity is an ordinary number: a literal outside a conditional expression, an element of an input, a
reduction over an empty domain, and a result that rounds to 0.

A term of a ``sum`` that is a structural zero is absent from it, whatever the other factors hold, NaN and inf included.
The terms are the operands of additions and subtractions in the element of the sum.
The distinction matters for factors that are not finite: a product of finite factors and a zero is 0.
An element of a ``max`` that is a structural minus infinity is absent, and so is one of a ``min`` that is an infinity:
``max[j](X[j] + B[j] if c else -inf)`` is ``max[j | c](X[j] + B[j])``.
Scalar IR expresses the same rules by guards (:mod:`nautilus.scalar.analysis.masking`).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from nautilus.core.expr.nodes import Const, Expr, Load, Op, identity
from nautilus.core.expr.structural import sources
from nautilus.core.numerics import Array, eval_op
from nautilus.core.types import FORMATS, DType
from nautilus.frontend.values import Value, line_up, union


class Evaluation(Protocol):
    """The part of an evaluation of a definition that this module uses."""

    order: dict[str, int]

    def value(self, e: Expr) -> Value:
        """The value of ``e``."""

    def gather(self, array: Array, e: Load) -> Value:
        """The elements of ``array`` at the index of ``e``."""

    def structural(self, name: str, what: float) -> Array | None:
        """Where the definition ``name`` is structurally ``what``; an axis of size 1 stands for all; None: nowhere."""


def absent(run: Evaluation, e: Expr, what: float = 0.0) -> Value | None:
    """Where ``e`` is structurally ``what`` (0, inf or -inf), as booleans; None if it is so nowhere."""
    return _Search(run).find(e, what)


def element(run: Evaluation, op: str, e: Expr) -> Value:
    """The element ``e`` of a reduction ``op`` with the identity in place of what is structurally absent from it."""
    if op == "sum" and isinstance(e, Op) and e.op in ("add", "sub"):
        parts = [element(run, op, x) for x in e.args]
        names = union(parts, run.order)
        return Value(eval_op(e.op, [line_up(v, names) for v in parts], e.dtype), names)
    value, missing = run.value(e), absent_from(run, op, e)
    if missing is None:
        return value
    names = union((value, missing), run.order)
    array, start = line_up(value, names), identity(op, e.dtype).value
    return Value(np.where(line_up(missing, names), np.asarray(start, array.dtype), array), names)


def absent_from(run: Evaluation, op: str, e: Expr) -> Value | None:
    """Where the element ``e`` is absent from a reduction ``op``; None if it is so nowhere."""
    if op == "sum":
        return absent(run, e)
    return absent(run, e, float(identity(op, e.dtype).value)) if op in ("max", "min") and e.dtype.is_float else None


class _Search:
    def __init__(self, run: Evaluation) -> None:
        self.run = run
        self.memo: dict[tuple[int, float], Value | None] = {}

    def find(self, e: Expr, what: float) -> Value | None:
        key = (id(e), what)
        if key not in self.memo:
            self.memo[key] = self.compute(e, what)
        return self.memo[key]

    def compute(self, e: Expr, what: float) -> Value | None:
        match e:
            case Op(op="select", args=(c, a, b)):
                yes, no = self.branch(a, what), self.branch(b, what)
                if yes is None and no is None:
                    return None
                never = Value(np.asarray(False), ())
                return self.joined("select", self.run.value(c), yes or never, no or never)
            case Op(op="cast", args=(x,)) if x.dtype is DType.BOOL:
                return self.joined("not", self.run.value(x)) if what == 0 else None
            case Op(op="cast" | "narrow", args=(x,)) if e.dtype.is_float:
                return self.find(x, what) if what == 0 or FORMATS[e.dtype].infinite else None
            case Load():
                places = self.run.structural(e.buffer, what)
                return None if places is None else self.run.gather(places, e)
            case Op():
                found = [v for x, of in sources(e, what) if (v := self.find(x, of)) is not None]
                return self.joined("or", *found) if len(found) == 2 else found[0] if found else None
        return None

    def branch(self, e: Expr, what: float) -> Value | None:
        if isinstance(e, Const) and e.value == what:
            return Value(np.asarray(True), ())
        return self.find(e, what)

    def joined(self, op: str, *values: Value) -> Value:
        names = union(values, self.run.order)
        arrays = [line_up(v, names) for v in values]
        return Value(eval_op(op, arrays, DType.BOOL), names)
