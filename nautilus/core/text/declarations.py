"""The text form of the declarations of buffers and params, which all levels share.

A buffer is ``input x: f16[4, N]``: its space, name, type and shape.  A name in the shape is a runtime size.
A param is ``param eps: f32 = 1e-06``; a size known at launch is ``param N: i32``.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.buffers import Buffer, ScalarParam, Space
from nautilus.core.expr.nodes import Param
from nautilus.core.text.tokens import TokenStream, format_number
from nautilus.core.types import DType

_GLOBAL = frozenset(s.value for s in Space if s is not Space.LOCAL)


def format_buffer(b: Buffer) -> str:
    """``temp s: f32[4, N]``."""
    shape = ", ".join(e.name if isinstance(e, Param) else str(e) for e in b.shape)
    return f"{b.space.value} {b.name}: {b.dtype}[{shape}]"


def format_param(p: ScalarParam) -> str:
    """``param eps: f32 = 1e-06``; without a default, no ``=``."""
    default = "" if p.default is None else f" = {format_number(p.default, p.dtype)}"
    return f"param {p.name}: {p.dtype}{default}"


def parse_buffer(ts: TokenStream) -> Buffer:
    """Parse the buffer at the next token, which is the name of its space. Raises IRParseError."""
    space = Space(ts.name())
    span = ts.span()
    name = ts.name()
    ts.expect(":")
    dtype = ts.dtype()

    def extent() -> int | Param:
        if ts.kind != "name":
            return ts.integer()
        at = ts.span()
        return Param(ts.name(), DType.I32, at)

    return Buffer(name, dtype, ts.brackets(extent), space, span)


def parse_param(ts: TokenStream) -> ScalarParam:
    """Parse the param at the next token, which is ``param``. Raises IRParseError."""
    span = ts.span()
    ts.expect("param")
    name = ts.name()
    ts.expect(":")
    dtype = ts.dtype()
    return ScalarParam(name, dtype, ts.number(dtype) if ts.accept("=") else None, span)


class Declarations:
    """The declarations that a parser has read. It adds the type of every param to ``dtypes``, which is shared."""

    def __init__(self, ts: TokenStream, dtypes: dict[str, DType]) -> None:
        self._ts = ts
        self._dtypes = dtypes
        self._buffers: list[Buffer] = []
        self._params: list[ScalarParam] = []

    def accept(self) -> Buffer | ScalarParam | None:
        """Take a declaration if the next token begins one. Raises IRParseError."""
        if self._ts.text in _GLOBAL:
            self._buffers.append(parse_buffer(self._ts))
            return self._buffers[-1]
        if self._ts.text == "param":
            param = parse_param(self._ts)
            self._params.append(param)
            self._dtypes[param.name] = param.dtype
            return param
        return None

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers. A shape may name a param that is declared later."""
        return tuple(replace(b, shape=tuple(map(self._extent, b.shape))) for b in self._buffers)

    @property
    def params(self) -> tuple[ScalarParam, ...]:
        return tuple(self._params)

    def _extent(self, e: int | Param) -> int | Param:
        return replace(e, dtype=self._dtypes.get(e.name, e.dtype)) if isinstance(e, Param) else e
