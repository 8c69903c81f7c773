"""Round trips of the text form, and its errors."""

from __future__ import annotations

import pytest

from nautilus.core.text.tokens import IRParseError
from nautilus.scalar.ir import Kind, statements
from nautilus.scalar.text import format_program, parse_program
from tests.scalar.programs import samples


@pytest.mark.parametrize("text", [samples.SOFTMAX, samples.TILED])
def test_text_round_trip(text: str) -> None:
    p = parse_program(text)
    assert format_program(p) == text
    assert parse_program(format_program(p), p.name) == p


def test_perfect_nests_share_a_line() -> None:
    p = parse_program(samples.TILED)
    loops, update = list(statements(p.kernels[0].body))[2]
    assert [(loop.kind, loop.var) for loop in loops] == [
        (Kind.GRID, "bi"), (Kind.GRID, "bj"), (Kind.SEQ, "k0"),
        (Kind.TILE, "i"), (Kind.TILE, "j"), (Kind.TILE_RED, "k"),
    ]  # fmt: skip
    assert update.span.line == 18 and "acc[i, j] sum=" in update.span.source.line(update.span.line)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("par i in 0..R {", "per i in 0..R {", "expected an operation, found 'per'"),
        ("max= cast", "maximum= cast", "expected '=' or a combiner, found 'maximum'"),
        ("Y_sum[i], 0.0)", "Y_son[i], 0.0)", "unknown buffer 'Y_son'"),
        ("input X", "inputs X", "expected input or output or temp or param or assume or kernel or '}'"),
    ],
)
def test_errors_have_a_place(old: str, new: str, message: str) -> None:
    with pytest.raises(IRParseError) as e:
        parse_program(samples.SOFTMAX.replace(old, new, 1), "dump.scalar")
    assert message in str(e.value) and "dump.scalar:" in str(e.value)
