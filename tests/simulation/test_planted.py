"""Each single fault in a printed text is found by the simulated GPU or by the comparison of results.

NAUTILUS_PLANTS=9 tries up to nine places in the text for each fault, not the one of the suite, and faults of kernels
with warpgroups in each of them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from textwrap import dedent

import pytest

from nautilus.cuda.text import wrapping
from nautilus.driver import Request
from nautilus.ma_tile.passes.grid import persistent_grid
from nautilus.targets.limits import limits
from tests.endtoend import schedules
from tests.endtoend.collection.decode import Decode, schedule
from tests.shipped import ROOT
from tests.simulation import planted
from tests.simulation.compared import Case, compiled, differing, prepare
from tests.simulation.planted import Plant
from tests.simulation.simulate import MISSING, POLICIES, Fault
from tests.simulation.test_schedules import ATTENTION, GEMM

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "a compiler")

_DYNAMIC = {**schedules.BACK_TO_BACK["l2_supertiles"].mapping, "register_operands": True}
_TIGHT = schedules.Change({**schedules.GEMM["dynamic"].mapping, "stages": 2, "epilogue": "tma"}, columns=128)
_CLUSTER = {"cluster": 2, "persistent": "none", "tile_scheduling": "cooperative", "warpgroups": 2}
_PREFILL = {"B": 1, "H": 2, "M": 77, "N": 130, "D": 24}

KINDS = {
    "attention": planted.WARPGROUP, "gemm": planted.WARPGROUP, "cluster": planted.CLUSTER, "warps": planted.WARP,
    "decode": planted.DECODE,
}  # fmt: skip
#: kinds that have the same faults, each of which is planted in one of them, alternately
ALIKE = ("attention", "gemm")
ALL = "NAUTILUS_PLANTS" in os.environ


def _planted(kind: str, number: int, plant: Plant) -> bool:
    """Whether the ``number``-th fault of ``kind`` is a case: in the kind whose turn it is, of those that have it."""
    kinds = [k for k in ALIKE if k not in plant.absent and k not in plant.redundant] or [*ALIKE]
    return ALL or kind not in ALIKE or kind == kinds[number % len(kinds)]


CASES = [(kind, p) for kind, plants in KINDS.items() for n, p in enumerate(plants) if _planted(kind, n, p)]


def _warpgroups(text: str, change: schedules.Change, *, integers: bool) -> Case:
    text = dedent(text).lstrip()
    schedule = schedules.changed(schedules.default(text), change)
    request = Request(Path("given.naut"), "sm_90a", text=text, schedule=schedule)
    with pytest.MonkeyPatch.context() as patch:  # one block has several tiles
        patch.setattr(persistent_grid, "limits", lambda arch: replace(limits(arch), multiprocessors=1))
        return prepare(request, integers=integers)


@cache
def kernel(kind: str) -> Case:
    """The kernel in whose text faults of ``kind`` are planted, each statement on one line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wrapping, "WIDTH", 10_000)
        return _kernel(kind)


def _kernel(kind: str) -> Case:
    if kind == "attention":
        return _warpgroups(ATTENTION, schedules.Change(_DYNAMIC), integers=False)
    if kind == "gemm":
        return _warpgroups(GEMM, _TIGHT, integers=True)
    if kind == "cluster":
        return _warpgroups(ATTENTION.replace("N = 200", "N = 328"), schedules.Change(_CLUSTER), integers=False)
    if kind == "decode":
        text = Decode(201, heads=4, group=2).text
        plan = schedule(text, groups=1, warps=4, step=16, arch="sm_80")
        return prepare(Request(Path("given.naut"), "sm_80", text=text, schedule=plan))
    return prepare(Request(ROOT / "specs/attention/causal_prefill.naut", "sm_80", _PREFILL))


def found(case: Case, text: str, folder: Path) -> str:
    """What is wrong with ``text``; empty if the runs of all schedulers are right. The first one finds most faults."""
    program = compiled(case, folder, text)
    try:
        return "\n".join(differing(case, POLICIES[:1], program) or differing(case, POLICIES[1:], program))
    except Fault as fault:
        return str(fault)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_found_without_a_fault(kind: str, tmp_path: Path) -> None:
    """Under two of the schedulers: another one for each kind."""
    case, another = kernel(kind), 1 + list(KINDS).index(kind) % (len(POLICIES) - 1)
    assert differing(case, [0, another], compiled(case, tmp_path)) == []


@pytest.mark.parametrize("kind, plant", CASES, ids=[f"{kind}: {p.name}" for kind, p in CASES])
def test_every_fault_is_found(kind: str, plant: Plant, tmp_path: Path) -> None:
    case = kernel(kind)
    texts = plant.texts(case.text, int(os.environ.get("NAUTILUS_PLANTS", "0")))
    assert texts or kind in plant.absent, "no such text"
    for line, text in texts:
        assert text != case.text
        what = found(case, text, tmp_path)
        if kind in plant.redundant:
            assert what == "", f"line {line} is not redundant: {what}"
        else:
            assert what, f"line {line}: no check finds the fault"
