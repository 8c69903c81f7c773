"""Vectors of loads and stores: elements of 64 bits have them, axes along which loads are elements apart do not."""

from __future__ import annotations

import re
from math import prod
from pathlib import Path

import pytest

from nautilus.driver import Request, compile_file
from nautilus.ma_tile.ir.ops import GlobalLoad, GlobalStore, walk_ops
from tests.endtoend.support import complaints, travel

BOXES = """
    dim M = {n}, N = {n}
    input A: f32[M, 4], B: f32[N, 4]
    output Y: f32[M, N]
    Y[i, j] = max(min(A[i, 2], B[j, 2]) - max(A[i, 0], B[j, 0]), 0)
"""
WIDE = """
    dim N = {n}
    input a: {dtype}[N], b: i32[N]
    output c: {dtype}[N], d: u8[N]
    c[i] = a[i] * 3 + b[i]
    d[i] = u8(b[i] & 255)
"""


def test_loads_of_fields_have_neighbouring_lanes_at_neighbouring_rows(tmp_path: Path) -> None:
    result = compile_file(Request(tmp_path / "boxes.naut", "sm_90a", text=BOXES.format(n=512)))
    (kernel,) = result.modules["ma-tile"].kernels
    along = [m for layout in kernel.layouts.values() for m in layout.lane if m.axis == "j"]
    assert along and all(m.stride == 1 for m in along)
    assert complaints(travel(BOXES.format(n=37), "sm_90a")) == []


@pytest.mark.parametrize(("dtype", "word"), [("i64", "longlong2"), ("f64", "double2")])
def test_elements_of_64_bits_are_loaded_and_stored_in_pairs(dtype: str, word: str, tmp_path: Path) -> None:
    result = compile_file(Request(tmp_path / "wide.naut", "sm_90a", text=WIDE.format(n=1 << 17, dtype=dtype)))
    found = {
        op.buffer: op.vec
        for k in result.modules["ma-tile"].kernels
        for op in walk_ops(k.body)
        if isinstance(op, GlobalLoad | GlobalStore)
    }
    assert found == {"a": 2, "b": 2, "c": 2, "d": 2}
    assert len(re.findall(rf"reinterpret_cast<(?:const )?{word}\*>", result.cuda_module.code)) == 2
    assert complaints(travel(WIDE.format(n=301, dtype=dtype), "sm_90a")) == []


@pytest.mark.parametrize(("c", "lanes"), [(19, 8), (50, 4), (100, 8), (32, 8), (5, 8)])
def test_lanes_of_several_rows_fill_sectors_or_lines(c: int, lanes: int, tmp_path: Path) -> None:
    """More lanes along a row would exchange more values, and compute again what depends on a row alone."""
    text = f"""
        dim N = 40000, C = {c}
        input X: f32[N, C]
        output L: f32[N]
        L[n] = logsumexp[c](X[n, c])
    """
    module = compile_file(Request(tmp_path / "rows.naut", "sm_90a", text=text, until="ma-tile")).modules["ma-tile"]
    (load,) = (op for k in module.kernels for op in walk_ops(k.body) if isinstance(op, GlobalLoad))
    (layout,) = (k.layouts[load.result.layout] for k in module.kernels)
    assert prod(m.size for m in layout.lane if m.axis == "c") == lanes
    assert complaints(travel(text.replace("40000", "67"), "sm_90a")) == []


def test_threads_have_several_pairs_of_rows_of_a_group(tmp_path: Path) -> None:
    """Lanes are groups, of which no two share elements, so that a thread uses what it loads several times."""
    text = """
dim G = 4096, N = 16, D = 128
input X: f32[G, N, D], Y: f32[G, N, D]
output Z: f32[G, N, N]
Z[g, i, j] = sum[d](abs(X[g, i, d] - Y[g, j, d]))
"""
    module = compile_file(Request(tmp_path / "pairs.naut", "sm_90a", text=text, until="ma-tile")).modules["ma-tile"]
    (kernel,) = module.kernels
    loads = {op.buffer: op for op in walk_ops(kernel.body) if isinstance(op, GlobalLoad)}
    registers: dict[str, list[int]] = {}
    for name, axis in (("X", "i"), ("Y", "j")):
        layout = kernel.layouts[loads[name].result.layout]
        registers[name] = [m.size for m in layout.reg if m.axis == axis]
        assert any(m.axis == "g" for m in layout.lane)
        assert not any(m.axis == "g" for m in layout.reg)
    assert registers == {"X": [8], "Y": [4]}
