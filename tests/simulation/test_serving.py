"""The printed text of specs of a server: pages behind lengths, windows and sinks, at several sizes of one text."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.driver import Request
from tests.fuzz.thresholds import lowered
from tests.shipped import ROOT
from tests.simulation.compared import at_sizes, compiled, differing, prepare
from tests.simulation.simulate import MISSING

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "a compiler")

SERVING = ROOT / "specs" / "serving" / "attention"
HEADS = {"Hq": 2, "Hkv": 1, "N": 48, "D": 32, "P": 16}

#: title -> spec, fixed sizes, sizes of one launch each, engines of the kernels; thresholds are lowered
CASES: dict[str, tuple[str, dict[str, int], list[dict[str, int]], list[str]]] = {
    "operands from pages in rows of their own": (
        "chunked_prefill", {**HEADS, "N": 128, "D": 64, "Pages": 300},
        [{"B": 1, "M": 40}], ["warp", "warp", "warpgroup"],
    ),
    "a correction that reads an input of fewer rows than a tile": (
        "paged_sinks_decode", {**HEADS, "Hq": 4, "Hkv": 2, "Pages": 5, "W": 20}, [{"B": 2}, {"B": 0}], ["warp"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_serving(name: str, tmp_path: Path) -> None:
    spec, dims, sizes, engines = CASES[name]
    with lowered():
        request = Request(SERVING / f"{spec}.naut", "sm_90a", {**dims, **sizes[0]}, keep_runtime=True)
        case = prepare(request)
    schedule = case.result.context.schedule
    assert schedule is not None and [k.mapping.engine for k in schedule.kernels] == engines
    program = compiled(case, tmp_path)
    for n, here in enumerate(sizes):
        found = differing(at_sizes(case, here), [n], program)
        assert not found, f"{here}: " + "\n".join(found)
