"""Operations as Python source on torch tensors, for whole functions and score functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from nautilus.core.expr.nodes import Const
from nautilus.core.functions import FUNCTIONS
from nautilus.core.types import FORMATS, DType

TYPES: Mapping[DType, str] = {d: f"torch.{f.torch}" for d, f in FORMATS.items()}


def number(value: float | int | bool) -> str:
    """``value`` as a Python literal."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)


def operation(op: str, args: Sequence[str], constant: Sequence[bool]) -> str:
    """``op`` on operands given as text; ``constant`` marks Python numbers.  Raises KeyError for an unknown ``op``."""
    if op in ("min", "max"):
        if constant[0] or constant[1]:
            tensor, bound = (args[1], args[0]) if constant[0] else (args[0], args[1])
            return f"torch.clamp({tensor}, {'max' if op == 'min' else 'min'}={bound})"
        return f"torch.{op}imum({args[0]}, {args[1]})"
    form = FUNCTIONS[op].torch
    if not form:
        raise KeyError(op)
    if "{" in form:
        return form.format(*args)
    if op != "select" and any(constant):  # functions of several tensors take no Python numbers
        tensor = next(a for a, c in zip(args, constant, strict=True) if not c)
        args = [f"torch.full_like({tensor}, {a})" if c else a for a, c in zip(args, constant, strict=True)]
    return f"torch.{form}({', '.join(args)})"


def is_number(e: object) -> bool:
    """Whether ``e`` is a literal."""
    return isinstance(e, Const)
