"""The same planted faults in kernels that the compiler made: a back-to-back GEMM with a cp.async pipeline."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from nautilus.core.schedule import WarpPlan
from nautilus.ma_tile.interp.module import InterpError, run_module
from nautilus.ma_tile.ir.ops import AsyncCopy, AsyncWait, Barrier, ConvertOp, MemModule, MmaOp, Slot, walk_ops
from nautilus.ma_tile.verify.module import verify
from tests.ma_tile import faults as f
from tests.ma_tile.lowering.support import inputs, lowered, tile
from tests.ma_tile.programs.tiles import attention


@cache
def kernel(stages: int = 2) -> tuple[MemModule, dict[str, np.ndarray]]:
    """The module, and inputs for it (100 x 130: both edges are ragged)."""
    module = tile(attention(100, 130, 64, 64, 32))
    return lowered(module, WarpPlan(warps=(4, 1), stages=stages)), inputs(module)


def pipelined(m: MemModule) -> str:
    """The shared buffer with several stages that an MMA reads first."""
    deep = {s.name for s in m.kernels[0].smem if s.stages > 1}
    for op in walk_ops(m.kernels[0].body):
        for x in (op.a, op.b) if isinstance(op, MmaOp) else ():
            if isinstance(x, Slot) and x.buffer in deep:
                return x.buffer
    raise LookupError


def count(m: MemModule, kind: type) -> int:
    return sum(isinstance(op, kind) for op in walk_ops(m.kernels[0].body))


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_every_barrier_is_needed(stages: int) -> None:
    m, data = kernel(stages)
    verify(m)
    run_module(m, data)
    for n in range(count(m, Barrier)):
        with pytest.raises(InterpError) as info:
            run_module(f.drop_op(m, f.is_a(Barrier), n), data)
        assert info.value.kind in ("unsynchronised-read", "overwrite-in-use")
        assert info.value.buffer


def test_dropped_waits() -> None:
    m, data = kernel()
    for n in range(count(m, AsyncWait) - 1):  # the last one guards what follows the loop
        with pytest.raises(InterpError) as info:
            run_module(f.drop_op(m, f.is_a(AsyncWait), n), data)
        assert (info.value.kind, "mma" in info.value.op) == ("pending-copy", True)


def test_one_stage_too_few() -> None:
    m, data = kernel()
    with pytest.raises(InterpError) as info:
        run_module(f.change_stage_count(m, pipelined(m), 1), data)
    assert info.value.kind in ("overwrite-in-use", "pending-copy", "unordered-writes")
    assert info.value.buffer


def test_wrong_slot() -> None:
    m, data = kernel()
    with pytest.raises(InterpError) as info:
        run_module(f.shift_slot(m, pipelined(m), 1, f.is_a(MmaOp)), data)
    assert info.value.kind in ("pending-copy", "uninitialised")
    assert pipelined(m) in info.value.op


def differs(bad: MemModule) -> bool:
    m, data = kernel()
    want, got = run_module(m, data)["O"], run_module(bad, data)["O"]
    return not np.allclose(got.astype(np.float64), want.astype(np.float64), atol=1e-2)


@pytest.mark.parametrize("kind", [MmaOp, AsyncCopy])
def test_wrong_swizzle(kind: type) -> None:
    m, _ = kernel()
    own = next(s.swizzle for s in m.kernels[0].smem if s.name == pipelined(m))
    assert own == 128
    assert differs(f.change_swizzle(m, pipelined(m), 64, f.is_a(kind)))


def test_swapped_fragment_elements() -> None:
    m, _ = kernel()
    converts = [op for op in walk_ops(m.kernels[0].body) if isinstance(op, ConvertOp)]
    assert differs(f.swap_registers(m, converts[0].result.layout, 1, 2))
