"""Elements that several registers share, such as the two 4-bit numbers of a byte, are loaded once, in vectors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Ref, Var
from nautilus.core.types import DType
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.analysis.access import repeated_width, vector_width
from nautilus.ma_tile.ir.ops import GlobalLoad, walk_ops

K, J = Var("k"), Var("j")
HALF = calc("floordiv", K, integer(2))


@pytest.mark.parametrize(
    ("index", "mask", "found"),
    [
        (HALF, None, (32, 2)),
        (calc("add", HALF, integer(8)), None, (16, 2)),
        (calc("add", HALF, integer(1)), None, (2, 2)),
        (calc("floordiv", K, integer(16)), None, (256, 16)),
        (calc("floordiv", K, integer(3)), None, (1, 1)),
        (calc("floordiv", K, integer(48)), None, (16, 16)),
        (calc("floordiv", calc("add", calc("mul", J, 8), K), integer(24)), None, (8, 8)),
        (calc("floordiv", calc("add", calc("mul", J, 4), K), integer(24)), None, (4, 4)),
        (calc("floordiv", calc("add", K, 2), integer(24)), None, (2, 2)),
        (calc("floordiv", calc("mul", K, 2), integer(24)), None, (1, 1)),
        (calc("floordiv", K, integer(48)), calc("lt", K, integer(36)), (4, 4)),
        (K, None, (1, 1)),
        (calc("mul", HALF, integer(2)), None, (2, 2)),
        (HALF, calc("lt", K, integer(8)), (8, 2)),
        (HALF, calc("lt", K, integer(7)), (1, 1)),
    ],
)
def test_widths(index: Expr, mask: Expr | None, found: tuple[int, int]) -> None:
    buffer = Buffer("W", DType.U8, (8, 64), Space.INPUT)
    assert repeated_width(buffer, (J, index), mask, "k", 16, {}) == found


def test_parts_of_bytes_are_loaded_in_vectors(tmp_path: Path) -> None:
    """Three bits of a byte are not unpacked, but the elements of a byte load it once."""
    text = """
dim M = 16, N = 256, K = 512
input X: f16[M, K], W: u8[N, K // 2]
output Y: f16[M, N]
Y[i, j] = sum[k](X[i, k] * f32(W[j, k // 2] >> u8(4 * (k % 2)) & u8(7)))
"""
    result = compile_file(Request(tmp_path / "w.naut", "sm_90a", text=text))
    module = result.modules["ma-tile"]
    loads = [op for k in module.kernels for op in walk_ops(k.body) if isinstance(op, GlobalLoad) and op.buffer == "W"]
    assert loads and all((op.vec, op.repeat) == (16, 2) for op in loads)
    assert re.search(r"const uint2 word =[^;]*\bW \+", result.cuda_module.code)


def test_scales_of_groups_of_any_size_are_loaded_once_for_a_run(tmp_path: Path) -> None:
    text = """
dim M = 16, N = 256, K = 768, G = 48
input X: f16[M, K], W: i4[N, K], s: f16[N, K // G]
output Y: f16[M, N]
Y[i, j] = sum[k](X[i, k] * (f16(W[j, k]) * s[j, k // G]))
"""
    module = compile_file(Request(tmp_path / "w.naut", "sm_90a", text=text, until="ma-tile")).modules["ma-tile"]
    loads = [op for k in module.kernels for op in walk_ops(k.body) if isinstance(op, GlobalLoad) and op.buffer == "s"]
    assert loads and all(op.repeat == 16 for op in loads)


def test_rows_of_a_table_are_loaded_as_vectors(tmp_path: Path) -> None:
    """A byte gives the row of a table for eight terms, so that the eight elements of the row are one vector."""
    text = """
dim M = 4, N = 256, G = 128
input X: f16[M, G * 8], C: u8[N, G], T: f16[2, 256, 8]
output Y: f16[M, N]
Y[m, n] = sum[g, l: 8](X[m, g * 8 + l] * (T[0, C[n, g], l] + T[1, C[n, g], l]))
"""
    module = compile_file(Request(tmp_path / "w.naut", "sm_90a", text=text, until="ma-tile")).modules["ma-tile"]
    loads = [op for k in module.kernels for op in walk_ops(k.body) if isinstance(op, GlobalLoad) and op.buffer == "T"]
    assert loads and all(op.vec == 8 for op in loads)


@pytest.mark.parametrize(
    ("along", "mask", "found"),
    [
        ({"k": 8}, None, 8),
        ({"k": 4}, None, 4),
        ({"k": 1}, None, 1),
        ({"j": 1}, None, 8),
        ({"k": 8}, 3, 8),
        ({"k": 2}, 3, 2),
    ],
)
def test_vectors_at_places_that_values_give(along: dict[str, int], mask: int | None, found: int) -> None:
    """Values with one element for a run of positions give the elements of a vector that is no longer than the run."""
    row = Ref("c", DType.I32)
    index, guard = (row, calc("mod", K, integer(8))), None if mask is None else calc("lt", row, integer(mask))
    assert vector_width(Buffer("T", DType.F16, (256, 8), Space.INPUT), index, guard, "k", 8, {"c": along}) == found
