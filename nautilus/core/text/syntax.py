"""The syntax of op fields: one :class:`Syntax` for each kind of field, from which formats are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from nautilus.core.expr.nodes import Const, Expr
from nautilus.core.text.assembly import FORMS, Form, Reader, Syntax
from nautilus.core.text.expressions import format_expr
from nautilus.core.text.tokens import format_number
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType


def _read_pair(r: Reader) -> tuple[Any, Any]:
    name = r.ts.take("ref")
    r.ts.expect("=")
    init = r.use()
    return replace(init, name=name), init


def _read_pairs(r: Reader) -> Any:
    pairs = _PAIRS.read(r)
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
        r.ts.missing("a literal")
    return at, found


def _finish_literal(r: Reader, found: tuple[int, Const], dtype: DType) -> int | float | bool:
    at, value = found[0], found[1].value
    if isinstance(value, bool) is not (dtype is DType.BOOL) or (dtype.is_int and isinstance(value, float)):
        r.ts.fail(f"the literal {value} is not of type {dtype}", at)
    return float(value) if dtype.is_float else value


def _closed(e: Expr) -> str:
    return format_expr(e) if isinstance(e, Const) else f"({format_expr(e)})"


def _block(r: Reader) -> tuple[Any, ...]:
    body: list[Any] = []
    while r.ts.text not in ("}", "yield"):
        if r.ts.kind == "end":
            r.ts.missing("'}'")
        body.append(r.op())
    return tuple(body)


def listed(one: Syntax, begins: Callable[[Reader], bool] | None = None) -> Syntax:
    """Items with commas between them; none where a bracket closes."""

    def show(items: Iterable[Any]) -> str:
        return ", ".join([one.show(x) for x in items])

    def read(r: Reader) -> tuple[Any, ...]:
        return () if r.ts.text in _CLOSING else r.ts.list(lambda: one.read(r))

    return Syntax(f"{one.grammar}, ...", show, read, begins, uses=one.uses)


def _formed(cls: type, format: str, absent: Mapping[str, Any], **syntaxes: Syntax) -> Syntax:
    """The syntax of a class that is declared before there are roles of fields."""
    form = FORMS[cls] = Form(cls, format, syntaxes, absent)
    return Syntax(form.grammar(), form.text, lambda r: cls(**form.read(r)), uses=form.uses)


_CLOSING = (")", "]", "}")
NAME = Syntax("NAME", str, lambda r: r.ts.take(), lambda r: r.ts.kind == "name")
NAMES = listed(NAME)
INTEGER = Syntax("NUMBER", str, lambda r: r.ts.integer())
INTEGERS = listed(INTEGER)
LAYOUT = Syntax("'#'NAME", "#{}".format, lambda r: r.ts.take("hash"))
DTYPE = Syntax("dtype", str, lambda r: r.ts.dtype())
_AXIS = listed(_formed(TileAxis, "$name: $size", {}, name=replace(NAME, grammar="AXIS"), size=INTEGER))
AXES = replace(_AXIS, grammar="axes", uses=(("axes", f"[{_AXIS.grammar}]"),))
TYPE = _formed(TileType, "$dtype([$axes])?", {"axes": ()}, dtype=DTYPE, axes=AXES)
EXPR = Syntax("expr", format_expr, lambda r: r.expr())
EXPRS = listed(EXPR)
#: an expression in parentheses, because the next op may begin with a name
CLOSED = Syntax(
    "(NUMBER | '(' expr ')')", _closed, lambda r: r.expr(), lambda r: r.ts.kind == "number" or r.ts.text == "("
)
VALUE = Syntax("value", lambda v: f"%{v.name}", lambda r: r.use(), uses=(("value", "'%'NAME"),))
VALUES = listed(VALUE, _begins_values)
_PAIRS = listed(Syntax("value '=' value", lambda p: f"%{p[0].name} = %{p[1].name}", _read_pair, uses=VALUE.uses))
CARRIED = replace(_PAIRS, read=_read_pairs)
#: the number of a constant, in the form of the result's type
LITERAL = Syntax("number", format_number, _read_literal, finish=_finish_literal)
REGION = Syntax("op*", str, _block)


def words(table: Mapping[str, Any], grammar: str = "") -> Syntax:
    """One of the words of ``table``, which stands for the value there."""
    text_of = {value: word for word, value in table.items()}

    def read(r: Reader) -> Any:
        if r.ts.text not in table:
            r.ts.missing(" or ".join(table))
        return table[r.ts.take()]

    listed = " | ".join(f"'{w}'" for w in table)
    grammar = grammar or (f"({listed})" if len(table) > 1 else listed)
    return Syntax(grammar, text_of.__getitem__, read, lambda r: r.ts.text in table, tuple(table))


def choice(noun: str, names: Iterable[str]) -> Syntax:
    """One of ``names``. ``noun`` is its name in the grammar."""
    return words({n: n for n in names}, noun.upper())


def part(cls: type, name: str) -> Syntax:
    """The syntax of a declared class that is not an op. ``name`` is its name in the grammar."""
    form = FORMS[cls]
    first = form.first
    return Syntax(name, form.text, lambda r: cls(**form.read(r)), first.begins, first.words, uses=((name, cls),))


def parts(
    cls: type, name: str, words: tuple[str, ...] = (), note: Callable[[Reader, Any], None] = lambda r, x: None
) -> Syntax:
    """Any number of instances of a declared class, which begin with one of ``words``; ``note`` gets each of them."""
    one = part(cls, name)
    first = words or one.words

    def read(r: Reader) -> tuple[Any, ...]:
        out: list[Any] = []
        while r.ts.text in first and r.ts.peek() != "[":  # else a store to a buffer with that name
            out.append(one.read(r))
            note(r, out[-1])
        return tuple(out)

    return Syntax(f"{name}*", str, read, words=first, uses=one.uses)
