"""Declarations read back as they are printed, at every level by the same code."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import ModuleType

import pytest

from nautilus.core.buffers import Buffer, ScalarParam, Space
from nautilus.core.expr.nodes import Param
from nautilus.core.op_fields import NAME
from nautilus.core.ops import Level, declare, part
from nautilus.core.text.modules import BUFFERS, PARAMS, TextForm
from nautilus.core.text.tokens import IRParseError
from nautilus.core.types import DType
from nautilus.driver import Request, compile_file
from nautilus.ma_tile import text as ma_text
from nautilus.vr_tile import text as vr_text

TEXT = """\
toy t {
  input x: f16[4, N]
  temp s: f32[]
  temp t: f32[(N + 127) // 128 * 2, 4] of [N]
  output y: bf16[N]
  param N: i32 <= 65536
  param eps: f32 = 1e-06
}
"""


@part("toy $name {$buffers $params}")
class Toy:
    name: str = declare(NAME)
    buffers: tuple[Buffer, ...] = declare(BUFFERS)
    params: tuple[ScalarParam, ...] = declare(PARAMS)


FORM = TextForm(Toy, Level("toy", "value"))


def read(lines: str) -> Toy:
    return FORM.parse(f"toy t {{ {lines} }}")


def test_round_trip() -> None:
    m = FORM.parse(TEXT)
    assert [b.space for b in m.buffers] == [Space.INPUT, Space.TEMP, Space.TEMP, Space.OUTPUT]
    assert [n.most for n in m.buffers[3].shape if isinstance(n, Param)] == [m.params[0].most] == [65536]
    assert {p.name: p.dtype for p in m.params} == {"N": DType.I32, "eps": DType.F32}
    assert FORM.format(m) == TEXT
    assert (m.buffers[0].span.line, m.params[1].span.line) == (2, 7)


def test_a_shape_takes_the_type_of_a_size_declared_later() -> None:
    assert read("input x: f16[N] param N: i64").buffers[0].shape == (Param("N", DType.I64),)


def test_numbers() -> None:
    written = {"i32": "-1", "f32": "2.5", "f16": "-inf", "bool": "true", "f64": "nan", "bf16": "3"}
    m = read(" ".join(f"param p_{t}: {t} = {n}" for t, n in written.items()))
    values = [p.default for p in m.params]
    assert values[:4] == [-1, 2.5, -math.inf, True] and values[3] is True
    assert isinstance(values[4], float) and math.isnan(values[4])
    assert values[5] == 3.0 and isinstance(values[5], float)


def test_what_is_no_declaration_is_named() -> None:
    with pytest.raises(IRParseError) as e:
        read("input x: f16[2] kernel k")
    assert e.value.message == "expected input or output or temp or param or '}', found 'kernel'"


@pytest.mark.parametrize(
    "text",
    ["input x f16[2]", "input x: f99[2]", "param eps: f32 = x", "temp x: f32[%]", "param p: bool = 3",
     "local x: f32[2]", "param p: i32 = 1.5"],
)  # fmt: skip
def test_broken(text: str) -> None:
    with pytest.raises(IRParseError):
        read(text)


@pytest.mark.parametrize("stage", ["vr-tile", "ma-tile"])
def test_bounds_of_loops_may_read_buffers(stage: str, tmp_path: Path) -> None:
    spec = tmp_path / "ragged.naut"
    spec.write_text(
        "dim B = 4, N = 1048576\ninput X: f32[B, N]\ninput len: i32[B]\noutput Y: f32[B]\n"
        "assume 0 <= len[b] <= N\nY[b] = sum[j | j < len[b]](X[b, j])\n"
    )
    made = compile_file(Request(spec, "sm_80")).modules[stage]
    form: ModuleType = {"vr-tile": vr_text, "ma-tile": ma_text}[stage]
    text = form.format(made)
    assert re.search(r"(for|let) .*len\[", text)
    assert form.parse(text) == made
