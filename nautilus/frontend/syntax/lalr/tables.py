"""The tables of a parser that Lark has made, and their form in a file."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from nautilus.frontend.syntax.lalr.machine import Rule, Tables

if TYPE_CHECKING:
    from lark import Lark


def to_json(tables: Tables) -> str:
    return json.dumps(asdict(tables), separators=(",", ":"))


def from_json(text: str) -> Tables:
    """Raises ValueError, KeyError or TypeError for other text."""
    found = json.loads(text)
    rules = tuple(Rule(**(r | {"spread": tuple(r["spread"])})) for r in found["rules"])
    return Tables(**(found | {"rules": rules, "ignored": tuple(found["ignored"])}))


def tables_of(parser: Lark, builder: object) -> Tables:
    """The tables of ``parser``, which is LALR with the basic lexer and keeps all tokens; ``builder``: its callbacks."""
    lexer: Any = parser._build_lexer()
    (pattern,) = (m.pattern for m in lexer.scanner._mres)
    words = {
        kind: {t.pattern.value: t.name for t in callback.scanner.terminals} for kind, callback in lexer.callback.items()
    }
    front: Any = parser.parser
    table = front.parser._parse_table
    numbers = {state: n for n, state in enumerate(table.states)}
    rules: dict[Any, int] = {}
    states = []
    for actions in table.states.values():
        state = {}
        for symbol, (action, arg) in actions.items():
            is_reduction = action.name == "Reduce"
            state[symbol] = ~rules.setdefault(arg, len(rules)) if is_reduction else numbers[arg]
        states.append(state)
    (start,), (end,) = table.start_states.values(), table.end_states.values()
    made = tuple(_rule(r, builder) for r in rules)
    return Tables(pattern, tuple(sorted(lexer.ignore_types)), words, states, made, numbers[start], numbers[end])


def _rule(rule: Any, builder: object) -> Rule:
    """A rule whose name begins with ``_`` is Lark's own, for a repetition, and has no method."""
    name: str = rule.alias or rule.origin.name
    spread = tuple(i for i, x in enumerate(rule.expansion) if not x.is_term and x.name.startswith("_"))
    is_single = rule.options.expand1 and not rule.alias
    method = "" if name.startswith("_") else name
    assert not method or is_single or hasattr(builder, method), f"no method for {name}"
    return Rule(rule.origin.name, len(rule.expansion), method if hasattr(builder, method) else "", is_single, spread)
