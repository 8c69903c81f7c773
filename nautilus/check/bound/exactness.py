"""Which operations, conversions and outputs round, and how far the forms of an operation may be off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cache
from itertools import count
from math import isfinite
from typing import Final

import numpy as np

from nautilus.check.bound.roundings.in_steps import Rounded, has_reciprocal
from nautilus.core.expr.nodes import COMPARISONS, Const, Expr, Load, Op, Reduce, walk
from nautilus.core.expr.quotients import is_power_of_two
from nautilus.core.functions import FUNCTIONS
from nautilus.core.numerics import Array, round_to
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity
from nautilus.core.types import FORMATS, DType
from nautilus.frontend.spec import Definition, Spec

#: The unit roundoff of f32, and of f64.
U32: Final = 2.0**-24
U64: Final = 2.0**-53


@dataclass
class Common:
    """What the definitions of one run have in common.

    ``sums`` numbers the sums of tensor cores.  ``written``: the numbers of the spec, rounded to a type; one that is
    written in several places is the same number there.  ``recurs``: the program has a recurrence.
    ``steps``: the numbers that its steps round.
    """

    recurs: bool = False
    steps: Rounded = field(default_factory=Rounded)
    sums: Iterator[int] = field(default_factory=count)
    written: dict[tuple[float, DType], Array] = field(default_factory=dict)


def inexact(e: Expr) -> bool:
    """Whether evaluating the node ``e`` itself may round."""
    match e:
        case Reduce(op=op, dtype=dtype):
            return dtype.is_float and op in ("sum", "prod")
        case Op(op="cast" | "narrow", args=(x,), dtype=dtype):
            return dtype.is_float and not keeps(dtype, x.dtype)
        case Op(op=op, dtype=dtype):
            exact = op in COMPARISONS or instruction_error(op, U32, True) == 0.0 or scales(e)
            return dtype.is_float and not exact
    return False


def is_inexact_number(e: Expr, dtype: DType) -> bool:
    """Whether ``e`` is a number that the float type ``dtype`` does not have, such as 0.1."""
    if not (isinstance(e, Const) and e.dtype.is_float and isfinite(e.value)):
        return False
    return _lacks(float(e.value), dtype)


@cache
def _lacks(number: float, dtype: DType) -> bool:
    """Whether ``dtype`` does not have ``number``, a number of the spec, of which each step of a recurrence asks."""
    return float(round_to(np.asarray(number), dtype)) != number


@by_identity(1 << 10)
def is_rounded(e: Expr, computed: frozenset[str]) -> bool:
    """Whether the value of ``e`` is rounded anywhere on its way from inputs; ``computed``: buffers that are none."""
    return any(inexact(n) or (isinstance(n, Load) and n.buffer in computed) for n in walk(e))


def rounds_at_store(spec: Spec, d: Definition) -> bool:
    """Whether an output rounds the values of its definition; a cast of the same type is exact."""
    if not (d.is_output and d.stored.is_float) or keeps(d.stored, d.expr.dtype):
        return False
    return not selects({x.name: x for x in spec.definitions}, d.expr, d.stored)


def copies(spec: Spec, d: Definition) -> bool:
    """Whether every value of ``d`` is one of elements of inputs, or a number, with another sign at most."""
    return selects({x.name: x for x in spec.definitions}, d.expr, d.stored, of_inputs=True)


def selects(made: Mapping[str, Definition], e: Expr, dtype: DType, of_inputs: bool = False) -> bool:
    """Whether every value of ``e`` is one of elements of type ``dtype``, with another sign at most.

    ``of_inputs``: of elements that were not rounded to it before.
    """
    match e:
        case Load():
            known = made.get(e.buffer)
            found = known is not None and selects(made, known.expr, dtype, of_inputs)
            return found or (keeps(dtype, e.dtype) and not (of_inputs and known is not None))
        case Const(value=value):
            return float(round_to(np.asarray(float(value)), dtype)) == float(value)
        case Op(op="cast", args=(x,)):
            return (keeps(dtype, e.dtype) and not of_inputs) or selects(made, x, dtype, of_inputs)
        case Op(op="select", args=(_, a, b)) | Op(op="max" | "min", args=(a, b)):
            return selects(made, a, dtype, of_inputs) and selects(made, b, dtype, of_inputs)
        case Op(op="neg" | "abs", args=(a,)):
            return selects(made, a, dtype, of_inputs)
        case Reduce(op="max" | "min", body=body):
            return FORMATS[dtype].infinite and selects(made, body, dtype, of_inputs)
    return False


def keeps(target: DType, source: DType) -> bool:
    """Whether a conversion to the float type ``target`` is exact."""
    s, t = FORMATS[source], FORMATS[target]
    if s.kind == "float":
        return s.mantissa <= t.mantissa and s.least >= t.least and s.largest <= t.largest
    return source is DType.BOOL or s.bits - (s.kind == "int") <= t.mantissa + 1


def scales(e: Op) -> bool:
    """A product with a power of two, or a quotient by one."""
    scales = e.args if e.op == "mul" else e.args[1:] if e.op == "div" else ()
    return any(is_power_of_two(float(a.value)) for a in scales if isinstance(a, Const))


@cache
def instruction_error(op: str, u: float, fast: bool) -> float:
    """The largest relative error of the forms of ``op`` in code where the unit roundoff is ``u``."""
    f = FUNCTIONS[op]
    if u < U32:
        return 2.0 * f.ulps[1] * u
    return 2.0 * u * max([f.ulps[0], *(a.ulps for a in f.approximations if fast)])


def operation_error(e: Op, u: float, fast: bool, recurs: bool) -> float:
    """The largest relative error of the forms of ``e`` in code.

    A quotient by a number of the spec is a product; ``recurs``: that number has the error that it has in code.
    """
    by_number = recurs and e.op == "div" and is_inexact_number(e.args[1], e.dtype.compute)
    return u if by_number and has_reciprocal(e.args[1]) else instruction_error(e.op, u, fast)


@cache
def hardware_error(op: str) -> float:
    """The largest relative error of the approximations of ``op`` for outputs of at most 16 bits."""
    return max((a.relative for a in FUNCTIONS[op].approximations if a.narrow), default=0.0)


def unit(dtype: DType) -> float:
    """The unit roundoff of a float type."""
    return float(2.0 ** -(dtype.mantissa + 1))


def computed(spec: Spec) -> frozenset[str]:
    """The definitions of ``spec`` whose values are not exact."""
    found: set[str] = set()
    for d in spec.definitions:
        loads = {e.buffer for e in walk(d.expr) if isinstance(e, Load)}
        if loads & found or any(inexact(e) for e in walk(d.expr)) or rounds_at_store(spec, d):
            found.add(d.name)
    return frozenset(found)


def narrow_only(spec: Spec) -> frozenset[str]:
    """The definitions on which only outputs of at most 16 bits depend (``vr_tile.passes.hardware_math``)."""
    wide = {d.name for d in spec.definitions if d.is_output and not (d.stored.is_float and d.stored.bits <= 16)}
    for d in reversed(spec.definitions):
        if d.name in wide:
            wide |= {e.buffer for e in walk(d.expr) if isinstance(e, Load)}
    return frozenset(d.name for d in spec.definitions) - wide
