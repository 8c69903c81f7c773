"""The standard layout: what it keeps, what it changes, and the command that writes it."""

from __future__ import annotations

import io
import random
import re
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nautilus.cli.main import main
from nautilus.core.errors import DiagnosticError
from nautilus.core.source import Source
from nautilus.editor.layout import formatted
from nautilus.frontend.syntax.grammar import grammar_file
from nautilus.frontend.syntax.parse import parse, tokens
from tests.fuzz.specs import GENERATORS
from tests.shipped import MORE, ROOT, SPECS

STANDARD = [*SPECS, *MORE, grammar_file("prelude.naut")]
OTHERS = sorted((ROOT / "tests").rglob("*.naut"))


def layout(text: str) -> str:
    return formatted(Source("x.naut", text))


def tree(text: str) -> Any:
    """The syntax tree of ``text`` without places."""
    file, errors = parse(Source("x.naut", text))
    assert not errors
    return _bare(file.statements)


def _bare(node: Any) -> Any:
    if isinstance(node, tuple):
        return tuple(map(_bare, node))
    if not is_dataclass(node):
        return node
    return (type(node).__name__, *(_bare(getattr(node, f.name)) for f in fields(node) if f.name != "span"))


def comments(text: str) -> list[str]:
    return [line.partition("#")[2].rstrip() for line in text.split("\n") if "#" in line]


def respaced(text: str, chance: random.Random) -> str:
    """``text`` with other spaces between its tokens, at the ends of its lines and before them."""
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        own = [t for t in tokens(Source("x.naut", text)) if t.line == number and t.type != "NEWLINE"]
        made = _spaces(chance, 0)
        for before, t in pairwise([None, *own]):
            glued = before is not None and re.match(r"[\w.\"]{2}", str(before)[-1] + str(t)[0]) is not None
            made += ("" if before is None else _spaces(chance, int(glued))) + str(t)
        rest = line[own[-1].end_column - 1 :] if own else line
        lines[number - 1] = made + _spaces(chance, 0) + rest.strip() + _spaces(chance, 0)
    return "\n".join(lines)


def _spaces(chance: random.Random, least: int) -> str:
    return "".join(chance.choices(" \t", k=chance.randint(least, least + 2)))


def test_shipped_texts_have_the_standard_layout() -> None:
    """``make format`` gives it to them."""
    assert [str(path) for path in STANDARD if layout(path.read_text()) != path.read_text()] == []


@pytest.mark.parametrize("number", range(4))
def test_spaces_do_not_decide_the_layout(number: int) -> None:
    chance = random.Random(number)
    for path in chance.sample(STANDARD, 12):
        text = path.read_text()
        other = respaced(text, chance)
        assert other != text and layout(other) == text, path


def parsing(paths: list[Path]) -> list[str]:
    texts = [p.read_text() for p in paths]
    return [t for t in texts if not parse(Source("x.naut", t))[1]]


def test_tree_and_comments_stay() -> None:
    made = [make(seed) for make in GENERATORS.values() for seed in range(6)]
    texts = [*parsing(OTHERS), *made]
    assert len(texts) > 60
    for text in texts:
        found = layout(text)
        assert tree(found) == tree(text) and layout(found) == found, text
        assert comments(found) == comments(text)


SYMBOLS = """
dim const input output scalar def include runtime if else and or not inf true false recur assume strided
sum f16 X O i j k ( ) [ ] { } , : .. | = == < & ^ ~ << + - * / // % ** 0 1 2. .5 "a.naut"
"""
WORDS = [*SYMBOLS.split(), "\n", "\n\n", " ", "# a  b\n", "\t"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=16), st.integers(0, 9))
def test_any_text_that_parses(words: list[str], start: int) -> None:
    heads = ("O = ", "O[i] = sum[j | ", "dim ", "input ", "def f", "recur {\n", "assume ", "", "O = -(", "X: f16[i] = ")
    text = heads[start] + " ".join(words)
    try:
        found = layout(text)
    except DiagnosticError:
        return
    assert tree(found) == tree(text) and layout(found) == found
    assert comments(found) == comments(text)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("dim N=8,M = 4#x", "dim N = 8, M = 4  #x\n"),
        ("Y[i]=-X[ i ]* -2", "Y[i] = -X[i] * -2\n"),
        ("Y [i] = - ( ~ a + +b)", "Y[i] = -(~a + +b)\n"),
        ("O = max [j:N|j<3 and not b [j]] (X [j])", "O = max[j: N | j < 3 and not b[j]](X[j])\n"),
        ("O = sum[j:0..N](x|y)", "O = sum[j: 0 .. N](x | y)\n"),
        ("input A:f16[M,N]strided (all)", "input A: f16[M, N] strided(all)\n"),
        ("assume(N % 8)==0", "assume (N % 8) == 0\n"),
        ("assume [i] = 1", "assume[i] = 1\n"),
        ("recur   h[t]=1", "recur h[t] = 1\n"),
        ("recur{\nh[t]=f(\n1)\n# c\n\n}", "recur {\n    h[t] = f(\n      1)\n    # c\n\n}\n"),
        ("def f [j|c] ( x,y )=x**-y", "def f[j | c](x, y) = x ** -y\n"),
        ("\n\ndim N\n\n\n\ndim M \n\n", "dim N\n\ndim M\n"),
        ("O = f(\n- a\n- b\n)", "O = f(\n  -a\n  - b\n)\n"),
        ("O = f(g(\na,\nh[\nb\n]))", "O = f(g(\n  a,\n  h[\n    b\n]))\n"),
        ("input X: f16\noutput Y: f16", "input  X: f16\noutput Y: f16\n"),
        ("input X: f16\n\noutput Y: f16", "input X: f16\n\noutput Y: f16\n"),
        ("input X: f16[\n8], Z: f16\noutput Y: f16", "input  X: f16[\n  8], Z: f16\noutput Y: f16\n"),
        ("# only\n", "# only\n"),
        ("\n \n", ""),
    ],
)  # fmt: skip
def test_rules(text: str, made: str) -> None:
    assert layout(text) == made == layout(made)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, wrong = tmp_path / "good.naut", tmp_path / "bad.naut", tmp_path / "wrong.naut"
    good.write_text("dim N = 8\n")
    bad.write_bytes(b"dim N=8\r\n")
    assert main(["fmt", "--check", str(good)]) == 0
    assert main(["fmt", "--check", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"nautilusc: {bad} has another layout\n"
    assert main(["fmt", "--diff", str(tmp_path)]) == 0
    assert "\n-dim N=8\n+dim N = 8\n" in capsys.readouterr().out
    assert bad.read_bytes() == b"dim N=8\r\n"
    wrong.write_text("dim  =\n")
    assert main(["fmt", str(tmp_path)]) == 1
    assert bad.read_bytes() == good.read_bytes() and wrong.read_text() == "dim  =\n"
    assert "wrong.naut:1:6: error[N0104]" in capsys.readouterr().err
    assert main(["fmt", str(tmp_path / "none.naut")]) == 2 and main(["fmt", "README.md"]) == 2


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    for text, code, out in ((b"dim N=8\n", 0, b"dim N = 8\n"), (b"dim N = 8\n", 0, b"dim N = 8\n"), (b"1\n", 1, b"")):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))
        assert main(["fmt", "-"]) == code
        assert capfdbinary.readouterr().out == out
