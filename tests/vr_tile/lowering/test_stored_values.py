"""A value that has the type of its store is not rounded again."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.driver import Request, compile_file
from nautilus.vr_tile.ir import MapOp, TileModule, walk_ops


def _casts(text: str) -> list[str]:
    """The results of the conversions of the last kernel."""
    m: TileModule = compile_file(Request(Path("s.naut"), "sm_90a", text=text, until="vr-tile")).modules["vr-tile"]
    ops = walk_ops(m.kernels[-1].body)
    return [op.result.type.dtype.value for op in ops if isinstance(op, MapOp) and op.op == "cast"]


@pytest.mark.parametrize(("dtype", "value", "casts"), [
    ("f16", "X[i, j]", []),
    ("f16", "X[i, j] if i > j else 0", []),
    ("i8", "i8(round(f32(X[i, j])))", ["f32", "i8"]),
    ("f32", "X[i, j]", ["f32"]),
])  # fmt: skip
def test_conversions(dtype: str, value: str, casts: list[str]) -> None:
    text = f"dim M = 64, N = 256\ninput X: f16[M, N]\noutput Y: {dtype}[M, N]\nY[i, j] = {value}\n"
    assert _casts(text) == casts
