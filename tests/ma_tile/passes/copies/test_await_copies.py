"""``await-copies``: loads of kernels without roles, and what ``synchronize`` makes of them before."""

from __future__ import annotations

from itertools import pairwise

import pytest

from nautilus.core.errors import ScheduleError
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.passes.copies.await_copies import AwaitCopies
from nautilus.ma_tile.passes.copies.specialise_warps import SpecialiseWarps
from nautilus.ma_tile.passes.epilogue.tma_stores import TmaStores
from nautilus.ma_tile.passes.finalise.allocate_shared import AllocateShared
from nautilus.ma_tile.passes.finalise.synchronize import Synchronize
from nautilus.ma_tile.text.printer import format as ma_format
from nautilus.ma_tile.text.printer import format_ops, parse
from nautilus.ma_tile.verify.module import verify
from tests.ma_tile.programs.kernels import chained, product
from tests.ma_tile.roles import in_order, text


def awaited(m: MemModule) -> MemModule:
    out = AwaitCopies().apply(Synchronize().apply(AllocateShared().apply(m)))
    verify(out)
    return out


def test_loads_in_a_row_are_issued_and_awaited_together() -> None:
    m = awaited(product())
    assert "mbar landed stages 1 arrivals 1" in text(m)
    body = "\n".join(format_ops(m.kernels[0].body))
    in_order(
        body,
        "barrier",
        "if consumer == 0 {",
        "mbar.expect landed[0] 24576",
        "tma.load a[0] swizzle 128, A[i0 * 128 + i, t * 64 + k] mbar landed[0]",
        "tma.load a[1] swizzle 128, A[i0 * 128 + 64 + i, t * 64 + k] mbar landed[0]",
        "tma.load b[0] swizzle 128, B[j0 * 64 + j, t * 64 + k] mbar landed[0]",
        "}",
        "mbar.wait landed[0] parity landed_phase",
        "advance landed",
        "mma",
    )
    assert body.count("barrier") == 1 and "fence.proxy" not in body


def test_one_warpgroup_needs_no_condition() -> None:
    body = "\n".join(format_ops(awaited(chained(consumers=1)).kernels[0].body))
    assert "if consumer" not in body and body.count("mbar.wait") == 3


def test_what_threads_write_is_fenced_from_loads() -> None:
    m = awaited(TmaStores(epilogue="tma").apply(product()))
    body = "\n".join(format_ops(m.kernels[0].body))
    in_order(body, "fence.proxy", "barrier", "tma.load", "st.matrix", "tma.store")
    own = "barrier (1 + consumer), 128"
    in_order(body, own, "st.matrix", "fence.proxy", own, "tma.store")
    parts = sorted((s.offset, s.offset + s.bytes) for s in m.kernels[0].smem)
    assert all(a[1] <= b[0] for a, b in pairwise(parts))  # a TMA store continues to read its stage


def test_a_load_is_the_barrier_between_a_read_and_the_next_write() -> None:
    m = Synchronize().apply(AllocateShared().apply(chained()))
    assert "barrier" not in ma_format(m)


def test_kernels_with_roles_stay() -> None:
    m = SpecialiseWarps().apply(product())
    assert AwaitCopies().apply(m) == m


def test_places_that_each_warpgroup_computes_are_refused() -> None:
    before = ma_format(product())
    before = before.replace("smem a ", "layout #one = reg() lane(*:32) warp(*:4)\n    smem a ")
    before = before.replace("    %zero", "    %p = index consumer : i32 #one\n    %zero")
    with pytest.raises(ScheduleError, match="each consumer computes the address from which it loads a"):
        awaited(parse(before.replace("A[i0 * 128 +", "A[%p +")))
