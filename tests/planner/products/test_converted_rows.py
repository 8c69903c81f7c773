"""Products of few rows whose other operand warpgroups convert to fragments."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.core.schedule import WarpgroupPlan
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.ir.ops import Frag, MmaOp, walk_ops
from tests.endtoend.support import complaints, travel

TEXT = """dim M = {m}, N = {n}, K = {k}, G = {group}
input X: f16[M, K]
input W: {weights}
input s: f16[N, K // G]
output Y: f16[M, N]
Y[i, j] = sum[k](X[i, k] * ({element}))
"""
BYTES = "i8[N, K]", "f16(W[j, k])"
ALONG_COLUMNS = "i8[K, N]", "f16(W[k, j])"
HALVES = "f16[N, K]", "W[j, k]"
PACKED = "u4[N, K]", "f16(W[j, k] - 8) * s[j, k // G]"


def text(m: int, weights: str, element: str, group: int, n: int, k: int) -> str:
    return TEXT.format(m=m, n=n, k=k, group=group, weights=weights, element=element)


@pytest.mark.parametrize(
    ("m", "of", "group", "found"),
    [(64, BYTES, 128, (64, 128, 128)), (60, PACKED, 128, (64, 128, 128)), (40, PACKED, 64, (40, 128, 64)),
     (64, PACKED, 32, None), (64, ALONG_COLUMNS, 128, None), (64, HALVES, 128, None), (16, BYTES, 128, None),
     (72, BYTES, 128, None)],
    ids=["bytes", "4 bits", "short groups", "shorter groups", "other order", "nothing to convert", "few", "many"],
)  # fmt: skip
def test_tiles(m: int, of: tuple[str, str], group: int, found: tuple[int, int, int] | None) -> None:
    made = compile_file(Request(Path("given.naut"), "sm_90a", text=text(m, *of, group, 256, 1024), until="scalar"))
    assert made.context.schedule is not None
    plan = next(k for k in made.context.schedule.kernels if any(a.role == "loop" for a in k.axes))
    converts = isinstance(plan.mapping, WarpgroupPlan) and plan.mapping.warpgroups == 2 and of is not HALVES
    assert converts is (found is not None)
    assert found is None or tuple(plan.axis(x).tile for x in "ijk") == found


@pytest.mark.parametrize(("m", "of"), [(40, BYTES), (64, PACKED)], ids=["bytes", "4 bits"])
def test_the_rows_are_columns_of_the_instruction(m: int, of: tuple[str, str]) -> None:
    made = travel(text(m, *of, 128, 136, 1024), "sm_90a")
    (kernel,) = made.result.modules["ma-tile"].kernels
    (mma,) = (op for op in walk_ops(kernel.body) if isinstance(op, MmaOp))
    assert isinstance(mma.a, Frag) and not isinstance(mma.b, Frag)
    assert complaints(made, stages=("ma-tile",)) == []
