"""Specs with products that ship with nobody, on the target with warpgroup products: right, on the engine expected.

What runs is what a cubin would hold: kernels that ptxas cannot make fast are planned again (``driver.build_cubin``).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from nautilus.check.levels import Trace
from nautilus.core.errors import ScheduleError, UnsupportedError
from nautilus.core.schedule import Schedule
from nautilus.driver import Request, build_cubin, compile_file
from nautilus.ma_tile.passes.grid import persistent_grid
from nautilus.targets.limits import limits
from tests.endtoend import fuzz_products, schedules
from tests.endtoend.collection import warpgroups
from tests.endtoend.support import Compilation, complaints

ARCH = "sm_90a"
EVERY = {
    f"{family}: {name}": text
    for family in ("PRODUCTS", "ATTENTION", "PLAIN")
    for name, text in getattr(warpgroups, family).items()
}
SEEDS = range(int(os.environ.get("NAUTILUS_FUZZ", "16")))


def engines(made: Compilation) -> set[str]:
    """Engines of the kernels."""
    schedule = made.result.context.schedule
    assert schedule is not None
    return {k.mapping.engine for k in schedule.kernels}


def compilation(text: str, schedule: Schedule | None = None) -> Compilation:
    trace = Trace()
    request = Request(Path("given.naut"), ARCH, text=dedent(text).lstrip(), schedule=schedule)
    return Compilation(compile_file(request, [trace]), tuple(trace.levels))


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
        assert engines(made) == {"warp" if family == "PLAIN" else "warpgroup"}
    # the header says which: a schedule that leaves the engine out is one of the general plan
    header = result.cuda[: result.cuda.index("typedef")]
    assert ('"engine": "warpgroup"' in header) == ("warpgroup" in engines(made))


ADVERSE = (
    "PRODUCTS: residual", "ATTENTION: a sliding window", "ATTENTION: log of the sum", "ATTENTION: a mask as an input",
)  # fmt: skip


@pytest.mark.parametrize("kind", ["large-logits", "one-hot", "ascending", "masked"])
@pytest.mark.parametrize("name", ADVERSE)
def test_adverse_inputs(name: str, kind: str) -> None:
    wrong = complaints(compilation(EVERY[name]), kind=kind, stages=("ma-tile",))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_products(seed: int) -> None:
    text = fuzz_products.program(seed)
    wrong = complaints(compilation(text), seed=seed, stages=("ma-tile",))
    assert not wrong, "\n".join([*wrong, text])


# -- schedules other than the default ones ----------------------------------------------------------

CHAINS = ("a sliding window", "log of the sum")
PAIRS = ("elementwise work with several inputs", "batched, right operand shared")
#: what cannot be, and the words that say why
REFUSED = {
    "multicast loads of two blocks": "no load to share",  # of heads side by side
    "TMA stores that alias an operand's stage": "no operand leaves a stage",
    "128 rows a warpgroup": "bytes of shared memory",
}


@pytest.fixture
def few_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks take several tiles each at small sizes too."""
    monkeypatch.setattr(persistent_grid, "limits", lambda arch: replace(limits(arch), multiprocessors=3))


def _tried(text: str, change: schedules.Change) -> str:
    """The refusal; empty where the kernel is made, and right."""
    try:
        made = compilation(text, schedules.changed(schedules.default(text), change))
    except (ScheduleError, UnsupportedError) as error:
        return str(error)
    wrong = complaints(made, stages=("ma-tile",))
    assert not wrong, "\n".join(wrong)
    return ""


@pytest.mark.usefixtures("few_multiprocessors")
@pytest.mark.parametrize("choice", schedules.CHAIN)
def test_one_choice_of_a_chain(choice: str) -> None:
    text = warpgroups.ATTENTION[CHAINS[len(choice) % 2]]
    refusal = _tried(text, schedules.CHAIN[choice])
    assert not refusal or REFUSED.get(choice, "?") in refusal, refusal


@pytest.mark.usefixtures("few_multiprocessors")
@pytest.mark.parametrize("choice", schedules.PRODUCT)
def test_one_choice_of_a_product(choice: str) -> None:
    text = warpgroups.PRODUCTS[PAIRS[len(choice) % 2]]
    refusal = _tried(text, schedules.PRODUCT[choice])
    assert not refusal or REFUSED.get(choice, "?") in refusal, refusal


@pytest.mark.usefixtures("few_multiprocessors")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("structure", ["chain", "product"])
def test_any_choices_at_once(structure: str, seed: int) -> None:
    """They are right together, or refused: any other error fails."""
    family, names = (warpgroups.ATTENTION, CHAINS) if structure == "chain" else (warpgroups.PRODUCTS, PAIRS)
    _tried(family[names[seed % 2]], schedules.drawn(seed, structure))


def test_most_choices_are_possible() -> None:
    """The tests above would pass if everything were refused."""
    made = []
    for seed in range(6):
        text = warpgroups.PRODUCTS["residual"]
        try:
            compilation(text, schedules.changed(schedules.default(text), schedules.drawn(seed, "product")))
            made.append(seed)
        except ScheduleError:
            pass
    assert len(made) >= 2
