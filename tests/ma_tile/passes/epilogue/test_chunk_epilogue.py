"""``chunk-epilogue``: elementwise work on accumulators and its stores, 64 rows and some columns at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nautilus.core.buffers import Space
from nautilus.core.types import DType
from nautilus.ma_tile.interp.module import InterpError, run_module
from nautilus.ma_tile.ir.ops import MemModule, SliceOp, walk_ops
from nautilus.ma_tile.passes.epilogue.chunk_epilogue import ChunkEpilogue
from nautilus.ma_tile.text.printer import format as ma_format
from nautilus.ma_tile.text.printer import parse
from nautilus.ma_tile.verify.module import verify
from tests.ma_tile.programs.epilogues import biased, gated, through
from tests.ma_tile.programs.products import chained


def chunked(m: MemModule, columns: int = 64) -> MemModule:
    out = ChunkEpilogue(store_columns=columns).apply(m)
    verify(out)
    assert parse(ma_format(out)) == out
    return out


def inputs(m: MemModule) -> dict[str, Any]:
    """Small integers: every order of additions gives the same."""
    rng = np.random.default_rng(7)
    kinds = {DType.F16: np.float16, DType.F32: np.float32}
    given = [b for b in m.buffers if b.space is Space.INPUT]
    return {b.name: rng.integers(-3, 4, b.shape).astype(kinds[b.dtype]) for b in given}  # type: ignore[arg-type]


def same(m: MemModule, other: MemModule) -> None:
    values = inputs(m)
    wanted, got = run_module(m, values), run_module(other, values)
    for name, x in wanted.items():
        np.testing.assert_array_equal(x, got[name], name)


def test_text(filecheck: Callable[..., None]) -> None:
    filecheck(
        ma_format(chunked(biased())),
        """
        CHECK: layout #acc = reg(j:2x1, i:2x8, j:16x8, i:1x64)
        CHECK: layout #acc_64 = reg(j:2x1, i:2x8, j:8x8, i:1x64)
        CHECK: layout #col_64 = reg(j:2x1, j:8x8)
        CHECK-NOT: ld.global bias
        CHECK: %s = ld.global scale[
        CHECK: %c0 = for
        CHECK: yield %n0
        CHECK-NOT: j: 128] #acc
        CHECK: %b_0 = ld.global bias[j0 * 128 + j] {{.*}} vec 2 volatile : f16[j: 64] #col_64
        CHECK-NEXT: %r_0 = ld.global R[{{.*}}, j0 * 128 + j] {{.*}} volatile : f16[i: 64, j: 64] #acc_64
        CHECK: %c0_0 = slice %c0 at j 0 : f32[i: 64, j: 64] #acc_64
        CHECK-NEXT: %y0_0 = mul %c0_0, %s :
        CHECK: st.global C[{{.*}}, j0 * 128 + j], %y_0 where
        CHECK-NEXT: %b_64 = ld.global bias[j0 * 128 + j + 64] where j0 * 128 + j < 64
        CHECK: %c0_64 = slice %c0 at j 64 : f32[i: 64, j: 64] #acc_64
        CHECK: st.global C[{{.*}}, j0 * 128 + j + 64], %y_64 where
        CHECK-NOT: st.global
        """,
    )


def test_blocks_of_rows_share_what_lies_along_columns(filecheck: Callable[..., None]) -> None:
    filecheck(
        ma_format(chunked(biased(rows=128, m=256))),
        """
        CHECK: %b_0 = ld.global bias
        CHECK: %c0_0 = slice %c0 at i 0 : f32[i: 64, j: 128]
        CHECK-NEXT: %c0_0_0 = slice %c0_0 at j 0 : f32[i: 64, j: 64]
        CHECK-NEXT: %s_0 = slice %s at i 0 : f32[i: 64]
        CHECK: %w_0 = cast %b_0
        CHECK: st.global C[i0 * 256 + consumer * 128 + i, j0 * 128 + j], %y_0 where
        CHECK-NOT: ld.global bias
        CHECK: %c0_0_64 = slice %c0 at i 64
        CHECK: %y1_0_64 = add %y0_0_64, %w_0 :
        CHECK: st.global C[i0 * 256 + consumer * 128 + i + 64, j0 * 128 + j], %y_0_64 where
        CHECK: %b_64 = ld.global bias
        """,
    )


def test_stores_of_one_shape_go_together(filecheck: Callable[..., None]) -> None:
    filecheck(
        ma_format(chunked(gated())),
        """
        CHECK: %c0, %c1 = for
        CHECK: %c0_0 = slice %c0 at j 0
        CHECK: %c1_0 = slice %c1 at j 0
        CHECK: st.global C[
        CHECK: %d_0 = add %h_0, %h_0
        CHECK: st.global D[
        CHECK: %c0_64 = slice %c0 at j 64
        CHECK: st.global C[
        CHECK: st.global D[
        CHECK-NOT: st.global
        """,
    )


@pytest.mark.parametrize(
    ("make", "sizes", "columns"),
    [
        (biased, {"m": 120, "n": 120}, 64),
        (biased, {"rows": 128, "m": 256, "columns": 96, "n": 96}, 64),
        (gated, {"columns": 192, "n": 184}, 64),
        (gated, {"columns": 64, "n": 64}, 32),
    ],
)
def test_same_numbers(make: Callable[..., MemModule], sizes: dict[str, Any], columns: int) -> None:
    m = make(**sizes)
    out = chunked(m, columns)
    assert out != m
    same(m, out)


@pytest.mark.parametrize(
    ("make", "sizes", "plan", "blocks"),
    [
        (biased, {"m": 120, "n": 120}, {}, 132),
        (gated, {"m": 128, "n": 128}, {"ordered_mma": True}, 132),
        (biased, {"rows": 128, "m": 512, "n": 256}, {"persistent": "static"}, 2),
        (biased, {"columns": 192, "m": 512, "n": 192}, {"persistent": "static", "stages": 3}, 2),
        (
            biased,
            {"columns": 192, "m": 512, "n": 192, "consumers": 1},
            {"persistent": "dynamic", "tile_scheduling": "pingpong"},
            2,
        ),
    ],
)
def test_same_numbers_behind_all_passes(
    make: Callable[..., MemModule], sizes: dict[str, Any], plan: dict[str, Any], blocks: int
) -> None:
    m = make(**sizes)
    out = through(m, blocks, **plan)
    same(m, out)
    assert "st.matrix out_C[" in ma_format(out)


def test_an_odd_number_of_chunks_waits_at_the_start_of_a_tile() -> None:
    m = biased(columns=192, m=512, n=192)
    text = ma_format(through(m, 2, persistent="static"))
    first = text.rindex("tma.wait 0 read", 0, text.index("st.matrix"))
    behind = text.index("\n", text.index("barrier (1 + consumer), 128", first)) + 1
    wrong = parse(text[: text.rindex("\n", 0, first) + 1] + text[behind:])
    with pytest.raises(InterpError, match="overwrite-in-use"):
        run_module(wrong, inputs(m))
    even = ma_format(through(biased(m=512), 2, persistent="static"))
    assert even.count("tma.wait 0 read") == 3  # one a chunk, one at the end


def test_what_others_read_is_sliced() -> None:
    """%h is also reduced over its columns, so the kernel needs all of it."""
    text = ma_format(gated()).replace(
        "    %d = add",
        "    %t = reduce max %h over j : f32[i: 64] #row\n    %d0 = add %h, %t : f32[i: 64, j: 128] #acc\n    %d = add",
    )
    text = text.replace("%d = add %h, %h", "%d = add %d0, %h")
    out = chunked(parse(text))
    sliced = [op.arg.name for op in walk_ops(out.kernels[0].body) if isinstance(op, SliceOp)]
    assert sliced == ["h", "h"] and "%d0_64 = add %h_64, %t" in ma_format(out)
    same(parse(text), out)


def test_what_is_left_alone() -> None:
    plain = biased(columns=64, n=64)
    assert chunked(plain) == plain  # one chunk
    assert ChunkEpilogue().apply(biased()) == biased()  # no schedule: whole tiles
    stays = chained()
    assert chunked(stays) == stays  # 64 x 64
    reads = ma_format(biased()).replace("input R", "output R")
    reads = reads.replace("st.global C[", "st.global R[")
    assert chunked(parse(reads)) == parse(reads)  # it reads what it stores


def test_loads_of_what_the_kernel_writes_stay() -> None:
    text = ma_format(biased()).replace("input bias", "output bias")
    store = next(line for line in text.splitlines() if "st.global C" in line)
    out = ma_format(chunked(parse(text.replace(store, f"    st.global bias[0 * j + j0 * 128 + j], %w vec 2\n{store}"))))
    assert out.count("ld.global bias") == 1 and "%w_64 = slice %w at j 64" in out


def test_f16_accumulator_work_is_chunked_as_well() -> None:
    text = ma_format(biased())
    store = next(line for line in text.splitlines() if "st.global C" in line)
    half = "    %z = narrow %y : f16[i: 64, j: 128] #acc\n" + store.replace("%y where", "%z where")
    out = chunked(parse(text.replace(store, half)))
    assert "%z_64 = narrow %y_64 : f16[i: 64, j: 64] #acc_64" in ma_format(out)
    same(biased(), out)
