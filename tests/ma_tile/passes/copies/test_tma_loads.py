"""``tma-loads``: one instruction a tile, the bytes announced, waits in front of readers, kernels that stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nautilus.core.schedule import AxisPlan, KernelPlan, Schedule, WarpPlan
from nautilus.ma_tile.interp.module import run_module
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.passes.copies.tma_loads import TmaLoads
from nautilus.ma_tile.text.printer import format as ma_format
from nautilus.ma_tile.text.printer import parse
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


def test_a_pipeline_of_two_operands(filecheck: Callable[[str, str], None]) -> None:
    filecheck(
        ma_format(loaded(parse(GEMM))),
        """
        // CHECK: mbar full stages 2 arrivals 1 @ 16384
        // CHECK-NOT: cp.async
        // CHECK: mbar.expect full[0] 8192
        // CHECK-NEXT: tma.load sa[0] swizzle 64, A[i, k] mbar full[0] stream
        // CHECK-NEXT: tma.load sb[0] swizzle 64, B[n, 0 * 32 + k] mbar full[0] stream
        // CHECK: for t in 0..4
        // CHECK: if t {{.*}} {
        // CHECK-NEXT: mbar.expect full[(t + 1) % 2] 8192
        // CHECK-NEXT: tma.load sa[(t + 1) % 2] swizzle 64, A[i, (t + 1) * 32 + k] mbar full[(t + 1) % 2] stream
        // CHECK-NEXT: tma.load sb[(t + 1) % 2]
        // CHECK-NEXT: }
        // CHECK: barrier
        // CHECK-NEXT: mbar.wait full[t % 2] parity t // 2 % 2
        // CHECK-NEXT: mma m16n8k16.f16 smem sa[t % 2]
        // CHECK-NEXT: barrier
        """.replace("(t + 1) * 32", "{{.*}}"),
    )


def test_the_result_stays() -> None:
    want = p.f16(INPUTS["A"]).astype(np.float64) @ p.f16(INPUTS["B"]).T
    for seed in range(3):
        np.testing.assert_allclose(run_module(loaded(parse(GEMM)), INPUTS, seed=seed)["C"], want, atol=2e-2)


def test_the_schedule_and_the_target_decide() -> None:
    m = parse(GEMM)
    (kernel,) = m.kernels
    axes = (AxisPlan("i", "tile", 1),)
    for wanted in (False, True):
        plan = Schedule((), (KernelPlan(kernel.name, (), axes, mapping=WarpPlan(tma_loads=wanted)),))
        assert TmaLoads(plan).apply(m) == (loaded(m) if wanted else m)
    assert TmaLoads().apply(m) is m
    older = parse(GEMM.replace("sm_90a", "sm_90"))
    assert TmaLoads(tma_loads=True).apply(older) is older


_LAST = "cp.async sb[(t + 1) % 2] swizzle 64, B[n, (t + 1) * 32 + k] vec 8 threads #cb\n"
STAY: dict[str, tuple[tuple[str, str], ...]] = {
    "one stage": (("stages 2", "stages 1"), ("% 2]", "% 1]")),
    "a site that fills one of two buffers": ((_LAST, ""),),
    "other stages of the two": (("sb[(t + 1) % 2]", "sb[t % 2]"),),
    "no box": (("A[i, k] vec", "A[i, k] where i + k < 50 vec"),),
    "different depths": (("smem sb : f16[n: 64, k: 32] stages 2", "smem sb : f16[n: 64, k: 32] stages 3"),),
    "a pitch": (("stages 2 swizzle 64 pad 0 @ 0", "stages 2 swizzle 64 pad 16 @ 0"),),
    "an offset that no pattern starts at": (("pad 0 @ 8192", "pad 0 @ 8208"),),
    "threads write to the same bytes": (
        ("    smem sb", "    smem z : f16[i: 64, n: 64] stages 1 swizzle 0 pad 0 over sa @ 0\n    smem sb"),
        ("    cp.async sa[0]", "    st.shared z[0], %zh vec 1\n    cp.async sa[0]"),
        ("    st.shared", "    %zh = const 0.0 : f16[i: 64, n: 64] #acc\n    st.shared"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STAY)
def test_kernels_that_stay(name: str) -> None:
    m = parse(edited(*STAY[name], text=GEMM))
    assert TmaLoads(tma_loads=True).apply(m) is m


def test_what_is_bulk_already_stays() -> None:
    m = loaded(parse(GEMM))
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
