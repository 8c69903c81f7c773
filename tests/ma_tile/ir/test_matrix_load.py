"""``ld.matrix``: text, what the verifier rejects, and that it delivers what its layout declares."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.errors import VerifyError
from nautilus.ma_tile.interp.module import InterpError, run_module
from nautilus.ma_tile.ir.instruction_tables import a_layout, b_layout
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.text import format, parse
from nautilus.ma_tile.verify.module import verify

INSTR = "m16n8k16.f16"


def copy(
    side: str, grid: tuple[int, int], major: str, start: int, barrier: str = "barrier", each: int = 48,
    depth: int = 16,
) -> MemModule:  # fmt: skip
    """``depth`` of a 64-deep operand with ``each`` rows a warp, read as fragments and written out."""
    warps, rows = grid[0] * grid[1], each * grid[0 if side == "a" else 1]
    layout = a_layout(INSTR, "i", "k", (rows, depth), grid)
    if side == "b":
        layout = b_layout(INSTR, "k", "i", (depth, rows), grid)
    axes = f"i: {rows}, k: 64" if major == "k" else f"k: 64, i: {rows}"
    at = "i, k" if major == "k" else "k, i"
    shape = axes.replace("i: ", "").replace("k: ", "")
    columns = 64 if major == "k" else rows
    swizzle = next(x for x in (128, 64, 32, 0) if x == 0 or 2 * columns % x == 0)
    return parse(f"""
module fragments target sm_80 {{
  input X: f16[{shape}]
  output Y: f16[{rows}, {depth}]
  kernel fragments grid 1 warps {warps} min_blocks 1 {{
    layout #in = {whole(major, rows, warps)}
    layout #f = {layout}
    smem s : f16[{axes}] stages 1 swizzle {swizzle} pad 0 @ 0
    %x = ld.global X[{at}] vec 8 : f16[{axes}] #in
    st.shared s[0] swizzle {swizzle}, %x vec 8
    {barrier}
    %f = ld.matrix s[0] swizzle {swizzle} at k {start} : f16[i: {rows}, k: {depth}] #f
    st.global Y[i, k], %f vec 2
  }}
}}
""")


def whole(major: str, rows: int, warps: int) -> FragLayout | str:
    """A layout that covers the stage, eight contiguous elements a register run."""
    if major == "k":
        return f"reg(k:8x1, i:{rows // (4 * warps)}x{4 * warps}) lane(k:8x8, i:4x1) warp(i:{warps}x4)"
    return f"reg(i:8x1, k:2x32, i:{rows // (8 * warps)}x{8 * warps}) lane(k:32x1) warp(i:{warps}x8)"


@pytest.mark.parametrize("start", [0, 16, 48])
@pytest.mark.parametrize("major", ["i", "k"])
@pytest.mark.parametrize("grid", [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("side", ["a", "b"])
def test_it_delivers_what_its_layout_declares(side: str, grid: tuple[int, int], major: str, start: int) -> None:
    m = copy(side, grid, major, start)
    assert parse(format(m)) == m
    verify(m)
    x = np.random.default_rng(1).standard_normal(m.buffers[0].shape).astype(np.float16)  # type: ignore[arg-type]
    want = (x if major == "k" else x.T)[:, start : start + 16]
    assert np.array_equal(run_module(m, {"X": x})["Y"], want)


@pytest.mark.parametrize("major", ["i", "k"])
@pytest.mark.parametrize("side", ["a", "b"])
def test_several_k_steps(side: str, major: str) -> None:
    m = copy(side, (2, 1), major, 16, depth=48)
    verify(m)
    x = np.random.default_rng(1).standard_normal(m.buffers[0].shape).astype(np.float16)  # type: ignore[arg-type]
    assert np.array_equal(run_module(m, {"X": x})["Y"], (x if major == "k" else x.T)[:, 16:64])


def test_it_needs_a_barrier_after_the_stores() -> None:
    m = copy("a", (2, 1), "k", 0, barrier="")
    with pytest.raises(InterpError) as info:
        run_module(m, {"X": np.zeros((96, 64), np.float16)})
    assert (info.value.kind, info.value.buffer) == ("unsynchronised-read", "s")


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("at k 16", "at k 8", "ldmatrix reads inside its stage"),
        ("at k 16", "at k 64", "ldmatrix reads inside its stage"),
        ("at k 16", "at z 0", "ldmatrix reads a part of a matrix"),
        ("ld.matrix s[0] swizzle 128", "ld.matrix s[0] swizzle 64", "an access has its buffer's swizzle"),
        ("ld.matrix s[0]", "ld.matrix s[1]", "stages lie inside their buffer or mbarrier"),
        (": f16[i: 96, k: 16] #f", ": bf16[i: 96, k: 16] #f", "ldmatrix reads 16-bit operands"),
        (": f16[i: 96, k: 16] #f", ": f16[i: 96, k: 32] #f", "layouts cover their tiles"),
        ("#f = reg(k:2x1, i:2x8", "#f = reg(i:2x8, k:2x1", "fragments are in the instruction's layout"),
    ],
)
def test_what_the_verifier_rejects(old: str, new: str, rule: str) -> None:
    text = format(copy("a", (2, 1), "k", 16))
    assert old in text
    with pytest.raises(VerifyError) as info:
        verify(parse(text.replace(old, new)))
    assert info.value.rule == rule
