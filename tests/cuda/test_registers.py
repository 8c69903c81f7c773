"""Printed register arithmetic, evaluated, against the layouts that it prints."""

from __future__ import annotations

import re

import pytest

from nautilus.core.types import FORMATS, DType
from nautilus.cuda.intrinsics import HELPERS
from nautilus.cuda.registers import (
    bare,
    first_of_reduction,
    group,
    projected_register,
    register_offset,
    shuffle_distances,
    thread_base,
)
from nautilus.ma_tile.ir.instruction_tables import MMA
from nautilus.ma_tile.ir.layout import FragLayout, Mode

LAYOUTS = [
    FragLayout(
        (Mode(2, "j", 1), Mode(2, "i", 8), Mode(3, "j", 8), Mode(2, "i", 16)),
        (Mode(4, "j", 2), Mode(8, "i", 1)),
        (Mode(4, "i", 32),),
    ),
    FragLayout((Mode(4, "j", 32), Mode(8, "i", 4)), (Mode(32, "j", 1),), (Mode(4, "i", 1),)),
    FragLayout((Mode(5, "k", 1), Mode(1, "i", 7)), (Mode(32, None),), (Mode(2, "k", 5), Mode(2, None))),
]  # fmt: skip


def value(text: str, **names: int) -> int:
    """Evaluate C integer text: all operands are non-negative, so ``/`` is Python's ``//``."""
    python = re.sub(r"&&", " and ", text.replace("/", "//")).replace("true", "True")
    return int(eval(python, {}, names))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("var", ["r", "r + 1", "(r + 0)"])
def test_positions(layout: FragLayout, var: str) -> None:
    step = 1 if "1" in var else 0
    for axis in ("i", "j", "k"):
        want = layout.coords(axis)
        for warp, lane in ((0, 0), (layout.warps - 1, 17), (0, 31)):
            base = value(thread_base(layout, axis), lane=lane, warp=warp)
            for r in range(layout.registers - step):
                assert base + value(register_offset(layout, axis, var), r=r) == want[warp, lane, r + step]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axes", [("i",), ("j",), ("i", "k")])
def test_projections(layout: FragLayout, axes: tuple[str, ...]) -> None:
    want = layout.register_map(axes)
    got = [value(projected_register(layout, axes, "r + 1"), r=r - 1) for r in range(layout.registers)]
    assert tuple(got) == want
    gone = tuple(a for a in layout.axes if a not in axes)
    first = [bool(value(first_of_reduction(layout, gone, "r"), r=r)) for r in range(layout.registers)]
    seen: set[int] = set()
    for r, target in enumerate(want):
        assert first[r] == (target not in seen)
        seen.add(target)


@pytest.mark.parametrize(
    ("layout", "axes", "want"),
    [
        (LAYOUTS[0], ("j",), (1, 2)),
        (LAYOUTS[0], ("i",), (4, 8, 16)),
        (LAYOUTS[1], ("j",), (1, 2, 4, 8, 16)),
        (LAYOUTS[1], ("i",), ()),
        (FragLayout((), (Mode(3, "i", 1), Mode(8, None)), ()), ("i",), None),
    ],
)
def test_distances_of_lanes_that_hold_parts_of_a_sum(layout: FragLayout, axes: tuple[str, ...], want: object) -> None:
    assert shuffle_distances(layout, axes) == want


@pytest.mark.parametrize("name", MMA)
def test_helpers_of_matrix_instructions_have_the_registers_of_their_shapes(name: str) -> None:
    i = MMA[name]
    text = HELPERS[f"mma_{name.removesuffix('x2').replace('.', '_')}"].text
    bits = max(FORMATS[t].bits for t in i.operands)
    assert f"mma.sync.aligned.m{i.m}n{i.n}k{i.k}.row.col." in text
    word = FORMATS[i.acc].bits  # of a register of a thread
    text, *_ = text.split("#else")  # before sm_90, several smaller instructions make a product of f64
    registers = {"a": i.m * i.k * bits, "b": i.n * i.k * bits, "d": i.m * i.n * word}
    for operand, size in registers.items():
        held = size // word // 32
        assert re.findall(rf"\({operand}\[(\d)\]\)", text) == [str(n) for n in range(held)]
    assert ("int* d" in text) is (i.acc is DType.I32)


def test_parentheses_around_all_of_a_text_are_written_once() -> None:
    assert [group(x) for x in ("r", "12", "r % 2", "(r % 2)", "(r) / (2)")] == [
        "r", "12", "(r % 2)", "(r % 2)", "((r) / (2))",
    ]  # fmt: skip
    assert [bare(x) for x in ("(r % 2)", "((r))", "(r) + (2)", "r", "")] == ["r % 2", "(r)", "(r) + (2)", "r", ""]
