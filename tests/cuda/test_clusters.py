"""The printed CUDA of clusters: loads and stores of each block, barriers, and compilation of whole kernels without
spills."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nautilus.core.errors import ScheduleError
from nautilus.cuda.emit import emit_module
from nautilus.cuda.tensor_maps import copy_of
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.ir.ops import TmaLoad, walk_ops
from nautilus.ma_tile.passes.finalise.initialise_mbarriers import InitialiseMbarriers
from nautilus.ma_tile.passes.mma.async_mma import AsyncMma
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from nautilus.runtime.nvrtc import compile_cuda
from tests.endtoend.collection.decode import Decode, compilation, schedule
from tests.ma_tile.programs.combined import ALIKE, clustered
from tests.ma_tile.programs.warpgroup import cluster
from tests.ma_tile.roles import scheduled

#: two blocks with 64 rows each share B, whose stage has two slabs
CHECKS = """
CHECK: void tma_load_2d_multicast(u32 shared, const TensorMap* map, u32 bar, int c0, int c1, u16 blocks) {
CHECK-NEXT: cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
CHECK-NEXT: "[%0], [%1, {%3, %4}], [%2], %5;"
CHECK: void mbarrier_arrive_at(u32 bar, u32 rank) {
CHECK: "mapa.shared::cluster.u32 there, %0, %1;\\n"
CHECK-NEXT: "mbarrier.arrive.shared::cluster.b64 _, [there]; }"
CHECK: barrier.cluster.arrive;
CHECK: barrier.cluster.wait;
CHECK: void __launch_bounds__(256, 1) __cluster_dims__(2, 1, 1)
CHECK: mbarrier_init(shared + empty_at, 8);
CHECK-NEXT: fence_mbarrier_init();
CHECK-NEXT: }
CHECK-NEXT: cluster_arrive();
CHECK-NEXT: cluster_wait();
CHECK: // producer
CHECK: mbarrier_expect(shared + full_at, 32768);
CHECK-NEXT: tma_load_2d(shared + sa_at, &map_A_64_64, shared + full_at, 0, block * 64);
CHECK-NEXT: tma_load_2d(shared + sa_at + 8192, &map_A_64_64, shared + full_at, 64, block * 64);
CHECK-NEXT: tma_load_2d_multicast(shared + sb_at + block % 2 * 8192, {{.*}}, block % 2 * 64, 0, 3);
CHECK-NOT: tma_load
CHECK: // consumer
CHECK: __syncwarp();
CHECK-NEXT: if (lane < 2) {
CHECK-NEXT: mbarrier_arrive_at(shared + empty_at, lane);
CHECK: cluster_arrive();
CHECK-NEXT: cluster_wait();
CHECK-NEXT: }
"""


def test_text(filecheck: Callable[..., None]) -> None:
    m = AsyncMma().apply(InitialiseMbarriers().apply(parse(cluster())))
    verify(m)
    text = emit_module(m)
    filecheck(text, CHECKS)
    # the forms with .release.cluster and .acquire.cluster spelled out cost a fence of the whole device each
    assert not re.search(r"mbarrier\.(arrive|try_wait)\S*\.(release|acquire)", text)
    assert "<<<2, 256, " in text  # the cluster's size is an attribute of the kernel
    compile_cuda(text, "sm_90a")


def rows(text: str) -> str:
    """A kernel whose operand B has one slab a stage, so that the blocks share it by rows."""
    for old, new in (("n: 64, k: 128] stages", "n: 64, k: 64] stages"), ("for t in 0..2", "for t in 0..1")):
        assert old in text, old
        text = text.replace(old, new)
    return text.replace("B: f16[64, 128]", "B: f16[64, 64]")


def test_a_single_slab_is_cut_by_rows() -> None:
    m = AsyncMma().apply(InitialiseMbarriers().apply(parse(rows(cluster()))))
    (load,) = [op for op in walk_ops(m.kernels[0].body) if isinstance(op, TmaLoad) and op.multicast > 1]
    copy = copy_of(m, m.kernels[0], load)
    assert (copy.map.box, copy.steps) == ((64, 32), ((0, 0),))
    assert (copy.part_axis, copy.part_size, copy.part_bytes) == (1, 32, 4096)
    alone = copy_of(m, m.kernels[0], replace(load, multicast=1))
    assert (alone.map.box, alone.part_bytes) == ((64, 64), 0) and alone.map.name != copy.map.name
    text = emit_module(m)
    assert "+ block % 2 * 4096, &map_B_32_64, shared + full_at, 0, block % 2 * 32, 3);" in text


@pytest.mark.parametrize(
    ("path", "dims", "shared"),
    [
        ("attention/global_prefill.naut", {"B": 4, "H": 16, "M": 4096, "N": 4096}, {"K", "V"}),
        ("attention/global_prefill_d64.naut", {"B": 1, "H": 16, "M": 3072, "N": 4096}, {"K", "V"}),
        ("attention/global_prefill_d256.naut", {"B": 1, "H": 16, "M": 4096, "N": 4096}, {"K", "V"}),
        ("matmul/f16.naut", {"M": 4096, "N": 4096, "K": 4096}, {"B"}),
    ],
)
def test_specs_in_clusters(path: str, dims: dict[str, int], shared: set[str]) -> None:
    low, high = (32, 160) if "d64" in path else (40, 232)
    changed = {"cluster": 2, "persistent": "static", "producer_registers": low, "consumer_registers": high}
    done = compile_file(scheduled(path, dims, **changed))
    (kernel,) = done.modules["ma-tile"].kernels
    loads = [op for op in walk_ops(kernel.body) if isinstance(op, TmaLoad)]
    assert kernel.cluster == 2 and kernel.blocks.value == 132
    assert {op.buffer for op in loads if op.multicast == 2} == shared
    assert {op.buffer for op in loads if op.multicast == 1}.isdisjoint(shared)
    built = compile_cuda(done.cuda_module.code, "sm_90a")
    assert all(r.spill_stores == r.spill_loads == r.stack_bytes == 0 for r in built.resources), built.log


def test_a_causal_walk_is_refused() -> None:
    plan = {"cluster": 2, "persistent": "static", "raster_order": "natural"}
    request = scheduled("attention/causal_prefill.naut", {}, **plan)
    with pytest.raises(ScheduleError, match=r"the number of loads of s_\w+ differs .* depends on i0"):
        compile_file(request)


# -- clusters that combine ------------------------------------------------------------------------


def test_stores_into_the_first_block(filecheck: Callable[..., None]) -> None:
    text = emit_module(clustered(parse(ALIKE)))
    filecheck(
        text,
        """
        CHECK: asm("mapa.u64 %0, %1, %2;"
        CHECK: barrier.cluster.arrive;
        CHECK: barrier.cluster.arrive.relaxed;
        CHECK: barrier.cluster.wait;
        CHECK: __launch_bounds__(32, 1) __cluster_dims__(4, 1, 1)
        CHECK: const int rank = block % 4;
        CHECK: cluster_arrive_relaxed();
        CHECK: cluster_wait();
        CHECK: *reinterpret_cast<u32*>(shared_of_block(smem, 0) + part_T_at + rank * part_T_bytes
        CHECK: *reinterpret_cast<u32*>(shared_of_block(smem, 0) + part_M_at + rank * part_M_bytes
        CHECK: cluster_arrive();
        CHECK-NEXT: if (rank == 0) {
        CHECK-NEXT: cluster_wait();
        CHECK: (smem + parts_T_at
        CHECK: <<<8, 32, 2576, stream>>>
        """,
    )
    calls = ("cluster_arrive_relaxed", "cluster_wait", "cluster_arrive")
    assert [text.count(f"    {call}();") for call in calls] == [1, 2, 1]
    assert all(r.spill_stores == r.stack_bytes == 0 for r in compile_cuda(text, "sm_90a").resources)


def test_pipelines_of_such_blocks_are_their_own() -> None:
    """No other block arrives on their barriers, so they need no cluster barrier at the start or at the end."""
    given = Decode(1024, 128, heads=4, group=4).text
    text = compilation(given, schedule(given, 2, 4, 32, tma_loads=True)).result.cuda_module.code
    assert "mbarrier_init" in text and "__cluster_dims__(2, 1, 1)" in text
    assert text.count("    cluster_wait();") == 2  # before and after the stores into another block
    assert all(r.spill_stores == r.spill_loads == 0 for r in compile_cuda(text, "sm_90a").resources)


SHAPES = (
    Decode(16384, 128, 8, 32, 4), Decode(16384, 64, 8, 64, 8, dtype="bf16"), Decode(65536, 96, 8, 24, 3),
    Decode(16384, 128, 2, 64, 2, score="softcap"), Decode(16384, 128, 8, 8, 1, score="alibi"),
)  # fmt: skip


@pytest.mark.parametrize("given", SHAPES, ids=str)
def test_default_plans_compile_without_spills(given: Decode) -> None:
    result = compile_file(Request(Path("given.naut"), text=given.text))
    (kernel,) = result.modules["ma-tile"].kernels
    assert kernel.cluster == 2 and not kernel.pdl
    built = compile_cuda(result.cuda_module.code, "sm_90a")
    assert "warning" not in built.log.lower(), built.log
    assert all(r.spill_stores == r.spill_loads == r.stack_bytes == 0 for r in built.resources)
