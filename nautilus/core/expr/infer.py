"""The typing rule of ``core.expr.nodes``: the result type of an operation from its arguments' types.

Because of this rule the text form omits operation types.  Every verifier applies it.  ``Function.types`` gives the
rule of each operation (``core.functions``)::

    NUMBER      T, T, ... -> T             T a compute type, not bool
    ANY         T, T, ... -> T             T a compute type
    FLOAT       T, T, ... -> T             T f32 or f64
    COMPARISON  T, T -> bool               T a compute type
    INTEGER     T, T, ... -> T             T i32 or i64
    LOGIC       bool, ... -> bool
    SELECT      bool, T, T -> T            T any type
    CONVERSION  T -> the type that is written

``min`` and ``max`` take bool too (``any`` and ``all`` of a mask).  A reduction has its body's
compute type; ``any`` and ``all`` need bool.
"""

from __future__ import annotations

from collections.abc import Sequence

from nautilus.core.expr.nodes import COMBINERS, Const, Expr, Op
from nautilus.core.functions import FUNCTIONS, Types
from nautilus.core.types import COMPUTE_TYPES, INDEX_TYPES, DType

_TAKES = {
    Types.NUMBER: COMPUTE_TYPES - {DType.BOOL}, Types.ANY: COMPUTE_TYPES,
    Types.FLOAT: frozenset({DType.F32, DType.F64}),
    Types.INTEGER: INDEX_TYPES, Types.COMPARISON: COMPUTE_TYPES, Types.LOGIC: frozenset({DType.BOOL}),
}  # fmt: skip
#: function -> arity, kind of rule and argument types; parsers read it at every operation
_RULES = {f.name: (f.arity, f.types.name.lower(), _TAKES.get(f.types, frozenset[DType]())) for f in FUNCTIONS.values()}


class DTypeError(ValueError):
    """An operation applied to types that it does not take."""


def result_dtype(op: str, args: Sequence[DType], target: DType | None = None) -> DType:
    """The type of ``op`` on arguments of types ``args``; ``target`` is the written type of cast and narrow.

    Raises DTypeError for types that the rule of the module docstring does not permit.
    """
    rule = _RULES.get(op)
    if rule is None:
        raise DTypeError(f"unknown operation {op!r}")
    arity, kind, takes = rule
    if len(args) != arity:
        raise DTypeError(f"{op} takes {arity} argument(s), not {len(args)}")
    if kind == "conversion":
        if target is None:
            raise DTypeError(f"{op} needs a target type")
        return target
    if kind == "select":
        if args[0] is not DType.BOOL or args[1] is not args[2]:
            raise DTypeError(f"select takes bool, T, T, not {_list(args)}")
        return args[1]
    t = args[0]
    if t not in takes or any(a is not t for a in args):
        if any(a is not t for a in args) or t not in COMPUTE_TYPES:
            raise DTypeError(f"{op} takes arguments of one compute type, not {_list(args)}")
        raise DTypeError(f"{op} does not take {t}")
    return DType.BOOL if kind == "comparison" else t


def _list(types: Sequence[DType]) -> str:
    return ", ".join(str(t) for t in types)


def reduce_dtype(op: str, body: DType) -> DType:
    """The type of a reduction of values of type ``body``. Raises DTypeError."""
    if op not in COMBINERS:
        raise DTypeError(f"unknown reduction {op!r}")
    if op in ("any", "all"):
        if body is not DType.BOOL:
            raise DTypeError(f"{op} takes bool, not {body}")
        return body
    if body not in COMPUTE_TYPES or (body is DType.BOOL and op not in ("max", "min")):
        raise DTypeError(f"{op} takes a number of a compute type, not {body}")
    return body


def make(op: str, *args: Expr, dtype: DType | None = None) -> Op:
    """An ``Op`` with its type inferred (``dtype``: the target of cast and narrow). Raises DTypeError."""
    return Op(op, args, result_dtype(op, [a.dtype for a in args], dtype))


def stored_value(e: Expr, dtype: DType) -> Expr:
    """What a store of ``e`` to a buffer of ``dtype`` writes.

    A value of ``dtype`` that was widened, or 0, is not rounded a second time.
    """
    match e:
        case Op(op="cast", args=(inner,)) if inner.dtype is dtype:
            return inner
        case Op(op="select", args=(condition, value, Const(value=0.0) as zero)):
            narrowed = stored_value(value, dtype)
            if narrowed is not value:
                rounding = "narrow" if dtype.is_float else "cast"
                return Op("select", (condition, narrowed, Op(rounding, (zero,), dtype, e.span)), dtype, e.span)
    return e
