"""When shared buffers are live, and the offsets that follow. Whole programs: ``allocate_shared.ma``."""

from __future__ import annotations

import pytest

from nautilus.core.errors import ScheduleError
from nautilus.ma_tile.ir.ops import MemKernel
from nautilus.ma_tile.passes.finalise.allocate_shared import allocate, checked, live_ranges
from nautilus.ma_tile.text import parse

HEAD = """
module m target sm_80 {{
  input X: f32[32, 32]
  output Y: f32[32, 32]
  kernel m grid 1 warps 1 min_blocks 1 {{
    layout #t = reg(j:32x1) lane(i:32x1) warp(*:1)
{buffers}
{body}
  }}
}}
"""
BUFFER = "    smem {name} : f32[i: 32, j: 32] stages {stages} swizzle 0 pad 0{over} @ 0"
LOAD = "    %x = ld.global X[i, j] vec 1 : f32[i: 32, j: 32] #t"
BYTES = 32 * 32 * 4


def kernel(body: str, names: str = "a b", *, two_stages: str = "", over: str = "") -> MemKernel:
    """A kernel with buffers of 4096 bytes; ``w a`` in ``body`` writes buffer a, ``r a`` reads it."""
    buffers = "\n".join(
        BUFFER.format(name=n, stages=1 + (n in two_stages), over=f" over {over}" if over and n == "b" else "")
        for n in names.split()
    )
    lines, count = [LOAD], 0
    for line in body.strip().splitlines():
        word, _, name = line.strip().partition(" ")
        if word == "w":
            line = f"st.shared {name}[0], %x vec 1"
        elif word == "r":
            count += 1
            line = f"%y{count} = ld.shared {name}[0] vec 1 : f32[i: 32, j: 32] #t"
        lines.append(line)
    return parse(HEAD.format(buffers=buffers, body="\n".join(lines)), "<test>").kernels[0]


def offsets(k: MemKernel) -> dict[str, int]:
    return {s.name: s.offset for s in allocate(k).smem}


def test_a_buffer_takes_the_bytes_of_one_that_is_read_no_more() -> None:
    assert offsets(kernel("w a\nr a\nw b\nr b")) == {"a": 0, "b": 0}
    assert offsets(kernel("w a\nw b\nr a\nr b")) == {"a": 0, "b": BYTES}
    assert offsets(kernel("w a\nr a")) == {"a": 0}, "no op uses b"


def test_a_gap_between_two_buffers_is_used_where_it_is_wide_enough() -> None:
    body = "w a\nw b\nw c\nr a\nr c\nr b\nw d\nr d\nr c"
    assert offsets(kernel(body, "a b c d")) == {"a": 0, "b": BYTES, "c": 2 * BYTES, "d": 0}


LOOP = "for k in 0..4 carry() {{\n{}\nyield\n}}\n"


def test_what_a_loop_writes_first_is_live_in_its_iteration_alone() -> None:
    written = LOOP.format("w a\nr a\nw b\nr b")
    assert offsets(kernel(written)) == {"a": 0, "b": 0}


def test_what_a_loop_reads_first_is_live_from_one_iteration_to_the_next() -> None:
    assert offsets(kernel("w a\n" + LOOP.format("r a\nw b\nr b\nw a"))) == {"a": 0, "b": BYTES}


def test_what_stands_before_the_loop_is_live_in_all_of_it() -> None:
    assert offsets(kernel("w a\n" + LOOP.format("r a\nw b\nr b"))) == {"a": 0, "b": BYTES}


def test_a_buffer_after_a_loop_may_take_the_bytes_of_the_loop() -> None:
    assert offsets(kernel(LOOP.format("w a\nr a") + "w b\nr b")) == {"a": 0, "b": 0}


def test_several_stages_and_a_first_write_under_a_condition_are_live_from_the_start() -> None:
    under = "w a\nr a\nif warp < 1 {\nw b\n}\nr b"
    ranges = live_ranges(kernel(under))
    assert ranges["b"][0] == 0 and ranges["a"][0] > 0
    staged = live_ranges(kernel("w a\nr a\nw b\nr b", two_stages="b"))
    assert staged["b"][0] == 0 and staged["a"][1] < staged["b"][1]


def test_a_buffer_over_another_one_is_live_with_it() -> None:
    k = kernel("w a\nr a\nw b\nr b\nw c\nr c", "a b c", over="a")
    assert offsets(k) == {"a": 0, "b": 0, "c": 0}
    k = kernel("w a\nr a\nw c\nw b\nr b\nr c", "a b c", over="a")
    assert offsets(k) == {"a": 0, "b": 0, "c": BYTES}


def test_a_limit_that_is_reached_is_kept() -> None:
    k = allocate(kernel("w a\nw b\nr a\nr b"))
    assert checked(k, 2 * BYTES) is k
    needed = "8192 bytes of shared memory are needed, but a block may have 8191"
    with pytest.raises(ScheduleError, match=needed) as error:
        checked(k, 2 * BYTES - 1)
    assert error.value.excess == pytest.approx(8192 / 8191)
