"""What loads cost beside their bytes: lines of L1, sectors from L2, and what neighbouring tiles have read as well."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Var
from nautilus.core.tiles import TileAxis
from nautilus.core.types import DType
from nautilus.cost.accesses import box_rows
from nautilus.cost.estimates import segment_end
from nautilus.cost.model import estimate
from nautilus.cost.work import count
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.ir.async_ops import TmaLoad
from nautilus.ma_tile.ir.values import Slot
from nautilus.ma_tile.rewriting.at_sizes import at_sizes
from nautilus.ma_tile.text import parse
from nautilus.targets.memory_rates import OUTSIDE

ARCH = "sm_90a"


def microseconds(text: str) -> float:
    return estimate(parse(text), ARCH).seconds * 1e6


def of_spec(text: str) -> float:
    module = compile_file(Request(Path("given.naut"), ARCH, text=text, until="ma-tile")).modules["ma-tile"]
    return estimate(module, ARCH).seconds * 1e6


#: 2048 blocks read 131072 elements from rows of 16 elements, of which they need one each
FILTER = """module filters target sm_90a {
  input W: f16[%s]
  output Y: f32[2048]
  kernel Y grid 2048 warps 4 min_blocks 1 {
    let b = block
    layout #k_c = reg(c:2x32, k:16x1) lane(c:32x1) warp(k:4x16)
    layout #one = reg() lane(*:32) warp(*:4)
    for c0 in 0..8 carry() {
      %%w = ld.global W[%s] vec 1 : f16[k: 64, c: 64] #k_c
      yield
    }
  }
}"""


def test_sectors_that_do_not_stay_in_l1_are_loaded_again_for_each_element() -> None:
    """A transposed convolution reads each element of its filter in a sector of its own: 364 us on an H200."""
    apart = microseconds(FILTER % ("512, 64, 16", "c0 * 64 + c, k, b % 16"))
    near = microseconds(FILTER % ("64, 512", "k, c0 * 64 + c"))  # 64 kB, which stay in L1
    assert 300 < apart < 450 and near < 0.3 * apart


def test_a_small_table_stays_in_l1() -> None:
    """Rows of 12 bytes that each block reads: 25 us on an H200, of which the loads of X take most."""
    text = (
        "dim A = 17, B = 1023, C = 3, D = 257\ninput X: f16[A, B, C, D]\ninput p: f32[A, C]\ninput q: f32[B]\n"
        "input r: f32[D, C]\noutput Y: f32[A, B, C, D]\nY[a, b, c, d] = X[a, b, c, d] * p[a, c] + q[b] * r[d, c]\n"
    )
    assert 20 < of_spec(text) < 40


def test_tiles_read_the_borders_of_their_neighbours_from_the_cache() -> None:
    """A stencil over 134 MB takes 43 us on an H200, although the boxes of all tiles have 4.5 times as many bytes."""
    text = (
        "dim N = 256\ninput U: f32[N, N, N]\noutput L: f32[N, N, N]\n"
        "def at(x, y, z) = U[x, y, z] if 0 <= x and x < N and 0 <= y and y < N and 0 <= z and z < N else 0\n"
        "L[x: N, y: N, z: N] = at(x - 1, y, z) + at(x + 1, y, z) + at(x, y - 1, z) + at(x, y + 1, z) - 6 * U[x, y, z]\n"
    )
    assert 35 < of_spec(text) < 60


def test_strides_that_are_known_at_launch_leave_small_gaps() -> None:
    text = "dim B = 32, M = 1024, N = 1024\ninput X: f16[B, M, N] strided(all)\noutput Y: f16[B, N, M]\n"
    assert 30 < of_spec(text + "Y[b, j, i] = X[b, i, j]\n") < 70  # 57 us on an H200


def test_places_that_are_computed_are_near_each_other() -> None:
    """Indices that a kernel computes of positions are no gathers: 158 us on an H200 for a bilinear resize."""
    text = (
        "dim B = 16, C = 64, H = 128\nconst H2 = 2 * H\ninput X: f16[B, C, H, H]\noutput Y: f16[B, C, H2, H2]\n"
        "x0[x: H2] = i32(floor(clamp((x + 0.5) / 2 - 0.5, 0, H - 1)))\n"
        "Y[b, c, y: H2, x] = X[b, c, x0[y], x0[x]] + X[b, c, x0[y], min(x0[x] + 1, H - 1)]\n"
    )
    assert of_spec(text) < 150


def test_gathers_from_everywhere_move_sectors_at_the_rate_of_the_l2_cache() -> None:
    """33 million elements of a vector that stays in L2 take 241 us on an H200."""
    text = (
        "dim N = 1048576, W = 32\ninput val: f32[N, W]\ninput col: i32[N, W]\ninput x: f32[N]\n"
        "assume 0 <= col[i, w] < N\noutput y: f32[N]\ny[i] = sum[w](val[i, w] * x[col[i, w]])\n"
    )
    assert 180 < of_spec(text) < 300


def test_other_blocks_work_while_one_starts() -> None:
    """The start of a block, and its barriers, cost little where others of its multiprocessor have work."""
    names = ["%x", *(f"%y{n}" for n in range(40))]
    body = "\n".join(f"{y} = exp {x} : f32[j: 512] #j" for x, y in pairwise(names))
    text = f"""module tables target sm_90a {{
      input X: f32[16384, 512]
      output Y: f32[16384, 512]
      kernel Y grid 16384 warps 4 min_blocks 1 {{
        let b = block
        layout #j = reg(j:4x1) lane(j:32x4) warp(j:4x128)
        layout #one = reg() lane(*:32) warp(*:4)
        %x = ld.global X[b, j] vec 4 : f32[j: 512] #j
        {body}
        st.global Y[b, j], {names[-1]} vec 4
      }}
    }}"""
    special = 16384 * 512 * 40 / (132 * 16 * 1.98e9) * 1e6
    assert special < microseconds(text) < 1.5 * special


def test_steps_of_a_recurrence_wait_for_each_other() -> None:
    """One warp a block takes as long as its dependent instructions: 52 us on an H200 for a filter of scalar states."""
    text = """module steps target sm_90a {
      input X: f32[8192]
      output Y: f32[8192]
      kernel Y grid 256 warps 1 min_blocks 1 {
        let b = block
        layout #s = reg(s:1x1) lane(s:32x1) warp(s:1x32)
        layout #one = reg() lane(*:32) warp(*:1)
        %x = ld.global X[b * 32 + s] vec 1 : f32[s: 32] #s
        %y = for t in 0..1000 carry(%a = %x) {
          %b = fma %a, %a, %x : f32[s: 32] #s
          %c = rcp %b : f32[s: 32] #s
          yield %c
        }
        st.global Y[b * 32 + s], %y vec 1
      }
    }"""
    assert 15 < microseconds(text) < 40


#: 2048 blocks read eight rows of 4 kB each, which a table chooses; the table of a block is chosen by one more element
PAGES = """module pages target sm_90a {
  input seq: i32[2048]
  input page: i32[64, 8]
  input K: f16[65536, 2048]
  kernel Y grid 2048 warps 4 min_blocks 1 {
    let b = block
    layout #c = reg(c:8x1, c:2x1024) lane(c:32x8) warp(c:4x256)
    layout #one = reg() lane(*:32) warp(*:4)
    %s = ld.global seq[b] vec 1 : i32 #one
    %first = ld.global page[%s, 0] where %s >= 0 and %s < 64 vec 1 : i32 #one
    %last = for c0 in 0..8 carry(%p = %first) {
      %k = ld.global K[%p, c] where %p >= 0 and %p < 65536 vec 8 : f16[c: 2048] #c
      %next = ld.global page[%s, c0 + 1] where c0 + 1 < 8 and %s >= 0 and %s < 64 vec 1 : i32 #one
      yield %next
    }
  }
}"""


def test_rows_whose_places_are_loaded_ahead_through_two_tables_are_read_from_memory() -> None:
    """Each block has rows of its own, which are not those that the first iteration reads."""
    read = 2048 * 8 * 4096
    assert read <= estimate(parse(PAGES), ARCH).bytes <= 1.05 * read


def test_segments_are_those_between_ends_at_random_the_longest_first() -> None:
    ends = segment_end(np.arange(33), 3200, 32)
    lengths = np.diff(ends)
    assert ends[0] == 0 and ends[-1] == 3200 and 400 < lengths[0] < 500 and np.all(np.diff(lengths) <= 1)


def test_few_rows_meet_the_matrices_of_all_their_segments() -> None:
    """The bound of their number is far above it; segments that reached up to it would leave one for the only tile."""
    text = (
        "dim T = runtime <= 65536, E = 64, K = 1024, N = 1024\ninput X: bf16[T, K], W: bf16[E, N, K], off: i32[E + 1]\n"
        "output Y: bf16[T, N]\nassume 0 <= off[e] <= T\n"
        "Y[t, n] = sum[e: E, k | off[e] <= t and t < off[e + 1]](X[t, k] * W[e, n, k])\n"
    )
    module = compile_file(Request(Path("given.naut"), ARCH, text=text, until="ma-tile")).modules["ma-tile"]
    assert estimate(at_sizes(module, {"T": 128}), ARCH).seconds > 0.8 * 64 * 1024 * 1024 * 2 / 4.8e12


#: four blocks of rows, each with a window of keys at the end of a length of at most 1024
WINDOW = """module window target sm_90a {
  input len: i32[1]
  input K: f16[1024, 64]
  kernel Y grid 4 warps 4 min_blocks 1 {
    let b = block
    let first = max((min(max(len[0], -512), 1504) - b * 64) // 64 - 3, 0)
    let last = min((min(max(len[0], 0), 1024) + 63) // 64, (min(max(len[0], -512), 1536) - b * 64) // 64)
    layout #j_c = reg(c:8x1, c:2x32, j:4x16) lane(c:4x8, j:8x1) warp(j:2x8, *:2)
    for j0 in first..last carry() {
      %k = ld.global K[j0 * 64 + j, c] vec 8 : f16[j: 64, c: 64] #j_c
      yield
    }
  }
}"""


def test_a_window_ends_at_the_least_limit_of_its_length() -> None:
    """A position beside the length is clamped further away, where the axis of the keys has no elements."""
    module = parse(WINDOW)
    assert np.all(count(module, module.kernels[0]).consumer.read >= 3 * 64 * 64 * 2)


@pytest.mark.parametrize(("length", "swizzle", "share"), [(64, 128, 0.0), (48, 128, 1.0), (48, 64, 0.5), (32, 64, 0.5)])
def test_rows_of_a_box_that_the_tensor_has_in_part_take_longer(length: int, swizzle: int, share: float) -> None:
    """Convolutions of windows of 48 elements took 4848 us on an H200, where others predict 2930."""
    axes = (TileAxis("i", 128), TileAxis("k", 64))
    index = (Var("b"), calc("add", Var("z"), Var("i")), Var("k"))
    load = TmaLoad(Slot("s", integer(0), swizzle), "X", index)
    buffer = Buffer("X", DType.BF16, (4, 4096, length), Space.INPUT)
    assert box_rows(load, axes, buffer, {}) == 1.0 + (OUTSIDE - 1.0) * share


def test_blocks_read_the_matrices_that_a_table_chooses() -> None:
    """A product of blocks of rows with matrices by a table: 140 us on an H200, and 80 with one matrix for all."""
    text = (
        "dim B = 64, M = 64, N = 1024, K = 1024, E = 32\ninput x: bf16[B * M, K], w: bf16[E, K, N], at: i32[B]\n"
        "output y: bf16[B * M, N]\nassume 0 <= at[b] < E\ny[r, n] = sum[k](x[r, k] * w[at[r // M], k, n])\n"
    )
    module = compile_file(Request(Path("given.naut"), ARCH, text=text, until="ma-tile")).modules["ma-tile"]
    assert estimate(module, ARCH).bytes > 2 * (2 * 64 * 64 * 1024 + 32 * 1024 * 1024)


def test_tiles_read_the_matrices_of_the_segments_that_they_meet() -> None:
    """With the matrices of all segments in the box of a tile, every wave would read all of them."""
    text = (
        "dim T = 8192, E = 32, K = 1024, N = 2048\ninput X: bf16[T, K], W: bf16[E, N, K], off: i32[E + 1]\n"
        "output Y: bf16[T, N]\nassume 0 <= off[e] <= T\n"
        "Y[t, n] = sum[e: E, k | off[e] <= t and t < off[e + 1]](X[t, k] * W[e, n, k])\n"
    )
    module = compile_file(Request(Path("given.naut"), ARCH, text=text, until="ma-tile")).modules["ma-tile"]
    once = 2 * (8192 * 1024 + 32 * 2048 * 1024 + 8192 * 2048)
    assert once <= estimate(module, ARCH).bytes < 1.6 * once
