"""The TextMate grammar of ``.naut`` files, which colours them in VS Code and other editors, from the Lark grammar.

Keywords, operators and the forms of numbers, texts, names and comments are those of ``grammar/naut.lark``; element
types and functions are those of the front end.  All rules match inside one line, and the first of them that matches at
a place counts, so the order of :func:`_rules` is part of the grammar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nautilus.editor.names import TYPES
from nautilus.editor.words import functions, keywords
from nautilus.frontend.semantics.symbols import BUILTINS
from nautilus.frontend.syntax.grammar import grammar_file

FILE = Path(__file__).parent / "vscode" / "syntaxes" / "naut.tmLanguage.json"
_PATTERN = re.compile(r"^(FLOAT|INT|STRING|NAME): /(.*)/$", re.MULTILINE)
_STRING = re.compile(r'^[A-Z]+: "([^a-z"]+)"$', re.MULTILINE)
_IGNORED = re.compile(r"^%ignore /(#.*)/$", re.MULTILINE)
_DECLARES = ("dim", "const", "input", "output", "scalar", "def", "include")
_JOINS = ("if", "else", "and", "or", "not")
_PUNCTUATION = frozenset("()[]:,")


def grammar() -> str:
    """The text of :data:`FILE`."""
    made: dict[str, Any] = {
        "name": "naut",
        "scopeName": "source.naut",
        "fileTypes": ["naut"],
        "patterns": [{"name": f"{scope}.naut", "match": match} for scope, match in _rules()],
    }
    return json.dumps(made, indent=2) + "\n"


def _rules() -> Iterator[tuple[str, str]]:
    """Scope and expression of each rule, in the order in which they count."""
    text = grammar_file("naut.lark").read_text(encoding="utf-8")
    forms = dict(_PATTERN.findall(text))
    symbols = sorted({s for s in _STRING.findall(text) if s not in _PUNCTUATION}, key=lambda s: (-len(s), s))
    yield "comment.line.number-sign", next(iter(_IGNORED.findall(text)))
    yield "string.quoted.double", forms["STRING"]
    yield "keyword.declaration", rf"^\s*(assume|recur)\b(?!\s*[=\[:])|\b({_any(_DECLARES)})\b"
    yield "keyword.other", r"(?<=\])\s*strided\b|\bruntime\b"
    yield "keyword.control", rf"\b({_any(_JOINS)})\b"
    yield "constant.language", rf"\b({_any(sorted(keywords() - {*_DECLARES, *_JOINS, 'runtime'}))})\b"
    yield "constant.numeric", f"(?<![A-Za-z0-9_])({forms['FLOAT']}|{forms['INT']})"
    yield "storage.type", rf"\b({_any(sorted(TYPES))})\b"
    called = sorted({*functions(), *BUILTINS} - TYPES)
    yield "support.function", rf"\b({_any(called)})\b(?=\s*[\[(])"
    yield "variable.other", forms["NAME"]
    yield "keyword.operator", "|".join(re.escape(s) for s in symbols)


def _any(words: Iterable[str]) -> str:
    return "|".join(words)
