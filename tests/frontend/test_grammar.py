"""The grammar is LALR without conflicts, is found in both layouts, and does not depend on its cache."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from nautilus.core.source import Source
from nautilus.frontend.semantics.symbols import BUILTINS
from nautilus.frontend.syntax import grammar, load, parse
from tests.shipped import MORE, SPECS

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
    (file,) = (tmp_path / "cache").glob("grammar-*.lark")
    file.write_bytes(b"not a cache")
    assert run(PROGRAM, env) == "spec"
    (tables,) = (tmp_path / "cache").glob("grammar-*.json")
    known = tables.read_text()
    for text in ("no tables", "[]", "{}", known[: len(known) // 2]):
        tables.write_text(text)
        assert run(PROGRAM, env) == "spec"
        assert tables.read_text() != text


def test_lark_is_imported_for_errors_alone(tmp_path: Path) -> None:
    env = {"NAUTILUS_CACHE_DIR": str(tmp_path)}
    run(PROGRAM, env)
    assert run(f"import sys\n{PROGRAM}\nassert 'lark' not in sys.modules", env) == "spec"


@pytest.mark.parametrize("path", [*SPECS[::5], *MORE[::20], grammar.grammar_file("prelude.naut")], ids=lambda p: p.stem)
def test_statements_are_those_that_lark_parses(path: Path) -> None:
    source = Source(str(path), path.read_text())
    machine, builder = parse._tools()
    builder.source = source
    lark = parse._lark(builder)

    def seen(tokens: Iterable[Any]) -> list[tuple[object, ...]]:
        return [(str(t), t.type, t.start_pos, t.end_pos, *vars_of(t)) for t in tokens]

    def vars_of(t: Any) -> tuple[int, ...]:
        return t.line, t.column, t.end_line, t.end_column

    assert seen(machine.lex(source.text)) == seen(lark.lex(source.text))
    parts = [p for p in parse._statements(machine.lex(source.text), source, []) if p.tokens]
    for part in parts:
        assert repr(parse._parse_one(machine, builder, part.tokens)) == repr(parse._parse_by_lark(lark, part.tokens))
    assert parts


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
