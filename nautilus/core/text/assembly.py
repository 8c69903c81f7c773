"""Assembly formats: one string a class from which its printer, its parser and its line of the grammar derive.

A format is the text of an op, or of another declared class, with ``$field`` where a field stands, for example
``"st.shared $slot( block $block)?, $value vec $vec"``::

    $field      the field, in the syntax of its role (:mod:`nautilus.core.text.syntax`)
    ( ... )?    printed where a field in it differs from its default; parsed where its first token is next
    {$a $b ...} fields of which each item is a line, or lines, of its own; what follows them up to ``}`` is a line too
    all else    printed literally, spaces included; parsed token by token

An op with a result is printed as ``%name = FORMAT : TYPE``, an op with several as ``%a, %b = FORMAT``.  A module and
its kernels are declared in the same way.  The fields of a format are checked when its class is declared
(:mod:`nautilus.core.ops`).  It is compiled at its first use, as most compilations print and parse no IR.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

from nautilus.core.records import dataclass
from nautilus.core.text.expressions import ExprParser
from nautilus.core.text.tokens import TokenStream, token_texts
from nautilus.core.types import DType

STEP = "  "
_FORMAT = re.compile(r"\$(?P<field>\w+)|(?P<open>\()|(?P<optional>\)\?)|(?P<close>\))|(?P<text>[^$()]+)")
_LINES = re.compile(r"(?:\$\w+ ?)*")
_WRITTEN = re.compile(r"\$(\w+)")
_WORD = re.compile(r"[a-z][\w.]*(?= |$)")


@dataclass(frozen=True, slots=True)
class Syntax:
    """The syntax of a field. ``begins`` tests whether the next token may start it (only for optional fields).

    ``words``: the words that it can begin with, where they are known.  ``items``: of a field in braces, its items,
    each a line or an instance of a declared class.  ``show`` and ``finish`` of a field that depends on the element type
    of the result take that type as well; ``finish`` computes the final value from the parsed one.  ``uses``: names in
    ``grammar`` with productions of their own, each with its text or the declared class that has it.
    """

    grammar: str
    show: Callable[..., str]
    read: Callable[[Reader], Any]
    begins: Callable[[Reader], bool] | None = None
    words: tuple[str, ...] = ()
    items: Callable[[Any], Iterable[Any]] = tuple
    finish: Callable[[Reader, Any, DType], Any] | None = None
    uses: tuple[tuple[str, str | type], ...] = ()


class Reader(ExprParser):
    """A parser of one module of a level: its tokens, and the declarations and values before the next token."""

    def __init__(self, ts: TokenStream, forms: Forms) -> None:
        super().__init__(ts)
        self.forms = forms
        self.defined: dict[str, Any] = {}

    def use(self) -> Any:
        """A value that is defined already."""
        name = self.ts.take("ref")
        if name not in self.defined:
            self.ts.fail(f"unknown {self.forms.noun} %{name}", self.ts.pos - 1)
        return self.defined[name]

    def define(self, value: Any) -> Any:
        """Register ``value`` for the ops after it."""
        self.defined[value.name] = value
        self.values[value.name] = value.type.dtype
        return value

    def op(self) -> Any:
        """One op. Raises IRParseError."""
        ts, at = self.ts, self.ts.pos
        names = ts.list(lambda: ts.take("ref")) if ts.kind == "ref" else ()
        if names:
            ts.expect("=")
        form = (self.forms.defining if names else self.forms.statements).get(ts.text)
        if form is None and not names and self.forms.choose is not None:
            form = self.forms.choose(self)
        if form is None:
            if names and ts.kind == "name":
                ts.fail(f"unknown operation {ts.text!r}")
            ts.missing("an operation")
        if len(names) > 1 and not form.carries:
            ts.fail(f"only a loop defines several {self.forms.noun}s")
        return form.read_op(self, names, at)


@dataclass(frozen=True, slots=True)
class Item:
    """A piece of a format: text, a field or an optional group; ``names`` of the fields in it.

    ``begins`` tests whether the next token may start it; None: nothing tells, as for a blank.
    """

    show: Callable[[Any], str]
    read: Callable[[Reader, dict[str, Any]], None]
    grammar: str
    begins: Callable[[Reader], bool] | None
    words: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def _text(text: str) -> Item:
    tokens = token_texts(text)

    def read(r: Reader, _: dict[str, Any]) -> None:
        for token in tokens:
            r.ts.expect(token)

    begins = (lambda r: r.ts.text == tokens[0]) if tokens else None
    return Item(lambda _: text, read, " ".join(f"'{t}'" for t in tokens), begins, tokens[:1])


def _field(name: str, syntax: Syntax, dtype: str) -> Item:
    """A field; ``dtype`` is the path to the element type of the instance, for a syntax that depends on it."""
    show, get = syntax.show, attrgetter(name)
    both = attrgetter(name, dtype)

    def read(r: Reader, out: dict[str, Any]) -> None:
        out[name] = syntax.read(r)

    shown = (lambda x: show(get(x))) if syntax.finish is None else (lambda x: show(*both(x)))
    return Item(shown, read, syntax.grammar, syntax.begins, syntax.words, (name,))


def _optional(items: Sequence[Item], absent: Mapping[str, Any]) -> Item:
    """Items of which none is written where every field in them is ``absent``."""
    first = next(i for i in items if i.grammar)
    begins = first.begins
    if begins is None:
        raise TypeError(f"nothing tells whether the optional [{_grammar(items)}] is there")
    names = tuple(n for i in items for n in i.names)
    unwritten = [(n, absent.get(n)) for n in names]

    def show(x: Any) -> str:
        for name, value in unwritten:
            found = getattr(x, name)
            if found is not value and found != value:
                return "".join([i.show(x) for i in items])
        return ""

    def read(r: Reader, out: dict[str, Any]) -> None:
        out.update(unwritten)
        if begins(r):
            for i in items:
                i.read(r, out)

    return Item(show, read, f"[{_grammar(items)}]", begins, first.words, names)


def _grammar(items: Iterable[Item]) -> str:
    return " ".join(i.grammar for i in items if i.grammar)


class Form:
    """The text form of one class: compiled from its format and the syntax of each field.

    ``absent``: the values of optional fields that are not written.  ``carries``: the field of a loop's carried values,
    which gives the types of its results.  ``nests``: the field that a loop has in common with an only loop inside it
    where both are one line, as in ``par i in 0..4, j in 0..8 {``.
    """

    def __init__(self, cls: type, format: str, syntaxes: Mapping[str, Syntax], absent: Mapping[str, Any]) -> None:
        self.cls = cls
        self.uses = tuple(u for s in syntaxes.values() for u in s.uses)
        names = {f.name for f in fields(cls)}
        self.result, self.spanned = "result" in names, "span" in names
        self.carries: str | None = None
        self.nests: str | None = None
        self._syntaxes, self._absent = syntaxes, absent
        self._head, _, rest = format.partition("{")
        lines = _LINES.findall(rest)[0]
        self._tail = rest.removeprefix(lines).removesuffix("}").strip()
        written = _WRITTEN.findall(format)
        if unknown := [n for n in written if n not in syntaxes]:
            raise TypeError(f"{cls.__name__}: the format {format!r} has no field ${unknown[0]}")
        if missing := syntaxes.keys() - written:
            raise TypeError(f"{cls.__name__}: the format {format!r} lacks {', '.join(sorted(missing))}")
        self.lines = [(n, syntaxes[n]) for n in lines.replace("$", "").split()]
        self._finished = [(n, s.finish) for n, s in syntaxes.items() if s.finish is not None]

    @cached_property
    def head(self) -> tuple[Item, ...]:
        """What the form begins with, up to its lines."""
        return self._compile(self._head)

    @cached_property
    def tail(self) -> tuple[Item, ...]:
        """The line after its lines."""
        return self._compile(self._tail)

    def _compile(self, format: str) -> tuple[Item, ...]:
        stack: list[list[Item]] = [[]]
        for m in _FORMAT.finditer(format):
            match m.lastgroup:
                case "open":
                    stack.append([])
                case "optional":
                    group = stack.pop()
                    stack[-1].append(_optional(group, self._absent))
                case "close":  # parentheses of the text itself
                    inner = stack.pop()
                    stack[-1] += [_text("("), *inner, _text(")")]
                case "text":
                    stack[-1].append(_text(m[0]))
                case _:
                    dtype = "result.type.dtype" if self.result else "dtype"
                    stack[-1].append(_field(m["field"], self._syntaxes[m["field"]], dtype))
        return tuple(stack[0])

    @property
    def first(self) -> Item:
        """What the form begins with."""
        return self.head[0]

    @property
    def words(self) -> tuple[str, ...]:
        """The words that the form may begin with."""
        word = _WORD.match(self._head)
        return self.first.words if word is None else (word[0],)

    # -- printing -----------------------------------------------------------------------------
    def text(self, x: Any) -> str:
        """``x`` as one line; where it has lines inside, it ends in the brace that opens them."""
        text = "".join([i.show(x) for i in self.head])
        if self.result:
            value = x.result
            return f"%{value.name} = {text} : {FORMS[type(value)].text(value)}"
        if self.lines:
            text += "{"
        if self.carries and x.results:
            return f"{', '.join([f'%{v.name}' for v in x.results])} = {text}"
        return text

    def add_lines(self, x: Any, depth: int, out: list[str]) -> None:
        """Append the lines of ``x``."""
        pad, text = STEP * depth, self.text(x)
        while self.nests and (inner := self._nested(x)) is not None:
            x = inner
            text = f"{text.removesuffix(' {')}, {self.text(x).removeprefix(self.first.show(x)).lstrip()}"
        out.append(pad + text)
        if self.lines:
            for name, syntax in self.lines:
                for item in syntax.items(getattr(x, name)):
                    if isinstance(item, str):
                        out.append(pad + STEP + item)
                    else:
                        FORMS[type(item)].add_lines(item, depth + 1, out)
            if self.tail:
                out.append((pad + STEP + "".join([i.show(x) for i in self.tail])).rstrip())
            out.append(pad + "}")

    def _nested(self, x: Any) -> Any:
        """The only loop inside ``x`` if it goes on the line of ``x``."""
        assert self.nests is not None
        body = getattr(x, self.lines[0][0])
        alone = len(body) == 1 and type(body[0]) is self.cls
        return body[0] if alone and getattr(body[0], self.nests) == getattr(x, self.nests) else None

    # -- parsing ------------------------------------------------------------------------------
    def read(self, r: Reader, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The fields of the form at the next token; ``known``: the first one, of a loop inside a nest."""
        out = dict(known or {})
        if self.spanned:
            out["span"] = r.ts.span()
        for i in self.head[1 if known else 0 :]:
            i.read(r, out)
        if self.nests and r.ts.accept(","):
            out[self.lines[0][0]] = (self.cls(**self.read(r, {self.nests: out[self.nests]})),)
        elif self.lines:
            self._read_lines(r, out)
        if self._finished and not self.result:
            self._finish(r, out, out["dtype"])
        return out

    def _read_lines(self, r: Reader, out: dict[str, Any]) -> None:
        r.ts.expect("{")
        outer = r.defined.keys() - {arg.name for arg, _ in (out[self.carries] if self.carries else ())}
        for name, syntax in self.lines:
            out[name] = syntax.read(r)
        for i in self.tail:
            i.read(r, out)
        if r.ts.text != "}":
            words = [*dict.fromkeys(w for _, s in self.lines for w in s.words), "'}'"]
            r.ts.missing(" or ".join(words))
        r.ts.pos += 1
        for name in r.defined.keys() - outer:
            del r.defined[name], r.values[name]

    def _finish(self, r: Reader, out: dict[str, Any], dtype: DType) -> None:
        for name, finish in self._finished:
            if isinstance(out[name], tuple):  # a part that is not written has its default already
                out[name] = finish(r, out[name], dtype)

    def read_op(self, r: Reader, names: tuple[str, ...] = (), at: int = 0) -> Any:
        """The op that defines ``names``; its first token is number ``at``."""
        out = self.read(r)
        if self.carries:
            args = [arg for arg, _ in out[self.carries]]
            if len(args) != len(names):
                r.ts.fail(f"{len(names)} result(s) for {len(args)} carried value(s)", at)
            pairs = zip(names, args, strict=True)
            out["results"] = tuple(r.define(replace(arg, name=name)) for name, arg in pairs)
        elif self.result:
            r.ts.expect(":")
            value = r.forms.value
            assert value is not None
            out["result"] = result = r.define(value(name=names[0], **FORMS[value].read(r)))
            self._finish(r, out, result.type.dtype)
        return self.cls(**out)

    def grammar(self) -> str:
        """The right side of the form's production."""
        inner = ["'{'", *(s.grammar for _, s in self.lines), _grammar(self.tail), "'}'"] if self.lines else []
        text = " ".join(filter(None, [_grammar(self.head), *inner]))
        if self.carries:
            return f"[value, ... '='] {text}"
        return f"value '=' {text} ':' type" if self.result else text


#: the text form of each declared class
FORMS: dict[type, Form] = {}


class Forms:
    """The ops of a level by their first word. ``noun`` is the level's word for a value, ``value`` the class of values.

    ``choose``: the form of an op that begins with no word of its own, from what follows.
    """

    def __init__(self, noun: str, value: type | None = None) -> None:
        self.noun, self.value = noun, value
        self.choose: Callable[[Reader], Form | None] | None = None
        self.statements: dict[str, Form] = {}
        self.defining: dict[str, Form] = {}

    def add(self, form: Form) -> None:
        """Register an op. Raises TypeError if another op begins with its word."""
        tables = [self.defining] if form.result else [self.statements]
        tables += [self.defining] if form.carries else []
        for table in tables:
            for word in form.words:
                if word in table:
                    raise TypeError(f"{form.cls.__name__} and {table[word].cls.__name__} both begin with {word}")
                table[word] = form


def format_op(op: Any) -> str:
    """One op as one line (an op with a region: its head)."""
    return FORMS[type(op)].text(op)


def format_ops(body: tuple[Any, ...]) -> list[str]:
    """The lines of a block of ops."""
    out: list[str] = []
    for op in body:
        FORMS[type(op)].add_lines(op, 0, out)
    return out


def grammar(module: type, ops: Iterable[type], value: type | None = None, op: str = "op") -> str:
    """The grammar of a level: productions of ``module`` and of all that it and ``ops`` are made of.

    ``value``: the class of the level's values, the text of which is their type.  ``op``: the word for an op.
    """
    rows: dict[str, str] = {}

    def add(name: str, what: str | type) -> None:
        if name not in rows:
            rows[name] = what if isinstance(what, str) else FORMS[what].grammar()
            for used in () if isinstance(what, str) else FORMS[what].uses:
                add(*used)

    add(FORMS[module].first.words[0], module)
    if value is not None:
        add("type", value)
    forms = [FORMS[c] for c in ops]
    for used in (u for form in forms for u in form.uses):
        add(*used)
    lines = [f"{name:<8} := {text}" for name, text in rows.items()]
    return "\n".join([*lines, f"{op:<8} := " + ("\n" + 9 * " " + "| ").join(f.grammar() for f in forms)]) + "\n"
