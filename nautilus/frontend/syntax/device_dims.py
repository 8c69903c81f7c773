"""Sizes in device memory: ``dim N = device <= 4096``.

The grammar reads the value as an expression, because a dim may be called ``device``.  Where none is, the value is a
form of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nautilus.frontend.syntax import ast

WORD = "device"


def device_dims(statements: Sequence[ast.Statement]) -> list[ast.Statement]:
    """``statements``, in which dims of sizes in device memory say so."""
    if any(isinstance(s, ast.Dim | ast.Const) and s.name.id == WORD for s in statements):
        return list(statements)
    return [_device_dim(s) if isinstance(s, ast.Dim) else s for s in statements]


def _device_dim(dim: ast.Dim) -> ast.Dim:
    match dim.value:
        case ast.Name(id=name) if name == WORD:
            bound = None
        case ast.Compare(ops=("<=",), args=(ast.Name(id=name), bound)) if name == WORD:
            pass
        case _:
            return dim
    return replace(dim, value=None, runtime=True, bound=bound, device=True)
