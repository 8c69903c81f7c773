"""The LALR parser of one statement as plain tables, which are loaded without Lark.

Importing Lark and rebuilding its parser from its cache takes as long as a tenth of a short compilation.  Lark finds the
tables in the grammar (:func:`tables_of`); the loops over them do what those of Lark do, with the same callbacks.  Lark
itself explains what does not parse (:mod:`nautilus.frontend.syntax.parse`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lark import Lark

_END = "$END"  # Lark's name of the terminal after the last token


class Token(str):
    """A piece of text: the name of its terminal, and its place as Lark's tokens have it."""

    __slots__ = ("column", "end_column", "end_line", "end_pos", "line", "start_pos", "type")

    type: str
    start_pos: int
    end_pos: int
    line: int
    column: int
    end_line: int
    end_column: int


class UnexpectedTokenError(Exception):
    """The tokens are no statement."""


class Parser:
    """A lexer and a parser by tables, which :func:`tables_of` describes; ``callbacks`` has a method for each rule."""

    def __init__(self, tables: Mapping[str, Any], callbacks: object) -> None:
        self._pattern = re.compile(tables["pattern"])
        self._words: Mapping[str, str] = tables["words"]
        self._ignored = frozenset(tables["ignored"])
        self._start, self._end = tables["start"], tables["end"]
        self._states: Sequence[Mapping[str, int]] = tables["states"]
        self._rules = [(*rule, getattr(callbacks, rule[2], None)) for rule in tables["rules"]]

    def lex(self, text: str) -> Iterator[Token]:
        """The tokens of ``text``, of which each character belongs to one or is ignored."""
        line, begin = 1, 0
        for m in self._pattern.finditer(text):
            value, kind = m.group(), m.lastgroup
            first, column = line, m.start() - begin + 1
            if "\n" in value:
                line, begin = line + value.count("\n"), m.start() + value.rindex("\n") + 1
            if kind in self._ignored:
                continue
            token = Token(value)
            token.type = self._words.get(value, kind) if kind == "NAME" else kind or ""
            token.start_pos, token.end_pos = m.span()
            token.line, token.column, token.end_line, token.end_column = first, column, line, m.end() - begin + 1
            yield token

    def parse(self, tokens: Iterable[Token]) -> Any:
        """What the callbacks make of the statement ``tokens``. Raises UnexpectedTokenError, and what they raise."""
        states, values = [self._start], list[Any]()
        for kind, token in (*((t.type, t) for t in tokens), (_END, None)):
            while (action := self._states[states[-1]].get(kind)) is not None and action < 0:
                origin, size, _, spliced, single, callback = self._rules[-1 - action]
                children = values[-size:]
                del states[-size:], values[-size:]
                for n in reversed(spliced):
                    children[n : n + 1] = children[n]
                if single and len(children) == 1:
                    values.append(children[0])
                else:
                    values.append(children if callback is None else callback(children))
                states.append(self._states[states[-1]][origin])
                if states[-1] == self._end:
                    return values[-1]
            if action is None:
                raise UnexpectedTokenError
            states.append(action)
            values.append(token)
        raise UnexpectedTokenError


def tables_of(parser: Lark) -> dict[str, Any]:
    """The tables of ``parser``, as JSON can hold them.

    ``pattern``: of any token, where the name of a group is that of the terminal; ``words``: names that are terminals of
    their own; ``ignored``: terminals between tokens; ``start``, ``end``: numbers of ``states``.  A state has the next
    state by terminal or rule, or ``-1 - n`` to reduce rule ``n``.  ``rules``: name, number of children, callback, the
    children that repeat a part and are lists, and whether a single child stands for the rule.
    """
    front: Any = parser.parser
    table, lexer = front.parser._parse_table, front.lexer.lexer
    scanner = lexer.scanner  # which says what words are names elsewhere
    (pattern,) = scanner._mres
    words = {t.pattern.value: t.name for x in lexer.callback.values() for t in x.scanner.terminals}
    reduced = [x for state in table.states.values() for _, x in state.values() if not isinstance(x, int)]
    rules = list(dict.fromkeys(reduced))
    numbers = {rule: -1 - n for n, rule in enumerate(rules)}
    return {
        "pattern": pattern.pattern,
        "words": words,
        "ignored": sorted(lexer.ignore_types),
        "start": table.start_states["statement"],
        "end": table.end_states["statement"],
        "states": [
            {name: numbers.get(x, x) for name, (_, x) in table.states[n].items()} for n in range(len(table.states))
        ],
        "rules": [_rule(rule) for rule in rules],
    }


def _rule(rule: Any) -> tuple[str, int, str, list[int], bool]:
    spliced = [n for n, x in enumerate(rule.expansion) if not x.is_term and x.name.startswith("_")]
    single = bool(rule.options.expand1 and not rule.alias)
    return rule.origin.name, len(rule.expansion), rule.alias or rule.origin.name, spliced, single
