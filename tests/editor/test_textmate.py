"""The TextMate grammar is generated, and says of each token what the parser says; the extension is whole.

``pytest --update-golden tests/editor`` writes the grammar.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache

import pytest

from nautilus.core.source import Source
from nautilus.editor.names import TYPES
from nautilus.editor.textmate import FILE, grammar
from nautilus.editor.words import functions, keywords
from nautilus.frontend.syntax.grammar import grammar_file
from nautilus.frontend.syntax.parse import tokens
from tests.shipped import MORE, SPECS

EXTENSION = FILE.parents[1]


def test_the_file_is_the_generated_one(update_golden: bool) -> None:
    if update_golden:
        FILE.write_text(grammar())
    assert FILE.read_text() == grammar()


@cache
def rules() -> list[tuple[str, re.Pattern[str]]]:
    return [(p["name"], re.compile(p["match"])) for p in json.loads(grammar())["patterns"]]


def scopes(line: str) -> list[str]:
    """The scope of every character, as an editor finds it: the leftmost match, and of several the first rule."""
    found = [""] * len(line)
    place = 0
    while place < len(line):
        matches = [(m.start(), n, m.end()) for n, (_, r) in enumerate(rules()) if (m := r.search(line, place))]
        if not matches:
            break
        start, rule, end = min(matches)
        found[start:end] = [rules()[rule][0]] * (end - start)
        place = max(end, place + 1)
    return found


_WORDS = {
    **dict.fromkeys(("DIM", "CONST", "INPUT", "OUTPUT", "SCALAR", "DEF", "INCLUDE", "ASSUME"), "keyword.declaration"),
    **dict.fromkeys(("IF", "ELSE", "AND", "OR", "NOT"), "keyword.control"),
    **dict.fromkeys(("RUNTIME", "STRIDED"), "keyword.other"), **dict.fromkeys(("INF", "TRUE", "FALSE"), "constant"),
    **dict.fromkeys(("INT", "FLOAT"), "constant.numeric"), "STRING": "string",
    **dict.fromkeys(("LPAR", "RPAR", "LSQB", "RSQB", "COMMA", "COLON"), ""), "BAR": "keyword.operator",
}  # fmt: skip


def expected(token: object, kind: str) -> tuple[str, ...]:
    word = str(token)
    if kind == "NAME":
        known = ["storage.type"] if word in TYPES else ["support.function"] if word in functions() else []
        return (*known, "variable.other", *(["keyword.declaration"] if word == "recur" else []))
    if kind.startswith("BAD"):
        return ("",)
    return (_WORDS.get(kind, "keyword.operator"),)


EXTRA = """include "a.naut"
dim N = runtime <= 8, M = 3  # x
input A: f16[M, N] strided(all)
assume abs(A[i]) < inf
assume [i] = 1 if not 2. == .5e-3 and true or false else ~1 << 2 ** 3
recur h[t: 0..N] = sum(1..2) | sum
"""


def test_every_token_has_the_scope_of_its_kind() -> None:
    seen: set[str] = set()
    for text in (EXTRA, *(p.read_text() for p in (*SPECS, *MORE[::4], grammar_file("prelude.naut")))):
        lines = [scopes(line) for line in text.split("\n")]
        for t in tokens(Source("x.naut", text)):
            if t.type == "NEWLINE":
                continue
            found = set(lines[t.line - 1][t.column - 1 : t.end_column - 1])
            assert len(found) == 1, t
            scope = found.pop()
            wanted = expected(t, t.type)
            assert any(scope.startswith(w) if w else scope == "" for w in wanted), (t, t.line, scope)
            seen.add(t.type)
        for line, own in zip(text.split("\n"), lines, strict=True):
            if "#" in line and '"' not in line:
                assert set(own[line.index("#") :]) == {"comment.line.number-sign.naut"}
    assert {"STRING", "RUNTIME", "STRIDED", "ASSUME", "FLOAT", "DOTDOT", "NOT", "TRUE", "POW"} <= seen


def test_words_of_the_grammar() -> None:
    assert {"dim", "runtime", "inf", "not"} <= keywords() and "recur" not in keywords()
    assert functions()["max"][0].startswith("`max[j](e)`: ") or len(functions()["max"]) == 2


def test_the_extension_is_whole() -> None:
    about = json.loads((EXTENSION / "package.json").read_text())
    made = about["contributes"]
    named = [about["main"], *(g["path"] for g in made["grammars"]), *(g["configuration"] for g in made["languages"])]
    assert all((EXTENSION / name).is_file() for name in named)
    assert json.loads((EXTENSION / "language-configuration.json").read_text())["comments"] == {"lineComment": "#"}
    read = set(re.findall(r'settings\.get\("(\w+)"\)', (EXTENSION / "extension.js").read_text()))
    assert {f"nautilusc.{name}" for name in read} == set(made["configuration"]["properties"])


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_extension_is_javascript() -> None:
    done = subprocess.run(["node", "--check", str(EXTENSION / "extension.js")], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
