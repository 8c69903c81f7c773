"""Planted faults: each must be caught, and the error must name the operation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nautilus.core.expr.nodes import Const, Var
from nautilus.core.types import DType
from nautilus.ma_tile.interp.module import InterpError, run_block, run_module
from nautilus.ma_tile.ir.ops import (
    AsyncCopy,
    AsyncWait,
    Barrier,
    ConvertOp,
    GlobalLoad,
    GlobalStore,
    MbarArrive,
    MbarWait,
    MemModule,
    MmaOp,
    ReduceOp,
    SharedLoad,
    SharedStore,
)
from nautilus.ma_tile.text import parse
from tests.ma_tile import faults as f
from tests.ma_tile.interp.test_module import chained_inputs, chained_reference
from tests.ma_tile.programs import plain as p

GEMM = {"A": p.random(1, 64, 128), "B": p.random(2, 64, 128)}
ROLES = {"X": p.random(7, 384, 32)}


def caught(m: MemModule, inputs: dict[str, np.ndarray], kind: str, op: str) -> InterpError:
    """The error of a module that must fail with ``kind`` in an op whose text contains ``op``."""
    with pytest.raises(InterpError) as info:
        run_module(m, inputs)
    assert (info.value.kind, op in info.value.op) == (kind, True), info.value
    assert op in str(info.value)
    return info.value


def copy(text: str = p.COPY, **changes: str) -> MemModule:
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return parse(text)


def edited(old: str, new: str, text: str = p.COPY) -> MemModule:
    assert old in text
    return parse(text.replace(old, new))


X = {"X": p.random(0, 77, 64)}


# -- synchronisation --------------------------------------------------------------------------


def test_dropped_wait() -> None:
    error = caught(f.drop_op(p.gemm(), f.is_a(AsyncWait)), GEMM, "pending-copy", "mma m16n8k16.f16 smem sa[t % 2]")
    assert "sa" in error.buffer and "issued by `cp.async sa[0]" in error.message


def test_wait_that_leaves_too_many_groups() -> None:
    def edit(op: object) -> tuple[AsyncWait]:
        return (AsyncWait(2),)

    caught(f.edit_ops(p.gemm(), f.is_a(AsyncWait), edit), GEMM, "pending-copy", "mma")


def test_dropped_barrier_after_the_wait() -> None:
    caught(f.drop_op(p.gemm(), f.is_a(Barrier), 0), GEMM, "unsynchronised-read", "mma m16n8k16.f16 smem sa[t % 2]")


def test_dropped_barrier_before_the_next_copy() -> None:
    error = caught(f.drop_op(p.gemm(), f.is_a(Barrier), 1), GEMM, "overwrite-in-use", "cp.async sa[(t + 1) % 2]")
    assert "read by `%next = mma" in error.message


def test_dropped_barrier_between_store_and_load() -> None:
    m = f.drop_op(parse(p.COPY), f.is_a(Barrier))
    caught(m, X, "unsynchronised-read", "ld.shared s[0]")


def test_one_stage_too_few() -> None:
    m = f.change_stage_count(p.gemm(), "sb", 1)
    caught(m, GEMM, "unordered-writes", "cp.async sb[(t + 1) % 2 % 1]")


def test_one_stage_too_few_when_the_copy_has_arrived() -> None:
    m = f.change_stage_count(p.chained(), "sk", 1)
    error = caught(m, chained_inputs(), "pending-copy", "mma m16n8k16.f16 %q, smem sk[t % 2 % 1]")
    assert error.buffer == "sk"


def test_wrong_stage() -> None:
    m = f.shift_slot(p.gemm(), "sa", 1, f.is_a(MmaOp))
    caught(m, GEMM, "pending-copy", "mma m16n8k16.f16 smem sa[(t % 2 + 1) % 2]")


def test_reduce_scratch_used_again_without_a_barrier() -> None:
    m = f.drop_op(parse(p.REDUCE), f.is_a(Barrier))
    caught(m, {"X": p.random(6, 8, 256)}, "overwrite-in-use", "reduce sum %e over j scratch scratch")


# -- mbarriers and roles ----------------------------------------------------------------------


def test_wrong_parity_of_the_consumer() -> None:
    with pytest.raises(InterpError) as info:
        run_module(f.flip_parity(p.roles(), "full"), ROLES)
    assert info.value.kind in ("pending-copy", "uninitialised", "unsynchronised-read", "deadlock")
    assert "full" in info.value.op or "ld.shared s[t % 2]" in info.value.op


def test_wrong_parity_of_the_producer() -> None:
    with pytest.raises(InterpError) as info:
        run_module(f.flip_parity(p.roles(), "empty"), ROLES)
    assert info.value.kind == "deadlock"
    assert "load at `mbar.wait empty[t % 2]" in info.value.op
    assert "add at `mbar.wait full[t % 2]" in info.value.op


def test_wrong_slot_in_a_role() -> None:
    m = f.shift_slot(p.roles(), "s", 1, f.is_a(SharedLoad))
    with pytest.raises(InterpError) as info:
        run_module(m, ROLES)
    assert info.value.kind in ("pending-copy", "uninitialised", "unsynchronised-read")
    assert info.value.buffer == "s"


@pytest.mark.parametrize("seed", range(3))
def test_no_wait_on_full(seed: int) -> None:
    m = f.drop_op(p.roles(), f.is_a(MbarWait, mbar="full"))
    with pytest.raises(InterpError) as info:
        run_block(m, "roles", 0, ROLES, seed=seed)
    assert info.value.kind in ("pending-copy", "uninitialised", "unsynchronised-read", "over-arrival")


@pytest.mark.parametrize("seed", range(3))
def test_no_wait_on_empty(seed: int) -> None:
    m = f.drop_op(p.roles(), f.is_a(MbarWait, mbar="empty"))
    with pytest.raises(InterpError) as info:
        run_block(m, "roles", 0, ROLES, seed=seed)
    assert info.value.kind in ("unordered-writes", "overwrite-in-use", "over-arrival")


def test_missed_arrival_deadlocks() -> None:
    error = caught(
        f.drop_op(p.roles(), f.is_a(MbarArrive)), ROLES, "deadlock", "load at `mbar.wait empty[t % 2] parity"
    )
    assert "add at `mbar.wait full[t % 2] parity" in error.op


@pytest.mark.parametrize("seed", range(3))
def test_doubled_arrival(seed: int) -> None:
    with pytest.raises(InterpError) as info:
        run_block(f.double_op(p.roles(), f.is_a(MbarArrive)), "roles", 0, ROLES, seed=seed)
    assert info.value.kind in ("over-arrival", "unordered-writes")
    assert info.value.op.startswith(("mbar.arrive empty[t % 2]", "cp.async s[t % 2]"))


def test_arrivals_on_one_stage() -> None:
    with pytest.raises(InterpError) as info:
        run_module(f.shift_mbar(p.roles(), "empty", lambda stage: Const(0, DType.I32)), ROLES)
    assert info.value.kind in ("over-arrival", "unordered-writes", "deadlock")


def test_barrier_with_the_wrong_number_of_threads() -> None:
    m = f.edit_ops(parse(p.COPY), f.is_a(Barrier), lambda op: (Barrier(Const(1, DType.I32), 96),))
    caught(m, X, "barrier", "barrier 1, 96")


def test_barrier_that_one_role_skips() -> None:
    def edit(op: object) -> tuple[object, ...]:
        return op, Barrier()

    m = f.edit_ops(p.roles(), f.is_a(MbarArrive), edit)  # type: ignore[arg-type]
    error = caught(m, ROLES, "deadlock", "add at `barrier`")
    assert "load at" in error.op


# -- layouts ----------------------------------------------------------------------------------


def wrong(m: MemModule, inputs: dict[str, np.ndarray], want: np.ndarray) -> bool:
    out = run_module(m, inputs)
    (got,) = out.values()
    return not np.allclose(got.astype(np.float64), want, atol=2e-2)


@pytest.mark.parametrize("buffer", ["sa", "sb"])
@pytest.mark.parametrize("swizzle", [0, 32])
def test_wrong_swizzle_gives_wrong_numbers(buffer: str, swizzle: int) -> None:
    m = f.change_swizzle(p.gemm(), buffer, swizzle, f.is_a(MmaOp))
    assert wrong(m, GEMM, p.f16(GEMM["A"]) @ p.f16(GEMM["B"]).T)


def test_wrong_swizzle_of_the_copy() -> None:
    m = f.change_swizzle(p.chained(), "sv", 64, f.is_a(AsyncCopy))
    assert wrong(m, chained_inputs(), chained_reference(chained_inputs()))


def test_swapped_accumulator_elements() -> None:
    m = f.swap_registers(p.gemm(), "acc", 0, 1)
    m = f.edit_ops(m, f.is_a(GlobalStore), lambda op: (replace(op, vec=1),))
    assert wrong(m, GEMM, p.f16(GEMM["A"]) @ p.f16(GEMM["B"]).T)


@pytest.mark.parametrize("modes", [(1, 2), (2, 3)])
def test_convert_to_a_wrong_operand_layout(modes: tuple[int, int]) -> None:
    m = f.swap_registers(p.chained(), "p", *modes)
    assert wrong(m, chained_inputs(), chained_reference(chained_inputs()))


def test_matrix_load_ignores_the_declared_registers() -> None:
    m = f.swap_registers(p.chained(), "qa", 2, 3)
    assert not wrong(m, chained_inputs(), chained_reference(chained_inputs()))


def test_convert_between_threads_is_refused() -> None:
    def change(x: Any) -> Any:
        return type(x)(x.reg, tuple(reversed(x.lane)), x.warp)

    m = f.edit_layout(p.chained(), "p", change)
    caught(m, chained_inputs(), "layout", "convert %p")


def test_dropped_convert() -> None:
    m = f.edit_ops(
        p.chained(), f.is_a(ConvertOp), lambda op: (type(op)(replace(op.arg, name="pa"), op.arg),)
    )  # fmt: skip
    assert not wrong(m, chained_inputs(), chained_reference(chained_inputs()))  # one row tile: same registers


def test_reduce_without_scratch() -> None:
    m = f.edit_ops(parse(p.REDUCE), f.is_a(ReduceOp), lambda op: (replace(op, scratch=None),), 0)
    caught(m, {"X": p.random(6, 8, 256)}, "layout", "reduce max %x over j")


# -- accesses ---------------------------------------------------------------------------------


def test_unmasked_global_read_past_the_end() -> None:
    m = f.edit_ops(parse(p.COPY), f.is_a(GlobalLoad), lambda op: (replace(op, mask=None),))
    caught(m, X, "global-out-of-bounds", "ld.global X[r + i, j]")


@pytest.mark.parametrize("row", [-1, 4096])
def test_unmasked_global_read_of_a_row_that_is_none(row: int) -> None:
    """An index that is the same for all threads."""
    index = (Const(row, DType.I32), Var("j"))
    m = f.edit_ops(parse(p.COPY), f.is_a(GlobalLoad), lambda op: (replace(op, index=index, mask=None),))
    caught(m, X, "global-out-of-bounds", f"ld.global X[{row}, j]")


def test_unmasked_global_write_past_the_end() -> None:
    m = f.edit_ops(parse(p.COPY), f.is_a(GlobalStore), lambda op: (replace(op, mask=None),))
    caught(m, X, "global-out-of-bounds", "st.global Y[r + i, j]")


@pytest.mark.parametrize("stage", [1, 2, -1])
def test_stage_outside_of_the_buffer(stage: int) -> None:
    m = edited("ld.shared s[0]", f"ld.shared s[{stage}]")
    caught(m, X, "out-of-bounds", f"ld.shared s[{stage}]")


def test_shared_memory_never_written() -> None:
    m = f.drop_op(parse(p.COPY), f.is_a(SharedStore))
    caught(m, X, "uninitialised", "ld.shared s[0]")


def test_misaligned_vector() -> None:
    m = edited("X[r + i, j] where r + i < 77", "X[r + i, j + 4] where r + i < 77 and j < 56")
    caught(m, X, "misaligned", "ld.global X[r + i, j + 4]")


def test_vector_across_rows() -> None:
    m = edited("layout #in = reg(j:8x1, i:4x16)", "layout #in = reg(i:4x16, j:8x1)")
    caught(m, X, "non-contiguous-vector", "ld.global X")


def test_mask_inside_a_vector() -> None:
    m = edited("X[r + i, j] where r + i < 77", "X[r + i, j] where r + i < 77 and j < 61")
    caught(m, X, "mask-not-uniform", "ld.global X")


def test_vector_that_the_swizzle_splits() -> None:
    m = edited("st.shared s[0] swizzle 128, %x vec 8", "st.shared s[0] swizzle 128, %x vec 16")
    caught(m, X, "misaligned", "st.shared s[0]")


def test_copy_of_an_impossible_size() -> None:
    m = f.edit_ops(p.gemm(), f.is_a(AsyncCopy), lambda op: (replace(op, vec=1),), 0)
    caught(m, GEMM, "copy-size", "cp.async sa[0]")


def test_two_threads_write_different_values() -> None:
    m = edited("Y[r + i, j], %y", "Y[r + i // 2, j], %y")
    caught(m, X, "global-race", "st.global Y[r + i // 2, j]")


def test_fragment_before_its_definition() -> None:
    m = parse(p.COPY)
    m = f.edit_ops(m, f.is_a(GlobalLoad), lambda op: (replace(op, result=replace(op.result, name="z")),))
    caught(m, X, "undefined-fragment", "st.shared s[0] swizzle 128, %x")
