"""Parses text to a syntax tree, with messages of its own for syntax errors.

The token stream is split into statements at newlines outside brackets, and each statement is parsed alone, so a
file with five faulty statements gets five errors.  The parser is Lark's LALR loop with callbacks, which does not
recurse, so deep nesting cannot overflow the stack.  Nesting above ``MAX_DEPTH`` is an error.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from nautilus.core.errors import Diagnostic, Note
from nautilus.core.source import Source, Span
from nautilus.frontend.codes import MAX_DEPTH, MAX_ERRORS
from nautilus.frontend.syntax.ast import File, Statement
from nautilus.frontend.syntax.build import SyntaxFault, TreeBuilder, token_span
from nautilus.frontend.syntax.faults import explain
from nautilus.frontend.syntax.grammar import build_parser
from nautilus.frontend.syntax.unsupported import construct_at, refusal

_LOCK = threading.Lock()  # one parser per process, whose callbacks hold the current source
_OPEN, _CLOSE = {"LPAR": "RPAR", "LSQB": "RSQB"}, {"RPAR", "RSQB"}
_STARTERS = {"DIM", "CONST", "INPUT", "OUTPUT", "SCALAR", "DEF", "INCLUDE"}
_BAD_HINTS = {
    "&": "logical 'and' is written 'and'",
    "!": "negation is written 'not', inequality '!='",
    "^": "a power is written '**'",
    "?": "a choice is written 'a if condition else b'",
    ";": "a statement ends at the end of its line",
    "{": "brackets are '(' ')' and '[' ']'",
    "}": "brackets are '(' ')' and '[' ']'",
    "\\": "a statement goes on over a newline inside brackets",
    "'": "text is written in double quotes",
    "@": "a product-sum is written 'sum[k](A[i, k] * B[k, j])'",
}


class _AllTokens:
    """A post-lexer that changes no token; it keeps the terminals that no rule mentions in the lexer."""

    always_accept = ("NEWLINE", "BAD", "BAD_NUMBER")

    def process(self, stream: Iterator[Any]) -> Iterator[Any]:
        return stream


@lru_cache(maxsize=1)
def _tools() -> tuple[Any, TreeBuilder]:
    builder = TreeBuilder()
    return build_parser(builder, _AllTokens()), builder


def parse(source: Source) -> tuple[File, list[Diagnostic]]:
    """The statements of ``source`` that parse, and the errors of those that do not."""
    with _LOCK:
        parser, builder = _tools()
        builder.source = source
        errors: list[Diagnostic] = []
        statements: list[Statement] = []
        for tokens in _statements(parser.lex(source.text), source, errors):
            if len(errors) > MAX_ERRORS:
                break
            try:
                statements.extend(_parse_one(parser, tokens))
            except SyntaxFault as fault:
                errors.append(fault.diagnostic)
        return File(source, tuple(statements)), errors


def _parse_one(parser: Any, tokens: list[Any]) -> tuple[Statement, ...]:
    from lark.exceptions import UnexpectedToken

    machine = parser.parse_interactive()
    try:
        for token in tokens:
            machine.feed_token(token)
        result: tuple[Statement, ...] = machine.feed_eof(tokens[-1])
        return result
    except UnexpectedToken as error:
        source = parser.options.transformer.source
        refused = construct_at(tokens, error.token)
        if refused is not None:
            raise SyntaxFault(refusal(refused[0], token_span(source, refused[1]))) from None
        accepts = machine.accepts()
        message, hint = explain(parser, error, accepts)
        span = token_span(source, error.token)
        if error.token.type == "$END":
            last = token_span(source, tokens[-1])
            span = Span(source, last.end_line, last.end_column, last.end_line, last.end_column + 1)
        raise SyntaxFault(Diagnostic("N0104", message, span, hint=hint)) from None


def _statements(stream: Iterator[Any], source: Source, errors: list[Diagnostic]) -> Iterator[list[Any]]:
    """Split the tokens at newlines outside brackets, and report bad tokens and brackets."""
    current: list[Any] = []
    brackets: list[Any] = []
    faulty = in_block = False  # in_block: between the braces of ``recur { ... }``
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
                yield current
            current, faulty = [], False
            continue
        if in_block:
            in_block = token != "}"
            continue
        if token == "{" and [str(t) for t in current] == ["recur"]:
            errors.append(refusal("recur", token_span(source, current[0])))
            in_block = faulty = True
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
    elif current and not faulty:
        yield current


def _bad_token(source: Source, token: Any, brackets: list[Any]) -> Diagnostic | None:
    """The error of one token, if any; updates the stack of open brackets."""
    span = token_span(source, token)
    match token.type:
        case "BAD":
            char = str(token)
            shown = f"'{char}'" if char.isprintable() else f"U+{ord(char):04X}"
            hint = _BAD_HINTS.get(char)
            if char == '"':
                return Diagnostic("N0103", "this text never ends", span, hint="close it with '\"'")
            return Diagnostic("N0103", f"{shown} is no part of the language", span, hint=hint)
        case "BAD_NUMBER":
            return Diagnostic("N0109", f"'{_short(token)}' is not a number", span)
        case "INT" if len(token) > 18:
            return Diagnostic("N0109", f"the number {_short(token)} is too large", span)
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


def _short(text: str) -> str:
    return text if len(text) <= 24 else text[:20] + "..."
