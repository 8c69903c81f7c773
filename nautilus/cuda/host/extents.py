"""C text of extents, in 64-bit integers."""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.errors import InternalError
from nautilus.core.expr.nodes import Const, Op, Param
from nautilus.core.index.sizes import Extent

_SYMBOLS = {"add": ("+", 1), "sub": ("-", 1), "mul": ("*", 2), "floordiv": ("/", 2), "mod": ("%", 2)}


def extent_text(e: Extent, names: Mapping[str, str], level: int = 0) -> str:
    """C text of an extent; ``level``: how strongly the operator around it binds (1: sum, 2: product)."""
    match e:
        case int():
            return str(e)
        case Const(value=value):
            return str(value)
        case Param(name=name):
            return f"(long long){names[name]}"
        case Op(op="min" | "max" as op, args=(a, b)):
            x, y = extent_text(a, names, 1), extent_text(b, names, 1)
            return f"({x} {'<' if op == 'min' else '>'} {y} ? {x} : {y})"
        case Op(op=op, args=(a, b)):
            symbol, own = _SYMBOLS[op]
            text = f"{extent_text(a, names, own)} {symbol} {extent_text(b, names, own + 1)}"
            return f"({text})" if own < level else text
    raise InternalError(f"no extent: {e!r}")
