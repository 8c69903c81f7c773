"""The grammar is LALR without conflicts, is found in both layouts, and does not depend on its cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nautilus.frontend.semantics.symbols import BUILTINS
from nautilus.frontend.syntax import grammar, load

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
