"""Tensors that are contiguous along another axis than a kernel computes go through shared memory."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.sectors import sectors
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import ForOp, GlobalLoad, GlobalStore, MemKernel, SharedStore, walk_ops
from nautilus.ma_tile.lowering.exchange import stage_between
from nautilus.ma_tile.lowering.layouts import spread
from tests.endtoend.support import complaints, travel

SUM = """
    dim M = {m}, N = {n}
    input A: {dtype}[M, N], B: {dtype}[N, M]
    output C: {dtype}[M, N]
    C[i, j] = A[i, j] + B[j, i]
"""
TWO = """
    dim M = 64, N = 1024
    input X: f16[M, N]
    output Y: f16[N, M], Z: f16[M, N]
    Z[i, j] = softmax[j](X[i, j])
    Y[j, i] = Z[i, j]
"""
ROWS = """
    dim M = 256, N = 1025
    input X: bf16[M, N]
    output Y: bf16[M, 1032]
    Y[i, j: 1032] = (X[i, min(j, N - 1)] if j < N else 0)
"""


def tile(rows: int, columns: int, dtype: DType) -> TileType:
    return TileType(dtype, (TileAxis("i", rows), TileAxis("j", columns)))


@pytest.mark.parametrize("dtype", [DType.F8E4M3, DType.F16, DType.F32])
@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (16, 1024), (32, 32)])
def test_a_stage_has_few_conflicts(dtype: DType, rows: int, columns: int) -> None:
    kind = tile(rows, columns, dtype)
    i, j = kind.axes
    vec = 16 // dtype.bytes
    source, target = spread((i, j), vec, 4), spread((j, i), vec, 4)
    stage = stage_between(kind, source, target)
    row = stage.axes[-1].size * dtype.bytes + stage.pad
    assert row % (stage.store * dtype.bytes) == row % (stage.load * dtype.bytes) == 0
    for layout in (source, target):
        address = np.zeros(32, np.int64) + sum(
            layout.coords(a.name)[0, :, 0] * prod(b.size for b in stage.axes[n + 1 : -1]) * row
            if n < len(stage.axes) - 1
            else layout.coords(a.name)[0, :, 0] * dtype.bytes
            for n, a in enumerate(stage.axes)
        )
        words = {int(x) // 4 for x in address}
        assert max(sum(w % 32 == bank for w in words) for bank in range(32)) <= 4


def accesses(kernel: MemKernel) -> list[GlobalLoad | GlobalStore]:
    return [op for op in walk_ops(kernel.body) if isinstance(op, GlobalLoad | GlobalStore)]


def waste(text: str) -> tuple[list[float], int]:
    """Bytes of touched sectors beside those that are moved, for each access, and the stores to shared memory."""
    module = travel(text, "sm_90a", until="ma-tile").result.modules["ma-tile"]
    (kernel,) = module.kernels

    def of(op: GlobalLoad | GlobalStore) -> float:
        frag = op.result if isinstance(op, GlobalLoad) else op.value
        layout: FragLayout = kernel.layouts[frag.layout]
        return sectors(module.buffer(op.buffer), op.index, layout, op.vec).waste

    staged = sum(isinstance(op, SharedStore) for op in walk_ops(kernel.body))
    return [of(op) for op in accesses(kernel)], staged


@pytest.mark.parametrize(
    ("text", "staged", "most"),
    [
        (SUM.format(m=1024, n=1024, dtype="f16"), 1, 1.0),
        (SUM.format(m=1024, n=1024, dtype="u8"), 1, 1.0),
        (SUM.format(m=1024, n=1024, dtype="f32"), 0, 1.0),
        (TWO, 1, 1.0),
        (ROWS, 1, 1.5),
    ],
)
def test_whole_sectors(text: str, staged: int, most: float) -> None:
    found, stores = waste(text)
    assert max(found) <= most and stores == staged


@pytest.mark.parametrize("text", [SUM.format(m=70, n=99, dtype="bf16"), SUM.format(m=64, n=64, dtype="u8")])
def test_results(text: str) -> None:
    assert not complaints(travel(text, "sm_90a"))


LOOP = """
    dim B = 2, N = {n}
    input X: {dtype}[B, N, N]
    output Y: f32[B, N], Z: f32[B]
    Y[b, i] = sum[j | j > i](X[b, i, j] * X[b, j, i])
    Z[b] = sum[i, j | i < j](abs(X[b, i, j] - X[b, j, i]))
"""


@pytest.mark.parametrize(("n", "dtype"), [(140, "f32"), (131, "f16")])
def test_in_loops_where_elements_are_far_from_each_other(n: int, dtype: str) -> None:
    made = travel(LOOP.format(n=n, dtype=dtype), "sm_90a")
    (kernel,) = made.result.modules["ma-tile"].kernels
    assert any(isinstance(op, ForOp) for op in kernel.body)
    assert sum(isinstance(op, SharedStore) for op in walk_ops(kernel.body)) == 1
    assert not complaints(made)
