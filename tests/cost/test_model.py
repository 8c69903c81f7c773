"""The cost model against measurements on an H200: times, and the order of the main alternatives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.core.schedule import AxisPlan, KernelPlan, Schedule, WarpgroupPlan
from nautilus.core.text.expressions import parse_expr
from nautilus.core.types import DType
from nautilus.cost.estimates import loop_end
from nautilus.cost.latency import awaited_loads, loads_ahead
from nautilus.cost.model import Estimate, estimate
from nautilus.cost.ranking import place_of_best, rank_correlation
from nautilus.cost.work import COPIED, GATHERED, count
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.ir.ops import ForOp, walk_ops
from nautilus.ma_tile.passes.mma.load_ahead import LoadAhead
from nautilus.ma_tile.rewriting.at_sizes import at_sizes
from nautilus.ma_tile.text import parse
from nautilus.scalar.ir import Program
from nautilus.targets.rates import machine
from nautilus.tune.space.schedules import defaults, examine
from tests.cost.measured import LIBRARY, SPECS, TILES, product, program, space

ARCH = "sm_90a"


def seconds(p: Program, **changes: Any) -> float:
    """The estimate of the default schedule with ``changes``; dots in names are ``__``."""
    named = {k.replace("__", "."): v for k, v in changes.items()}
    known = defaults(space(p, ARCH))
    assert named.keys() <= known.keys(), named.keys() - known.keys()
    done = examine(space(p, ARCH), {**known, **named})
    assert done.module is not None, done.fault
    return estimate(done.module, ARCH).seconds


def attention(name: str, **dims: int) -> Program:
    return program(f"attention/{name}", tuple(dims.items()))


def compiled(name: str, **dims: int) -> Estimate:
    """The estimate of what the compiler makes of a spec of attention over pages, whose keys are not cut."""
    whole = Schedule(splits=())
    request = Request(SPECS / f"serving/attention/{name}.naut", ARCH, dims, schedule=whole, until="ma-tile")
    return estimate(compile_file(request).modules["ma-tile"], ARCH)


@pytest.mark.parametrize("shape", LIBRARY)
def test_gemm_times_match_measurements(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    at = list(LIBRARY).index(shape)
    p = product(m, n, k)
    guessed, measured = [], []
    for tile, percent in TILES.items():
        guessed.append(seconds(p, C__warpgroup__block_tile=tile))
        measured.append(2.0 * m * n * k / (percent[at] / 100 * LIBRARY[shape] * 1e12))
    assert all(0.85 < g / t < 1.15 for g, t in zip(guessed, measured, strict=True))
    pairs = list(zip(guessed, measured, strict=True))
    assert place_of_best(pairs) <= 5
    assert (rank_correlation(pairs) or 0.0) > 0.25  # 16384 x 4096: all tiles are within 4%


def test_the_best_tile_of_a_gemm_depends_on_its_shape() -> None:
    square, wide, small = product(4096, 4096, 4096), product(8192, 8192, 8192), product(2048, 2048, 2048)
    block = "C.warpgroup.block_tile"
    assert seconds(square, **{block: "128x256/2"}) < seconds(square, **{block: "128x128*2"})
    assert seconds(square, **{block: "128x128*2"}) < 0.95 * seconds(square, **{block: "128x320/2"})
    assert seconds(small, **{block: "128x128*2"}) < 0.9 * seconds(small, **{block: "128x192*2"})
    assert seconds(wide, **{block: "128x192*2"}) < seconds(wide, **{block: "128x128*2"})
    assert seconds(wide, **{block: "256x192/2"}) < seconds(wide, **{block: "128x128*2"})


def test_stages_and_stores_of_a_gemm() -> None:
    p = product(4096, 4096, 4096)
    base = seconds(p)
    assert 1.1 < seconds(p, C__warpgroup__stages=2) / base < 1.4  # measured 1.25
    assert abs(seconds(p, C__warpgroup__stages=3) / base - 1) < 0.01
    assert 1.02 < seconds(p, C__warpgroup__epilogue="direct") / base < 1.15  # 1.10
    assert 1.0 < seconds(p, C__warpgroup__cluster=2) / base < 1.05  # 1.01 to 1.03
    assert 1.0 < seconds(p, C__warpgroup__persistent="none") / base < 1.05  # 1.03
    assert seconds(p, C__engine="warp") > 1.4 * base


#: name, dims, TFLOP/s of the best schedule (half of the work where the mask is causal)
CHAINS = [
    ("global_prefill", {"B": 16, "H": 16, "M": 1024, "N": 1024}, 658),
    ("global_prefill", {"B": 4, "H": 16, "M": 4096, "N": 4096}, 744),
    ("global_prefill", {"B": 1, "H": 16, "M": 16384, "N": 16384}, 761),
    ("causal_prefill", {"B": 4, "H": 16, "M": 4096, "N": 4096}, 684),
    ("global_prefill_d64", {"B": 4, "H": 16, "M": 4096, "N": 4096}, 549),
    ("causal_prefill_d64", {"B": 4, "H": 16, "M": 4096, "N": 4096}, 497),
    ("global_prefill_d256", {"B": 4, "H": 16, "M": 4096, "N": 4096}, 777),
    ("causal_prefill_d256", {"B": 4, "H": 16, "M": 4096, "N": 4096}, 684),
]


@pytest.mark.parametrize(("name", "dims", "best"), CHAINS)
def test_back_to_back_gemm_times_match_measurements(name: str, dims: dict[str, int], best: float) -> None:
    p = attention(name, **dims)
    depth = next(b for b in p.buffers if b.name == "Q").shape[-1]
    assert isinstance(depth, int)
    flops = 4.0 * dims["B"] * dims["H"] * dims["M"] * dims["N"] * depth * (0.5 if "causal" in name else 1.0)
    assert 0.7 < flops / seconds(p) / 1e12 / best < 1.3


def test_choices_of_a_back_to_back_gemm_are_in_the_measured_order() -> None:
    p = attention("global_prefill", B=4, H=16, M=4096, N=4096)
    base = seconds(p)
    assert 1.1 < seconds(p, O__warpgroup__pipeline_mma=False) / base < 1.35
    assert (
        seconds(p, O__warpgroup__warp_specialised=False, O__warpgroup__persistent="none", O__warpgroup__cluster=1)
        > 1.2 * base
    )
    assert 1.0 < seconds(p, O__warpgroup__stages=1) / base < 1.1  # 1.05
    steps = {
        s: seconds(p, O__warpgroup__loop_tile=s, O__warpgroup__epilogue="tma-aliased/0") for s in (64, 80, 96, 128)
    }
    assert steps[128] < steps[96] < steps[80] < steps[64]
    assert 1.05 < steps[64] / steps[128] < 1.25  # 1.13
    assert abs(seconds(p, O__warpgroup__ordered_mma=True) / base - 1) < 0.02
    assert (
        seconds(p, O__warpgroup__rescale_policy="always")
        > seconds(p, O__warpgroup__rescale_policy="skip")
        > base * 0.999
    )


def test_three_consumer_warpgroups_pay_for_narrow_accumulators_only() -> None:
    narrow, wide = attention("global_prefill_d64"), attention("global_prefill_d64", M=4096, N=4096)
    assert seconds(narrow, O__warpgroup__row_tile="192/3") < seconds(narrow, O__warpgroup__row_tile="128/2")
    done = examine(space(attention("global_prefill"), ARCH), {"O.warpgroup.row_tile": "192/3"})
    assert done.fault is not None and "registers" in done.fault
    assert wide is not narrow


@pytest.mark.parametrize(
    ("name", "dims", "slower"),
    [
        ("causal_prefill", {"B": 4}, 1.27),
        ("causal_prefill", {"B": 16, "M": 1024, "N": 1024}, 1.29),
        ("causal_prefill", {"M": 16384, "N": 16384}, 1.08),
        ("causal_prefill_d64", {"B": 4}, 1.06),
        ("causal_prefill_d256", {"B": 4, "H": 16}, 1.11),
        ("gqa_prefill", {"B": 4, "Hq": 32}, 1.04),
        ("window_prefill", {}, 0.99),
    ],
)
def test_heads_beyond_the_l2_cache_need_an_l2_swizzle(name: str, dims: dict[str, int], slower: float) -> None:
    p = attention(name, **dims)
    assert seconds(p, O__warpgroup__l2_supertiles=0) / seconds(p) == pytest.approx(slower, abs=0.06)  # measured


def test_uneven_tiles_are_fastest_longest_first() -> None:
    p = attention("causal_prefill", B=1, H=16, M=16384, N=16384)
    assert seconds(p, O__warpgroup__persistent="static", O__warpgroup__raster_order="natural") > 1.1 * seconds(p)
    assert seconds(p, O__warpgroup__raster_order="natural") > seconds(p)


@pytest.mark.parametrize(
    ("name", "dims", "microseconds"),
    [
        ("softmax", {}, 67.3),
        ("softmax", {"M": 65536, "N": 1024}, 66.5),
        ("softmax", {"M": 8192, "N": 32768}, 311.0),
        ("rms_norm", {}, 67.7),
        ("layer_norm", {}, 67.9),
        ("add_rms_norm", {}, 131.0),
    ],
)
def test_row_wise_kernels_reach_the_memory_rate(name: str, dims: dict[str, int], microseconds: float) -> None:
    assert 0.8 < seconds(program(f"rowwise/{name}", tuple(dims.items()))) / (microseconds * 1e-6) < 1.3


def test_one_large_block_of_rows_is_slower() -> None:
    p = program("rowwise/softmax")
    assert seconds(p, Y__warps=32) > 1.1 * seconds(p)


@pytest.mark.parametrize(("n", "floor"), [(1024, 31.0), (4096, 116.4), (16384, 458.0)])
def test_long_reads_are_close_to_the_bare_read(n: int, floor: float) -> None:
    """8 x 32 heads that each read keys and values once."""
    p = attention("causal_decode", N=n)
    assert 0.95 < seconds(p) / (floor * 1e-6) < 1.6


#: name, keys of a head, microseconds of the default schedule; 8 sequences
DECODING = [
    ("causal_decode", 1024, 32.7), ("causal_decode", 4096, 121.6), ("causal_decode", 16384, 477.0),
    ("causal_decode", 65536, 1879.0), ("gqa_decode", 1024, 10.7), ("gqa_decode", 4096, 33.9),
    ("gqa_decode", 16384, 124.0), ("gqa_decode", 65536, 474.0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "n", "microseconds"), DECODING)
def test_decoding_times_match_measurements(name: str, n: int, microseconds: float) -> None:
    assert 0.92 < seconds(attention(name, N=n)) / (microseconds * 1e-6) < 1.08


def test_choices_of_split_k_warps_are_in_the_measured_order() -> None:
    p, long = attention("gqa_decode"), attention("gqa_decode", N=16384)
    base = seconds(p)
    assert 1.02 < seconds(p, interleaved__O_acc_part__stages=2) / base < 1.13  # measured 1.02 to 1.13
    assert seconds(p, interleave="4x16") > 1.02 * base  # 1.04
    assert seconds(p, interleave="2x32") > 1.2 * base  # half of the bytes in flight
    assert seconds(p, interleaved__O_acc_part__combine_in_block=False) > 1.05 * base  # one launch more
    second = examine(space(p, ARCH), {**defaults(space(p, ARCH)), "groups": 2, "interleaved.O_acc_part_2.cluster": 1})
    assert second.module is not None
    apart = estimate(second.module, ARCH)
    assert apart.seconds > base and 2.2e-6 < apart.kernels[-1].seconds < 3.2e-6  # 2.6 us: 1.3 to 1.9 and the launch
    assert seconds(long, groups=1) > seconds(long, interleaved__O_acc_part_2__cluster=1) > seconds(long) + 1e-6
    assert seconds(p, splits=4) > 1.05 * base
    assert abs(seconds(p, interleaved__O_acc_part__rescale_policy="always") / base - 1) < 0.01
    many = attention("causal_decode")
    assert abs(seconds(many, interleave="4x32") / seconds(many) - 1) < 0.03  # enough in flight either way


def test_few_blocks_need_splits() -> None:
    few, many = attention("causal_decode", B=1, H=8, N=16384), attention("causal_decode")
    assert seconds(few, splits=8) < 0.5 * seconds(few, splits=1)
    assert seconds(many, splits=4) > seconds(many, splits=1)
    assert seconds(few) < seconds(few, splits=8) and seconds(few) < 0.5 * seconds(few, groups=1)
    assert seconds(many, groups=4) > seconds(many)


def test_parts_are_consistent() -> None:
    p = product(4096, 4096, 4096)
    done = examine(space(p, ARCH), defaults(space(p, ARCH)))
    assert done.module is not None
    found = estimate(done.module, ARCH)
    (k,) = found.kernels
    assert found.flops == 2.0 * 4096**3
    assert 3 * 2 * 4096**2 <= found.bytes < 6 * 2 * 4096**2
    assert k.bound == "multiprocessors" and k.parts["mma"] < k.seconds < 1.2 * k.parts["mma"]
    assert 1.4e9 < k.clock < 1.6e9 and k.resident == 1 and k.blocks == 132


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_120"])
def test_other_targets_have_estimates(arch: str) -> None:
    p = program("attention/causal_prefill", arch=arch)
    done = examine(space(p, arch), defaults(space(p, arch)))
    assert done.ok and done.module is not None
    assert 1e-4 < estimate(done.module, arch).seconds < 1e-1


@pytest.mark.parametrize(
    ("dtype", "value", "share"),
    [("f32", "X[i] * X[i]", 0.0), ("f32", "max(X[i], 0.5)", 1 / 3), ("i32", "X[i] ^ 5", 0.5)],
)
def test_the_integer_unit_has_comparisons_and_bits(dtype: str, value: str, share: float) -> None:
    """Of three instructions an element, a sum or two and what the value takes; loads have a few more."""
    text = f"dim N = 2**20\ninput X: {dtype}[N]\noutput Y: {dtype}\nY = sum[i]({value})\n"
    module = compile_file(Request(Path("t.naut"), ARCH, text=text, until="ma-tile")).modules["ma-tile"]
    c = count(module, module.kernels[0]).consumer
    assert float(np.mean(c.integer / c.issue)) == pytest.approx(share, abs=0.15)
    assert (float(np.mean(c.integer)) == 0.0) is (share == 0.0)


def test_gathered_rows_are_read() -> None:
    """Pages that a table chooses cost as many bytes as a contiguous cache; a table in the L2 cache is read once.

    The 32 lengths are 8192, 4096, 6144, 2048, ..., which is 33 / 64 of the longest ones.
    """

    def read(pages: int) -> float:
        return compiled("paged_heads_decode", B=32, N=8192, Pages=pages).bytes

    page = 2 * 8 * 64 * 128 * 2  # of keys and values
    assert 4096 * page * 33 / 64 <= read(4096) <= 1.05 * 4096 * page * 33 / 64
    assert 8 * page <= read(8) <= 8 * page + 8e6


@pytest.mark.parametrize(
    "end",
    ["min(max(len[b], 0), 4096)", "select(len[b] < 2147475457, min(max(len[b], 0), 4096), 0)"],
    ids=["clamped", "where it does not wrap"],
)
def test_lengths_are_spread_over_their_range(end: str) -> None:
    found = loop_end(parse_expr(end, {"len": DType.I32}), {"b": np.arange(5)}, {}, {}, starts=False)
    assert list(found) == [4096, 2048, 3072, 1024, 3584]


def test_copies_of_gathered_rows_have_more_instructions() -> None:
    """Each vector has an address of its own, and a comparison that keeps it inside of the tensor."""
    text = (Path(__file__).parents[1] / "ma_tile/inputs/gathered.ma").read_text()

    def issued(text: str) -> float:
        module = parse(text)
        return float(np.sum(count(module, module.kernels[0]).consumer.issue))

    rows = 2 + 2  # of both loops, which copy a vector for each lane of a warp
    assert issued(text) - issued(text.replace("B[%p", "B[t").replace("B[%q", "B[t")) == rows * (GATHERED - COPIED)


def test_a_window_at_the_end_of_a_length_is_as_long_as_it_may_be() -> None:
    """Its first and its last position follow from one element, and so the model takes the same one for both."""

    def products(window: int) -> float:
        return sum(k.flops for k in compiled("paged_sinks_decode", B=32, N=4096, W=window).kernels)

    assert 1.6 < products(2048) / products(1024) < 2.4


def test_stores_do_not_wait_for_the_few_loads_beside_them() -> None:
    text = "dim T = 65536, V = 512\ninput y: i32[T]\noutput O: f16[T, V]\nO[t, v: V] = 1 if y[t] == v else 0\n"
    module = compile_file(Request(Path("given.naut"), ARCH, text=text, until="ma-tile")).modules["ma-tile"]
    stored = 65536 * 512 * 2
    assert estimate(module, ARCH).seconds < 2.5 * stored / machine(ARCH).dram


def test_a_range_that_is_found_counts_as_the_whole_axis() -> None:
    """What the documents of a caller are is not known; ends of several rows in one expression are no segments."""
    text = (
        "dim B = 2, H = 16, M = 8192, D = 128\ninput Q: bf16[B, H, M, D]\ninput K: bf16[B, H, M, D]\n"
        "input V: bf16[B, H, M, D]\ninput doc: i32[B, M]\noutput O: bf16[B, H, M, D]\n"
        "S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)\n"
        "O[b, h, i, d] = sum[j](softmax[j | j <= i and doc[b, i] == doc[b, j]](S[b, h, i, j]) * V[b, h, j, d])\n"
    )
    result = compile_file(Request(Path("given.naut"), "sm_90a", text=text, until="ma-tile"))
    assert any(k.name.endswith("_last") for k in result.modules["ma-tile"].kernels)
    assert 8e-4 < estimate(result.modules["ma-tile"], ARCH).seconds < 2e-3


def test_loads_across_contiguous_memory_move_whole_sectors() -> None:
    """An element in a sector of its own: 201 MB take 344 us on an H200 where blocks have one column each."""
    text = """module columns target sm_90a {
      input X: f32[64, 12288, 64]
      output m: f32[12288]
      kernel m grid 12288 warps 4 min_blocks 1 {
        let b = block // 256
        let d = block % 256
        layout #t = reg(a:32x2) lane(c:32x1) warp(c:2x32, a:2x1)
        %x = ld.global X[a, b * 256 + d, c] vec 1 : f32[a: 64, c: 64] #t
      }
    }"""
    apart = text.replace("f32[64, 12288, 64]", "f32[64, 48, 64, 256]").replace("X[a, b * 256 + d, c]", "X[a, b, c, d]")
    seconds = [estimate(parse(x), ARCH).seconds * 1e6 for x in (text, apart)]
    assert seconds[0] < 80 and 300 < seconds[1] < 400


def test_atomic_operations_on_few_lines_follow_each_other() -> None:
    """262144 terms of 256 elements take 62 us longer on an H200 than in copies or in the memory of blocks."""
    text = """module counts target sm_90a {
      input K: i32[262144]
      output C: i32[%d] = 0
      kernel C grid 256 warps 4 min_blocks 1 {
        let x = block
        layout #t = reg(t:8x1) lane(t:32x8) warp(t:4x256)
        %%k = ld.global K[x * 1024 + t] vec 4 : i32[t: 1024] #t
        st.global C[%%k], %%k where %%k >= 0 and %%k < %d vec 1 atomic sum
      }
    }"""
    few, many = (estimate(parse(text % (n, n)), ARCH).seconds * 1e6 for n in (256, 1 << 16))
    assert many < 8 and 50 < few < 80


def test_gathered_elements_move_sectors() -> None:
    """4 million elements of 16 bits, whose places are read for each, take 43 us on an H200."""
    text = (
        "dim B = 64, N = 4096, C = 128, K = 512\ninput X: f16[B, N, C]\ninput I: i32[B, K, C]\n"
        "assume 0 <= I[b, k, c] < N\noutput Y: f16[B, K, C]\nY[b, k, c] = X[b, I[b, k, c], c]\n"
    )
    module = compile_file(Request(Path("given.naut"), ARCH, text=text, until="ma-tile")).modules["ma-tile"]
    assert 30e-6 < estimate(module, ARCH).seconds < 50e-6


def test_elements_of_a_small_table_stay_in_the_cache() -> None:
    """``T`` has 1 kB, of which each element of a long tensor reads one: memory is read once."""
    text = "dim N = 67108864\ninput C: u8[N], Y: f32[N], T: f32[256]\noutput Z: f32\nZ = sum[i](T[i32(C[i])] * Y[i])\n"
    module = compile_file(Request(Path("given.naut"), ARCH, text=text, until="ma-tile")).modules["ma-tile"]
    found = estimate(module, ARCH).kernels
    assert sum(k.dram_bytes for k in found) < 1.1 * 5 * 67108864
    assert sum(k.l2_bytes for k in found) < 1.3 * 5 * 67108864  # no sector for each element


def test_windows_whose_lengths_are_read_are_as_long_as_they_may_be() -> None:
    """A loop that begins at ``i - W[h]`` is longest where the element is greatest, beside a range that begins first."""
    text = (
        "dim H = 16, M = 8192, D = 128\ninput Q: bf16[H, M, D]\ninput K: bf16[H, M, D]\ninput V: bf16[H, M, D]\n"
        "input W: i32[H]\ninput doc: i32[M]\noutput O: bf16[H, M, D]\n"
        "S[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(D)\n"
        "P[h, i, j] = softmax[j | j <= i and i - j < W[h] and doc[i] == doc[j]](S[h, i, j])\n"
        "O[h, i, d] = sum[j](P[h, i, j] * V[h, j, d])\n"
    )
    result = compile_file(Request(Path("given.naut"), "sm_90a", text=text, until="ma-tile"))
    assert 4e-4 < estimate(result.modules["ma-tile"], ARCH).seconds < 1e-3


def test_segments_are_as_long_at_runtime_sizes_as_at_fixed_ones() -> None:
    """Positions of ends are clamped to a tensor of any size, and the ends to the bound of a size that may be less."""
    text = (
        "dim {T}, {B}, {C}, D = 1024\nassume C == B + 1\n"
        "input X: f16[T, D], off: i32[C]\noutput Y: f32[B, D]\nassume 0 <= off[c] <= T\nassume off[b] <= off[b + 1]\n"
        "Y[b: B, d] = sum[t: off[b] .. off[b + 1]](X[t, d])\n"
    )
    bounds = {"T": 131072, "B": 1024, "C": 1025}
    late = text.format(**{x: f"{x} = runtime <= {n}" for x, n in bounds.items()})
    whole = compile_file(Request(Path("given.naut"), ARCH, text=late, until="ma-tile")).modules["ma-tile"]
    sizes = {"T": 98304, "B": 768, "C": 769}
    fixed = compile_file(Request(Path("given.naut"), ARCH, text=late, dims=sizes, until="ma-tile")).modules["ma-tile"]
    seconds = [estimate(m, ARCH).seconds for m in (at_sizes(whole, sizes), fixed)]
    assert seconds[0] == pytest.approx(seconds[1], rel=0.05) and seconds[0] > 98304 * 1024 * 2 / 4.8e12


def test_ranges_between_elements_of_two_tensors_are_as_long_as_they_may_be() -> None:
    """The loop over a first block with a mask ends at an element of the start, which is no end of the range."""
    text = (
        "dim T = 64, N = 65536, D = 64\ninput X: f16[N, D], lo: i32[T], hi: i32[T]\noutput Y: f32[T, D]\n"
        "Y[t, d] = sum[j: lo[t] .. hi[t]](X[j, d])\n"
    )
    module = compile_file(Request(Path("given.naut"), ARCH, text=text, until="ma-tile")).modules["ma-tile"]
    assert estimate(module, ARCH).seconds > 20e-6


def test_rows_of_each_segment_are_multiplied_by_one_matrix() -> None:
    """A tile of rows overlaps with few segments, which need not be the one in the middle."""
    text = (
        "dim E = 32, D = 2048, F = 1024, T = 8192\ninput X: bf16[T, D]\ninput off: i32[E + 1]\n"
        "input W: bf16[E, F, D]\noutput Y: bf16[T, F]\n"
        "Y[t, f] = sum[e: E, d | off[e] <= t < off[e + 1]](X[t, d] * W[e, f, d])\n"
    )
    result = compile_file(Request(Path("given.naut"), "sm_90a", text=text, until="ma-tile"))
    work = sum(k.flops for k in estimate(result.modules["ma-tile"], ARCH).kernels)
    assert 1.0 <= work / (2 * 8192 * 2048 * 1024) < 2.5


def test_loads_ahead_are_awaited_for_a_shorter_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nautilus.cost.latency.AWAIT", 64.0)  # this product has few instructions
    module = parse((Path(__file__).parents[1] / "ma_tile/inputs/computed_operand.ma").read_text(), "product")
    ahead = LoadAhead(None, (16,)).apply(module)
    waited = []
    for k in (module.kernels[0], ahead.kernels[0]):
        (loop,) = (op for op in k.body if isinstance(op, ForOp))
        waited.append(awaited_loads(loop, k))
    assert 0.0 < waited[0] <= 1.0  # both loads arrive at one time
    assert waited[1] < waited[0]
    assert [loads_ahead(k) for k in (module.kernels[0], ahead.kernels[0])] == [0, 5]


def test_positions_that_are_loaded_ahead_have_no_price() -> None:
    text = (
        "dim M = 128, N = 128, K = 2048\ninput X: f16[M, 4096], W: f16[4096, N], at: i32[K]\noutput Y: f32[M, N]\n"
        "assume 0 <= at[k] < 4096\nY[i, j] = sum[k: K](X[i, at[k]] * W[at[k], j])\n"
    )
    module = compile_file(Request(Path("given.naut"), "sm_80", text=text, until="ma-tile")).modules["ma-tile"]
    carried = [f for k in module.kernels for op in walk_ops(k.body) if isinstance(op, ForOp) for f in op.yields]
    assert any(f.type.dtype is DType.I32 for f in carried) and not any(map(loads_ahead, module.kernels))


def test_loads_to_registers_are_outstanding_beside_copies() -> None:
    """Keys of 8 bits go to registers, and their scales to shared memory: both keep the memory busy."""
    text = (
        "dim B = 32, Q = 3, H = 32, KV = 8, D = 128, N = 8192\ninput q: f16[B, Q, H, D], len: i32[B]\n"
        "input k: i8[B, KV, N, D], s: f16[B, KV, N]\nassume Q <= len[b] <= N\noutput m: f32[B, H, Q]\n"
        "m[b, h, i] = max[n: 0 .. len[b]](sum[d](q[b, i, h, d] * k[b, h // 4, n, d]) * s[b, h // 4, n])\n"
    )
    module = compile_file(Request(Path("given.naut"), ARCH, text=text, until="ma-tile")).modules["ma-tile"]
    assert estimate(module, ARCH).seconds < 4 * 32 * 8 * 8192 * 128 / 3.3e12


@pytest.mark.parametrize(
    ("rows", "tile", "stages", "microseconds"),
    [(64, (64, 32), 16, 12.1), (64, (64, 32), 8, 12.8), (16, (64, 32), 16, 16.7), (48, (48, 64), 15, 12.6)],
    ids=["all rows", "few stages", "rows of zeros", "rows as columns"],
)
def test_products_of_few_rows_match_measurements(
    rows: int, tile: tuple[int, int], stages: int, microseconds: float, tmp_path: Path
) -> None:
    """Loads that L2 serves are not outstanding for long, and TMA fills rows beyond the tensor slowly."""
    text = f"dim M = {rows}, N = 4096, K = 4096\ninput X: f16[M, K], W: f16[N, K]\noutput Y: f16[M, N]\n"
    text += "Y[i, j] = sum[k](X[i, k] * W[j, k])\n"
    mapping = WarpgroupPlan(warpgroups=1, stages=stages, pipeline_mma=False)
    axes = (AxisPlan("i", "grid", tile[0]), AxisPlan("j", "grid", tile[1]), AxisPlan("k", "loop", 64))
    kernel = KernelPlan("Y", ("Y_acc", "Y"), axes, (("Y_acc",), ("Y",)), mapping=mapping)
    schedule = Schedule((), (kernel,), splits=())
    request = Request(tmp_path / "y.naut", ARCH, text=text, schedule=schedule, until="ma-tile")
    made = compile_file(request).modules["ma-tile"]
    assert 0.85 < estimate(made, ARCH).seconds * 1e6 / microseconds < 1.15


def test_products_of_64_bits_take_more_slots() -> None:
    """A sum of products of 32 bits has one instruction for a term at half the rate; one of 64 bits has three."""

    def issued(element: str, total: str) -> float:
        text = (
            f"dim M = 512, K = 256\ninput A: {element}[M, K], B: {element}[M, K]\noutput C: {total}[M, M]\n"
            f"C[i, j] = sum[k]({total}(A[i, k]) * {total}(B[j, k]))\n"
        )
        result = compile_file(Request(Path("given.naut"), "sm_90a", text=text, until="ma-tile"))
        return sum(k.parts["issue"] for k in estimate(result.modules["ma-tile"], ARCH).kernels)

    assert 1.3 < issued("i32", "i64") / issued("i32", "i32") < issued("i64", "i64") / issued("i32", "i32") < 6.0
