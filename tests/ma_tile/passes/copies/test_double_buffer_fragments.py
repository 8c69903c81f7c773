"""``double-buffer-fragments``: the rewritten MMA loops, their results, and loops that do not change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from nautilus.core.expr.nodes import Const
from nautilus.core.schedule import WarpPlan
from nautilus.core.types import DType
from nautilus.ma_tile.interp.module import InterpError, run_module
from nautilus.ma_tile.ir.ops import (
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    ForOp,
    IfOp,
    MatrixLoad,
    MemModule,
    MemOp,
    MmaOp,
    Slot,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import rebuild
from nautilus.ma_tile.lowering.lower import lower_raw
from nautilus.ma_tile.passes.copies.double_buffer_fragments import DoubleBufferFragments
from nautilus.ma_tile.passes.copies.pipeline_copies import PipelineCopies
from nautilus.ma_tile.text.printer import format as ma_format
from nautilus.ma_tile.verify.module import verify
from nautilus.passes.manager import Context, Pipeline, steps
from nautilus.passes.pipelines import MA_TILE
from tests.ma_tile import faults as f
from tests.ma_tile.lowering.support import agree, compiled, count, inputs, lowered, plan, tile
from tests.ma_tile.programs.tiles import attention, matmul

STEPS = matmul(64, 32, 192, 32, 32, 64)  # three iterations of four k-steps
WARPS = WarpPlan(warps=(2, 1), stages=3)

#: Y = (X . U) * (X . V): two products that share their left operand
GATED = """
module gated {
  input X: f16[64, 100]
  input U: f16[100, 32]
  input V: f16[100, 32]
  output Y: f16[64, 32]
  kernel Y grid(i0: 2) axes(i: 32, j: 32, k: 32) {
    %z = const 0.0 : f32[i: 32, j: 32]
    %u, %v = for k0 in 0..4 carry(%ui = %z, %vi = %z) {
      %x = load X[i0 * 32 + i, k0 * 32 + k] where k0 * 32 + k < 100 : f16[i: 32, k: 32]
      %p = load U[k0 * 32 + k, j] where k0 * 32 + k < 100 : f16[j: 32, k: 32]
      %q = load V[k0 * 32 + k, j] where k0 * 32 + k < 100 : f16[j: 32, k: 32]
      %un = dot %x, %p + %ui over k : f32[i: 32, j: 32]
      %vn = dot %x, %q + %vi over k : f32[i: 32, j: 32]
      yield %un, %vn
    }
    %y = mul %u, %v : f32[i: 32, j: 32]
    store Y[i0 * 32 + i, j], %y
  }
}
"""


def body(m: MemModule) -> str:
    """The kernel's operations, as text."""
    return "\n".join(line for line in ma_format(m).splitlines() if not line.lstrip().startswith(("layout", "smem")))


def loop(m: MemModule) -> ForOp:
    (found,) = [op for op in walk_ops(m.kernels[0].body) if isinstance(op, ForOp)]
    return found


def raw(text: str, stages: int = 3) -> MemModule:
    """The input of the pass: lowered, with pipelined copies."""
    module = tile(text)
    schedule = plan(module, replace(WARPS, stages=stages))
    return PipelineCopies(schedule).apply(lower_raw(module, schedule, "sm_80"))


def test_one_product(filecheck: Callable[[str, str], None]) -> None:
    filecheck(
        body(compiled(STEPS, WARPS)),
        """
        // CHECK: cp.async s_at[0]
        // CHECK: cp.commit
        // CHECK: cp.async s_at[1]
        // CHECK: cp.commit
        // CHECK-NEXT: cp.wait 1
        // CHECK-NEXT: barrier
        // CHECK-NEXT: %[[A0:.*]] = ld.matrix s_at[0] swizzle 128 at k 0 : f16[i: 32, k: 16] #step_i
        // CHECK-NEXT: %[[B0:.*]] = ld.matrix s_bt[0] swizzle 64 at k 0 : f16[j: 32, k: 16] #step_j
        // CHECK-NEXT: for k0 in 0..2 carry(%ci = %zero, %{{.*}} = %[[A0]], %{{.*}} = %[[B0]]) {
        // CHECK-NEXT: ld.matrix s_at[k0 % 3] swizzle 128 at k 16
        // CHECK-NEXT: ld.matrix s_bt[k0 % 3] swizzle 64 at k 16
        // CHECK-NEXT: mma m16n8k16.f16
        // CHECK-NEXT: if k0 < 1 {
        // CHECK-NEXT: cp.async s_at[(k0 + 2) % 3]
        // CHECK-NEXT: cp.async s_bt[(k0 + 2) % 3]
        // CHECK-NEXT: }
        // CHECK-NEXT: cp.commit
        // CHECK-NEXT: ld.matrix s_at[k0 % 3] swizzle 128 at k 32
        // CHECK-NEXT: ld.matrix s_bt[k0 % 3] swizzle 64 at k 32
        // CHECK-NEXT: mma m16n8k16.f16
        // CHECK-NEXT: %[[A3:.*]] = ld.matrix s_at[k0 % 3] swizzle 128 at k 48
        // CHECK-NEXT: %[[B3:.*]] = ld.matrix s_bt[k0 % 3] swizzle 64 at k 48
        // CHECK-NEXT: mma m16n8k16.f16
        // CHECK-NEXT: cp.wait 1
        // CHECK-NEXT: barrier
        // CHECK-NEXT: %[[A4:.*]] = ld.matrix s_at[(k0 + 1) % 3] swizzle 128 at k 0
        // CHECK-NEXT: %[[B4:.*]] = ld.matrix s_bt[(k0 + 1) % 3] swizzle 64 at k 0
        // CHECK-NEXT: %[[C:.*]] = mma m16n8k16.f16 %[[A3]], %[[B3]] + %{{.*}} over k
        // CHECK-NEXT: yield %[[C]], %[[A4]], %[[B4]]
        // CHECK: ld.matrix s_at[2] swizzle 128 at k 48
        // CHECK-NOT: barrier
        // CHECK: %c = mma
        """,
    )


def test_products_that_share_an_operand_share_its_fragments(filecheck: Callable[[str, str], None]) -> None:
    low = compiled(GATED, WARPS)
    filecheck(
        body(low),
        """
        // CHECK: for k0 in 0..3
        // CHECK-NEXT: ld.matrix s_x[k0 % 3] {{.*}} at k 16
        // CHECK-NEXT: ld.matrix s_p[k0 % 3] {{.*}} at k 16
        // CHECK-NEXT: ld.matrix s_q[k0 % 3] {{.*}} at k 16
        // CHECK-NEXT: mma m16n8k16.f16 %[[X:.*]], %{{.*}} + %ui
        // CHECK-NEXT: mma m16n8k16.f16 %[[X]], %{{.*}} + %vi
        // CHECK: cp.wait 1
        // CHECK-NEXT: barrier
        // CHECK-NEXT: ld.matrix s_x[(k0 + 1) % 3] {{.*}} at k 0
        // CHECK-COUNT-2: mma
        // CHECK-NEXT: yield
        """,
    )


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("trips", [1, 2, 3, 7])
@pytest.mark.parametrize("ragged", [0, 8, 14])
def test_every_depth_and_length(stages: int, trips: int, ragged: int) -> None:
    low = compiled(matmul(32, 32, 32 * trips - ragged, 32, 32, 32), replace(WARPS, stages=stages))
    assert (count(low, "ld.matrix") > 0) == (trips > 1)
    inside = [op for op in walk_ops(loop(low).body) if isinstance(op, Barrier | AsyncWait)]
    assert [type(op) for op in inside] == [AsyncWait, Barrier]
    assert isinstance(inside[0], AsyncWait) and inside[0].pending == stages - 2


@pytest.mark.parametrize("depth", [32, 48, 64])
@pytest.mark.parametrize(("a", "b"), [("ik", "kj"), ("ik", "jk"), ("ki", "kj"), ("ki", "jk")])
def test_every_major_and_depth(a: str, b: str, depth: int) -> None:
    low = compiled(matmul(64, 96, 3 * depth, 64, 96, depth, a=a, b=b), WarpPlan(warps=(2, 2), stages=3))
    assert count(low, "ld.matrix") == 2 * (1 + 2 * depth // 16 - 1)


def test_bf16() -> None:
    low = compiled(matmul(64, 32, 96, 64, 32, 32, "bf16", "bf16"), WarpPlan(warps=(2, 2), stages=2))
    assert count(low, r"ld\.matrix .* : bf16") == 8


# -- planted faults -----------------------------------------------------------------------------


def kinds(m: MemModule, data: dict[str, np.ndarray]) -> tuple[str, str]:
    """The rule that ``m`` breaks and the kind of op that breaks it."""
    with pytest.raises(InterpError) as info:
        run_module(m, data)
    assert info.value.buffer
    return info.value.kind, info.value.op


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_the_moved_wait_and_barrier_are_needed(stages: int) -> None:
    module = tile(matmul(32, 32, 32 * 7, 32, 32, 32))
    low, data = lowered(module, replace(WARPS, stages=stages)), inputs(module)
    for kind, want in ((AsyncWait, ("pending-copy",)), (Barrier, ("unsynchronised-read", "overwrite-in-use"))):
        for n in range(2):  # before the loop, and in it
            rule, op = kinds(f.drop_op(low, f.is_a(kind), n), data)
            assert rule in want
            assert "ld.matrix" in op or "cp.async" in op
    (moved,) = [op for op in walk_ops(loop(low).body) if isinstance(op, AsyncWait)]
    late = f.edit_ops(low, lambda op: op is moved, lambda op: (AsyncWait(stages - 1),))
    assert kinds(late, data)[0] == "pending-copy"


@pytest.mark.parametrize("buffer", ["s_at", "s_bt"])
def test_a_wrong_slot_is_reported(buffer: str) -> None:
    module = tile(STEPS)
    low, data = lowered(module, WARPS), inputs(module)
    rule, op = kinds(f.shift_slot(low, buffer, 1, f.is_a(MatrixLoad)), data)
    assert rule in ("pending-copy", "uninitialised", "unsynchronised-read")
    assert f"ld.matrix {buffer}" in op


def test_a_wrong_step_computes_something_else() -> None:
    module = tile(STEPS)
    low = lowered(module, WARPS)

    def other(op: MemOp) -> tuple[MemOp, ...]:
        assert isinstance(op, MatrixLoad)
        return (replace(op, start=16),)

    bad = f.edit_ops(low, f.is_a(MatrixLoad, start=48), other, 0)
    verify(bad)
    with pytest.raises(AssertionError, match="Not equal"):
        agree(module, bad)


# -- what is left alone -------------------------------------------------------------------------


def untouched(m: MemModule) -> bool:
    return DoubleBufferFragments(double_buffer_fragments=True).apply(m) is m


@pytest.mark.parametrize(
    "text",
    [
        matmul(32, 32, 32, 32, 32, 32),  # one iteration
        matmul(32, 32, 64, 32, 32, 16),  # one k-step
        matmul(32, 32, 64, 32, 32, 32, "tf32", "f32"),  # no ldmatrix
        attention(64, 64, 32, 32, 16),  # work between the products
    ],
)
def test_loops_that_do_not_fit(text: str) -> None:
    assert untouched(raw(text))
    assert count(compiled(text, WARPS), r"ld\.matrix") == 0


def test_one_buffer_is_no_pipeline() -> None:
    assert untouched(raw(STEPS, stages=1))


def edit_loop(m: MemModule, change: Callable[[tuple[MemOp, ...]], tuple[MemOp, ...]]) -> MemModule:
    (kernel,) = m.kernels
    new = rebuild(kernel.body, lambda op: (replace(op, body=change(op.body)),) if isinstance(op, ForOp) else (op,))
    return replace(m, kernels=(replace(kernel, body=new),))


def test_a_copy_into_the_stage_being_read() -> None:
    def refill(ops: tuple[MemOp, ...]) -> tuple[MemOp, ...]:
        """Copies run three stages ahead in a pipeline of three, after the MMA that reads the stage."""
        products = tuple(op for op in ops if isinstance(op, MmaOp))
        copies = tuple(
            replace(x, slot=p)
            for op in ops
            for x in walk_ops((op,))
            if isinstance(x, AsyncCopy)
            for product in products
            for p in (product.a, product.b)
            if isinstance(p, Slot) and p.buffer == x.slot.buffer
        )
        return (*products, IfOp(Const(True, DType.BOOL), copies), AsyncCommit())

    m = raw(STEPS)
    assert not untouched(m)
    assert untouched(edit_loop(m, refill))


def test_one_buffer_read_at_two_stages() -> None:
    m = raw(GATED)
    assert not untouched(m)
    seen = iter((0, 1))

    def other(op: MemOp) -> tuple[MemOp, ...]:
        assert isinstance(op, MmaOp) and isinstance(op.a, Slot)
        stage = Const(next(seen), DType.I32)
        return (replace(op, a=replace(op.a, stage=stage)),)

    assert untouched(f.edit_ops(m, f.is_a(MmaOp), other))


# -- the switch ---------------------------------------------------------------------------------


@pytest.mark.parametrize("across", [False, True])
def test_the_schedule_decides(across: bool) -> None:
    module = tile(STEPS)
    schedule = plan(module, replace(WARPS, double_buffer_fragments=across))
    low, _ = Pipeline().run(steps(MA_TILE), module, Context(arch="sm_80", schedule=schedule))
    assert (count(low, "ld.matrix") > 0) is across
    assert count(low, "ahead 1") == (not across)
    agree(module, low)
