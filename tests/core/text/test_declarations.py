"""Declarations read back as they are printed, at every level by the same code."""

from __future__ import annotations

import pytest

from nautilus.core.buffers import Space
from nautilus.core.expr.nodes import Param
from nautilus.core.source import Source
from nautilus.core.text.declarations import Declarations, format_buffer, format_param
from nautilus.core.text.tokens import IRParseError, TokenStream
from nautilus.core.types import DType

TEXT = """\
input x: f16[4, N]
temp s: f32[]
output y: bf16[N]
param N: i32
param eps: f32 = 1e-06"""


def read(text: str) -> tuple[Declarations, dict[str, DType], TokenStream]:
    ts = TokenStream(Source("<test>", text))
    types: dict[str, DType] = {}
    declared = Declarations(ts, types)
    while declared.accept():
        pass
    return declared, types, ts


def test_round_trip() -> None:
    declared, types, ts = read(TEXT)
    ts.end()
    assert [b.space for b in declared.buffers] == [Space.INPUT, Space.TEMP, Space.OUTPUT]
    assert types == {"N": DType.I32, "eps": DType.F32}
    printed = [*map(format_buffer, declared.buffers), *map(format_param, declared.params)]
    assert "\n".join(printed) == TEXT


def test_a_shape_takes_the_type_of_a_size_declared_later() -> None:
    declared, _, _ = read("input x: f16[N]\nparam N: i64")
    assert declared.buffers[0].shape == (Param("N", DType.I64),)


def test_what_is_no_declaration_is_left() -> None:
    _, _, ts = read("input x: f16[2] kernel k")
    assert ts.text == "kernel"


@pytest.mark.parametrize("text", ["input x f16[2]", "input x: f99[2]", "param eps: f32 = x", "temp x: f32[%]"])
def test_broken(text: str) -> None:
    with pytest.raises(IRParseError):
        read(text)
