"""Fragment maps and addresses of wgmma against the declared layouts, and wgmma of every type."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.tiles import TileAxis
from nautilus.core.types import DType
from nautilus.ma_tile.interp.module import run_module
from nautilus.ma_tile.interp.wgmma import a_matrix, c_matrix, c_registers, engine_addresses
from nautilus.ma_tile.ir.instruction_tables import WGMMA, wg_a_layout, wg_acc_layout
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.values import Smem
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify

RNG = np.random.default_rng(0)


def spread(matrix: np.ndarray, layout: FragLayout, row: str, col: str) -> np.ndarray:
    """Registers [warp, lane, register] of a matrix under a declared layout."""
    return np.asarray(matrix[layout.coords(row), layout.coords(col)])


@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.parametrize("cols", [8, 72, 256])
def test_accumulators(rows: int, cols: int) -> None:
    d = RNG.integers(0, 1000, (rows, cols)).astype(np.float32)
    registers = spread(d, wg_acc_layout("i", "n", rows, cols), "i", "n")
    assert np.array_equal(c_registers(d), registers)
    assert np.array_equal(c_matrix(registers, rows, cols), d)


@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.parametrize("name", sorted(WGMMA))
def test_left_operands(rows: int, name: str) -> None:
    instr = WGMMA[name]
    a = RNG.integers(0, 1000, (rows, 3 * instr.k)).astype(np.float32)
    layout = wg_a_layout(name, "i", "k", rows, 3 * instr.k)
    assert np.array_equal(a_matrix(spread(a, layout, "i", "k"), instr, 3 * instr.k), a)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_addresses(swizzle: int) -> None:
    """Copy engine and threads agree on addresses if and only if the stage is aligned to the swizzle pattern."""
    buffer = Smem("s", DType.F16, (TileAxis("i", 16), TileAxis("k", 128)), 1, swizzle)
    row, col = np.arange(16)[:, None], np.arange(128)[None, :]
    own = buffer.layout().address(row, col)
    assert np.array_equal(engine_addresses(buffer, swizzle, 2048), 2048 + own)
    assert np.array_equal(engine_addresses(buffer, swizzle, 2048 + 128), 2048 + 128 + own) == (swizzle in (0,))


def product(name: str, dtype: str, acc: str, k_last: bool) -> str:
    depth = 2 * WGMMA[name].k
    b = f"n: 16, k: {depth}" if k_last else f"k: {depth}, n: 16"
    index, shape = ("n, k", f"16, {depth}") if k_last else ("k, n", f"{depth}, 16")
    swizzle = 64 if k_last else 32
    zero = "0.0" if acc == "f32" else "0"
    return f"""
module product target sm_90a {{
  input A: {dtype}[64, {depth}]
  input B: {dtype}[{shape}]
  output C: {acc}[64, 16]
  kernel product grid 1 warps 4 min_blocks 1 {{
    layout #acc = {wg_acc_layout("i", "n", 64, 16)}
    smem sa : {dtype}[i: 64, k: {depth}] stages 1 swizzle 64 pad 0 @ 0
    smem sb : {dtype}[{b}] stages 1 swizzle {swizzle} pad 0 @ 8192
    %zero = const {zero} : {acc}[i: 64, n: 16] #acc
    tma.load sa[0] swizzle 64, A[i, k]
    tma.load sb[0] swizzle {swizzle}, B[{index}]
    %c = mma {name} smem sa[0] swizzle 64, smem sb[0] swizzle {swizzle} + %zero over k : {acc}[i: 64, n: 16] #acc
    st.global C[i, n], %c vec 2
  }}
}}
"""


TYPES = {"wgmma.f16": "f16", "wgmma.bf16": "bf16", "wgmma.tf32": "tf32", "wgmma.s8": "i8", "wgmma.u8": "u8"}


@pytest.mark.parametrize("k_last", [True, False])
@pytest.mark.parametrize("name", sorted(TYPES))
def test_products(name: str, k_last: bool) -> None:
    if not k_last and not WGMMA[name].both_majors:
        pytest.skip("this type is read in one major")
    acc, depth = str(WGMMA[name].acc), 2 * WGMMA[name].k
    m = parse(product(name, TYPES[name], acc, k_last))
    verify(m)
    a, b = (RNG.integers(0, 8, shape).astype(np.float32) for shape in ((64, depth), (16, depth)))
    (got,) = run_module(m, {"A": a, "B": b if k_last else b.T}).values()
    assert np.array_equal(got, a @ b.T)
