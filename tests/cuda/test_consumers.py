"""Printed consumers of one warp: number, barriers, tensor maps of streams, warp votes; and that the text compiles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nautilus.core.errors import UnsupportedError
from nautilus.cuda.emit import emit_module
from nautilus.cuda.tensor_maps import kernel_maps
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.analysis.consumers import consumer_warps, has_warpgroups
from nautilus.ma_tile.ir.async_ops import TmaLoad
from nautilus.ma_tile.ir.ops import walk_ops
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from nautilus.runtime.nvrtc import build, compile_cuda
from tests.endtoend.collection.decode import Decode, compilation, schedule
from tests.ma_tile.programs.combined import PAIR, apart, edited, joined
from tests.ma_tile.programs.kernels import product

GIVEN = Decode(256, heads=2, group=2)


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90a"])
@pytest.mark.parametrize("given", [Decode(1024, 128, heads=8, group=4), Decode(770, heads=2)], ids=str)
def test_default_plans_compile_without_spills(given: Decode, arch: str) -> None:
    result = compile_file(Request(Path("given.naut"), arch, text=given.text))
    assert "role partial" in ma_format(result.modules["ma-tile"])
    built = build(result.cuda_module, arch)
    assert "warning" not in built.log.lower(), built.log
    assert len(built.resources) == len(result.modules["ma-tile"].kernels)
    assert all(r.spill_stores == r.spill_loads == r.stack_bytes == 0 for r in built.resources)


@pytest.mark.parametrize("groups", [1, 2])
def test_pipelines_of_tma_copies_compile_without_spills(groups: int) -> None:
    text = Decode(1000 if groups == 1 else 1024, 128, heads=4, group=4).text
    cuda = compilation(text, schedule(text, groups, 4, 32, tma_loads=True)).result.cuda_module.code
    assert "cp.async.bulk.tensor" in cuda and "L2_PROMOTION_L2_128B" in cuda
    assert all(r.spill_stores == r.spill_loads == 0 for r in compile_cuda(cuda, "sm_90a").resources)


def test_consumers_synchronise_among_themselves() -> None:
    """One warp needs no barrier of the hardware; the block has two of its own."""
    cuda = emit_module(joined(parse(PAIR)))
    assert cuda.count("__syncwarp();") == 1 and cuda.count("__syncthreads();") == 2
    assert "bar.sync" not in cuda
    loop = compilation(GIVEN.text, schedule(GIVEN.text, 1, 2, 16)).result.cuda_module.code
    assert "__syncwarp();" in loop and "bar.sync" not in loop


def test_barriers_of_larger_consumers_have_numbers() -> None:
    text = edited(
        ("grid 8 warps 1", "grid 4 warps 4"), ("block // 2", "block // 2 * 1"), ("f32[4, 2", "f32[2, 2"),
        ("c: 4", "c: 2"), ("c:4x1", "c:2x1"), ("grid 2 warps 4", "grid 2 warps 8"), ("warp(*:4)", "warp(*:8)"),
        ("warp()", "warp(*:4)"),
    )  # fmt: skip
    m = joined(parse(text))
    assert consumer_warps(m.kernels[0]) == 4 and has_warpgroups(m.kernels[0])
    cuda = emit_module(m)
    assert "__syncwarp();" not in cuda and "bar.sync" in cuda


def test_how_large_consumers_are() -> None:
    single = joined(parse(PAIR)).kernels[0]
    assert consumer_warps(single) == 1 and not has_warpgroups(single)
    assert consumer_warps(parse(PAIR).kernels[0]) == 0 and not has_warpgroups(parse(PAIR).kernels[0])
    assert consumer_warps(product().kernels[0]) == 4
    two = parse(ma_format(joined(parse(PAIR))).replace("consumers 4", "consumers 2")).kernels[0]
    with pytest.raises(UnsupportedError, match="consumers of 2 warps"):
        consumer_warps(two)


# -- streams --------------------------------------------------------------------------------------


def test_bytes_that_are_read_once_are_no_longer_fetched_ahead() -> None:
    m = joined(apart(GIVEN, 1, 2, 16, tma_loads=True), "O_acc_part")
    text = ma_format(m)
    assert text.count(" stream\n") == text.count("tma.load") > 0
    maps = kernel_maps(m, m.kernels[0])
    assert {(x.stream, x.promotion) for x in maps} == {(True, "L2_128B")}
    others = parse(text.replace(" stream\n", "\n"))
    loads = [op for k in others.kernels for op in walk_ops(k.body) if isinstance(op, TmaLoad)]
    assert loads and not any(op.stream for op in loads)
    assert {(x.stream, x.promotion) for x in kernel_maps(others, others.kernels[0])} == {(False, "L2_256B")}


def test_one_buffer_as_a_stream_and_not() -> None:
    """The buffer has two tensor maps with different names."""
    m = joined(apart(GIVEN, 1, 2, 16, tma_loads=True), "O_acc_part")
    mixed = parse(ma_format(m).replace(" stream\n", "\n", 1))
    found = kernel_maps(mixed, mixed.kernels[0])
    assert len({x.name for x in found}) == len(found) == 3
    assert {x.promotion for x in found if x.buffer == "K"} == {"L2_128B", "L2_256B"}


# -- votes ----------------------------------------------------------------------------------------

VOTE = """
module vote target sm_80 {
  input X: f32[128]
  output Y: f32[128]
  kernel vote grid 1 warps 4 min_blocks 1 {
    layout #all = reg(i:1x1) lane(i:32x1) warp(i:4x32)
    layout #rows = reg(i:4x32) lane(i:32x1) warp(*:4)
    layout #one = reg() lane(*:32) warp(*:4)
    %x = ld.global X[i] vec 1 : f32[i: 128] #rows
    %zero = const 0.0 : f32 #one
    %is = lt %x, %zero : bool[i: 128] #rows
    %r = reduce COMBINER %is over i : bool[] #one
    %y = select %r, %zero, %x : f32[i: 128] #rows
    st.global Y[i], %y vec 1
  }
}
"""


@pytest.mark.parametrize("combiner", ["any", "all"])
def test_every_lane_takes_part_in_a_vote(combiner: str) -> None:
    """With ``a || shuffle(b)``, lanes whose ``a`` holds skip the shuffle, and the other lanes wait for them."""
    cuda = emit_module(parse(VOTE.replace("COMBINER", combiner)))
    shuffles = [line for line in cuda.splitlines() if "__shfl" in line]
    assert len(shuffles) == 5
    for line in shuffles:
        assert not re.search(r"(\|\||&&|\?).*__shfl", line), line
    assert compile_cuda(cuda, "sm_80").data.startswith(b"\x7fELF")


def test_no_kernel_shuffles_under_a_condition() -> None:
    text = "dim M = 3, N = 300\ninput X: f32[M, N]\noutput Y: bool[M]\nY[i] = any[j](X[i, j] > 2)\n"
    cuda = compile_file(Request(Path("given.naut"), "sm_80", text=text)).cuda_module.code
    shuffles = [line for line in cuda.splitlines() if "__shfl" in line]
    assert shuffles and not any(re.search(r"(\|\||&&|\?).*__shfl", line) for line in shuffles)
