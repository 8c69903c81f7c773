"""Operations as Python source on torch tensors, for whole functions and score functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from nautilus.core.expr.nodes import Const
from nautilus.core.types import DType

TYPES: Mapping[DType, str] = {
    DType.F64: "torch.float64", DType.F32: "torch.float32", DType.TF32: "torch.float32",
    DType.F16: "torch.float16", DType.BF16: "torch.bfloat16",
    DType.F8E4M3: "torch.float8_e4m3fn", DType.F8E5M2: "torch.float8_e5m2",
    DType.I64: "torch.int64", DType.I32: "torch.int32", DType.I16: "torch.int16",
    DType.I8: "torch.int8", DType.U8: "torch.uint8", DType.BOOL: "torch.bool",
}  # fmt: skip

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "and": "&", "or": "|",
}  # fmt: skip
_CALLS = {
    "abs": "abs", "sign": "sign", "floor": "floor", "ceil": "ceil", "round": "round", "exp": "exp", "exp2": "exp2",
    "log": "log", "log2": "log2", "sqrt": "sqrt", "rsqrt": "rsqrt", "rcp": "reciprocal", "sin": "sin", "cos": "cos",
    "tanh": "tanh", "sigmoid": "sigmoid", "erf": "erf", "not": "logical_not",
}  # fmt: skip


def number(value: float | int | bool) -> str:
    """``value`` as a Python literal."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)


def operation(op: str, args: Sequence[str], constant: Sequence[bool]) -> str:
    """``op`` on operands given as text; ``constant`` marks Python numbers.  Raises KeyError for an unknown ``op``."""
    if op in _INFIX:
        return f"({args[0]} {_INFIX[op]} {args[1]})"
    if op in _CALLS:
        return f"torch.{_CALLS[op]}({args[0]})"
    match op:
        case "neg":
            return f"(-{args[0]})"
        case "fma":
            return f"({args[0]} * {args[1]} + {args[2]})"
        case "select":
            return f"torch.where({args[0]}, {args[1]}, {args[2]})"
        case "min" | "max":
            if constant[0] or constant[1]:
                tensor, bound = (args[1], args[0]) if constant[0] else (args[0], args[1])
                return f"torch.clamp({tensor}, {'max' if op == 'min' else 'min'}={bound})"
            return f"torch.{op}imum({args[0]}, {args[1]})"
    raise KeyError(op)


def is_number(e: object) -> bool:
    return isinstance(e, Const)
