"""Planted faults of consumers joined into a block: each must be caught, and the error must name the operation."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from nautilus.ma_tile.interp.module import InterpError, run_block, run_module
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from tests.ma_tile.faults import assert_found
from tests.ma_tile.programs.combined import GIVEN, INPUTS, PAIR, apart, attended, changed, inputs_of, joined

SEEDS = range(3)


@lru_cache
def right(name: str) -> str:
    """A kernel of two consumers without faults: with cp.async, with TMA, or with the staging of the small pair."""
    if name == "pair":
        return ma_format(joined(parse(PAIR)))
    return ma_format(joined(apart(GIVEN, 1, 2, 16, tma_loads=name == "tma"), "O_acc_part"))


def failure(m: MemModule, seed: int = 0) -> InterpError:
    with pytest.raises(InterpError) as info:
        run_block(m, m.kernels[0].name, 0, inputs_of(m), seed=seed)
    return info.value


def test_without_faults_there_is_no_error() -> None:
    want = attended()
    for name in ("copies", "tma"):
        for seed in SEEDS:
            np.testing.assert_allclose(run_module(parse(right(name)), INPUTS, seed=seed)["O"], want, atol=4e-3)


READ = ("uninitialised", "unsynchronised-read")
WRITE = ("overwrite-in-use", "unordered-writes")
SYNC = "          barrier (1 + consumer), 32\n"
SCORES, RESULT = "mma m16n8k16.f16 smem s_q_tile", "%O_acc_part__tile_2 = mma"
EXPECT, WAIT = "mbar.expect full[consumer * 3]", "mbar.wait full[consumer * 3 + j0 % 3]"
#: what: (program, text, its fault, kinds, part of the operation's text)
FAULTS: dict[str, tuple[str, str, str, tuple[str, ...], tuple[str, ...]]] = {
    "another consumer's slice is read": (
        "pair", "ld.shared s[consumer]", "ld.shared s[(consumer + 1) % 4]", READ, ("ld.shared s",),
    ),
    "all write one slice": (
        "pair", "st.shared s[consumer]", "st.shared s[0]", (*READ, *WRITE), ("st.shared s", "ld.shared s"),
    ),
    "two parts in one place": (
        "pair", "part_T[consumer]", "part_T[consumer // 2]", WRITE, ("st.shared part_T[consumer // 2]",),
    ),
    "a partial result without a writer": (
        "pair", "        st.shared part_M[consumer], %most2 vec 1\n", "", ("uninitialised",), ("ld.shared parts_M[0]",),
    ),
    "no barrier after the consumers": (
        "pair", "    }\n    barrier\n", "    }\n", ("unsynchronised-read",), ("ld.shared parts_T[0]",),
    ),
    "consumers at one barrier": (
        "pair", "barrier (1 + consumer), 32", "barrier 1, 32", ("barrier",), ("barrier 1, 32",),
    ),
    "a barrier for two consumers": (
        "pair", "barrier (1 + consumer), 32", "barrier (1 + consumer), 64", ("deadlock",),
        ("at `barrier (1 + consumer), 64",),
    ),
    "no barrier of the consumer, copies": ("copies", SYNC, "", ("unsynchronised-read",), (SCORES,)),
    "no barrier of the consumer, TMA copies": ("tma", SYNC, "", ("unsynchronised-read",), (SCORES,)),
    "no barrier before a refill": (
        "copies", f"          cp.wait 1\n{SYNC}", "          cp.wait 0\n", (*READ, *WRITE), (SCORES, "cp.async s_"),
    ),
    "no wait": ("copies", "          cp.wait 1\n", "", ("pending-copy",), (SCORES,)),
    "a wait that leaves too much": ("copies", "cp.wait 1", "cp.wait 2", ("pending-copy",), (SCORES,)),
    "another consumer's stages are read": (
        "copies", "smem s_k_tile[consumer * 3 +", "smem s_k_tile[(1 - consumer) * 3 +",
        (*READ, "pending-copy"), (SCORES,),
    ),
    "another consumer's rows": (
        "copies", "smem s_q_tile[consumer]", "smem s_q_tile[0]", (*READ, "pending-copy"), (SCORES,),
    ),
    "another consumer's stages are filled": (
        "copies", "s_v_tile[consumer * 3 + (j0 + 2)", "s_v_tile[(j0 + 2)", (*READ, *WRITE),
        ("cp.async s_v_tile", RESULT),
    ),
    "the stage that is read is filled": (
        "copies", "s_v_tile[consumer * 3 + (j0 + 2) % 3]", "s_v_tile[consumer * 3 + j0 % 3]",
        ("pending-copy",), (RESULT,),
    ),
    "no barrier before the parts": (
        "copies", "        barrier\n", "", WRITE, ("st.shared part_O_acc_part[consumer]", "cp.async s_k_tile"),
    ),
    "no barrier before the parts, TMA copies": (
        "tma", "        barrier\n", "", WRITE, ("st.shared part_O_acc_part[consumer]", "tma.load s_k_tile"),
    ),
    "no barrier after the consumers, copies": (
        "copies", "    }\n    barrier\n", "    }\n", ("unsynchronised-read",), ("ld.shared parts_P_max_part[0]",),
    ),
    "parity": (
        "tma", "parity j0 // 3 % 2", "parity 1 - j0 // 3 % 2", (*READ, "pending-copy", "deadlock"),
        (SCORES, "mbar.wait"),
    ),
    "no wait for the bytes": (
        "tma", f"          {WAIT} parity j0 // 3 % 2\n", "", (*READ, "pending-copy"), (SCORES,),
    ),
    "another consumer's bytes awaited": (
        "tma", WAIT, "mbar.wait full[j0 % 3]", (*READ, "pending-copy", "deadlock"), (SCORES, "mbar.wait"),
    ),
    "no bytes announced": ("tma", f"        {EXPECT} 4096\n", "", ("deadlock",), (WAIT,)),
    "no bytes announced in the loop": (
        "tma", "            mbar.expect full[consumer * 3 + (j0 + 2) % 3] 4096\n", "", ("deadlock",), (WAIT,),
    ),
    "too few bytes announced": ("tma", f"{EXPECT} 4096", f"{EXPECT} 2048", ("pending-copy",), (SCORES, RESULT)),
    "too many bytes announced": ("tma", f"{EXPECT} 4096", f"{EXPECT} 4112", ("deadlock",), (WAIT,)),
    "bytes for another consumer": (
        "tma", "mbar full[consumer * 3] stream", "mbar full[0] stream", (*READ, "pending-copy"), (SCORES, RESULT),
    ),
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("what", FAULTS)
def test_faults(what: str, seed: int) -> None:
    name, old, new, kinds, ops = FAULTS[what]
    error = failure(changed(right(name), old, new), seed)
    assert_found(error, kinds, ops)
