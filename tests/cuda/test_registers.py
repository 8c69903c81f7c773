"""Printed register arithmetic, evaluated, against the layouts that it prints."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from nautilus.core.types import FORMATS, DType
from nautilus.cuda.intrinsics import HELPERS
from nautilus.cuda.ops.mma import _register_with_k
from nautilus.cuda.registers import (
    bare,
    first_holder,
    first_of_reduction,
    group,
    projected_register,
    register_offset,
    shuffle_distances,
    thread_base,
)
from nautilus.cuda.writer import axis_ranges
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


def test_the_first_holder_of_elements_that_threads_repeat() -> None:
    held = first_holder(LAYOUTS[2])
    assert [n for n in range(32) if value(" && ".join(held["lane"]), lane=n)] == [0]
    assert [n for n in range(4) if value(" && ".join(held["warp"]), warp=n)] == [0, 1]
    assert first_holder(LAYOUTS[2], lanes=False).keys() == {"warp"} and not first_holder(LAYOUTS[0])


def test_distances_pass_over_digits_of_one_position() -> None:
    lanes = (Mode(1, "j", 1), Mode(4, "j", 1), Mode(8, "i", 1))
    assert shuffle_distances(FragLayout((), lanes, ()), ("j",)) == (1, 2)
    assert shuffle_distances(FragLayout((), (Mode(6, "j", 1),), ()), ("j",)) is None


def test_a_register_of_an_operand_by_its_position_along_the_sum() -> None:
    threads = (Mode(32, "i", 4),), ()
    result = FragLayout((Mode(2, "j", 1), Mode(2, "i", 1), Mode(2, "j", 2), Mode(2, "i", 2)), *threads)
    own = FragLayout((Mode(2, "i", 1), Mode(4, "k", 1), Mode(2, "i", 2)), *threads)
    text = _register_with_k(own, result, "k").replace("$r", "r")
    for r in range(16):
        for k in range(4):
            assert value(text, r=r, k=k) == r // 2 % 2 + 2 * k + 8 * (r // 8)


def test_positions_reach_as_far_as_any_layout_or_buffer() -> None:
    layouts = {"a": FragLayout((Mode(8, "i", 1),), (), ()), "b": FragLayout((Mode(2, "i", 1), Mode(1, "j", 1)), (), ())}
    kernel: Any = SimpleNamespace(layouts=layouts, smem=())
    assert axis_ranges(kernel) == {"i": (0, 7), "j": (0, 0)}


def test_matrices_that_are_loaded_transposed_say_so() -> None:
    for count in (2, 4):
        plain, turned = (HELPERS[f"ldmatrix_x{count}{end}"].text for end in ("", "_trans"))
        assert ".trans" not in plain and ".trans" in turned and plain != turned
    wide, quarters = HELPERS["mma_m16n8k8_f64"].text.split("#else")
    assert [wide.count(f'"+d"(d[{n}])') for n in range(4)] == [1] * 4
    assert [quarters.count(f'"+d"(d[{n}])') for n in range(4)] == [2] * 4
