"""The initialisation of mbarriers: what the verifier and the interpreter refuse, and how the emitter prints it."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.errors import UnsupportedError, VerifyError
from nautilus.cuda.emit import emit_module
from nautilus.ma_tile.interp.module import InterpError, run_module
from nautilus.ma_tile.passes.finalise.initialise_mbarriers import InitialiseMbarriers
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from tests.ma_tile.programs.warpgroup import cluster, module

COPY = """
module t target sm_90a {
  input A: f32[8, 32]
  output Y: f32[8, 32]
  kernel k grid 1 warps 4 min_blocks 1 {
    layout #l = reg(i:2x4) lane(j:32x1) warp(i:4x1)
    smem s : f32[i: 8, j: 32] stages 1 swizzle 0 pad 0 @ 0
    mbar full stages 1 arrivals 1 @ 1024
    mbar.init
    barrier
    mbar.expect full[0] 1024
    tma.load s[0], A[i, j] mbar full[0]
    mbar.wait full[0] parity 0
    %x = ld.shared s[0] vec 1 : f32[i: 8, j: 32] #l
    st.global Y[i, j], %x vec 1
  }
}
"""
EXPECT = "    mbar.expect full[0] 1024\n"
INPUTS = {"A": np.arange(256.0).reshape(8, 32)}


def edited(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


def test_an_initialised_kernel_runs() -> None:
    verify(parse(COPY))
    np.testing.assert_array_equal(run_module(parse(COPY), INPUTS)["Y"], INPUTS["A"])


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("    barrier\n", "", "mbarriers are used after mbar.init and a barrier"),
        ("    barrier\n", "    barrier 1, 128\n", "mbarriers are used after mbar.init and a barrier"),
        ("    mbar.init\n    barrier\n" + EXPECT, EXPECT + "    mbar.init\n    barrier\n", "mbarriers are used after"),
        ("    mbar.init\n", "    mbar.init\n    mbar.init\n", "mbar.init stands once"),
        ("    mbar.init\n", "    if block == 0 {\n      mbar.init\n    }\n", "mbar.init stands once at the top level"),
    ],
)
def test_the_verifier_refuses(old: str, new: str, rule: str) -> None:
    with pytest.raises(VerifyError, match=rule):
        verify(parse(edited(COPY, old, new)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    barrier\n", "", "no barrier stands between"),
        ("    mbar.init\n    barrier\n" + EXPECT, EXPECT + "    mbar.init\n    barrier\n", "no thread has initialised"),
    ],
)
def test_the_interpreter_refuses(old: str, new: str, message: str) -> None:
    with pytest.raises(InterpError, match=message) as info:
        run_module(parse(edited(COPY, old, new)), INPUTS)
    assert info.value.kind == "uninitialised" and "mbar.expect" in str(info.value)


def test_blocks_of_a_cluster_wait_for_each_other() -> None:
    text = ma_format(InitialiseMbarriers().apply(parse(cluster())))
    verify(parse(text))
    assert text.count("cluster.arrive") == text.count("cluster.wait") == 2
    both = "    cluster.arrive\n    cluster.wait\n"
    before, _, after = text.partition(both)
    with pytest.raises(VerifyError, match=r"used after mbar\.init and a barrier"):
        verify(parse(f"{before}    barrier\n{after}"))
    with pytest.raises(VerifyError, match="a block does not end while other blocks use its mbarriers"):
        verify(parse(text[: text.rindex(both)] + text[text.rindex(both) + len(both) :]))


def test_the_emitter_prints_what_stands_there() -> None:
    text = emit_module(parse(COPY))
    assert text.count("mbarrier_init(shared + full_at, 1);") == 1
    with pytest.raises(UnsupportedError, match=r"mbarriers without mbar\.init"):
        emit_module(parse(edited(COPY, "    mbar.init\n    barrier\n", "")))


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("mbar.wait full[r_stage]", "mbar.wait full[(r_stage + 1) % 3]", "have the stage of a pipeline state"),
        ("full[r_stage] parity r_phase", "full[r_stage] parity 0", "a wait has stage and phase of one pipeline state"),
        ("mbar.expect full[r_stage]", "mbar.expect full[(r_stage + 1) % 3]", "have the stage of a pipeline state"),
        ("mbar.expect full[r_stage]", "mbar.expect empty[r_stage]", "a TMA load arrives where the mbar.expect"),
        ("] mbar full[r_stage]", "] mbar full[(r_stage + 1) % 3]", "a TMA load arrives where the mbar.expect"),
        ("          if t >= 1 {\n  ", "", "have the stage of a pipeline state"),
    ],
)
def test_the_stages_of_a_pipeline(old: str, new: str, rule: str) -> None:
    text = ma_format(module("after"))
    verify(parse(text))
    changed = text.replace(old, new, -1 if old.startswith("]") else 1)  # all loads together expect their bytes
    if not new:  # the release of an earlier stage without its condition
        changed = changed.replace("each warp\n          }\n", "each warp\n", 1)
    with pytest.raises(VerifyError, match=rule):
        verify(parse(changed))


def test_a_named_barrier_of_some_threads_is_not_that_of_the_block() -> None:
    text = ma_format(module("after"))
    assert text.count("barrier (consumer + 1), 128") == 1
    with pytest.raises(VerifyError, match="barrier 0 is the barrier of the whole block"):
        verify(parse(text.replace("barrier (consumer + 1), 128", "barrier 0, 128")))
