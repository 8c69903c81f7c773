"""Whether two expressions of indices have the same value at every value of their variables.

A variable has the values that the conditions leave it.  Both sides are computed at all of them, each operation in the
arithmetic of its type: a number of f32 is rounded after every operation, so what is no exact fraction differs here.
Integers are computed in 64 bits, and a side that leaves 32 bits is not decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nautilus.check.validate.verdict import Verdict
from nautilus.core.expr.nodes import Const, Expr, Op, Var, walk
from nautilus.core.types import DType

Array: TypeAlias = NDArray[Any]

_MOST = 1 << 20  # values of all variables together
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "min": np.minimum, "max": np.maximum,
    "floor": np.floor, "ceil": np.ceil,
}  # fmt: skip
_OF_INTEGERS: Mapping[str, Callable[..., Any]] = {"floordiv": np.floor_divide, "mod": np.mod}


class _UndecidedError(Exception):
    """A side has an operation without a meaning here, or a value without one."""


def same_values(
    before: Expr, after: Expr, bindings: Mapping[str, Expr], conditions: Sequence[Expr], seed: int = 0
) -> Verdict:
    """The verdict on ``before == after`` at all values of the variables in the ranges of ``conditions``.

    ``bindings``, ``seed``: as for the engines of other rules, not used.
    """
    del bindings, seed
    names = sorted({n.name for e in (before, after) for n in walk(e) if isinstance(n, Var)})
    try:
        ranges = [_range(v, conditions) for v in names]
        if prod(map(len, ranges)) > _MOST:
            raise _UndecidedError("the variables have too many values")
        grids = np.meshgrid(*(np.arange(r.start, r.stop, dtype=np.int64) for r in ranges), indexing="ij")
        env = {v: g.reshape(-1) for v, g in zip(names, grids, strict=True)}
        left, right = (_value(e, env) for e in (before, after))
    except _UndecidedError as e:
        return Verdict("not decided", detail=str(e))
    left, right = np.broadcast_arrays(left, right)
    wrong = (left != right) | (np.signbit(left) != np.signbit(right))
    if before.dtype is not after.dtype or wrong.any():
        at = int(np.argmax(wrong)) if wrong.shape else 0
        place = ", ".join(f"{v} = {x[at]}" for v, x in env.items())
        return Verdict("refuted", detail=f"the two sides differ at {place}")
    return Verdict("proved", int(left.size))


def _range(name: str, conditions: Sequence[Expr]) -> range:
    """The values of a variable that the conditions on it alone leave."""
    lo, hi = [], []
    for c in conditions:
        match c:
            case Op(op="ge", args=(Var(name=v), Const(value=n))) if v == name:
                lo.append(int(n))
            case Op(op="lt", args=(Var(name=v), Const(value=n))) if v == name:
                hi.append(int(n))
    if not lo or not hi:
        raise _UndecidedError(f"{name} has no range")
    return range(max(lo), min(hi))


def _value(e: Expr, env: Mapping[str, Array]) -> Array:
    """The values of ``e``: of f32, or integers in 64 bits."""
    match e:
        case Const(value=value):
            return np.asarray(value, np.float32 if e.dtype is DType.F32 else np.int64)
        case Var(name=name):
            return env[name]
        case Op(args=args) if e.dtype in (DType.F32, DType.I32):
            made = _applied(e, [_value(a, env) for a in args])
            if e.dtype is DType.I32 and (np.abs(made) >= 2**31).any():
                raise _UndecidedError("an integer leaves 32 bits")
            return made
    raise _UndecidedError(f"{e.dtype} has no meaning here")


def _applied(e: Op, args: Sequence[Array]) -> Array:
    kind = np.float32 if e.dtype is DType.F32 else np.int64
    kinds = set(_types(e))
    if e.op == "cast" and kinds <= {DType.F32, DType.I32}:
        if not np.isfinite(args[0]).all():
            raise _UndecidedError("a conversion of a number that is not finite")
        return np.asarray(np.trunc(args[0])).astype(kind) if e.dtype is DType.I32 else args[0].astype(kind)
    if e.op == "div" and kinds == {DType.F32} and (args[1] != 0).all():
        return np.asarray(np.divide(args[0], args[1], dtype=np.float32))
    if e.op in _OF_INTEGERS and kinds == {DType.I32} and (args[1] > 0).all():
        return np.asarray(_OF_INTEGERS[e.op](*args))
    if e.op in _FUNCTIONS and kinds == {e.dtype}:
        return np.asarray(_FUNCTIONS[e.op](*args, dtype=kind)) if kind is np.float32 else _of_whole(e.op, args)
    raise _UndecidedError(f"{e.op} has no meaning here")


def _of_whole(op: str, args: Sequence[Array]) -> Array:
    return np.asarray(_FUNCTIONS[op](*args)).astype(np.int64)


def _types(e: Op) -> Iterator[DType]:
    yield from (a.dtype for a in e.args)
