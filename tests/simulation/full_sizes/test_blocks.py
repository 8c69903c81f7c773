"""Blocks of a kernel at full sizes run on the simulated GPU as in the interpreter."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from nautilus.driver import Request, compile_file
from nautilus.ma_tile.ir.ops import MemModule
from tests.simulation.full_sizes.alone import Alone, alone, work
from tests.simulation.full_sizes.blocks import found_differences
from tests.simulation.simulate import MISSING

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "a compiler")

PRODUCT = """
dim M = 1025, N = 2056, K = 2048
input A: bf16[M, K], B: bf16[K, N]
output C: f32[M, N]
C[i, j] = sum[k](A[i, k] * B[k, j])
"""


def test_a_product() -> None:
    """Rows that begin anywhere, of tiles that end outside; the text of other sizes is another one."""
    request = Request(Path("given.naut"), "sm_90a", text=dedent(PRODUCT).lstrip(), until="ma-tile")
    module: MemModule = compile_file(request).modules["ma-tile"]
    kernel = module.kernels[0]
    short = alone(module, kernel, "last")
    assert isinstance(short, Alone) and work(short.kernel) < work(kernel)
    assert found_differences(module, kernel, {}, 1) == []
