"""Evaluation of expressions at all points of a space at once.

A :class:`Space` has one dimension for each variable that is an array; other variables are integers.  An array has size
1 along a dimension on which it does not depend.  A load is evaluated under the mask of the points that run and of the
selects around it, because ``select`` is lazy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

import numpy as np

from nautilus.check.validate.meanings import apply
from nautilus.check.validate.memory import Malformed, Memory, Unsupported
from nautilus.check.validate.numbers import Constants, Number, Value
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Ref, Var, free_vars, walk
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.core.types import DType


@dataclass
class Known:
    """The values of a kernel's expressions that have variables and parameters and read nothing.

    Each is computed once for the same arrays of its variables, whose contents never change.
    """

    names: dict[int, tuple[Expr, tuple[str, ...] | None]] = field(default_factory=dict)
    values: dict[tuple[int, ...], tuple[tuple[Array, ...], Value]] = field(default_factory=dict)
    numbers: dict[int, Array] = field(default_factory=dict)

    def variables(self, e: Expr) -> tuple[str, ...] | None:
        """The variables of ``e``; None where it reads memory or SSA values."""
        found = self.names.get(id(e))
        if found is None:
            reads = any(isinstance(n, Load | Ref) for n in walk(e))
            found = self.names[id(e)] = (e, None if reads else tuple(free_vars(e)))
        return found[1]

    def value(self, e: Expr, arrays: tuple[Array, ...], make: Callable[[], Value]) -> Value:
        """The value of ``e``, whose variables are ``arrays``."""
        key = (id(e), *map(id, arrays))
        found = self.values.get(key)
        if found is None:
            found = self.values[key] = (arrays, make())
        return found[1]

    def number(self, n: int) -> Array:
        """The one array for the value ``n`` of a loop variable."""
        return self.numbers.setdefault(n, np.asarray(n))


@dataclass
class Space:
    """The variables, parameters, buffers and SSA values at the points of a program (module docstring)."""

    constants: Constants
    variables: Mapping[str, Array]
    params: Mapping[str, Value]
    buffers: Mapping[str, Memory]
    prefix: tuple[Array, ...] = ()  # of the index of a local: the grid point
    locals: frozenset[str] = frozenset()
    values: Callable[[str], Value] | None = None
    known: Known | None = None
    memo: dict[tuple[int, int], tuple[Expr, Array, Value]] = field(default_factory=dict)

    def value(self, e: Expr, mask: Array) -> Value:
        """The value of ``e`` where ``mask`` holds; anything elsewhere."""
        key = (id(e), id(mask))
        found = self.memo.get(key)
        if found is None:
            names = None if self.known is None else self.known.variables(e)
            if self.known is None or names is None:
                value = self._value(e, mask)
            else:
                arrays = tuple([self.variables[n] for n in names])
                value = self.known.value(e, arrays, lambda: self._value(e, mask))
            found = self.memo[key] = (e, mask, value)
        return found[2]

    def array(self, e: Expr, mask: Array) -> Array:
        """The value of an index, a condition or a bound. Raises Unsupported."""
        found = self.value(e, mask)
        if isinstance(found, Number):
            raise Unsupported("a float is used as an index or a condition")
        return found

    def _value(self, e: Expr, mask: Array) -> Value:
        match e:
            case Const(value=value, dtype=dtype):
                return literal(value, dtype, self.constants)
            case Var(name=name):
                return self.variables[name]
            case Param(name=name):
                return self.params[name]
            case Ref(name=name):
                assert self.values is not None
                return self.values(name)
            case Load(buffer=buffer, index=index):
                at = [self.array(i, mask) for i in index]
                before = self.prefix if buffer in self.locals else ()
                return self.buffers[buffer].read((*before, *at), mask)
            case Op(op="select", args=(c, a, b)):
                chosen = self.array(c, mask)
                sides = [self.value(x, m) for x, m in ((a, mask & chosen), (b, mask & ~chosen))]
                return apply("select", [chosen, *sides], e.dtype, e.dtype, self.constants)
            case Op(op="and" | "or" as op, args=(a, b)):
                first = self.array(a, mask)
                second = self.array(b, mask & (first if op == "and" else ~first))
                return np.asarray(first & second if op == "and" else first | second)
            case Op(op=op, args=args, dtype=dtype):
                try:
                    return apply(op, [self.value(a, mask) for a in args], dtype, args[0].dtype, self.constants)
                except KeyError as error:
                    raise Unsupported(f"function {op}") from error
        raise Unsupported(f"an expression of kind {type(e).__name__}")


def literal(value: int | float | bool, dtype: DType, constants: Constants) -> Value:
    """A constant of type ``dtype``. Raises Malformed for an integer that the type does not hold."""
    if dtype.is_float:
        return constants.number(float(value))
    if dtype is DType.BOOL:
        return np.asarray(bool(value))
    if not -(1 << (dtype.bits - 1)) <= int(value) < 1 << (dtype.bits - 1):
        raise Malformed(f"{value} is no {dtype}")
    return np.asarray(int(value))
