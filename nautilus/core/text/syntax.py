"""The syntax of op fields: one :class:`Syntax` for each kind of field, from which formats are made."""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from nautilus.core.expr.nodes import Const, Expr
from nautilus.core.text.assembly import Reader, Syntax, form_of
from nautilus.core.text.expressions import format_expr, format_list
from nautilus.core.text.tokens import format_number
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType


def format_type(dtype: DType, axes: tuple[TileAxis, ...], brackets: bool = False) -> str:
    """``f32[i: 128, j: 64]``; a single element has brackets only on request."""
    return f"{dtype}[{format_axes(axes)}]" if axes or brackets else str(dtype)


def format_axes(axes: tuple[TileAxis, ...]) -> str:
    """``i: 128, j: 64``."""
    return ", ".join([f"{a.name}: {a.size}" for a in axes])


def read_axis(r: Reader) -> TileAxis:
    """``i: 128``."""
    name = r.ts.name()
    r.ts.expect(":")
    return TileAxis(name, r.ts.integer())


def _read_type(r: Reader) -> TileType:
    dtype = r.ts.dtype()
    return TileType(dtype, r.ts.brackets(lambda: read_axis(r)) if r.ts.text == "[" else ())


def _values(values: Any) -> str:
    return ", ".join([f"%{v.name}" for v in values])


def _pairs(carried: Any) -> str:
    return ", ".join([f"%{arg.name} = %{init.name}" for arg, init in carried])


def _read_pair(r: Reader) -> tuple[Any, Any]:
    name = r.ts.ref()
    r.ts.expect("=")
    init = r.use()
    return replace(init, name=name), init


def _read_pairs(r: Reader) -> Any:
    pairs = r.list(lambda: _read_pair(r)) if r.ts.kind == "ref" else ()
    for arg, _ in pairs:
        r.define(arg)
    return pairs


def _begins_values(r: Reader) -> bool:
    """Whether the next tokens are a list of values, not the left side of the next op."""
    ts, at = r.ts, 0
    while ts.peek(at).startswith("%") and ts.peek(at + 1) == ",":
        at += 2
    return ts.kind == "ref" and ts.peek(at + 1) != "="


def _read_literal(r: Reader) -> tuple[int, Const]:
    at = r.ts.pos
    found = r.ts.literal(r.ts.accept("-"))
    if found is None:
        r.ts.fail(f"expected a literal, found {r.ts.describe()}")
    return at, found


def _finish_literal(r: Reader, found: tuple[int, Const], dtype: DType) -> int | float | bool:
    at, value = found[0], found[1].value
    if isinstance(value, bool) is not (dtype is DType.BOOL) or (dtype.is_int and isinstance(value, float)):
        r.ts.pos = at
        r.ts.fail(f"the literal {value} is not of type {dtype}")
    return float(value) if dtype.is_float else value


def _closed(e: Expr) -> str:
    return format_expr(e) if isinstance(e, Const) else f"({format_expr(e)})"


def _block(r: Reader) -> tuple[Any, ...]:
    body: list[Any] = []
    while r.ts.text not in ("}", "yield"):
        if r.ts.kind == "end":
            r.ts.fail("expected '}', found the end of the text")
        body.append(r.op())
    return tuple(body)


NAME = Syntax("NAME", str, lambda r: r.ts.name(), lambda r: r.ts.kind == "name")
NAMES = Syntax("NAME, ...", ", ".join, lambda r: r.list(r.ts.name))
INTEGER = Syntax("NUMBER", str, lambda r: r.ts.integer())
LAYOUT = Syntax("'#'NAME", "#{}".format, lambda r: r.ts.hash())
DTYPE = Syntax("dtype", str, lambda r: r.ts.dtype())
AXES = Syntax("axes", format_axes, lambda r: r.list(lambda: read_axis(r)) if r.ts.kind == "name" else ())
TYPE = Syntax("dtype ['[' axes ']']", lambda t: format_type(t.dtype, t.axes), _read_type)
EXPR = Syntax("expr", format_expr, lambda r: r.expr())
EXPRS = Syntax("expr, ...", format_list, lambda r: () if r.ts.text == "]" else r.list(r.expr))
#: an expression in parentheses, because the next op may begin with a name
CLOSED = Syntax(
    "(NUMBER | '(' expr ')')", _closed, lambda r: r.expr(), lambda r: r.ts.kind == "number" or r.ts.text == "("
)
VALUE = Syntax("value", lambda v: f"%{v.name}", lambda r: r.use())
VALUES = Syntax("value, ...", _values, lambda r: r.list(r.use) if r.ts.kind == "ref" else (), _begins_values)
CARRIED = Syntax("value '=' value, ...", _pairs, _read_pairs)
#: the number of a constant, in the form of the result's type
LITERAL = Syntax("number", lambda x: format_number(*x), _read_literal, finish=_finish_literal)
REGION = Syntax("op*", lambda _: "", _block)


def flag(word: str) -> Syntax:
    """A bool field that is true where ``word`` is written."""

    def read(r: Reader) -> bool:
        r.ts.expect(word)
        return True

    return Syntax(f"'{word}'", lambda _: word, read, lambda r: r.ts.text == word, (word,))


def choice(noun: str, words: Collection[str]) -> Syntax:
    """One of ``words``. ``noun`` is its name in the grammar."""

    def read(r: Reader) -> str:
        if r.ts.text not in words:
            r.ts.fail(f"expected one of the {noun}s, found {r.ts.describe()}")
        return r.ts.name()

    return Syntax(noun.upper(), str, read, lambda r: r.ts.text in words, words=tuple(words))


def word_of(noun: str, kinds: type[enum.Enum]) -> Syntax:
    """A member of an enumeration by its value."""
    by_word = {k.value: k for k in kinds}
    one = choice(noun, by_word)
    words = " | ".join(f"'{w}'" for w in by_word)
    return Syntax(f"({words})", lambda k: str(k.value), lambda r: by_word[one.read(r)], words=one.words)


def part(cls: type, name: str) -> Syntax:
    """The syntax of a declared class that is not an op. ``name`` is its name in the grammar."""
    form = form_of(cls)
    return Syntax(name, form.text, lambda r: cls(**form.read(r)), form.begins)


def parts(cls: type, name: str) -> Syntax:
    """Any number of instances of a declared class, up to the closing brace."""
    one = part(cls, name)

    def read(r: Reader) -> tuple[Any, ...]:
        out: list[Any] = []
        while r.ts.text != "}":
            out.append(one.read(r))
        return tuple(out)

    return Syntax(f"{name}*", lambda _: "", read)
