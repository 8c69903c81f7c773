"""The text of diagnostics, and exceptions that are equal after pickling."""

from __future__ import annotations

import pickle

import pytest

from nautilus.core.errors import (
    Diagnostic,
    DiagnosticError,
    InputError,
    InternalError,
    NautilusError,
    Note,
    ScheduleError,
    Severity,
    ToolchainError,
    UnsupportedError,
    VerifyError,
    nearest,
)
from nautilus.core.source import NO_SPAN, Source, Span, excerpt, fused

SOURCE = Source("a.naut", "first\n\tsecond = x + y\n" + "z" * 300 + "\n")


def span(line: int, column: int, end: int) -> Span:
    return Span(SOURCE, line, column, line, end)


def test_text_of_a_diagnostic() -> None:
    d = Diagnostic("N0201", "unknown tensor 'x'", span(2, 11, 12), (Note("see", span(1, 1, 6)),), "try y")
    assert d.text() == (
        "a.naut:2:11: error[N0201]: unknown tensor 'x'\n"
        " 2 |  second = x + y\n"
        "   |           ^\n"
        "a.naut:1:1: note: see\n"
        " 1 | first\n"
        "   | ^^^^^\n"
        "hint: try y"
    )
    warning = Diagnostic("N0209", "unused", severity=Severity.WARNING)
    assert warning.text() == "warning[N0209]: unused"
    assert warning.as_dict()["line"] is None


def test_long_lines_are_cut_around_the_caret() -> None:
    source, caret = excerpt(span(3, 200, 203))
    assert len(source) < 120 and "..." in source
    assert caret.count("^") == 3 and source[caret.index("^")] == "z"


@pytest.mark.parametrize(
    "odd", [span(9, 1, 2), span(1, 50, 60), span(1, 3, 3), Span(SOURCE, 1, 2, 3, 1), span(2, 1, 400)]
)
def test_any_span_renders(odd: Span) -> None:
    assert "^" in excerpt(odd)[1]


def test_control_characters_do_not_reach_the_terminal() -> None:
    source = Source("x", "a\x1b[31m\x07b")
    assert excerpt(Span(source, 1, 1, 1, 2))[0] == " 1 | a?[31m?b"


def test_fused() -> None:
    assert fused([span(2, 3, 4), NO_SPAN, span(1, 2, 5)]) == Span(SOURCE, 1, 2, 2, 4)
    assert fused([]) is NO_SPAN


def test_nearest() -> None:
    assert nearest("sofmax", ["softmax", "sum"]) == "did you mean 'softmax'?"
    assert nearest("q", ["Q", "K"]) == "did you mean 'Q'?"
    assert nearest("zebra", ["Q", "K"]) is None
    assert nearest("a", ["Q", "K"]) is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DiagnosticError([Diagnostic("N0101", "m", span(1, 1, 2))]), 1),
        (VerifyError("scalar", "ssa", "x = y\nz = x", "used before it is defined", span(1, 1, 2)), 70),
        (UnsupportedError("runtime dims", "below the Scalar IR", span(1, 1, 2)), 4),
        (ScheduleError("tile too large", "tile.M", kernel="out"), 4),
        (ToolchainError("nvrtc", "compilation failed", "line 1: error"), 3),
        (InternalError("broken", "/tmp/r"), 70),
        (InputError("input 'X' is not given"), 2),
    ],
)
def test_every_error_pickles(error: NautilusError, code: int) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and again.__dict__ == error.__dict__
    assert error.exit_code == code and str(error)


def test_verify_error_names_level_rule_and_node() -> None:
    text = str(VerifyError("tile", "shapes agree", "%2 = add %0, %1", "64x64 and 64x32", span(1, 1, 6)))
    assert text == (
        "a.naut:1:1: tile IR breaks the rule 'shapes agree': 64x64 and 64x32\n"
        "  in: %2 = add %0, %1\n 1 | first\n   | ^^^^^"
    )
