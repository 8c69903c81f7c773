"""``slice`` and volatile loads: what is legal, and which registers a slice takes."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.errors import VerifyError
from nautilus.ma_tile.interp.module import run_module
from nautilus.ma_tile.ir.instruction_tables import wg_acc_layout
from nautilus.ma_tile.ir.layout import FragLayout, Mode, same_threads, slice_registers
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify

WHOLE, PART = wg_acc_layout("i", "j", 128, 128), wg_acc_layout("i", "j", 128, 32)


def module(right: str = "slice %x at j 32 : f16[i: 128, j: 32] #part", load: str = "vec 2") -> MemModule:
    """Y = X[:, 32:64]."""
    return parse(f"""
module part target sm_90a {{
  input X: f16[128, 128]
  output Y: f16[128, 32]
  kernel part grid 1 warps 4 min_blocks 1 {{
    layout #whole = {WHOLE}
    layout #part = {PART}
    layout #swapped = {wg_acc_layout("j", "i", 64, 32)}
    %x = ld.global X[i, j] {load} : f16[i: 128, j: 128] #whole
    %y = {right}
    st.global Y[i, j], %y vec 2
  }}
}}
""")


def test_registers() -> None:
    rows = wg_acc_layout("i", "j", 64, 128)
    assert slice_registers(WHOLE, rows, "i", 64) == tuple(range(64, 128))
    assert slice_registers(rows, wg_acc_layout("i", "j", 64, 32), "j", 96) == tuple(range(48, 64))
    assert slice_registers(WHOLE, PART, "j", 32) == (*range(16, 32), *range(80, 96))
    assert slice_registers(WHOLE.project(("j",)), PART.project(("j",)), "j", 32) == tuple(range(8, 16))
    one = FragLayout((), (Mode(32, None),), ())
    assert slice_registers(one, one, "j", 0) == same_threads(one, one) == (0,)
    assert slice_registers(WHOLE, PART, "j", 4) is None  # lanes of the part would have to swap
    assert slice_registers(WHOLE, wg_acc_layout("j", "i", 128, 32), "j", 0) is None


def test_numbers() -> None:
    m = module()
    verify(m)
    assert parse(ma_format(m)) == m
    x = np.arange(128 * 128, dtype=np.float16).reshape(128, 128) % 1000
    np.testing.assert_array_equal(run_module(m, {"X": x})["Y"], x[:, 32:64])


@pytest.mark.parametrize(
    ("right", "rule"),
    [
        ("slice %x at j 104 : f16[i: 128, j: 32] #part", "a slice lies in the tile"),
        ("slice %x at j 4 : f16[i: 128, j: 32] #part", "a slice stays inside each thread"),
        ("slice %x at i 0 : f16[i: 128, j: 32] #part", "a slice is along one axis"),
        ("slice %x at k 0 : f16[i: 128, j: 32] #part", "a slice is along one axis"),
        ("slice %x at j 32 : f32[i: 128, j: 32] #part", "a slice keeps the type"),
        ("slice %x at j 32 : f16[i: 128, j: 32] #whole", "layouts cover their tiles"),
        ("slice %z at j 32 : f16[i: 128, j: 32] #part", "unknown fragment"),
    ],
)
def test_illegal(right: str, rule: str) -> None:
    with pytest.raises(Exception, match=rule) as error:
        verify(module(right))
    assert "Error" in type(error.value).__name__


def test_volatile_loads_are_of_buffers_that_are_not_written() -> None:
    verify(module(load="vec 2 volatile"))
    text = ma_format(module(load="vec 2 volatile")).replace("input X", "output X").replace("st.global Y", "st.global X")
    with pytest.raises(VerifyError, match="volatile loads read buffers that the kernel does not write"):
        verify(parse(text))
