"""The variants of one spec: the room for a plan, and what decides about the variant for unaligned tensors."""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.buffers import Buffer, ScalarParam, Space
from nautilus.core.expr.nodes import Param
from nautilus.core.types import DType
from nautilus.cuda.host.choice import Choice
from nautilus.cuda.host.launcher import PLAN_HEAD, plan_bytes
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.text import parse

WHOLE = parse("module m target sm_80 {\n  input X: f32[4]\n  temp T: f32[4]\n  output Y: f32[4]\n}\n")


def strided(multiple: int) -> MemModule:
    """X has rows that are ``multiple`` elements apart or a multiple of it; Z is dense."""
    step = ScalarParam("step", DType.I64, multiple=multiple)
    rows = Buffer("X", DType.F16, (4, 8), Space.INPUT, strides=(Param("step", DType.I64, multiple=multiple), 1))
    temp = replace(rows, name="T", space=Space.TEMP)
    dense = Buffer("Z", DType.F16, (4, 8), Space.INPUT)
    sizes = ScalarParam("N", DType.I32, most=64, multiple=8)
    return replace(WHOLE, buffers=(rows, temp, dense), params=(step, sizes))


def test_a_plan_of_several_variants_has_a_head() -> None:
    few = plan_bytes(WHOLE)
    assert Choice.of(WHOLE).plan_bytes == few
    assert Choice((WHOLE, WHOLE), 0, WHOLE).plan_bytes == few + PLAN_HEAD
    more = replace(WHOLE, buffers=(*WHOLE.buffers, *(replace(WHOLE.buffers[0], name=f"X{n}") for n in range(40))))
    assert Choice((WHOLE, more), 0, WHOLE).plan_bytes == plan_bytes(more) + PLAN_HEAD > few + PLAN_HEAD


def test_addresses_and_promised_strides_decide_about_unaligned_tensors() -> None:
    for multiple in (2, 8):
        whole = strided(multiple)
        tensors, strides = Choice((whole,), 0, whole, unaligned=whole).checked()
        assert [b.name for b in tensors] == ["X"] and [p.name for p in strides] == ["step"]
        assert Choice.of(whole).checked() == ([], [])
    tensors, strides = Choice((strided(1),), 0, strided(1), unaligned=strided(1)).checked()
    assert tensors == [] and strides == []
