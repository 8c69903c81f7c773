"""Printed ``ld.matrix``: the addresses of the CUDA text, run lane by lane, deliver the declared fragments."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from nautilus.core.types import DType
from nautilus.cuda.emit import emit_module
from nautilus.ma_tile.ir.layout import SmemLayout
from nautilus.ma_tile.ir.ops import MatrixLoad, MemModule
from tests.ma_tile.ir.test_matrix_load import copy

Ints = NDArray[np.int64]

_CONST = re.compile(r"const (?:int|u32) (\w+) = (.*);")
_LOOP = re.compile(r"for \(int (\w) = 0; \w < (\d+); (?:\w \+= (\d+)|\+\+\w)\)")
_LOAD = re.compile(r"ldmatrix_x(\d)(_trans)?\(&f\[(.*?)\], (.*)\);")


def python(text: str) -> str:
    """A C expression of non-negative integers in Python's spelling (the precedences are the same)."""
    text = text.replace("threadIdx.x", "thread").replace("shared_address(smem)", "0").replace("/", "//")
    return re.sub(r"swizzle_(\d+)<(\d+)>\(", r"swizzle(\1, \2, ", text)


def swizzle(width: int, rows: int, row: Ints, byte: Ints) -> Ints:
    """The helper of that name, computed from its layout."""
    return SmemLayout(rows, 4096, DType.F16, width).address(row, byte // 2)


def ldmatrix(memory: Ints, address: Ints, count: int, trans: bool) -> Ints:
    """Elements [lane, 2 * matrix + half] of one instruction (PTX ISA, "ldmatrix")."""
    assert not np.any(address % 16)
    rows = memory[address[: 8 * count, None] // 2 + np.arange(8)].reshape(count, 8, 8)
    if trans:
        rows = rows.transpose(0, 2, 1)
    return np.ascontiguousarray(rows.reshape(count, 32, 2).transpose(1, 0, 2)).reshape(32, 2 * count)


def delivered(text: str, warp: int, memory: Ints, registers: int) -> Ints:
    """The contents of ``f`` in every lane of ``warp`` after the loads of the kernel ``text``."""
    env: dict[str, object] = {"thread": 32 * warp + np.arange(32), "swizzle": swizzle}
    out: Ints = np.full((32, registers), -1, np.int64)
    loops: list[tuple[str, range]] = []
    env.update((name, int(value)) for name, value in re.findall(r"\b(\w+_(?:at|bytes)) = (\d+)", text))
    for line in text.splitlines():
        if found := _CONST.search(line):
            if not re.search(r"\bX\b|\br\b", line):  # the loads that fill the stage are not run
                env[found[1]] = eval(python(found[2]), env)
        elif found := _LOOP.search(line):
            loops.append((found[1], range(0, int(found[2]), int(found[3] or 1))))
        elif found := _LOAD.search(line):
            count = int(found[1])
            for values in product(*(r for _, r in loops)):
                env.update(zip((n for n, _ in loops), values, strict=True))
                first = 2 * int(eval(python(found[3]), env))
                address = np.asarray(eval(python(found[4]), env))
                out[:, first : first + 2 * count] = ldmatrix(memory, address, count, found[2] is not None)
        elif line.strip() == "}" and loops:
            loops.pop()
    return out


def check(m: MemModule) -> None:
    (kernel,) = m.kernels
    (buffer,) = kernel.smem
    layout, stage = kernel.layouts["f"], buffer.layout()
    row, col = np.meshgrid(np.arange(stage.rows), np.arange(stage.cols), indexing="ij")
    memory = np.full(stage.bytes // 2, -1, np.int64)
    memory[stage.address(row, col) // 2] = row * stage.cols + col
    (load,) = [op for op in kernel.body if isinstance(op, MatrixLoad)]
    at = {"i": layout.coords("i"), "k": layout.coords("k") + load.start}
    want = at[buffer.axes[0].name] * stage.cols + at[buffer.axes[1].name]
    text = emit_module(m).split("__global__")[1]
    for warp in range(kernel.warps):
        got = delivered(text, warp, memory, layout.registers)
        assert np.array_equal(got, want[warp]), warp


@pytest.mark.parametrize("start", [0, 16, 48])
@pytest.mark.parametrize("major", ["i", "k"])
@pytest.mark.parametrize("grid", [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize(("side", "each"), [("a", 48), ("a", 64), ("b", 48), ("b", 64)])
def test_addresses(side: str, each: int, grid: tuple[int, int], major: str, start: int) -> None:
    check(copy(side, grid, major, start, each=each))


@pytest.mark.parametrize("major", ["i", "k"])
@pytest.mark.parametrize(("grid", "each"), [((1, 1), 24), ((1, 2), 24), ((1, 1), 8)])
def test_odd_numbers_of_column_tiles(grid: tuple[int, int], each: int, major: str) -> None:
    check(copy("b", grid, major, 16, each=each))


@pytest.mark.parametrize("major", ["i", "k"])
@pytest.mark.parametrize(("side", "grid"), [("a", (2, 1)), ("a", (1, 2)), ("b", (2, 1)), ("b", (1, 2))])
def test_several_k_steps(side: str, grid: tuple[int, int], major: str) -> None:
    check(copy(side, grid, major, 16, depth=48))
