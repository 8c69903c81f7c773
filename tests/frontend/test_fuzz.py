"""No input gives a traceback: random bytes, random tokens, and shipped specs with an error."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from nautilus.core.errors import Diagnostic, DiagnosticError
from nautilus.frontend.semantics.check import load_spec, load_text
from tests import shipped

SPECS = [p.read_text() for p in shipped.SPECS]
ERRORS = [p.read_text() for p in sorted((Path(__file__).parent / "errors").glob("*.naut"))]
WORDS = """
dim const input output scalar def include runtime if else and or not inf true false
sum max mean argmax softmax exp f16 i32 bool X Y O S i j k M N c ( ) [ ] , : .. | = == < <=
+ - * / // % ** 0 1 2 1.5
"""
TOKENS = [*WORDS.split(), "\n", "\n "]
HEAD = "dim M = 4, N = 3\ninput X: f16[M, N]\ninput Y: i32[M]\noutput O: f32[M]\n"


def attempt(text: str) -> None:
    """Loads, or raises diagnostics that all render."""
    try:
        load_text(text + "\n")
    except DiagnosticError as error:
        assert error.diagnostics
        for d in error.diagnostics:
            assert isinstance(d, Diagnostic) and d.text() and d.as_dict()


#: all characters but halves of pairs; those of ``st.text`` take longer to find than the examples to load
CHARACTERS = st.one_of(st.integers(0, 127), st.integers(0, 0xD7FF), st.integers(0xE000, 0x10FFFF)).map(chr)


@settings(max_examples=60, deadline=None)
@given(st.lists(CHARACTERS, max_size=200).map("".join))
def test_text(text: str) -> None:
    attempt(text)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_bytes(tmp_path_factory: object, data: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".naut") as file:
        file.write(data)
        file.flush()
        try:
            load_spec(file.name)
        except DiagnosticError as error:
            assert str(error)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(TOKENS), max_size=40))
def test_token_soup(tokens: list[str]) -> None:
    attempt(HEAD + " ".join(tokens))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(TOKENS), max_size=15))
def test_expression_soup(tokens: list[str]) -> None:
    attempt(HEAD + "O[i] = " + " ".join(t for t in tokens if t != "\n"))


OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "<", "==", "and", "or", "&", "|", "^", "<<", ">>"]
_NAMES = st.sampled_from(["X[i, j]", "X[i, k]", "Y[i]", "i", "j", "M", "2", "1.5", "true", "X[Y[i], j]", "O[i]"])


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.tuples(inner, st.sampled_from(OPERATORS), inner)
    return st.one_of(
        binary.map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda x: f"exp({x})"),
        inner.map(lambda x: f"-{x}"),
        inner.map(lambda x: f"i32({x})"),
        st.tuples(inner, inner).map(lambda t: f"sum[j | {t[0]}]({t[1]})"),
        st.tuples(inner, inner).map(lambda t: f"softmax[j | {t[0]}]({t[1]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"sum[j: {t[0]} .. {t[1]}]({t[2]})"),
        inner.map(lambda x: f"argmax[k: 3]({x})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        inner.map(lambda x: f"X[{x}, 0]"),
    )


@settings(max_examples=200, deadline=None)
@given(st.recursive(_NAMES, _grow, max_leaves=12))
def test_well_formed_expressions(expr: str) -> None:
    attempt(HEAD + f"O[i] = {expr}")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_broken_specs(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(SPECS + ERRORS))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    attempt(text[:start] + data.draw(st.sampled_from(["", *TOKENS])) + text[end:])
