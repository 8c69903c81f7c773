"""Elements that several registers share, such as the two 4-bit numbers of a byte, are loaded once, in vectors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Var
from nautilus.core.types import DType
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.analysis.access import repeated_width
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
        (K, None, (1, 1)),
        (calc("mul", HALF, integer(2)), None, (1, 1)),
        (HALF, calc("lt", K, integer(8)), (8, 2)),
        (HALF, calc("lt", K, integer(7)), (1, 1)),
    ],
)
def test_widths(index: Expr, mask: Expr | None, found: tuple[int, int]) -> None:
    buffer = Buffer("W", DType.U8, (8, 64), Space.INPUT)
    assert repeated_width(buffer, (J, index), mask, "k", 16, {}) == found


SPEC = """
dim M = 16, N = {n}, K = 512
input X: f16[M, K], W: u4[N, K], s: f16[N, K // {g}]
output Y: f16[M, N]
Y[i, j] = sum[k](X[i, k] * ((W[j, k] - 8) * s[j, k // {g}]))
"""


@pytest.mark.parametrize(("n", "g"), [(256, 128), (200, 32)])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_weights_of_four_bits(n: int, g: int, arch: str, tmp_path: Path) -> None:
    result = compile_file(Request(tmp_path / "w.naut", arch, text=SPEC.format(n=n, g=g)))
    module = result.modules["ma-tile"]
    loads = [op for k in module.kernels for op in walk_ops(k.body) if isinstance(op, GlobalLoad) and op.buffer == "W"]
    assert loads and all((op.vec, op.repeat) == (32, 2) for op in loads)
    assert re.search(r"const uint4 word =[^;]*\bW \+", result.cuda)
