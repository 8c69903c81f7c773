"""Parses text to a syntax tree, with messages of its own for syntax errors.

The token stream is split into statements at newlines outside brackets, and each statement is parsed alone, so a
file with five faulty statements gets five errors.  The word ``recur`` and the braces of its block are removed here;
the definitions after them are parsed like others.  The parser is an LALR loop with callbacks, which does not
recurse, so deep nesting cannot overflow the stack.  Nesting above ``MAX_DEPTH`` is an error.  Lark parses a faulty
statement again, since its parser knows what is accepted at each place.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import field
from functools import lru_cache
from typing import Any

from nautilus.core.errors import Diagnostic, InternalError, Note
from nautilus.core.records import dataclass
from nautilus.core.source import Source, Span
from nautilus.core.text.words import short
from nautilus.frontend.codes import MAX_DEPTH, MAX_ERRORS
from nautilus.frontend.syntax.ast import Define, File, Recur, Statement
from nautilus.frontend.syntax.build import SyntaxFault, TreeBuilder, token_span
from nautilus.frontend.syntax.elsewhere import character_hint, number_hint, statement_fault
from nautilus.frontend.syntax.faults import explain
from nautilus.frontend.syntax.grammar import build_parser, load_parser
from nautilus.frontend.syntax.tables import Parser, UnexpectedTokenError
from nautilus.frontend.syntax.words import mark_bars, mark_words

_LOCK = threading.Lock()  # one parser per process, whose callbacks hold the current source
_OPEN, _CLOSE = {"LPAR": "RPAR", "LSQB": "RSQB"}, {"RPAR", "RSQB"}
_LARGEST = 2**63 - 1  # the largest literal integer
_DIGITS = len(str(_LARGEST))
_STARTERS = {"DIM", "CONST", "INPUT", "OUTPUT", "SCALAR", "DEF", "INCLUDE"}


class _AllTokens:
    """A post-lexer that changes no token; it keeps the terminals that no rule mentions in the lexer."""

    always_accept = ("NEWLINE", "BAD", "BAD_NUMBER")

    def process(self, stream: Iterator[Any]) -> Iterator[Any]:
        return stream


@lru_cache(maxsize=1)
def _tools() -> tuple[Parser, TreeBuilder]:
    builder = TreeBuilder()
    return load_parser(builder, lambda: _lark(builder)), builder


@lru_cache(maxsize=1)
def _lark(builder: TreeBuilder) -> Any:
    return build_parser(builder, _AllTokens())


def parse(source: Source) -> tuple[File, list[Diagnostic]]:
    """The statements of ``source`` that parse, and the errors of those that do not."""
    with _LOCK:
        parser, builder = _tools()
        builder.source = source
        errors: list[Diagnostic] = []
        statements: list[Statement] = []
        blocks: dict[Span, tuple[int, list[Define]]] = {}  # of a recurrence: its place among the statements
        for part in _statements(parser.lex(source.text), source, errors):
            if len(errors) > MAX_ERRORS:
                break
            try:
                found = _parse_one(parser, builder, part.tokens) if part.tokens else ()
                if part.recur is None:
                    statements.extend(found)
                    continue
                word = token_span(source, part.recur)
                place, block = blocks.setdefault(word, (len(statements), []))
                block += _definitions(found, source, part)
                statements[place:] = [Recur(tuple(block), word)]
            except SyntaxFault as fault:
                errors.append(fault.diagnostic)
        return File(source, tuple(statements)), errors


def tokens(source: Source) -> list[Any]:
    """All tokens of ``source``, also those of statements that do not parse, with the types that they have in their
    statements.  A newline is a token."""
    with _LOCK:
        found = list(_tools()[0].lex(source.text))
    for part in _statements(iter(found), source, []):
        if part.tokens:
            mark_words(part.tokens)
            mark_bars(part.tokens)
    return found


@dataclass(frozen=True, slots=True)
class _Part:
    """The tokens of one statement; ``recur``: the token before it, or before its block."""

    tokens: list[Any] = field(default_factory=list)
    recur: Any = None


def _definitions(found: tuple[Statement, ...], source: Source, part: _Part) -> list[Define]:
    """The definitions after ``recur``. Raises SyntaxFault for another statement."""
    made = [s for s in found if isinstance(s, Define)]
    if len(made) != len(found):
        span = token_span(source, part.tokens[0])
        raise SyntaxFault(Diagnostic("N0104", f"expected a definition after 'recur', found '{part.tokens[0]}'", span))
    return made


def _parse_one(parser: Parser, builder: TreeBuilder, tokens: list[Any]) -> tuple[Statement, ...]:
    """The statement of ``tokens``, which may be several. Raises SyntaxFault."""
    mark_words(tokens)
    mark_bars(tokens)
    try:
        result: tuple[Statement, ...] = parser.parse(tokens)
        return result
    except UnexpectedTokenError:
        raise _unexpected(_lark(builder), builder.source, tokens) from None


def _unexpected(parser: Any, source: Source, tokens: list[Any]) -> SyntaxFault:
    """The fault of ``tokens`` as Lark's ``parser`` finds it."""
    from lark.exceptions import UnexpectedToken

    machine = parser.parse_interactive()
    try:
        for token in tokens:
            machine.feed_token(token)
        machine.feed_eof(tokens[-1])
        raise InternalError("Lark accepts a statement that its tables refuse")
    except UnexpectedToken as error:
        accepts = machine.accepts()
        known = statement_fault(tokens, error.token)
        message, hint, at = known or (*explain(parser, error, accepts), error.token)
        span = token_span(source, at)
        if error.token.type == "$END":
            last = token_span(source, tokens[-1])
            span = Span(source, last.end_line, last.end_column, last.end_line, last.end_column + 1)
        return SyntaxFault(Diagnostic("N0104", message, span, hint=hint))


def _statements(stream: Iterator[Any], source: Source, errors: list[Diagnostic]) -> Iterator[_Part]:
    """Split the tokens at newlines outside brackets, and report bad tokens and brackets."""
    current: list[Any] = []
    brackets: list[Any] = []
    faulty = False
    recur, brace = None, None  # between the braces of ``recur { ... }``: both tokens
    for token in stream:
        fresh = not current or token.line > current[-1].line
        if token.type in _STARTERS and fresh and brackets:  # keywords never stand inside brackets
            errors.append(_unclosed(source, brackets[0]))
            current, brackets, faulty = [], [], False
        if token.type == "NEWLINE":
            if brackets or not current:
                if not brackets:
                    faulty = False
                continue
            if not faulty:
                yield _part(current, recur)
            current, faulty = [], False
            continue
        if token == "{" and recur is None and [str(t) for t in current] == ["recur"]:
            recur, brace, current = current[0], token, []
            continue
        if token == "}" and recur is not None and not brackets:
            if not faulty and current:
                yield _part(current, recur)
            recur, current, faulty = None, [], False
            continue
        problem = _bad_token(source, token, brackets)
        if problem is not None:
            if not faulty or problem.code == "N0109":
                errors.append(problem)
            faulty = True
            if problem.code == "N0105":
                current, brackets = [], []
                break
        current.append(token)
    if brackets:
        if not faulty:
            errors.append(_unclosed(source, brackets[-1]))
        return
    if current and not faulty:
        yield _part(current, recur)
    if recur is not None:
        errors.append(_unclosed(source, brace))


def _part(tokens: list[Any], recur: Any) -> _Part:
    """The statement ``tokens`` of the block of ``recur``, if any; ``recur`` in front of a name is no part of it."""
    if recur is None and len(tokens) > 1 and tokens[0] == "recur" and tokens[1].type == "NAME":
        return _Part(tokens[1:], tokens[0])
    return _Part(tokens, recur)


def _bad_token(source: Source, token: Any, brackets: list[Any]) -> Diagnostic | None:
    """The error of one token, if any; updates the stack of open brackets."""
    span = token_span(source, token)
    match token.type:
        case "BAD":
            char = str(token)
            shown = f"'{char}'" if char.isprintable() else f"U+{ord(char):04X}"
            hint = character_hint(source.text, token.start_pos)
            if char == '"':
                return Diagnostic("N0103", "this text never ends", span, hint="close it with '\"'")
            return Diagnostic("N0103", f"{shown} is no part of the language", span, hint=hint)
        case "BAD_NUMBER":
            return Diagnostic(
                "N0109", f"'{short(token)}' is not a number", span, hint=number_hint(str(token), _LARGEST)
            )
        case "INT" if len(token) > _DIGITS or int(token) > _LARGEST:
            return Diagnostic("N0109", f"the number {short(token)} is too large", span)
        case "LPAR" | "LSQB":
            brackets.append(token)
            if len(brackets) > MAX_DEPTH:
                return Diagnostic("N0105", f"brackets are nested more than {MAX_DEPTH} deep", span)
        case "RPAR" | "RSQB":
            if not brackets:
                return Diagnostic("N0110", f"'{token}' closes nothing", span)
            opener = brackets.pop()
            if _OPEN[opener.type] != token.type:
                note = Note(f"'{opener}' was opened here", token_span(source, opener))
                return Diagnostic("N0110", f"'{token}' does not close '{opener}'", span, (note,))
    return None


def _unclosed(source: Source, token: Any) -> Diagnostic:
    return Diagnostic("N0110", f"'{token}' is never closed", token_span(source, token))
