"""The printed text of every shipped spec runs on a simulated GPU and gives what the MA-tile interpreter gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.driver import Request, compile_file
from nautilus.frontend.semantics.check import load_spec
from tests.shipped import DISTINCT, SPECS
from tests.simulation.compared import differences, prepare
from tests.simulation.simulate import MISSING

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "a compiler")

#: architecture -> lengths: with odd lengths the kernels mask and copy by threads, with multiples of 8 TMA is possible.
ROUNDS = {"sm_80": (77, 130, 203), "sm_90a": (200, 136, 200)}
#: of products without matrix units, each of whose terms the machine computes alone
SMALL = {"sm_80": (77, 65, 50), "sm_90a": (136, 72, 64)}
FEW = {"B": 1, "H": 2, "Hq": 4, "Hkv": 2, "P": 2, "W": 50}

#: Sums of products of small integers are exact, so that every order gives the same bits.
EXACT = {"batched", "bf16", "f16", "f32", "i8_i32", "nt", "tn"}


def sizes(path: Path, arch: str) -> dict[str, int]:
    """A size for every dim of a spec; a query of one row stays one."""
    lengths, out = iter(SMALL[arch] if path.stem == "f32" else ROUNDS[arch]), dict[str, int]()
    for dim in load_spec(path).dims:
        if dim.name in FEW or dim.value == 1:
            out[dim.name] = FEW.get(dim.name, 1)
        elif dim.name == "D":
            out[dim.name] = 256 if path.stem.endswith("d256") and arch == "sm_90a" else 64 if arch == "sm_90a" else 24
        else:
            out[dim.name] = next(lengths)
    return out


#: on sm_80, heads of all sizes have 24 elements here, and on sm_90a those of all but 256 have 64
CASES = [(p, "sm_80") for p in DISTINCT]
CASES += [(p, "sm_90a") for p in SPECS if p.parent.name != "rowwise" and (p in DISTINCT or p.stem.endswith("d256"))]


@pytest.mark.parametrize("path, arch", CASES, ids=[f"{p.stem}-{arch}" for p, arch in CASES])
def test_runs(path: Path, arch: str, tmp_path: Path) -> None:
    case = prepare(Request(path, arch, sizes(path, arch)), integers=path.stem in EXACT)
    number = SPECS.index(path)
    found = differences(case, [0, 1 + number % 4], tmp_path)
    assert not found, "\n".join(found)


def test_both_engines_run() -> None:
    path = next(p for p in SPECS if p.stem == "causal_prefill")
    engines = set()
    for arch in ROUNDS:
        schedule = compile_file(Request(path, arch, sizes(path, arch), until="ma-tile")).context.schedule
        assert schedule is not None
        engines |= {k.mapping.engine for k in schedule.kernels}
    assert engines == {"warp", "warpgroup"}
