"""Few new queries against many keys on the GPU: default plans, groups of split-K warps, pipelines of TMA loads.

As in ``test_warpgroup``: the cubin of ``driver.build_cubin``, poisoned outputs, two launches with the same bits.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nautilus.check import device
from nautilus.check.inputs import generate
from nautilus.core.schedule import Schedule
from nautilus.driver import Request, build_cubin
from nautilus.ma_tile.ir.ops import RolesOp, walk_ops
from nautilus.runtime.device import default_arch
from tests.endtoend.collection.decode import CAUSAL, Decode, schedule
from tests.gpu.test_warpgroup import check

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(default_arch() != "sm_90a", reason="the GPU has no TMA copies"),
]

INPUTS = ("random", "large-logits", "one-hot", "masked")
SHAPES = (
    Decode(1024, 128, 2, 8, 4),
    Decode(4096, 128, 1, 4, 1),  # two levels
    Decode(1000, 64, 2, 8, 8, dtype="bf16"),
    Decode(1537, 96, 1, 6, 3),
    Decode(777, 256, 2, 4, 2, dtype="bf16"),
    Decode(2049, 128, 1, 5, 5, score="softcap"),
    Decode(1300, 64, 1, 4, 1, score="alibi"),
    Decode(1111, 128, 1, 2, 1, rows=7),
    Decode(900, 128, 1, 7, 7, mask=" | j < N - 333"),
    Decode(600, 64, 40, 8, 2),  # more blocks than multiprocessors: two split-K warps each
)


@pytest.mark.parametrize("given", SHAPES, ids=str)
def test_default_plans(given: Decode) -> None:
    result = check(given.text, INPUTS)
    kernels = result.modules["ma-tile"].kernels
    split = any(isinstance(op, RolesOp) for k in kernels for op in walk_ops(k.body))
    assert split or given.mask != CAUSAL, "no split-K warps"


FORCED = [
    (1024, 1, 4, 32, 3, False), (1000, 1, 8, 16, 2, False), (1024, 2, 4, 32, 2, False), (999, 3, 2, 32, 3, False),
    (1024, 1, 4, 32, 3, True), (1000, 1, 8, 16, 3, True), (1024, 2, 4, 32, 2, True), (999, 1, 2, 64, 3, True),
    (60, 2, 4, 16, 3, False),  # warps with nothing to do
]  # fmt: skip


@pytest.mark.parametrize(("n", "groups", "warps", "step", "stages", "bulk"), FORCED)
@pytest.mark.parametrize("group", [1, 4])
def test_groups_and_split_k_warps(
    group: int, n: int, groups: int, warps: int, step: int, stages: int, bulk: bool
) -> None:
    text = Decode(n, 128, 2, 4, group).text
    check(text, INPUTS, schedule(text, groups, warps, step, stages=stages, tma_loads=bulk))


#: grids for which the rules want two groups: whole, with short last tiles, other heads and types
CLUSTERS = (
    Decode(2048, 128, 1, 50, 1),
    Decode(4000, 64, 6, 32, 4, dtype="bf16"),
    Decode(3000, 128, 6, 32, 4, dtype="bf16"),
    Decode(2304, 96, 6, 24, 3),
    Decode(3000, 96, 5, 24, 3),
    Decode(4096, 128, 5, 64, 8, score="softcap"),
    Decode(2300, 128, 1, 48, 1, score="alibi", rows=5),
)


@pytest.mark.parametrize("given", CLUSTERS, ids=str)
def test_two_groups_are_a_cluster(given: Decode) -> None:
    result = check(given.text, INPUTS)
    assert [k.cluster for k in result.modules["ma-tile"].kernels] == [2]


FORCED_CLUSTERS = [(1024, 4, 32, 2, False), (1000, 2, 64, 3, False), (1024, 4, 32, 2, True), (60, 4, 16, 3, False)]


@pytest.mark.parametrize(("n", "warps", "step", "stages", "bulk"), FORCED_CLUSTERS)
@pytest.mark.parametrize("cluster", [1, 2])
def test_a_cluster_and_a_second_kernel(cluster: int, n: int, warps: int, step: int, stages: int, bulk: bool) -> None:
    text = Decode(n, 128, 2, 12, 3, dtype="bf16").text
    plan = schedule(text, 2, warps, step, stages=stages, tma_loads=bulk, cluster=cluster)
    result = check(text, INPUTS, plan)
    assert [k.cluster for k in result.modules["ma-tile"].kernels] == [2] * (cluster == 2) + [1, 1] * (cluster == 1)


EMPTY = (" | j < N - 600", " | -300 < j - i - N + M <= 0")  # the second group, and the first one, see nothing


@pytest.mark.parametrize("mask", EMPTY)
@pytest.mark.parametrize("group", [1, 7])
def test_groups_that_see_nothing(group: int, mask: str) -> None:
    text = Decode(1024, 64, 3, 14, group, mask=mask).text
    result = check(text, INPUTS, schedule(text, 2, 4, 16))
    assert [k.cluster for k in result.modules["ma-tile"].kernels] == [2]


@pytest.mark.parametrize("given", [Decode(2048, 128, 1, 50, 1), Decode(3000, 96, 5, 24, 3)], ids=str)
def test_many_launches_of_a_cluster_have_the_same_bits(given: Decode) -> None:
    result, cubin = build_cubin(Request(Path("given.naut"), "sm_90a", text=given.text))
    inputs = generate(result.modules["spec"], "random", 3)
    with device.opened(result, cubin) as runner:
        first, same = runner.run(inputs)
        assert same and np.abs(first["O"]).max() > 0
        for _ in range(30):
            again, same = runner.run(inputs)
            assert same
            np.testing.assert_array_equal(again["O"], first["O"])


def test_the_class_of_sm_80_on_the_same_card() -> None:
    assert "mbarrier" not in check(SHAPES[0].text, INPUTS, arch="sm_90").cuda


@pytest.mark.parametrize("given", [Decode(2300, 128, heads=8, group=4), Decode(700, 64, heads=2)], ids=str)
def test_equal_bits_for_every_batch_size(given: Decode) -> None:
    found, first = [], None
    for batch in (1, 2, 3, 16):
        text = replace(given, batch=batch).text
        plan = Schedule(batch_invariant=True)
        result, cubin = build_cubin(Request(Path("given.naut"), "sm_90a", text=text, schedule=plan))
        several = generate(result.modules["spec"], "random", batch)
        first = several if first is None else first
        for name, x in first.arrays.items():
            several.arrays[name][: len(x)] = x
        with device.opened(result, cubin) as runner:
            got, same = runner.run(several)
        assert same
        found.append(got["O"][0])
    assert np.abs(found[0]).max() > 0
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
