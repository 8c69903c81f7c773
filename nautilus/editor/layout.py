"""The standard layout of a spec, which ``nautilusc fmt`` writes.

A layout is the spaces between tokens, the indentation and the blank lines.  The tokens and the comments stay as they
are, and so do the breaks between lines.  The rules:

- one space stands around binary operators, ``=``, ``|``, ``..``, ``if``, ``else`` and after ``,`` and ``:``;
- none stands inside brackets, after a sign, and between a name and its brackets;
- a line that goes on inside brackets is indented by two columns for each line that opened one of them, and a line
  between the braces of ``recur`` by four;
- ``input`` has two spaces after it where ``output`` stands in the same block of lines, so their names are aligned;
- two spaces stand before a comment after code;
- no line ends in spaces, no two blank lines follow each other, and the text ends in one newline.

Invariants: the tokens of the result are those of the text, newlines outside of brackets included, so both parse to the
same tree; the layout of the result is the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from nautilus.core.errors import DiagnosticError, InternalError
from nautilus.core.records import dataclass
from nautilus.core.source import Source
from nautilus.frontend.syntax.parse import parse, tokens

_BLOCK, _BRACKET = 4, 2  # columns
_SIGNS = frozenset({"PLUS", "MINUS", "TILDE"})
_OPEN, _CLOSE = frozenset({"LPAR", "LSQB"}), frozenset({"RPAR", "RSQB"})
_ENDS = frozenset({"NAME", "INT", "FLOAT", "INF", "TRUE", "FALSE", "RPAR", "RSQB"})  # left operands of a sign
_HUG = frozenset({"NAME", "RSQB", "STRIDED"})  # no space stands between them and an opening bracket


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the text: its tokens without the newline, and its comment."""

    tokens: tuple[Any, ...]
    comment: str

    @property
    def is_blank(self) -> bool:
        return not self.tokens and not self.comment


def formatted(source: Source) -> str:
    """The text of ``source`` in the standard layout.  Raises DiagnosticError where it does not parse."""
    _, errors = parse(source)
    if errors:
        raise DiagnosticError(errors)
    lines = _lines(source)
    signs = _signs([t for line in lines for t in line.tokens])
    out: list[str] = []
    for line, indent, width in zip(lines, _indents(lines), _keyword_widths(lines), strict=True):
        if not line.is_blank:
            out.append(_text(line, indent, width, signs))
        elif out and out[-1]:
            out.append("")
    made = "\n".join(out).rstrip("\n") + "\n" if out else ""
    if _essence(made) != _essence(source.text):
        raise InternalError(f"the layout of {source.name} has other tokens than its text")
    return made


def _lines(source: Source) -> list[_Line]:
    texts = source.text.split("\n")
    found: list[list[Any]] = [[] for _ in texts]
    for token in tokens(source):
        if token.type != "NEWLINE":
            found[token.line - 1].append(token)
    out = []
    for text, own in zip(texts, found, strict=True):
        rest = text[own[-1].end_column - 1 :] if own else text
        out.append(_Line(tuple(own), rest.strip()))
    return out


def _essence(text: str) -> list[tuple[str, str]]:
    """What a layout keeps: the tokens, comments, and breaks between lines that have one of both."""
    return [
        pair
        for line in _lines(Source("<text>", text))
        if not line.is_blank
        for pair in (*((t.type, str(t)) for t in line.tokens), ("COMMENT", line.comment), ("NEWLINE", ""))
    ]


def _indents(lines: Sequence[_Line]) -> Iterator[int]:
    """The column at which each line begins, from 0."""
    opened: list[int] = []  # the line of every open bracket
    in_block = False
    for number, line in enumerate(lines):
        rest = list(line.tokens)
        while rest and rest[0].type in _CLOSE:
            opened.pop()
            rest.pop(0)
        block = in_block and not (rest and rest[0] == "}")
        yield _BLOCK * block + _BRACKET * len(set(opened))
        for token in rest:
            if token.type in _OPEN:
                opened.append(number)
            elif token.type in _CLOSE:
                opened.pop()
            elif token in ("{", "}"):
                in_block = token == "{"


def _keyword_widths(lines: Sequence[_Line]) -> list[int]:
    """The least width of the first word of each line: that of ``output`` in blocks of ``input`` and ``output``."""
    widths = [0] * len(lines)
    block: list[int] = []
    depth = 0
    for number, line in enumerate([*lines, _Line((), "")]):
        if depth == 0 and not (line.tokens and line.tokens[0].type in ("INPUT", "OUTPUT")):
            if len({lines[n].tokens[0].type for n in block}) > 1:
                for n in block:
                    widths[n] = len("output")
            block = []
            depth += _opens(line)
            continue
        if depth == 0:
            block.append(number)
        depth += _opens(line)
    return widths


def _opens(line: _Line) -> int:
    """The number of brackets that ``line`` leaves open; negative where it closes some."""
    return sum((t.type in _OPEN) - (t.type in _CLOSE) for t in line.tokens)


def _text(line: _Line, indent: int, width: int, signs: frozenset[int]) -> str:
    if not line.tokens:
        return " " * indent + line.comment
    parts = [" " * indent, str(line.tokens[0]).ljust(width)]
    for before, token in pairwise(line.tokens):
        parts += [" " if _apart(before, token, signs) else "", str(token)]
    return "".join(parts) + (f"  {line.comment}" if line.comment else "")


def _signs(found: Sequence[Any]) -> frozenset[int]:
    """The places in the text of ``+``, ``-`` and ``~`` without a left operand."""
    pairs = pairwise([None, *found])
    return frozenset(
        t.start_pos for before, t in pairs if t.type in _SIGNS and (before is None or before.type not in _ENDS)
    )


def _apart(before: Any, token: Any, signs: frozenset[int]) -> bool:
    """Whether a space stands between two tokens of a line."""
    if before.start_pos in signs or before.type in _OPEN or token.type in _CLOSE or token.type in ("COMMA", "COLON"):
        return False
    return not (token.type in _OPEN and before.type in _HUG)
