"""Planted faults of blocks that combine in a cluster: each must be caught, and the error must name the operation."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from nautilus.ma_tile.interp.module import InterpError, run_module
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from tests.ma_tile.faults import assert_found
from tests.ma_tile.programs.combined import (
    ALIKE,
    GIVEN,
    INPUTS,
    ROWS,
    apart,
    attended,
    changed,
    clustered,
    inputs_of,
    joined,
    sums,
)

SEEDS = range(3)


@lru_cache
def right(name: str) -> str:
    """Clusters without faults: of four small blocks, or of two blocks of consumers."""
    if name == "pair":
        return ma_format(clustered(parse(ALIKE)))
    return ma_format(clustered(joined(apart(GIVEN, 2, 2, 16), "O_acc_part"), "O_acc_part_2", 2))


def failure(m: MemModule, seed: int) -> InterpError:
    with pytest.raises(InterpError) as info:
        run_module(m, inputs_of(m), seed=seed)
    return info.value


def test_without_faults_there_is_no_error() -> None:
    want = attended()
    for seed in SEEDS:
        np.testing.assert_allclose(run_module(parse(right("consumers")), INPUTS, seed=seed)["O"], want, atol=4e-3)
        np.testing.assert_allclose(run_module(parse(right("pair")), ROWS, seed=seed)["Y"], sums(), rtol=1e-5)


READ = ("uninitialised", "unsynchronised-read")
WRITE = ("overwrite-in-use", "unordered-writes")
PUSH_T, PUSH_M = (
    "    st.shared part_T[rank] block 0, %sum2 vec 1\n",
    "    st.shared part_M[rank] block 0, %most2 vec 1\n",
)
SUM, ROWSTORE = "part_P_sum_part_2[rank] block 0", "part_O_acc_part_2[rank] block 0"
LAST = "    if rank == 0 {\n      cluster.wait\n"
#: what: (program, text, its fault, kinds, part of the operation's text)
FAULTS: dict[str, tuple[str, str, str, tuple[str, ...], tuple[str, ...]]] = {
    "no wait before the stores": (
        "pair", f"    cluster.wait\n{PUSH_T}", PUSH_T, ("cluster", "barrier"),
        ("st.shared part_T[rank] block 0", "cluster.arrive"),
    ),
    "a wait after a store": (
        "pair", f"    cluster.wait\n{PUSH_T}", f"{PUSH_T}    cluster.wait\n", ("cluster",),
        ("st.shared part_T[rank] block 0",),
    ),
    "no wait before the stores of consumers": (
        "consumers", "    cluster.wait\n    st.shared", "    st.shared", ("cluster", "barrier"),
        ("st.shared part_P_max_part_2", "cluster.arrive"),
    ),
    "no first arrival": ("pair", "    cluster.arrive relaxed\n", "", ("barrier",), ("cluster.wait",)),
    "a first arrival of some": (
        "pair", "    cluster.arrive relaxed\n", "    if rank < 2 {\n      cluster.arrive relaxed\n    }\n",
        ("barrier", "deadlock"), ("cluster.wait",),
    ),
    "no last arrival": ("pair", f"    cluster.arrive\n{LAST}", LAST, ("barrier",), ("cluster.wait",)),
    "a last arrival of some": (
        "consumers", f"    cluster.arrive\n{LAST}", f"    if rank == 0 {{\n      cluster.arrive\n    }}\n{LAST}",
        ("deadlock",), ("block at `cluster.wait`",),
    ),
    "the last arrival orders nothing": (
        "pair", "    cluster.arrive\n", "    cluster.arrive relaxed\n", ("unsynchronised-read",),
        ("ld.shared parts_T[0]",),
    ),
    "the last arrival of consumers orders nothing": (
        "consumers", "    cluster.arrive\n", "    cluster.arrive relaxed\n", ("unsynchronised-read",),
        ("ld.shared parts_P_max_part_2[0]",),
    ),
    "an arrival before the stores": (
        "pair", f"{PUSH_M}    cluster.arrive\n", f"    cluster.arrive\n{PUSH_M}", ("unsynchronised-read", "cluster"),
        ("ld.shared parts_M[0]", "st.shared part_M[rank] block 0"),
    ),
    "no wait at the end": (
        "pair", LAST, "    if rank == 0 {\n", (*READ, "cluster"), ("ld.shared parts_T[0]", "st.shared part_"),
    ),
    "the first block ends early": (
        "consumers", LAST, "    if rank == 1 {\n      cluster.wait\n", (*READ, "cluster"),
        ("ld.shared parts_", "st.shared part_"),
    ),
    "two parts in one place": (
        "pair", "part_T[rank]", "part_T[rank // 2]", WRITE, ("st.shared part_T[rank // 2] block 0",),
    ),
    "parts of consumers in one place": ("consumers", ROWSTORE, ROWSTORE.replace("rank", "0"), WRITE, ("st.shared",)),
    "into the wrong block": (
        "pair", "part_M[rank] block 0", "part_M[rank] block 1", ("uninitialised", "cluster"),
        ("ld.shared parts_M[0]", "st.shared part_M[rank] block 1"),
    ),
    "into one's own memory": (
        "pair", "part_T[rank] block 0", "part_T[rank]", ("uninitialised",), ("ld.shared parts_T",),
    ),
    "a partial result without a writer": (
        "consumers", f"    st.shared {SUM}, ", "    st.shared part_P_max_part_2[rank] block 0, ", (*READ, *WRITE),
        ("ld.shared parts_P_sum_part_2[0]", "st.shared part_P_max_part_2"),
    ),
    "over bytes in use": (
        "pair", "stages 4 swizzle 0 pad 0 @ 2048", "stages 4 swizzle 0 pad 0 @ 0", (*READ, *WRITE),
        ("st.shared part_T", "ld.shared s[0]", "ld.shared parts_T[0]", "st.shared s[0]"),
    ),
    "a block that is not there": (
        "pair", "part_T[rank] block 0", "part_T[rank] block 4", ("out-of-bounds",), ("st.shared part_T[rank] block 4",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("what", FAULTS)
def test_faults(what: str, seed: int) -> None:
    name, old, new, kinds, ops = FAULTS[what]
    error = failure(changed(right(name), old, new), seed)
    assert_found(error, kinds, ops)
