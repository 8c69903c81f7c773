"""The grammar is LALR without conflicts, is found in both layouts, and does not depend on its cache."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nautilus.core.source import Source
from nautilus.frontend.semantics.symbols import BUILTINS
from nautilus.frontend.syntax import grammar, load, parse
from nautilus.frontend.syntax.tables import Parser, UnexpectedTokenError, tables_of
from nautilus.frontend.syntax.words import mark_bars, mark_words

PROGRAM = (
    "from nautilus.frontend.semantics.check import load_text\nprint(load_text('output O: f32[3]\\nO[i] = i\\n').name)"
)


def run(code: str, env: dict[str, str]) -> str:
    root = str(Path(__file__).parents[2])
    import os

    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": root, **env}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_cache_is_used_and_may_be_broken(tmp_path: Path) -> None:
    env = {"NAUTILUS_CACHE_DIR": str(tmp_path / "cache")}
    assert run(PROGRAM, env) == "spec"
    tables, whole = (next((tmp_path / "cache").glob(f"grammar-*.{suffix}")) for suffix in ("json", "lark"))
    whole.unlink()
    assert run(f"{PROGRAM}\nimport sys\nprint('lark' in sys.modules)", env) == "spec\nFalse"
    for file in (tables, whole):
        file.write_bytes(b"not a cache")
    assert run(PROGRAM, env) == "spec" and json.loads(tables.read_bytes())


def test_the_tables_parse_as_lark_does() -> None:
    _, builder = parse._tools()
    builder.source = Source("prelude", grammar.prelude_text())
    own = Parser(json.loads(json.dumps(tables_of(parse._lark(builder)))), builder)
    for statement in parse._statements(own.lex(builder.source.text), builder.source, []):
        mark_words(statement.tokens)
        mark_bars(statement.tokens)
        machine = parse._lark(builder).parse_interactive()
        for token in statement.tokens:
            machine.feed_token(token)
        assert own.parse(statement.tokens) == machine.feed_eof(statement.tokens[-1])
        with pytest.raises(UnexpectedTokenError):
            own.parse(statement.tokens[:-1] + statement.tokens[:1])


def test_tokens_are_those_of_lark() -> None:
    text = 'include "a.naut" # text\n\nY[i] = inf if 1.5e3 <= X[i, 0..2] else .5\n 0x1 $'
    parser, builder = parse._tools()
    own, theirs = list(parser.lex(text)), list(parse._lark(builder).lex(text))
    places = ("type", "start_pos", "end_pos", "line", "column", "end_line", "end_column")
    assert own == theirs and all(
        getattr(a, p) == getattr(b, p) for a, b in zip(own, theirs, strict=True) for p in places
    )


def test_an_unusable_cache_directory_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert run(PROGRAM, {"NAUTILUS_CACHE_DIR": str(tmp_path / "file" / "below")}) == "spec"
    assert run(PROGRAM, {"NAUTILUS_CACHE_DIR": "/proc/nowhere"}) == "spec"


def test_cache_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAUTILUS_CACHE_DIR", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert grammar.cache_dir() == Path("/a")
    monkeypatch.delenv("NAUTILUS_CACHE_DIR")
    assert grammar.cache_dir() == Path("/b/nautilusc")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert grammar.cache_dir() == Path.home() / ".cache" / "nautilusc"


def test_importing_the_front_end_is_cheap() -> None:
    code = (
        "import sys, nautilus.frontend.semantics.check\n"
        "print([m for m in ('lark', 'numpy', 'sympy') if m in sys.modules])"
    )
    assert run(code, {}) == "[]"


def test_the_prelude_parses_and_hides_no_builtin() -> None:
    names = [f.name.id for f in load.prelude()]
    assert len(set(names)) == len(names) and not set(names) & BUILTINS
