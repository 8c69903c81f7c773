"""``tma-loads``: results stay the same, and kernels as they are planned. What the pass does: ``tma_loads.ma``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nautilus.ma_tile.interp.module import run_module
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.passes.copies.tma_loads import TmaLoads
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from tests.endtoend.collection.decode import Decode
from tests.ma_tile.programs import plain as p
from tests.ma_tile.programs.combined import apart, edited, joined

GEMM = ma_format(p.gemm()).replace("sm_80", "sm_90a")
INPUTS = {"A": p.random(1, 64, 128), "B": p.random(2, 64, 128)}


def loaded(m: MemModule) -> MemModule:
    out = TmaLoads(tma_loads=True).apply(m)
    verify(out)
    assert parse(ma_format(out)) == out
    return out


def test_the_result_stays() -> None:
    want = p.f16(INPUTS["A"]).astype(np.float64) @ p.f16(INPUTS["B"]).T
    for seed in range(3):
        np.testing.assert_allclose(run_module(loaded(parse(GEMM)), INPUTS, seed=seed)["C"], want, atol=2e-2)


def test_swizzled_rows_with_a_pitch_stay() -> None:
    """The verifier refuses such a buffer, so no case of the file can hold it."""
    m = parse(edited(("stages 2 swizzle 64 pad 0 @ 0", "stages 2 swizzle 64 pad 16 @ 0"), text=GEMM))
    assert TmaLoads(tma_loads=True).apply(m) is m


# -- kernels as they are planned ----------------------------------------------------------------


@pytest.mark.parametrize(("given", "groups"), [(Decode(256, heads=2, group=2), 1), (Decode(201, heads=2), 1)], ids=str)
def test_the_pass_on_planned_kernels(given: Decode, groups: int) -> None:
    """The pass and the option of the schedule give the same module; one query a head, or heads that share keys."""
    before = apart(given, groups, 2, 16)
    assert loaded(before) == apart(given, groups, 2, 16, tma_loads=True)


def test_split_k_warps_have_pipelines_of_their_own(filecheck: Callable[[str, str], None]) -> None:
    """The rows that are loaded once have no pipeline and stay with ``cp.async``."""
    filecheck(
        ma_format(joined(apart(Decode(256, heads=2, group=2), 1, 2, 16, tma_loads=True), "O_acc_part")),
        """
        // CHECK: mbar full stages 6 arrivals 1
        // CHECK: role partial warps 0..2 consumers 2
        // CHECK: cp.async s_q_tile[consumer]
        // CHECK: mbar.expect full[consumer * 3] 4096
        // CHECK-NEXT: tma.load s_k_tile[consumer * 3] {{.*}}consumer * 16 + j, d_1] mbar full[consumer * 3] stream
        // CHECK-NEXT: tma.load s_v_tile[consumer * 3] {{.*}}mbar full[consumer * 3] stream
        // CHECK: mbar.expect full[consumer * 3 + 1] 4096
        // CHECK: for j0 in 0..8
        // CHECK: barrier (1 + consumer), 32
        // CHECK: mbar.expect full[consumer * 3 + (j0 + 2) % 3] 4096
        // CHECK: mbar.wait full[consumer * 3 + j0 % 3] parity j0 // 3 % 2
        // CHECK-NEXT: mma {{.*}}smem s_k_tile[consumer * 3 + j0 % 3]
        // CHECK-NOT: mbar.wait
        // CHECK: yield
        """,
    )


def test_two_levels_begin_their_pipeline_at_any_stage(filecheck: Callable[[str, str], None]) -> None:
    filecheck(
        ma_format(joined(apart(Decode(256, heads=2, group=2), 2, 2, 16, tma_loads=True), "O_acc_part")),
        """
        // CHECK: let j_chunk_consumer = j_chunk_chunk * 2 + consumer
        // CHECK: for j0 in j_chunk_consumer // 2 * 4..
        // CHECK: mbar.wait full[consumer * 3 + (STEP) % 3] parity (STEP) // 3 % 2
        """.replace("STEP", "j0 - j_chunk_consumer // 2 * 4"),
    )
