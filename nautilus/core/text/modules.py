"""The text form of modules, which all levels share: declarations of buffers and params, then kernels.

A buffer is ``input x: f16[4, N]``: its space, name, type and shape.  A name in the shape is a runtime size.  Where
indices see an array of another shape, this one stands after ``of``: ``input x: f16[64] of [4, 16]``.
Strides that are not those of row-major order stand after ``strides``: ``input x: f16[4, 16] strides [x_stride0, 1]``.
A param is ``param eps: f32 = 1e-06``; a size known at launch is ``param N: i32 <= 65536 >= 16 % 8``, at most 65536,
at least 16 and a multiple of 8.  A fact that the launcher checks is ``assume M <= N``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Generic, TypeVar

from nautilus.core.buffers import Buffer, Fact, ScalarParam, Space
from nautilus.core.expr.nodes import Expr, Param, Var, rewrite
from nautilus.core.index.sizes import Extent
from nautilus.core.ops import FieldRole, Kind, Level
from nautilus.core.source import Source
from nautilus.core.text.assembly import FORMS, Reader, format_ops, grammar
from nautilus.core.text.syntax import parts
from nautilus.core.text.tokens import TokenStream

M = TypeVar("M")
_GLOBAL = tuple(s.value for s in Space if s is not Space.LOCAL)


def _note_buffer(r: Reader, b: Buffer) -> None:
    r.buffers[b.name] = b.dtype


def _note_param(r: Reader, p: ScalarParam) -> None:
    r.params[p.name] = p.dtype
    if p.most is not None:
        r.sizes[p.name] = p.most, p.least, p.multiple, p.device, None
    elif p.dtype.is_int and p.default is not None:
        r.sizes[p.name] = None, 0, 1, False, int(p.default)


BUFFERS = FieldRole(Kind.ATTRIBUTE, parts(Buffer, "buffer", _GLOBAL, _note_buffer))
LOCALS = FieldRole(Kind.ATTRIBUTE, parts(Buffer, "buffer", (Space.LOCAL.value,), _note_buffer))
PARAMS = FieldRole(Kind.ATTRIBUTE, parts(ScalarParam, "param", note=_note_param))
FACTS = FieldRole(Kind.ATTRIBUTE, parts(Fact, "fact"))


def kernels(cls: type) -> FieldRole:
    """The kernels of a module."""
    return FieldRole(Kind.ATTRIBUTE, parts(cls, "kernel"))


class TextForm(Generic[M]):
    """The text form of a level, whose modules are of class ``module``: ``parse(format(m)) == m`` for every ``m``.

    ``value``: the class of the level's values, the text of which is their type.  ``op``: the word for an op in the
    grammar.
    """

    def __init__(self, module: type[M], level: Level, value: type | None = None, op: str = "op") -> None:
        self.module, self.level, self.value, self._op = module, level, value, op

    def grammar(self) -> str:
        """The productions of the module, and of all that it is made of."""
        return grammar(self.module, self.level.ops, self.value, self._op)

    def format(self, m: M) -> str:
        """The text of a module, ending in a newline."""
        return "\n".join(format_ops((m,))) + "\n"

    def parse(self, text: str, name: str = "") -> M:
        """The module that ``text`` is, whole; ``name`` is the file's, for messages. Raises IRParseError."""
        r = Reader(TokenStream(Source(name or f"<{self.level.name}>", text)), self.level.forms)
        found = FORMS[self.module].read(r)
        r.ts.end()
        found["buffers"] = tuple(_with_sizes(b, r) for b in found["buffers"])
        return self.module(**found)


def _with_sizes(b: Buffer, r: Reader) -> Buffer:
    """``b``, whose extents and support have the params that are declared after it."""

    def size(e: Expr) -> Expr | None:
        if not isinstance(e, Var):
            return None
        return Param(e.name, r.params.get(e.name, e.dtype), e.span, *r.sizes.get(e.name, (None, 0, 1)))

    def sized(shape: tuple[Extent, ...]) -> tuple[Extent, ...]:
        return tuple(e if isinstance(e, int) else rewrite(e, size) for e in shape)

    def declared(e: Expr) -> Expr | None:
        return size(e) if isinstance(e, Var) and e.name in r.params else None

    view, strides = (None if x is None else sized(x) for x in (b.view_of, b.strides))
    support = None if b.support is None else rewrite(b.support, declared)
    return replace(b, shape=sized(b.shape), view_of=view, strides=strides, support=support)
