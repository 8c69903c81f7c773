"""Text of extents for programs that launch kernels: C in 64-bit integers, and Python."""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.errors import InternalError
from nautilus.core.expr.nodes import Const, Op, Param
from nautilus.core.index.sizes import Extent
from nautilus.core.records import dataclass

_LEVELS = {"add": 1, "sub": 1, "mul": 2, "floordiv": 2, "mod": 2}


@dataclass(frozen=True)
class Spelling:
    """How a language spells an extent; templates have ``{x}`` and ``{y}``.  No extent is below 0."""

    size: str
    symbols: Mapping[str, str]
    calls: Mapping[str, str]


C = Spelling(
    "(long long){x}",
    {"add": "+", "sub": "-", "mul": "*", "floordiv": "/", "mod": "%"},
    {"min": "({x} < {y} ? {x} : {y})", "max": "({x} > {y} ? {x} : {y})"},
)
PYTHON = Spelling("{x}", {**C.symbols, "floordiv": "//"}, {"min": "min({x}, {y})", "max": "max({x}, {y})"})


def extent_text(e: Extent, names: Mapping[str, str], level: int = 0, spelling: Spelling = C) -> str:
    """Text of an extent; ``level``: how strongly the operator around it binds (1: sum, 2: product).

    Raises InternalError.
    """
    match e:
        case int():
            return str(e)
        case Const(value=value):
            return str(value)
        case Param(name=name):
            return spelling.size.format(x=names[name])
        case Op(op="min" | "max" as op, args=(a, b)):
            x, y = (extent_text(n, names, 1, spelling) for n in (a, b))
            return spelling.calls[op].format(x=x, y=y)
        case Op(op=op, args=(a, b)):
            own = _LEVELS[op]
            x, y = extent_text(a, names, own, spelling), extent_text(b, names, own + 1, spelling)
            return f"({x} {spelling.symbols[op]} {y})" if own < level else f"{x} {spelling.symbols[op]} {y}"
    raise InternalError(f"no extent: {e!r}")
