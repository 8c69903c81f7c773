"""Tiles of elementwise kernels whose operand and result are contiguous along different axes."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.driver import Request, compile_file
from nautilus.ma_tile.ir.ops import GlobalLoad, GlobalStore, walk_ops
from tests.planner.plans import schedule_of


@pytest.mark.parametrize(
    ("result", "tiles"),
    [
        ("Y: f32[N, M]\nY[j, i] = X[i, j]", {"j": 64, "i": 16}),
        ("Y: f16[N, M]\nY[j, i] = f16(X[i, j])", {"j": 64, "i": 64}),
        ("Y: i8[N, M]\nY[j, i] = i8(X[i, j])", {"j": 64, "i": 64}),
        ("Y: f32[M, N]\nY[i, j] = X[i, j] + Z[j, i]", {"i": 64, "j": 16}),  # one of two operands is turned
        ("Y: f32[N, M]\nY[j, i] = X[i, j] * s[j]", {"j": 64, "i": 16}),
        ("Y: f32[M, N]\nY[i, j] = X[i, j] * u[i]", {"j": 1024}),  # a small operand along another axis turns nothing
        ("Y: f32[M, N]\nY[i, j] = u[i] * s[j]", {"j": 2048}),
        ("Y: f32[M, N]\nY[i, j] = u[i] + 1.0 * j", {"j": 2048}),
        ("Y: f32[N // 2, M]\nY[j, i] = X[i, 2 * j]", {"j": 64, "i": 16}),
        ("Y: f16[N, M]\nY[j, i] = P[i, j] * s[j]", {"j": 128, "i": 64}),  # two elements share a byte
        ("Y: f16[N, M]\nY[j, i] = X[i, j // 64 * 64]", {"j": 8, "i": 1024}),  # results that share an element
    ],
)
def test_reads_and_writes_are_whole_sectors(result: str, tiles: dict[str, int]) -> None:
    inputs = "X: f32[M, N]", "Z: f32[N, M]", "s: f32[N]", "u: f32[M]", "P: i4[M, N]"
    text = "dim M = 4096, N = 4096\n" + "".join(f"input {x}\n" for x in inputs if f"{x[0]}[" in result)
    schedule = schedule_of(f"{text}output {result}\n")
    (plan,) = schedule.kernels
    assert {a.name: a.tile for a in plan.axes if a.tile > 1} == tiles


@pytest.mark.parametrize(
    ("shape", "dtype", "tiles"),
    [
        ("M = 4100, N = 4096", "f16", {"j": 32, "i": 256}),
        ("M = runtime, N = 4096", "f16", {"j": 32, "i": 256}),
        ("M = 4099, N = 4096", "f32", {"j": 16, "i": 64}),
        ("M = 8190, N = 4096", "i8", {"j": 32, "i": 256}),  # no more elements than a block has registers for
        ("M = 100, N = 65536", "f16", {"j": 64, "i": 64}),
    ],
)
def test_lines_of_rows_that_begin_within_sectors_are_longer(shape: str, dtype: str, tiles: dict[str, int]) -> None:
    text = f"dim {shape}\ninput X: {dtype}[M, N]\noutput Y: {dtype}[N, M]\nY[j, i] = X[i, j]\n"
    made = compile_file(Request(Path("turned.naut"), "sm_90a", text=text, until="scalar"))
    assert made.context.schedule is not None
    (plan,) = made.context.schedule.kernels
    assert {a.name: a.tile for a in plan.axes if a.tile > 1} == tiles


@pytest.mark.parametrize(
    ("text", "tiles"),
    [
        ("input A: f32[N, N]\ninput B: f32[N, N]\noutput t: f32\nt = sum[i, j](A[i, j] * B[j, i])", {16, 512}),
        ("input A: f16[N, N]\ninput B: f16[N, N]\noutput t: f32\nt = max[i, j](A[i, j] + B[j, i])", {16, 256}),
        ("input A: f32[N, N]\ninput b: f32[N]\noutput t: f32\nt = sum[i, j](A[i, j] * b[i])", {4096}),
    ],
)
def test_reductions_over_tensors_along_different_axes_read_whole_sectors(text: str, tiles: set[int]) -> None:
    schedule = schedule_of(f"dim N = 4096\n{text}\n")
    first = schedule.kernels[0]
    assert {a.tile for a in first.axes if a.tile > 1} >= tiles


def test_a_thread_has_the_elements_of_its_bytes() -> None:
    """It loads 16 bytes of packed numbers, and the results go through shared memory to rows along the other axis."""
    text = """
        dim M = 4096, N = 4096
        input P: i4[M, N]
        input s: f16[M, N // 8]
        output Y: f16[N, M]
        Y[j, i] = P[i, j] * s[i, j // 8]
    """
    made = compile_file(Request(Path("packed.naut"), "sm_90a", text=text, until="ma-tile"))
    (kernel,) = made.modules["ma-tile"].kernels
    loads = {op.buffer: (op.vec, op.repeat) for op in walk_ops(kernel.body) if isinstance(op, GlobalLoad)}
    stores = [op.vec for op in walk_ops(kernel.body) if isinstance(op, GlobalStore)]
    assert loads == {"P": (32, 2), "s": (32, 8)} and stores == [8]


@pytest.mark.parametrize(
    ("bias", "kernels"),
    [
        ("B[i, j, h]", ["S_table", "O"]),
        ("B[j, h, i]", ["S_table", "O"]),
        ("B[h, i, j]", ["O"]),
        ("sigmoid(B[h, i, j])", ["O"]),
        ("sigmoid(B[i, j, h])", ["S_table", "O"]),
        ("erf(B[h, i, j]) * erf(2 * B[h, i, j])", ["S_table", "O"]),
    ],
)
def test_what_rows_of_scores_have_in_common_is_computed_once(bias: str, kernels: list[str]) -> None:
    """Where it is costly, or along another axis in memory."""
    sizes = {"h": "4", "i": "N", "j": "N"}
    shape = ", ".join(sizes[x] for x in bias[bias.index("[") + 1 : bias.index("]")].split(", "))  # of its first load
    schedule = schedule_of(f"""
        dim R = 128, N = 256, D = 32
        input Q: f16[R, 4, N, D]
        input K: f16[R, 4, N, D]
        input B: f16[{shape}]
        output O: f16[R, 4, N, D]
        S[r, h, i, j] = sum[d](Q[r, h, i, d] * K[r, h, j, d]) + {bias}
        O[r, h, i, d] = sum[j](softmax[j](S[r, h, i, j]) * K[r, h, j, d])
    """)
    assert [k.name for k in schedule.kernels] == kernels
