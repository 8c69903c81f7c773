"""The lexer and token stream that all IR parsers share.

A name may contain dots (``cp.async``), a number may have a type suffix (``1i64``), ``%name`` is a
value, ``#name`` a layout, ``$name`` a param, ``8x2`` an extent with a stride, and ``;`` starts a comment.
:mod:`nautilus.core.text.expressions` has an example of its use.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import NoReturn, TypeVar

from nautilus.core.errors import Diagnostic, DiagnosticError
from nautilus.core.expr.nodes import Const
from nautilus.core.source import Source, Span
from nautilus.core.types import DType

T = TypeVar("T")

_DTYPES: Mapping[str, DType] = {d.value: d for d in DType}
_SUFFIX = "|".join(sorted(_DTYPES, key=len, reverse=True))
_TOKEN = re.compile(
    rf"""(?P<space>[ \t\r\n]+|;[^\n]*)
    |(?P<name>[A-Za-z_]\w*(?:\.\w+)*)
    |(?P<extent>\d+x\d+)
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?:{_SUFFIX})?(?!\w))
    |(?P<ref>%[A-Za-z0-9_]+(?:\.\w+)*)
    |(?P<hash>\#\w+)
    |(?P<param>\$[A-Za-z_]\w*)
    |(?P<punct>\.\.|//|<=|>=|==|!=|->|[-+*/%<>=()\[\]{{}},:|@])
    |(?P<bad>.)""",
    re.VERBOSE | re.ASCII,
)
#: the kinds of tokens that :meth:`TokenStream.take` takes, as messages call them
_CALLED = {
    "name": "a name", "ref": "a value (%name)", "hash": "a layout (#name)", "extent": "an extent and a stride, as 8x2",
}  # fmt: skip
_NUMBER = re.compile(rf"(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)({_SUFFIX})?")


def _tokens(text: str) -> list[re.Match[str]]:
    return [m for m in _TOKEN.finditer(text) if m.lastgroup != "space"]


def token_texts(text: str) -> tuple[str, ...]:
    """The tokens of ``text``, without spaces."""
    return tuple(m.group() for m in _tokens(text))


class IRParseError(DiagnosticError):
    """A syntax error in an IR text (code N0901); ``span`` is its position."""

    def __init__(self, message: str, span: Span) -> None:
        self.message, self.span = message, span
        super().__init__((Diagnostic("N0901", message, span),))


class TokenStream:
    """The tokens of an IR text and the position of the next one."""

    __slots__ = ("_line_starts", "_lines", "_spans", "kinds", "pos", "source", "starts", "texts")

    def __init__(self, source: Source) -> None:
        self.source, self.pos = source, 0
        found = _tokens(source.text)
        self.kinds = [*(str(m.lastgroup) for m in found), "end"]
        self.texts = [*(m.group() for m in found), ""]
        self.starts = [*(m.start() for m in found), len(source.text)]
        self._lines = source.text.split("\n")
        self._line_starts = [0, *accumulate(len(line) + 1 for line in self._lines)]
        self._spans: dict[int, Span] = {}
        if "bad" in self.kinds:
            at = self.kinds.index("bad")
            self.fail(f"unexpected character {self.texts[at]!r}", at)

    # -- look-ahead ---------------------------------------------------------------------------
    @property
    def kind(self) -> str:
        """Kind of the next token: name extent number ref hash param punct end."""
        return self.kinds[self.pos]

    @property
    def text(self) -> str:
        """Text of the next token; empty at the end."""
        return self.texts[self.pos]

    def peek(self, ahead: int = 1) -> str:
        """Text of the token ``ahead`` places after the next one; empty past the end."""
        i = self.pos + ahead
        return self.texts[i] if i < len(self.texts) else ""

    def glued(self, index: int) -> bool:
        """No space stands between token ``index`` and the one before it."""
        return self.starts[index - 1] + len(self.texts[index - 1]) == self.starts[index]

    def span(self) -> Span:
        """The whole line of the next token (one shared object a line)."""
        number = bisect_right(self._line_starts, self.starts[self.pos])
        if number not in self._spans:
            line = self._lines[number - 1]
            first = len(line) - len(line.lstrip()) + 1
            self._spans[number] = Span(self.source, number, first, number, max(first, len(line.rstrip())) + 1)
        return self._spans[number]

    def token_span(self) -> Span:
        """The span of the next token."""
        line = bisect_right(self._line_starts, self.starts[self.pos])
        column = self.starts[self.pos] - self._line_starts[line - 1] + 1
        return Span(self.source, line, column, line, column + max(1, len(self.text)))

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        """Raise IRParseError at token number ``at``, or at the next one."""
        self.pos = self.pos if at is None else at
        raise IRParseError(message, self.token_span())

    # -- consuming ----------------------------------------------------------------------------
    def accept(self, text: str) -> bool:
        """Take the next token if it is ``text``."""
        if self.texts[self.pos] == text and self.kinds[self.pos] != "end":
            self.pos += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Take ``text`` or raise IRParseError."""
        if self.texts[self.pos] != text:
            self.missing(repr(text))
        self.pos += 1

    def missing(self, what: str) -> NoReturn:
        """Raise IRParseError: the next token is not ``what``."""
        text = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        self.fail(f"expected {what}, found {repr(text) if text else 'the end of the text'}")

    def take(self, kind: str = "name") -> str:
        """Take a token of ``kind`` name (dots allowed), ref, hash or extent; gives a name without its sign."""
        if self.kinds[self.pos] != kind:
            self.missing(_CALLED[kind])
        self.pos += 1
        return self.texts[self.pos - 1].lstrip("%#")

    def dtype(self) -> DType:
        """Take the name of an element type."""
        d = _DTYPES.get(self.text)
        if d is None:
            self.missing("an element type")
        self.pos += 1
        return d

    def integer(self) -> int:
        """Take an integer, which may be negative."""
        sign = -1 if self.accept("-") else 1
        if not self.text.isdigit():
            self.missing("an integer")
        self.pos += 1
        return sign * int(self.texts[self.pos - 1])

    def literal(self, negative: bool = False) -> Const | None:
        """Take a literal whose sign has been taken already; None if the next token is no literal."""
        text = self.text
        if m := _NUMBER.fullmatch(text):
            value: int | float = int(m[1]) if m[1].isdigit() else float(m[1])
            dtype = _DTYPES.get(m[2])
            if dtype is not None and dtype.is_float != isinstance(value, float):
                self.fail(f"the literal {text} does not have the form of {dtype}")
            self.pos += 1
        elif text in ("true", "false") and not negative:
            self.pos += 1
            return Const(text == "true", DType.BOOL)
        elif text in ("inf", "nan"):
            self.pos += 1
            value, dtype = getattr(math, text), self.annotation()
        else:
            return None
        if negative and value == value:
            value = -value
        return Const(value, dtype or (DType.F32 if isinstance(value, float) else DType.I32), self.span())

    def annotation(self) -> DType | None:
        """Take ``:type`` glued to the token before it, if it is there."""
        i = self.pos
        if self.texts[i] != ":":
            return None
        d = _DTYPES.get(self.texts[i + 1])
        if d is None or not self.glued(i) or not self.glued(i + 1):
            return None
        self.pos = i + 2
        return d

    def end(self) -> None:
        """Raise IRParseError unless all tokens have been taken."""
        if self.kind != "end":
            self.missing("the end of the text")

    # -- groups -------------------------------------------------------------------------------
    def list(self, item: Callable[[], T]) -> tuple[T, ...]:
        """Take ``item, item, ...``: at least one."""
        out = [item()]
        while self.accept(","):
            out.append(item())
        return tuple(out)

    def brackets(self, item: Callable[[], T], pair: str = "[]") -> tuple[T, ...]:
        """Take ``[item, item, ...]`` (possibly empty) between the two characters of ``pair``."""
        self.expect(pair[0])
        out = () if self.text == pair[1] else self.list(item)
        self.expect(pair[1])
        return out


def format_number(value: int | float | bool, dtype: DType) -> str:
    """A literal without type suffix."""
    if dtype is DType.BOOL:
        return "true" if value else "false"
    return repr(float(value)) if dtype.is_float else str(int(value))
