"""A lexer and an LALR parser that run from tables.

They do what those of Lark do with the same grammar, but a compilation whose cache has the tables need not import Lark,
which takes longer than all parsing.  The parser has the tokens of one statement.  It does not recurse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nautilus.core.records import dataclass


class Token(str):
    """A token, with the attributes that Lark's have: positions count from 1, and ends are after the last character."""

    __slots__ = ("column", "end_column", "end_line", "end_pos", "line", "start_pos", "type")
    type: str
    start_pos: int
    end_pos: int
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Rule:
    """``origin``: of ``size`` symbols.

    ``method``: the callback of the children; without one they become children of the rule around them.  ``is_single``:
    a child that is alone takes the place of the rule.  ``spread``: the children that are lists of such children.
    """

    origin: str
    size: int
    method: str
    is_single: bool
    spread: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tables:
    """``pattern`` has a group for each terminal; ``words``: for a terminal, the texts that are another terminal.

    ``states``: for each state and symbol, the next state, or ``~n`` for a reduction by rule ``n``.
    """

    pattern: str
    ignored: tuple[str, ...]
    words: Mapping[str, Mapping[str, str]]
    states: Sequence[Mapping[str, int]]
    rules: tuple[Rule, ...]
    start: int
    end: int


class Unexpected(Exception):
    """A token that continues no statement."""


class Machine:
    """Lexer and parser; ``builder`` has the methods of the rules."""

    def __init__(self, tables: Tables, builder: Any) -> None:
        self.tables = tables
        self._match = re.compile(tables.pattern).match
        self._rules = [(r, getattr(builder, r.method) if r.method else list) for r in tables.rules]

    def lex(self, text: str) -> Iterator[Token]:
        """The tokens of ``text``, of which every character belongs to a terminal."""
        ignored, words = self.tables.ignored, self.tables.words
        at, line, begin = 0, 1, 0  # of the line
        while at < len(text):
            found = self._match(text, at)
            assert found is not None and found.lastgroup is not None, f"no terminal at {at}"
            kind, end = found.lastgroup, found.end()
            if kind not in ignored:
                token = Token(found.group())
                token.type = words[kind].get(token, kind) if kind in words else kind
                token.start_pos, token.line, token.column = at, line, at - begin + 1
            if newlines := text.count("\n", at, end):
                line, begin = line + newlines, text.rindex("\n", at, end) + 1
            at = end
            if kind not in ignored:
                token.end_pos, token.end_line, token.end_column = at, line, at - begin + 1
                yield token

    def parse(self, tokens: Sequence[Any]) -> Any:
        """What the callbacks make of the statement ``tokens``. Raises Unexpected."""
        states = self.tables.states
        stack, values = [self.tables.start], list[Any]()
        for token in tokens:
            while (action := states[stack[-1]].get(token.type)) is not None and action < 0:
                self._reduce(~action, stack, values)
            if action is None:
                raise Unexpected
            stack.append(action)
            values.append(token)
        while stack[-1] != self.tables.end:
            action = states[stack[-1]].get("$END")
            if action is None:
                raise Unexpected
            self._reduce(~action, stack, values)
        return values[-1]

    def _reduce(self, n: int, stack: list[int], values: list[Any]) -> None:
        rule, callback = self._rules[n]
        parts = values[len(values) - rule.size :]
        del stack[len(stack) - rule.size :], values[len(values) - rule.size :]
        if rule.spread:
            parts = [x for i, part in enumerate(parts) for x in (part if i in rule.spread else (part,))]
        values.append(parts[0] if rule.is_single and len(parts) == 1 else callback(parts))
        stack.append(self.tables.states[stack[-1]][rule.origin])
