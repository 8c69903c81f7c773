"""Specs with matrix products, on a target with warpgroup MMAs: the results are right, on the expected engine.

The tests run the kernels of a cubin: a kernel whose wgmma ptxas serialises is planned again (``driver.build_cubin``).
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from textwrap import dedent

import pytest

from nautilus.check.levels import Trace
from nautilus.core.errors import ScheduleError, UnsupportedError
from nautilus.core.schedule import Schedule
from nautilus.driver import Request, build_cubin, compile_file
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.passes.grid import persistent_grid
from nautilus.passes.selection import narrow_choice
from nautilus.scalar.passes.operands import store_operands
from nautilus.targets import window_rates
from nautilus.targets.limits import limits
from nautilus.vr_tile.ir import MapOp, walk_ops
from tests.endtoend import fuzz_products, schedules
from tests.endtoend.collection import warpgroups
from tests.endtoend.collection.windows import WINDOWS
from tests.endtoend.support import Compilation, complaints

ARCH = "sm_90a"
EVERY = {
    f"{family}: {name}": text
    for family in ("PRODUCTS", "ATTENTION", "SHIFTED", "PLAIN")
    for name, text in getattr(warpgroups, family).items()
}
SEEDS = range(int(os.environ.get("NAUTILUS_FUZZ", "5")))
HEADERS = 8  # one of this many specs has a header, which states the error and takes longer to find than the text


def engines(made: Compilation) -> set[str]:
    """The engines of the kernels."""
    schedule = made.result.context.schedule
    assert schedule is not None
    return {k.mapping.engine for k in schedule.kernels}


def compilation(text: str, schedule: Schedule | None = None) -> Compilation:
    trace = Trace()
    request = Request(
        Path("given.naut"), ARCH, text=dedent(text).lstrip(), schedule=schedule, verified_stages=True
    )  # fmt: skip
    return Compilation(compile_file(request, [trace]), tuple(trace.levels))


@cache
def default_compilation(name: str) -> Compilation:
    """For tests that change no constant."""
    return compilation(EVERY[name])


@pytest.mark.parametrize("name", EVERY)
def test_every_level_of_what_a_cubin_holds(name: str) -> None:
    trace = Trace()
    request = Request(Path("given.naut"), ARCH, text=dedent(EVERY[name]).lstrip())
    result, cubin = build_cubin(request, [trace])
    made = Compilation(result, tuple(trace.levels))
    wrong = complaints(made)
    assert not wrong, "\n".join(wrong)
    assert len(cubin.resources) == len(result.modules["ma-tile"].kernels)
    family, _, short = name.partition(": ")
    if short not in warpgroups.CLOSE:
        assert result.context.schedule is not None
        combining = {"warp"} if result.context.schedule.splits else set[str]()  # the kernel that combines chunks
        assert engines(made) - combining == ({"warp"} - combining if family == "PLAIN" else {"warpgroup"})
    if list(EVERY).index(name) % HEADERS:
        return
    # the header says which: a schedule that leaves the engine out is one of the general plan
    header = result.cuda[: result.cuda.index("typedef")]
    assert ('"engine": "warpgroup"' in header) == ("warpgroup" in engines(made))


WINDOWED = ("ATTENTION: a sliding window", "ATTENTION: more queries than keys, causal")


@pytest.mark.parametrize("name", WINDOWED)
def test_a_masked_exponential_is_computed_once(name: str) -> None:
    """The sum and the product that read it have the same masks, also where keys end inside of a tile."""
    for k in default_compilation(name).result.modules["vr-tile"].kernels:
        matrices = [op for op in walk_ops(k.body) if isinstance(op, MapOp) and len(op.result.type.axes) == 2]
        assert [op.op for op in matrices].count("exp2") == 1


STORED = ("PRODUCTS: an operand that is computed", "PLAIN: an operand through a table", "PLAIN: every second row",
          "SHIFTED: channels and taps last")  # fmt: skip


@pytest.mark.parametrize("name", STORED)
def test_stored_operands(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a large product stores: each level agrees, and the product is one of warpgroups."""
    for suffix in ("", "_APART"):
        monkeypatch.setattr(store_operands, f"AGAIN{suffix}", 64)
        monkeypatch.setattr(store_operands, f"TERMS{suffix}", 1)
    made = compilation(EVERY[name].replace("N = 136", "N = 520"))
    wrong = complaints(made)
    assert not wrong, "\n".join(wrong)
    assert made.result.context.schedule is not None
    assert made.result.context.schedule.kernels[-1].mapping.engine == "warpgroup"
    assert any(b.name.endswith("_left") for b in made.result.modules["scalar"].buffers)


BYTES = """
dim H = 2, M = 128, N = {n}, D = {d}
input Q: f8e4m3[H, M, D]
input K: f8e4m3[1, N, D]
input V: f8e4m3[1, N, D]
output O: bf16[H, M, D]
S[h, i, j] = sum[d](Q[h, i, d] * K[h // 2, j, d]) / 8
P[h, i, j] = softmax[j{mask}](S[h, i, j])
O[h, i, d] = sum[j](P[h, i, j] * V[h // 2, j, d])
"""


@pytest.mark.parametrize(("n", "mask", "d"), [(256, "", 88), (208, " | j <= i + 80", 64)])
def test_chained_products_of_bytes(n: int, mask: str, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both products have 8-bit operands: the result of the first one is the left operand of the second one."""
    monkeypatch.setattr(store_operands, "AGAIN", 1)
    monkeypatch.setattr(store_operands, "TERMS", 1)
    monkeypatch.setattr(narrow_choice, "MARGIN", -100.0)
    made = compilation(BYTES.format(n=n, mask=mask, d=d))
    wrong = complaints(made, stages=("ma-tile",))
    assert not wrong, "\n".join(wrong)
    kernel = next(k for k in made.result.modules["ma-tile"].kernels if k.name == "O")
    products = [op for op in ma.walk_ops(kernel.body) if isinstance(op, ma.MmaOp)]
    assert products and all(op.instr == "wgmma.e4m3" for op in products)


@pytest.mark.parametrize("name", WINDOWS)
def test_stored_windows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for windows, which only large products store."""
    monkeypatch.setattr(window_rates, "WINDOWS_SHARE", 1e6)
    made = compilation(WINDOWS[name])
    wrong = complaints(made)
    assert not wrong, "\n".join(wrong)
    assert made.result.context.schedule is not None
    assert made.result.context.schedule.kernels[-1].mapping.engine == "warpgroup"
    assert any(b.name.endswith("_windows") for b in made.result.modules["scalar"].buffers)


ADVERSE = (
    "PRODUCTS: residual", "ATTENTION: a sliding window", "ATTENTION: log of the sum", "ATTENTION: a mask as an input",
)  # fmt: skip


@pytest.mark.parametrize("kind", ["large-logits", "one-hot", "ascending", "masked"])
@pytest.mark.parametrize("name", ADVERSE)
def test_adverse_inputs(name: str, kind: str) -> None:
    wrong = complaints(default_compilation(name), kind=kind, stages=("ma-tile",))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_products(seed: int) -> None:
    text = fuzz_products.program(seed)
    wrong = complaints(compilation(text), seed=seed, stages=("ma-tile",))
    assert not wrong, "\n".join([*wrong, text])


# -- schedules other than the default ones ----------------------------------------------------------

PREFILLS = ("a sliding window", "log of the sum")
PAIRS = ("elementwise work with several inputs", "batched, right operand shared")
#: illegal options -> words of the reason
REFUSED = {
    "two blocks share loads": "no load to share",  # of heads side by side
    "stores by TMA from an operand's stage": "no operand has a free stage",
    "128 rows of a warpgroup": "bytes of shared memory",
}


@pytest.fixture
def few_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks have several tiles each also at small sizes."""
    monkeypatch.setattr(persistent_grid, "limits", lambda arch: replace(limits(arch), multiprocessors=3))


def _tried(text: str, change: schedules.Change) -> str:
    """The reason of the rejection; empty if the kernel compiles and is right."""
    try:
        made = compilation(text, schedules.changed(schedules.default(text), change))
    except (ScheduleError, UnsupportedError) as error:
        return str(error)
    wrong = complaints(made, stages=("ma-tile",))
    assert not wrong, "\n".join(wrong)
    return ""


@pytest.mark.usefixtures("few_multiprocessors")
@pytest.mark.parametrize("option", schedules.BACK_TO_BACK)
def test_one_option_of_back_to_back_gemms(option: str) -> None:
    text = warpgroups.ATTENTION[PREFILLS[len(option) % 2]]
    refusal = _tried(text, schedules.BACK_TO_BACK[option])
    assert not refusal or REFUSED.get(option, "?") in refusal, refusal


@pytest.mark.usefixtures("few_multiprocessors")
@pytest.mark.parametrize("option", schedules.GEMM)
def test_one_option_of_a_gemm(option: str) -> None:
    text = warpgroups.PRODUCTS[PAIRS[len(option) % 2]]
    refusal = _tried(text, schedules.GEMM[option])
    assert not refusal or REFUSED.get(option, "?") in refusal, refusal


@pytest.mark.usefixtures("few_multiprocessors")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("structure", ["chain", "product"])
def test_random_options_together(structure: str, seed: int) -> None:
    """A combination is right or is rejected; other errors fail the test."""
    family, names = (warpgroups.ATTENTION, PREFILLS) if structure == "chain" else (warpgroups.PRODUCTS, PAIRS)
    _tried(family[names[seed % 2]], schedules.drawn(seed, structure))


def test_most_random_options_are_legal() -> None:
    """The tests above would also pass if every combination were rejected."""
    made = []
    for seed in range(6):
        text = dedent(warpgroups.PRODUCTS["residual"]).lstrip()
        schedule = schedules.changed(schedules.default(text), schedules.drawn(seed, "product"))
        try:
            compile_file(Request(Path("given.naut"), ARCH, text=text, schedule=schedule, until="ma-tile"))
            made.append(seed)
        except ScheduleError:
            pass
    assert len(made) >= 2
