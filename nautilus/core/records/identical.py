"""Equality in every detail, also in those that the equality of expressions leaves out.

These are places in the source, facts about sizes, and the sign of zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import copysign
from typing import Any, Final, get_args

from nautilus.core.expr.nodes import Expr, details
from nautilus.core.source import Span

_EXPRESSIONS: Final = get_args(Expr)


def identical(a: Any, b: Any) -> bool:
    """Whether ``a`` and ``b`` have one type and are equal in every detail."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is tuple:
        return len(a) == len(b) and all(map(identical, a, b))
    if isinstance(a, _EXPRESSIONS):
        return bool(a == b) and details(a) == details(b)
    if isinstance(a, Mapping):
        return len(a) == len(b) and all(x == y and identical(a[x], b[y]) for x, y in zip(a, b, strict=True))
    if kind is float:
        return bool(a == b) and copysign(1.0, a) == copysign(1.0, b)
    fields = getattr(kind, "__dataclass_fields__", None)
    if fields is None or kind is Span:
        return bool(a == b)
    return all(identical(getattr(a, name), getattr(b, name)) for name in fields)
