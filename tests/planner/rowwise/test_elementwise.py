"""Elementwise kernels: tiles without idle threads, few blocks, and one kernel for results that read the same tensor."""

from __future__ import annotations

from math import prod

import pytest

from nautilus.core.schedule import KernelPlan, WarpPlan
from nautilus.ma_tile.ir.ops import GlobalLoad, MapOp, walk_ops
from nautilus.planner.rowwise.elementwise import exact, short
from tests.endtoend.support import complaints, travel
from tests.planner.plans import schedule_of

COPY = """
    dim M = {m}, N = {n}
    input X: {dtype}[M, N]
    input w: f32[M]
    output Y: {dtype}[M, 2, N]
    Y[i, r: 2, j] = X[i, j] * w[i]
"""


def plans(text: str) -> tuple[KernelPlan, ...]:
    schedule = travel(text, "sm_90a", until="scalar").result.context.schedule
    assert schedule is not None
    return schedule.kernels


@pytest.mark.parametrize(
    ("extent", "most", "least", "tile"),
    [
        (320, 512, 64, 64),
        (1000, 1024, 32, 1024),
        (257, 512, 64, 512),
        (257, 512, 32, 32),
        (513, 1024, 32, 64),
        (1032, 1024, 32, 128),
        (33, 64, 64, 64),
        (48, 64, 16, 16),
        (5, 8, 32, 8),
    ],
)
def test_little_of_a_tile_is_unused(extent: int, most: int, least: int, tile: int) -> None:
    assert exact(extent, most, least) == tile


@pytest.mark.parametrize(("extent", "tile"), [(20, 20), (30, 32), (28, 32), (33, 64), (48, 48), (100, 128), (19, 32)])
def test_a_short_row_is_whole_vectors_or_a_power_of_two(extent: int, tile: int) -> None:
    assert short(extent) == tile


def test_a_sum_over_short_rows_has_their_elements_in_registers() -> None:
    text = """
        dim N = {n}, C = 20
        input X: f32[N, C]
        input y: i32[N]
        output L: f32
        L = sum[n, c](log1p(exp(-abs(X[n, c]))) * (1 if y[n] == c else 0.25))
    """
    plan, *_ = plans(text.format(n=1 << 20))
    assert plan.axis("c").tile == 20
    assert complaints(travel(text.format(n=333), "sm_90a")) == []


@pytest.mark.parametrize(
    ("m", "n", "dtype", "tiles", "warps"),
    [
        (65536, 320, "bf16", {"j": 64, "r": 2}, 4),  # no tile of 512, of which 192 elements would be unused
        (65536, 512, "bf16", {"j": 512, "r": 2}, 4),
        (16384, 4096, "bf16", {"j": 2048}, 4),  # the starts of blocks of 1024 elements take longer than their bytes
        (4096, 1024, "bf16", {"j": 1024}, 4),  # few blocks
    ],
)
def test_tiles(m: int, n: int, dtype: str, tiles: dict[str, int], warps: int) -> None:
    (plan,) = plans(COPY.format(m=m, n=n, dtype=dtype))
    found = {a.name: a.tile for a in plan.axes if a.tile > 1}
    assert {x: found.get(x) for x in tiles} == tiles
    assert isinstance(plan.mapping, WarpPlan)


@pytest.mark.parametrize(("length", "kernels"), [(1 << 17, 1), (1 << 10, 1)])
def test_results_that_read_the_same_long_vectors_share_a_kernel(length: int, kernels: int) -> None:
    text = f"""
        dim N = {length}
        input p: f32[N]
        input g: bf16[N], m: bf16[N]
        output q: f32[N]
        output n: bf16[N]
        q[i] = p[i] - sign(0.9 * m[i] + 0.1 * g[i])
        n[i] = 0.99 * m[i] + 0.01 * g[i]
    """
    assert len(plans(text)) == kernels
    assert complaints(travel(text.replace(str(length), "300"), "sm_90a")) == []


def test_results_share_a_value_that_takes_long_to_compute() -> None:
    """A thread has four heads of an element, whose angle it computes once."""
    text = """
        dim T = {t}, H = 32, D = 128
        input q: bf16[T, H * D]
        input p: i64[T]
        output Y: bf16[T, H, D]
        Y[t, h, d: D] = q[t, h * D + d] * cos(p[t] * exp2(-d / 8.0))
    """
    (plan,) = plans(text.format(t=4096))
    assert {a.name: a.tile for a in plan.axes} == {"t": 8, "h": 4, "d": 128}
    (kernel,) = travel(text.format(t=64), "sm_90a", until="ma-tile").result.modules["ma-tile"].kernels
    (cosine,) = [op for op in walk_ops(kernel.body) if isinstance(op, MapOp) and op.op == "cos"]
    assert kernel.layouts[cosine.result.layout].registers == 8
    (light,) = plans(text.format(t=4096).replace("cos(p[t] * exp2(-d / 8.0))", "(p[t] + d)"))
    assert light.axis("h").tile != 4


WORDS = """
    dim K = {k}, N = {n}
    input Q: i32[K // {codes}, N]
    input s: f16[(K + 127) // 128, N]
    output W: f16[K, N]
    W[k, n] = ((Q[k // {codes}, n] >> (k % {codes} * 3)) & 7) * s[k // 128, n]
"""


def test_a_thread_has_the_codes_of_a_word() -> None:
    (plan,) = plans(WORDS.format(k=4096, n=4096, codes=8))
    assert {a.name: a.tile for a in plan.axes} == {"k": 8, "n": 1024}
    made = travel(WORDS.format(k=1024, n=4096, codes=8), "sm_90a", until="ma-tile").result
    (kernel,) = made.modules["ma-tile"].kernels
    (word,) = [op for op in walk_ops(kernel.body) if isinstance(op, GlobalLoad) and op.buffer == "Q"]
    assert kernel.layouts[word.result.layout].registers == 8  # of 64 results
    (tens,) = plans(WORDS.format(k=4080, n=4096, codes=10))  # pairs lie in one word
    assert tens.axis("k").tile == 2


def test_results_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nautilus.planner.rowwise.shared_operands.LARGE", 0)
    monkeypatch.setattr("nautilus.planner.kernel.FULL", 1)
    assert complaints(travel(WORDS.format(k=40, n=67, codes=8), "sm_90a")) == []
    assert complaints(travel(WORDS.format(k=30, n=67, codes=10), "sm_90a")) == []


def test_a_third_axis_fills_a_block() -> None:
    text = """
        dim B = 64, H = 64, K = 9, C = 64
        input X: f32[B, K, C]
        input w: f32[H, C]
        output Y: f16[B, H, K, C]
        Y[b, h, k, c] = X[b, k, c] * w[h, c]
    """
    (plan,) = plans(text)
    tiles = {a.name: a.tile for a in plan.axes}
    assert tiles["c"] == 64 and tiles["k"] == 4 and tiles["h"] == 4


def test_a_fourth_axis_fills_a_block_of_tiny_tensors() -> None:
    text = """
        dim E = 4000, N = 5
        input U: f32[E, N, N, N], w: f32[N]
        output Y: f32[E, N, N, N]
        Y[e, i, j, k] = U[e, i, j, k] * w[i] * w[j] * w[k]
    """
    (plan,) = plans(text)
    assert prod(a.tile for a in plan.axes) >= 1024


COLOURS = """
    dim H = {h}, W = {w}
    input X: u8[H, W]
    output Y: f32[H, W, 3]
    p[y, x] = {value}
    Y[y, x, c] = p[y, x] if c == 0 else (p[y, x] * 0.5 if c == 1 else p[y, x] + 1)
"""


@pytest.mark.parametrize(("value", "tile"), [("sin(X[y, x] / 255.0) * cos(X[y, x] / 3.0)", 3), ("X[y, x] * 2.0", 4)])
def test_a_thread_has_the_colours_of_a_pixel_where_they_share_much(value: str, tile: int) -> None:
    (plan,) = plans(COLOURS.format(h=3000, w=4000, value=value))
    assert plan.axis("c").tile == tile


def test_colours_of_8_bits_are_those_of_64_pixels_in_a_warp() -> None:
    text = COLOURS.replace("Y: f32", "Y: u8").replace("Y[y, x, c] = ", "Y[y, x, c] = u8(") + ")"
    (plan,) = plans(text.format(h=3000, w=4000, value="X[y, x] * 2.0"))
    assert (plan.axis("x").tile, plan.axis("c").tile) == (256, 3)


def test_results_of_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nautilus.planner.rowwise.shared_operands.LARGE", 0)
    monkeypatch.setattr("nautilus.planner.kernel.FULL", 1)
    made = travel(COLOURS.format(h=5, w=67, value="sin(X[y, x] / 255.0) * cos(X[y, x] / 3.0)"), "sm_90a")
    assert made.result.context.schedule is not None
    assert made.result.context.schedule.kernels[0].axis("c").tile == 3
    assert complaints(made) == []


def test_tiles_along_a_short_axis_of_an_operand_have_longer_lines() -> None:
    text = "dim H = 12, M = {0}, B = 32\ninput T: f32[B, H]\noutput Y: f32[H, M, M]\n"
    text += "Y[h: H, i: M, j: M] = T[min(abs(j - i), B - 1), h]\n"
    large, small = (schedule_of(text.format(m)).kernels[0] for m in (1024, 128))
    assert (large.axis("h").tile, large.axis("j").tile) == (16, 64)  # few blocks, whose starts take time
    assert (small.axis("h").tile, small.axis("j").tile) == (16, 16)


def test_an_output_far_larger_than_the_inputs_decides_which_axis_is_contiguous() -> None:
    text = """
        dim C = 10000, M = 360
        input b: f32[C], w: f32[M]
        output y: f32[C, M], s: f32[C]
        y[c, m] = exp(-b[c] * w[m])
        s[c] = sum[m](y[c, m])
    """
    (plan,) = plans(text)
    assert {a.name: (a.role, a.tile) for a in plan.axes} == {"c": ("grid", 8), "m": ("tile", 512)}


@pytest.mark.parametrize(("value", "tile"), [("a[n] + b[n]", 512), ("(a[n] // b[n]) % 1000 + a[n] % b[n] // 3", 128)])
def test_few_elements_of_many_operations_have_more_blocks(value: str, tile: int) -> None:
    (plan,) = plans(f"""
        dim N = 65536
        input a: i32[N], b: i32[N]
        output q: i32[N]
        q[n] = {value}
    """)
    assert [a.tile for a in plan.axes] == [tile]


def test_a_thread_has_all_elements_of_a_factor_of_a_small_matrix() -> None:
    text = """
        dim B = 100000
        input A: f32[B, 2, 2]
        output L: f32[B, 3, 3]
        p[b] = sqrt(A[b, 0, 0])
        q[b] = A[b, 1, 0] / p[b]
        r[b] = sqrt(A[b, 1, 1] - q[b] ** 2) / (A[b, 0, 1] / p[b])
        L[b, i, j] = 0 if j > i else p[b] if j == 0 else (q[b] if i == 1 else r[b] / (q[b] + p[b]))
    """
    (plan,) = plans(text)
    assert {a.name: a.tile for a in plan.axes} == {"b": 128, "i": 3, "j": 3}
    assert complaints(travel(text.replace("100000", "70"), "sm_90a")) == []
