"""Fragment maps of the matrix instructions against the layouts of ``ma_tile.ir.ops``, and types of values."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.numerics import Array, round_to
from nautilus.core.types import DType
from nautilus.ma_tile.interp.mma import a_matrix, a_registers, b_matrix, b_registers, c_matrix, c_registers, multiply
from nautilus.ma_tile.interp.state.values import decode, encode, round_registers
from nautilus.ma_tile.ir.instruction_tables import MMA, a_layout, acc_layout, b_layout
from nautilus.ma_tile.ir.layout import FragLayout

GRIDS = [(1, 1), (2, 2), (4, 1), (1, 4)]


def spread(matrix: np.ndarray, layout: FragLayout, row: str, col: str) -> np.ndarray:
    """Registers [warp, lane, register] of a matrix under a declared layout."""
    return np.asarray(matrix[layout.coords(row), layout.coords(col)])


@pytest.mark.parametrize("name", sorted(MMA))
@pytest.mark.parametrize("grid", GRIDS)
def test_declared_layouts_are_the_hardware_maps(name: str, grid: tuple[int, int]) -> None:
    instr = MMA[name]
    m, n, k = 32 * grid[0], 24 * grid[1], 2 * instr.k
    rng = np.random.default_rng(0)
    a = rng.integers(0, 4, (m, k)).astype(np.float32)
    b = rng.integers(0, 4, (k, n)).astype(np.float32)
    la, lb = a_layout(name, "i", "k", (m, k), grid), b_layout(name, "k", "j", (k, n), grid)
    ra, rb = spread(a, la, "i", "k"), spread(b, lb, "k", "j")
    wa, wb = a_matrix(ra, instr, 2), b_matrix(rb, instr, 2)
    (dtype,) = instr.operands
    out = c_registers(multiply(wa, wb, dtype, instr.acc))
    assert np.array_equal(out, spread(a @ b, acc_layout("i", "j", (m, n), grid), "i", "j"))
    assert np.array_equal(a_registers(wa, instr), ra)
    assert np.array_equal(b_registers(wb, instr), rb)
    assert np.array_equal(c_registers(c_matrix(out, 32, 24)), out)


def test_ptx_isa_spot_checks() -> None:
    """``mma.m16n8k16``: lane 5 (group 1, member 1) holds a2, a3 at row 9, columns 2 and 3."""
    instr = MMA["m16n8k16.f16"]
    registers = np.zeros((1, 32, 8), np.float32)
    registers[0, 5, 2], registers[0, 5, 3], registers[0, 5, 4] = 1, 2, 3
    a = a_matrix(registers, instr, 1)[0]
    assert (a[9, 2], a[9, 3], a[1, 10]) == (1, 2, 3)
    registers = np.zeros((1, 32, 4), np.float32)
    registers[0, 5, 1], registers[0, 5, 2] = 1, 2
    b = b_matrix(registers, instr, 1)[0]
    assert (b[3, 1], b[10, 1]) == (1, 2)
    registers = np.zeros((1, 32, 4), np.float32)
    registers[0, 5, 1], registers[0, 5, 2] = 1, 2
    c = c_matrix(registers, 16, 8)[0]
    assert (c[1, 3], c[9, 2]) == (1, 2)


def test_tf32_drops_the_low_bits() -> None:
    one = np.full((1, 16, 8), 1.0 + 2.0**-12, np.float32)
    assert multiply(one, np.ones((1, 8, 8), np.float32), DType.TF32, DType.F32)[0, 0, 0] == 8.0


def test_integers_are_exact() -> None:
    a = np.full((1, 16, 4096), -128, np.int8)
    assert multiply(a, a.transpose(0, 2, 1)[:, :, :8], DType.I8, DType.I32)[0, 0, 0] == 4096 * 128 * 128


@pytest.mark.parametrize("dtype", [d for d in DType if not d.value.startswith("f8")])
def test_memory_form_round_trips(dtype: DType) -> None:
    x = np.asarray([[[0.0, 1.0, 2.5, 100.0, 7.0, 1.0 / 3.0]]])
    values = round_registers(x, dtype)
    bits = encode(values, dtype)
    assert bits.dtype.itemsize == dtype.bytes
    assert np.array_equal(decode(bits, dtype), values)


def test_bf16_rounds_to_nearest_even() -> None:
    x = np.asarray([1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, np.inf, np.nan, 3.4e38], np.float32)
    got = round_registers(x, DType.BF16)
    assert got[0] == 1.0 and got[1] == 1.0 + 2.0**-6 and got[2] == np.inf and np.isnan(got[3]) and got[4] == np.inf


@pytest.mark.parametrize(("x", "dtype", "rounded"), [
    (np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11]), DType.TF32, [1 + 2.0**-10, 1.0]),
    (np.array([2**24 + 2**16 + 1, 2**24 + 2**16], np.int32), DType.BF16, [2.0**24 + 2.0**17, 2.0**24]),
    (np.array([2**60 + 2**52 + 1, 2**60 + 2**52, -(2**63)]), DType.BF16, [2.0**60 + 2.0**53, 2.0**60, -(2.0**63)]),
])  # fmt: skip
def test_wider_numbers_are_rounded_once(x: Array, dtype: DType, rounded: list[float]) -> None:
    assert round_registers(x, dtype).tolist() == rounded == round_to(x, dtype).tolist()
