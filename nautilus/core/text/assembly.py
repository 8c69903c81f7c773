"""Assembly formats: one string an op from which its printer, its parser and its line of the grammar derive.

A format is the text of an op with ``$field`` where a field stands, for example
``"st.shared $slot( block $block)?, $value vec $vec"``::

    $field     the field, in the syntax of its role (:mod:`nautilus.core.text.syntax`)
    ( ... )?   printed where a field in it differs from its default; parsed where its first token is next
    {$body}    the ops of a region, a line each; the text between the body and ``}`` is printed as a line of its own
    all else   printed literally, spaces included; parsed token by token

An op with a result is printed as ``%name = FORMAT : TYPE``, an op with several as ``%a, %b = FORMAT``.  A format is
compiled once, when its class is declared (:mod:`nautilus.core.ops`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeAlias

from nautilus.core.source import Span
from nautilus.core.text.declarations import Declarations, format_buffer, format_param
from nautilus.core.text.expressions import ExprParser
from nautilus.core.text.tokens import TokenStream, token_texts
from nautilus.core.types import DType

STEP = "  "
_FORMAT = re.compile(r"\$(?P<field>\w+)|(?P<open>\()|(?P<optional>\)\?)|(?P<close>\))|(?P<text>[^$()]+)")


@dataclass(frozen=True, slots=True)
class Syntax:
    """The syntax of a field. ``begins`` tests whether the next token may start it (only for optional fields).

    ``words``: the words that it can begin with, where they are known.  ``finish`` computes the final value of the
    field from the parsed value and the type of the op's result.
    """

    grammar: str
    show: Callable[[Any], str]
    read: Callable[[Reader], Any]
    begins: Callable[[Reader], bool] | None = None
    words: tuple[str, ...] = ()
    finish: Callable[[Reader, Any, DType], Any] | None = None


class Reader:
    """A parser of one module of a level: its tokens, and the declarations and values before the next token."""

    def __init__(self, ts: TokenStream, forms: Forms) -> None:
        self.ts, self.forms = ts, forms
        self.buffers: dict[str, DType] = {}
        self.params: dict[str, DType] = {}
        self.dtypes: dict[str, DType] = {}
        self.values: dict[str, Any] = {}
        self.expr = ExprParser(ts, self.buffers, self.params, self.dtypes).parse

    def module(self, kernel: Callable[[Reader], Any], declared: Declarations) -> tuple[Any, ...]:
        """``{ buffer* param* kernel* }``; gives the kernels."""
        ts, kernels = self.ts, list[Any]()
        with ts.braces() as more:
            while more():
                if declared.accept() is None:
                    if ts.text != "kernel":
                        ts.fail(f"expected input, output, temp, param or kernel, found {ts.describe()}")
                    self.values.clear()
                    self.dtypes.clear()
                    kernels.append(kernel(self))
        ts.end()
        return tuple(kernels)

    def use(self) -> Any:
        """A value that is defined already."""
        name = self.ts.ref()
        if name not in self.values:
            self.ts.pos -= 1
            self.ts.fail(f"unknown {self.forms.noun} %{name}")
        return self.values[name]

    def define(self, value: Any) -> Any:
        """Register ``value`` for the ops after it."""
        self.values[value.name] = value
        self.dtypes[value.name] = value.type.dtype
        return value

    def list(self, item: Callable[[], Any]) -> tuple[Any, ...]:
        """``item, item, ...``: at least one."""
        out = [item()]
        while self.ts.accept(","):
            out.append(item())
        return tuple(out)

    def op(self) -> Any:
        """One op. Raises IRParseError."""
        ts, at, span = self.ts, self.ts.pos, self.ts.span()
        names = self.list(ts.ref) if ts.kind == "ref" else ()
        if names:
            ts.expect("=")
        form = (self.forms.defining if names else self.forms.statements).get(ts.text)
        if form is None:
            if names and ts.kind == "name":
                ts.fail(f"unknown operation {ts.text!r}")
            ts.fail(f"expected an operation, found {ts.describe()}")
        if len(names) > 1 and not form.carries:
            ts.fail(f"only a loop defines several {self.forms.noun}s")
        return form.read_op(self, names, span, at)


@dataclass(frozen=True, slots=True)
class _Text:
    text: str
    words: tuple[str, ...]

    def show(self, _: Any) -> str:
        return self.text

    def begins(self, r: Reader) -> bool:
        return r.ts.text == self.words[0]

    def read(self, r: Reader, _: dict[str, Any]) -> None:
        for word in self.words:
            r.ts.expect(word)

    def grammar(self) -> str:
        return " ".join(f"'{word}'" for word in self.words)


def _text(text: str) -> _Text:
    return _Text(text, token_texts(text))


class _Field:
    def __init__(self, name: str, syntax: Syntax) -> None:
        self.name, self.syntax, self.words = name, syntax, syntax.words
        show = syntax.show
        get = attrgetter(name) if syntax.finish is None else attrgetter(name, "result.type.dtype")
        self.show: Callable[[Any], str] = lambda x: show(get(x))

    def begins(self, r: Reader) -> bool:
        return self.syntax.begins is not None and self.syntax.begins(r)

    def read(self, r: Reader, out: dict[str, Any]) -> None:
        out[self.name] = self.syntax.read(r)

    def grammar(self) -> str:
        return self.syntax.grammar


class _Group:
    def __init__(self, items: tuple[_Item, ...], absent: Mapping[str, Any]) -> None:
        self.items, self.absent = items, tuple(absent.items())
        self.first = next(i for i in items if i.words or isinstance(i, _Field))
        self.words: tuple[str, ...] = self.first.words

    def show(self, x: Any) -> str:
        for name, value in self.absent:
            found = getattr(x, name)
            if found is not value and found != value:
                return "".join([i.show(x) for i in self.items])
        return ""

    def begins(self, r: Reader) -> bool:
        return self.first.begins(r)

    def read(self, r: Reader, out: dict[str, Any]) -> None:
        if self.first.begins(r):
            for i in self.items:
                i.read(r, out)

    def grammar(self) -> str:
        return f"[{_grammar(self.items)}]"


_Item: TypeAlias = _Text | _Field | _Group


def _grammar(items: tuple[_Item, ...]) -> str:
    return " ".join(filter(None, (i.grammar() for i in items)))


class Form:
    """The text form of one class: compiled from its format and the syntax of each field.

    ``absent``: the values of optional fields that are not written.  ``carries``: the field of a loop's carried values,
    which gives the types of its results.
    """

    def __init__(
        self, cls: type, format: str, syntaxes: Mapping[str, Syntax], absent: Mapping[str, Any], region: str | None
    ) -> None:
        self.cls, self.region, self.absent = cls, region, dict[str, Any]()
        self.result = False
        self.carries: str | None = None
        self._fields: set[str] = set()
        self._finished = [(n, s.finish) for n, s in syntaxes.items() if s.finish is not None]
        head, _, tail = format.partition(f"${region}") if region else (format, "", "")
        self.head = self._compile(head, syntaxes, absent)
        self.tail = self._compile(tail, syntaxes, absent)
        self._body = syntaxes[region] if region else None
        missing = syntaxes.keys() - self._fields - {region}
        if missing:
            raise TypeError(f"{cls.__name__}: the format {format!r} lacks {', '.join(sorted(missing))}")

    def _compile(self, format: str, syntaxes: Mapping[str, Syntax], absent: Mapping[str, Any]) -> tuple[_Item, ...]:
        stack: list[tuple[list[_Item], dict[str, Any]]] = [([], {})]
        for m in _FORMAT.finditer(format):
            items, inner = stack[-1]
            if m["open"]:
                stack.append(([], {}))
            elif m["optional"]:
                stack.pop()
                stack[-1][0].append(_Group(tuple(items), inner))
                stack[-1][1].update(inner)
                self.absent |= inner
            elif m["close"]:  # parentheses of the text itself
                stack.pop()
                stack[-1][0].extend((_text("("), *items, _text(")")))
                stack[-1][1].update(inner)
            elif m["text"]:
                items.append(_text(m["text"]))
            else:
                name = m["field"]
                if name not in syntaxes:
                    raise TypeError(f"{self.cls.__name__}: the format {format!r} has no field ${name}")
                self._fields.add(name)
                items.append(_Field(name, syntaxes[name]))
                inner[name] = absent.get(name)
        return tuple(stack[0][0])

    @property
    def keywords(self) -> tuple[str, ...]:
        """The words that the form can begin with."""
        return self.head[0].words[: 1 if isinstance(self.head[0], _Text) else None]

    def begins(self, r: Reader) -> bool:
        """Whether the form may begin at the next token."""
        return self.head[0].begins(r)

    # -- printing -----------------------------------------------------------------------------
    def text(self, x: Any) -> str:
        """``x`` as one line; where it has a region, the line ends in the brace that opens it."""
        text = "".join([i.show(x) for i in self.head])
        if self.result:
            value = x.result
            return f"%{value.name} = {text} : {form_of(type(value)).text(value)}"
        if self.carries and x.results:
            return f"{', '.join([f'%{v.name}' for v in x.results])} = {text}"
        return text

    def add_lines(self, x: Any, depth: int, out: list[str]) -> None:
        """Append the lines of ``x``."""
        pad = STEP * depth
        out.append(pad + self.text(x))
        if self.region is not None:
            for inner in getattr(x, self.region):
                form_of(type(inner)).add_lines(inner, depth + 1, out)
            last = "".join([i.show(x) for i in self.tail]).removesuffix("}").strip()
            if last:
                out.append(pad + STEP + last)
            out.append(pad + "}")

    # -- parsing ------------------------------------------------------------------------------
    def read(self, r: Reader) -> dict[str, Any]:
        """The fields of the form at the next token."""
        out = dict(self.absent)
        for i in self.head:
            i.read(r, out)
        if self._body is not None:
            outer = r.values.keys() - {arg.name for arg, _ in (out[self.carries] if self.carries else ())}
            out[self.region or ""] = self._body.read(r)
            for i in self.tail:
                i.read(r, out)
            for name in r.values.keys() - outer:
                del r.values[name], r.dtypes[name]
        return out

    def read_op(self, r: Reader, names: tuple[str, ...], span: Span, at: int) -> Any:
        """The op that defines ``names``; its first token is number ``at``."""
        out = self.read(r)
        if self.carries:
            args = [arg for arg, _ in out[self.carries]]
            if len(args) != len(names):
                r.ts.pos = at
                r.ts.fail(f"{len(names)} result(s) for {len(args)} carried value(s)")
            pairs = zip(names, args, strict=True)
            out["results"] = tuple(r.define(replace(arg, name=name)) for name, arg in pairs)
        elif self.result:
            r.ts.expect(":")
            value = r.forms.value
            out["result"] = result = r.define(value.cls(name=names[0], **value.read(r)))
            for name, finish in self._finished:
                out[name] = finish(r, out[name], result.type.dtype)
        return self.cls(**out, span=span)

    def grammar(self) -> str:
        """The right side of the form's production."""
        body = self._body.grammar if self._body is not None else ""
        text = " ".join(x for x in (_grammar(self.head), body, _grammar(self.tail)) if x)
        if self.carries:
            return f"[value, ... '='] {text}"
        return f"value '=' {text} ':' type" if self.result else text


_FORMS: dict[type, Form] = {}


def form_of(cls: type) -> Form:
    """The text form of a declared class. Raises KeyError for one that is not."""
    return _FORMS[cls]


def register(form: Form) -> None:
    """Register the form for :func:`form_of`."""
    _FORMS[form.cls] = form


class Forms:
    """The ops of a level by their first word. ``noun`` is the level's word for a value, ``of`` the class of values."""

    def __init__(self, noun: str, of: type | None = None) -> None:
        self.noun, self._of = noun, of
        self.statements: dict[str, Form] = {}
        self.defining: dict[str, Form] = {}

    @property
    def value(self) -> Form:
        assert self._of is not None
        return form_of(self._of)

    def add(self, form: Form) -> None:
        """Register an op. Raises TypeError if another op begins with its word."""
        tables = [self.defining] if form.result else [self.statements]
        tables += [self.defining] if form.carries else []
        for table in tables:
            for word in form.keywords:
                if word in table:
                    raise TypeError(f"{form.cls.__name__} and {table[word].cls.__name__} both begin with {word}")
                table[word] = form


def format_op(op: Any) -> str:
    """One op as one line (an op with a region: its head)."""
    return form_of(type(op)).text(op)


def format_ops(body: tuple[Any, ...], depth: int = 0) -> list[str]:
    """The lines of a block of ops."""
    out: list[str] = []
    for op in body:
        form_of(type(op)).add_lines(op, depth, out)
    return out


def format_module(head: str, buffers: Any, params: Any, kernels: Iterable[list[str]]) -> str:
    """The text of a module from its first words, its declarations and the lines of each kernel."""
    lines = [head + " {", *(STEP + format_buffer(b) for b in buffers), *(STEP + format_param(p) for p in params)]
    return "\n".join([*lines, *(STEP + line for k in kernels for line in k), "}"]) + "\n"


#: the productions of :mod:`nautilus.core.text.declarations`, which all levels share
DECLARATIONS: Mapping[str, str] = {
    "buffer": "('input' | 'output' | 'temp') NAME ':' dtype '[' extent, ... ']'",
    "param": "'param' NAME ':' dtype ['=' number]",
    "extent": "NUMBER | NAME",
}


def grammar(start: Mapping[str, str], parts: Mapping[str, type], ops: Iterable[type], op: str = "op") -> str:
    """The grammar of a level: ``start`` as it is, then one production a declared part, and one for all its ops."""
    rows = {**start, **{name: form_of(cls).grammar() for name, cls in parts.items()}}
    lines = [f"{name:<8} := {text}" for name, text in rows.items()]
    return "\n".join([*lines, f"{op:<8} := " + ("\n" + 9 * " " + "| ").join(form_of(c).grammar() for c in ops)]) + "\n"
