"""Tiles of scatters: lanes along contiguous elements, and terms that follow each other in one thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.core.schedule import Schedule, WarpPlan
from nautilus.core.tiles import ceil_pow2
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.ir.layout import Mode
from nautilus.ma_tile.ir.ops import GlobalStore


@pytest.mark.parametrize("sizes, tiles, warps", [
    ("T = 65536, E = 40000, D = 256", {"t": 16, "d": 128}, (1, 4)),
    ("T = 65536, E = 40000, D = 96", {"t": 64, "d": 32}, (4, 1)),
    ("T = 65536, E = 40000, D = 33", {"t": 32, "d": 64}, (2, 2)),
    ("T = 65536, E = 40000, D = 5", {"t": 128, "d": 8}, (4, 1)),
    ("T = 2048, E = 40000, D = 128", {"t": 4, "d": 128}, (1, 4)),
    ("T = runtime <= 4096, E = 40000, D = 32", {"t": 16, "d": 32}, (4, 1)),
])  # fmt: skip
def test_a_thread_has_terms_that_follow_each_other(sizes: str, tiles: dict[str, int], warps: tuple[int, int]) -> None:
    text = f"dim {sizes}\ninput X: i32[T, D]\ninput K: i32[T]\noutput Y: i32[E, D]\n"
    text += "Y[e: E, d] = sum[t | K[t] == e](X[t, d])\n"
    request = Request(Path("s.naut"), "sm_90a", text=text, schedule=Schedule(scatters=("Y",)), until="ma-tile")
    made = compile_file(request)
    assert made.context.schedule is not None
    (plan,) = (k for k in made.context.schedule.kernels if "Y" in k.ops)
    assert {a.name: a.tile for a in plan.axes} == tiles and isinstance(plan.mapping, WarpPlan)
    assert plan.mapping.warps == warps
    kernel = made.modules["ma-tile"].kernels[-1]
    (store,) = (op for op in kernel.body if isinstance(op, GlobalStore))
    layout = kernel.layouts[store.value.layout]
    run = tiles["t"] // (warps[0] * max(1, 32 // tiles["d"]))
    assert layout.reg[0] == Mode(run, "t", 1) and layout.lane[0] == Mode(min(32, tiles["d"]), "d", 1)


@pytest.mark.parametrize(("corners", "tile"), [(3, 64), (8, 64), (200, 2)])
def test_a_block_has_terms_of_several_rows_of_few_keys(corners: int, tile: int) -> None:
    """The keys of a row are an axis of a few elements, as the corners of a triangle."""
    text = f"dim F = 65536, V = 40000, C = {corners}\ninput at: i32[F, C]\ninput X: i32[F, 3]\noutput Y: i32[V, 3]\n"
    text += "Y[v: V, d] = sum[f, c | at[f, c] == v](X[f, d])\n"
    request = Request(Path("s.naut"), "sm_90a", text=text, schedule=Schedule(scatters=("Y",)), until="ma-tile")
    plan = compile_file(request).context.schedule.kernels[-1]  # type: ignore[union-attr]
    assert {a.name: a.tile for a in plan.axes} == {"f": tile, "c": min(256, ceil_pow2(corners)), "d": 4}


def test_keys_alone_are_read_in_vectors() -> None:
    text = "dim T = 65536, E = 40000\ninput K: i32[T]\noutput H: i32[E]\nH[e: E] = sum[t | K[t] == e](1)\n"
    request = Request(Path("s.naut"), "sm_90a", text=text, schedule=Schedule(scatters=("H",)), until="ma-tile")
    kernel = compile_file(request).modules["ma-tile"].kernels[-1]
    (store,) = (op for op in kernel.body if isinstance(op, GlobalStore))
    layout = kernel.layouts[store.value.layout]
    assert layout.reg == (Mode(8, "t", 1),) and layout.lane == (Mode(32, "t", 8),)


@pytest.mark.parametrize(("dtype", "tile"), [("u8", 2048), ("u4", 1024)])
def test_terms_of_several_histograms_lie_along_contiguous_keys(dtype: str, tile: int) -> None:
    """Also where two keys share a byte: a block has terms of one histogram, which it combines in shared memory."""
    text = f"dim B = 128, N = 65536, K = 16\ninput q: {dtype}[B, N]\noutput C: i32[B, K]\n"
    text += "C[b, k: K] = sum[n | q[b, n] == k](1)\n"
    made = compile_file(Request(Path("s.naut"), "sm_90a", text=text, until="ma-tile"))
    assert made.context.schedule is not None
    assert {a.name: a.tile for a in made.context.schedule.kernels[0].axes} == {"b": 1, "n": tile}
    assert [s.name for s in made.modules["ma-tile"].kernels[-1].smem] == ["C_block"]


@pytest.mark.parametrize(("elements", "tile"), [(4096, 4096), (64, 1024)])
def test_blocks_are_wide_where_they_are_few(elements: int, tile: int) -> None:
    """A block has four terms for each of its elements, so that many elements leave few blocks."""
    text = f"dim N = 1048576, E = {elements}\ninput x: f32[N], q: i32[N]\noutput C: f32[E]\n"
    text += "C[e] = max[n | q[n] == e](x[n])\n"
    made = compile_file(Request(Path("s.naut"), "sm_90a", text=text, until="scalar"))
    assert made.context.schedule is not None
    assert {a.name: a.tile for a in made.context.schedule.kernels[0].axes} == {"n": tile}
