"""Warpgroup MMAs on the GPU: specs that are not shipped, shapes, inputs and schedules of every kind.

The tests run the cubin of ``driver.build_cubin``.  Outputs are filled with NaN before a run, every kernel runs twice
with the same bits, and the result stays within the bound on these inputs (random ones: within the stated bound itself).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from nautilus.check import compare, device
from nautilus.check.bound.stated import stated
from nautilus.check.inputs import InputSet, generate, kinds
from nautilus.check.reference import Compiled, Reference, reference
from nautilus.core.errors import ScheduleError, UnsupportedError
from nautilus.core.schedule import Schedule
from nautilus.driver import Request, Result, build_cubin, compile_file
from nautilus.frontend.semantics.check import load_text
from nautilus.ma_tile.passes.grid import persistent_grid
from nautilus.runtime.device import default_arch
from nautilus.runtime.nvrtc import compile_cuda
from nautilus.targets.limits import limits
from tests.endtoend import schedules
from tests.endtoend.collection import warpgroups
from tests.endtoend.support import FLOOR, TIES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(default_arch() != "sm_90a", reason="the GPU has no warpgroup MMAs"),
]

KINDS = ("random", "large-logits", "one-hot", "ascending", "masked")

#: of a runtime dim, where its bound allows it
SIZE = 333


@lru_cache(maxsize=64)
def expected(text: str, kind: str) -> tuple[InputSet, Reference]:
    """Inputs and the expected outputs, which do not depend on the schedule."""
    spec = load_text(text)
    given = generate(spec, kind, sizes=spec.samples(SIZE))
    return given, reference(Compiled(spec), given, stated(spec))


def wrong(runner: device.Runner, result: Result, text: str, kind: str) -> list[str]:
    """The differences from the expected outputs on inputs of ``kind``."""
    given, want = expected(text, kind)
    if not want.in_range or any(not np.isfinite(x).all() for x in want.rounded.values() if x.dtype.kind == "f"):
        return []  # near overflow, rounding alone decides what is infinite
    got, same = runner.run(given)
    out = [] if same else [f"{kind}: two launches gave different bits"]
    for name, bound in stated(result.modules["spec"]).items():
        if got[name].dtype.kind != "f":
            found = compare.exact(got[name], want.rounded[name], TIES if bound.ties else 0.0)
        else:
            slack = FLOOR * want.rounded[name].size ** 0.5
            found = compare.within(got[name], want.rounded[name], want.allowed[name] + slack)
            if kind == "random" and compare.relative(got[name], want.values[name]) > bound.relative:
                out.append(f"{name}: {compare.relative(got[name], want.values[name]):.2e}, stated {bound.relative:.2e}")
        if found is not None:
            out.append(f"{kind}: {name}{found.text}, off by {found.measured:.2e}")
    return out


def check(text: str, only: tuple[str, ...] = KINDS, schedule: Schedule | None = None, arch: str = "sm_90a") -> Result:
    """Compile and run ``text``; with a schedule, ScheduleError is the caller's."""
    text = dedent(text).lstrip()
    request = Request(Path("given.naut"), arch, text=text, schedule=schedule)
    if schedule is None:
        result, cubin = build_cubin(request)
    else:
        result = compile_file(request)
        cubin = compile_cuda(result.cuda, arch)
    with device.opened(result, cubin, result.modules["spec"].samples(SIZE)) as runner:
        found = [x for kind in only if kind in kinds(result.modules["spec"]) for x in wrong(runner, result, text, kind)]
    assert not found, "\n".join(found)
    return result


# -- specs and shapes ---------------------------------------------------------------------------

PLAIN = (
    "rows of 2-byte alignment",
    "a banded left operand",
    "weights behind a mask, a ragged head",
)
EVERY = warpgroups.PRODUCTS | warpgroups.ATTENTION | {n: warpgroups.PLAIN[n] for n in PLAIN}


@pytest.mark.parametrize("name", EVERY)
def test_specs(name: str) -> None:
    check(EVERY[name])


@pytest.mark.parametrize("name", ["residual", "a sliding window", "groups of queries, brain floats", "chained"])
def test_the_class_of_sm_80_on_the_same_card(name: str) -> None:
    result = check(EVERY[name], arch="sm_90")
    assert "wgmma" not in result.cuda


def attention(d: int, m: int, n: int, mask: str, group: int = 1, dtype: str = "f16", heads: int = 4) -> str:
    """``mask`` as the domain of a softmax is written."""
    return f"""
        dim B = 2, H = {heads}, G = {heads // group}, M = {m}, N = {n}, D = {d}
        input Q: {dtype}[B, H, M, D]
        input K: {dtype}[B, G, N, D]
        input V: {dtype}[B, G, N, D]
        output O: {dtype}[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h // {group}, j, d]) / sqrt(D)
        P[b, h, i, j] = softmax[j{mask}](S[b, h, i, j])
        O[b, h, i, d] = sum[j](P[b, h, i, j] * V[b, h // {group}, j, d])"""


CAUSAL = " | j - i <= N - M"
SHAPES = [
    (64, 128, 128, "", 1, "f16"), (64, 513, 400, CAUSAL, 2, "f16"), (64, 385, 641, "", 4, "bf16"),
    (128, 128, 128, CAUSAL, 1, "f16"), (128, 513, 400, CAUSAL, 4, "f16"), (128, 200, 333, "", 1, "bf16"),
    (256, 128, 160, "", 1, "f16"), (256, 300, 211, CAUSAL, 2, "f16"), (256, 130, 417, CAUSAL, 1, "bf16"),
    (96, 200, 200, CAUSAL, 1, "f16"), (192, 200, 200, "", 1, "f16"), (128, 256, 512, " | -70 < j - i <= 3", 1, "f16"),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_of_chains(shape: tuple[int, int, int, str, int, str]) -> None:
    """Rows beyond the last tile, loops that end in one, rows without any key (more rows than keys, causal)."""
    check(attention(*shape), ("random", "large-logits", "ascending"))


PRODUCTS = [
    (128, 64, 128, "i, k", "k, j", "f16", "f16"), (1000, 1096, 72, "i, k", "k, j", "f16", "f16"),
    (776, 520, 328, "k, i", "k, j", "f16", "f32"), (776, 521, 328, "k, i", "j, k", "bf16", "bf16"),
    (777, 520, 328, "i, k", "j, k", "f16", "bf16"), (129, 72, 4096, "i, k", "j, k", "f16", "f16"),
    (2048, 2048, 192, "i, k", "j, k", "bf16", "f32"), (3000, 192, 136, "i, k", "k, j", "f16", "f16"),
]  # fmt: skip


@pytest.mark.parametrize("shape", PRODUCTS, ids=str)
def test_shapes_of_products(shape: tuple[int, int, int, str, str, str, str]) -> None:
    m, n, k, left, right, dtype, out = shape
    text = f"""
        dim M = {m}, N = {n}, K = {k}
        input A: {dtype}[{left.upper().replace("I", "M").replace("J", "N")}]
        input W: {dtype}[{right.upper().replace("I", "M").replace("J", "N")}]
        output Y: {out}[M, N]
        Y[i, j] = sum[k](A[{left}] * W[{right}])"""
    check(text, ("random", "one-hot"))


# -- schedules ----------------------------------------------------------------------------------


@pytest.fixture
def few_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block has several tiles even at small sizes."""
    monkeypatch.setattr(persistent_grid, "limits", lambda arch: replace(limits(arch), multiprocessors=3))


CHAINS = (
    warpgroups.ATTENTION["a sliding window"], warpgroups.ATTENTION["log of the sum"],
    attention(128, 260, 300, CAUSAL, 2), attention(64, 400, 200, CAUSAL, 1, "bf16", 2),
)  # fmt: skip
PAIRS = tuple(
    warpgroups.PRODUCTS[n]
    for n in ("elementwise work with several inputs", "batched, right operand shared", "two outputs of one product")
)


def _tried(text: str, change: schedules.Change) -> None:
    """Check that the result is right; skip the test if the schedule is refused."""
    schedule = schedules.changed(schedules.default(text), change)
    try:
        check(text, ("random", "large-logits", "ascending"), schedule)
    except (ScheduleError, UnsupportedError) as error:
        pytest.skip(str(error).split("\n", 1)[0])


@pytest.mark.usefixtures("few_multiprocessors")
@pytest.mark.parametrize("choice", schedules.BACK_TO_BACK)
def test_one_choice_of_a_chain(choice: str) -> None:
    _tried(CHAINS[sum(map(ord, choice)) % len(CHAINS)], schedules.BACK_TO_BACK[choice])


@pytest.mark.usefixtures("few_multiprocessors")
@pytest.mark.parametrize("choice", schedules.GEMM)
def test_one_choice_of_a_product(choice: str) -> None:
    _tried(PAIRS[sum(map(ord, choice)) % len(PAIRS)], schedules.GEMM[choice])


@pytest.mark.usefixtures("few_multiprocessors")
@pytest.mark.parametrize("seed", range(100, 124))
def test_any_choices_of_a_chain(seed: int) -> None:
    _tried(CHAINS[seed % len(CHAINS)], schedules.drawn(seed, "chain"))


@pytest.mark.usefixtures("few_multiprocessors")
@pytest.mark.parametrize("seed", range(100, 124))
def test_any_choices_of_a_product(seed: int) -> None:
    _tried(PAIRS[seed % len(PAIRS)], schedules.drawn(seed, "product"))


@pytest.mark.parametrize("persistent", ["none", "static", "snake", "dynamic"])
def test_as_many_tiles_as_fill_the_card(persistent: str) -> None:
    text = attention(64, 150, 130, CAUSAL, 1, heads=80)
    schedule = schedules.changed(
        schedules.default(text),
        schedules.Change(
            {"persistent": persistent, "warpgroups": 2, "producer_registers": 40, "consumer_registers": 232}
        ),
    )
    check(text, ("random",), schedule)
