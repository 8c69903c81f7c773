"""``double-buffer-fragments``: all depths, lengths and layouts; faults. See ``double_buffer_fragments.ma``."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from nautilus.core.schedule import WarpPlan
from nautilus.ma_tile.interp.module import InterpError, run_module
from nautilus.ma_tile.ir.ops import (
    AsyncWait,
    Barrier,
    ForOp,
    MatrixLoad,
    MemModule,
    MemOp,
    walk_ops,
)
from nautilus.ma_tile.passes.copies.double_buffer_fragments import DoubleBufferFragments
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.verify.module import verify
from nautilus.passes.manager import Context, Pipeline, steps
from nautilus.passes.pipelines import MA_TILE
from tests.ma_tile import faults as f
from tests.ma_tile.lowering.support import agree, compiled, count, inputs, lowered, pipelined, plan, tile
from tests.ma_tile.programs.tiles import attention, matmul

STEPS = matmul(64, 32, 192, 32, 32, 64)  # three iterations of four k-steps
WARPS = WarpPlan(warps=(2, 1), stages=3)


def body(m: MemModule) -> str:
    """The kernel's operations, as text."""
    return "\n".join(line for line in ma_format(m).splitlines() if not line.lstrip().startswith(("layout", "smem")))


def loop(m: MemModule) -> ForOp:
    (found,) = [op for op in walk_ops(m.kernels[0].body) if isinstance(op, ForOp)]
    return found


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("trips", [1, 2, 3, 7])
@pytest.mark.parametrize("ragged", [0, 8, 14])
def test_every_depth_and_length(stages: int, trips: int, ragged: int) -> None:
    low = compiled(matmul(32, 32, 32 * trips - ragged, 32, 32, 32), replace(WARPS, stages=stages))
    assert (count(low, "ld.matrix") > 0) == (trips > 1)
    inside = [op for op in walk_ops(loop(low).body) if isinstance(op, Barrier | AsyncWait)]
    # its first iteration awaits the tiles of two, and copies in front of the loop may be all that there are
    assert [type(op) for op in inside] == ([] if trips < min(stages, 3) else [AsyncWait, Barrier])
    assert all(op.pending == stages - 2 for op in inside if isinstance(op, AsyncWait))


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
    assert untouched(pipelined(text, WARPS))
    assert count(compiled(text, WARPS), r"ld\.matrix") == 0


def test_one_buffer_is_no_pipeline() -> None:
    assert untouched(pipelined(STEPS, replace(WARPS, stages=1)))


# -- the switch ---------------------------------------------------------------------------------


@pytest.mark.parametrize("across", [False, True])
def test_the_schedule_decides(across: bool) -> None:
    module = tile(STEPS)
    schedule = plan(module, replace(WARPS, double_buffer_fragments=across))
    low, _ = Pipeline().run(steps(MA_TILE), module, Context(arch="sm_80", schedule=schedule))
    assert (count(low, "ld.matrix") > 0) is across
    assert count(low, "ahead 1") == (not across)
    agree(module, low)


def test_axes_have_any_names() -> None:
    """The axis of the reduction comes first in the alphabet, not last as elsewhere."""
    text = re.sub(r"\bk\b", "a", STEPS)
    assert count(compiled(text, WARPS), "ld.matrix") == count(compiled(STEPS, WARPS), "ld.matrix") > 0
