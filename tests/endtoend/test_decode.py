"""Few new queries against many keys: split-K warps of one block and of several, by default and on request."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.check.inputs import InputSet, generate
from nautilus.check.levels import Trace, run
from nautilus.core.errors import ScheduleError
from nautilus.core.schedule import Schedule
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.ir.async_ops import TmaLoad
from nautilus.ma_tile.ir.ops import RolesOp, walk_ops
from nautilus.planner import cuts as plan_cuts
from nautilus.planner import streaming
from tests.endtoend.collection.decode import Decode, compilation, drawn, schedule
from tests.endtoend.support import Compilation, complaints

SEEDS = range(int(os.environ.get("NAUTILUS_FUZZ", "6")))

#: default plans, with the features of each
DEFAULT = (
    Decode(531, heads=4, group=4),  # one block of split-K warps, a partial last tile of keys
    Decode(513, 96, 1, 2, 1, score="alibi"),  # a head size that is no power of two, short last chunks
    Decode(260, 128, 1, 6, 3, dtype="bf16"),
    Decode(270, 256, 1, 2, 2, score="softcap"),
    Decode(540, rows=5),  # several queries, which attend to different numbers of keys
    Decode(560, batch=2, heads=5, group=5, mask=" | j < N - 90"),  # no query attends to the last tiles of keys
)


def joint(made: Compilation) -> list[int]:
    """The number of split-K warps of each kernel with warp roles."""
    kernels = made.result.modules["ma-tile"].kernels
    return [r.consumers for k in kernels for op in walk_ops(k.body) if isinstance(op, RolesOp) for r in op.roles]


def clusters(made: Compilation) -> list[int]:
    """The blocks of a cluster for each kernel."""
    return [k.cluster for k in made.result.modules["ma-tile"].kernels]


@pytest.mark.parametrize("given", DEFAULT, ids=str)
def test_default_plans(given: Decode) -> None:
    made = compilation(given.text)
    assert joint(made) == [4]
    wrong = complaints(made) + complaints(made, kind="large-logits", stages=("ma-tile",))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90"])
def test_other_targets(arch: str) -> None:
    made = compilation(DEFAULT[0].text, arch=arch)
    assert joint(made) and "mbar" not in made.result.cuda_module.code
    wrong = complaints(made)
    assert not wrong, "\n".join(wrong)


FORCED = [
    (256, 1, 4, 16, False), (201, 1, 8, 16, False), (201, 3, 3, 16, False),
    (201, 1, 3, 32, True), (256, 2, 4, 16, True), (201, 2, 2, 32, True),
]  # fmt: skip


@pytest.mark.parametrize(("n", "groups", "warps", "step", "bulk"), FORCED)
def test_groups_and_split_k_warps(n: int, groups: int, warps: int, step: int, bulk: bool) -> None:
    """Chunks of equal and of different lengths, and empty ones."""
    text = Decode(n, heads=4, group=2).text
    made = compilation(text, schedule(text, groups, warps, step, tma_loads=bulk))
    assert joint(made) == [warps]
    assert clusters(made) == {1: [1], 2: [2], 3: [1, 1]}[groups]
    wrong = complaints(made) + complaints(made, kind="large-logits", stages=("ma-tile",))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("bulk", [False, True])
def test_groups_of_two_with_a_second_kernel(bulk: bool) -> None:
    text = Decode(256, heads=4, group=2).text
    made = compilation(text, schedule(text, 2, 4, 16, tma_loads=bulk, cluster=1))
    assert joint(made) == [4] and clusters(made) == [1, 1]
    wrong = complaints(made)
    assert not wrong, "\n".join(wrong)


#: two groups: split-K warps of each, steps
CLUSTERED = [
    (Decode(201, heads=4, group=2), 2, 32),  # the second group is short
    (Decode(30, heads=2), 4, 16),  # the second group has no keys
    (Decode(150, 64, 1, 5, 5, mask=" | j < N - 90"), 4, 16),  # no query attends to the keys of the second group
    (Decode(170, 64, 1, 3, 3, mask=" | -50 < j - i - N + M <= 0"), 4, 16),  # the same for the first group
    (Decode(140, 96, 1, 6, 3, dtype="bf16"), 2, 16),
    (Decode(130, 256, 1, 2, 2, dtype="bf16"), 2, 16),
    (Decode(170, rows=5), 4, 16),  # several queries
    (Decode(128, 128, 2, 2, 2, score="softcap"), 4, 16),
    (Decode(100, 96, 1, 1, 1, score="alibi"), 4, 16),
]


@pytest.mark.parametrize(("given", "warps", "step"), CLUSTERED, ids=str)
def test_two_groups_are_a_cluster(given: Decode, warps: int, step: int) -> None:
    made = compilation(given.text, schedule(given.text, 2, warps, step))
    assert joint(made) == [warps] and clusters(made) == [2]
    assert not any(b.space.value == "temp" for b in made.result.modules["ma-tile"].buffers)
    number = [case[0] for case in CLUSTERED].index(given)
    for kind in ("random", ("large-logits", "one-hot", "masked")[number % 3]):
        wrong = complaints(made, kind=kind, stages=("ma-tile",))
        assert not wrong, "\n".join(wrong)


#: further work on the result in the kernel that combines
MORE = {
    "gated": ("input X: f16[B, H, M, D]", "output R: f16[B, H, M, D]", "R[b, h, i, d] = O[b, h, i, d] * X[b, h, i, d]"),
    "normal": (
        "", "output R: f32[B, H, M, D]", "R[b, h, i, d] = O[b, h, i, d] / sqrt(sum[e](O[b, h, i, e] * O[b, h, i, e]))",
    ),
    "twice": (
        "", "output O: f16[B, H, M, D]\noutput R: f16[B, M, H, D]", "R[b, i, h, d] = 2.0 * O[b, h, i, d]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MORE)
def test_clusters_with_more_after_them(name: str) -> None:
    text = Decode(201, heads=4, group=2).text
    declared, output, last = MORE[name]
    text = text.replace("output O: f16[B, H, M, D]", f"{declared}\n{output}") + f"\n{last}\n"
    made = compilation(text, schedule(text, 2, 4, 16))
    assert clusters(made) == [2]
    wrong = complaints(made)
    assert not wrong, "\n".join(wrong)


def test_a_cluster_that_does_not_fit_gets_a_second_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the rule leaves too little shared memory, the pass names the kernel, and the kernels are planned again."""
    large = Decode(16384, 256, 8, 32, 4)
    fitting = compile_file(Request(Path("given.naut"), text=replace(large, d=128).text))
    assert [k.cluster for k in fitting.modules["ma-tile"].kernels] == [2]
    found = compile_file(Request(Path("given.naut"), text=large.text))
    assert [k.cluster for k in found.modules["ma-tile"].kernels] == [1, 1] and not found.context.fallbacks.taken
    monkeypatch.setattr(streaming, "_SMALL", -(1 << 20))
    again = compile_file(Request(Path("given.naut"), text=large.text))
    assert again.context.fallbacks.taken == (("O_acc_part_2", 1),)
    assert again.cuda_module.code == found.cuda_module.code


def test_chunks_that_hold_nothing() -> None:
    """Two tiles of keys for twelve split-K warps: ten of them store identities."""
    text = Decode(30, heads=2).text
    made = compilation(text, schedule(text, 3, 4, 16))
    assert joint(made) == [4]
    for kind in ("random", "large-logits", "one-hot"):
        wrong = complaints(made, kind=kind, stages=("ma-tile",))
        assert not wrong, "\n".join(wrong)


def test_tma_copies_are_taken() -> None:
    """The tests above would also pass if every pipeline used ``cp.async``."""
    for n, groups in ((256, 2), (201, 1)):
        text = Decode(n, heads=4, group=2).text
        module = compilation(text, schedule(text, groups, 4, 16, tma_loads=True)).result.modules["ma-tile"]
        loads = [op for k in module.kernels for op in walk_ops(k.body) if isinstance(op, TmaLoad)]
        assert loads and all(op.stream for op in loads)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_specs_and_splits(seed: int) -> None:
    """Every split is right, or is rejected because of shared memory; other errors fail the test."""
    given, r = drawn(seed), random.Random(seed)
    choice = r.choice((1, 1, 2, 3)), r.choice((2, 3, 4)), r.choice((16, 16, 32))
    try:
        chosen = schedule(given.text, *choice, stages=r.choice((2, 3)), tma_loads=r.random() < 0.5)
        made = compilation(given.text, chosen)
    except ScheduleError as error:
        assert "bytes of shared memory are needed" in str(error), f"{given} {choice}: {error}"
        return
    assert joint(made) == [choice[1]]
    wrong = complaints(made, seed=seed, stages=("ma-tile",))
    wrong += complaints(made, kind="large-logits", seed=seed, stages=("ma-tile",))
    assert not wrong, "\n".join([f"{given} {choice}", *wrong])


def test_most_random_splits_are_legal() -> None:
    refused = 0
    for seed in range(100):
        given, r = drawn(seed), random.Random(seed)
        _, warps, step = r.choice((1, 1, 2, 3)), r.choice((2, 3, 4)), r.choice((16, 16, 32))
        refused += 2 * 2 * 2 * warps * step * given.d > 227 << 10
    assert refused < 30


# -- equal bits ---------------------------------------------------------------------------------


def first_sequence(given: Decode, inputs: InputSet, batch: int) -> Any:
    """The result of the kernels' threads for the first of ``batch`` sequences, whose inputs are ``inputs``."""
    trace = Trace()
    text = replace(given, batch=batch).text
    result = compile_file(
        Request(Path("given.naut"), "sm_90a", text=text, schedule=Schedule(batch_invariant=True)), [trace]
    )
    made = Compilation(result, tuple(trace.levels))
    assert joint(made) == [4]
    several = generate(result.modules["spec"], "random", 100 + batch)
    for name, x in inputs.arrays.items():
        several.arrays[name][: len(x)] = x
    return run(made.last("ma-tile"), several, "typed")["O"][0]


EQUAL = [(Decode(580, heads=4, group=4), 1), (Decode(256, 128, heads=1, dtype="bf16"), 2)]


@pytest.mark.parametrize(("given", "groups"), EQUAL, ids=str)
def test_equal_bits_for_every_batch_size(given: Decode, groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cuts, "CHUNK", -(-given.n // groups))
    spec = compile_file(Request(Path("given.naut"), text=given.text, until="spec")).modules["spec"]
    inputs = generate(spec, "random", 5)
    want = first_sequence(given, inputs, 1)
    assert np.abs(want).max() > 0
    np.testing.assert_array_equal(first_sequence(given, inputs, 3), want)
