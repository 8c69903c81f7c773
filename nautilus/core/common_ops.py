"""Ops that the tile levels have in common: VR-tile IR and MA-tile IR derive their classes from these.

``V`` is the value type of the level and ``O`` the union of its ops.  A level states the meaning that is its own, such
as where a value lies; what an op computes, its fields and its text are declared here.
"""

from __future__ import annotations

from math import isqrt
from typing import Final, Generic, TypeVar

from nautilus.core.expr.nodes import Expr
from nautilus.core.op_fields import (
    AXIS,
    CARRIED,
    COMBINER,
    EXPR,
    FUNCTION,
    INTEGERS,
    LITERAL,
    NAME,
    OPERAND,
    OPERANDS,
    REGION,
    RESULTS,
    VARIABLE,
    flag,
)
from nautilus.core.ops import RESULT, SPAN, common, declare
from nautilus.core.source import Span

LEAST_FACTOR: Final = 2.0**-126  # least magnitude of a product of factors that are not 0: the least normal f32

#: Binary digits, at most, by which combined steps of a recurrence are less exact than steps one after another.
DIGITS_LOST: Final = 3

V = TypeVar("V")
O = TypeVar("O")  # noqa: E741


def largest_factor(steps: int) -> float:
    """The greatest magnitude in the matrices of up to ``steps`` steps that are combined in any order.

    A state that is found by a matrix with elements of that size has one rounding that is as many times as large as the
    state, where the terms cancel.  Steps one after another have a rounding each, and together the square root of their
    number.  Later steps amplify both alike, so the quotient of the two is the loss of precision.
    """
    return float(isqrt(steps << 2 * DIGITS_LOST))


@common("const $value")
class CommonConst(Generic[V]):
    """Every element is ``value``."""

    result: V = declare(RESULT)
    value: int | float | bool = declare(LITERAL)
    span: Span = SPAN


@common("index $expr")
class CommonIndex(Generic[V]):
    """An integer or bool function of variables, tile axes, params and values."""

    result: V = declare(RESULT)
    expr: Expr = declare(EXPR)
    span: Span = SPAN


@common("param $param")
class CommonParam(Generic[V]):
    """A scalar argument."""

    result: V = declare(RESULT)
    param: str = declare(NAME)
    span: Span = SPAN


@common("$op $args")
class CommonMap(Generic[V]):
    """Elementwise ``op`` with broadcasting by axis name."""

    result: V = declare(RESULT)
    op: str = declare(FUNCTION)
    args: tuple[V, ...] = declare(OPERANDS)
    span: Span = SPAN


@common(
    "scan $combiner $arg( by $by)?( states $states by $factors at $places)?"
    " over $axis into $into( $reverse)?( $exclusive)?"
)
class CommonScan(Generic[V]):
    """Element ``t`` along ``into`` is ``combiner`` over the elements of ``arg`` at positions up to ``t`` of ``axis``.

    ``reverse``: at positions from ``t`` on; ``exclusive``: without position ``t`` itself.  The two axes have one size,
    and under ``by`` and ``states`` they are one axis.

    ``by``, for sums: the factors of a linear recurrence.  Element ``t`` is ``by[t] * before + arg[t]``, where
    ``before`` is the element before ``t`` in the order of the scan, and 0 at first.  A factor of inf says that it is
    ``arg[t]`` alone, whatever is before it; other factors of floats are at most 1 in magnitude.
    Steps are combined in any order, and a product of factors that are not 0 is kept at a least magnitude of
    :data:`LEAST_FACTOR`, so that it does not underflow.

    ``states``, for sums: the axis of states that need each other.  Those at ``t`` are a matrix of factors times those
    before ``t``, plus ``arg[t]``; the first ones are ``arg[t]`` alone.  Each of ``factors`` has a place in the matrix,
    ``row * size + column`` with the size of the axis; other places have no term, and states of columns without places
    are read by no step.  Steps are combined in any order as long as all matrices have elements of at most
    :func:`largest_factor` and all states are finite, and one after another where not.
    """

    result: V = declare(RESULT)
    combiner: str = declare(COMBINER)
    arg: V = declare(OPERAND)
    axis: str = declare(AXIS)
    into: str = declare(AXIS)
    reverse: bool = declare(flag("reverse"), default=False)
    exclusive: bool = declare(flag("exclusive"), default=False)
    span: Span = SPAN
    by: V | None = declare(OPERAND, default=None)
    states: str | None = declare(AXIS, default=None)
    factors: tuple[V, ...] = declare(OPERANDS, default=())
    places: tuple[int, ...] = declare(INTEGERS, default=())

    @property
    def is_recurrence(self) -> bool:
        """Whether an element is computed from the one before it by factors."""
        return self.by is not None or self.states is not None


@common("for $var in $lo..$hi( chain $chain)? carry($carried) {$body yield $yields}")
class CommonFor(Generic[V, O]):
    """``for var in lo..hi``; ``carried`` pairs body arguments with initial values."""

    results: tuple[V, ...] = declare(RESULTS)
    var: str = declare(VARIABLE)
    lo: Expr = declare(EXPR)
    hi: Expr = declare(EXPR)
    carried: tuple[tuple[V, V], ...] = declare(CARRIED)
    body: tuple[O, ...] = declare(REGION)
    yields: tuple[V, ...] = declare(OPERANDS)
    chain: str | None = declare(NAME, default=None)
    span: Span = SPAN
